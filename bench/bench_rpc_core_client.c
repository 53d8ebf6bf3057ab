/* The client of bench_rpc_core_server.c: blocks with pluck, or has many calls on one queue. */
#include <grpc/grpc_security.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "bench_rpc.h"
#include "bench_rpc_core.h"

typedef struct core_peer {
    grpc_channel *channel;
    grpc_completion_queue *pluck;
    void *echo; /* registered methods */
    void *upload;
    void *download;
} core_peer;

/* One call, and what gRPC writes into it. */
typedef struct core_request {
    grpc_call *call;
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_status_code status;
    grpc_slice text;
    grpc_byte_buffer *message;
} core_request;

static void
request_begin(core_request *self, const core_peer *peer, grpc_completion_queue *queue, void *method)
{
    *self = (core_request){.text = grpc_empty_slice()};
    grpc_metadata_array_init(&self->initial);
    grpc_metadata_array_init(&self->trailing);
    self->call =
        grpc_channel_create_registered_call(peer->channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue,
                                            method, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
}

static void
request_end(core_request *self)
{
    if (self->status != GRPC_STATUS_OK) {
        bench_die("core", "a call failed");
    }
    grpc_metadata_array_destroy(&self->initial);
    grpc_metadata_array_destroy(&self->trailing);
    grpc_slice_unref(self->text);
    grpc_call_unref(self->call);
}

static grpc_op
initial_op(core_request *self)
{
    return (grpc_op){.op = GRPC_OP_RECV_INITIAL_METADATA,
                     .data.recv_initial_metadata.recv_initial_metadata = &self->initial};
}

static grpc_op
status_op(core_request *self)
{
    return (grpc_op){.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
                     .data.recv_status_on_client = {.trailing_metadata = &self->trailing,
                                                    .status = &self->status,
                                                    .status_details = &self->text}};
}

static grpc_op
message_op(core_request *self)
{
    return (grpc_op){.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &self->message};
}

static void
pluck(const core_peer *peer, void *tag)
{
    (void)grpc_completion_queue_pluck(peer->pluck, tag, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
}

static void
run(const core_peer *peer, core_request *self, const grpc_op *ops, size_t count)
{
    core_start(self->call, ops, count, self);
    pluck(peer, self);
}

/* ------------------------------------------------------------------------------ small calls */

static void
start_echo(core_request *self, void *tag)
{
    grpc_byte_buffer *message = core_message(bench_source, BENCH_SMALL_BYTES);
    const grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        initial_op(self),
        message_op(self),
        status_op(self),
    };

    core_start(self->call, ops, sizeof(ops) / sizeof(ops[0]), tag);
    grpc_byte_buffer_destroy(message);
}

static void
core_call(void *self, size_t count, uint64_t *ret_ns)
{
    const core_peer *peer = self;
    core_request request;
    size_t i;

    for (i = 0; i < count; i++) {
        const uint64_t before = tutti_clock_ns();

        request_begin(&request, peer, peer->pluck, peer->echo);
        start_echo(&request, &request);
        pluck(peer, &request);
        (void)core_take(request.message, bench_sink, BENCH_SMALL_BYTES);
        request_end(&request);
        ret_ns[i] = tutti_clock_ns() - before;
    }
}

static void
core_burst(void *self, size_t count, size_t in_flight)
{
    const core_peer *peer = self;
    grpc_completion_queue *queue = grpc_completion_queue_create_for_next(NULL);
    core_request requests[BENCH_IN_FLIGHT_MAX];
    size_t started = 0;
    size_t ended;

    for (; started < in_flight && started < count; started++) {
        request_begin(&requests[started], peer, queue, peer->echo);
        start_echo(&requests[started], &requests[started]);
    }
    for (ended = 0; ended < count; ended++) {
        core_request *one =
            grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).tag;

        (void)core_take(one->message, bench_sink, BENCH_SMALL_BYTES);
        request_end(one);
        if (started < count) {
            started++;
            request_begin(one, peer, queue, peer->echo);
            start_echo(one, one);
        }
    }
    grpc_completion_queue_shutdown(queue);
    (void)grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_completion_queue_destroy(queue);
}

/* ------------------------------------------------------------------------------ streams */

static void
write_one(const core_peer *peer, core_request *self, const void *data, size_t size)
{
    grpc_byte_buffer *message = core_message(data, size);
    const grpc_op op = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message};

    run(peer, self, &op, 1);
    grpc_byte_buffer_destroy(message);
}

static void
core_upload(void *self, size_t chunk_bytes, size_t count)
{
    const core_peer *peer = self;
    const grpc_op begin = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    core_request request;
    uint64_t bytes = 0;
    size_t i;

    request_begin(&request, peer, peer->pluck, peer->upload);
    run(peer, &request, &begin, 1);
    for (i = 0; i < count; i++) {
        write_one(peer, &request, bench_source, chunk_bytes);
    }
    {
        const grpc_op ops[] = {{.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
                               initial_op(&request),
                               message_op(&request),
                               status_op(&request)};

        run(peer, &request, ops, 4);
    }
    (void)core_take(request.message, &bytes, sizeof(bytes));
    if (bytes != (uint64_t)chunk_bytes * count) {
        bench_die("core", "an upload lost bytes");
    }
    request_end(&request);
}

static void
core_download(void *self, size_t chunk_bytes, size_t count)
{
    const core_peer *peer = self;
    const core_order order = {chunk_bytes, count};
    grpc_byte_buffer *asked = core_message(&order, sizeof(order));
    core_request request;
    size_t got = 0;

    request_begin(&request, peer, peer->pluck, peer->download);
    {
        const grpc_op ops[] = {
            {.op = GRPC_OP_SEND_INITIAL_METADATA},
            {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = asked},
            {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
            initial_op(&request)};

        run(peer, &request, ops, 4);
    }
    do {
        const grpc_op op = message_op(&request);

        run(peer, &request, &op, 1);
        if (request.message != NULL) {
            got += core_take(request.message, bench_sink, BENCH_CHUNK_BYTES_MAX);
        }
    } while (request.message != NULL);
    {
        const grpc_op op = status_op(&request);

        run(peer, &request, &op, 1);
    }
    if (got != chunk_bytes * count) {
        bench_die("core", "a download lost bytes");
    }
    grpc_byte_buffer_destroy(asked);
    request_end(&request);
}

static void
core_close(void *self)
{
    core_peer *peer = self;

    grpc_completion_queue_shutdown(peer->pluck);
    grpc_completion_queue_destroy(peer->pluck);
    grpc_channel_destroy(peer->channel);
    free(peer);
    grpc_shutdown();
}

bench_peer
bench_core_open(const char *name, const char *address)
{
    grpc_channel_credentials *plain;
    core_peer *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        bench_die(name, "no memory");
    }
    grpc_init();
    plain = grpc_insecure_credentials_create();
    self->channel = grpc_channel_create(address, plain, core_args());
    grpc_channel_credentials_release(plain);
    self->pluck = grpc_completion_queue_create_for_pluck(NULL);
    self->echo = grpc_channel_register_call(self->channel, CORE_ECHO, NULL, NULL);
    self->upload = grpc_channel_register_call(self->channel, CORE_UPLOAD, NULL, NULL);
    self->download = grpc_channel_register_call(self->channel, CORE_DOWNLOAD, NULL, NULL);
    return (bench_peer){name, core_call, core_burst, core_upload, core_download, core_close, self};
}
