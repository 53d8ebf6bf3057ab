/* TracersService: tapes by name, gradients. */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/options.h"
#include "client/conn/types_pb.h"
#include "tutti/tracer.h"
#include "tutti/v1/tracers_service.pb-c.h"

#define SERVICE (&tutti__v1__tracers_service__descriptor)

static const tutti_rpc_stub stub_create = {SERVICE, "CreateTracer"};
static const tutti_rpc_stub stub_attach = {SERVICE, "Attach"};
static const tutti_rpc_stub stub_clear = {SERVICE, "ClearTracer"};
static const tutti_rpc_stub stub_delete = {SERVICE, "DeleteTracer"};
static const tutti_rpc_stub stub_list = {SERVICE, "ListTracers"};
static const tutti_rpc_stub stub_backward = {SERVICE, "Backward"};

static tutti_code
ask_tracer(tutti_client *client, const tutti_rpc_stub *stub, const ProtobufCMessage *request,
           tutti_rpc_message **ret_message, tutti_error *err)
{
    const client_call call = {
        .stub = stub, .kind = CLIENT_CONTROL, .deadline_ns = client_deadline(client, 0)};

    return client_invoke(client, &call, request, ret_message, err);
}

/* Nothing is in the answer. */
static tutti_code
write_tracer(tutti_client *client, const tutti_rpc_stub *stub, const ProtobufCMessage *request,
             tutti_error *err)
{
    tutti_rpc_message *message = NULL;
    const tutti_code code = ask_tracer(client, stub, request, &message, err);

    tutti_rpc_message_free(message);
    return code;
}

tutti_code
tutti_tracer_create(tutti_client *client, const char *name, tutti_error *err)
{
    TUTTI_NEED(client, err);

    Tutti__V1__CreateTracerRequest request = TUTTI__V1__CREATE_TRACER_REQUEST__INIT;

    request.name = client_write_text(name);
    return write_tracer(client, &stub_create, &request.base, err);
}

tutti_code
tutti_tracer_attach(tutti_client *client, const char *name, const char *const *tensors,
                    size_t count, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(tensors, count, err);

    Tutti__V1__AttachRequest request = TUTTI__V1__ATTACH_REQUEST__INIT;

    request.tracer = client_write_text(name);
    request.n_tensors = count;
    request.tensors = (char **)(uintptr_t)tensors; /* protobuf-c's pointers are not const */
    return write_tracer(client, &stub_attach, &request.base, err);
}

tutti_code
tutti_tracer_clear(tutti_client *client, const char *name, tutti_error *err)
{
    TUTTI_NEED(client, err);

    Tutti__V1__ClearTracerRequest request = TUTTI__V1__CLEAR_TRACER_REQUEST__INIT;

    request.tracer = client_write_text(name);
    return write_tracer(client, &stub_clear, &request.base, err);
}

tutti_code
tutti_tracer_delete(tutti_client *client, const char *name, tutti_error *err)
{
    TUTTI_NEED(client, err);

    Tutti__V1__DeleteTracerRequest request = TUTTI__V1__DELETE_TRACER_REQUEST__INIT;

    request.tracer = client_write_text(name);
    return write_tracer(client, &stub_delete, &request.base, err);
}

/* ------------------------------------------------------------------------------ listing */

static tutti_code
read_infos(const Tutti__V1__ListTracersResponse *response, tutti_tracer_info **ret_infos,
           tutti_error *err)
{
    tutti_tracer_info *infos = calloc(response->n_tracers + 1, sizeof(*infos));
    size_t i;

    if (infos == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu tracers", response->n_tracers);
    }
    for (i = 0; i < response->n_tracers; i++) {
        const Tutti__V1__TracerInfo *info = response->tracers[i];

        client_read_text(info->name, infos[i].name, sizeof(infos[i].name));
        infos[i].op_count = info->op_count;
        infos[i].attached_count = info->attached_count;
        infos[i].walking = info->walking;
    }
    *ret_infos = infos;
    return TUTTI_OK;
}

tutti_code
tutti_tracer_list(tutti_client *client, tutti_tracer_info **ret_infos, size_t *ret_count,
                  tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_infos, err);
    TUTTI_NEED(ret_count, err);

    const Tutti__V1__ListTracersRequest request = TUTTI__V1__LIST_TRACERS_REQUEST__INIT;
    const Tutti__V1__ListTracersResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code = ask_tracer(client, &stub_list, &request.base, &message, err);

    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = read_infos(response, ret_infos, err);
        *ret_count = code == TUTTI_OK ? response->n_tracers : *ret_count;
    }
    tutti_rpc_message_free(message);
    return code;
}

/* ------------------------------------------------------------------------------ Backward */

