/*
 * Job: seats, who sits there, and what happened. Private to this folder.
 *
 *   job -- agents, by incarnation: waiting, alive, or lost and still in its seat
 *    |---- seats[rank] -> agent; NULL = free
 *    |---- joins: waiting, due for a progress message, due for their answer
 *    |---- sessions: idle, or behind the events
 *    |---- events: the last change of each rank, and deleted groups, by number
 *    |---- groups by name, and the registries of groups that are known by tag or by their turn
 *    `---- meshes by name, with the groups along their dimensions
 *
 * Two agents of a job never have the same incarnation. A seat is freed only by the next agent in
 * it, or when its agent goes before the job was ever formed. `present` = waiting + alive_count;
 * in a formed job alive_count + lost_count = world_size.
 */
#ifndef TUTTI_SERVER_COORDINATOR_MEMBER_JOB_H
#define TUTTI_SERVER_COORDINATOR_MEMBER_JOB_H

#include "server/coordinator/core/core.h"
#include "server/coordinator/core/types.h"
#include "server/coordinator/member/members.h"
#include "tutti/types.h"

#define COORD_LEFT "left"      /* how the reason of a rank begins that said goodbye */
#define COORD_REASON_MAX 160   /* bytes of "left: ...", with the NUL */
#define COORD_DELETED_MAX 1024 /* deleted groups whose events are kept */

/* Something that sessions are told. Embedded in the agent or the group it is about. */
struct coord_event {
    tutti_map_node node; /* in the job's events, by number */
    unsigned char key[8];
    uint64_t number; /* 0 = not among the events */
    bool of_group;
    tutti_list_node deleted;                     /* of a group: in the job's list, ... */
    uint64_t group_id;                           /* ... and what it was */
    const char *group_name;                      /* borrowed while it is among the events */
    const struct tutti_coordinator_abort *abort; /* the group was aborted; NULL = deleted */
};

struct coord_agent {
    tutti_map_node node; /* in the job's agents */
    unsigned char key[8];
    coord_job *job;
    uint64_t incarnation;
    tutti_coordinator_state state;
    bool seated; /* has a rank: asked for it, or was given it */
    uint32_t rank;
    tutti_coordinator_former former;
    uint64_t joined_epoch;  /* at which this process got its rank; 0 = not yet */
    uint64_t changed_epoch; /* of its last change: joined, leaving, lost */
    uint64_t since_ms;
    tutti_list_node unassigned; /* among those that wait to be given a rank, in order of arrival */
    tutti_list_node joins;      /* its parked Join calls */
    tutti_timer timer;          /* gives up the seat, or the rank, when nobody calls */
    tutti_coordinator_session *session; /* borrowed */
    bool had_session;
    bool restored;        /* loaded from the store, and not heard since */
    uint64_t gone_ns;     /* when it lost its session */
    tutti_map told;       /* its progress, by group: progress_private.h */
    uint64_t told_wanted; /* the newest question that its session was told, */
    uint64_t answered;    /* ... and that it has answered */
    uint64_t acked_event; /* the number of the last event that its session was told */
    uint64_t ops;         /* that have ended on it, as it told last */
    uint64_t counted_ns;  /* when it did */
    uint64_t bytes;       /* that it gave to them */
    bool counted;         /* it has told */
    coord_event event;
    struct coord_gpus *gpus;       /* in the job's map; NULL = none. gpus.c */
    tutti_coordinator_agent info;  /* points into `data` */
    char reason[COORD_REASON_MAX]; /* of its loss; while alive: of its leave, "" = it stays */
    char data[];
};

struct coord_job {
    tutti_map_node node; /* in the coordinator's jobs */
    tutti_coordinator *owner;
    char name[TUTTI_NAME_MAX + 1];
    uint64_t id;
    uint64_t since_ms;
    uint32_t world_size;
    uint32_t min_world; /* less than world_size: elastic */
    uint64_t grown_ns;  /* when somebody came last */
    uint64_t epoch;     /* 0 = not formed */
    unsigned char epoch_key[TUTTI_COORDINATOR_EPOCH_KEY_BYTES];
    bool ever_formed; /* it, or the one it replaced */

