/*
 * Backward: calls that run a tape from its end. Control loop. What it takes and how it goes is in
 * backward_private.h.
 */
#ifndef TUTTI_SERVER_AGENT_AUTOGRAD_BACKWARD_H
#define TUTTI_SERVER_AGENT_AUTOGRAD_BACKWARD_H

#include "server/agent/agent.h"
#include "server/agent/state/types.h"
#include "server/agent/tensor/table.h"

/* A gradient that is wanted. */
typedef struct agent_gradient {
    char tensor[TUTTI_TABLE_HANDLE_SIZE];
    char gradient[TUTTI_TABLE_HANDLE_SIZE]; /* "" = none */
    bool has_spec;
    tutti_spec spec;
} agent_gradient;

/* A request for a Backward. Borrowed for agent_backward_start. */
typedef struct agent_backward {
    const char *tracer;
    const char *(*tensor_of)(const void *message, size_t i);
    const char *(*gradient_of)(const void *message, size_t i);
    const void *message; /* for these two */
    size_t grad_in_count;
    char *const *wanted;
    size_t wanted_count;
    bool keep;
    bool async;
    uint32_t timeout_ms;
} agent_backward;

/* Says what came of it: by the wire file. [in] work  "" = none */
typedef void (*agent_gradients_fn)(tutti_rpc_call *call, const agent_gradient *gradients,
                                   size_t count, const char *work, uint64_t elapsed_us);

/*
 * Begin a Backward, or refuse it. The call is answered exactly once: at once when it is refused
 * before it has a place (NOT_JOINED, STOPPING, CUT_OFF, OP_LIMIT, NO_TRACER) or is async, else at
 * its end.
 *
 * [in] request  borrowed until it returns
 */
void agent_backward_start(tutti_agent *agent, tutti_rpc_call *call, const agent_backward *request,
                          agent_gradients_fn answer);

/*
 * Hooks (state/hooks.h): an op has ended, its Backwards go on; a Backward's place is the first in
 * the queue of its group, perhaps not for the first time.
 */
void agent_walks_op_ended(agent_op *op);
void agent_backward_on_slot_reached(agent_op *slot);

#endif
