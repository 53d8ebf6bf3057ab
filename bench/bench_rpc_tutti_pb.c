/* lib/rpc as its users use it: a protobuf service, payloads referenced and walked. */
#include <stdlib.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "bench_descriptor_set.h"
#include "bench_rpc.h"
#include "benchrpc/v1/bench_service.pb-c.h"
#include "rpc/channel.h"
#include "rpc/server.h"

/* ------------------------------------------------------------------------------ server */

/* A stream's own state. */
typedef struct stream {
    uint64_t chunk_bytes;
    uint64_t left; /* chunks to write */
    uint64_t bytes;
} stream;

static void
on_echo(tutti_rpc_call *call, void *self)
{
    const Benchrpc__V1__EchoRequest *request = tutti_rpc_call_request(call);
    Benchrpc__V1__EchoResponse response = BENCHRPC__V1__ECHO_RESPONSE__INIT;

    (void)self;
    response.data = request->data;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static stream *
begin(tutti_rpc_call *call)
{
    stream *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        bench_die("server", "no memory");
    }
    tutti_rpc_call_set_user(call, self);
    return self;
}

static void
on_upload(tutti_rpc_call *call, void *self)
{
    (void)self;
    (void)begin(call);
    tutti_rpc_call_read(call);
}

static void
on_chunk(tutti_rpc_call *call, void *self, tutti_rpc_message *message)
{
    stream *one = tutti_rpc_call_user(call);
    const size_t size = tutti_rpc_message_payload_bytes(message);

    (void)self;
    tutti_rpc_call_read(call);
    tutti_rpc_message_read(message, bench_sink, size);
    one->bytes += size;
}

static void
on_uploaded(tutti_rpc_call *call, void *self)
{
    const stream *one = tutti_rpc_call_user(call);
    Benchrpc__V1__UploadResponse response = BENCHRPC__V1__UPLOAD_RESPONSE__INIT;

    (void)self;
    response.byte_count = one->bytes;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_released(void *arg)
{
    (void)arg; /* the source stays */
}

static void
write_next(tutti_rpc_call *call, void *self)
{
    stream *one = tutti_rpc_call_user(call);
    Benchrpc__V1__DownloadResponse response = BENCHRPC__V1__DOWNLOAD_RESPONSE__INIT;
    const tutti_rpc_blob blob = {bench_source, one->chunk_bytes, on_released, NULL};

    (void)self;
    if (one->left == 0) {
        tutti_rpc_call_finish(call, NULL);
        return;
    }
    one->left--;
    tutti_rpc_call_write(call, &response.base, &blob);
}

static void
on_download(tutti_rpc_call *call, void *self)
{
    const Benchrpc__V1__DownloadRequest *request = tutti_rpc_call_request(call);
    stream *one = begin(call);

    one->chunk_bytes = request->chunk_bytes;
    one->left = request->count;
    write_next(call, self);
}

static void
on_cancel(tutti_rpc_call *call, void *self)
{
    (void)self;
    tutti_rpc_call_finish(call, NULL);
}

static void
on_end(tutti_rpc_call *call, void *self)
{
    (void)self;
    free(tutti_rpc_call_user(call));
}

static const tutti_rpc_stream_ops upload_ops = {.on_open = on_upload,
                                                .on_message = on_chunk,
                                                .on_half_close = on_uploaded,
                                                .on_cancel = on_cancel,
                                                .on_end = on_end};
static const tutti_rpc_stream_ops download_ops = {
    .on_open = on_download, .on_written = write_next, .on_cancel = on_cancel, .on_end = on_end};

static void
check(const char *what, tutti_code code, const tutti_error *err)
{
    if (code != TUTTI_OK) {
        bench_die(what, err->text);
    }
}

static void
on_stopped(void *arg)
{
    (void)!write(*(int *)arg, "", 1);
}

/* Until the parent lets go, and all calls are gone. */
static void
wait_and_stop(tutti_rpc_server *server, int stop)
{
    int stopped[2];
    char byte;

    (void)!read(stop, &byte, 1);
    if (pipe(stopped) != 0) {
        bench_die("server", "no pipe");
    }
    tutti_rpc_server_stop(server, on_stopped, &stopped[1]);
    (void)!read(stopped[0], &byte, 1);
}

const char *
bench_protobuf_version(void)
{
    return protobuf_c_version();
}

void
bench_tutti_serve(FILE *report, int stop, const char *folder)
{
    static const tutti_rpc_method methods[] = {
        TUTTI_RPC_UNARY("Echo", on_echo),
        TUTTI_RPC_STREAM("Upload", &upload_ops),
        TUTTI_RPC_STREAM("Download", &download_ops),
    };
    tutti_rpc_service service = {.descriptor = &benchrpc__v1__bench_service__descriptor,
                                 .methods = methods,
                                 .method_count = sizeof(methods) / sizeof(methods[0])};
    const tutti_bytes descriptors = {bench_descriptor_set, bench_descriptor_set_size};
    tutti_rpc_server_options options;
    tutti_rpc_server *server = NULL;
    char listen[128];
    size_t count = 0;
    size_t i;
    tutti_error err;

    (void)snprintf(listen, sizeof(listen), "127.0.0.1:0,unix:%s/bench.sock", folder);
    tutti_rpc_init();
    tutti_rpc_server_options_init(&options, listen);
    check("loop", tutti_rpc_loop_new("bench", &service.loop, &err), &err);
    check("server", tutti_rpc_server_new(&options, descriptors, service.loop, &server, &err), &err);
    tutti_rpc_server_add(server, &service);
    check("start", tutti_rpc_server_start(server, &err), &err);
    check("loop", tutti_rpc_loop_start(service.loop, &err), &err);
    (void)tutti_rpc_server_addresses(server, &count);
    for (i = 0; i < count; i++) {
        (void)fprintf(report, "%s\n", tutti_rpc_server_addresses(server, &count)[i].text);
    }
    (void)fclose(report);
    wait_and_stop(server, stop);
    tutti_rpc_loop_stop(service.loop);
    tutti_rpc_server_free(server);
    tutti_rpc_loop_free(service.loop);
    tutti_rpc_fini();
}
