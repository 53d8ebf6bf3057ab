/* What a call names: its arguments, its function, and the entry of its result. Control loop. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/function/call_private.h"
#include "server/agent/function/functions.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/transfer/access.h"

#define REGISTER_PREFIX "reg:"
#define HANDLE_PREFIX "tensor:"

static bool
begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* One wish for each tensor, however often it is named. */
static tutti_code
lock_name(agent_function_call *call, const char *name, tutti_lock **ret_lock, tutti_error *err)
{
    tutti_lock_set *lock_set = &call->lock_set;
    tutti_lock *last;
    uint32_t i;

    TUTTI_TRY(tutti_table_lock_by_name(call->agent->table, lock_set, name, true, err));

    last = &lock_set->locks[lock_set->count - 1];
    *ret_lock = last;
    for (i = 0; i + 1 < lock_set->count; i++) {
        if (lock_set->locks[i].entry == last->entry) {
            *ret_lock = &lock_set->locks[i];
            tutti_table_unwant(call->agent->table, lock_set);
            break;
        }
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ arguments */

/* A name that nothing has is null: that is what registers are before they are written. */
static tutti_code
take_named(agent_function_call *call, const char *name, agent_call_arg *arg, tutti_error *err)
{
    const tutti_any nothing = tutti_any_null();
    const tutti_code code = lock_name(call, name, &arg->lock, err);

    arg->any = true;
    if (code == TUTTI_NOT_FOUND && !begins_with(name, HANDLE_PREFIX)) {
        return agent_value_new(&nothing, &arg->value, err);
    }
    return code;
}

static tutti_code
take_arg(agent_function_call *call, agent_call_input *input, agent_call_arg *arg, tutti_error *err)
{
    if (input->value != NULL) {
        arg->value = input->value;
        input->value = NULL;
        return TUTTI_OK;
    }
    return input->tensor != NULL ? lock_name(call, input->tensor, &arg->lock, err)
                                 : take_named(call, input->name, arg, err);
}

static tutti_code
take_args(agent_function_call *call, agent_call_request *request, tutti_error *err)
{
    size_t i;

    call->args = calloc(request->arg_count + 1, sizeof(*call->args));
    call->anys = calloc(request->arg_count + 1, sizeof(*call->anys));
    if (call->args == NULL || call->anys == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu arguments", request->arg_count);
    }
    call->arg_count = request->arg_count;
    for (i = 0; i < request->arg_count; i++) {
        TUTTI_TRY(take_arg(call, &request->args[i], &call->args[i], err));
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the function */

static tutti_code
take_function(agent_function_call *call, const char *name, tutti_error *err)
{
    const agent_registry *registry = &call->agent->functions->registry;
    tutti_code code;

    call->function = agent_registry_find(registry, name);
    if (call->function != NULL) {
        agent_function_ref(call->function);
        return TUTTI_OK;
    }
    code = lock_name(call, name, &call->function_lock, err);
    if (code == TUTTI_OK || code == TUTTI_RESOURCE_EXHAUSTED) {
        return code;
    }
    if (begins_with(name, REGISTER_PREFIX) && code == TUTTI_NOT_FOUND) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_A_FUNCTION",
                              "%.100s holds nothing, not a function", name);
    }
    return agent_registry_get(registry, name, &call->function, err);
}

/* The name held it when the call's turn came. */
static tutti_code
find_held_function(agent_function_call *call, tutti_error *err)
{
    tutti_table *table = call->agent->table;
    const tutti_table_value *base;
    const agent_value *value;

    TUTTI_TRY(tutti_table_check_any(table, call->function_lock, err));

    base = tutti_table_value_of(table, call->function_lock);
    value = (const agent_value *)base;
    if (value == NULL || value->any.kind != AGENT_ANY_FUNCTION) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_A_FUNCTION",
                              "%.100s holds %s, not a function", call->function_name,
                              value == NULL ? "a tensor" : base->noun);
    }
    TUTTI_TRY(agent_registry_get(&call->agent->functions->registry, value->any.u.text,
                                 &call->function, err));
    agent_function_ref(call->function);
    (void)snprintf(call->function_name, sizeof(call->function_name), "%s", call->function->name);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ taking */

static tutti_code
take_result(agent_function_call *call, const char *name, tutti_error *err)
{
    if (name[0] == '\0') {
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_table_create_instead(call->agent->table, &call->lock_set, name, err));
    call->result = &call->lock_set.locks[call->lock_set.count - 1];
    return TUTTI_OK;
}

static tutti_code
check_request(const agent_call_request *request, tutti_error *err)
{
    if (request->refused.code != TUTTI_OK) {
        return tutti_error_pass(err, &request->refused);
    }
    if (strlen(request->scope) > AGENT_SCOPE_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME",
                              "a scope of %zu bytes, at most %d", strlen(request->scope),
                              AGENT_SCOPE_MAX);
    }
    if (request->worker_count > 0 &&
        (request->worker >= request->worker_count || request->group_size > request->worker_count)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "worker %" PRIu32 " in groups of %" PRIu32 ": there are %" PRIu32
                              " workers",
                              request->worker, request->group_size, request->worker_count);
    }
    return request->group[0] == '\0' ? TUTTI_OK : tutti_check_group_name(request->group, err);
}

