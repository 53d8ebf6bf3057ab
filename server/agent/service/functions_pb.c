/* FunctionsService: the messages of calls, values and modules. */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/function/functions.h"
#include "server/agent/function/host.h"
#include "server/agent/function/module.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/services.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/service/value_pb.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/transfer/access.h"

/* ------------------------------------------------------------------------------ Call */

static void
answer_call(tutti_rpc_call *rpc, const agent_call_result *result)
{
    Tutti__V1__CallResponse response = TUTTI__V1__CALL_RESPONSE__INIT;
    wire_value value;

    if (result->value != NULL) {
        agent_write_value(result->value, &value);
    } else {
        agent_write_tensor_value(result->handle, &result->spec, &value);
    }
    response.result = &value.message;
    response.elapsed_us = result->elapsed_us;
    tutti_rpc_call_reply(rpc, &response.base, NULL);
}

static tutti_code
read_arg(const Tutti__V1__Value *message, agent_call_input *input, tutti_error *err)
{
    TUTTI_TRY(agent_read_value(message, &input->value, err));

    if (input->value != NULL) {
        return TUTTI_OK;
    }
    if (message->kind_case == TUTTI__V1__VALUE__KIND_TENSOR) {
        input->tensor = message->tensor;
    } else {
        input->name = message->name;
    }
    return TUTTI_OK;
}

static tutti_code
read_args(const Tutti__V1__CallRequest *message, agent_call_request *request, tutti_error *err)
{
    size_t i;

    if (message->n_args > AGENT_CALL_ARGS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE", "%zu arguments, at most %d",
                              message->n_args, AGENT_CALL_ARGS_MAX);
    }
    request->args = calloc(message->n_args + 1, sizeof(*request->args));
    if (request->args == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for arguments");
    }
    request->arg_count = message->n_args;
    for (i = 0; i < message->n_args; i++) {
        TUTTI_TRY(read_arg(message->args[i], &request->args[i], err));
    }
    return TUTTI_OK;
}

static void
on_call(tutti_rpc_call *rpc, void *self)
{
    const Tutti__V1__CallRequest *message = tutti_rpc_call_request(rpc);
    agent_call_request request = {
        .function = message->function,
        .result = message->result,
        .scope = message->scope,
        .group = message->group,
        .timeout_ms = message->timeout_ms,
        .worker = message->worker,
        .worker_count = message->worker_count,
        .group_size = message->group_size,
    };

    if (read_args(message, &request, &request.refused) != TUTTI_OK) {
        agent_call_request_fini(&request);
    }
    agent_function_start(self, rpc, &request, answer_call);
}

/* ------------------------------------------------------------------------------ GetValue */

/* A GetValue that waits for who writes. */
typedef struct reading {
    tutti_agent *agent;
    tutti_rpc_call *rpc;
    tutti_lock_set lock_set;
    bool answered; /* the caller went away; its turn comes all the same */
} reading;

static tutti_code
write_held(reading *self, wire_value *value, tutti_error *err)
{
    tutti_table *table = self->agent->table;
    const tutti_lock *lock = &self->lock_set.locks[0];
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    tutti_table_value *held;

    TUTTI_TRY(tutti_table_check_any(table, lock, err));

    held = tutti_table_value_of(table, lock);
    if (held != NULL) {
        agent_write_value(agent_value_of(held), value);
    } else {
        tutti_table_handle(lock, handle);
        agent_write_tensor_value(handle, &tutti_table_tensor(table, lock)->spec, value);
    }
    return TUTTI_OK;
}

static void
turn_reading(reading *self)
{
    Tutti__V1__GetValueResponse response = TUTTI__V1__GET_VALUE_RESPONSE__INIT;
    wire_value value;
    tutti_error err;

    if (self->answered) {
        ;
    } else if (write_held(self, &value, &err) == TUTTI_OK) {
        response.value = &value.message;
        tutti_rpc_call_reply(self->rpc, &response.base, NULL);
    } else {
        tutti_rpc_call_fail(self->rpc, &err);
    }
    tutti_table_release(self->agent->table, &self->lock_set);
    atomic_fetch_sub(&self->agent->calls, 1);
    free(self);
}

static void
on_reading_ready(tutti_lock_set *lock_set)
{
    turn_reading(tutti_container_of(lock_set, reading, lock_set));
}

static void
on_reading_cancel(tutti_rpc_call *rpc, void *arg)
{
    const tutti_agent *agent = arg;
    reading *self = tutti_rpc_call_user(rpc);
    tutti_error err;

    if (tutti_rpc_call_cancelled(rpc)) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_CANCELLED, "CALLER_GONE", "the call was given up");
    } else {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING", "rank %u is stopping",
                             (unsigned)agent->rank);
    }
    self->answered = true;
    tutti_rpc_call_fail(rpc, &err);
}

