/*
 * Goal: what strangers can make grow has a limit: messages, memory, calls, handshakes, pings.
 * Method: each limit set low, and exceeded; memory measured.
 */
#include "rig.h"
#include "rpc/loop/loop_private.h"
#include "rpc/util/process.h"

#include <arpa/inet.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "parker.h"
#include "rpc/channel/channel_private.h"

#define MIB (1u << 20)

static rig *
begin(uint64_t receive_bytes_max, uint64_t memory_quota)
{
    rig *self = calloc(1, sizeof(*self));

    assert_non_null(self);
    echo_server_init(&self->server, "127.0.0.1:0");
    if (receive_bytes_max != 0) {
        self->server.options.receive_bytes_max = receive_bytes_max;
    }
    if (memory_quota != 0) {
        self->server.options.memory_quota = memory_quota;
    }
    return self;
}

static void
end(rig *self)
{
    rig_stop(self);
    free(self);
}

/* The test's own memory: it outlives the server. */
static void
on_release(void *arg)
{
    (void)arg;
}

static tutti_code
put(tutti_rpc_channel *channel, const void *data, size_t size, tutti_error *err)
{
    const tutti_rpc_call_options options = {.deadline_ns = tutti_clock_ns() + 20 * TUTTI_NS_PER_S};
    const tutti_rpc_blob blob = {data, size, on_release, NULL};
    const echo_fields fields = {.text = "put"};
    echo_storage storage;

    return tutti_rpc_invoke(channel, &echo_unary, echo_request(&storage, &fields), &blob, &options,
                            NULL, err);
}

