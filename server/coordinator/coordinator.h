/*
 * Coordinator: who takes part. Jobs, ranks, epochs, groups, small values and keys; no tensor.
 *
 * This is the core without a network: requests come in as structs that borrow, answers go out by
 * callbacks. It has no thread, no clock and no socket: its owner calls it from one thread, tells it
 * the time before each call (tutti_coordinator_set_time), calls tutti_coordinator_run when
 * tutti_coordinator_next says so, and tutti_coordinator_turn while it is busy.
 *
 * A call that has to wait is parked: a struct that the owner embeds and keeps until its answer
 * comes. Every parked call is answered exactly once, never inside the call that parked it, unless
 * the owner withdraws it before (its caller went away). Callbacks must not call the coordinator.
 *
 * The other doors of this room: members.h (jobs, seats, sessions), groups.h, metadata.h, keys.h,
 * multi.h, queue.h, rendezvous.h.
 */
#ifndef TUTTI_SERVER_COORDINATOR_COORDINATOR_H
#define TUTTI_SERVER_COORDINATOR_COORDINATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config/config.h"
#include "base/data/list.h"
#include "base/os/meter.h"
#include "base/os/timers.h"
#include "store/store.h"
#include "tutti/error.h"

typedef struct tutti_coordinator tutti_coordinator;

/* The room's option table fills this. */
typedef struct tutti_coordinator_options {
    uint64_t heartbeat_interval_ns; /* what agents are told; large jobs beat less often */
    uint64_t heartbeat_timeout_ns;  /* silence after which a rank is lost */
    uint64_t lost_grace_ns;         /* from a broken stream to a lost rank, or a free seat */
    uint64_t wait_timeout_ns;       /* of a waiting call that has no deadline of its own */
    uint64_t elastic_wait_ns;       /* without newcomers, until an elastic job begins */
    uint64_t job_linger_ns;         /* from the last rank's end to the end of its job */
    uint64_t
        retry_window_ns; /* how long an ended exchange round is kept for calls with its token */
    uint64_t retry_bytes_limit; /* of answers that are kept for such calls */
    uint64_t job_limit;
    uint64_t seat_limit;          /* world sizes of all jobs together */
    uint64_t group_limit;         /* of a job */
    uint64_t member_limit;        /* of all groups of a job together */
    uint64_t waiter_limit;        /* calls that wait: Join, Broadcast, AllGather, Wait, Count */
    uint64_t wait_bytes_limit;    /* keys that all Wait calls together wait for */
    uint64_t watcher_limit;       /* watches of all jobs */
    uint64_t watch_changes_limit; /* that one watcher has not read yet */
    uint64_t watch_backlog_limit; /* bytes of them */
    uint64_t watch_bytes_limit;   /* bytes that wait for all watchers together */
    uint64_t
        exchange_round_limit; /* exchange rounds on one key that not all members have come to */
    uint64_t metadata_bytes_limit; /* of the values of all exchange rounds */
    uint64_t store_bytes_limit;    /* for whoever opens the store */
    uint64_t store_keys_limit;     /* likewise */
    uint64_t lease_limit;          /* leases of all jobs */
    uint64_t lease_min_ns;         /* the least time that a lease may have */
    uint64_t lease_max_ns;         /* the most */
    const char *host_id;           /* "" = boot id and IPC namespace; of the lanes, as all below */
    bool no_lane;                  /* clients' calls go by gRPC alone */
    uint64_t lanes_max;            /* of all clients */
    bool share_any_user;           /* other users than ours and root get lanes, too */
    uint64_t busy_poll_ns;         /* of the lanes' thread */
    bool durable; /* keep jobs in the store, for tutti_coordinator_restore; not in the table */
} tutti_coordinator_options;

/* The table for tutti_config_load. */
tutti_option_set tutti_coordinator_option_set(tutti_coordinator_options *target);

