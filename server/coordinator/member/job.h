/*
 * Job: seats, who sits there, and what happened. Private to this folder.
 *
 *   job ── agents, by incarnation: waiting, alive, or lost and still in its seat
 *    ├──── seats[rank] → agent; NULL = free
 *    ├──── joins: waiting, due for a progress message, due for their answer
 *    ├──── sessions: idle, or behind the events
 *    ├──── events: the last change of each rank, and deleted groups, by number
 *    ├──── groups by name, and rosters: who made those that are known by tag or by their turn
 *    └──── meshes by name, with the groups along their dimensions
 *
 * Two agents of a job never have one incarnation; a seat is freed only by the next agent in it, or
 * when its agent goes before the world was ever complete.
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
    tutti_link deleted;     /* of a group: in the job's list, ... */
    uint64_t group_id;      /* ... and what it was */
    const char *group_name; /* borrowed while it is among the events */
};

struct coord_agent {
    tutti_map_node node; /* in the job's agents */
    unsigned char key[8];
    coord_job *job;
    uint64_t incarnation;
    tutti_coordinator_state state;
    bool seated; /* asked for its rank, or was given one */
    uint32_t rank;
    uint64_t joined_epoch;
    uint64_t changed_epoch;
    uint64_t since_ms;
    tutti_link unassigned; /* among those that wait to be given a rank, in order of arrival */
    tutti_link joins;      /* its parked Join calls */
    tutti_timer timer;     /* gives up the seat, or the rank, when nobody calls */
    tutti_coordinator_session *session; /* borrowed */
    bool had_session;
    bool restored;        /* out of the store, and not heard of since */
    uint64_t gone_ns;     /* when it lost its session */
    tutti_map told;       /* its progress, by group: progress_private.h */
    uint64_t told_wanted; /* the newest question that its session was told, */
    uint64_t answered;    /* ... and that it has answered */
    uint64_t heard;       /* the number of the last event that its session was told */
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
    tutti_link unassigned;
    uint32_t unassigned_count;
    uint32_t present;  /* waiting and alive */
    uint32_t attached; /* waiting, with a call */
    uint32_t alive_count;
    uint32_t lost_count;
    uint64_t last_joined_epoch;

    tutti_link joins;   /* told lately */
    tutti_link due;     /* to be told `progress` */
    tutti_link answers; /* to be told their seat */
    tutti_timer tick;
    tutti_coordinator_progress progress;
    uint64_t progress_ns;
    bool changed; /* since then */
    coord_work join_work;

    uint64_t wanted;     /* the newest question about progress, */
    uint64_t wanted_ns;  /* ... and when it was asked */
    tutti_timer wanting; /* asks the next one */
    tutti_link idle;
    tutti_link behind;
    coord_work fan_out;
    tutti_link watches; /* of members: told all, ... */
    tutti_link watches_behind;
    coord_work watch_work;
    tutti_map events;
    uint64_t event_count; /* numbers given */
    uint64_t trimmed;     /* the number of the newest event that was thrown away */
    tutti_link deleted;   /* groups among the events, the oldest first */
    uint32_t deleted_count;

    tutti_map groups;
    tutti_link talking; /* groups that have meetings */
    uint64_t group_ids;
    uint64_t member_count; /* of all groups but world, and of meshes */
    tutti_map rosters;     /* by tag and ranks */
    uint64_t roster_numbers;
    uint64_t restored_world; /* the id of "world", out of the store */
    tutti_map meshes;
    uint64_t row_count; /* groups of meshes */

    tutti_timer linger;
};

/* ------------------------------------------------------------------------------ job.c */

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

/* ------------------------------------------------------------------------------ gpus.c */

typedef struct coord_gpus coord_gpus;

/* SHARED_GPU: another agent has one of the newcomer's GPUs, which it does not allow. */
tutti_code coord_check_gpus(const coord_job *job, const tutti_coordinator_join_request *request,
                            tutti_error *err);

/* Put the GPUs of a new agent into its job's map, and take them out. */
tutti_code coord_gpus_keep(coord_agent *agent, tutti_error *err);
void coord_gpus_forget(coord_agent *agent);

/* ------------------------------------------------------------------------------ agent.c */

/* TUTTI_INVALID_ARGUMENT BAD_AGENT: a text is too long or not printable; a list is too long */
tutti_code coord_agent_check(const tutti_coordinator_agent *info, tutti_error *err);