    coord_agent **seats;
    uint64_t *asked; /* a bit per rank: taken by number or given, and not lost */
    tutti_map agents;
    tutti_map gpus; /* of them: gpus.c */
    tutti_list_node unassigned;
    uint32_t unassigned_count;
    uint32_t present;  /* waiting and alive */
    uint32_t attached; /* waiting, with a call */
    uint32_t alive_count;
    uint32_t lost_count;
    uint64_t last_joined_epoch;

    tutti_list_node joins;   /* told lately */
    tutti_list_node due;     /* to be told `progress` */
    tutti_list_node answers; /* to be told their seat */
    tutti_timer tick;
    tutti_coordinator_progress progress;
    uint64_t progress_ns;
    bool changed; /* since then */
    coord_task join_task;

    uint64_t ops_total; /* of all agents, since this process has heard of them */
    uint64_t bytes_total;
    uint64_t wanted;     /* the newest question about progress, */
    uint64_t wanted_ns;  /* ... and when it was asked */
    tutti_timer wanting; /* asks the next one */
    tutti_list_node idle;
    tutti_list_node behind;
    coord_task fan_out;
    tutti_list_node watches; /* of members: told all, ... */
    tutti_list_node watches_behind;
    coord_task watch_task;
    tutti_map events;
    uint64_t event_count;    /* numbers given */
    uint64_t event_moves;    /* events that came or went */
    uint64_t trimmed;        /* the number of the newest event that was thrown away */
    tutti_list_node deleted; /* groups among the events, the oldest first */
    uint32_t deleted_count;

    tutti_map groups;
    tutti_list_node shrinking; /* rounds of groups that shrink */
    tutti_list_node talking;   /* groups that have exchange rounds */
    uint64_t group_ids;
    uint64_t member_count; /* of all groups but world, and of meshes */
    tutti_map rosters;     /* by tag and ranks */
    uint64_t registry_numbers;
    uint64_t restored_world; /* the id of "world", out of the store */
    tutti_map meshes;
    uint64_t row_count; /* groups of meshes */

    tutti_timer linger;
};

/* ------------------------------------------------------------------ job.c, job_life.c */

/* Of the coordinator's map; NULL for NULL. */
coord_job *coord_job_from(tutti_map_node *node);

/* TUTTI_INVALID_ARGUMENT BAD_NAME; TUTTI_NOT_FOUND NO_JOB */
tutti_code coord_job_find(tutti_coordinator *self, const char *job, coord_job **ret_job,
                          tutti_error *err);

/*
 * The job to join: the one there is, the one of that name begun anew when nobody is left in it, or
 * a new one.
 *
 * [in] name  checked
 *
 * TUTTI_INVALID_ARGUMENT    WORLD_SIZE
 * TUTTI_RESOURCE_EXHAUSTED  JOB_LIMIT; no memory
 */
tutti_code coord_job_begin(tutti_coordinator *self, const char *name, uint32_t world_size,
                           coord_job **ret_job, tutti_error *err);

/* After somebody went, or did not come after all: a job that nobody ever completed ends when it is
 * empty, another one later. The job may be gone when this returns. */
void coord_job_settle(coord_job *job);

/* An epoch begins, with a key of its own. */
void coord_job_next_epoch(coord_job *job);
void coord_job_draw_key(coord_job *job);
tutti_coordinator_epoch_key coord_job_key(const coord_job *job);

void coord_jobs_fini(tutti_coordinator *self);

/*
 * The agent that speaks; it is alive.
 *
 * TUTTI_INVALID_ARGUMENT     BAD_NAME
 * TUTTI_NOT_FOUND            NO_JOB, NO_RANK
 * TUTTI_FAILED_PRECONDITION  STALE_INCARNATION
 */
tutti_code coord_member_check(tutti_coordinator *self, const tutti_coordinator_member *member,
                              coord_agent **ret_agent, tutti_error *err);

#endif