static void
test_message__over_the_limit_is_refused(void **state)
{
    rig *self = begin(MIB, 0);
    char *data = calloc(1, 2 * MIB);
    tutti_error err;

    (void)state;
    assert_non_null(data);
    rig_start(self, 1, NULL);
    assert_ok(put(self->channel, data, MIB - 100, &err));
    assert_fails(put(self->channel, data, 2 * MIB, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "MESSAGE_LIMIT");
    assert_text_has(err.text, "larger than max");
    assert_ok(rig_ask(self->channel, "the connection lives", NULL, &err));
    end(self);
    free(data);
}

static atomic_size_t released;

static void
count_release(void *arg)
{
    (void)arg;
    (void)atomic_fetch_add(&released, 1);
}

/* The data are there once, and once more in what the server received: nowhere else. */
static void
test_payload__of_any_size_is_not_copied(void **state)
{
    const size_t size = 128 * (size_t)MIB;
    const tutti_rpc_channel_options bulk = {.bulk = true};
    const echo_fields fields = {.text = "put"};
    rig *self = begin(256 * MIB, 0);
    char *data = malloc(size);
    const tutti_rpc_blob blob = {data, size, count_release, NULL};
    tutti_rpc_message *response = NULL;
    echo_storage storage;
    size_t before;
    tutti_error err;

    (void)state;
    assert_non_null(data);
    memset(data, 1, size);
    rig_start(self, 1, &bulk);
    assert_ok(rig_ask(self->channel, "warm", NULL, &err));
    rig_memory_reset_peak();
    before = rig_memory();
    assert_ok(tutti_rpc_invoke(self->channel, &echo_unary, echo_request(&storage, &fields), &blob,
                               NULL, &response, &err));
    assert_int_equal(echo_response_fields(tutti_rpc_message_get(response)).sum, size);
    tutti_rpc_message_free(response);
    rig_await(released, 1);
    print_message("128 MiB: peak +%zu MiB\n", (rig_memory_peak() - before) >> 20);
    if (!RIG_SANITIZED) { /* each copy more would be another 128 MiB */
        assert_in_range(rig_memory_peak(), before, before + size + 64 * MIB);
    }
    end(self);
    free(data);
}

static void
test_response__over_the_limit_of_the_client_is_refused(void **state)
{
    const tutti_rpc_channel_options options = {.receive_bytes_max = MIB};
    const echo_fields fields = {.text = "/payload", .count = 2 * MIB};
    rig *self = begin(0, 0);
    tutti_error err;

    (void)state;
    rig_start(self, 1, &options);
    assert_fails(rig_call(self->channel, &echo_unary, &fields, NULL, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    rig_await(self->server.released, 1); /* sent in vain, and freed */
    end(self);
}

/* `size` zeros, compressed. */
static grpc_slice
compress_zeros(size_t size)
{
    static unsigned char zeros[MIB];
    unsigned char *out = malloc(size / 100 + MIB);
    z_stream stream = {0};
    grpc_slice slice;

    assert_non_null(out);
    assert_int_equal(deflateInit2(&stream, 1, Z_DEFLATED, 15 | 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_out = out;
    stream.avail_out = (unsigned)(size / 100 + MIB);
    for (; size > 0; size -= MIB) {
        stream.next_in = zeros;
        stream.avail_in = MIB;
        assert_int_equal(deflate(&stream, size == MIB ? Z_FINISH : Z_NO_FLUSH),
                         size == MIB ? Z_STREAM_END : Z_OK);
    }
    slice = grpc_slice_from_copied_buffer((const char *)out, stream.total_out);
    (void)deflateEnd(&stream);
    free(out);
    return slice;
}

/* A message that says it is compressed; our own client never sends one. */
static grpc_status_code
send_compressed(const char *address, grpc_slice slice)
{
    grpc_arg arg = {.type = GRPC_ARG_INTEGER,
                    .key = (char *)(uintptr_t)GRPC_COMPRESSION_CHANNEL_DEFAULT_ALGORITHM,
                    .value.integer = GRPC_COMPRESS_GZIP};
    const grpc_channel_args args = {1, &arg};
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(address, plain, &args);
    grpc_completion_queue *queue = grpc_completion_queue_create_for_pluck(NULL);
    grpc_call *call =
        grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue,
                                 grpc_slice_from_static_string("/rpctest.v1.EchoService/Unary"),
                                 NULL, rpc_time_to(tutti_clock_ns() + 20 * TUTTI_NS_PER_S), NULL);
    grpc_byte_buffer *message =
        grpc_raw_compressed_byte_buffer_create(&slice, 1, GRPC_COMPRESS_GZIP);
    grpc_byte_buffer *received = NULL;
    grpc_op ops[6] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};
    grpc_status_code status;
    rpc_outcome outcome;

    rpc_outcome_init(&outcome, NULL);
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = message;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3] = rpc_outcome_initial_op(&outcome);
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = &received;
    ops[5] = rpc_outcome_status_op(&outcome);
    rpc_batch_start(call, ops, 6, &outcome);
    (void)rpc_channel_pluck(queue, &outcome);
    status = outcome.status;
    rpc_outcome_fini(&outcome);
    grpc_byte_buffer_destroy(message);
    grpc_call_unref(call);
    grpc_channel_destroy(channel);
    grpc_channel_credentials_release(plain);
    grpc_completion_queue_shutdown(queue);
    grpc_completion_queue_destroy(queue);
    return status;
}

static void
test_message__that_is_a_decompression_bomb_is_not_unpacked(void **state)
{
    grpc_slice slice = compress_zeros(512 * (size_t)MIB);
    rig *self = begin(0, 0);
    grpc_status_code status;
    size_t before;
    tutti_error err;

    (void)state;
    rig_start(self, 1, NULL);
    assert_ok(rig_ask(self->channel, "warm", NULL, &err));
    rig_memory_reset_peak();
    before = rig_memory();
    status = send_compressed(echo_server_address(&self->server), slice);
    print_message("bomb of %zu bytes: peak +%zu KiB\n", GRPC_SLICE_LENGTH(slice),
                  (rig_memory_peak() - before) >> 10);
    assert_int_equal(status, GRPC_STATUS_UNIMPLEMENTED);
    assert_in_range(rig_memory_peak(), 0, before + 32 * MIB);
    grpc_slice_unref(slice);
    end(self);
}

/* Uploads of one large message each, at the same time. */
typedef struct uploader {
    tutti_rpc_channel *channel;
    const void *data;
    size_t size;
    tutti_code code;
} uploader;

static void *
upload(void *arg)
{
    uploader *self = arg;

    self->code = put(self->channel, self->data, self->size, NULL);
    return NULL;
}

static size_t
measure_uploads(uint64_t quota, size_t *ret_refused)
{
    const tutti_rpc_channel_options bulk = {.bulk = true};
    rig *self = begin(64 * MIB, quota);
    uploader all[8];
    pthread_t threads[8];
    char *data = calloc(1, 40 * MIB);
    size_t before;
    size_t peak;
    size_t i;
    tutti_error err;

    assert_non_null(data);
    memset(data, 1, 40 * MIB);
    rig_start(self, 1, NULL);
    rig_memory_reset_peak();
    before = rig_memory();
    for (i = 0; i < COUNT_OF(all); i++) {
        all[i] = (uploader){.data = data, .size = 40 * MIB};
        assert_ok(tutti_rpc_channel_open(echo_server_address(&self->server), &bulk, &all[i].channel,
                                         &err));
        assert_int_equal(pthread_create(&threads[i], NULL, upload, &all[i]), 0);
    }
    *ret_refused = 0;
    for (i = 0; i < COUNT_OF(all); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        *ret_refused += all[i].code == TUTTI_OK ? 0 : 1;
        tutti_rpc_channel_close(all[i].channel);
    }
    peak = rig_memory_peak() - before;
    end(self);
    free(data);
    return peak;
}

static void
test_memory__of_all_connections_stays_within_the_quota(void **state)
{
    size_t refused = 0;
    const size_t tight = measure_uploads(64 * MIB, &refused);
    size_t refused_wide = 0;
    size_t wide;

    (void)state;
    assert_in_range(refused, 1, 8);
    wide = measure_uploads(1024 * MIB, &refused_wide);
    print_message("8 uploads of 40 MiB: peak +%zu MiB within 64 MiB (%zu refused), +%zu MiB within "
                  "1 GiB (%zu refused)\n",
                  tight >> 20, refused, wide >> 20, refused_wide);
    assert_int_equal(refused_wide, 0);
    if (!RIG_SANITIZED) {
        assert_in_range(tight, 0, 200 * (size_t)MIB); /* of 320 */
    }
}

static int
connect_raw(const rig *self)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    size_t count = 0;
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_port = htons(tutti_rpc_server_addresses(self->server.server, &count)->port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(descriptor >= 0);
    assert_int_equal(connect(descriptor, (struct sockaddr *)&address, sizeof(address)), 0);
    return descriptor;
}

/* Milliseconds until the server closes the connection. */
static uint64_t
wait_for_close(int descriptor)
{
    const uint64_t before = tutti_clock_ns();
    struct pollfd wanted = {.fd = descriptor, .events = POLLIN};
    char bytes[256];
    ssize_t got = 1;

    while (got > 0) {
        assert_int_equal(poll(&wanted, 1, 10000), 1);
        got = read(descriptor, bytes, sizeof(bytes));
    }
    (void)close(descriptor);
    return (tutti_clock_ns() - before) / TUTTI_NS_PER_MS;
}

static void
test_handshake__that_takes_too_long_is_closed(void **state)
{
    rig *self = begin(0, 0);
    size_t before;
    int silent;
    int started;

    (void)state;
    self->server.options.handshake_ns = 300 * TUTTI_NS_PER_MS;
    rig_start(self, 1, NULL);
    before = rig_descriptors();
    silent = connect_raw(self);
    started = connect_raw(self);
    assert_int_equal(write(started, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24), 24);
    assert_in_range(wait_for_close(silent), 200, 5000);
    (void)wait_for_close(started);
    rig_await(rig_descriptors(), before);
    end(self);
}

static void
test_calls__beyond_the_limit_of_a_connection_wait(void **state)
{
    rig *self = begin(0, 0);
    parker calls;

    (void)state;
    self->server.options.streams_max = 2;
    rig_start(self, 1, NULL);
    parker_start(&calls, echo_server_address(&self->server), &echo_park, 3);
    rig_await(self->server.parked_count, 2);
    echo_server_release(&self->server);
    rig_await(calls.ended, 2);
    rig_await(self->server.parked_count, 1);
    echo_server_release(&self->server);
    rig_await(calls.ended, 3);
    parker_stop(&calls);
    end(self);
}

/* A call parked while the client pings every 100 ms. */
static tutti_code
park_with_pings(uint64_t ping_interval_min_ns, uint64_t wait_ms, tutti_error *ret_err)
{
    const tutti_rpc_channel_options options = {.keepalive_ns = 100 * TUTTI_NS_PER_MS};
    tutti_rpc_call_options call = {.deadline_ns = tutti_clock_ns() + wait_ms * TUTTI_NS_PER_MS};
    const echo_fields fields = {.text = "park"};
    echo_storage storage;
    rig *self = begin(0, 0);
    tutti_code code;

    self->server.options.ping_interval_min_ns = ping_interval_min_ns;
    rig_start(self, 1, &options);
    code = tutti_rpc_invoke(self->channel, &echo_park, echo_request(&storage, &fields), NULL, &call,
                            NULL, ret_err);
    end(self);
    return code;
}

static void
test_pings__are_borne_as_often_as_the_server_allows(void **state)
{
    tutti_error err;

    (void)state;
    assert_int_equal(park_with_pings(50 * TUTTI_NS_PER_MS, 1500, &err), TUTTI_DEADLINE_EXCEEDED);
    assert_int_equal(park_with_pings(60 * TUTTI_NS_PER_S, 10000, &err), TUTTI_UNAVAILABLE);
    assert_text_has(err.text, "ping less often");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message__over_the_limit_is_refused),
        cmocka_unit_test(test_payload__of_any_size_is_not_copied),
        cmocka_unit_test(test_response__over_the_limit_of_the_client_is_refused),
        cmocka_unit_test(test_message__that_is_a_decompression_bomb_is_not_unpacked),
        cmocka_unit_test(test_memory__of_all_connections_stays_within_the_quota),
        cmocka_unit_test(test_handshake__that_takes_too_long_is_closed),
        cmocka_unit_test(test_calls__beyond_the_limit_of_a_connection_wait),
        cmocka_unit_test(test_pings__are_borne_as_often_as_the_server_allows),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
