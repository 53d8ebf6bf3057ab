/* ShareGpu: memory of a GPU is lent as long as a stream to the agent is open. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/types_pb.h"
#include "tutti/share.h"
#include "tutti/v1/tensors_service.pb-c.h"

static const tutti_rpc_stub stub_share_gpu = {&tutti__v1__tensors_service__descriptor, "ShareGpu"};

struct tutti_gpu_share {
    tutti_client *client;
    client_conn *conn;
    tutti_rpc_stream *stream;
    tutti_gpu_share_info info;
};

static tutti_code
read_gpu_offer(const Tutti__V1__ShareGpuResponse *response, tutti_gpu_share_info *ret,
               tutti_error *err)
{
    tutti_gpu_share_info info = {.bytes = response->byte_count};

    TUTTI_TRY(client_read_handle(response->tensor, true, &info.handle, err));
    if (response->ipc_handle.len != sizeof(info.ipc_handle)) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent sent a handle of %zu bytes, need %zu",
                              response->ipc_handle.len, sizeof(info.ipc_handle));
    }
    memcpy(info.ipc_handle, response->ipc_handle.data, sizeof(info.ipc_handle));
    client_read_text(response->gpu_uuid, info.gpu_uuid, sizeof(info.gpu_uuid));
    client_read_text(response->host_id, info.host_id, sizeof(info.host_id));
    *ret = info;
    return TUTTI_OK;
}

/* [out, owned] ret_message  the first one; else the stream has ended */
static tutti_code
receive_gpu_offer(tutti_gpu_share *share, tutti_rpc_message **ret_message, tutti_error *err)
{
    tutti_code code;

    if (!tutti_rpc_stream_wait(share->stream, client_deadline(share->client, 0))) {
        tutti_rpc_stream_cancel(share->stream);
        (void)tutti_rpc_stream_finish(share->stream, NULL);
        share->stream = NULL;
        return TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                              "the agent has not lent the tensor in %" PRIu32
                              " ms: an op that uses it still runs",
                              share->client->settings.timeout_ms);
    }
    code = tutti_rpc_stream_read(share->stream, ret_message, err);
    if (code == TUTTI_OK && *ret_message != NULL) {
        return TUTTI_OK;
    }
    code = tutti_rpc_stream_finish(share->stream, err);
    share->stream = NULL;
    return code != TUTTI_OK
               ? code
               : TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER", "the agent lent nothing");
}

static tutti_code
open_gpu_share(tutti_gpu_share *share, const char *handle, tutti_error *err)
{
    Tutti__V1__ShareGpuRequest request = TUTTI__V1__SHARE_GPU_REQUEST__INIT;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(client_conn_take(share->client, CLIENT_BULK, &share->conn, err));
    TUTTI_TRY(
        tutti_rpc_stream_open(share->conn->channel, &stub_share_gpu, NULL, &share->stream, err));
    request.handle = client_write_text(handle);
    (void)tutti_rpc_stream_write(share->stream, &request.base, NULL, NULL); /* reading tells */
    (void)tutti_rpc_stream_writes_done(share->stream, NULL);
    TUTTI_TRY(receive_gpu_offer(share, &message, err));
    code = read_gpu_offer(tutti_rpc_message_get(message), &share->info, err);
    tutti_rpc_message_free(message);
    return code;
}

tutti_code
tutti_tensor_share_gpu(tutti_client *client, const char *handle, tutti_gpu_share **ret_share,
                       tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_share, err);

    tutti_gpu_share *share;
    tutti_code code;

    TUTTI_TRY(client_check_handle(handle, err));
    share = calloc(1, sizeof(*share));
    if (share == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a share of a GPU");
    }
    share->client = client;
    code = open_gpu_share(share, handle, err);
    if (code != TUTTI_OK) {
        tutti_gpu_share_end(share);
        return code;
    }
    *ret_share = share;
    return TUTTI_OK;
}

const tutti_gpu_share_info *
tutti_gpu_share_describe(const tutti_gpu_share *share)
{
    return &share->info;
}

void
tutti_gpu_share_end(tutti_gpu_share *share)
{
    if (share == NULL) {
        return;
    }
    if (share->stream != NULL) {
        tutti_rpc_stream_cancel(share->stream);
        (void)tutti_rpc_stream_finish(share->stream, NULL);
    }
    if (share->conn != NULL) {
        client_conn_give(share->client, share->conn);
    }
    free(share);
}
