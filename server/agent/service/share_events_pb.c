/*
 * TensorsService.ShareEvents: events of CUDA for a client and its ops. Bulk loop.
 *
 * The stream is the lease: when it ends, by the client or with it, nobody finds the events any more,
 * and ops that wait for one that is not recorded fail (state/events.h).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/state/state.h"
#include "tutti/v1/tensors_service.pb-c.h"

typedef struct events_share {
    bool refused; /* the call is about to end */
    size_t count;
    agent_event *events[AGENT_EVENTS_CALL_MAX]; /* [ref] */
} events_share;

static tutti_code
find_event_device(const tutti_agent *agent, const char *name, const agent_device **ret_device,
                  tutti_error *err)
{
    const agent_devices *devices = &agent->devices;
    const bool any = name[0] == '\0' || strcmp(name, "cuda") == 0;
    size_t i = 0;

    while (i < devices->count && !any &&
           strcmp(name, tutti_space_device(devices->list[i].space)) != 0) {
        i++;
    }
    if (i == devices->count) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_DEVICE",
                              "this agent has no GPU \"%.40s\" (--device)", any ? "cuda" : name);
    }
    if (!devices->list[i].has_backend) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_BACKEND",
                              "this agent runs no ops on %s, because it could not load "
                              "tutti-nccl.so (its log says more)",
                              tutti_space_device(devices->list[i].space));
    }
    *ret_device = &devices->list[i];
    return TUTTI_OK;
}

static void
leave_events(events_share *self)
{
    while (self->count > 0) {
        agent_event_leave(self->events[--self->count]);
    }
}

static tutti_code
make_events(tutti_agent *agent, events_share *self, const agent_device *device, uint32_t count,
            tutti_error *err)
{
    if (count == 0 || count > AGENT_EVENTS_CALL_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_EVENT",
                              "%" PRIu32 " events, need 1 to %d", count, AGENT_EVENTS_CALL_MAX);
    }
    while (self->count < count) {
        TUTTI_TRY(agent_event_new(agent, device->space, &self->events[self->count], err));
        self->count++;
    }
    return TUTTI_OK;
}

static void
send_events(tutti_rpc_call *call, const tutti_agent *agent, const events_share *self,
            const agent_device *device)
{
    Tutti__V1__ShareEventsResponse response = TUTTI__V1__SHARE_EVENTS_RESPONSE__INIT;
    Tutti__V1__SharedEvent memory[AGENT_EVENTS_CALL_MAX];
    Tutti__V1__SharedEvent *list[AGENT_EVENTS_CALL_MAX];
    size_t i;

    for (i = 0; i < self->count; i++) {
        tutti__v1__shared_event__init(&memory[i]);
        memory[i].id = self->events[i]->id;
        memory[i].ipc_handle = (ProtobufCBinaryData){TUTTI_CUDA_IPC_SIZE, self->events[i]->handle};
        list[i] = &memory[i];
    }
    response.events = list;
    response.n_events = self->count;
    response.gpu_uuid = (char *)(uintptr_t)device->cuda.uuid;
    response.host_id = (char *)(uintptr_t)agent->host_id;
    tutti_rpc_call_write(call, &response.base, NULL);
}

static void
on_open(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__ShareEventsRequest *request = tutti_rpc_call_request(call);
    tutti_agent *agent = arg;
    events_share *self = calloc(1, sizeof(*self));
    const agent_device *device = NULL;
    tutti_error err;
    tutti_code code = TUTTI_OK;

    tutti_rpc_call_set_user(call, self);
    if (self == NULL) {
        code = TUTTI_FAIL_MEMORY(&err, "no memory for events");
    }
    if (code == TUTTI_OK) {
        code = find_event_device(agent, request->device, &device, &err);
    }
    if (code == TUTTI_OK) {
        code = make_events(agent, self, device, request->count, &err);
    }
    if (code == TUTTI_OK) {
        send_events(call, agent, self, device);
    } else {
        if (self != NULL) {
            self->refused = true;
        }
        tutti_rpc_call_finish(call, &err);
    }
}

static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    const events_share *self = tutti_rpc_call_user(call);
    const tutti_agent *agent = arg;
    tutti_error err;

    if (self == NULL || self->refused) {
        return;
    }
    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING",
                         "rank %" PRIu32 " is stopping, or the caller went away", agent->rank);
    tutti_rpc_call_finish(call, &err);
}

static void
on_end(tutti_rpc_call *call, void *arg)
{
    events_share *self = tutti_rpc_call_user(call);

    (void)arg;
    if (self != NULL) {
        leave_events(self);
        free(self);
    }
}

const tutti_rpc_stream_ops agent_share_events_ops = {
    .on_open = on_open,
    .on_cancel = on_cancel,
    .on_end = on_end,
};
