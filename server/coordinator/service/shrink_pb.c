/* CoordinatorService: ShrinkGroup, a call that waits for the other survivors. */
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/service/coordinator_pb.h"
#include "server/coordinator/service/groups_pb.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"

typedef struct shrink_call {
    tutti_coordinator_shrink shrink;
    tutti_rpc_call *call;
    bool accept_spans;
} shrink_call;

static void
reply_shrunk(shrink_call *self, const tutti_coordinator_shrunk *shrunk)
{
    Tutti__V1__ShrinkGroupResponse response = TUTTI__V1__SHRINK_GROUP_RESPONSE__INIT;
    Tutti__V1__Group made;
    tutti_spans spans;
    tutti_error err;

    if (coord_group_to_wire(&shrunk->group, self->accept_spans ? &spans : NULL, &made, &err) !=
        TUTTI_OK) {
        tutti_rpc_call_fail(self->call, &err);
        return;
    }
    response.group = &made;
    response.group_rank = (uint32_t)shrunk->group.rank;
    response.left_out = text_to_wire(shrunk->left_out);
    tutti_rpc_call_reply(self->call, &response.base, NULL);
    coord_group_wire_fini(&shrunk->group, &made);
}

static void
on_shrink_answer(tutti_coordinator_shrink *shrink, const tutti_coordinator_shrunk *shrunk,
                 const tutti_error *err)
{
    shrink_call *self = tutti_container_of(shrink, shrink_call, shrink);

    if (err != NULL) {
        tutti_rpc_call_fail(self->call, err);
    } else {
        reply_shrunk(self, shrunk);
    }
    free(self);
}

static void
on_shrink_cancel(tutti_rpc_call *call, void *arg)
{
    shrink_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    (void)service_loop_enter(arg);
    tutti_coordinator_shrink_withdraw(&self->shrink);
    tutti_rpc_call_fail(call, service_loop_say_gone(call, &err));
    free(self);
    service_loop_leave(arg);
}

static tutti_code
start_shrink(tutti_service_loop *service_loop, tutti_rpc_call *call, shrink_call *self,
             tutti_error *err)
{
    const Tutti__V1__ShrinkGroupRequest *wire = tutti_rpc_call_request(call);
    tutti_coordinator *core = service_loop_enter(service_loop);
    const tutti_coordinator_shrink_request request = {
        .member = member_from_wire(wire->member),
        .name = wire->name,
        .id = wire->id,
        .deadline_ns = service_loop_deadline(service_loop, call, wire->timeout_ms),
    };

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a call");
    }
    self->call = call;
    self->accept_spans = wire->accept_spans;
    self->shrink.on_answer = on_shrink_answer;
    return tutti_coordinator_shrink_start(core, &request, &self->shrink, err);
}

void
coord_on_shrink_group(tutti_rpc_call *call, void *arg)
{
    shrink_call *self = calloc(1, sizeof(*self));
    tutti_error err;

    if (start_shrink(arg, call, self, &err) == TUTTI_OK) {
        tutti_rpc_call_set_user(call, self);
        tutti_rpc_call_on_cancel(call, on_shrink_cancel);
    } else {
        free(self);
        tutti_rpc_call_fail(call, &err);
    }
    service_loop_leave(arg);
}
