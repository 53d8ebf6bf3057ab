/* Private to lib/coll: what the engine is made of. */
#ifndef TUTTI_COLL_STATE_ENGINE_H
#define TUTTI_COLL_STATE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "coll/coll.h"
#include "coll/state/events.h"
#include "coll/transport.h"

struct tutti_coll_engine {
    tutti_coll_engine_options options;
    tutti_transport *transport;
    pthread_t thread;
    int wake;   /* eventfd */
    int poller; /* epoll: wake and the transport */

    pthread_mutex_t
        lock; /* guards what follows, and the posting side of groups; nothing is called under it */
    tutti_list_node inbox;
    bool awake; /* the thread will look at the inbox before it sleeps */
    bool stopping;
    tutti_coll_item refusal;
    uint64_t op_count;
    uint64_t next_id;
    uint64_t job_id;
    uint32_t rank;
    uint64_t incarnation;

    /*
     * What follows, and all that it points to, belongs to "the engine's thread": the thread that
     * holds progress_lock. The engine's own thread gives it up to sleep only; then a poster may
     * take it and run the engine (tutti_coll_progress_inline). progress_lock is taken before lock.
     */
    pthread_mutex_t progress_lock;
    uint64_t sleeps_to_ns; /* the engine's own thread looks at the timers then */
    uint64_t inline_ns;    /* how long a poster tries */
    tutti_timers timers;
    uint64_t now_ns;
    tutti_map groups;
    tutti_map peers;
    tutti_map ops;              /* by id, all in flight */
    tutti_list_node unexpected; /* packets for groups that are not open yet */
    uint32_t unexpected_count;
    tutti_list_node asks; /* peers to look up */
    tutti_list_node probes;
    tutti_list_node spare_ios;
    tutti_list_node turns; /* ops to be advanced: by their `turn` */
    uint64_t device_ns;    /* when a device is to be asked again */
    uint32_t notes;        /* packets without an op that have not left yet */
    uint64_t ending_ns;    /* give notes until then to leave */
    bool ending;

    const struct coll_events *events;
    atomic_uint_fast64_t done;
    atomic_uint_fast64_t failed;
};

#define ENDING_NS (500 * 1000000ULL)          /* for last words to leave when stopping */
#define ENDING_REGIONS_NS (2500 * 1000000ULL) /* ... and for exposed regions to come back */

#endif
