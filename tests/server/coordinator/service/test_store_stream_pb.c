/*
 * Goal: a command of StoreService.Run is the unary call that it stands for: its answer waits for the
 * disk, its errors are answers, its wait is given up with its caller; and the stream ends well.
 * Method: the coordinator's services in this process, on a store in memory whose changes become durable
 * when the test says so; a blocking stream is the client.
 */
#include "support/testing.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/config/config.h"
#include "base/os/clock.h"
#include "base/os/meter.h"
#include "rpc/channel.h"
#include "rpc/loop.h"
#include "rpc/server.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/service/service_loop.h"
#include "store/memory/memory.h"
#include "store/store_backend.h"
#include "tutti/v1/store_service.pb-c.h"
#include "tutti_descriptor_set.h"

#define LONG_NS (20 * TUTTI_NS_PER_S)
#define MOMENT_NS (50 * TUTTI_NS_PER_MS)

typedef Tutti__V1__StoreServiceRunRequest run_request;
typedef Tutti__V1__StoreServiceRunResponse run_response;

static const tutti_rpc_stub stub_run = {&tutti__v1__store_service__descriptor, "Run"};

/* ------------------------------------------------------------------ a store with a slow disk */

/* A store in memory, but for what is durable. */
static struct {
    tutti_store front;
    tutti_store *memory;
    atomic_bool slow;
    atomic_uint_fast64_t durable; /* while it is slow */
    void (*on_durable)(void *arg);
    void *arg;
} disk;

static tutti_code
slow_get(tutti_store *store, tutti_bytes key, tutti_store_entry *ret_entry, tutti_error *err)
{
    (void)store;
    return tutti_store_get(disk.memory, key, ret_entry, err);
}

static tutti_code
slow_set(tutti_store *store, tutti_bytes key, tutti_bytes value, uint64_t *ret_version,
         tutti_error *err)
{
    (void)store;
    return tutti_store_set(disk.memory, key, value, ret_version, err);
}

static tutti_code
slow_remove(tutti_store *store, tutti_bytes key, bool *ret_existed, uint64_t *ret_version,
            tutti_error *err)
{
    (void)store;
    return disk.memory->ops->remove(disk.memory, key, ret_existed, ret_version, err);
}

static tutti_code
slow_apply(tutti_store *store, const tutti_store_change *changes, size_t count,
           uint64_t *ret_version, tutti_error *err)
{
    (void)store;
    return tutti_store_apply(disk.memory, changes, count, ret_version, err);
}

static tutti_code
slow_next(tutti_store *store, tutti_bytes prefix, tutti_bytes after, tutti_store_entry *ret_entry,
          tutti_error *err)
{
    (void)store;
    return disk.memory->ops->next(disk.memory, prefix, after, ret_entry, err);
}

static uint64_t
slow_version(tutti_store *store)
{
    (void)store;
    return tutti_store_version(disk.memory);
}

static void
slow_stat(tutti_store *store, tutti_store_stats *ret_stats)
{
    (void)store;
    disk.memory->ops->stat(disk.memory, ret_stats);
}

static void
slow_close(tutti_store *store)
{
    (void)store;
    tutti_store_close(disk.memory);
}

static uint64_t
slow_durable(tutti_store *store)
{
    return atomic_load(&disk.slow) ? atomic_load(&disk.durable) : slow_version(store);
}

static tutti_code
slow_flush(tutti_store *store, tutti_error *err)
{
    (void)store;
    (void)err;
    return TUTTI_OK;
}

static void
slow_on_durable(tutti_store *store, void (*on_durable)(void *arg), void *arg)
{
    (void)store;
    disk.on_durable = on_durable;
    disk.arg = arg;
}

static tutti_store *
open_slow_store(void)
{
    static const tutti_store_ops ops = {.get = slow_get,
                                        .set = slow_set,
                                        .remove = slow_remove,
                                        .apply = slow_apply,
                                        .next = slow_next,
                                        .version = slow_version,
                                        .stat = slow_stat,
                                        .close = slow_close,
                                        .durable = slow_durable,
                                        .flush = slow_flush,
                                        .on_durable = slow_on_durable};
    tutti_error err;

    assert_ok(tutti_store_memory_open(NULL, &disk.memory, &err));
    disk.front.ops = &ops;
    atomic_store(&disk.slow, false);
    return &disk.front;
}

/* Up to this version. This thread is the store's. */
static void
make_durable(uint64_t version)
{
    atomic_store(&disk.durable, version);
    disk.on_durable(disk.arg);
}

/* ------------------------------------------------------------------ the server */

