/*
 * Goal: a server waits with ten thousand calls in little memory and no thread for them, and ends
 * within its grace, however many are parked and whatever they do.
 * Method: calls parked by a loop of their own; draining timed.
 */
#include "rig.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "parker.h"

/* Far more than a busy machine needs to drain: who took half of it has waited for what would not
 * come. */
#define GRACE_NS (60 * TUTTI_NS_PER_S)

static void
begin_parked(rig *self, parker *calls, size_t count)
{
    echo_server_init(&self->server, "127.0.0.1:0");
    self->server.options.streams_max = 20000;
    self->server.options.grace_ns = GRACE_NS;
    rig_start(self, 2, NULL);
    parker_start(calls, echo_server_address(&self->server), &echo_park, count);
    rig_await(self->server.parked_count, count);
}

static void
test_server__parks_ten_thousand_calls(void **state)
{
    const size_t count = RIG_SANITIZED ? 2000 : 10000;
    rig self = {0};
    parker calls;
    size_t before;
    size_t threads;
    size_t used;
    char text[256];
    tutti_error err;

    (void)state;
    begin_parked(&self, &calls, 1); /* so that all threads are there */
    echo_server_release(&self.server);
    rig_await(calls.ended, 1);
    parker_stop(&calls);
    before = rig_memory();
    threads = rig_threads();
    parker_start(&calls, echo_server_address(&self.server), &echo_park, count);
    rig_await(self.server.parked_count, count);
    used = rig_memory() - before;
    print_message("%zu parked calls: %zu MiB for both ends, %zu bytes each, %zu threads\n", count,
                  used >> 20, used / count, rig_threads());
    /* The parker's loop, and gRPC's own, of which there are more with more connections. */
    assert_in_range(rig_threads(), threads, threads + 12);
    if (!RIG_SANITIZED) {
        assert_in_range(used / count, 1000, 40000);
    }
    assert_int_equal(tutti_rpc_server_call_count(self.server.server), count);
    assert_ok(rig_ask(self.channel, "still here", text, &err));
    echo_server_release(&self.server);
    rig_await(calls.ended, count);
    assert_int_equal(calls.codes[TUTTI_OK], count);
    rig_await(tutti_rpc_server_call_count(self.server.server), 0);
    parker_stop(&calls);
    rig_stop(&self);
}

static void
test_drain__tells_parked_calls_and_ends(void **state)
{
    rig self = {0};
    parker calls;
    uint64_t before;

    (void)state;
    begin_parked(&self, &calls, 1000);
    before = tutti_clock_ns();
    echo_server_drain(&self.server);
    assert_true(tutti_clock_ns() - before < GRACE_NS / 2);
    rig_await(calls.ended, 1000);
    assert_int_equal(calls.codes[TUTTI_UNAVAILABLE], 1000);
    assert_int_equal(self.server.drain_count, 1);
    assert_int_equal(self.server.cancel_count, 1000);
    parker_stop(&calls);
    rig_stop(&self);
}

static void
test_drain__refuses_new_calls(void **state)
{
    rig self = {0};
    parker calls;
    tutti_error err;

    (void)state;
    begin_parked(&self, &calls, 1);
    echo_server_drain(&self.server);
    assert_fails(rig_ask(self.channel, "hi", NULL, &err), TUTTI_UNAVAILABLE);
    rig_await(calls.ended, 1);
    parker_stop(&calls);
    rig_stop(&self);
}

/* Handlers that know nothing of draining are cut off behind the grace, and told again. */
static void
test_drain__cuts_off_what_does_not_end_within_the_grace(void **state)
{
    rig self = {0};
    parker calls;
    uint64_t before;
    uint64_t took;

    (void)state;
    echo_server_init(&self.server, "127.0.0.1:0");
    self.server.options.grace_ns = 300 * TUTTI_NS_PER_MS;
    atomic_store(&self.server.keep_parked, true);
    rig_start(&self, 1, NULL);
    parker_start(&calls, echo_server_address(&self.server), &echo_park, 50);
    rig_await(self.server.parked_count, 50);
    before = tutti_clock_ns();
    echo_server_drain_begin(&self.server);
    rig_await(calls.ended, 50); /* the clients hear of it ... */
    took = tutti_clock_ns() - before;
    assert_true(took >= 300 * TUTTI_NS_PER_MS);
    assert_int_equal(calls.codes[TUTTI_UNAVAILABLE], 50);
    assert_int_equal(tutti_rpc_server_call_count(self.server.server), 50);
    echo_server_release(&self.server); /* ... and the server ends when the handlers have answered */
    echo_server_drain_end(&self.server);
    parker_stop(&calls);
    rig_stop(&self);
}

