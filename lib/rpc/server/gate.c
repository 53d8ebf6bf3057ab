/*
 * Answers and messages that wait for their gate (gate.h).
 *
 * A call is in the list at most once: it has one write under way, or else its last word, and the
 * last word waits for the write. What is held is, for everybody else, on its way: `writing` or
 * `ending` is set, so a client that goes away or a finish finds the same states as without a gate.
 * A held call cannot end, since its status has not left.
 */
#include "rpc/gate.h"

#include <assert.h>

#include "rpc/server/call.h"

void
tutti_rpc_gate_init(tutti_rpc_gate *gate, uint64_t (*number)(void *arg), void *arg)
{
    gate->number = number;
    gate->arg = arg;
    tutti_list_init(&gate->held);
}

bool
rpc_gate_hold(tutti_rpc_call *call, grpc_byte_buffer *message, bool first)
{
    tutti_rpc_gate *gate = call->route == NULL ? NULL : call->route->gate;
    uint64_t number;

    if (gate == NULL) {
        return false;
    }
    assert(tutti_rpc_loop_is_current(call->server_loop->loop));
    number = gate->number(gate->arg);
    if (number == 0) {
        return false;
    }
    call->held_number = number;
    call->held_message = message;
    call->held_first = first;
    tutti_list_add(&gate->held, &call->held);
    return true;
}

/* The call may be gone behind each of these two. */
static void
let_out(tutti_rpc_call *call)
{
    grpc_byte_buffer *message = call->held_message;

    call->held_message = NULL;
    if (message == NULL) {
        rpc_call_send_last(call);
    } else {
        rpc_call_start_write(call, message, call->held_first, false);
        grpc_byte_buffer_destroy(message);
    }
}

void
tutti_rpc_gate_open(tutti_rpc_gate *gate, uint64_t number)
{
    tutti_rpc_call *call;

    while (!tutti_list_empty(&gate->held)) {
        call = tutti_container_of(gate->held.next, tutti_rpc_call, held);
        if (call->held_number > number) {
            break;
        }
        (void)tutti_list_pop(&gate->held);
        let_out(call);
    }
}
