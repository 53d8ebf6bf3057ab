/* MetadataService. */
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/options.h"
#include "client/conn/types_pb.h"
#include "tutti/metadata.h"
#include "tutti/v1/metadata_service.pb-c.h"

#define SERVICE (&tutti__v1__metadata_service__descriptor)

static const tutti_rpc_stub stub_broadcast = {SERVICE, "Broadcast"};
static const tutti_rpc_stub stub_all_gather = {SERVICE, "AllGather"};

void
tutti_metadata_options_init(tutti_metadata_options *options)
{
    *options = (tutti_metadata_options){.size = sizeof(*options)};
}

/* [out] ret_call  that waits a little longer than the coordinator, whose words come first */
static tutti_code
take_metadata_options(const tutti_client *client, const tutti_metadata_options *options,
                      const tutti_rpc_stub *stub, tutti_bytes value, tutti_metadata_options *ret,
                      client_call *ret_call, tutti_error *err)
{
    tutti_metadata_options_init(ret);
    TUTTI_TRY(client_check_member(client, err));
    if (options != NULL) {
        TUTTI_TRY(
            client_take_struct(ret, sizeof(*ret), options, options->size, "metadata options", err));
    }
    ret->timeout_ms = ret->timeout_ms != 0 ? ret->timeout_ms : client->settings.timeout_ms;
    *ret_call = (client_call){.stub = stub,
                              .kind = CLIENT_COORDINATOR,
                              .deadline_ns = client_op_deadline(ret->timeout_ms),
                              .payload = value.data,
                              .payload_bytes = value.size};
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ broadcast */

/* [out, owned] ret_value  the payload, with a NUL behind it */
static tutti_code
read_metadata_payload(tutti_rpc_message *message, void **ret_value, size_t *ret_size,
                      tutti_error *err)
{
    const size_t size = tutti_rpc_message_payload_bytes(message);
    char *value = malloc(size + 1);

    if (value == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a value of %zu bytes", size);
    }
    tutti_rpc_message_read(message, value, size);
    value[size] = '\0';
    *ret_value = value;
    if (ret_size != NULL) {
        *ret_size = size;
    }
    return TUTTI_OK;
}

tutti_code
tutti_metadata_broadcast(tutti_client *client, const tutti_metadata_options *options, uint32_t root,
                         const void *value, size_t value_size, void **ret_value, size_t *ret_size,
                         tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(value, value_size, err);

    Tutti__V1__MetadataServiceBroadcastRequest request =
        TUTTI__V1__METADATA_SERVICE_BROADCAST_REQUEST__INIT;
    Tutti__V1__Member member;
    tutti_rpc_message *message = NULL;
    tutti_metadata_options own;
    client_call call;
    tutti_code code = TUTTI_OK;

    TUTTI_TRY(take_metadata_options(client, options, &stub_broadcast,
                                    (tutti_bytes){value, value_size}, &own, &call, err));
    client_write_member(client, &member);
    request.member = &member;
    request.group = client_write_text(own.group);
    request.key = client_write_text(own.key);
    request.root = root;
    request.token = tutti_id_draw();
    request.timeout_ms = own.timeout_ms;
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    if (ret_value != NULL) {
        code = read_metadata_payload(message, ret_value, ret_size, err);
    }
    tutti_rpc_message_free(message);
    return code;
}

/* ------------------------------------------------------------------------------ all_gather */

void
tutti_metadata_free(void **values, size_t *sizes, size_t count)
{
    size_t i;

    for (i = 0; values != NULL && i < count; i++) {
        free(values[i]);
    }
    free(values);
    free(sizes);
}

static tutti_code
read_gathered(const Tutti__V1__MetadataServiceAllGatherResponse *response, void ***ret_values,
              size_t **ret_sizes, size_t *ret_count, tutti_error *err)
{
    const size_t count = response->n_values;
    void **values = calloc(count + 1, sizeof(*values));
    size_t *sizes = calloc(count + 1, sizeof(*sizes));
    tutti_code code = TUTTI_OK;
    size_t i;

    if (values == NULL || sizes == NULL) {
        code = TUTTI_FAIL_MEMORY(err, "no memory for %zu values", count);
    }
    for (i = 0; code == TUTTI_OK && i < count; i++) {
        code = client_read_value(response->values[i], &values[i], &sizes[i], err);
    }
    if (code != TUTTI_OK) {
        tutti_metadata_free(values, sizes, count);
        return code;
    }
    *ret_values = values;
    *ret_sizes = sizes;
    *ret_count = count;
    return TUTTI_OK;
}

tutti_code
tutti_metadata_all_gather(tutti_client *client, const tutti_metadata_options *options,
                          const void *value, size_t value_size, void ***ret_values,
                          size_t **ret_sizes, size_t *ret_count, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_values, err);
    TUTTI_NEED(ret_sizes, err);
    TUTTI_NEED(ret_count, err);

    Tutti__V1__MetadataServiceAllGatherRequest request =
        TUTTI__V1__METADATA_SERVICE_ALL_GATHER_REQUEST__INIT;
    Tutti__V1__Member member;
    tutti_rpc_message *message = NULL;
    tutti_metadata_options own;
    client_call call;
    tutti_code code;

    TUTTI_TRY(take_metadata_options(client, options, &stub_all_gather,
                                    (tutti_bytes){value, value_size}, &own, &call, err));
    client_write_member(client, &member);
    request.member = &member;
    request.group = client_write_text(own.group);
    request.key = client_write_text(own.key);
    request.token = tutti_id_draw();
    request.timeout_ms = own.timeout_ms;
    TUTTI_TRY(client_invoke_again(client, &call, &request.base, &message, err));
    code = read_gathered(tutti_rpc_message_get(message), ret_values, ret_sizes, ret_count, err);
    tutti_rpc_message_free(message);
    return code;
}