static void
test_drain__lets_calls_in_flight_finish(void **state)
{
    rig self = {0};
    tutti_rpc_stream *stream = NULL;
    tutti_rpc_message *message = NULL;
    const echo_fields fields = {.count = 300, .number = 100000};
    echo_storage storage;
    tutti_error err;
    size_t count = 0;

    (void)state;
    echo_server_init(&self.server, "127.0.0.1:0");
    rig_start(&self, 1, NULL);
    assert_ok(tutti_rpc_stream_open(self.channel, &echo_download, NULL, &stream, &err));
    assert_ok(tutti_rpc_stream_write(stream, echo_request(&storage, &fields), NULL, &err));
    assert_ok(tutti_rpc_stream_read(stream, &message, &err));
    tutti_rpc_message_free(message);
    echo_server_drain_begin(&self.server);
    do { /* this handler ends its streams when told, so fewer may come, but never a broken one */
        assert_ok(tutti_rpc_stream_read(stream, &message, &err));
        count++;
        tutti_rpc_message_free(message);
    } while (message != NULL);
    assert_fails(tutti_rpc_stream_finish(stream, &err), TUTTI_UNAVAILABLE);
    assert_string_equal(err.text, "the stream was cut");
    echo_server_drain_end(&self.server);
    assert_int_equal(self.server.end_count, 1);
    rig_stop(&self);
}

static int
connect_raw(const rig *self)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t count = 0;

    address.sin_port = htons(tutti_rpc_server_addresses(self->server.server, &count)->port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(descriptor >= 0);
    assert_int_equal(connect(descriptor, (struct sockaddr *)&address, sizeof(address)), 0);
    return descriptor;
}

/* A client that has greeted, was greeted, and does not look at its connection any more: so it will
 * not agree to an end. */
