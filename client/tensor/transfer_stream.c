/*
 * One stream of a transfer, on the thread of its part: opened on a connection of its own kind,
 * watched by the stall timer, listed in the parallel transfer so that others can cancel it, and
 * ended in any case by client_part_end.
 */
#include "client/tensor/transfer_stream.h"

#include <inttypes.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/stall_timer.h"
#include "client/conn/zero_copy.h"
#include "client/tensor/transfer.h"

client_transfer_stream
client_part_of(client_parallel_transfer *parallel, size_t index)
{
    return (client_transfer_stream){.parallel = parallel,
                                    .index = index,
                                    .client = parallel->client,
                                    .transfer = parallel->transfer,
                                    .watched = &parallel->watched[index],
                                    .offset = client_parallel_transfer_offset(parallel, index),
                                    .total_bytes = client_parallel_transfer_bytes(parallel, index)};
}

static uint64_t
patience_ms(const client_transfer_stream *self)
{
    return self->transfer->timeout_ms != 0 ? self->transfer->timeout_ms
                                           : self->client->settings.timeout_ms;
}

tutti_code
client_part_begin(client_transfer_stream *self, const tutti_rpc_stub *stub, tutti_error *err)
{
    const client_conn_kind kind =
        self->index == 0 ? CLIENT_BULK : (client_conn_kind)(CLIENT_MORE + self->index - 1);
    const tutti_rpc_call_options options = client_stream_options(self->client);
    tutti_code code;

    TUTTI_TRY(client_conn_take(self->client, kind, &self->conn, err));
    code = tutti_rpc_stream_open(self->conn->channel, stub, &options, &self->stream, err);
    if (code == TUTTI_OK) {
        code = client_stall_timer_add(&self->client->watch, self->watched, self->stream,
                                      patience_ms(self) * TUTTI_NS_PER_MS, err);
        if (code == TUTTI_OK) {
            client_zero_copy_init(&self->ref);
            client_parallel_transfer_add(self->parallel, self->index, self->stream);
            return TUTTI_OK;
        }
        tutti_rpc_stream_cancel(self->stream);
        (void)tutti_rpc_stream_finish(self->stream, NULL);
    }
    client_conn_give(self->client, self->conn);
    return code;
}

/*
 * Of an upload, the first stream's answer comes when all parts are there: as long as any part
 * moves, the first one must not count as stalled.
 */
static void
keep_awake(client_transfer_stream *self)
{
    client_stall_timer_moved(self->watched);
    if (self->index > 0) {
        client_stall_timer_moved(&self->parallel->watched[0]);
    }
}

bool
client_part_moved(client_transfer_stream *self, uint64_t bytes)
{
    const tutti_transfer *transfer = self->transfer;
    client_parallel_transfer *parallel = self->parallel;
    const uint64_t all_bytes = atomic_fetch_add(&parallel->done_bytes, bytes) + bytes;

    self->done_bytes += bytes;
    keep_awake(self);
    /*
     * Only the first stream asks the caller, on the caller's own thread. The last word is said
     * when all parts are there (tell_done).
     */
    if (transfer->on_progress == NULL || self->index > 0 ||
        (parallel->count > 1 && all_bytes == parallel->total_bytes)) {
        return true;
    }
    if (!transfer->on_progress(transfer->arg, all_bytes, parallel->total_bytes) &&
        all_bytes < parallel->total_bytes) {
        self->given_up = true;
        tutti_rpc_stream_cancel(self->stream);
    }
    return !self->given_up;
}

static tutti_code
fail_stalled(const client_transfer_stream *self, tutti_error *err)
{
    char words[128];
    tutti_text text = tutti_text_in(words, sizeof(words));

    tutti_text_add_bytes(&text, self->done_bytes);
    tutti_text_add(&text, " of ");
    tutti_text_add_bytes(&text, self->total_bytes);
    return TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "STALLED",
                          "nothing moved for %" PRIu64 " ms after %s to or from %s",
                          patience_ms(self), words, self->client->settings.agent);
}

/*
 * Which error counts: that the caller gave up, then the stall, then what this side has found
 * wrong, then the server's status. TUTTI_ABORTED from this side means "the stream ended", so its
 * status says why.
 */
tutti_code
client_part_end(client_transfer_stream *self, tutti_code code, tutti_error *err)
{
    /*
     * First: behind this the timer does not touch the stream, which is about to be freed. The
     * same holds for the other parts below.
     */
    const bool stalled = client_stall_timer_remove(&self->client->watch, self->watched);
    client_parallel_transfer *parallel = self->parallel;
    tutti_error status;
    tutti_code ended;

    if (code != TUTTI_OK && code != TUTTI_ABORTED) {
        tutti_rpc_stream_cancel(self->stream);
    }
    client_parallel_transfer_remove(parallel, self->index);
    ended = tutti_rpc_stream_finish(self->stream, &status);
    client_zero_copy_end(&self->ref, self->client, self->conn);
    if (self->given_up) {
        return TUTTI_FAIL_FOR(err, TUTTI_CANCELLED, "GIVEN_UP",
                              "the transfer was given up after %" PRIu64 " of %" PRIu64 " bytes",
                              (uint64_t)atomic_load(&parallel->done_bytes), parallel->total_bytes);
    }
    if (stalled) {
        return fail_stalled(self, err);
    }
    if (code != TUTTI_OK && code != TUTTI_ABORTED) {
        return code;
    }
    if (ended != TUTTI_OK) {
        return tutti_error_pass(err, &status);
    }
    return code == TUTTI_OK ? TUTTI_OK
                            : TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                                             "the agent ended the transfer after %" PRIu64
                                             " of %" PRIu64 " bytes without saying why",
                                             self->done_bytes, self->total_bytes);
}
