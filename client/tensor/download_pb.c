/*
 * Download: a tensor of any size, by one stream or several, straight into the caller's memory.
 *
 * Of several streams each reads a part. The tensor may be written between: the first stream says
 * which version it reads, and a part of another version fails the transfer, which is then done
 * once more over one stream (one stream reads one version). Each chunk is checked against the
 * place that is next, so a server cannot write outside of the memory.
 */
#include <inttypes.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/client.h"
#include "client/conn/types_pb.h"
#include "client/tensor/transfer.h"
#include "client/tensor/transfer_stream.h"
#include "tutti/v1/tensors_service.pb-c.h"

static const tutti_rpc_stub stub_download = {&tutti__v1__tensors_service__descriptor, "Download"};

/* Of what the first stream reads: nobody has written since? */
static tutti_code
check_same(client_parallel_transfer *parallel, const tutti_handle *found, uint64_t version,
           tutti_error *err)
{
    if (strcmp(found->text, parallel->found.text) == 0 && version == parallel->version) {
        return TUTTI_OK;
    }
    atomic_store(&parallel->again, true); /* so nobody hears of this error */
    return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                          "the tensor was written while it was read in parts");
}

/* The first message says what it is. */
static tutti_code
check_start(client_transfer_stream *self, const Tutti__V1__DownloadResponse *response,
            tutti_error *err)
{
    client_parallel_transfer *parallel = self->parallel;
    tutti_handle found;
    uint64_t bytes = 0;
    tutti_code code = client_read_handle(response->tensor, true, &found, err);

    if (code == TUTTI_OK && !found.known) {
        code = TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent sends a tensor without a spec");
    }
    if (code == TUTTI_OK) {
        code = tutti_spec_size(&found.spec, NULL, &bytes, err);
    }
    if (code == TUTTI_OK && bytes != parallel->total_bytes) {
        code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                              "%.127s has %" PRIu64 " bytes, not the %" PRIu64 " to read",
                              parallel->handle, bytes, parallel->total_bytes);
    }
    if (code != TUTTI_OK || self->index > 0) {
        return code == TUTTI_OK ? check_same(parallel, &found, response->version, err) : code;
    }
    parallel->found = found;
    parallel->version = response->version;
    return client_parallel_transfer_start_others(parallel, err);
}

static tutti_code
take_chunk(client_transfer_stream *self, tutti_rpc_message *message, void *data, tutti_error *err)
{
    const Tutti__V1__DownloadResponse *response = tutti_rpc_message_get(message);
    const size_t size = tutti_rpc_message_payload_bytes(message);

    if (size > 0 && (response->offset != self->offset + self->done_bytes ||
                     size > self->total_bytes - self->done_bytes)) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent sent %zu bytes for offset %" PRIu64 ", %" PRIu64
                              " of %" PRIu64 " were next",
                              size, response->offset, self->offset + self->done_bytes,
                              self->offset + self->total_bytes);
    }
    tutti_rpc_message_read(message, (char *)data + self->offset + self->done_bytes, size);
    return client_part_moved(self, size) ? TUTTI_OK : TUTTI_ABORTED;
}

static tutti_code
receive_all(client_transfer_stream *self, void *data, tutti_error *err)
{
    tutti_rpc_message *message = NULL;
    bool first = true;
    tutti_code code;

    for (;;) {
        code = tutti_rpc_stream_read(self->stream, &message, err);
        if (code != TUTTI_OK) {
            return code;
        }
        if (message == NULL) {
            return self->done_bytes == self->total_bytes && !first ? TUTTI_OK : TUTTI_ABORTED;
        }
        code = first ? check_start(self, tutti_rpc_message_get(message), err) : TUTTI_OK;
        if (code == TUTTI_OK) {
            code = take_chunk(self, message, data, err);
        }
        tutti_rpc_message_free(message);
        if (code != TUTTI_OK) {
            return code;
        }
        first = false;
    }
}

static tutti_code
ask_download(client_transfer_stream *self, tutti_error *err)
{
    Tutti__V1__DownloadRequest request = TUTTI__V1__DOWNLOAD_REQUEST__INIT;
    const client_parallel_transfer *parallel = self->parallel;

    request.handle = client_write_text(self->index == 0 ? parallel->handle : parallel->found.text);
    request.offset = self->offset;
    request.length = parallel->count > 1 ? self->total_bytes : 0;
    request.chunk_bytes = self->transfer->chunk_bytes;
    TUTTI_TRY(tutti_rpc_stream_write(self->stream, &request.base, NULL, err));
    return tutti_rpc_stream_writes_done(self->stream, err);
}

static tutti_code
download_part(client_parallel_transfer *parallel, size_t index, tutti_error *err)
{
    client_transfer_stream self = client_part_of(parallel, index);
    tutti_code code;

    TUTTI_TRY(client_part_begin(&self, &stub_download, err));
    code = ask_download(&self, err);
    if (code == TUTTI_OK) {
        code = receive_all(&self, parallel->data, err);
    }
    return client_part_end(&self, code, err);
}

/* [out] ret_again  it failed, and over one stream it may go well or tell a better reason */
static tutti_code
run_download(const client_parallel_transfer *wanted, size_t count, bool *ret_again,
             tutti_error *err)
{
    client_parallel_transfer parallel;
    tutti_error why;
    tutti_code code;

    client_parallel_transfer_init(&parallel, wanted->client, wanted->transfer, wanted->total_bytes,
                                  count);
    parallel.move = download_part;
    parallel.handle = wanted->handle;
    parallel.data = wanted->data;
    code = client_parallel_transfer_run(&parallel, &why);
    if (code == TUTTI_OK) {
        return TUTTI_OK;
    }
    *ret_again =
        count > 1 && (atomic_load(&parallel.again) || strcmp(why.reason, "BAD_OFFSET") == 0);
    return tutti_error_pass(err, &why);
}

tutti_code
client_wire_download(tutti_client *client, const char *handle, void *data, uint64_t bytes,
                     const tutti_transfer *transfer, tutti_error *err)
{
    const client_parallel_transfer wanted = {.client = client,
                                             .transfer = transfer,
                                             .total_bytes = bytes,
                                             .handle = handle,
                                             .data = data};
    bool again = false;
    tutti_code code =
        run_download(&wanted, client_parallel_transfer_count(client, transfer, bytes), &again, err);

    return again ? run_download(&wanted, 1, &again, err) : code;
}
