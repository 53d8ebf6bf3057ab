/*
 * Core: what the files of the coordinator share: the coordinator itself, slices of work, and what
 * all waiting ("parked") calls have in common. Private to this folder. All of it belongs to the
 * coordinator's one thread; nothing is locked.
 *
 * Invariants: `parked` is the length of `waits`, `waiter_count` the number of those in it that
 * count against --waiter-limit; `seat_count` is the sum of the world sizes of `jobs`; each
 * *_bytes is the sum of what its lists hold.
 */
#ifndef TUTTI_SERVER_COORDINATOR_CORE_CORE_H
#define TUTTI_SERVER_COORDINATOR_CORE_CORE_H

#include "base/data/map.h"
#include "server/coordinator/coordinator.h"

#define COORD_NOTES 64 /* that are kept for those who look */
#define COORD_NOTE_MAX 512

/* A sentence about the life of jobs. */
typedef struct coord_kept_note {
    uint64_t wall_ns;
    char text[COORD_NOTE_MAX];
} coord_kept_note;

#define COORD_ANSWER_MAPS 1024 /* among which the answers that are kept are divided */
#define COORD_SLICE 16         /* units of work that one tutti_coordinator_turn does */

/* Something that is done in slices, so that nobody waits long for its turn. */
typedef struct coord_task coord_task;
struct coord_task {
    tutti_list_node link;
    /* Do at most `budget` units (an answer is one); queue again with coord_defer when some are
     * left. Returns those done. */
    size_t (*on_run)(coord_task *work, size_t budget);
};

/* What the last session was told in one message: `told` still has it. The next one that has read as
 * far, and of whose own change it says nothing, is told the same. */
typedef struct coord_last_told {
    uint64_t job_id; /* 0 = nobody is told the same */
    uint64_t moves;  /* of the job's events */
    uint64_t epoch;
    uint64_t from; /* numbers of events: behind this one ... */
    uint64_t to;   /* ... up to this one */
    size_t count;
    uint64_t alike; /* counts these messages */
} coord_last_told;

struct tutti_coordinator {
    tutti_coordinator_options options;
    tutti_store *store;     /* borrowed */
    uint64_t begun_version; /* of the store, as this process has found it */
    uint64_t number;        /* of this process, random */
    bool went_back;         /* an agent has heard of a later one; said so */
    const struct coord_hooks *hooks;
    void (*on_note)(void *arg, const char *sentence);
    void *note_arg;
    coord_kept_note notes[COORD_NOTES];                 /* a ring: the last of them */
    size_t note_count;                                  /* all that there were */
    void (*on_lost)(void *arg, const tutti_error *why); /* NULL = nobody ends */
    void *lost_arg;
    uint64_t now_ns;
    uint64_t wall_ns;
    uint64_t awake_ns; /* silence before this time does not count: see notice_stall */
    tutti_timers timers;
    tutti_timer pulse;        /* runs always, to notice that the process was stopped */
    tutti_list_node work;     /* tasks that wait for a turn */
    tutti_list_node suspects; /* sessions that seem silent: judged in an idle turn */
    tutti_list_node waits;    /* all that is parked */
    size_t parked;
    size_t waiter_count; /* of them, what counts against waiter_limit */
    bool draining;
    coord_task drain;

    tutti_list_node queries; /* parked questions about progress */
    tutti_map jobs;
    uint64_t seat_count;
    uint64_t lost_total;                  /* ranks, since the start */
    struct tutti_coordinator_event *told; /* [owned] scratch: TUTTI_COORDINATOR_LOST_MAX */
    coord_last_told last_told;

    tutti_list_node retired; /* exchange rounds that are over, the oldest first */
    tutti_timer retire;
    uint64_t metadata_bytes;