/* An agent in no seat, in the job's map. TUTTI_RESOURCE_EXHAUSTED no memory */
tutti_code coord_agent_new(coord_job *job, uint64_t incarnation,
                           const tutti_coordinator_agent *info, coord_agent **ret_agent,
                           tutti_error *err);

/* Out of all lists and its seat, and freed. It has no calls and no session. NULL is fine. */
void coord_agent_free(coord_agent *agent);

coord_agent *coord_agent_find(const coord_job *job, uint64_t incarnation);

/* ------------------------------------------------------------------------------ seats.c */

/*
 * Give a newcomer its seat, or a place among those that wait for one.
 *
 * TUTTI_INVALID_ARGUMENT    RANK_RANGE
 * TUTTI_ALREADY_EXISTS      ALREADY_JOINED
 * TUTTI_RESOURCE_EXHAUSTED  WORLD_FULL; no memory
 */
tutti_code coord_seat_newcomer(coord_job *job, const tutti_coordinator_join_request *request,
                               coord_agent **ret_agent, tutti_error *err);

/* All are there, each with a call: give ranks to those that have none; epoch 1. */
void coord_seats_form(coord_job *job);

/* The first ranks that nobody asked for by number; returns how many, at most `most`. */
uint32_t coord_seats_missing(const coord_job *job, uint32_t *ret_ranks, uint32_t most);

/* An agent that waits gives its seat up and is freed. The job may be gone, too. */
void coord_seat_return(coord_agent *agent);

/* An agent that lives has said why it will leave soon: a new epoch, nothing else. */
void coord_seat_announce(coord_agent *agent, const char *reason);

/* An agent that lives is lost from now on, in a new epoch; it stays in its seat. */
void coord_seat_lose(coord_agent *agent, const char *reason);

/* ------------------------------------------------------------------------------ elastic.c */

/*
 * [in] min_world  as somebody who joins has it; 0 = all. The first one decides.
 *
 * TUTTI_INVALID_ARGUMENT  WORLD_SIZE
 */
tutti_code coord_elastic_check(coord_job *job, uint32_t min_world, tutti_error *err);

/* May it begin now, without those who have not come? */
bool coord_elastic_ripe(const coord_job *job);

/* Somebody lost for each seat that nobody asked for. False = no memory: later. */
bool coord_elastic_fill(coord_job *job);

/* Is the world whoever is there? */
bool coord_elastic_is(const coord_job *job);

/* ------------------------------------------------------------------------------ seats.c */

/* Out of the store: alive, with heartbeat_timeout for its session, or lost. The seat is free. */
void coord_seat_restore(coord_agent *agent, uint32_t rank, tutti_coordinator_state state);

/* ------------------------------------------------------------------------------ join.c */

void coord_joins_init(coord_job *job);
void coord_joins_fini(coord_job *job);

/* Answer all Join calls of an agent with an error. */
void coord_joins_fail(coord_agent *agent, const tutti_error *err);

/* ------------------------------------------------------------------------------ session.c */

void coord_sessions_init(coord_job *job);
void coord_sessions_fini(coord_job *job);

/* Let all sessions look for what they have to be told. */
void coord_sessions_wake(coord_job *job);

/* All that came has been handed over: end sessions that are silent still, at most so many. */
void coord_sessions_judge(tutti_coordinator *self, size_t budget);

/* Wait for the (next) session of an agent that is alive. */
void coord_agent_await_session(coord_agent *agent);

/*
 * The rank is lost: a new epoch, an event, and the end of what needs it. A session that it still
 * has ends with `err` (NULL = OK). The job lingers when it was the last.
 */
void coord_agent_lose(coord_agent *agent, const char *reason, const tutti_error *err);

/* ------------------------------------------------------------------------------ member_watch.c */

void coord_member_watches_init(coord_job *job);
void coord_member_watches_fini(coord_job *job); /* they are told that the job has ended */
void coord_member_watches_wake(coord_job *job);

/* ------------------------------------------------------------------------------ events.c */

void coord_events_init(coord_job *job);
void coord_events_fini(coord_job *job);

/* The newest event from now on; wakes the sessions. */
void coord_event_publish(coord_job *job, coord_event *event);

/* Not among the events is fine. */
void coord_event_remove(coord_job *job, coord_event *event);

/* The first event behind `number`; NULL = there is none. */
coord_event *coord_event_after(const coord_job *job, uint64_t number);

/* As sessions are told it. Borrowed until the event changes. */
void coord_event_describe(const coord_event *event, tutti_coordinator_event *ret_event);

#endif
