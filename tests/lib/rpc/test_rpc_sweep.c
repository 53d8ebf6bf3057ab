/*
 * Goal: without memory there are errors, not crashes or leaks; payloads are released all the same;
 * a server answers, and recovers when there is memory again.
 * Method: each allocation of our own code fails in turn; then all of them while calls come in.
 */
#include "rig.h"

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/os/file.h"
#include "rpc/loop/token.h"
#include "rpc/message/message.h"
#include "rpc/message/status_pb.h"
#include "rpc/server/tls.h"
#include "support/sweep.h"

#define LARGE 100000 /* above what gRPC allocates for us */

static size_t released;

static void
on_release(void *arg)
{
    (void)arg;
    released++;
}

/* Run `step` with each allocation failing in turn, until it gets through. */
static size_t
sweep(tutti_code (*step)(tutti_error *err))
{
    bool failed = true;
    size_t number;

    for (number = 0; failed; number++) {
        tutti_error err;
        tutti_code code;

        sweep_fail_at(number);
        code = step(&err);
        failed = sweep_stop();
        if (code != (failed ? TUTTI_RESOURCE_EXHAUSTED : TUTTI_OK)) {
            fail_msg("allocation %zu: %s", number, tutti_code_name(code));
        }
        assert_true(number < 1000);
    }
    return number - 1;
}

static tutti_code
pack_references(tutti_error *err)
{
    static char text[LARGE];
    const tutti_rpc_blob blob = {text, sizeof(text), on_release, NULL};
    const echo_fields fields = {.text = text};
    echo_storage storage;
    grpc_byte_buffer *buffer = NULL;
    const size_t before = released;
    tutti_code code;

    memset(text, 'x', sizeof(text) - 1);
    code = rpc_pack(echo_request(&storage, &fields), &blob, &buffer, err);
    if (code == TUTTI_OK) {
        grpc_byte_buffer_destroy(buffer);
    }
    assert_int_equal(released, before + 1); /* once, in every case */
    return code;
}

static tutti_code
pack_copies(tutti_error *err)
{
    static char data[LARGE];
    const tutti_rpc_blob blob = {.data = data, .size = sizeof(data)};
    const echo_fields fields = {.text = "short"};
    echo_storage storage;
    grpc_byte_buffer *buffer = NULL;
    const tutti_code code = rpc_pack(echo_request(&storage, &fields), &blob, &buffer, err);

    if (code == TUTTI_OK) {
        grpc_byte_buffer_destroy(buffer);
    }
    return code;
}

static void
test_pack__without_memory_fails_and_releases(void **state)
{
    (void)state;
    assert_true(sweep(pack_references) >= 1);
    assert_true(sweep(pack_copies) >= 1);
}

/* A request in many slices, its payload between other fields, and too large for the first block. */
static grpc_byte_buffer *
make_request(void)
{
    unsigned char wire[6000];
    grpc_slice slices[100];
    grpc_byte_buffer *buffer;
    size_t at = 0;
    size_t i;

    memcpy(wire, "\x0a\xa0\x1f", 3);
    memset(wire + 3, 'x', 4000);
    memcpy(wire + 4003, "\xa2\x06\x64", 3);
    memset(wire + 4006, 'p', 100);
    for (at = 4106; at < sizeof(wire); at += 2) {
        memcpy(wire + at, "\x3a\x00", 2);
    }
    for (i = 0; i < 100; i++) {
        slices[i] = grpc_slice_from_copied_buffer((const char *)wire + i * 60, 60);
    }
    buffer = grpc_raw_byte_buffer_create(slices, 100);
    for (i = 0; i < 100; i++) {
        grpc_slice_unref(slices[i]);
    }
    return buffer;
}

static tutti_code
unpack(tutti_error *err)
{
    tutti_rpc_message *message = NULL;
    const tutti_code code = rpc_unpack(echo_request_type(), make_request(), true, &message, err);

    if (code == TUTTI_OK) {
        assert_int_equal(tutti_rpc_message_payload_bytes(message), 100);
        tutti_rpc_message_free(message);
    }
    return code;
}

static void
test_unpack__without_memory_fails(void **state)
{
    (void)state;
    assert_true(sweep(unpack) >= 4);
}

