/*
 * Goal: generic calls carry bytes both ways, in order and bounded; each ends once, with the server's error and its
 * details, or because it was cancelled, freed or closed; event loops are told; wrong names are refused.
 * Method: the echo service over real gRPC, in this process.
 */
#include "rig.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/message.h"
#include "tutti/client.h"
#include "tutti/generic.h"

#define UNARY "/rpctest.v1.EchoService/Unary"
#define PARK "/rpctest.v1.EchoService/Park"
#define UPLOAD "/rpctest.v1.EchoService/Upload"
#define DOWNLOAD "/rpctest.v1.EchoService/Download"
#define CHAT "/rpctest.v1.EchoService/Chat"

typedef struct bench {
    rig rig;
    tutti_generic *server;
} bench;

/* A request, packed. */
typedef struct wire {
    unsigned char *data;
    size_t size;
} wire;

static int
set_up(void **state)
{
    bench *self = calloc(1, sizeof(*self));
    tutti_error err;

    assert_non_null(self);
    echo_server_init(&self->rig.server, "127.0.0.1:0");
    rig_start(&self->rig, 2, NULL);
    assert_ok(
        tutti_generic_open(echo_server_address(&self->rig.server), NULL, &self->server, &err));
    *state = self;
    return 0;
}

static int
tear_down(void **state)
{
    bench *self = *state;

    tutti_generic_close(self->server);
    rig_stop(&self->rig);
    free(self);
    return 0;
}

static wire
pack(const echo_fields *fields)
{
    echo_storage storage;
    wire packed = {NULL, 0};

    echo_pack_again(echo_request(&storage, fields), &packed.data, &packed.size);
    return packed;
}

/* [in, moved] message. [out, owned] the response that it is */
static tutti_rpc_message *
read_response(tutti_generic_message *message)
{
    const size_t size = tutti_generic_message_bytes(message);
    unsigned char *bytes = malloc(size + 1);
    tutti_rpc_packed *packed = NULL;
    tutti_rpc_message *response = NULL;
    tutti_error err;

    assert_non_null(bytes);
    tutti_generic_message_take(message, bytes);
    assert_ok(tutti_rpc_pack_bytes((tutti_bytes){bytes, size}, &packed, &err));
    assert_ok(tutti_rpc_packed_read(echo_response_type(), packed, &response, &err));
    free(bytes);
    return response;
}

static tutti_generic_call *
start(bench *self, const char *method, const echo_fields *first, bool last, void *user)
{
    wire request = {NULL, 0};
    tutti_generic_call_options options;
    tutti_generic_call *call = NULL;
    tutti_error err;

    tutti_generic_call_options_init(&options);
    options.user = user;
    if (first != NULL) {
        request = pack(first);
    }
    assert_ok(tutti_generic_start(self->server, method, request.data, request.size, last, &options,
                                  &call, &err));
    free(request.data);
    return call;
}

static void
send_one(tutti_generic_call *call, const echo_fields *fields, bool last)
{
    wire request = pack(fields);
    tutti_error err;

    assert_ok(tutti_generic_send(call, request.data, request.size, last, &err));
    free(request.data);
}

/* The number of the response that comes next. */
static uint64_t
next_number(tutti_generic_call *call)
{
    tutti_generic_message *message = NULL;
    tutti_rpc_message *response;
    tutti_error err;
    uint64_t number;

    assert_int_equal(tutti_generic_next(call, 20000, &message, NULL, &err), TUTTI_GENERIC_MESSAGE);
    response = read_response(message);
    number = echo_response_fields(tutti_rpc_message_get(response)).number;
    tutti_rpc_message_free(response);
    return number;
}

static tutti_code
end_of(tutti_generic_call *call)
{
    tutti_error err;

    assert_int_equal(tutti_generic_next(call, 20000, NULL, NULL, &err), TUTTI_GENERIC_ENDED);
    return err.code;
}

/* ------------------------------------------------------------------------------ calls that block */

static tutti_code
ask(bench *self, const echo_fields *fields, const tutti_generic_call_options *options,
    char ret_text[64], tutti_generic_details *ret_details, tutti_error *err)
{
    wire request = pack(fields);
    tutti_generic_message *message = NULL;
    tutti_code code = tutti_generic_unary(self->server, UNARY, request.data, request.size, options,
                                          &message, ret_details, err);

    free(request.data);
    if (code == TUTTI_OK) {
        tutti_rpc_message *response = read_response(message);

        (void)snprintf(ret_text, 64, "%s",
                       echo_response_fields(tutti_rpc_message_get(response)).text);
        tutti_rpc_message_free(response);
    }
    return code;
}

