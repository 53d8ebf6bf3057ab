/* Engine: one thread that runs all ops of one agent. See coll.h; any thread. */
#ifndef TUTTI_COLL_ENGINE_H
#define TUTTI_COLL_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/bytes.h"
#include "base/data/list.h"
#include "tutti/error.h"

typedef struct tutti_coll_engine tutti_coll_engine;
struct tutti_coll_backend;
struct tutti_transport;
struct tutti_transport_key;

/* Private: something to do on the engine's thread. */
typedef struct tutti_coll_item tutti_coll_item;
struct tutti_coll_item {
    tutti_list_node link;
    void (*run)(tutti_coll_engine *engine, tutti_coll_item *item);
};

#define TUTTI_COLL_DEVICES_MAX 8 /* of one agent */

typedef struct tutti_coll_engine_options {
    struct tutti_transport *transport;             /* moved: the engine closes it */
    const struct tutti_coll_backend *backend;      /* of groups of two ranks and more; static */
    const struct tutti_coll_backend *self_backend; /* of groups of one rank; static */
    /* moved: for ops with args.on_device, by their `device`; NULL = none there */
    struct tutti_coll_backend *devices[TUTTI_COLL_DEVICES_MAX];
    void *backend_arg; /* the backend knows what it is; borrowed; NULL is fine */
    /*
     * The engine wants to reach ranks it does not know: look them up and answer each with
     * tutti_coll_set_peer. Engine's thread.
     */
    void (*on_need_peers)(void *arg, const uint32_t *ranks, size_t count);
    /*
     * For how long this process has not run lately, as far as the others may have given it up for
     * that; 0 = it has. Then it is to blame for connections that break. NULL = nobody knows. Engine's
     * thread.
     */
    uint64_t (*stood_still_ns)(void *arg);
    void *arg;
} tutti_coll_engine_options;

/*
 * Open the engine and start its thread; on failure the transport is closed too.
 *
 * TUTTI_RESOURCE_EXHAUSTED, TUTTI_INTERNAL  no memory, no thread, no descriptor
 */
tutti_code tutti_coll_engine_start(const tutti_coll_engine_options *options,
                                   tutti_coll_engine **ret_engine, tutti_error *err);

/* Where other engines reach this one: opaque. Borrowed for the engine's life. */
tutti_bytes tutti_coll_engine_address(const tutti_coll_engine *engine);

/*
 * Job, rank and incarnation of this agent. Call it before the first group is opened, and before
 * each key of a job (tutti_coll_engine_rekey): a key opens packets that members have sent already,
 * and packets of a job without a seat are dropped.
 */
void tutti_coll_engine_sit(tutti_coll_engine *engine, uint64_t job_id, uint32_t rank,
                           uint64_t incarnation);

/* The key of an epoch, as members are told it (transport.h). Call it before tutti_coll_set_peer of
 * the epoch's ranks. Without a transport that authenticates it does nothing. */
void tutti_coll_engine_rekey(tutti_coll_engine *engine, const struct tutti_transport_key *key);

/*
 * Where a rank is. A new incarnation replaces the old one; the same again is harmless.
 * [in] address  copied; at most 4096 bytes
 */
void tutti_coll_set_peer(tutti_coll_engine *engine, uint32_t rank, uint64_t incarnation,
                         tutti_bytes address);

/*
 * A rank is gone: ops that need it fail, now and later, with UNAVAILABLE and `reason`. A rank whose
 * incarnation is known to be another is not touched; 0 means whoever is there.
 */
void tutti_coll_lose_peer(tutti_coll_engine *engine, uint32_t rank, uint64_t incarnation,
                          const char *reason);

/* Something outside may have changed: the engine looks around once. Any thread. */
void tutti_coll_engine_wake(tutti_coll_engine *engine);

/* Fail what runs, on all ranks, and take no more ops. Before stop, when others have to hear of the
 * end of their ops first. Any thread. */
void tutti_coll_engine_refuse(tutti_coll_engine *engine);

/* Fail what runs, close the transport, join the thread, free all groups. NULL is fine. */
void tutti_coll_engine_stop(tutti_coll_engine *engine);

typedef struct tutti_coll_stats {
    uint64_t running; /* ops */
    uint64_t done;
    uint64_t failed;
    uint64_t parked; /* packets of others that wait for a call of this rank */
} tutti_coll_stats;

void tutti_coll_stat(tutti_coll_engine *engine, tutti_coll_stats *ret_stats);

/* Whether a packet went to a rank and back. */
typedef struct tutti_coll_reach {
    uint32_t rank;
    bool reached;
    uint64_t trip_ns; /* reached: with what connecting took */
    char why[192];    /* not reached */
} tutti_coll_reach;

/* Once, on the engine's thread. Borrowed until it returns. */
typedef void (*tutti_coll_probe_fn)(void *arg, const tutti_coll_reach *reaches, size_t count);

/*
 * Try the ways to other ranks, as ops would take them: on_done is told when all have answered, or
 * `wait_ns` are over. Our own rank is no other.
 *
 * TUTTI_UNAVAILABLE         STOPPING
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code tutti_coll_probe(tutti_coll_engine *engine, const uint32_t *ranks, size_t count,
                            uint64_t wait_ns, tutti_coll_probe_fn on_done, void *arg,
                            tutti_error *err);

#endif