/*
 * What a table cannot see: options that do not fit together.
 *
 * TUTTI_INVALID_ARGUMENT  the heartbeat timeout is shorter than two intervals
 */
tutti_code tutti_coordinator_options_check(const tutti_coordinator_options *options,
                                           tutti_error *err);

/*
 * [in] options  copied; checked before
 * [in] store    borrowed until the coordinator is freed
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code tutti_coordinator_new(const tutti_coordinator_options *options, tutti_store *store,
                                 tutti_coordinator **ret_self, tutti_error *err);

/* Nothing may be parked any more. NULL is fine. */
void tutti_coordinator_free(tutti_coordinator *self);

/*
 * Tell `on_note` what happens in the life of jobs, a sentence at a time: "job default: formed with
 * 8 ranks". For a log; borrowed until it returns. It must not call the coordinator.
 */
void tutti_coordinator_set_observer(tutti_coordinator *self,
                                    void (*on_note)(void *arg, const char *sentence), void *arg);

/*
 * Tell `on_lost` that a record could not be written to the store: what the coordinator knows is no
 * longer what a next one will find, so the owner has to end. Once is enough for it to do so.
 */
void tutti_coordinator_set_lost(tutti_coordinator *self,
                                void (*on_lost)(void *arg, const tutti_error *why), void *arg);

/* What time it is: tutti_clock_ns() and tutti_clock_wall_ns(). Before every other call. */
void tutti_coordinator_set_time(tutti_coordinator *self, uint64_t now_ns, uint64_t wall_ns);

/*
 * Take up the jobs that an earlier process left in the store, when the option `durable` is set:
 * their ranks have heartbeat_timeout to open a session under the incarnation they had, and those
 * that do not come are lost. Once, after the first tutti_coordinator_set_time and before any call.
 *
 * TUTTI_DATA_LOSS           STORE_FORMAT: a record cannot be; nothing may be done but to free it
 * TUTTI_RESOURCE_EXHAUSTED  JOB_LIMIT, GROUP_LIMIT: lower than they were; no memory
 */
tutti_code tutti_coordinator_restore(tutti_coordinator *self, tutti_error *err);

/* When tutti_coordinator_run has something to do. */
uint64_t tutti_coordinator_next(const tutti_coordinator *self);

/* Run the timers that are due. */
void tutti_coordinator_run(tutti_coordinator *self);

/* Does something wait for a turn? */
bool tutti_coordinator_busy(const tutti_coordinator *self);

/*
 * Do a slice of what waits: at most some 16 answers, so that the owner gets to its other events in
 * between.
 *
 * [in] idle  all that callers have sent so far was handed over. Ranks are lost for their silence
 *            in such turns: their heartbeats may lie unread else. Without any such turn they are
 *            lost after twice the heartbeat timeout
 */
void tutti_coordinator_turn(tutti_coordinator *self, bool idle);

/*
 * End all that is parked with UNAVAILABLE, DRAINING, in slices (run), and refuse what comes. From
 * now on no rank is lost any more: their streams end because we go, not because they do.
 */
void tutti_coordinator_drain(tutti_coordinator *self);

/* What those see who watch it: jobs, seats, what waits, what is stored. */
void tutti_coordinator_expose(tutti_coordinator *self, tutti_page *page);

/* Calls, sessions and watches that are parked. */
size_t tutti_coordinator_parked(const tutti_coordinator *self);

/* What all parked calls have in common. All of it is the coordinator's. */
typedef struct tutti_coordinator_pending_call tutti_coordinator_pending_call;
struct tutti_coordinator_pending_call {
    tutti_list_node link; /* in the list of all that is parked */
    tutti_timer timer;
    tutti_coordinator *owner; /* NULL = not parked */
    bool counted;             /* against waiter_limit */
    /* Withdraw it and answer with `err`; NULL = its time is up. */
    void (*on_end)(tutti_coordinator_pending_call *wait, const tutti_error *err);
};

#endif
