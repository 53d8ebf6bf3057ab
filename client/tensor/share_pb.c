/* Share: what an agent says of a tensor's memory. */
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/types_pb.h"
#include "client/tensor/share.h"
#include "tutti/v1/tensors_service.pb-c.h"

static const tutti_rpc_stub stub_share = {&tutti__v1__tensors_service__descriptor, "Share"};

static tutti_code
read_offer(const Tutti__V1__ShareResponse *response, client_share_offer *ret, tutti_error *err)
{
    client_share_offer offer = {.bytes = response->byte_count};
    uint64_t bytes = 0;

    TUTTI_TRY(client_read_handle(response->tensor, true, &offer.handle, err));
    if (response->token.len != sizeof(offer.token) ||
        strlen(response->socket) >= sizeof(offer.socket) || !offer.handle.known ||
        tutti_spec_size(&offer.handle.spec, NULL, &bytes, NULL) != TUTTI_OK ||
        bytes != offer.bytes) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent sent a malformed offer of its memory");
    }
    memcpy(offer.token, response->token.data, sizeof(offer.token));
    memcpy(offer.socket, response->socket, strlen(response->socket) + 1);
    *ret = offer;
    return TUTTI_OK;
}

tutti_code
client_wire_share(tutti_client *client, const char *handle, bool writable, const char *host_id,
                  client_share_offer *ret_offer, tutti_error *err)
{
    Tutti__V1__ShareRequest request = TUTTI__V1__SHARE_REQUEST__INIT;
    const client_call call = {
        .stub = &stub_share, .kind = CLIENT_BULK, .deadline_ns = client_deadline(client, 0)};
    tutti_rpc_message *message = NULL;
    tutti_code code;

    request.handle = client_write_text(handle);
    request.writable = writable;
    request.host_id = client_write_text(host_id);
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK) {
        code = read_offer(tutti_rpc_message_get(message), ret_offer, err);
        tutti_rpc_message_free(message);
    }
    return code;
}
