/* The client of bench_rpc_tutti_pb.c. */
#include <semaphore.h>
#include <stdlib.h>

#include "base/os/clock.h"
#include "bench_rpc.h"
#include "benchrpc/v1/bench_service.pb-c.h"
#include "rpc/channel.h"

static const tutti_rpc_stub echo = {&benchrpc__v1__bench_service__descriptor, "Echo"};
static const tutti_rpc_stub upload = {&benchrpc__v1__bench_service__descriptor, "Upload"};
static const tutti_rpc_stub download = {&benchrpc__v1__bench_service__descriptor, "Download"};

typedef struct tutti_peer {
    tutti_rpc_channel *channel; /* for calls */
    tutti_rpc_channel *bulk;
} tutti_peer;

static void
check(const char *what, tutti_code code, const tutti_error *err)
{
    if (code != TUTTI_OK) {
        bench_die(what, err->text);
    }
}

static void
tutti_call(void *self, size_t count, uint64_t *ret_ns)
{
    const tutti_peer *peer = self;
    Benchrpc__V1__EchoRequest request = BENCHRPC__V1__ECHO_REQUEST__INIT;
    size_t i;
    tutti_error err;

    request.data = (ProtobufCBinaryData){BENCH_SMALL_BYTES, bench_source};
    for (i = 0; i < count; i++) {
        const uint64_t before = tutti_clock_ns();
        tutti_rpc_message *response = NULL;

        check("call",
              tutti_rpc_invoke(peer->channel, &echo, &request.base, NULL, NULL, &response, &err),
              &err);
        tutti_rpc_message_free(response);
        ret_ns[i] = tutti_clock_ns() - before;
    }
}

/* ------------------------------------------------------------------------------ many at once */

/* On its loop's thread, but `done`. */
typedef struct burst {
    const tutti_peer *peer;
    tutti_rpc_loop *loop;
    size_t in_flight;
    size_t to_start;
    size_t to_end;
    tutti_rpc_task first;
    sem_t done;
} burst;

static void on_reply(void *arg, tutti_rpc_message *response, const tutti_error *err);

static void
start_one(burst *self)
{
    Benchrpc__V1__EchoRequest request = BENCHRPC__V1__ECHO_REQUEST__INIT;
    tutti_error err;

    request.data = (ProtobufCBinaryData){BENCH_SMALL_BYTES, bench_source};
    self->to_start--;
    check("call",
          tutti_rpc_request_start(self->peer->channel, self->loop, &echo, &request.base, NULL,
                                  on_reply, self, NULL, &err),
          &err);
}

static void
on_reply(void *arg, tutti_rpc_message *response, const tutti_error *err)
{
    burst *self = arg;

    (void)response;
    if (err != NULL) {
        bench_die("call", err->text);
    }
    if (self->to_start > 0) {
        start_one(self);
    }
    if (--self->to_end == 0) {
        (void)sem_post(&self->done);
    }
}

static void
on_first(tutti_rpc_task *task)
{
    burst *self = tutti_container_of(task, burst, first);
    size_t i;

    for (i = 0; i < self->in_flight && self->to_start > 0; i++) {
        start_one(self);
    }
}

static void
tutti_burst(void *arg, size_t count, size_t in_flight)
{
    burst self = {.peer = arg,
                  .in_flight = in_flight,
                  .to_start = count,
                  .to_end = count,
                  .first = {.on_run = on_first}};
    tutti_error err;

    (void)sem_init(&self.done, 0, 0);
    check("loop", tutti_rpc_loop_new("burst", &self.loop, &err), &err);
    check("loop", tutti_rpc_loop_start(self.loop, &err), &err);
    tutti_rpc_loop_post(self.loop, &self.first);
    (void)sem_wait(&self.done);
    tutti_rpc_loop_stop(self.loop);
    tutti_rpc_loop_free(self.loop);
    (void)sem_destroy(&self.done);
}

/* ------------------------------------------------------------------------------ streams */

static void
on_released(void *arg)
{
    (void)arg; /* the source stays */
}

static void
tutti_upload(void *self, size_t chunk_bytes, size_t count)
{
    const tutti_peer *peer = self;
    const tutti_rpc_blob blob = {bench_source, chunk_bytes, on_released, NULL};
    Benchrpc__V1__UploadRequest request = BENCHRPC__V1__UPLOAD_REQUEST__INIT;
    tutti_rpc_stream *stream = NULL;
    size_t i;
    tutti_error err;

    check("upload", tutti_rpc_stream_open(peer->bulk, &upload, NULL, &stream, &err), &err);
    for (i = 0; i < count; i++) {
        check("write", tutti_rpc_stream_write(stream, &request.base, &blob, &err), &err);
    }
    check("upload", tutti_rpc_stream_finish(stream, &err), &err);
}

static void
tutti_download(void *self, size_t chunk_bytes, size_t count)
{
    const tutti_peer *peer = self;
    Benchrpc__V1__DownloadRequest request = BENCHRPC__V1__DOWNLOAD_REQUEST__INIT;
    tutti_rpc_stream *stream = NULL;
    tutti_rpc_message *message = NULL;
    size_t got = 0;
    tutti_error err;

    request.chunk_bytes = chunk_bytes;
    request.count = count;
    check("download", tutti_rpc_stream_open(peer->bulk, &download, NULL, &stream, &err), &err);
    check("write", tutti_rpc_stream_write(stream, &request.base, NULL, &err), &err);
    check("write", tutti_rpc_stream_writes_done(stream, &err), &err);
    do {
        check("read", tutti_rpc_stream_read(stream, &message, &err), &err);
        if (message != NULL) {
            tutti_rpc_message_read(message, bench_sink, chunk_bytes);
            tutti_rpc_message_free(message);
            got++;
        }
    } while (message != NULL);
    check("download", tutti_rpc_stream_finish(stream, &err), &err);
    if (got != count) {
        bench_die("download", "chunks are missing");
    }
}

static void
tutti_close(void *self)
{
    tutti_peer *peer = self;

    tutti_rpc_channel_close(peer->channel);
    tutti_rpc_channel_close(peer->bulk);
    free(peer);
}

bench_peer
bench_tutti_open(const char *name, const char *address)
{
    const tutti_rpc_channel_options bulk = {.bulk = true};
    tutti_peer *self = calloc(1, sizeof(*self));
    tutti_error err;

    if (self == NULL) {
        bench_die(name, "no memory");
    }
    check(name, tutti_rpc_channel_open(address, NULL, &self->channel, &err), &err);
    check(name, tutti_rpc_channel_open(address, &bulk, &self->bulk, &err), &err);
    return (bench_peer){name,           tutti_call,  tutti_burst, tutti_upload,
                        tutti_download, tutti_close, self};
}
