/*
 * Goal: unary calls bring requests, answers, payloads, metadata and errors across, whoever answers
 * from wherever; what is wrong with a call is said at once.
 * Method: a server and a client in one process over loopback; the bare core where our own client
 * could not send what is wrong.
 */
#include "rig.h"

#include <assert.h>

#include "rpc/channel/channel_private.h"

static void
test_unary__brings_request_and_answer(void **state)
{
    const rig *self = *state;
    char text[256];
    tutti_error err;

    assert_ok(rig_ask(self->channel, "caf\xc3\xa9", text, &err));
    assert_string_equal(text, "caf\xc3\xa9");
    assert_ok(rig_ask(self->channel, "", text, &err));
    assert_string_equal(text, "");
}

static void
test_unary__may_be_answered_later_by_another_thread(void **state)
{
    const rig *self = *state;
    char text[256];
    tutti_error err;
    int i;

    for (i = 0; i < 200; i++) {
        assert_ok(rig_ask(self->channel, "/later", text, &err));
        assert_string_equal(text, "/later");
    }
}

static void
test_unary__without_wish_for_the_answer_frees_it(void **state)
{
    const rig *self = *state;
    const echo_fields request = {.text = "hi"};
    tutti_error err;

    assert_ok(rig_call(self->channel, &echo_unary, &request, NULL, &err));
}

static void
check_error(tutti_code code, const tutti_error *err)
{
    assert_int_equal(code, TUTTI_FAILED_PRECONDITION);
    assert_int_equal(err->code, TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err->text, "caf\xc3\xa9 100%: rank 3 called all_reduce(FP16[1024])");
    assert_string_equal(err->reason, "SHAPE_MISMATCH");
    assert_string_equal(err->group, "tp/0");
    assert_int_equal(err->sequence, 41);
    assert_int_equal(err->rank, 3);
    assert_int_equal(err->scope, TUTTI_SCOPE_GROUP);
}

static void
test_unary__brings_an_error_with_all_it_says(void **state)
{
    const rig *self = *state;
    const echo_fields request = {.fail = TUTTI_FAILED_PRECONDITION};
    tutti_rpc_message *response = NULL;
    tutti_error err;
    const tutti_code code = rig_call(self->channel, &echo_unary, &request, &response, &err);

    check_error(code, &err);
    assert_null(response);
    assert_fails(rig_call(self->channel, &echo_unary, &request, NULL, NULL),
                 TUTTI_FAILED_PRECONDITION);
}

static void
test_unary__of_an_unknown_method_fails_at_once(void **state)
{
    const rig *self = *state;
    const echo_fields request = {.text = "hi"};
    const uint64_t before = tutti_clock_ns();
    tutti_error err;

    assert_fails(rig_call(self->channel, &echo_missing, &request, NULL, &err), TUTTI_UNIMPLEMENTED);
    assert_text_has(err.text, "/rpctest.v1.EchoService/Missing");
    assert_string_equal(err.reason, "NO_METHOD");
    assert_fails(rig_call(self->channel, &echo_stranger, &request, NULL, &err),
                 TUTTI_UNIMPLEMENTED);
    assert_true(tutti_clock_ns() - before < 5 * TUTTI_NS_PER_S);
}

static void
test_unary__brings_deadlines_and_ends_with_them(void **state)
{
    rig *self = *state;
    const echo_fields ask = {.text = "/deadline"};
    const echo_fields park = {.text = "park"};
    tutti_rpc_call_options options = {0};
    echo_storage storage;
    tutti_rpc_message *response = NULL;
    tutti_error err;

    assert_ok(rig_call(self->channel, &echo_unary, &ask, &response, &err));
    /* gRPC rounds what it sends up. */
    assert_in_range(echo_response_fields(tutti_rpc_message_get(response)).number, 10000, 21000);
    tutti_rpc_message_free(response);
    assert_ok(tutti_rpc_invoke(self->channel, &echo_unary, echo_request(&storage, &ask), NULL, NULL,
                               &response, &err));
    assert_int_equal(echo_response_fields(tutti_rpc_message_get(response)).number, 0); /* never */
    tutti_rpc_message_free(response);

    options.deadline_ns = tutti_clock_ns() + 100 * TUTTI_NS_PER_MS;
    assert_fails(tutti_rpc_invoke(self->channel, &echo_park, echo_request(&storage, &park), NULL,
                                  &options, NULL, &err),
                 TUTTI_DEADLINE_EXCEEDED);
    assert_text_has(err.text, "did not answer /rpctest.v1.EchoService/Park in time");
    assert_string_equal(err.reason, "NO_ANSWER");
    rig_await(self->server.cancel_count, 1); /* the handler was told */
    rig_await(tutti_rpc_server_call_count(self->server.server), 0);
}

