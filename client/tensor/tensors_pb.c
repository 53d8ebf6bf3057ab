/* TensorsService: all but the streams. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/pager.h"
#include "client/conn/types_pb.h"
#include "client/tensor/tensors.h"
#include "tutti/tensor.h"
#include "tutti/v1/tensors_service.pb-c.h"

#define SERVICE (&tutti__v1__tensors_service__descriptor)

static const tutti_rpc_stub stub_create = {SERVICE, "Create"};
static const tutti_rpc_stub stub_put = {SERVICE, "Put"};
static const tutti_rpc_stub stub_get = {SERVICE, "Get"};
static const tutti_rpc_stub stub_copy = {SERVICE, "Copy"};
static const tutti_rpc_stub stub_delete = {SERVICE, "Delete"};
static const tutti_rpc_stub stub_stat = {SERVICE, "Stat"};
static const tutti_rpc_stub stub_list = {SERVICE, "List"};

static client_call
control_tensor(const tutti_client *client, const tutti_rpc_stub *stub)
{
    return (client_call){
        .stub = stub, .kind = CLIENT_CONTROL, .deadline_ns = client_deadline(client, 0)};
}

/* ------------------------------------------------------------------------------ making */

tutti_code
tutti_set_device(tutti_client *client, const char *device, tutti_error *err)
{
    TUTTI_NEED(client, err);

    const size_t size = device == NULL ? 0 : strlen(device);

    if (size >= sizeof(client->device)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_DEVICE",
            "name of a device of %zu characters, at most %zu: \"cpu\", \"cuda:0\"", size,
            sizeof(client->device) - 1);
    }
    memcpy(client->device, size == 0 ? "" : device, size + 1);
    return TUTTI_OK;
}

char *
client_device(const tutti_client *client, const char *into)
{
    return client_write_text(into == NULL || into[0] == '\0' ? client->device : "");
}

tutti_code
client_wire_create(tutti_client *client, const tutti_spec *spec, const char *name, uint64_t lease,
                   tutti_handle *ret_handle, tutti_error *err)
{
    Tutti__V1__CreateRequest request = TUTTI__V1__CREATE_REQUEST__INIT;
    client_call call = control_tensor(client, &stub_create);
    const Tutti__V1__CreateResponse *response;
    tutti_rpc_message *message = NULL;
    wire_spec wire;
    tutti_code code;

    TUTTI_TRY(tutti_spec_size(spec, NULL, NULL, err));
    client_write_spec(spec, &wire);
    request.spec = &wire.message;
    request.name = client_write_text(name);
    request.device = client_device(client, NULL);
    call.lease = lease;
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = client_read_handle(response->tensor, true, ret_handle, err);
        tutti_rpc_message_free(message);
    }
    return code;
}

tutti_code
tutti_tensor_create(tutti_client *client, const tutti_spec *spec, const char *name,
                    tutti_handle *ret_handle, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);
    TUTTI_NEED(ret_handle, err);

    return client_wire_create(client, spec, name, 0, ret_handle, err);
}

tutti_code
client_wire_put(tutti_client *client, const client_put *put, uint64_t deadline_ns,
                tutti_handle *ret_handle, tutti_error *err)
{
    Tutti__V1__PutRequest request = TUTTI__V1__PUT_REQUEST__INIT;
    const client_call call = {.stub = &stub_put,
                              .kind = CLIENT_BULK,
                              .deadline_ns = deadline_ns,
                              .payload = put->data,
                              .payload_bytes = (size_t)put->bytes};
    const Tutti__V1__PutResponse *response;
    tutti_rpc_message *message = NULL;
    wire_spec wire;
    tutti_code code;

    client_write_spec(put->spec, &wire);
    request.spec = &wire.message;
    request.name = client_write_text(put->name);
    request.into = client_write_text(put->into);
    request.device = client_device(client, put->into);
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = client_read_handle(response->tensor, true, ret_handle, err);
        tutti_rpc_message_free(message);
    }
    return code;
}

tutti_code
tutti_tensor_copy(tutti_client *client, const char *handle, const char *into, const char *name,
                  tutti_handle *ret_handle, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_handle, err);

    Tutti__V1__CopyRequest request = TUTTI__V1__COPY_REQUEST__INIT;
    const client_call call = control_tensor(client, &stub_copy);
    const Tutti__V1__CopyResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(client_check_handle(handle, err));
    request.handle = client_write_text(handle);
    request.into = client_write_text(into);
    request.name = client_write_text(name);
    request.device = client_device(client, into);
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = client_read_handle(response->tensor, true, ret_handle, err);
        tutti_rpc_message_free(message);
    }
    return code;
}

/* ------------------------------------------------------------------------------ reading */

/*
 * The agent says that the tensor is too large for one message. The caller stated a size that
 * fits, so to the caller the size is wrong.
 */
