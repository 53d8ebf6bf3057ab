/*
 * A world of engines in one process: what tests of coll need to run an op on all ranks and wait for
 * it.
 */
#ifndef TUTTI_TESTS_WORLD_H
#define TUTTI_TESTS_WORLD_H

#include <pthread.h>

#include "coll/backend.h"
#include "coll/coll.h"
#include "support/transport_fake.h"

#define WORLD_MAX 16

struct world;

/* How an engine's transport is made. */
typedef tutti_transport *(*world_transport_fn)(struct world *world);

tutti_transport *world_transport_fake(struct world *world); /* tests/support/transport_fake.h */
tutti_transport *world_transport_ucx(struct world *world); /* coll/ucx over loopback: world_ucx.c */
tutti_transport *world_transport_tcp(struct world *world); /* coll/tcp over loopback: world_tcp.c */
tutti_transport *
world_transport_auth(struct world *world); /* coll/transport_auth around coll/tcp: world_auth.c */
tutti_transport *
world_transport_shm(struct world *world); /* coll/shm around a fake one: world_shm.c */

/* A backend for tensors of a device, coll/nccl over stand-ins: world_nccl.c. */
tutti_coll_backend *world_device_nccl(void);
extern uint64_t world_nccl_deserted_ns; /* tutti_coll_nccl_options.deserted_ns of those to come */

/* Which transport, and device, a program of the contract is built for:
 * tests/lib/coll/CMakeLists.txt. */
#if defined(WORLD_UCX)
#define WIRE world_transport_ucx
#elif defined(WORLD_TCP)
#define WIRE world_transport_tcp
#elif defined(WORLD_AUTH)
#define WIRE world_transport_auth
#elif defined(WORLD_SHM)
#define WIRE world_transport_shm
#else
#define WIRE world_transport_fake
#endif

/* Are ops those of a device? */
#if defined(WORLD_NCCL)
#define DEVICE world_device_nccl
#else
#define DEVICE NULL
#endif

typedef struct world {
    world_transport_fn transport;
    uint32_t size;
    unsigned per_host; /* fake worlds: ranks that share a host; 0 = nobody says */
    const struct tutti_selection *selector[WORLD_MAX]; /* of each rank; NULL = none */
    struct tutti_selector *told[WORLD_MAX];
    fake_network *network;
    tutti_transport *wires[WORLD_MAX];
    tutti_coll_engine *engines[WORLD_MAX];
    uint64_t incarnations[WORLD_MAX];
    uint32_t opening;                    /* whose transport is made */
    tutti_coll_group *groups[WORLD_MAX]; /* of all ranks, id 1, epoch 1 */
    uint64_t next_group;
} world;

void world_open(world *self, world_transport_fn transport, uint32_t size);

/* The same, of a world in which what its engines are told is filled in. */
void world_open_with(world *self, world_transport_fn transport, uint32_t size);
void world_close(world *self);

/* Stop one engine as if its process had been killed; world_close knows. Fake worlds only. */
void world_kill(world *self, uint32_t rank);

/* A fresh process takes the seat: new incarnation, new transport, no groups. Others are not told.
 */
void world_revive(world *self, uint32_t rank);

/* A new epoch, for all engines but one; WORLD_MAX = for all. */
void world_rekey(world *self, uint64_t epoch, uint32_t but);

/* Tell an engine its seat again, as an agent that joins again does. */
void world_sit(world *self, uint32_t rank);

/* A group on its members; members[i] is the handle of ranks[i]. */
void world_group(world *self, const char *name, const uint32_t *ranks, uint32_t count,
                 tutti_coll_group **ret_groups);

/* An op that a test waits for. */
typedef struct run {
    tutti_coll_op op;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    bool released;
    tutti_code code;
    tutti_error err;
    tutti_spec spec;   /* what on_spec was told */
    void *made;        /* memory on_spec made; freed by run_free */
    tutti_code refuse; /* what on_spec shall answer */
} run;

run *run_new(tutti_coll_kind kind);
/* Take dtype and one dimension. */
void run_give(run *self, tutti_dtype dtype, int64_t count, const void *input, void *output);
void run_post(run *self, tutti_coll_group *group, uint64_t timeout_ms);
/* Waits until the op is released; fails the test after 20 s. Returns its code. */
tutti_code run_wait(run *self);
bool run_is_done(run *self);
void run_free(run *self);

#endif