/* One asynchronous call. */
typedef struct reply_probe {
    tutti_rpc_task task;
    tutti_rpc_channel *channel;
    tutti_rpc_loop *loop;
    tutti_rpc_request *request;
    atomic_size_t count;
    bool cancel;
    tutti_code code;
    char text[TUTTI_ERROR_TEXT_MAX];
    bool elsewhere;
} reply_probe;

static void
on_reply(void *arg, tutti_rpc_message *response, const tutti_error *err)
{
    reply_probe *self = arg;

    self->code = err == NULL ? TUTTI_OK : err->code;
    self->elsewhere = !tutti_rpc_loop_is_current(self->loop);
    (void)snprintf(self->text, sizeof(self->text), "%s",
                   err != NULL ? err->text
                               : echo_response_fields(tutti_rpc_message_get(response)).text);
    (void)atomic_fetch_add(&self->count, 1);
}

static void
start_request(tutti_rpc_task *task)
{
    reply_probe *self = tutti_container_of(task, reply_probe, task);
    const echo_fields request = {.text = "async"};
    echo_storage storage;
    const tutti_code code = tutti_rpc_request_start(
        self->channel, self->loop, self->cancel ? &echo_park : &echo_unary,
        echo_request(&storage, &request), NULL, on_reply, self, &self->request, NULL);

    assert(code == TUTTI_OK);
    (void)code;
    if (self->cancel) {
        tutti_rpc_request_cancel(self->request);
    }
}

static void
test_unary__answers_on_a_loop(void **state)
{
    rig *self = *state;
    reply_probe probe = {
        .task = {.on_run = start_request}, .channel = self->channel, .loop = self->server.loops[0]};

    tutti_rpc_loop_post(probe.loop, &probe.task);
    rig_await(probe.count, 1);
    assert_int_equal(probe.code, TUTTI_OK);
    assert_string_equal(probe.text, "async");
    assert_false(probe.elsewhere);
    probe.cancel = true;
    tutti_rpc_loop_post(probe.loop, &probe.task);
    rig_await(probe.count, 2);
    assert_int_equal(probe.code, TUTTI_CANCELLED);
}

#define UNARY "/rpctest.v1.EchoService/Unary"

static void
test_unary__refuses_what_is_no_request(void **state)
{
    const rig *self = *state;
    rig_bare got = rig_call_bare(self->channel, UNARY, NULL, 0, NULL, NULL);

    assert_int_equal(got.status, TUTTI_INVALID_ARGUMENT);
    assert_string_equal(got.text, "the call ended without a request");
    got = rig_call_bare(self->channel, UNARY, "\x0a\x05hi", 4, NULL, NULL);
    assert_int_equal(got.status, TUTTI_INVALID_ARGUMENT);
    assert_text_has(got.text, "malformed");
    got = rig_call_bare(self->channel, UNARY, "\x0a\x01\xff", 3, NULL, NULL);
    assert_int_equal(got.status, TUTTI_INVALID_ARGUMENT);
    assert_text_has(got.text, "UTF-8");
    got = rig_call_bare(self->channel, "/no/such", "", 0, NULL, NULL);
    assert_int_equal(got.status, TUTTI_UNIMPLEMENTED);
    assert_string_equal(got.text, "there is no method /no/such");
    assert_int_equal(tutti_rpc_server_call_count(self->server.server), 0);
}

static void
test_unary__brings_metadata(void **state)
{
    const rig *self = *state;
    const rig_bare got =
        rig_call_bare(self->channel, UNARY, "\x0a\x09/metadata", 11, "x-echo", "7");

    assert_int_equal(got.status, TUTTI_OK);
    assert_string_equal(got.text, "7");
}

static void
test_unary__shows_its_lease_and_the_next_call_shows_none(void **state)
{
    const rig *self = *state;
    const tutti_rpc_call_options options = {.lease = UINT64_MAX};
    const echo_fields fields = {.text = "/lease"};
    tutti_rpc_message *response = NULL;
    echo_storage storage;
    char text[256];
    tutti_error err;

    assert_int_equal(tutti_rpc_invoke(self->channel, &echo_unary, echo_request(&storage, &fields),
                                      NULL, &options, &response, &err),
                     TUTTI_OK);
    assert_string_equal(echo_response_fields(tutti_rpc_message_get(response)).text,
                        "18446744073709551615");
    tutti_rpc_message_free(response);
    assert_int_equal(rig_ask(self->channel, "/lease", text, &err), TUTTI_OK);
    assert_string_equal(text, "");
}

