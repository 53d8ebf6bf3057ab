/*
 * TracersService: tapes by name, and Backward's gradients as messages. Control loop, which owns the
 * tapes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/autograd/backward.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/service/services.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/device.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "tensor/space.h"
#include "tutti/v1/tracers_service.pb-c.h"

#define ATTACH_MAX 1024

/* ------------------------------------------------------------------------------ tapes */

static void
on_create(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__CreateTracerRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__CreateTracerResponse response = TUTTI__V1__CREATE_TRACER_RESPONSE__INIT;
    tutti_agent *agent = self;
    tutti_tape *tape;
    tutti_error err;

    if (tutti_tape_new(agent->tapes, request->name, &tape, &err) != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/*
 * A tensor without a shape cannot be a leaf: its dtype is checked when it is attached, and not at
 * Backward.
 */
static tutti_code
look_up_tracer(tutti_agent *agent, const Tutti__V1__AttachRequest *request, tutti_table_info *infos,
               tutti_tape_leaf *leaves, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < request->n_tensors && code == TUTTI_OK; i++) {
        code = tutti_table_stat(agent->table, request->tensors[i], &infos[i], err);
        if (code == TUTTI_OK && infos[i].failed) {
            code = tutti_error_pass(err, &infos[i].err);
        } else if (code == TUTTI_OK && !infos[i].has_spec) {
            code = TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "PENDING",
                                  "%s has no shape yet: wait for the op that makes it",
                                  infos[i].handle);
        }
        if (code == TUTTI_OK) {
            leaves[i] = (tutti_tape_leaf){.tensor = infos[i].number, .spec = &infos[i].spec};
            code = agent_devices_find(agent, infos[i].device, &leaves[i].space, err);
        }
    }
    return code;
}

