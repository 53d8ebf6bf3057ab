/*
 * Private to lib/coll: what the engine is made of, and which thread may touch what.
 *
 * set at start, then read only    options, transport, wake, poller, thread, events; any thread
 * lock                            the block below it; and sequence, epoch, last of each group
 * progress_lock                   all that follows it: "the engine's thread" is its holder
 * atomics                         job_id, rank, incarnation; done, failed
 */
#ifndef TUTTI_COLL_STATE_ENGINE_H
#define TUTTI_COLL_STATE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "coll/coll.h"
#include "coll/state/events.h"
#include "coll/transport.h"

#define GONE_MAX 1024 /* groups that are over, whose last packets may be on their way */

struct tutti_coll_engine {
    tutti_coll_engine_options options;
    tutti_transport *transport;
    pthread_t thread;
    int wake;   /* eventfd */
    int poller; /* epoll: wake and the transport */

    /* The seat, by tutti_coll_engine_sit; any thread reads it. NO_RANK: it is not known yet. */
    _Atomic uint64_t job_id;
    _Atomic uint32_t rank;
    _Atomic uint64_t incarnation;

    pthread_mutex_t
        lock; /* guards what follows, and the posting side of groups; nothing is called under it */
    tutti_list_node inbox;
    /*
     * Somebody will look at the inbox without being woken: the thread before it sleeps, or the
     * poster that has set it and now acts. False: the thread sleeps; who adds an item sets it and
     * wakes the thread, once.
     */
    bool awake;
    /* From the first refuse on, for ever: no op gets a number any more. */
    bool stopping;
    /* Pushed once, by the call that sets `stopping`: to refuse needs no memory. */
    tutti_coll_item refusal;
    /* Ops that have a number and are not released; at most TUTTI_COLL_OPS_MAX. */
    uint64_t op_count;
    /* The last id given, of ops and probes; an id is never used twice. */
    uint64_t next_id;

    /*
     * What follows, and all that it points to, belongs to "the engine's thread": the thread that
     * holds progress_lock. The engine's own thread gives it up to sleep only; then a poster may
     * take it and run the engine (tutti_coll_progress_inline). progress_lock is taken before lock.
     */
    pthread_mutex_t progress_lock;
    /* When the sleeping thread wakes by itself: a poster that leaves it asleep must not leave an
     * earlier timer. */
    uint64_t sleeps_to_ns;
    /* How long a poster tries without progress; adapts (tutti_coll_progress_inline). */
    uint64_t inline_ns;
    tutti_timers timers;
    /* The time of this step: all of a step happens "at once", and timers need no system call. */
    uint64_t now_ns;
    tutti_map groups;
    /* By rank; a peer is never removed before the engine ends, so pointers to it stay good. */
    tutti_map peers;
    tutti_map ops; /* by id, all in flight */
    /* Packets for groups that are not open yet. */
    tutti_list_node unexpected;
    /* Parked packets of the whole engine: here, in groups and in ops; at most UNEXPECTED_MAX. Only
     * the engine's thread changes it; tutti_coll_stat reads it. */
    atomic_uint_fast32_t unexpected_count;
    /* Groups that are over, the newest GONE_MAX of them: no packet waits for them. Ids are never
     * used twice in a job. */
    struct coll_gone {
        uint64_t job_id;
        uint64_t group;
    } gone[GONE_MAX];
    uint64_t gone_count;  /* that ever were; modulo GONE_MAX the place of the next */
    tutti_list_node asks; /* peers to look up */
    tutti_list_node probes;
    /* Ended coll_ios, kept for the next: a small op would else spend its time in malloc. */
    tutti_list_node spare_ios;
    tutti_list_node turns; /* ops to be advanced: by their `turn` */
    uint64_t device_ns;    /* when a device is to be asked again */
    uint32_t notes;        /* packets without an op that have not left yet */
    /* When `ending`: until then notes have time to leave. */
    uint64_t ending_ns;
    /* end_groups has run: the thread ends as soon as is_stop_over says so. */
    bool ending;

    const struct coll_events *events;
    /* Counted by the engine's thread, read by tutti_coll_stat from any; they order nothing. */
    atomic_uint orphans; /* groups whose ops nobody calls here: what comes for them wakes it */
    atomic_uint_fast64_t done;
    atomic_uint_fast64_t failed;
};

#define ENDING_NS (500 * 1000000ULL)          /* for last words to leave when stopping */
#define ENDING_REGIONS_NS (2500 * 1000000ULL) /* ... and for exposed regions to come back */

#endif