static tutti_code
lock_value(reading *self, const char *name, tutti_error *err)
{
    const tutti_code code =
        tutti_table_lock_by_name(self->agent->table, &self->lock_set, name, false, err);

    if (code == TUTTI_NOT_FOUND && strncmp(name, "tensor:", 7) != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_VALUE", "%.127s holds nothing", name);
    }
    return code;
}

static void
on_get_value(tutti_rpc_call *rpc, void *arg)
{
    const Tutti__V1__GetValueRequest *request = tutti_rpc_call_request(rpc);
    tutti_agent *agent = arg;
    reading *self = calloc(1, sizeof(*self));
    tutti_error err;

    if (self == NULL) {
        agent_fail_answer(rpc);
        return;
    }
    self->agent = agent;
    self->rpc = rpc;
    self->lock_set.loop = agent->control;
    self->lock_set.on_ready = on_reading_ready;
    if (lock_value(self, request->name, &err) != TUTTI_OK) {
        tutti_rpc_call_fail(rpc, &err);
        free(self);
        return;
    }
    atomic_fetch_add(&agent->calls, 1);
    if (tutti_table_acquire(agent->table, &self->lock_set)) {
        turn_reading(self);
        return;
    }
    tutti_rpc_call_set_user(rpc, self);
    tutti_rpc_call_on_cancel(rpc, on_reading_cancel);
}

/* ------------------------------------------------------------------------------ SetValue */

/* [in, moved] value. The entry is new, so nobody has to be waited for. */
static tutti_code
hold_value(tutti_agent *agent, const tutti_rpc_call *rpc, const char *name, agent_value *value,
           tutti_error *err)
{
    tutti_lock_set lock_set = {.loop = agent->control};
    tutti_code code = agent_lock_own(&lock_set, rpc, err);

    if (code == TUTTI_OK && name[0] == '\0') {
        code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME", "no name for the value");
    }
    if (code == TUTTI_OK) {
        code = tutti_table_create_instead(agent->table, &lock_set, name, err);
    }
    if (code != TUTTI_OK) {
        agent_value_unref(value);
        return code;
    }
    (void)tutti_table_acquire(agent->table, &lock_set);
    tutti_table_set_value(agent->table, &lock_set.locks[0], &value->base);
    tutti_table_release(agent->table, &lock_set);
    return TUTTI_OK;
}

static tutti_code
hold_text(tutti_agent *agent, const tutti_rpc_call *rpc, const char *name, int32_t kind,
          const char *text, tutti_error *err)
{
    tutti_any any = tutti_any_text(text);
    agent_value *value = NULL;

    any.kind = kind;
    TUTTI_TRY(agent_value_new(&any, &value, err));
    return hold_value(agent, rpc, name, value, err);
}

static void
on_set_value(tutti_rpc_call *rpc, void *self)
{
    const Tutti__V1__SetValueRequest *request = tutti_rpc_call_request(rpc);
    Tutti__V1__SetValueResponse response = TUTTI__V1__SET_VALUE_RESPONSE__INIT;
    agent_value *value = NULL;
    tutti_error err;
    tutti_code code = agent_read_value(request->value, &value, &err);

    if (code == TUTTI_OK && value == NULL) {
        code = TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                              "a tensor, or the name of something, is no plain value: use Put, "
                              "Copy, or GetValue");
    }
    if (code == TUTTI_OK) {
        code = hold_value(self, rpc, request->name, value, &err);
    }
    if (code != TUTTI_OK) {
        tutti_rpc_call_fail(rpc, &err);
        return;
    }
    tutti_rpc_call_reply(rpc, &response.base, NULL);
}

/* ------------------------------------------------------------------------------ which there are */

/* All functions, or those of one source, with the memory that their messages need. */
typedef struct listing {
    Tutti__V1__FunctionInfo *infos;
    Tutti__V1__FunctionInfo **messages;
    size_t count;
} listing;

static bool
list_functions(const tutti_agent *agent, const char *source, listing *ret)
{
    const agent_registry *registry = &agent->functions->registry;
    const size_t most = registry->by_name.count;
    const agent_function *function = NULL;

    *ret = (listing){.infos = calloc(most + 1, sizeof(*ret->infos)),
                     .messages = calloc(most + 1, sizeof(Tutti__V1__FunctionInfo *))};
    if (ret->infos == NULL || ret->messages == NULL) {
        return false;
    }
    while ((function = agent_registry_next(registry, function)) != NULL) {
        if (source == NULL || strcmp(source, function->source) == 0) {
            agent_write_function(function, &ret->infos[ret->count]);
            ret->messages[ret->count] = &ret->infos[ret->count];
            ret->count++;
        }
    }
    return true;
}

static void
free_listing(listing *self)
{
    free(self->infos);
    free(self->messages);
}

static void
on_list_functions(tutti_rpc_call *rpc, void *self)
{
    Tutti__V1__ListFunctionsResponse response = TUTTI__V1__LIST_FUNCTIONS_RESPONSE__INIT;
    listing all;

    if (list_functions(self, NULL, &all)) {
        response.n_functions = all.count;
        response.functions = all.messages;
        tutti_rpc_call_reply(rpc, &response.base, NULL);
    } else {
        agent_fail_answer(rpc);
    }
    free_listing(&all);
}

