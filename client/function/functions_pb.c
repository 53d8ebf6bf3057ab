/* FunctionsService: calls of one agent's functions, its names and its modules. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/options.h"
#include "client/conn/types_pb.h"
#include "client/function/value_pb.h"

#define SERVICE (&tutti__v1__functions_service__descriptor)

static const tutti_rpc_stub stub_call = {SERVICE, "Call"};
static const tutti_rpc_stub stub_get_value = {SERVICE, "GetValue"};
static const tutti_rpc_stub stub_set_value = {SERVICE, "SetValue"};
static const tutti_rpc_stub stub_list = {SERVICE, "ListFunctions"};
static const tutti_rpc_stub stub_get = {SERVICE, "GetFunction"};
static const tutti_rpc_stub stub_load = {SERVICE, "LoadModule"};
static const tutti_rpc_stub stub_import = {SERVICE, "ImportModule"};

static tutti_code
ask_functions(tutti_client *client, const tutti_rpc_stub *stub, const ProtobufCMessage *request,
              tutti_rpc_message **ret_message, tutti_error *err)
{
    const client_call call = {
        .stub = stub, .kind = CLIENT_CONTROL, .deadline_ns = client_deadline(client, 0)};

    return client_invoke(client, &call, request, ret_message, err);
}

/* ------------------------------------------------------------------------------ calling */

void
tutti_call_options_init(tutti_call_options *options)
{
    *options = (tutti_call_options){.size = sizeof(*options)};
}

/* The arguments of a call, with the memory that their messages point to. */
typedef struct arguments {
    wire_value values[TUTTI_ARGUMENTS_MAX];
    Tutti__V1__Value *pointers[TUTTI_ARGUMENTS_MAX];
} arguments;

static tutti_code
write_arguments(const tutti_value *args, size_t count, arguments *ret, tutti_error *err)
{
    char what[32];
    size_t i;

    TUTTI_TRY(client_check_arguments(count, err));
    for (i = 0; i < count; i++) {
        (void)snprintf(what, sizeof(what), "argument %zu", i + 1);
        TUTTI_TRY(client_write_plain(&args[i], what, &ret->values[i], err));
        ret->pointers[i] = &ret->values[i].message;
    }
    return TUTTI_OK;
}

static tutti_code
read_called(const Tutti__V1__CallResponse *response, tutti_call_result *ret_result,
            tutti_error *err)
{
    tutti_call_result result = {.elapsed_us = response->elapsed_us};

    if (ret_result == NULL) {
        return TUTTI_OK;
    }
    TUTTI_TRY(client_read_plain(response->result, &result.value, err));
    *ret_result = result;
    return TUTTI_OK;
}

static tutti_code
invoke_function(tutti_client *client, const Tutti__V1__CallRequest *request,
                tutti_call_result *ret_result, tutti_error *err)
{
    const client_call call = {.stub = &stub_call,
                              .kind = CLIENT_CONTROL,
                              .deadline_ns = client_op_deadline(request->timeout_ms)};
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(client_invoke(client, &call, &request->base, &message, err));
    code = read_called(tutti_rpc_message_get(message), ret_result, err);
    tutti_rpc_message_free(message);
    return code;
}

tutti_code
tutti_call(tutti_client *client, const char *function, const tutti_value *args, size_t count,
           const tutti_call_options *options, tutti_call_result *ret_result, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(args, count, err);

    Tutti__V1__CallRequest request = TUTTI__V1__CALL_REQUEST__INIT;
    tutti_call_options own;
    arguments wire;

    tutti_call_options_init(&own);
    if (options != NULL) {
        TUTTI_TRY(
            client_take_struct(&own, sizeof(own), options, options->size, "call options", err));
    }
    TUTTI_TRY(write_arguments(args, count, &wire, err));
    request.function = client_write_text(function);
    request.n_args = count;
    request.args = wire.pointers;
    request.result = client_write_text(own.result);
    request.timeout_ms = own.timeout_ms;
    request.scope = client_write_text(own.scope);
    request.group = client_write_text(own.group);
    return invoke_function(client, &request, ret_result, err);
}

/* ------------------------------------------------------------------------------ what there is */