    tutti_map wanted;             /* subscriptions: keys that somebody waits for */
    tutti_map watched;            /* prefixes that somebody watches, or did */
    struct coord_length *lengths; /* of those prefixes */
    size_t length_count;
    size_t length_capacity;
    tutti_list_node idle_prefixes; /* of them: nobody watches them now, the oldest first */
    tutti_timer idle_timer;
    struct coord_kept_change **history; /* a ring: the last changes of keys that are watched */
    uint64_t history_first;             /* the number of the oldest */
    uint64_t history_next;
    uint64_t history_bytes;
    uint64_t history_id;   /* 0 = none has been asked for yet */
    uint64_t history_hole; /* a row was missing in the store: changes up to this version */
    tutti_list_node ready; /* waits whose last key has come */
    tutti_list_node due;   /* watches that have something to send */
    tutti_list_node counting;
    coord_task ready_task;
    coord_task due_task;
    coord_task count_task;
    tutti_list_node reaping; /* jobs whose keys go */
    coord_task gc_task;
    tutti_map takers;      /* subscriptions: keys and queues that somebody wants to take from */
    tutti_map take_tokens; /* of those that wait */
    tutti_list_node takes_ready;
    coord_task take_task;
    /* Kept for calls that come again, by their tokens; which map, a token's last bits say. */
    tutti_map answers[COORD_ANSWER_MAPS];
    size_t answer_count;
    tutti_list_node answered; /* the same, the oldest first */
    uint64_t answer_bytes;
    tutti_map rendezvous;        /* keys at which somebody waits for others */
    tutti_map rendezvous_tokens; /* of those that wait */
    tutti_list_node met;         /* calls that have their answer */
    coord_task met_task;
    tutti_map leases;
    tutti_map leased;              /* keys that go with a lease */
    tutti_list_node leases_due;    /* those that were not kept in time: judged in an idle turn */
    tutti_list_node leases_ending; /* those whose keys go */
    tutti_list_node leased_stale;  /* keys in no lease whose records the store has not removed */
    tutti_timer leased_timer;      /* it is asked again */
    coord_task lease_task;
    size_t watcher_count;
    size_t backup_count; /* that are being made */
    uint64_t wait_bytes;
    uint64_t watch_bytes;
};

/*
 * A task is queued at most once: coord_defer on a queued task does nothing. It is run in the
 * order of the queue, by tutti_coordinator_turn. coord_task_stop takes it out; the owner of the
 * task calls it before it frees the task.
 */
void coord_task_init(coord_task *work, size_t (*on_run)(coord_task *work, size_t budget));
void coord_defer(tutti_coordinator *self, coord_task *work);
void coord_task_stop(coord_task *work);

/* ------------------------------------------------------------------------------ parked calls */

/*
 * May one more call be parked?
 *
 * TUTTI_UNAVAILABLE         DRAINING
 * TUTTI_RESOURCE_EXHAUSTED  WAITER_LIMIT
 */
tutti_code coord_wait_check(const tutti_coordinator *self, tutti_error *err);

/* May one more watch begin? As above. */
tutti_code coord_watch_check(const tutti_coordinator *self, tutti_error *err);

/*
 * Park. `counted`: against the limit, after coord_wait_check. on_end must be set.
 *
 * [in] deadline_ns  when on_end runs with NULL; TUTTI_TIMERS_NEVER = not
 */
void coord_wait_start(tutti_coordinator *self, tutti_coordinator_pending_call *wait, bool counted,
                      uint64_t deadline_ns);

/* No longer parked: what an answer and a withdrawal do first. */
void coord_wait_stop(tutti_coordinator_pending_call *wait);

/* UNAVAILABLE, DRAINING. */
tutti_code coord_fail_draining(tutti_error *err);

/* ------------------------------------------------------------------------------ words */

/* A life event, for the observer and those who look. */
void coord_note(tutti_coordinator *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * The name to look a job up by: "default" for none.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_NAME
 */
tutti_code coord_check_job(const char *job, const char **ret_name, tutti_error *err);

/* TUTTI_RESOURCE_EXHAUSTED, NO_MEMORY: always. [in] what  "a group" */
tutti_code coord_fail_memory(tutti_error *err, const char *what);

/* Bytes for a person: what is not printable as \xNN, cut after `most` bytes. Ends in NUL. */
void coord_quote(tutti_bytes bytes, size_t most, char *ret_text, size_t size);

#endif