static void
test_generic__answers_a_unary_call(void **state)
{
    const echo_fields fields = {.text = "hello"};
    char text[64];
    tutti_error err;

    assert_ok(ask(*state, &fields, NULL, text, NULL, &err));
    assert_string_equal(text, "hello");
    assert_ok(ask(*state, &fields, NULL, text, NULL, &err));
}

static void
test_generic__sends_metadata(void **state)
{
    const char *const metadata[] = {"x-other", "1", "x-echo",
                                    "a value that is longer than a slice"};
    const echo_fields fields = {.text = "/metadata"};
    tutti_generic_call_options options;
    char text[64];
    tutti_error err;

    tutti_generic_call_options_init(&options);
    options.metadata = metadata;
    options.metadata_count = 2;
    assert_ok(ask(*state, &fields, &options, text, NULL, &err));
    assert_string_equal(text, metadata[3]);
}

static void
test_generic__tells_the_servers_error(void **state)
{
    const echo_fields fields = {.fail = TUTTI_ABORTED};
    tutti_generic_details details;
    char text[64];
    tutti_error err;

    assert_int_equal(ask(*state, &fields, NULL, text, &details, &err), TUTTI_ABORTED);
    assert_string_equal(err.reason, "SHAPE_MISMATCH");
    assert_int_equal(err.rank, 3);
    assert_true(details.size > strlen("SHAPE_MISMATCH"));
    assert_non_null(memmem(details.data, details.size, "SHAPE_MISMATCH", 14));
}

static void
test_generic__refuses_names_and_metadata(void **state)
{
    static const char *const methods[] = {"", "Unary", "/", "/a", "//b", "/a/", "/a/b c", "/a/b\n"};
    static const char *const pairs[][2] = {{"", "1"},         {"Upper", "1"},  {"a b", "1"},
                                           {"x-bin", "1"},    {"grpc-x", "1"}, {"x", "\n"},
                                           {"x", "\xc3\xa9"}, {":path", "1"}};
    bench *self = *state;
    tutti_generic_call_options options;
    tutti_generic_message *message = NULL;
    tutti_error err;
    size_t i;

    tutti_generic_call_options_init(&options);
    for (i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        assert_int_equal(
            tutti_generic_unary(self->server, methods[i], "", 0, NULL, &message, NULL, &err),
            TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "BAD_METHOD");
    }
    options.metadata_count = 1;
    for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        options.metadata = pairs[i];
        assert_int_equal(
            tutti_generic_unary(self->server, UNARY, "", 0, &options, &message, NULL, &err),
            TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "BAD_METADATA");
    }
    options.metadata_count = TUTTI_GENERIC_METADATA_MAX + 1;
    assert_int_equal(
        tutti_generic_unary(self->server, UNARY, "", 0, &options, &message, NULL, &err),
        TUTTI_INVALID_ARGUMENT);
}

static void
test_generic__bounds_its_methods(void **state)
{
    bench *self = *state;
    tutti_generic_message *message = NULL;
    tutti_error err;
    char method[32];
    size_t i;

    for (i = 0; i < 128; i++) {
        (void)snprintf(method, sizeof(method), "/none/m%zu", i);
        assert_int_equal(
            tutti_generic_unary(self->server, method, "", 0, NULL, &message, NULL, &err),
            TUTTI_UNIMPLEMENTED);
    }
    assert_int_equal(
        tutti_generic_unary(self->server, "/none/more", "", 0, NULL, &message, NULL, &err),
        TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "METHOD_LIMIT");
}

static void
test_generic__ends_with_its_time(void **state)
{
    bench *self = *state;
    tutti_generic_call_options options;
    tutti_generic_message *message = NULL;
    tutti_error err;

    tutti_generic_call_options_init(&options);
    options.timeout_ms = 30;
    assert_int_equal(tutti_generic_unary(self->server, PARK, "", 0, &options, &message, NULL, &err),
                     TUTTI_DEADLINE_EXCEEDED);
}

/* ------------------------------------------------------------------------------ calls that are started */

static void
test_generic__chats_in_order(void **state)
{
    tutti_generic_call *call = start(*state, CHAT, NULL, false, NULL);
    uint64_t i;

    for (i = 0; i < 500; i++) {
        const echo_fields fields = {.text = "hi", .number = i};

        send_one(call, &fields, i == 499);
    }
    for (i = 0; i < 500; i++) {
        assert_int_equal(next_number(call), i);
    }
    assert_int_equal(end_of(call), TUTTI_OK);
    assert_int_equal(end_of(call), TUTTI_OK);
    assert_int_equal(tutti_generic_send(call, "", 0, false, NULL), TUTTI_FAILED_PRECONDITION);
    tutti_generic_free(call);
}