static tutti_code
attach_tracer(tutti_agent *agent, const Tutti__V1__AttachRequest *request, tutti_error *err)
{
    tutti_table_info *infos = NULL;
    tutti_tape_leaf *leaves = NULL;
    tutti_tape *tape = NULL;
    tutti_code code = tutti_tape_find(agent->tapes, request->tracer, &tape, err);

    if (code == TUTTI_OK && (request->n_tensors == 0 || request->n_tensors > ATTACH_MAX)) {
        code =
            TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "TENSOR_COUNT",
                           "%zu tensors to attach, need 1 to %d", request->n_tensors, ATTACH_MAX);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    infos = calloc(request->n_tensors, sizeof(*infos));
    leaves = calloc(request->n_tensors, sizeof(*leaves));
    if (infos == NULL || leaves == NULL) {
        code = TUTTI_FAIL_MEMORY(err, "no memory to attach tensors");
    } else {
        code = look_up_tracer(agent, request, infos, leaves, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_tape_attach_all(tape, leaves, request->n_tensors, err);
    }
    free(leaves);
    free(infos);
    return code;
}

static void
on_attach(tutti_rpc_call *call, void *self)
{
    Tutti__V1__AttachResponse response = TUTTI__V1__ATTACH_RESPONSE__INIT;
    tutti_error err;

    if (attach_tracer(self, tutti_rpc_call_request(call), &err) != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* Not while a Backward reads the tape: its nodes point to the records. */
static void
on_clear(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__ClearTracerRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__ClearTracerResponse response = TUTTI__V1__CLEAR_TRACER_RESPONSE__INIT;
    const tutti_agent *agent = self;
    tutti_tape *tape = NULL;
    tutti_error err;
    tutti_code code = tutti_tape_find(agent->tapes, request->tracer, &tape, &err);

    if (code == TUTTI_OK && tape->backward_count > 0) {
        code = TUTTI_FAIL_FOR(&err, TUTTI_FAILED_PRECONDITION, "TRACER_BUSY",
                              "a Backward of tracer %s is running: wait until it has ended",
                              tape->name);
    }
    if (code != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    tutti_tape_clear(tape, false);
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_delete(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__DeleteTracerRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__DeleteTracerResponse response = TUTTI__V1__DELETE_TRACER_RESPONSE__INIT;
    const tutti_agent *agent = self;
    tutti_tape *tape = NULL;
    tutti_error err;

    if (tutti_tape_find(agent->tapes, request->tracer, &tape, &err) != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    tutti_tape_delete(tape);
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* ------------------------------------------------------------------------------ ListTracers */

static size_t
count_tapes(const tutti_agent *agent)
{
    tutti_tape *tape = tutti_tapes_next(agent->tapes, NULL);
    size_t count = 0;

    for (; tape != NULL; tape = tutti_tapes_next(agent->tapes, tape)) {
        count++;
    }
    return count;
}

static void
write_tape(tutti_tape *tape, Tutti__V1__TracerInfo *ret)
{
    tutti__v1__tracer_info__init(ret);
    ret->name = tape->name;
    ret->op_count = tape->record_count - tape->cleared_count;
    ret->attached_count = tape->leaf_count;
    ret->walking = tape->backward_count > 0;
}

static void
on_list(tutti_rpc_call *call, void *self)
{
    Tutti__V1__ListTracersResponse response = TUTTI__V1__LIST_TRACERS_RESPONSE__INIT;
    const tutti_agent *agent = self;
    const size_t count = count_tapes(agent);
    Tutti__V1__TracerInfo *infos = calloc(count + 1, sizeof(*infos));
    Tutti__V1__TracerInfo **messages = calloc(count + 1, sizeof(Tutti__V1__TracerInfo *));
    tutti_tape *tape = NULL;
    size_t i;

    for (i = 0; i < count && infos != NULL && messages != NULL; i++) {
        tape = tutti_tapes_next(agent->tapes, tape);
        write_tape(tape, &infos[i]);
        messages[i] = &infos[i];
    }
    if (infos == NULL || messages == NULL) {
        agent_fail_answer(call);
    } else {
        response.n_tracers = count;
        response.tracers = messages;
        tutti_rpc_call_reply(call, &response.base, NULL);
    }
    free(messages);
    free(infos);
}

/* ------------------------------------------------------------------------------ Backward */

static const char *
tensor_of(const void *message, size_t i)
{
    return ((const Tutti__V1__BackwardRequest *)message)->gradients[i]->tensor;
}

static const char *
gradient_of(const void *message, size_t i)
{
    return ((const Tutti__V1__BackwardRequest *)message)->gradients[i]->gradient;
}

/* A gradient out, with the memory it points to. */
typedef struct wire_gradient {
    Tutti__V1__GradientRef message;
    Tutti__V1__TensorRef ref;
    wire_spec spec;
} wire_gradient;

static void
write_gradient(const agent_gradient *gradient, wire_gradient *ret)
{
    tutti__v1__gradient_ref__init(&ret->message);
    ret->message.tensor = (char *)(uintptr_t)gradient->tensor;
    if (gradient->gradient[0] == '\0') {
        return;
    }
    if (gradient->has_spec) {
        agent_write_spec(&gradient->spec, &ret->spec);
    }
    agent_write_ref(gradient->gradient, gradient->has_spec ? &ret->spec : NULL, &ret->ref);
    ret->message.gradient = &ret->ref;
}

static void
answer_tracer(tutti_rpc_call *call, const agent_gradient *gradients, size_t count, const char *work,
              uint64_t elapsed_us)
{
    Tutti__V1__BackwardResponse response = TUTTI__V1__BACKWARD_RESPONSE__INIT;
    Tutti__V1__OpInfo info = TUTTI__V1__OP_INFO__INIT;
    wire_gradient *memory = calloc(count + 1, sizeof(*memory));
    Tutti__V1__GradientRef **messages = calloc(count + 1, sizeof(Tutti__V1__GradientRef *));
    size_t i;

    for (i = 0; i < count && memory != NULL && messages != NULL; i++) {
        write_gradient(&gradients[i], &memory[i]);
        messages[i] = &memory[i].message;
    }
    if (memory == NULL || messages == NULL) {
        agent_fail_answer(call);
    } else {
        info.work = (char *)(uintptr_t)work;
        info.elapsed_us = elapsed_us;
        response.info = &info;
        response.n_gradients = count;
        response.gradients = messages;
        tutti_rpc_call_reply(call, &response.base, NULL);
    }
    free(messages);
    free(memory);
}

static void
on_backward(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__BackwardRequest *message = tutti_rpc_call_request(call);
    tutti_error err;
    const agent_backward request = {
        .tracer = message->tracer,
        .tensor_of = tensor_of,
        .gradient_of = gradient_of,
        .message = message,
        .grad_in_count = message->n_gradients,
        .wanted = message->wanted,
        .wanted_count = message->n_wanted,
        .keep = message->keep,
        .async = message->options != NULL && message->options->async,
        .timeout_ms = message->options != NULL ? message->options->timeout_ms : 0,
    };

    if (message->options != NULL &&
        (message->options->after_event != 0 || message->options->done_event != 0)) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "BAD_EVENT",
                             "Backward has no events: wait for the stream before, and for the "
                             "answer behind it");
        tutti_rpc_call_fail(call, &err);
        return;
    }
    agent_backward_start(self, call, &request, answer_tracer);
}

void
agent_add_tracers(tutti_agent *agent)
{
    static const tutti_rpc_method methods[] = {
        TUTTI_RPC_UNARY("CreateTracer", on_create), TUTTI_RPC_UNARY("Attach", on_attach),
        TUTTI_RPC_UNARY("Backward", on_backward),   TUTTI_RPC_UNARY("ClearTracer", on_clear),
        TUTTI_RPC_UNARY("DeleteTracer", on_delete), TUTTI_RPC_UNARY("ListTracers", on_list),
    };
    const tutti_rpc_service service = {
        .descriptor = &tutti__v1__tracers_service__descriptor,
        .methods = methods,
        .method_count = sizeof(methods) / sizeof(methods[0]),
        .self = agent,
        .loop = agent->control,
    };

    tutti_rpc_server_add(agent->server, &service);
}