typedef struct stream_rig {
    tutti_coordinator_options coordinating;
    tutti_rpc_server_options serving;
    tutti_config *config;
    tutti_store *store; /* NULL = a standby's */
    tutti_rpc_loop *loop;
    tutti_service_loop *service_loop;
    tutti_rpc_server *server;
    tutti_rpc_channel *channel;
    tutti_rpc_stream *stream;
    bool stopping;
    atomic_bool stopped;
    uint64_t last_id;
} stream_rig;

static void
start_rig(stream_rig *self, tutti_store *store)
{
    const tutti_option_set set = tutti_coordinator_option_set(&self->coordinating);
    const tutti_bytes descriptors = {tutti_descriptor_set, tutti_descriptor_set_size};
    char *words[] = {(char *)(uintptr_t) "test", NULL};
    tutti_config_wish wish;
    size_t count;
    tutti_error err;

    tutti_rpc_init();
    assert_ok(tutti_config_load(&set, 1, 1, words, &self->config, &wish, &err));
    self->store = store;
    assert_ok(tutti_rpc_loop_new("coordinator", &self->loop, &err));
    assert_ok(
        tutti_service_loop_new(&self->coordinating, store, self->loop, &self->service_loop, &err));
    assert_ok(tutti_rpc_loop_start(self->loop, &err));
    tutti_rpc_server_options_init(&self->serving, "127.0.0.1:0");
    self->serving.self_check_ns = 0;
    assert_ok(tutti_rpc_server_new(&self->serving, descriptors, self->loop, &self->server, &err));
    tutti_service_loop_serve(self->service_loop, self->server);
    assert_ok(tutti_rpc_server_start(self->server, &err));
    assert_ok(tutti_rpc_channel_open(tutti_rpc_server_addresses(self->server, &count)->text, NULL,
                                     &self->channel, &err));
    assert_ok(tutti_rpc_stream_open(self->channel, &stub_run, NULL, &self->stream, &err));
}

static void
on_stopped(void *arg)
{
    atomic_store((atomic_bool *)arg, true);
}

/* Again is fine. */
static void
stop_server(stream_rig *self)
{
    if (!self->stopping) {
        self->stopping = true;
        tutti_rpc_server_stop(self->server, on_stopped, &self->stopped);
    }
}

/* Of a rig whose stream is finished, if it was not yet. */
static void
end_rig(stream_rig *self)
{
    const uint64_t until_ns = tutti_clock_ns() + LONG_NS;

    if (self->stream != NULL) {
        (void)tutti_rpc_stream_finish(self->stream, NULL);
    }
    tutti_rpc_channel_close(self->channel);
    stop_server(self);
    while (!atomic_load(&self->stopped)) {
        assert_true(tutti_clock_ns() < until_ns);
        (void)usleep(1000);
    }
    tutti_rpc_server_free(self->server);
    tutti_service_loop_end(self->service_loop);
    tutti_rpc_loop_stop(self->loop);
    tutti_service_loop_free(self->service_loop);
    tutti_rpc_loop_free(self->loop);
    tutti_store_close(self->store);
    tutti_rpc_fini();
    tutti_config_free(self->config);
    free(self);
}

static int
begin_test(void **state)
{
    stream_rig *self = calloc(1, sizeof(*self));

    assert_non_null(self);
    start_rig(self, open_slow_store());
    *state = self;
    return 0;
}

static int
end_test(void **state)
{
    end_rig(*state);
    return 0;
}

/* ------------------------------------------------------------------ the client */