static void
test_generic__starts_unary_calls(void **state)
{
    const echo_fields fine = {.text = "hi", .number = 7};
    const echo_fields wrong = {.fail = TUTTI_NOT_FOUND};
    tutti_generic_details details;
    tutti_generic_call *call = start(*state, UNARY, &fine, true, NULL);
    tutti_error err;

    (void)next_number(call);
    assert_int_equal(end_of(call), TUTTI_OK);
    tutti_generic_free(call);
    call = start(*state, UNARY, &wrong, true, NULL);
    assert_int_equal(tutti_generic_next(call, 20000, NULL, &details, &err), TUTTI_GENERIC_ENDED);
    assert_int_equal(err.code, TUTTI_NOT_FOUND);
    assert_non_null(memmem(details.data, details.size, "SHAPE_MISMATCH", 14));
    tutti_generic_free(call);
}

/* Nobody takes: the server stops writing when the bound and what fits into sockets is full. */
static void
test_generic__reads_ahead_within_bounds(void **state)
{
    enum {
        MESSAGES = 400,
        BYTES = 200000
    };
    bench *self = *state;
    const echo_fields fields = {.count = MESSAGES, .number = BYTES};
    tutti_generic_call *call = start(self, DOWNLOAD, &fields, true, NULL);
    size_t before = SIZE_MAX;
    uint64_t i;

    while (before != self->rig.server.written_count) { /* until it stands still for 50 ms */
        before = self->rig.server.written_count;
        for (i = 0; i < 50; i++) {
            rig_pause();
        }
    }
    assert_true(self->rig.server.written_count < MESSAGES / 2);
    for (i = 0; i < MESSAGES; i++) {
        assert_int_equal(next_number(call), i);
    }
    assert_int_equal(end_of(call), TUTTI_OK);
    tutti_generic_free(call);
}

static void
test_generic__says_what_is_unsent(void **state)
{
    enum {
        PIECES = 64,
        BYTES = 200000
    };
    static char text[BYTES];
    bench *self = *state;
    const echo_fields slow = {.text = "/slow"};
    const echo_fields piece = {.text = text};
    tutti_generic_call *call = start(self, UPLOAD, &slow, false, NULL);
    tutti_error err;
    int i;

    memset(text, 'x', sizeof(text) - 1);
    rig_await(self->rig.server.message_count, 1); /* it reads no more */
    for (i = 0; i < PIECES; i++) {
        send_one(call, &piece, false);
    }
    assert_true(tutti_generic_unsent(call) > (size_t)PIECES * BYTES / 4);
    assert_int_equal(tutti_generic_wait_sent(call, 20, &err), TUTTI_DEADLINE_EXCEEDED);
    echo_server_release(&self->rig.server);
    assert_ok(tutti_generic_wait_sent(call, TUTTI_GENERIC_FOREVER, &err));
    assert_ok(tutti_generic_send(call, NULL, 0, true, &err));
    (void)next_number(call);
    assert_int_equal(end_of(call), TUTTI_OK);
    assert_int_equal(self->rig.server.message_count, PIECES + 1);
    tutti_generic_free(call);
}

/* ------------------------------------------------------------------------------ how they end */

static void
test_generic__is_cancelled(void **state)
{
    const echo_fields fields = {.count = 100000, .number = 100000};
    tutti_generic_call *call = start(*state, DOWNLOAD, &fields, true, NULL);
    tutti_generic_message *message = NULL;
    tutti_generic_event event = TUTTI_GENERIC_MESSAGE;
    tutti_error err;

    (void)next_number(call);
    tutti_generic_cancel(call);
    while (event == TUTTI_GENERIC_MESSAGE) {
        event = tutti_generic_next(call, 20000, &message, NULL, &err);
        if (event == TUTTI_GENERIC_MESSAGE) {
            tutti_generic_message_free(message);
        }
    }
    assert_int_equal(event, TUTTI_GENERIC_ENDED);
    assert_int_equal(err.code, TUTTI_CANCELLED);
    assert_non_null(strstr(err.text, "/rpctest.v1.EchoService/Download to 127.0.0.1:"));
    assert_non_null(strstr(err.text, " was cancelled by this program"));
    tutti_generic_cancel(call);
    tutti_generic_free(call);
}

/* However far it is: the memory is looked at by the sanitizers. */
static void
test_generic__is_freed_at_any_time(void **state)
{
    const echo_fields large = {.count = 1000, .number = 100000};
    const echo_fields hi = {.text = "hi"};
    int i;

    for (i = 0; i < 50; i++) {
        tutti_generic_call *call = start(*state, DOWNLOAD, &large, true, NULL);

        if (i % 2 == 1) {
            (void)next_number(call);
        }
        tutti_generic_free(call);
        call = start(*state, CHAT, i % 3 == 0 ? &hi : NULL, false, NULL);
        send_one(call, &hi, i % 2 == 0);
        tutti_generic_free(call);
        tutti_generic_free(start(*state, PARK, &hi, true, NULL));
    }
    tutti_generic_free(NULL);
}