static void
test_unary__knows_the_peer(void **state)
{
    const rig *self = *state;
    char text[256];
    tutti_error err;

    assert_ok(rig_ask(self->channel, "/peer", text, &err));
    assert_text_has(text, "ipv4:127.0.0.1:");
    assert_ok(rig_ask(self->channel, "/identity", text, &err));
    assert_string_equal(text, "");
}

static void
test_unary__of_a_server_that_is_not_there_says_so(void **state)
{
    tutti_rpc_channel *channel = NULL;
    tutti_rpc_call_options options = {.wait_for_ready = true};
    const echo_fields request = {.text = "hi"};
    echo_storage storage;
    tutti_error err;

    (void)state;
    assert_ok(tutti_rpc_channel_open("127.0.0.1:1", NULL, &channel, &err));
    assert_fails(rig_ask(channel, "hi", NULL, &err), TUTTI_UNAVAILABLE);
    assert_string_equal(err.text,
                        "could not reach 127.0.0.1:1: connection refused, nothing listens there");
    assert_string_equal(err.reason, "UNREACHABLE");
    assert_int_equal(err.scope, TUTTI_SCOPE_AGENT);
    assert_true(tutti_rpc_nobody_there(&err));
    options.deadline_ns = tutti_clock_ns() + 300 * TUTTI_NS_PER_MS;
    assert_fails(tutti_rpc_invoke(channel, &echo_unary, echo_request(&storage, &request), NULL,
                                  &options, NULL, &err),
                 TUTTI_DEADLINE_EXCEEDED);
    assert_text_has(err.text, "connection refused");
    tutti_rpc_channel_close(channel);

    assert_ok(tutti_rpc_channel_open("unix:/tmp/tutti-not-there", NULL, &channel, &err));
    assert_fails(rig_ask(channel, "hi", NULL, &err), TUTTI_UNAVAILABLE);
    assert_text_has(err.text, "unix:/tmp/tutti-not-there: there is no such socket");
    assert_true(tutti_rpc_nobody_there(&err));
    tutti_rpc_channel_close(channel);
    assert_fails(tutti_rpc_channel_open("nonsense", NULL, &channel, &err), TUTTI_INVALID_ARGUMENT);
    assert_false(tutti_rpc_nobody_there(&err));
}

/* What gRPC says, and what a person reads. */
static const struct wording {
    tutti_code code;
    const char *grpc;
    const char *ours;
    const char *reason;
} wordings[] = {
    {TUTTI_UNAVAILABLE, "Socket closed", "lost the connection to HERE: it closed the connection",
     "CONNECTION_LOST"},
    {TUTTI_UNAVAILABLE, "keepalive watchdog timeout",
     "lost the connection to HERE: it does not answer pings", "CONNECTION_LOST"},
    {TUTTI_UNAVAILABLE,
     "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:1: No route to host",
     "could not reach HERE: no route to host", "UNREACHABLE"},
    {TUTTI_UNAVAILABLE, "failed to connect to all addresses; last error: UNKNOWN: news",
     "could not reach HERE: UNKNOWN: news", "UNREACHABLE"},
    {TUTTI_UNAVAILABLE, "the job is paused", "the job is paused", ""},
    {TUTTI_UNIMPLEMENTED, "Received http2 header with status: 404",
     "HERE is no gRPC server: it answered HTTP 404", "NOT_GRPC"},
    {TUTTI_ABORTED, "Socket closed", "Socket closed", ""},
    {TUTTI_RESOURCE_EXHAUSTED, "Received message larger than max (17000000 vs. 16777216)",
     "Received message larger than max (17000000 vs. 16777216): send tensors with Upload, long "
     "lists in several calls",
     "MESSAGE_LIMIT"},
    {TUTTI_RESOURCE_EXHAUSTED, "the disk is full", "the disk is full", ""},
};