static int
connect_idle(const rig *self)
{
    static const char greeting[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    const int descriptor = connect_raw(self);
    char head[9];

    assert_int_equal(send(descriptor, greeting, sizeof(greeting) - 1, 0), sizeof(greeting) - 1);
    assert_int_equal(recv(descriptor, head, sizeof(head), MSG_WAITALL), sizeof(head));
    return descriptor;
}

static void
test_drain__does_not_wait_for_idle_clients(void **state)
{
    rig self = {0};
    uint64_t before;
    tutti_error err;
    int idle;
    int mute;

    (void)state;
    echo_server_init(&self.server, "127.0.0.1:0");
    self.server.options.grace_ns = GRACE_NS;
    rig_start(&self, 2, NULL);
    mute = connect_raw(&self); /* says nothing at all */
    idle = connect_idle(&self);
    assert_ok(rig_ask(self.channel, "hi", NULL, &err));
    before = tutti_clock_ns();
    echo_server_drain(&self.server);
    assert_true(tutti_clock_ns() - before < GRACE_NS / 2);
    (void)close(idle);
    (void)close(mute);
    rig_stop(&self);
}

/* Nobody has an answer to read: half of the second that slow readers get is too long. */
static void
test_drain__of_a_server_that_has_not_answered_lately_is_quick(void **state)
{
    uint64_t least = UINT64_MAX;
    int i;

    (void)state;
    for (i = 0; i < 10 && least >= TUTTI_NS_PER_S / 2; i++) { /* the machine may be busy */
        rig self = {0};
        uint64_t took;
        int idle;

        echo_server_init(&self.server, "127.0.0.1:0");
        self.server.options.grace_ns = GRACE_NS;
        rig_start(&self, 2, NULL);
        idle = connect_idle(&self);
        took = tutti_clock_ns();
        echo_server_drain(&self.server);
        took = tutti_clock_ns() - took;
        least = took < least ? took : least;
        (void)close(idle);
        rig_stop(&self);
    }
    assert_true(least < TUTTI_NS_PER_S / 2);
}

/* A call in flight keeps its time although other clients are idle; behind it nothing is waited for.
 */
static void
test_drain__waits_for_the_last_call_and_no_longer(void **state)
{
    rig self = {0};
    parker calls;
    uint64_t before;
    int idle;

    (void)state;
    echo_server_init(&self.server, "127.0.0.1:0");
    self.server.options.grace_ns = GRACE_NS;
    atomic_store(&self.server.keep_parked, true);
    rig_start(&self, 2, NULL);
    idle = connect_idle(&self);
    parker_start(&calls, echo_server_address(&self.server), &echo_park, 10);
    rig_await(self.server.parked_count, 10);
    echo_server_drain_begin(&self.server);
    rig_await(self.server.cancel_count, 10);
    before = tutti_clock_ns();
    while (tutti_clock_ns() - before < 500 * TUTTI_NS_PER_MS) {
        rig_pause();
    }
    assert_int_equal(calls.ended, 0);
    before = tutti_clock_ns();
    echo_server_release(&self.server);
    echo_server_drain_end(&self.server);
    assert_true(tutti_clock_ns() - before < GRACE_NS / 2);
    rig_await(calls.ended, 10);
    assert_int_equal(calls.codes[TUTTI_OK], 10);
    (void)close(idle);
    parker_stop(&calls);
    rig_stop(&self);
}

static void
test_server__is_freed_without_having_started(void **state)
{
    echo_server self;
    tutti_rpc_server *server = NULL;
    tutti_rpc_loop *loop = NULL;
    tutti_error err;

    (void)state;
    echo_server_init(&self, "127.0.0.1:0");
    assert_ok(tutti_rpc_loop_new("idle", &loop, &err));
    assert_ok(tutti_rpc_server_new(&self.options, echo_descriptor_set(), loop, &server, &err));
    tutti_rpc_server_free(server);
    tutti_rpc_server_free(NULL);
    tutti_rpc_loop_free(loop);
    echo_server_fini(&self);
}

static void
on_nothing(tutti_rpc_call *call, void *self)
{
    (void)call;
    (void)self;
}

/* What `method` is refused with. */
static void
check_refused(const tutti_rpc_method *method, const char *says)
{
    echo_server self;
    tutti_rpc_server *server = NULL;
    tutti_rpc_loop *loop = NULL;
    tutti_rpc_service service = {
        .descriptor = echo_service(), .methods = method, .method_count = 1};
    tutti_error err;

    echo_server_init(&self, "127.0.0.1:0");
    assert_ok(tutti_rpc_loop_new("idle", &loop, &err));
    assert_ok(tutti_rpc_server_new(&self.options, echo_descriptor_set(), loop, &server, &err));
    service.loop = loop;
    tutti_rpc_server_add(server, &service);
    assert_fails(tutti_rpc_server_start(server, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, says);
    tutti_rpc_server_free(server);
    tutti_rpc_loop_free(loop);
    echo_server_fini(&self);
}

static void
test_server__refuses_handlers_that_do_not_fit(void **state)
{
    static const tutti_rpc_stream_ops ops = {0};
    static const tutti_rpc_method stream_for_unary = TUTTI_RPC_STREAM("Unary", &ops);
    static const tutti_rpc_method unary_for_stream = TUTTI_RPC_UNARY("Chat", on_nothing);
    static const tutti_rpc_method unknown = TUTTI_RPC_UNARY("Nothing", on_nothing);

    (void)state;
    check_refused(&stream_for_unary, "Unary is unary in its .proto, its handler is not");
    check_refused(&unary_for_stream, "Chat is streaming in its .proto");
    check_refused(&unknown, "/rpctest.v1.EchoService/Nothing is in no .proto");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server__parks_ten_thousand_calls),
        cmocka_unit_test(test_drain__tells_parked_calls_and_ends),
        cmocka_unit_test(test_drain__refuses_new_calls),
        cmocka_unit_test(test_drain__cuts_off_what_does_not_end_within_the_grace),
        cmocka_unit_test(test_drain__lets_calls_in_flight_finish),
        cmocka_unit_test(test_drain__does_not_wait_for_idle_clients),
        cmocka_unit_test(test_drain__of_a_server_that_has_not_answered_lately_is_quick),
        cmocka_unit_test(test_drain__waits_for_the_last_call_and_no_longer),
        cmocka_unit_test(test_server__is_freed_without_having_started),
        cmocka_unit_test(test_server__refuses_handlers_that_do_not_fit),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