static void
test_generic__close_ends_its_calls(void **state)
{
    const echo_fields hi = {.text = "hi"};
    const echo_fields large = {.count = 1000, .number = 100000};
    bench *self = *state;
    tutti_generic_call *parked = start(self, PARK, &hi, true, NULL);
    tutti_generic_call *full = start(self, DOWNLOAD, &large, true, &self);

    tutti_generic_close(self->server);
    self->server = NULL;
    assert_int_equal(end_of(parked), TUTTI_CANCELLED);
    tutti_generic_free(parked);
    tutti_generic_free(full);
}

static bool
always(void)
{
    return true;
}

static void
test_generic__a_wait_is_interrupted(void **state)
{
    const echo_fields hi = {.text = "hi"};
    tutti_generic_call *call = start(*state, PARK, &hi, true, NULL);

    tutti_set_interrupt(always);
    assert_int_equal(end_of(call), TUTTI_CANCELLED);
    tutti_set_interrupt(NULL);
    tutti_generic_free(call);
}

static void
test_generic__nobody_there(void **state)
{
    bench *self = *state;
    tutti_generic *nobody = NULL;
    tutti_generic_call *call = NULL;
    tutti_generic_message *message = NULL;
    tutti_error err;

    (void)self;
    assert_ok(tutti_generic_open("unix:/nobody/there", NULL, &nobody, &err));
    assert_int_equal(tutti_generic_unary(nobody, UNARY, "", 0, NULL, &message, NULL, &err),
                     TUTTI_UNAVAILABLE);
    assert_string_equal(err.reason, "UNREACHABLE");
    assert_ok(tutti_generic_start(nobody, UNARY, "", 0, true, NULL, &call, &err));
    assert_int_equal(end_of(call), TUTTI_UNAVAILABLE);
    tutti_generic_free(call);
    tutti_generic_close(nobody);
    assert_int_equal(tutti_generic_open("nonsense", NULL, &nobody, &err), TUTTI_INVALID_ARGUMENT);
}

/* ------------------------------------------------------------------------------ event loops */

static void
test_generic__tells_an_event_loop(void **state)
{
    bench *self = *state;
    const echo_fields hi = {.text = "hi"};
    bool ended[8] = {false};
    tutti_generic_call *calls[8];
    size_t left = 8;
    tutti_error err;
    int fd = -1;
    size_t i;

    assert_ok(tutti_generic_fd(self->server, &fd, &err));
    for (i = 0; i < 8; i++) {
        calls[i] = start(self, UNARY, &hi, true, &calls[i]);
    }
    while (left > 0) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        tutti_generic_message *message = NULL;
        tutti_generic_event event;
        void *user = NULL;

        assert_int_equal(poll(&look, 1, 20000), 1);
        assert_true(tutti_generic_ready(self->server, &user));
        i = (size_t)((tutti_generic_call **)user - calls);
        while ((event = tutti_generic_next(calls[i], 0, &message, NULL, &err)) ==
               TUTTI_GENERIC_MESSAGE) {
            tutti_generic_message_free(message);
        }
        if (event == TUTTI_GENERIC_ENDED && !ended[i]) {
            ended[i] = true;
            left--;
        }
    }
    for (i = 0; i < 8; i++) {
        tutti_generic_free(calls[i]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
#define ROW(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        ROW(test_generic__answers_a_unary_call),
        ROW(test_generic__sends_metadata),
        ROW(test_generic__tells_the_servers_error),
        ROW(test_generic__refuses_names_and_metadata),
        ROW(test_generic__bounds_its_methods),
        ROW(test_generic__ends_with_its_time),
        ROW(test_generic__chats_in_order),
        ROW(test_generic__starts_unary_calls),
        ROW(test_generic__reads_ahead_within_bounds),
        ROW(test_generic__says_what_is_unsent),
        ROW(test_generic__is_cancelled),
        ROW(test_generic__is_freed_at_any_time),
        ROW(test_generic__close_ends_its_calls),
        ROW(test_generic__a_wait_is_interrupted),
        ROW(test_generic__nobody_there),
        ROW(test_generic__tells_an_event_loop),
#undef ROW
    };

    tutti_generic *first = NULL;
    int failed;

    /* It starts gRPC for the echo servers, too. */
    if (tutti_generic_open("unix:/nobody/there", NULL, &first, NULL) != TUTTI_OK) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_generic_close(first);
    return failed;
}
