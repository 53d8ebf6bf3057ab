/* Many calls at once from one loop: what a coordinator's agents do. */
#ifndef TUTTI_TESTS_RPC_PARKER_H
#define TUTTI_TESTS_RPC_PARKER_H

#include <stdatomic.h>
#include <stddef.h>

#include "rpc/channel.h"

typedef struct parker {
    tutti_rpc_loop *loop;
    tutti_rpc_channel *channel;
    const tutti_rpc_stub *stub;
    size_t wanted;
    tutti_rpc_task task;
    atomic_size_t ended;
    atomic_size_t codes[17]; /* how they ended */
} parker;

/* Starts `wanted` calls of `stub` on a loop of its own. */
void parker_start(parker *self, const char *address, const tutti_rpc_stub *stub, size_t wanted);

/* All have ended. */
void parker_stop(parker *self);

#endif