/* Without memory the details go, never the code. */
static void
test_status__without_memory_keeps_the_code(void **state)
{
    unsigned char details[4096];
    bool failed = true;
    tutti_error from;
    size_t number;
    size_t size;

    (void)state;
    (void)TUTTI_FAIL_FOR(&from, TUTTI_ABORTED, "WHY", "text");
    size = rpc_status_pack(&from, details, sizeof(details));
    for (number = 0; failed; number++) {
        bool from_peer = false;
        tutti_error to;
        tutti_code code;

        sweep_fail_at(number);
        code = rpc_status_decode(GRPC_STATUS_ABORTED, tutti_bytes_of("short"),
                                 (tutti_bytes){details, size}, &from_peer, &to);
        failed = sweep_stop();
        assert_int_equal(code, TUTTI_ABORTED);
        assert_string_equal(to.reason, failed ? "GRPC_STATUS" : "WHY");
    }
    assert_true(number >= 3);
}

static tutti_code
open_channel(tutti_error *err)
{
    const tutti_rpc_channel_options options = {.token = "token"};
    tutti_rpc_channel *channel = NULL;
    const tutti_code code = tutti_rpc_channel_open("127.0.0.1:1", &options, &channel, err);

    if (code == TUTTI_OK) {
        tutti_rpc_channel_close(channel);
    }
    return code;
}

static tutti_code
make_server(tutti_error *err)
{
    tutti_rpc_server_options options;
    tutti_rpc_server *server = NULL;
    tutti_rpc_loop *loop = NULL;
    tutti_code code = tutti_rpc_loop_new("swept", &loop, err);

    tutti_rpc_server_options_init(&options, "127.0.0.1:0");
    if (code == TUTTI_OK) {
        code = tutti_rpc_server_new(&options, echo_descriptor_set(), loop, &server, err);
    }
    tutti_rpc_server_free(server);
    tutti_rpc_loop_free(loop);
    return code;
}

static char token_path[64];

static tutti_code
open_token(tutti_error *err)
{
    rpc_token *token = NULL;
    const tutti_code code = rpc_token_open(token_path, &token, err);

    rpc_token_close(token);
    return code;
}

static void
test_opening__without_memory_fails(void **state)
{
    tutti_error err;

    (void)state;
    assert_true(sweep(open_channel) >= 1); /* gRPC's own allocations are not swept */
    assert_true(sweep(make_server) >= 4);
    (void)snprintf(token_path, sizeof(token_path), "/tmp/tutti-rpc-token-%ld", (long)getpid());
    assert_ok(tutti_file_write(token_path, "token", 5, 0600, &err));
    assert_true(sweep(open_token) >= 2);
    (void)unlink(token_path);
}

typedef struct bare_caller {
    const rig *rig;
    rig_bare got;
    atomic_size_t *ended; /* all of them together */
} bare_caller;

#define PAUSES_MAX 60000 /* a minute */

/* The bare core's memory is not swept, so this client can always ask. */
static void *
call_once(void *arg)
{
    bare_caller *self = arg;

    self->got = rig_call_bare(self->rig->channel, "/rpctest.v1.EchoService/Unary", "\x0a\x02hi", 4,
                              NULL, NULL);
    atomic_fetch_add(self->ended, 1);
    return NULL;
}

static void
test_server__without_memory_answers_and_recovers(void **state)
{
    const rig *self = *state;
    bare_caller callers[20];
    pthread_t threads[20];
    atomic_size_t ended = 0;
    size_t refused = 0;
    size_t served = 0;
    bool failed;
    size_t i;
    tutti_error err;

    assert_ok(rig_ask(self->channel, "warm", NULL, &err));
    sweep_fail_at(0);
    for (i = 0; i < COUNT_OF(callers); i++) {
        callers[i] = (bare_caller){.rig = self, .ended = &ended};
        assert_int_equal(pthread_create(&threads[i], NULL, call_once, &callers[i]), 0);
    }
    for (i = 0; i < PAUSES_MAX && atomic_load(&ended) == 0; i++) {
        rig_pause();
    }
    for (i = 0; i < 50; i++) {
        rig_pause(); /* all requests that waited are used up, none can be posted */
    }
    failed = sweep_stop();
    for (i = 0; i < COUNT_OF(callers); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        refused += callers[i].got.status == TUTTI_RESOURCE_EXHAUSTED ? 1 : 0;
        served += callers[i].got.status == TUTTI_OK ? 1 : 0;
    }
    assert_true(failed);
    assert_true(refused >= 1); /* at once, while there was no memory */
    assert_true(served >= 1);  /* those that found no request waiting */
    assert_int_equal(refused + served, COUNT_OF(callers));
    assert_ok(rig_ask(self->channel, "as before", NULL, &err));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack__without_memory_fails_and_releases),
        cmocka_unit_test(test_unpack__without_memory_fails),
        cmocka_unit_test(test_status__without_memory_keeps_the_code),
        cmocka_unit_test(test_opening__without_memory_fails),
        cmocka_unit_test_setup_teardown(test_server__without_memory_answers_and_recovers, rig_begin,
                                        rig_end),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