static void
test_errors_of_grpc__are_put_into_words(void **state)
{
    tutti_rpc_channel *channel = NULL;
    tutti_error err;
    size_t i;

    (void)state;
    assert_ok(tutti_rpc_channel_open("127.0.0.1:1", NULL, &channel, &err));
    (void)snprintf(channel->targets[0].text, sizeof(channel->targets[0].text), "HERE");
    for (i = 0; i < COUNT_OF(wordings); i++) {
        (void)TUTTI_FAIL(&err, wordings[i].code, "%s", wordings[i].grpc);
        rpc_connect_error_explain(channel, NULL, &err);
        assert_string_equal(err.text, wordings[i].ours);
        assert_string_equal(err.reason, wordings[i].reason);
        assert_int_equal(err.code, wordings[i].code);
    }
    tutti_rpc_channel_close(channel);
}

static void
test_unary__waits_for_a_server_that_comes_up(void **state)
{
    char folder[64];
    char listen[128];
    rig late = {0};
    tutti_rpc_call_options options = {.wait_for_ready = true};
    const echo_fields request = {.text = "hi"};
    tutti_rpc_channel *channel = NULL;
    echo_storage storage;
    tutti_error err;

    (void)state;
    (void)snprintf(listen, sizeof(listen), "unix:%s/late.sock", rig_folder_make(folder));
    assert_ok(tutti_rpc_channel_open(listen, NULL, &channel, &err));
    assert_fails(rig_ask(channel, "hi", NULL, &err), TUTTI_UNAVAILABLE);
    echo_server_init(&late.server, listen);
    assert_ok(echo_server_start(&late.server, 1, &err));
    options.deadline_ns = tutti_clock_ns() + 10 * TUTTI_NS_PER_S;
    assert_ok(tutti_rpc_invoke(channel, &echo_unary, echo_request(&storage, &request), NULL,
                               &options, NULL, &err));
    tutti_rpc_channel_close(channel);
    echo_server_fini(&late.server);
    rig_folder_remove(folder);
}

/* Many callers at once, each in a thread. */
typedef struct caller {
    const rig *rig;
    unsigned failures;
} caller;

static void *
call_many(void *arg)
{
    caller *self = arg;
    char text[256];
    int i;

    for (i = 0; i < 300; i++) {
        if (rig_ask(self->rig->channel, i % 10 == 0 ? "/later" : "hi", text, NULL) != TUTTI_OK) {
            self->failures++;
        }
    }
    return NULL;
}

static void
test_unary__is_made_by_many_threads_at_once(void **state)
{
    caller callers[24];
    pthread_t threads[24];
    size_t i;

    for (i = 0; i < COUNT_OF(callers); i++) {
        callers[i] = (caller){.rig = *state};
        assert_int_equal(pthread_create(&threads[i], NULL, call_many, &callers[i]), 0);
    }
    for (i = 0; i < COUNT_OF(callers); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(callers[i].failures, 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unary__brings_request_and_answer, rig_begin, rig_end),
        cmocka_unit_test_setup_teardown(test_unary__may_be_answered_later_by_another_thread,
                                        rig_begin, rig_end),
        cmocka_unit_test_setup_teardown(test_unary__without_wish_for_the_answer_frees_it, rig_begin,
                                        rig_end),
        cmocka_unit_test_setup_teardown(test_unary__brings_an_error_with_all_it_says, rig_begin,
                                        rig_end),
        cmocka_unit_test_setup_teardown(test_unary__of_an_unknown_method_fails_at_once, rig_begin,
                                        rig_end),
        cmocka_unit_test_setup_teardown(test_unary__brings_deadlines_and_ends_with_them, rig_begin,
                                        rig_end),
        cmocka_unit_test_setup_teardown(test_unary__answers_on_a_loop, rig_begin, rig_end),
        cmocka_unit_test_setup_teardown(test_unary__refuses_what_is_no_request, rig_begin, rig_end),
        cmocka_unit_test_setup_teardown(test_unary__brings_metadata, rig_begin, rig_end),
        cmocka_unit_test_setup_teardown(test_unary__shows_its_lease_and_the_next_call_shows_none,
                                        rig_begin, rig_end),
        cmocka_unit_test_setup_teardown(test_unary__knows_the_peer, rig_begin, rig_end),
        cmocka_unit_test(test_unary__of_a_server_that_is_not_there_says_so),
        cmocka_unit_test(test_errors_of_grpc__are_put_into_words),
        cmocka_unit_test(test_unary__waits_for_a_server_that_comes_up),
        cmocka_unit_test_setup_teardown(test_unary__is_made_by_many_threads_at_once, rig_begin,
                                        rig_end),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