void
tutti_backward_options_init(tutti_backward_options *options)
{
    *options = (tutti_backward_options){.size = sizeof(*options)};
}

/* Gradients that are given, with the memory that the message points to. */
typedef struct wire_given {
    Tutti__V1__GradientArg *memory;
    Tutti__V1__GradientArg **messages;
} wire_given;

static tutti_code
write_given(const tutti_backward_options *options, wire_given *ret, tutti_error *err)
{
    const size_t count = options->given_count;
    size_t i;

    ret->memory = calloc(count + 1, sizeof(*ret->memory));
    ret->messages = calloc(count + 1, sizeof(Tutti__V1__GradientArg *));
    if (ret->memory == NULL || ret->messages == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu gradients", count);
    }
    for (i = 0; i < count; i++) {
        tutti__v1__gradient_arg__init(&ret->memory[i]);
        ret->memory[i].tensor = client_write_text(options->tensors[i]);
        ret->memory[i].gradient = client_write_text(options->gradients[i]);
        ret->messages[i] = &ret->memory[i];
    }
    return TUTTI_OK;
}

static tutti_code
read_found(const Tutti__V1__BackwardResponse *response, tutti_gradient **ret_found,
           tutti_error *err)
{
    tutti_gradient *found = calloc(response->n_gradients + 1, sizeof(*found));
    tutti_code code = TUTTI_OK;
    size_t i;

    if (found == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu gradients", response->n_gradients);
    }
    for (i = 0; i < response->n_gradients && code == TUTTI_OK; i++) {
        const Tutti__V1__GradientRef *one = response->gradients[i];

        code = client_read_id(one->tensor, found[i].tensor, err);
        if (code == TUTTI_OK) {
            code = client_read_handle(one->gradient, false, &found[i].gradient, err);
        }
    }
    if (code != TUTTI_OK) {
        free(found);
        return code;
    }
    *ret_found = found;
    return TUTTI_OK;
}

/* [out] ret_work  may be NULL */
static tutti_code
read_tracer_answer(tutti_rpc_message *message, tutti_gradient **ret_found, size_t *ret_count,
                   char *ret_work, tutti_error *err)
{
    const Tutti__V1__BackwardResponse *response = tutti_rpc_message_get(message);
    char work[TUTTI_HANDLE_MAX + 1] = "";

    if (response->info != NULL) {
        TUTTI_TRY(client_read_id(response->info->work, work, err));
    }
    TUTTI_TRY(read_found(response, ret_found, err));
    *ret_count = response->n_gradients;
    if (ret_work != NULL) {
        memcpy(ret_work, work, sizeof(work));
    }
    return TUTTI_OK;
}

static void
write_backward(const char *name, const tutti_backward_options *options, const wire_given *given,
               Tutti__V1__BackwardRequest *ret)
{
    ret->tracer = client_write_text(name);
    ret->n_gradients = options->given_count;
    ret->gradients = given->messages;
    ret->n_wanted = options->wanted_count;
    ret->wanted = (char **)(uintptr_t)options->wanted; /* protobuf-c's pointers are not const */
    ret->keep = options->keep;
    ret->options->async = options->async;
    ret->options->timeout_ms = options->timeout_ms;
}

tutti_code
tutti_backward(tutti_client *client, const char *name, const tutti_backward_options *options,
               tutti_gradient **ret_found, size_t *ret_count, char *ret_work, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_found, err);
    TUTTI_NEED(ret_count, err);

    Tutti__V1__BackwardRequest request = TUTTI__V1__BACKWARD_REQUEST__INIT;
    Tutti__V1__OpOptions op_options = TUTTI__V1__OP_OPTIONS__INIT;
    client_call call = {.stub = &stub_backward, .kind = CLIENT_CONTROL};
    tutti_rpc_message *message = NULL;
    tutti_backward_options own;
    wire_given given = {0};
    tutti_code code = TUTTI_OK;

    tutti_backward_options_init(&own);
    if (options != NULL) {
        code = client_take_struct(&own, sizeof(own), options, options->size, "backward", err);
    }
    if (code == TUTTI_OK) {
        code = write_given(&own, &given, err);
    }
    if (code == TUTTI_OK) {
        request.options = &op_options;
        write_backward(name, &own, &given, &request);
        call.deadline_ns =
            own.async ? client_deadline(client, 0) : client_op_deadline(own.timeout_ms);
        code = client_invoke(client, &call, &request.base, &message, err);
    }
    if (code == TUTTI_OK) {
        code = read_tracer_answer(message, ret_found, ret_count, ret_work, err);
    }
    tutti_rpc_message_free(message);
    free(given.memory);
    free(given.messages);
    return code;
}
