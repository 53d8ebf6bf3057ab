/*
 * TensorsService.Lease: a stream whose only meaning is that its client lives. Bulk loop. When it
 * ends, whatever the reason (the client's connection broke, it took the call back, the agent
 * stops), all tensors of the lease lose their handles; calls that use them end first.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"
#include "tutti/v1/tensors_service.pb-c.h"

typedef struct held {
    tutti_table *table;
    uint64_t lease;
} held;

static void
on_open(tutti_rpc_call *call, void *arg)
{
    tutti_agent *agent = arg;
    held *self = calloc(1, sizeof(*self));
    Tutti__V1__LeaseResponse response = TUTTI__V1__LEASE_RESPONSE__INIT;
    tutti_error err;

    if (self == NULL) {
        (void)TUTTI_FAIL(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a lease");
    } else if (tutti_table_open_lease(agent->table, agent->options->leases_max, &self->lease,
                                      &err) == TUTTI_OK) {
        self->table = agent->table;
        tutti_rpc_call_set_user(call, self);
        response.lease = self->lease;
        tutti_rpc_call_write(call, &response.base, NULL);
        return;
    }
    free(self);
    tutti_rpc_call_finish(call, &err);
}

/* The client has gone or has ended the lease, or the agent stops: all of them end the stream. */
static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    tutti_rpc_call_finish(call, NULL);
}

static void
on_end(tutti_rpc_call *call, void *arg)
{
    held *self = tutti_rpc_call_user(call);
    size_t ended;

    (void)arg;
    if (self == NULL) {
        return;
    }
    ended = tutti_table_close_lease(self->table, self->lease);
    if (ended > 0) {
        TUTTI_LOG("agent", DEBUG, "a lease of %s is over: %zu tensors are deleted",
                  tutti_rpc_call_peer(call), ended);
    }
    free(self);
}

const tutti_rpc_stream_ops agent_lease_ops = {
    .on_open = on_open,
    .on_cancel = on_cancel,
    .on_end = on_end,
};
