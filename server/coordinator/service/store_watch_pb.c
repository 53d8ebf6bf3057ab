/*
 * StoreService.Watch: each change of keys with a prefix. The core gives out the next one when the
 * last has been written, and ends a watch whose reader falls too far behind.
 */
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/service/service_loop.h"
#include "server/coordinator/service/store_pb.h"

typedef struct watch_call {
    tutti_coordinator_watch watch;
    tutti_rpc_call *call;
    uint64_t history; /* for the first message */
    bool finished;
} watch_call;

static void
on_watch_change(tutti_coordinator_watch *watch, tutti_coordinator_change_kind kind,
                const tutti_store_entry *entry)
{
    watch_call *self = tutti_container_of(watch, watch_call, watch);
    Tutti__V1__StoreServiceWatchResponse response = TUTTI__V1__STORE_SERVICE_WATCH_RESPONSE__INIT;
    Tutti__V1__Entry wire;

    entry_to_wire(entry, &wire);
    response.kind = (Tutti__V1__WatchKind)kind;
    response.entry = &wire;
    response.history = kind == TUTTI_COORDINATOR_BEGUN ? self->history : 0;
    tutti_rpc_call_write(self->call, &response.base, NULL);
}

/* The core does not use the struct after that. */
static void
on_watch_over(tutti_coordinator_watch *watch, const tutti_error *err)
{
    watch_call *self = tutti_container_of(watch, watch_call, watch);

    self->finished = true;
    tutti_rpc_call_finish(self->call, err);
}

static void
on_watch_open(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceWatchRequest *wire = tutti_rpc_call_request(call);
    const tutti_coordinator_key prefix = key_from_wire(wire->job, wire->prefix);
    const tutti_coordinator_watch_place place = {wire->history, wire->from_version, wire->skip};
    watch_call *self = calloc(1, sizeof(*self));
    tutti_coordinator *core = service_loop_enter(arg);
    tutti_error err;
    tutti_code code;

    if (self == NULL) {
        code = TUTTI_FAIL_MEMORY(&err, "no memory for a watch");
    } else {
        self->call = call;
        self->watch.on_change = on_watch_change;
        self->watch.on_end = on_watch_over;
        tutti_rpc_call_set_user(call, self);
        self->history = tutti_coordinator_watch_history(core);
        code = tutti_coordinator_watch_start(core, &prefix, wire->history == 0 ? NULL : &place,
                                             &self->watch, &err);
        self->finished = code != TUTTI_OK;
    }
    if (code != TUTTI_OK) {
        tutti_rpc_call_finish(call, &err);
    }
    service_loop_leave(arg);
}

/* There is room for another change. */
static void
on_watch_written(tutti_rpc_call *call, void *arg)
{
    watch_call *self = tutti_rpc_call_user(call);

    (void)service_loop_enter(arg);
    tutti_coordinator_watch_written(&self->watch);
    service_loop_leave(arg);
}

static void
on_watch_cancel(tutti_rpc_call *call, void *arg)
{
    watch_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    if (self == NULL || self->finished) {
        return;
    }
    (void)service_loop_enter(arg);
    tutti_coordinator_watch_withdraw(&self->watch);
    self->finished = true;
    tutti_rpc_call_finish(call, service_loop_say_gone(call, &err));
    service_loop_leave(arg);
}

static void
on_watch_end(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    free(tutti_rpc_call_user(call));
}

const tutti_rpc_stream_ops coord_watch_stream = {
    .on_open = on_watch_open,
    .on_written = on_watch_written,
    .on_cancel = on_watch_cancel,
    .on_end = on_watch_end,
};