tutti_code
agent_call_take(agent_function_call *call, agent_call_request *request, tutti_error *err)
{
    tutti_code code = check_request(request, err);

    if (code == TUTTI_OK) { /* one more for the function, and one for the result */
        code = tutti_table_reserve(&call->lock_set, (uint32_t)request->arg_count + 2, err);
    }
    code = code == TUTTI_OK ? agent_lock_own(&call->lock_set, call->rpc, err) : code;
    code = code == TUTTI_OK ? take_function(call, request->function, err) : code;
    code = code == TUTTI_OK ? take_args(call, request, err) : code;
    code = code == TUTTI_OK ? take_result(call, request->result, err) : code;
    if (code != TUTTI_OK) {
        tutti_table_release(call->agent->table, &call->lock_set);
    }
    return code;
}

void
agent_call_mark_name(tutti_agent *agent, const tutti_rpc_call *rpc, const char *name,
                     const tutti_error *why)
{
    tutti_lock_set lock_set = {.loop = agent->control};
    tutti_error err;

    if (name[0] != '\0' && agent_lock_own(&lock_set, rpc, &err) == TUTTI_OK &&
        tutti_table_create_instead(agent->table, &lock_set, name, &err) == TUTTI_OK) {
        (void)tutti_table_acquire(agent->table, &lock_set); /* a new one is granted at once */
        tutti_table_mark(agent->table, &lock_set.locks[0], why);
        tutti_table_release(agent->table, &lock_set);
    }
}

/* ------------------------------------------------------------------------------ opening */

void
agent_call_tensor_open(agent_call_tensor *tensor, const tutti_tensor *from, tutti_lock *lock)
{
    DLTensor *dl = &tensor->dl;

    (void)tutti_dlpack_parse_device(tutti_space_device(from->space), &dl->device);
    memcpy(tensor->shape, from->spec.dims, sizeof(tensor->shape));
    dl->data = from->data;
    dl->ndim = (int32_t)from->spec.dim_count;
    dl->dtype = tutti_dlpack_of_dtype(from->spec.dtype);
    dl->shape = tensor->shape;
    tensor->lock = lock;
}

/* What the name holds now: [ref] a value, or a tensor. */
static tutti_code
open_held(agent_function_call *call, agent_call_arg *arg, tutti_error *err)
{
    tutti_table *table = call->agent->table;
    tutti_table_value *value;

    TUTTI_TRY(arg->any ? tutti_table_check_any(table, arg->lock, err)
                       : tutti_table_check(table, arg->lock, err));

    value = tutti_table_value_of(table, arg->lock);
    if (value != NULL) {
        tutti_table_value_ref(value);
        arg->value = agent_value_of(value);
        return TUTTI_OK;
    }
    agent_call_tensor_open(&arg->tensor, tutti_table_tensor(table, arg->lock), arg->lock);
    return TUTTI_OK;
}

/* A function as an argument is its name. */
static tutti_any
see_arg(agent_call_arg *arg)
{
    tutti_any any = arg->value != NULL ? arg->value->any : tutti_any_tensor(&arg->tensor.dl);

    if (any.kind == AGENT_ANY_FUNCTION) {
        any.kind = TUTTI_ANY_TEXT;
    }
    return any;
}

tutti_code
agent_call_open_args(agent_function_call *call, tutti_error *err)
{
    size_t i;

    if (call->function == NULL) {
        TUTTI_TRY(find_held_function(call, err));
    }
    for (i = 0; i < call->arg_count; i++) {
        agent_call_arg *arg = &call->args[i];

        if (arg->value == NULL) {
            TUTTI_TRY(open_held(call, arg, err));
        }
        call->anys[i] = see_arg(arg);
    }
    return TUTTI_OK;
}

void
agent_call_drop_args(agent_function_call *call)
{
    size_t i;

    for (i = 0; i < call->arg_count; i++) {
        agent_value_unref(call->args[i].value);
    }
    free(call->args);
    free(call->anys);
    call->args = NULL;
    call->anys = NULL;
    call->arg_count = 0;
}

agent_call_tensor *
agent_call_find_tensor(agent_function_call *call, const DLTensor *dl)
{
    tutti_list_node *link;
    size_t i;

    for (i = 0; i < call->arg_count; i++) {
        if (&call->args[i].tensor.dl == dl && call->args[i].value == NULL) {
            return &call->args[i].tensor;
        }
    }
    for (link = call->made.next; link != &call->made; link = link->next) {
        agent_made_tensor *made = tutti_container_of(link, agent_made_tensor, link);

        if (&made->tensor.dl == dl) {
            return &made->tensor;
        }
    }
    return NULL;
}
