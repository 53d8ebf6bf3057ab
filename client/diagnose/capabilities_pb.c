/* DiagnosticsService: what an agent can compute. */
#include <stdlib.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/types_pb.h"
#include "tutti/diagnose.h"
#include "tutti/v1/diagnostics_service.pb-c.h"

static const tutti_rpc_stub stub_capabilities = {&tutti__v1__diagnostics_service__descriptor,
                                                 "GetCapabilities"};

static void
read_capability(const Tutti__V1__Capability *message, tutti_capability *ret)
{
    size_t i;

    ret->dtype = (tutti_dtype)message->dtype;
    ret->element_bytes = message->element_bytes;
    client_read_text(message->backend, ret->backend, sizeof(ret->backend));
    for (i = 0; i < message->n_reduce_ops; i++) {
        if (message->reduce_ops[i] > 0 && (int)message->reduce_ops[i] < 32) {
            ret->reduce_mask |= 1u << message->reduce_ops[i];
        }
    }
}

static tutti_code
read_capabilities(const Tutti__V1__GetCapabilitiesResponse *response, tutti_capabilities *ret,
                  tutti_error *err)
{
    const size_t count = response->n_capabilities;
    tutti_capability *rows = calloc(count + 1, sizeof(*rows));
    size_t i;

    if (rows == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu capabilities", count);
    }
    for (i = 0; i < count; i++) {
        read_capability(response->capabilities[i], &rows[i]);
    }
    *ret = (tutti_capabilities){.inline_bytes_max = response->inline_bytes_max,
                                .chunk_bytes_max = response->chunk_bytes_max,
                                .dims_max = response->dims_max,
                                .rows = rows,
                                .row_count = count};
    return TUTTI_OK;
}

tutti_code
tutti_capabilities_get(tutti_client *client, tutti_capabilities *ret_capabilities, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_capabilities, err);

    const Tutti__V1__GetCapabilitiesRequest request = TUTTI__V1__GET_CAPABILITIES_REQUEST__INIT;
    const client_call call = {.stub = &stub_capabilities,
                              .kind = CLIENT_CONTROL,
                              .deadline_ns = client_deadline(client, 0)};
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(client_invoke(client, &call, &request.base, &message, err));
    code = read_capabilities(tutti_rpc_message_get(message), ret_capabilities, err);
    tutti_rpc_message_free(message);
    return code;
}

void
tutti_capabilities_free(tutti_capabilities *capabilities)
{
    if (capabilities != NULL) {
        free(capabilities->rows);
        *capabilities = (tutti_capabilities){0};
    }
}
