/* What a function returned, from its thread to the entry of its result. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/thread.h"
#include "server/agent/function/call_private.h"
#include "server/agent/function/functions.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/transfer/access.h"
#include "tensor/move.h"

/* ------------------------------------------------------------------------------ copies */

/* A move that a thread of the pool waits for. */
typedef struct waited_move {
    tutti_move move;
    pthread_mutex_t lock;
    pthread_cond_t over_cond;
    bool over;
    bool failed;
    tutti_error err;
} waited_move;

static void
on_moved(tutti_move *move, const tutti_error *err)
{
    waited_move *self = tutti_container_of(move, waited_move, move);

    (void)pthread_mutex_lock(&self->lock);
    self->over = true;
    if (err != NULL) {
        self->failed = true;
        self->err = *err;
    }
    (void)pthread_cond_signal(&self->over_cond);
    (void)pthread_mutex_unlock(&self->lock);
}

static tutti_code
move_bytes(tutti_tensor *from, tutti_tensor *to, tutti_error *err)
{
    waited_move self = {.move.on_done = on_moved};

    (void)pthread_mutex_init(&self.lock, NULL);
    tutti_cond_init(&self.over_cond);
    tutti_move_copy(&self.move, from, to);
    (void)pthread_mutex_lock(&self.lock);
    while (!self.over) {
        (void)pthread_cond_wait(&self.over_cond, &self.lock);
    }
    (void)pthread_mutex_unlock(&self.lock);
    (void)pthread_cond_destroy(&self.over_cond);
    (void)pthread_mutex_destroy(&self.lock);
    return self.failed ? tutti_error_pass(err, &self.err) : TUTTI_OK;
}

static tutti_code
copy_tensor(tutti_tensor *from, tutti_tensor **ret, tutti_error *err)
{
    tutti_tensor *copy = NULL;
    tutti_code code = TUTTI_OK;

    TUTTI_TRY(tutti_tensor_new(from->space, &from->spec, false, &copy, err));

    if (from->bytes > 0 && tutti_tensor_is_host(from)) {
        memcpy(copy->data, from->data, (size_t)from->bytes);
    } else if (from->bytes > 0) {
        code = move_bytes(from, copy, err);
    }
    if (code != TUTTI_OK) {
        tutti_tensor_unref(copy);
        return code;
    }
    *ret = copy;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the return */

static bool
is_made(const agent_function_call *call, const agent_call_tensor *tensor)
{
    const tutti_list_node *link;

    for (link = call->made.next; link != &call->made; link = link->next) {
        if (&tutti_container_of(link, agent_made_tensor, link)->tensor == tensor) {
            return true;
        }
    }
    return false;
}

/*
 * An argument that is returned is copied: its entry and that of the result would be locked by
 * different calls at the same time. Where nobody can name it any more, the result is the tensor.
 */
static tutti_code
take_tensor(agent_function_call *call, const DLTensor *dl, tutti_error *err)
{
    const agent_call_tensor *found = agent_call_find_tensor(call, dl);
    tutti_table *table = call->agent->table;
    tutti_tensor *tensor;

    if (found == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "%s returned a tensor that is no argument of it, and none that "
                              "env->make has given",
                              call->function_name);
    }
    tensor = tutti_table_tensor(table, found->lock);
    if (!is_made(call, found) && !tutti_table_is_last(table, found->lock)) {
        return copy_tensor(tensor, &call->tensor, err);
    }
    tutti_tensor_ref(tensor);
    call->tensor = tensor;
    return TUTTI_OK;
}

static tutti_code
take_returned(agent_function_call *call, const tutti_any *ret, tutti_error *err)
{
    tutti_error why;

    if (ret->kind == TUTTI_ANY_TENSOR) {
        return take_tensor(call, ret->u.tensor, err);
    }
    if (agent_value_new(ret, &call->value, &why) != TUTTI_OK) {
        return TUTTI_FAIL_FOR(err, why.code, why.reason, "%s returned what cannot be kept: %.500s",
                              call->function_name, why.text);
    }
    return TUTTI_OK;
}

void
agent_call_returned(agent_function_call *call, int status, const tutti_any *ret)
{
    if (status == 0) {
        call->said.code = TUTTI_OK; /* it went on without what had failed */
        (void)take_returned(call, ret, &call->said);
    } else if (call->said.code == TUTTI_OK) {
        (void)TUTTI_FAIL_FOR(&call->said, TUTTI_ABORTED, "FUNCTION_FAILED",
                             "%s failed, and did not say why (it returned %d)", call->function_name,
                             status);
    }
    tutti_rpc_loop_post(call->agent->control, &call->done);
}

/* ------------------------------------------------------------------------------ settling */

/* A tensor that nobody has named gets its handle now: nobody can have used it before. */
static tutti_code
name_tensor(agent_function_call *call, tutti_error *err)
{
    tutti_table *table = call->agent->table;
    tutti_lock_set lock_set = {.loop = call->agent->control};

    TUTTI_TRY(agent_lock_own(&lock_set, call->rpc, err));
    TUTTI_TRY(tutti_table_create_locked(table, &lock_set, "", err));
    (void)tutti_table_acquire(table, &lock_set); /* a new one is granted at once */
    tutti_table_fill(table, &lock_set.locks[0], call->tensor);
    call->tensor = NULL;
    tutti_table_handle(&lock_set.locks[0], call->handle);
    tutti_table_release(table, &lock_set);
    return TUTTI_OK;
}

static tutti_code
settle_tensor(agent_function_call *call, agent_call_result *result, tutti_error *err)
{
    result->spec = call->tensor->spec;
    if (call->result == NULL) {
        TUTTI_TRY(name_tensor(call, err));
        memcpy(result->handle, call->handle, sizeof(result->handle));
        return TUTTI_OK;
    }
    tutti_table_fill(call->agent->table, call->result, call->tensor);
    call->tensor = NULL;
    tutti_table_handle(call->result, result->handle);
    return TUTTI_OK;
}

tutti_code
agent_call_settle(agent_function_call *call, agent_call_result *ret_result, tutti_error *err)
{
    *ret_result = (agent_call_result){.value = call->value};
    if (call->tensor != NULL) {
        TUTTI_TRY(settle_tensor(call, ret_result, err));
    } else if (call->result != NULL) {
        tutti_table_value_ref(&call->value->base);
        tutti_table_set_value(call->agent->table, call->result, &call->value->base);
    }
    if (call->result != NULL) {
        tutti_table_mark(call->agent->table, call->result, NULL);
    }
    return TUTTI_OK;
}

void
agent_call_drop_result(agent_function_call *call)
{
    agent_value_unref(call->value);
    tutti_tensor_unref(call->tensor);
    call->value = NULL;
    call->tensor = NULL;
}

void
agent_call_drop_made(agent_function_call *call)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&call->made)) != NULL) {
        agent_made_tensor *made = tutti_container_of(link, agent_made_tensor, link);

        tutti_table_drop_new(call->agent->table, made->tensor.lock);
        tutti_table_release(call->agent->table, &made->lock_set);
        free(made);
    }
}