static void
on_get_function(tutti_rpc_call *rpc, void *self)
{
    const Tutti__V1__GetFunctionRequest *request = tutti_rpc_call_request(rpc);
    Tutti__V1__GetFunctionResponse response = TUTTI__V1__GET_FUNCTION_RESPONSE__INIT;
    tutti_agent *agent = self;
    agent_function *function = NULL;
    Tutti__V1__FunctionInfo info;
    tutti_error err;
    tutti_code code =
        agent_registry_get(&agent->functions->registry, request->function, &function, &err);

    if (code == TUTTI_OK && request->result[0] != '\0') {
        code = hold_text(agent, rpc, request->result, AGENT_ANY_FUNCTION, function->name, &err);
    }
    if (code != TUTTI_OK) {
        tutti_rpc_call_fail(rpc, &err);
        return;
    }
    agent_write_function(function, &info);
    response.function = &info;
    tutti_rpc_call_reply(rpc, &response.base, NULL);
}

/* ------------------------------------------------------------------------------ LoadModule */

static void
answer_module(tutti_agent *agent, tutti_rpc_call *rpc, agent_module *module)
{
    Tutti__V1__LoadModuleResponse response = TUTTI__V1__LOAD_MODULE_RESPONSE__INIT;
    listing its;

    if (list_functions(agent, module->source, &its)) {
        response.module = module->name;
        response.n_functions = its.count;
        response.functions = its.messages;
        tutti_rpc_call_reply(rpc, &response.base, NULL);
    } else {
        agent_fail_answer(rpc);
    }
    free_listing(&its);
}

static void
on_module(tutti_agent *agent, tutti_rpc_call *rpc, agent_module *module, const tutti_error *err)
{
    const Tutti__V1__LoadModuleRequest *request = tutti_rpc_call_request(rpc);
    tutti_error why;

    if (module == NULL) {
        tutti_rpc_call_fail(rpc, err);
    } else if (request->result[0] != '\0' && hold_text(agent, rpc, request->result, TUTTI_ANY_TEXT,
                                                       module->name, &why) != TUTTI_OK) {
        tutti_rpc_call_fail(rpc, &why);
    } else {
        answer_module(agent, rpc, module);
    }
}

static void
on_load_module(tutti_rpc_call *rpc, void *self)
{
    const Tutti__V1__LoadModuleRequest *request = tutti_rpc_call_request(rpc);

    agent_module_load(self, rpc, request->path, request->device, on_module);
}

/* ------------------------------------------------------------------------------ ImportModule */

static void
answer_import(tutti_rpc_call *rpc, agent_function *const *functions, size_t count,
              const tutti_error *err)
{
    Tutti__V1__ImportModuleResponse response = TUTTI__V1__IMPORT_MODULE_RESPONSE__INIT;
    Tutti__V1__FunctionInfo *infos = calloc(count + 1, sizeof(*infos));
    Tutti__V1__FunctionInfo **messages = calloc(count + 1, sizeof(Tutti__V1__FunctionInfo *));
    size_t i;

    for (i = 0; i < count && infos != NULL && messages != NULL; i++) {
        agent_write_function(functions[i], &infos[i]);
        messages[i] = &infos[i];
    }
    if (err != NULL) {
        tutti_rpc_call_fail(rpc, err);
    } else if (infos == NULL || messages == NULL) {
        agent_fail_answer(rpc);
    } else {
        response.n_functions = count;
        response.functions = messages;
        tutti_rpc_call_reply(rpc, &response.base, NULL);
    }
    free(infos);
    free(messages);
}

static void
on_import_module(tutti_rpc_call *rpc, void *self)
{
    const Tutti__V1__ImportModuleRequest *request = tutti_rpc_call_request(rpc);

    agent_host_import(self, rpc, request->module, answer_import);
}

/* ------------------------------------------------------------------------------ the service */

void
agent_add_functions(tutti_agent *agent)
{
    static const tutti_rpc_method methods[] = {
        TUTTI_RPC_UNARY("Call", on_call),
        TUTTI_RPC_UNARY("GetValue", on_get_value),
        TUTTI_RPC_UNARY("SetValue", on_set_value),
        TUTTI_RPC_UNARY("ListFunctions", on_list_functions),
        TUTTI_RPC_UNARY("GetFunction", on_get_function),
        TUTTI_RPC_UNARY("LoadModule", on_load_module),
        TUTTI_RPC_UNARY("ImportModule", on_import_module),
        TUTTI_RPC_STREAM("Serve", &agent_serve_ops),
    };
    const tutti_rpc_service service = {
        .descriptor = &tutti__v1__functions_service__descriptor,
        .methods = methods,
        .method_count = sizeof(methods) / sizeof(methods[0]),
        .self = agent,
        .loop = agent->control,
    };

    tutti_rpc_server_add(agent->server, &service);
}