static tutti_code
fail_larger(const char *handle, uint64_t bytes, const tutti_error *from, tutti_error *err)
{
    if (from->code == TUTTI_FAILED_PRECONDITION && strcmp(from->reason, "INLINE_LIMIT") == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                              "%.127s is larger than the %" PRIu64 " bytes to read", handle, bytes);
    }
    return tutti_error_pass(err, from);
}

tutti_code
client_wire_get(tutti_client *client, const char *handle, void *data, uint64_t bytes,
                uint64_t deadline_ns, tutti_error *err)
{
    Tutti__V1__GetRequest request = TUTTI__V1__GET_REQUEST__INIT;
    const client_call call = {.stub = &stub_get, .kind = CLIENT_BULK, .deadline_ns = deadline_ns};
    tutti_rpc_message *message = NULL;
    tutti_error inner;
    size_t got;
    tutti_code code;

    request.handle = client_write_text(handle);
    code = client_invoke(client, &call, &request.base, &message, &inner);
    if (code != TUTTI_OK) {
        return fail_larger(handle, bytes, &inner, err);
    }
    got = tutti_rpc_message_payload_bytes(message);
    if (got != bytes) {
        code =
            TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                           "%.127s has %zu bytes, not the %" PRIu64 " to read", handle, got, bytes);
    } else {
        tutti_rpc_message_read(message, data, got);
    }
    tutti_rpc_message_free(message);
    return code;
}

/* ------------------------------------------------------------------------------ deleting */

tutti_code
client_wire_delete(tutti_client *client, const char *const *handles, size_t count, tutti_error *err)
{
    Tutti__V1__DeleteRequest request = TUTTI__V1__DELETE_REQUEST__INIT;
    const client_call call = control_tensor(client, &stub_delete);

    request.n_handles = count;
    request.handles = (char **)(uintptr_t)handles;
    return client_invoke(client, &call, &request.base, NULL, err);
}

tutti_code
tutti_tensor_delete(tutti_client *client, const char *handle, tutti_error *err)
{
    TUTTI_NEED(client, err);

    TUTTI_TRY(client_check_handle(handle, err));

    return client_wire_delete(client, &handle, 1, err);
}

/* ------------------------------------------------------------------------------ looking */

static tutti_code
read_tensors_info(const Tutti__V1__TensorInfo *message, tutti_tensor_info *ret, tutti_error *err)
{
    tutti_tensor_info info = {0};

    if (message == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent answered nothing about the tensor");
    }
    TUTTI_TRY(client_read_handle(message->tensor, true, &info.handle, err));
    client_read_text(message->name, info.name, sizeof(info.name));
    info.bytes = message->byte_count;
    client_read_text(message->device, info.device, sizeof(info.device));
    client_read_text(message->owner, info.owner, sizeof(info.owner));
    info.ephemeral = message->ephemeral;
    info.age_ms = message->age_ms;
    info.pending = message->pending;
    info.failed = message->error != NULL;
    client_read_error(message->error, &info.error);
    *ret = info;
    return TUTTI_OK;
}

tutti_code
tutti_tensor_stat(tutti_client *client, const char *handle, tutti_tensor_info *ret_info,
                  tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_info, err);

    Tutti__V1__StatRequest request = TUTTI__V1__STAT_REQUEST__INIT;
    const client_call call = control_tensor(client, &stub_stat);
    const Tutti__V1__StatResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(client_check_handle(handle, err));
    request.handle = client_write_text(handle);
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(message);
        code = read_tensors_info(response->info, ret_info, err);
        tutti_rpc_message_free(message);
    }
    return code;
}

static tutti_code
ask_tensors(tutti_client *client, const char *token, tutti_rpc_message **ret_response,
            client_page *ret_page, tutti_error *err)
{
    Tutti__V1__ListRequest request = TUTTI__V1__LIST_REQUEST__INIT;
    const client_call call = control_tensor(client, &stub_list);
    const Tutti__V1__ListResponse *response;

    request.page_size = CLIENT_PAGE_SIZE;
    request.page_token = client_write_text(token);
    TUTTI_TRY(client_invoke(client, &call, &request.base, ret_response, err));
    response = tutti_rpc_message_get(*ret_response);
    *ret_page = (client_page){.items = (void *const *)response->tensors,
                              .count = response->n_tensors,
                              .next_token = response->next_page_token};
    return TUTTI_OK;
}

static tutti_code
read_tensor_item(const void *item, void *ret_item, tutti_error *err)
{
    return read_tensors_info(item, ret_item, err);
}

tutti_code
tutti_tensor_list(tutti_client *client, tutti_tensor_info **ret_infos, size_t *ret_count,
                  tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_infos, err);
    TUTTI_NEED(ret_count, err);

    static const client_pager pager = {.what = "tensors",
                                       .item_size = sizeof(tutti_tensor_info),
                                       .ask = ask_tensors,
                                       .read = read_tensor_item};

    return client_list_pages(client, &pager, (void **)ret_infos, ret_count, err);
}
