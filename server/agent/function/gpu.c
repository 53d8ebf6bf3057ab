/*
 * What calls need of CUDA, by the table of tutti-cuda.so alone.
 *
 * The agent waits for the stream, and not the function: so a function that only launches kernels is
 * right without a line about it, and the tensors' locks are held until their bytes are there.
 */
#include "server/agent/function/gpu.h"

#include <pthread.h>

#include "base/error/fail.h"
#include "base/os/thread.h"
#include "server/agent/state/device.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

/* ------------------------------------------------------------------------------ the stream */

/* Of the first tensor on a GPU, else of the agent. NULL: no GPU is concerned. */
static tutti_space *
find_gpu_space(const agent_function_call *call)
{
    tutti_agent *agent = call->agent;
    size_t i;

    for (i = 0; i < call->arg_count; i++) {
        const agent_call_arg *arg = &call->args[i];

        if (arg->value == NULL && arg->tensor.lock != NULL) {
            tutti_tensor *tensor = tutti_table_tensor(agent->table, arg->tensor.lock);

            if (tensor != NULL && !tutti_tensor_is_host(tensor)) {
                return tensor->space;
            }
        }
    }
    return agent->devices.home != agent->space ? agent->devices.home : NULL;
}

static tutti_code
open_stream(agent_function_call *call, tutti_space *space, tutti_error *err)
{
    call->gpu = space;
    return call->agent->devices.cuda->stream_open(space, &call->env.stream, err);
}

tutti_code
agent_gpu_begin(agent_function_call *call, tutti_error *err)
{
    tutti_space *space = call->agent->devices.cuda == NULL ? NULL : find_gpu_space(call);

    return space == NULL ? TUTTI_OK : open_stream(call, space, err);
}

tutti_code
agent_gpu_wait(agent_function_call *call, tutti_error *err)
{
    return call->env.stream == NULL
               ? TUTTI_OK
               : call->agent->devices.cuda->stream_wait(call->gpu, call->env.stream, err);
}

tutti_code
agent_gpu_follow(agent_function_call *call, tutti_space *space, tutti_error *err)
{
    if (space == call->agent->space) {
        return TUTTI_OK;
    }
    return call->env.stream == NULL
               ? open_stream(call, space, err)
               : call->agent->devices.cuda->follow(space, call->env.stream, err);
}

void
agent_gpu_end(agent_function_call *call)
{
    if (call->env.stream != NULL) {
        call->agent->devices.cuda->stream_close(call->gpu, call->env.stream);
        call->env.stream = NULL;
    }
}

/* ------------------------------------------------------------------------------ for hosts */

/* A move that a thread waits for. */
typedef struct waited_move {
    tutti_move move;
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    bool done;
    tutti_error err; /* code OK: it went well */
} waited_move;

static void
on_move_over(tutti_move *move, const tutti_error *err)
{
    waited_move *self = tutti_container_of(move, waited_move, move);

    (void)pthread_mutex_lock(&self->lock);
    if (err != NULL) {
        self->err = *err;
    }
    self->done = true;
    (void)pthread_cond_signal(&self->done_cond);
    (void)pthread_mutex_unlock(&self->lock);
}

static const char *
gpu_uuid(const tutti_agent *agent, const tutti_space *space)
{
    size_t i;

    for (i = 0; i < agent->devices.count; i++) {
        if (agent->devices.list[i].space == space) {
            return agent->devices.list[i].cuda.uuid;
        }
    }
    return "";
}

tutti_code
agent_gpu_share(tutti_agent *agent, tutti_tensor *tensor, unsigned char *ret_handle,
                const char **ret_uuid, tutti_error *err)
{
    waited_move self = {.move.on_done = on_move_over};

    (void)pthread_mutex_init(&self.lock, NULL);
    tutti_cond_init(&self.done_cond);
    agent->devices.cuda->own(&self.move, tensor, ret_handle);
    (void)pthread_mutex_lock(&self.lock);
    while (!self.done) {
        (void)pthread_cond_wait(&self.done_cond, &self.lock);
    }
    (void)pthread_mutex_unlock(&self.lock);
    (void)pthread_cond_destroy(&self.done_cond);
    (void)pthread_mutex_destroy(&self.lock);
    if (self.err.code != TUTTI_OK) {
        return tutti_error_pass(err, &self.err);
    }
    *ret_uuid = gpu_uuid(agent, tensor->space);
    return TUTTI_OK;
}