static ProtobufCBinaryData
bytes(const char *text)
{
    return (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
}

static void
say(stream_rig *rig, run_request *command)
{
    tutti_error err;

    command->id = ++rig->last_id;
    assert_ok(tutti_rpc_stream_write(rig->stream, &command->base, NULL, &err));
}

static void
say_set(stream_rig *rig, const char *key, const char *value)
{
    Tutti__V1__StoreServiceSetRequest set = TUTTI__V1__STORE_SERVICE_SET_REQUEST__INIT;
    run_request command = TUTTI__V1__STORE_SERVICE_RUN_REQUEST__INIT;

    set.key = bytes(key);
    set.value = bytes(value);
    command.command_case = TUTTI__V1__STORE_SERVICE_RUN_REQUEST__COMMAND_SET;
    command.set = &set;
    say(rig, &command);
}

static void
say_get(stream_rig *rig, const char *key)
{
    Tutti__V1__StoreServiceGetRequest get = TUTTI__V1__STORE_SERVICE_GET_REQUEST__INIT;
    run_request command = TUTTI__V1__STORE_SERVICE_RUN_REQUEST__INIT;

    get.key = bytes(key);
    command.command_case = TUTTI__V1__STORE_SERVICE_RUN_REQUEST__COMMAND_GET;
    command.get = &get;
    say(rig, &command);
}

/* Waits for the key. */
static void
say_take(stream_rig *rig, const char *key)
{
    Tutti__V1__StoreServiceTakeRequest take = TUTTI__V1__STORE_SERVICE_TAKE_REQUEST__INIT;
    run_request command = TUTTI__V1__STORE_SERVICE_RUN_REQUEST__INIT;

    take.key = bytes(key);
    command.command_case = TUTTI__V1__STORE_SERVICE_RUN_REQUEST__COMMAND_TAKE;
    command.take = &take;
    say(rig, &command);
}

static bool
is_silent(stream_rig *rig)
{
    return !tutti_rpc_stream_wait(rig->stream, tutti_clock_ns() + MOMENT_NS);
}

/* The next answer: "ok", a value, or a reason. */
static void
hear(stream_rig *rig, uint64_t id, const char *wanted)
{
    const run_response *answer;
    tutti_rpc_message *message = NULL;
    tutti_error err;

    assert_true(tutti_rpc_stream_wait(rig->stream, tutti_clock_ns() + LONG_NS));
    assert_ok(tutti_rpc_stream_read(rig->stream, &message, &err));
    assert_non_null(message);
    answer = tutti_rpc_message_get(message);
    assert_int_equal(answer->id, id);
    if (answer->result_case == TUTTI__V1__STORE_SERVICE_RUN_RESPONSE__RESULT_ERROR) {
        assert_string_equal(answer->error->reason, wanted);
    } else if (answer->result_case == TUTTI__V1__STORE_SERVICE_RUN_RESPONSE__RESULT_GET) {
        assert_int_equal(answer->get->value.len, strlen(wanted));
        assert_memory_equal(answer->get->value.data, wanted, strlen(wanted));
    } else {
        assert_string_equal(wanted, "ok");
    }
    tutti_rpc_message_free(message);
}

static void
finish(stream_rig *rig, tutti_code wanted, const char *reason)
{
    tutti_error err = {0};
    const tutti_code code = tutti_rpc_stream_finish(rig->stream, &err);

    rig->stream = NULL;
    assert_int_equal(code, wanted);
    assert_string_equal(err.reason, reason);
}

static double
read_metric(stream_rig *rig, const char *name)
{
    tutti_page page;
    const char *found;
    double value = -1;

    tutti_page_init(&page);
    tutti_rpc_loop_enter(rig->loop);
    tutti_service_loop_expose(rig->service_loop, &page);
    tutti_rpc_server_expose(rig->server, &page);
    tutti_rpc_loop_leave(rig->loop);
    assert_int_equal(tutti_buf_add(&page.buf, "", 1, NULL), TUTTI_OK);
    found = strstr((const char *)page.buf.data, name);
    if (found != NULL) {
        value = strtod(found + strlen(name), NULL);
    }
    tutti_page_fini(&page);
    return value;
}

/* ------------------------------------------------------------------ tests */

static void
test_run__answers_each_command_with_its_id(void **state)
{
    stream_rig *rig = *state;

    say_set(rig, "a", "1");
    say_get(rig, "a");
    say_get(rig, "b");
    say_get(rig, "a");
    hear(rig, 1, "ok");
    hear(rig, 2, "1");
    hear(rig, 3, "NO_KEY");
    hear(rig, 4, "1");
    finish(rig, TUTTI_OK, "");
}

static void
test_run__a_command_that_is_none_fails_alone(void **state)
{
    run_request nothing = TUTTI__V1__STORE_SERVICE_RUN_REQUEST__INIT;
    stream_rig *rig = *state;

    say(rig, &nothing);
    say_set(rig, "", "1");
    say_set(rig, "a", "1");
    hear(rig, 1, "NO_COMMAND");
    hear(rig, 2, "BAD_KEY");
    hear(rig, 3, "ok");
}

static void
test_run__an_answer_waits_for_the_disk(void **state)
{
    stream_rig *rig = *state;

    say_set(rig, "a", "1");
    hear(rig, 1, "ok");
    atomic_store(&disk.durable, 1);
    atomic_store(&disk.slow, true);
    say_set(rig, "a", "2");
    say_get(rig, "a");
    assert_true(is_silent(rig));
    make_durable(2);
    hear(rig, 2, "ok");
    hear(rig, 3, "2");
}

/* The client has left while its answer waits: what it has changed stays, and nobody else is held up. */
static void
test_run__a_client_that_leaves_a_held_answer_is_forgotten(void **state)
{
    stream_rig *rig = *state;
    tutti_error err;

    atomic_store(&disk.durable, 0);
    atomic_store(&disk.slow, true);
    say_set(rig, "a", "1");
    assert_true(is_silent(rig));
    tutti_rpc_stream_cancel(rig->stream);
    finish(rig, TUTTI_CANCELLED, "GIVEN_UP");
    make_durable(1);
    assert_ok(tutti_rpc_stream_open(rig->channel, &stub_run, NULL, &rig->stream, &err));
    rig->last_id = 0;
    say_get(rig, "a");
    hear(rig, 1, "1");
}

static void
test_run__a_command_that_waits_holds_up_its_stream_alone(void **state)
{
    stream_rig *rig = *state;
    tutti_rpc_stream *first = rig->stream;
    tutti_error err;

    say_take(rig, "t");
    say_get(rig, "t");
    assert_true(is_silent(rig));
    assert_ok(tutti_rpc_stream_open(rig->channel, &stub_run, NULL, &rig->stream, &err));
    say_set(rig, "t", "1");
    hear(rig, 3, "ok");
    finish(rig, TUTTI_OK, "");
    rig->stream = first;
    hear(rig, 1, "ok");
    hear(rig, 2, "NO_KEY");
}

static void
test_run__what_waits_goes_with_its_client(void **state)
{
    const char *const waiting = "\ntutti_coordinator_waiters ";
    const uint64_t until_ns = tutti_clock_ns() + LONG_NS;
    stream_rig *rig = *state;
    tutti_error err;

    say_take(rig, "t");
    while (read_metric(rig, waiting) < 1) {
        assert_true(tutti_clock_ns() < until_ns);
    }
    tutti_rpc_stream_cancel(rig->stream);
    finish(rig, TUTTI_CANCELLED, "GIVEN_UP");
    while (read_metric(rig, waiting) > 0) {
        assert_true(tutti_clock_ns() < until_ns);
    }
    assert_ok(tutti_rpc_stream_open(rig->channel, &stub_run, NULL, &rig->stream, &err));
    say_set(rig, "t", "1");
    hear(rig, 2, "ok");
    say_get(rig, "t"); /* nobody has taken it */
    hear(rig, 3, "1");
}

static void
test_run__commands_count_as_calls_of_their_method(void **state)
{
    const char *const gets =
        "tutti_rpc_calls_total{service=\"tutti.v1.StoreService\",method=\"Get\","
        "code=\"OK\"} ";
    const uint64_t until_ns = tutti_clock_ns() + LONG_NS;
    stream_rig *rig = *state;

    say_set(rig, "a", "1");
    say_get(rig, "a");
    hear(rig, 1, "ok");
    hear(rig, 2, "1");
    while (read_metric(rig, gets) < 1) { /* counted when it has left */
        assert_true(tutti_clock_ns() < until_ns);
    }
    assert_true(read_metric(rig, gets) == 1);
}

static void
test_run__a_draining_coordinator_ends_idle_streams_with_ok(void **state)
{
    stream_rig *rig = *state;

    say_set(rig, "a", "1");
    hear(rig, 1, "ok");
    stop_server(rig);
    assert_true(tutti_rpc_stream_wait(rig->stream, tutti_clock_ns() + LONG_NS));
    finish(rig, TUTTI_OK, "");
}

static void
test_run__a_draining_coordinator_answers_what_waits(void **state)
{
    stream_rig *rig = *state;

    say_take(rig, "t");
    assert_true(is_silent(rig));
    stop_server(rig);
    hear(rig, 1, "DRAINING");
    finish(rig, TUTTI_OK, "");
}

static void
test_run__a_standby_refuses_the_stream(void **state)
{
    stream_rig *rig = calloc(1, sizeof(*rig));

    (void)state;
    assert_non_null(rig);
    start_rig(rig, NULL);
    say_set(rig, "a", "1");
    finish(rig, TUTTI_UNAVAILABLE, "NOT_LEADER");
    end_rig(rig);
}

#define stream_test(name) cmocka_unit_test_setup_teardown(name, begin_test, end_test)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        stream_test(test_run__answers_each_command_with_its_id),
        stream_test(test_run__a_command_that_is_none_fails_alone),
        stream_test(test_run__an_answer_waits_for_the_disk),
        stream_test(test_run__a_client_that_leaves_a_held_answer_is_forgotten),
        stream_test(test_run__a_command_that_waits_holds_up_its_stream_alone),
        stream_test(test_run__what_waits_goes_with_its_client),
        stream_test(test_run__commands_count_as_calls_of_their_method),
        stream_test(test_run__a_draining_coordinator_ends_idle_streams_with_ok),
        stream_test(test_run__a_draining_coordinator_answers_what_waits),
        cmocka_unit_test(test_run__a_standby_refuses_the_stream),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
