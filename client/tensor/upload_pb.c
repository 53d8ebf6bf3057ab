/*
 * Upload: a tensor of any size, by one stream or several, sent from the caller's memory without a
 * copy (zero_copy.c). Parts of one tensor carry a token, a random number, by which the agent
 * knows that they belong together; the first stream's answer comes when all parts are there.
 */
#include <inttypes.h>
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "client/conn/client.h"
#include "client/conn/types_pb.h"
#include "client/conn/zero_copy.h"
#include "client/tensor/tensors.h"
#include "client/tensor/transfer.h"
#include "client/tensor/transfer_stream.h"
#include "tutti/v1/tensors_service.pb-c.h"

static const tutti_rpc_stub stub_upload = {&tutti__v1__tensors_service__descriptor, "Upload"};

static tutti_code
send_chunk(client_transfer_stream *self, const client_put *put, const Tutti__V1__UploadStart *start,
           tutti_error *err)
{
    Tutti__V1__UploadRequest request = TUTTI__V1__UPLOAD_REQUEST__INIT;
    const uint64_t left = self->total_bytes - self->done_bytes;
    const size_t size =
        (size_t)(left < self->transfer->chunk_bytes ? left : self->transfer->chunk_bytes);
    const tutti_rpc_blob blob = client_zero_copy_blob(
        &self->ref, (const char *)put->data + self->offset + self->done_bytes, size);
    tutti_code code;

    request.start = (Tutti__V1__UploadStart *)(uintptr_t)start;
    request.offset = self->offset + self->done_bytes;
    code = tutti_rpc_stream_write(self->stream, &request.base, size > 0 ? &blob : NULL, err);
    /* Count what has left meanwhile, so that the semaphore does not grow. */
    client_zero_copy_collect(&self->ref);
    if (code == TUTTI_OK && !client_part_moved(self, size)) {
        code = TUTTI_ABORTED;
    }
    return code;
}

static tutti_code
send_all(client_transfer_stream *self, const client_put *put, tutti_error *err)
{
    Tutti__V1__UploadStart start = TUTTI__V1__UPLOAD_START__INIT;
    client_parallel_transfer *parallel = self->parallel;
    wire_spec wire;
    tutti_code code;

    if (self->index == 0) {
        client_write_spec(put->spec, &wire);
        start.spec = &wire.message;
        start.name = client_write_text(put->name);
        start.into = client_write_text(put->into);
        start.device = client_device(self->client, put->into);
    }
    if (parallel->count > 1) {
        start.transfer = (ProtobufCBinaryData){sizeof(parallel->token), parallel->token};
        start.part_offset = self->offset;
        start.part_bytes = self->total_bytes;
    }
    code = send_chunk(self, put, &start, err);
    while (code == TUTTI_OK && self->done_bytes < self->total_bytes) {
        code = send_chunk(self, put, NULL, err);
    }
    return code == TUTTI_OK ? tutti_rpc_stream_writes_done(self->stream, err) : code;
}

static tutti_code
read_upload_answer(client_transfer_stream *self, tutti_handle *ret_handle, tutti_error *err)
{
    const uint64_t sent_bytes = self->index == 0 ? self->parallel->total_bytes : self->total_bytes;
    const Tutti__V1__UploadResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code = tutti_rpc_stream_read(self->stream, &message, err);

    if (code != TUTTI_OK) {
        return code;
    }
    if (message == NULL) {
        return TUTTI_ABORTED;
    }
    response = tutti_rpc_message_get(message);
    if (response->byte_count != sent_bytes) {
        code = TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "%" PRIu64 " bytes were sent, the agent took %" PRIu64, sent_bytes,
                              response->byte_count);
    } else if (self->index == 0) {
        code = client_read_handle(response->tensor, true, ret_handle, err);
    }
    tutti_rpc_message_free(message);
    return code;
}

static tutti_code
upload_part(client_parallel_transfer *parallel, size_t index, tutti_error *err)
{
    client_transfer_stream self = client_part_of(parallel, index);
    tutti_handle handle = {0};
    tutti_code code;

    TUTTI_TRY(client_part_begin(&self, &stub_upload, err));
    code = index == 0 ? client_parallel_transfer_start_others(parallel, err) : TUTTI_OK;
    if (code == TUTTI_OK) {
        code = send_all(&self, parallel->put, err);
    }
    if (code == TUTTI_OK) {
        code = read_upload_answer(&self, &handle, err);
    }
    code = client_part_end(&self, code, err);
    if (code == TUTTI_OK && index == 0) {
        parallel->made = handle;
    }
    return code;
}

/* By which the agent knows what belongs together. */
static void
draw_token(client_parallel_transfer *parallel)
{
    size_t i;

    for (i = 0; i < CLIENT_TRANSFER_TOKEN; i += sizeof(uint64_t)) {
        const uint64_t drawn = tutti_id_draw();

        memcpy(parallel->token + i, &drawn, sizeof(drawn));
    }
}

tutti_code
client_wire_upload(tutti_client *client, const client_put *put, const tutti_transfer *transfer,
                   tutti_handle *ret_handle, tutti_error *err)
{
    client_parallel_transfer parallel;

    client_parallel_transfer_init(&parallel, client, transfer, put->bytes,
                                  client_parallel_transfer_count(client, transfer, put->bytes));
    parallel.put = put;
    parallel.move = upload_part;
    if (parallel.count > 1) {
        draw_token(&parallel);
    }
    TUTTI_TRY(client_parallel_transfer_run(&parallel, err));
    *ret_handle = parallel.made;
    return TUTTI_OK;
}