/* [in, moved] message  that has the functions */
static tutti_code
take_functions(tutti_rpc_message *message, Tutti__V1__FunctionInfo **functions, size_t count,
               tutti_function_info **ret_infos, size_t *ret_count, tutti_error *err)
{
    const tutti_code code = client_read_functions(functions, count, ret_infos, ret_count, err);

    tutti_rpc_message_free(message);
    return code;
}

tutti_code
tutti_function_list(tutti_client *client, tutti_function_info **ret_infos, size_t *ret_count,
                    tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_infos, err);
    TUTTI_NEED(ret_count, err);

    const Tutti__V1__ListFunctionsRequest request = TUTTI__V1__LIST_FUNCTIONS_REQUEST__INIT;
    const Tutti__V1__ListFunctionsResponse *response;
    tutti_rpc_message *message = NULL;

    TUTTI_TRY(ask_functions(client, &stub_list, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    return take_functions(message, response->functions, response->n_functions, ret_infos, ret_count,
                          err);
}

tutti_code
tutti_function_get(tutti_client *client, const char *function, const char *result,
                   tutti_function_info *ret_info, tutti_error *err)
{
    TUTTI_NEED(client, err);

    Tutti__V1__GetFunctionRequest request = TUTTI__V1__GET_FUNCTION_REQUEST__INIT;
    const Tutti__V1__GetFunctionResponse *response;
    tutti_function_info *infos = NULL;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.function = client_write_text(function);
    request.result = client_write_text(result);
    TUTTI_TRY(ask_functions(client, &stub_get, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    code = client_read_functions(&response->function, response->function != NULL ? 1 : 0, &infos,
                                 NULL, err);
    if (code == TUTTI_OK && ret_info != NULL) {
        *ret_info = infos[0]; /* zeros, when the agent has nothing to say */
    }
    free(infos);
    tutti_rpc_message_free(message);
    return code;
}

/* ------------------------------------------------------------------------------ names */

tutti_code
tutti_value_get(tutti_client *client, const char *name, tutti_value *ret_value, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_value, err);

    Tutti__V1__GetValueRequest request = TUTTI__V1__GET_VALUE_REQUEST__INIT;
    const Tutti__V1__GetValueResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.name = client_write_text(name);
    TUTTI_TRY(ask_functions(client, &stub_get_value, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    code = client_read_plain(response->value, ret_value, err);
    tutti_rpc_message_free(message);
    return code;
}

tutti_code
tutti_value_set(tutti_client *client, const char *name, const tutti_value *value, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(value, err);

    Tutti__V1__SetValueRequest request = TUTTI__V1__SET_VALUE_REQUEST__INIT;
    wire_value wire;

    TUTTI_TRY(client_write_plain(value, "the value", &wire, err));
    request.name = client_write_text(name);
    request.value = &wire.message;
    return ask_functions(client, &stub_set_value, &request.base, NULL, err);
}

/* ------------------------------------------------------------------------------ modules */

tutti_code
tutti_function_load(tutti_client *client, const char *path, const char *device, const char *result,
                    tutti_function_info **ret_infos, size_t *ret_count, tutti_error *err)
{
    TUTTI_NEED(client, err);

    Tutti__V1__LoadModuleRequest request = TUTTI__V1__LOAD_MODULE_REQUEST__INIT;
    const Tutti__V1__LoadModuleResponse *response;
    tutti_rpc_message *message = NULL;

    request.path = client_write_text(path);
    request.device = client_write_text(device);
    request.result = client_write_text(result);
    TUTTI_TRY(ask_functions(client, &stub_load, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    return take_functions(message, response->functions, response->n_functions, ret_infos, ret_count,
                          err);
}

tutti_code
tutti_function_import(tutti_client *client, const char *module, tutti_function_info **ret_infos,
                      size_t *ret_count, tutti_error *err)
{
    TUTTI_NEED(client, err);

    Tutti__V1__ImportModuleRequest request = TUTTI__V1__IMPORT_MODULE_REQUEST__INIT;
    const Tutti__V1__ImportModuleResponse *response;
    tutti_rpc_message *message = NULL;

    request.module = client_write_text(module);
    TUTTI_TRY(ask_functions(client, &stub_import, &request.base, &message, err));
    response = tutti_rpc_message_get(message);
    return take_functions(message, response->functions, response->n_functions, ret_infos, ret_count,
                          err);
}
