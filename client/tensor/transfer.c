/*
 * A transfer over several streams: the parts, their threads, and whose failure it was.
 *
 * The first part runs on the caller's thread; it starts the threads of the others, and joins all
 * of them before it returns, so nothing outlives the call. `lock` guards the streams' pointers,
 * `failed` and `err`: a stream is in `streams` exactly while it may be cancelled by another part
 * (client_parallel_transfer_add and remove). If one part fails, all others are cancelled; the
 * error that counts is the first one that is no consequence of another (is_echo).
 */
#include "client/tensor/transfer.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/thread.h"
#include "client/conn/address_pick.h"
#include "client/conn/client.h"

#define PAGE_BYTES 4096u

/*
 * Are several streams worth it? A stream keeps a processor busy on each side, and on a Unix
 * socket one stream copies as fast as memory allows.
 */
static bool
is_parallel_worth_it(const tutti_client *client)
{
    return !client_is_unix(client->settings.agent) &&
           sysconf(_SC_NPROCESSORS_ONLN) >= CLIENT_STREAMS_CPUS;
}

size_t
client_parallel_transfer_count(const tutti_client *client, const tutti_transfer *transfer,
                               uint64_t bytes)
{
    const uint64_t chunks = bytes / transfer->chunk_bytes;
    size_t count = transfer->streams;

    if (count == 0) {
        count = bytes >= CLIENT_SPLIT_BYTES && is_parallel_worth_it(client) ? CLIENT_STREAMS : 1;
    }
    count = count < client->agent.transfer_streams_max ? count : client->agent.transfer_streams_max;
    count = count < chunks ? count : (size_t)chunks;
    return count > 1 ? count : 1;
}

void
client_parallel_transfer_init(client_parallel_transfer *self, tutti_client *client,
                              const tutti_transfer *transfer, uint64_t bytes, size_t count)
{
    /* Parts begin at page boundaries, so no two threads write to one page. */
    const uint64_t even = (bytes + count - 1) / count;

    *self =
        (client_parallel_transfer){.client = client, .transfer = transfer, .total_bytes = bytes};
    self->part_bytes = count == 1 ? bytes : (even + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    self->count = count == 1 ? 1 : (size_t)((bytes - 1) / self->part_bytes + 1);
    (void)pthread_mutex_init(&self->lock, NULL);
}

uint64_t
client_parallel_transfer_offset(const client_parallel_transfer *self, size_t index)
{
    return index * self->part_bytes;
}

uint64_t
client_parallel_transfer_bytes(const client_parallel_transfer *self, size_t index)
{
    return index + 1 < self->count
               ? self->part_bytes
               : self->total_bytes - client_parallel_transfer_offset(self, index);
}

/*
 * Is this error only the agent's word that another part has failed? The other part's own error
 * says more.
 */
static bool
is_echo(const tutti_error *err)
{
    return strcmp(err->reason, "PART_FAILED") == 0;
}

static void
fail_transfer(client_parallel_transfer *self, size_t index, const tutti_error *why)
{
    tutti_text text;
    size_t i;

    (void)pthread_mutex_lock(&self->lock);
    if (!self->failed || (is_echo(&self->err) && !is_echo(why) && why->code != TUTTI_CANCELLED)) {
        self->err = *why;
        if (self->count > 1) {
            text = tutti_text_in(self->err.text, sizeof(self->err.text));
            tutti_text_add(&text, "stream %zu of %zu: %s", index + 1, self->count, why->text);
        }
    }
    self->failed = true;
    for (i = 0; i < self->count; i++) {
        if (self->streams[i] != NULL) {
            tutti_rpc_stream_cancel(self->streams[i]);
        }
    }
    (void)pthread_mutex_unlock(&self->lock);
}

void
client_parallel_transfer_add(client_parallel_transfer *self, size_t index, tutti_rpc_stream *stream)
{
    (void)pthread_mutex_lock(&self->lock);
    self->streams[index] = stream;
    /* Another part has failed while this stream was being opened: nobody could cancel it then. */
    if (self->failed) {
        tutti_rpc_stream_cancel(stream);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

void
client_parallel_transfer_remove(client_parallel_transfer *self, size_t index)
{
    (void)pthread_mutex_lock(&self->lock);
    self->streams[index] = NULL;
    (void)pthread_mutex_unlock(&self->lock);
}

static void
move_parts(client_parallel_transfer *self, size_t index)
{
    tutti_error err;

    if (self->move(self, index, &err) != TUTTI_OK) {
        fail_transfer(self, index, &err);
    }
}

static void *
run_other(void *arg)
{
    client_parallel_transfer *self = arg;

    move_parts(self, atomic_fetch_add(&self->next, 1));
    return NULL;
}

tutti_code
client_parallel_transfer_start_others(client_parallel_transfer *self, tutti_error *err)
{
    atomic_store(&self->next, 1);
    while (self->started + 1 < self->count) {
        const int failed = tutti_thread_start(&self->threads[self->started + 1], run_other, self);

        if (failed != 0) {
            return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                                  "could not start a thread for a stream of a transfer: %s",
                                  strerror(failed));
        }
        self->started++;
    }
    return TUTTI_OK;
}

/* The last word, which nobody can say before all parts are there. */
static void
tell_done(const client_parallel_transfer *self)
{
    if (self->count > 1 && self->transfer->on_progress != NULL) {
        (void)self->transfer->on_progress(self->transfer->arg, self->total_bytes,
                                          self->total_bytes);
    }
}

tutti_code
client_parallel_transfer_run(client_parallel_transfer *self, tutti_error *err)
{
    size_t i;

    move_parts(self, 0);
    for (i = 1; i <= self->started; i++) {
        (void)pthread_join(self->threads[i], NULL);
    }
    (void)pthread_mutex_destroy(&self->lock);
    if (self->failed) {
        return tutti_error_pass(err, &self->err);
    }
    assert(atomic_load(&self->done_bytes) == self->total_bytes);
    tell_done(self);
    return TUTTI_OK;
}
