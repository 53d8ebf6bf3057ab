#include "server/agent/function/env.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/utf8.h"
#include "base/error/fail.h"
#include "base/os/thread.h"
#include "server/agent/function/functions.h"
#include "server/agent/function/gpu.h"
#include "server/agent/state/device.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

#define SAID_BYTES_MAX 1000

/* ------------------------------------------------------------------------------ fail */

static bool
is_reason(const char *reason)
{
    const size_t size = strnlen(reason, TUTTI_ERROR_REASON_MAX);

    return size > 0 && size < TUTTI_ERROR_REASON_MAX &&
           strspn(reason, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == size;
}

/* What is no text becomes one: it travels as a string of protobuf. */
static void
copy_words(char ret_text[SAID_BYTES_MAX + 1], const char *text)
{
    size_t used = 0;

    while (used < SAID_BYTES_MAX && text[used] != '\0') {
        ret_text[used] = text[used];
        used++;
    }
    while (used > 0 && text[used] != '\0' && ((unsigned char)text[used] & 0xc0U) == 0x80) {
        used--; /* not in the middle of a character */
    }
    ret_text[used] = '\0';
    (void)tutti_utf8_clean(ret_text);
}

void
agent_env_say(agent_function_call *call, const char *reason, const char *text)
{
    char words[SAID_BYTES_MAX + 1];

    copy_words(words, text == NULL ? "" : text);
    (void)TUTTI_FAIL_FOR(&call->said, TUTTI_ABORTED,
                         reason != NULL && is_reason(reason) ? reason : "FUNCTION_FAILED", "%s%s%s",
                         words[0] == '\0' ? call->function_name : "",
                         words[0] == '\0' ? " failed" : "", words);
    tutti_error_set_op(&call->said, NULL, 0, (int32_t)call->agent->rank);
}

static int
env_fail(const tutti_env *env, const char *reason, const char *text)
{
    agent_env_say(env->self, reason, text);
    return -1;
}

/* ------------------------------------------------------------------------------ make */

tutti_code
agent_env_make(agent_function_call *call, const tutti_spec *spec, tutti_space *space,
               agent_made_tensor **ret_made, tutti_error *err)
{
    tutti_agent *agent = call->agent;
    agent_made_tensor *made = calloc(1, sizeof(*made));
    tutti_tensor *tensor = NULL;
    tutti_code code;

    if (made == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a tensor");
    }
    made->lock_set.loop = agent->control;
    memcpy(made->lock_set.owner, call->lock_set.owner, sizeof(made->lock_set.owner));
    made->lock_set.lease = call->lock_set.lease;
    code = tutti_tensor_new(space == NULL ? agent->devices.home : space, spec, false, &tensor, err);
    if (code == TUTTI_OK) {
        code = tutti_table_create_locked(agent->table, &made->lock_set, "", err);
    }
    if (code != TUTTI_OK) {
        tutti_tensor_unref(tensor);
        free(made);
        return code;
    }
    (void)tutti_table_acquire(agent->table, &made->lock_set); /* a new one is granted at once */
    tutti_table_fill(agent->table, &made->lock_set.locks[0], tensor);
    agent_call_tensor_open(&made->tensor, tensor, &made->lock_set.locks[0]);
    tutti_list_init(&made->link);
    tutti_list_add(&call->made, &made->link);
    *ret_made = made;
    return TUTTI_OK;
}

static tutti_code
read_made_spec(DLDataType dtype, const int64_t *shape, int32_t ndim, tutti_spec *ret_spec,
               tutti_error *err)
{
    tutti_spec spec = {.dtype = tutti_dlpack_dtype(dtype)};
    int32_t i;

    if (ndim < 0 || ndim > TUTTI_DIMS_MAX || (shape == NULL && ndim > 0)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE", "%d dimensions, at most %d",
                              (int)ndim, TUTTI_DIMS_MAX);
    }
    spec.dim_count = (uint32_t)ndim;
    for (i = 0; i < ndim; i++) {
        spec.dims[i] = shape[i];
    }
    TUTTI_TRY(tutti_spec_check(&spec, NULL, NULL, err));
    *ret_spec = spec;
    return TUTTI_OK;
}

static tutti_code
find_space(agent_function_call *call, const DLDevice *device, tutti_space **ret_space,
           tutti_error *err)
{
    char name[TUTTI_DEVICE_MAX + 1];

    *ret_space = NULL;
    if (device == NULL) {
        return TUTTI_OK;
    }
    tutti_dlpack_device_name(*device, name);
    return agent_devices_find(call->agent, name[0] == '\0' ? "?" : name, ret_space, err);
}

