#include "server/agent/autograd/backward_rig.h"

#include "support/testing.h"

tutti_tape *
agent_rig_trace(agent_rig *self, uint32_t rank, const char *tracer)
{
    tutti_tape *tape = NULL;
    tutti_error err;

    assert_ok(tutti_tape_new(self->agents[rank]->tapes, tracer, &tape, &err));
    return tape;
}

tutti_code
agent_rig_attach(agent_rig *self, uint32_t rank, const char *tracer, const char *handle,
                 tutti_error *err)
{
    const tutti_agent *agent = self->agents[rank];
    tutti_tape *tape = NULL;
    tutti_table_info info;

    TUTTI_TRY(tutti_tape_find(agent->tapes, tracer, &tape, err));
    TUTTI_TRY(tutti_table_stat(agent->table, handle, &info, err));
    return tutti_tape_attach(tape, info.number, &info.spec, agent->space, err);
}

static const char *
tensor_of(const void *message, size_t i)
{
    return ((const rig_backward *)message)->tensors[i];
}

static const char *
gradient_of(const void *message, size_t i)
{
    return ((const rig_backward *)message)->gradients[i];
}

static void
answer_gradients(tutti_rpc_call *call, const agent_gradient *gradients, size_t count,
                 const char *work, uint64_t elapsed_us)
{
    rig_call *self = tutti_container_of(call, rig_call, call);

    (void)elapsed_us;
    assert_true(count <= RIG_ANSWERS_MAX);
    memcpy(self->gradients, gradients, count * sizeof(self->gradients[0]));
    self->gradient_count = count;
    (void)snprintf(self->work, sizeof(self->work), "%s", work);
    fake_call_answered(call);
}

rig_call *
agent_rig_backward(agent_rig *self, uint32_t rank, const rig_backward *request)
{
    rig_call *call = agent_rig_call(self, rank);
    agent_backward backward = {.tracer = request->tracer,
                               .tensor_of = tensor_of,
                               .gradient_of = gradient_of,
                               .message = request,
                               .wanted = request->wanted,
                               .keep = request->keep,
                               .async = request->async,
                               .timeout_ms = request->timeout_ms};

    while (backward.grad_in_count < RIG_GRADIENTS_MAX &&
           request->tensors[backward.grad_in_count] != NULL) {
        backward.grad_in_count++;
    }
    while (backward.wanted_count < RIG_GRADIENTS_MAX &&
           request->wanted[backward.wanted_count] != NULL) {
        backward.wanted_count++;
    }
    agent_backward_start(self->agents[rank], &call->call, &backward, answer_gradients);
    return call;
}

void
rig_check_gradient(agent_rig *self, uint32_t rank, const rig_call *call, size_t n,
                   const double *values, int64_t count)
{
    assert_true(n < call->gradient_count);
    assert_string_not_equal(call->gradients[n].gradient, "");
    agent_rig_check(self, rank, call->gradients[n].gradient, values, count);
}

void
rig_check_no_gradient(const rig_call *call, size_t n)
{
    assert_true(n < call->gradient_count);
    assert_string_equal(call->gradients[n].gradient, "");
    assert_false(call->gradients[n].has_spec);
}