static DLTensor *
env_make(const tutti_env *env, DLDataType dtype, const int64_t *shape, int32_t ndim,
         const DLDevice *device)
{
    agent_function_call *call = env->self;
    agent_made_tensor *made = NULL;
    tutti_space *space = NULL;
    tutti_spec spec;
    tutti_error err;

    if (read_made_spec(dtype, shape, ndim, &spec, &err) != TUTTI_OK ||
        find_space(call, device, &space, &err) != TUTTI_OK ||
        agent_env_make(call, &spec, space, &made, &err) != TUTTI_OK ||
        agent_gpu_follow(call, space == NULL ? call->agent->devices.home : space, &err) !=
            TUTTI_OK) {
        call->said = err;
        return NULL;
    }
    return &made->tensor.dl;
}

/* ------------------------------------------------------------------------------ op */

/* An op that the function's thread waits for. */
typedef struct waited_op {
    agent_env_op op;
    tutti_rpc_task start;
    pthread_mutex_t lock;
    pthread_cond_t over_cond;
    bool over;
} waited_op;

static void
on_op_end(agent_env_op *op)
{
    waited_op *self = tutti_container_of(op, waited_op, op);

    (void)pthread_mutex_lock(&self->lock);
    self->over = true;
    (void)pthread_cond_signal(&self->over_cond);
    (void)pthread_mutex_unlock(&self->lock);
}

static void
run_start(tutti_rpc_task *task)
{
    agent_env_op_start(&tutti_container_of(task, waited_op, start)->op);
}

static void
wait_for_op(waited_op *self)
{
    agent_pool *pool = self->op.call->agent->functions->pool;

    agent_pool_wait_begin(pool);
    (void)pthread_mutex_lock(&self->lock);
    while (!self->over) {
        (void)pthread_cond_wait(&self->over_cond, &self->lock);
    }
    (void)pthread_mutex_unlock(&self->lock);
    agent_pool_wait_end(pool);
}

static tutti_code
find_tensors(agent_function_call *call, const tutti_env_op *asked, agent_env_op *op,
             tutti_error *err)
{
    op->input = asked->input == NULL ? NULL : agent_call_find_tensor(call, asked->input);
    op->output = asked->output == NULL ? NULL : agent_call_find_tensor(call, asked->output);
    if ((asked->input != NULL && op->input == NULL) ||
        (asked->output != NULL && op->output == NULL)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "%s in %s: a tensor that is no argument of the call, and none that "
                              "env->make has given",
                              asked->op, call->function_name);
    }
    return TUTTI_OK;
}

static tutti_code
run_waited_op(agent_function_call *call, const tutti_env_op *asked, tutti_error *err)
{
    waited_op self = {.op.call = call,
                      .op.on_end = on_op_end,
                      .op.peer = asked->peer,
                      .op.timeout_ms = asked->timeout_ms,
                      .start.on_run = run_start};

    TUTTI_TRY(agent_env_op_read(&self.op, asked->op, asked->reduce, err));
    TUTTI_TRY(find_tensors(call, asked, &self.op, err));

    (void)pthread_mutex_init(&self.lock, NULL);
    tutti_cond_init(&self.over_cond);
    tutti_rpc_loop_post(call->agent->control, &self.start);
    wait_for_op(&self);
    (void)pthread_cond_destroy(&self.over_cond);
    (void)pthread_mutex_destroy(&self.lock);
    return self.op.err.code == TUTTI_OK ? TUTTI_OK : tutti_error_pass(err, &self.op.err);
}

/* A plug-in of a later interface may have a longer struct, one of an earlier a shorter one. */
static int
env_op(const tutti_env *env, const tutti_env_op *asked)
{
    agent_function_call *call = env->self;
    tutti_env_op op = {.size = sizeof(op)};
    tutti_error err;

    if (asked == NULL || asked->size < sizeof(asked->size) + sizeof(asked->op)) {
        return env_fail(env, "BAD_VALUE", "env->op: set `size` to the size of the struct");
    }
    memcpy(&op, asked, asked->size < sizeof(op) ? asked->size : sizeof(op));
    if (agent_gpu_wait(call, &err) != TUTTI_OK || run_waited_op(call, &op, &err) != TUTTI_OK) {
        call->said = err;
        return -1;
    }
    return 0;
}

/* ------------------------------------------------------------------------------ opening */

void
agent_env_open(agent_function_call *call)
{
    const tutti_agent *agent = call->agent;
    tutti_env *env = &call->env;

    env->size = sizeof(*env);
    env->rank = agent->rank;
    env->world_size = agent->world_size;
    if (env->worker_count == 0) {
        env->worker = agent->rank;
        env->worker_count = agent->world_size;
    }
    if (env->group_size == 0) {
        env->group_size = env->worker_count;
    }
    (void)tutti_dlpack_parse_device(tutti_space_device(agent->devices.home), &env->device);
    env->cancelled = (const volatile int *)&call->cancelled;
    env->self = call;
    env->context = call->function->context;
    env->make = env_make;
    env->op = env_op;
    env->fail = env_fail;
}
