/*
 * Goal: streams on a loop bring their messages in order and end once, with the error of the server
 * or because they were cancelled; they take packed messages, metadata of one call, and let messages
 * be kept. Method: flows on the server's own loop against the echo server.
 */
#include "rig.h"

#include <assert.h>

typedef struct flow_probe {
    tutti_rpc_task task;
    rig *rig;
    const tutti_rpc_stub *stub;
    echo_fields first;
    tutti_rpc_flow *flow;
    uint64_t wanted;
    uint64_t cancel_at;
    atomic_size_t messages;
    atomic_size_t writes;
    atomic_size_t ends;
    bool disordered;
    tutti_code code;
    char text[TUTTI_ERROR_TEXT_MAX];
} flow_probe;

static void
flow_send(flow_probe *self)
{
    const echo_fields fields = {.text = "hi", .number = self->writes};
    echo_storage storage;

    assert(tutti_rpc_flow_writable(self->flow));
    tutti_rpc_flow_write(self->flow, echo_request(&storage, &fields));
    assert(!tutti_rpc_flow_writable(self->flow));
    (void)atomic_fetch_add(&self->writes, 1);
}

static void
on_flow_message(void *arg, tutti_rpc_message *message)
{
    flow_probe *self = arg;
    const echo_fields got = echo_response_fields(tutti_rpc_message_get(message));

    self->disordered = self->disordered || got.number != self->messages;
    (void)atomic_fetch_add(&self->messages, 1);
    if (self->messages == self->cancel_at) {
        tutti_rpc_flow_cancel(self->flow);
    }
}

static void
on_flow_written(void *arg)
{
    flow_probe *self = arg;

    if (self->writes < self->wanted) {
        flow_send(self);
    } else {
        tutti_rpc_flow_writes_done(self->flow);
    }
}

static void
on_flow_end(void *arg, const tutti_error *err)
{
    flow_probe *self = arg;

    self->code = err == NULL ? TUTTI_OK : err->code;
    (void)snprintf(self->text, sizeof(self->text), "%s", err == NULL ? "" : err->text);
    (void)atomic_fetch_add(&self->ends, 1);
}

static const tutti_rpc_flow_ops flow_ops = {
    .on_message = on_flow_message, .on_written = on_flow_written, .on_end = on_flow_end};

static void
start_flow(tutti_rpc_task *task)
{
    flow_probe *self = tutti_container_of(task, flow_probe, task);
    const bool download = self->stub == &echo_download;
    echo_storage storage;
    const tutti_code code =
        tutti_rpc_flow_start(self->rig->channel, self->rig->server.loops[0], self->stub,
                             download ? echo_request(&storage, &self->first) : NULL, download, NULL,
                             &flow_ops, self, &self->flow, NULL);

    assert(code == TUTTI_OK);
    (void)code;
    if (!download) {
        flow_send(self);
    }
}

static void
run_flow(flow_probe *self)
{
    self->task.on_run = start_flow;
    tutti_rpc_loop_post(self->rig->server.loops[0], &self->task);
    rig_await(self->ends, 1);
}

static void
test_flow__chats_on_a_loop(void **state)
{
    flow_probe probe = {.rig = *state, .stub = &echo_chat, .wanted = 500};

    run_flow(&probe);
    assert_int_equal(probe.code, TUTTI_OK);
    assert_int_equal(probe.messages, 500);
    assert_false(probe.disordered);
    assert_int_equal(probe.rig->server.half_close_count, 1);
}

static void
test_flow__downloads_on_a_loop(void **state)
{
    flow_probe probe = {
        .rig = *state, .stub = &echo_download, .first = {.count = 300, .number = 1000}};

    run_flow(&probe);
    assert_int_equal(probe.code, TUTTI_OK);
    assert_int_equal(probe.messages, 300);
    assert_false(probe.disordered);
}

static void
test_flow__ends_with_the_error_of_the_server(void **state)
{
    flow_probe probe = {.rig = *state,
                        .stub = &echo_download,
                        .first = {.count = 3, .number = 10, .fail = TUTTI_ABORTED}};

    run_flow(&probe);
    assert_int_equal(probe.code, TUTTI_ABORTED);
    assert_int_equal(probe.messages, 3);
}

static void
test_flow__is_cancelled_from_its_own_callback(void **state)
{
    flow_probe probe = {.rig = *state,
                        .stub = &echo_download,
                        .first = {.count = 1000000, .number = 1000},
                        .cancel_at = 5};

    run_flow(&probe);
    assert_int_equal(probe.code, TUTTI_CANCELLED);
    rig_await(probe.rig->server.end_count, 1);
}

/* ------------------------------------------------------------------ packed messages */

#define PACKED_WRITES 50

/* A flow that is written packed messages, as it can be, and keeps what comes. */
typedef struct packed_probe {
    tutti_rpc_flow *flow;
    tutti_rpc_packed *waiting[PACKED_WRITES];
    size_t written;
    tutti_rpc_message *kept[PACKED_WRITES];
    atomic_size_t kept_count;
    atomic_size_t ends;
    tutti_code code;
} packed_probe;

/* Two flows that get the same messages. */
typedef struct packed_pair {
    tutti_rpc_task task;
    rig *rig;
    packed_probe probes[2];
} packed_pair;

static void
write_packed(packed_probe *self)
{
    const bool more = self->written + 1 < PACKED_WRITES;

    tutti_rpc_flow_write_packed(self->flow, self->waiting[self->written++], more);
}

static void
on_packed_written(void *arg)
{
    packed_probe *self = arg;

    if (self->written < PACKED_WRITES) {
        write_packed(self);
    } else {
        tutti_rpc_flow_writes_done(self->flow);
    }
}

static void
on_packed_message(void *arg, tutti_rpc_message *message)
{
    packed_probe *self = arg;

    self->kept[self->kept_count] = tutti_rpc_flow_take(self->flow);
    assert(self->kept[self->kept_count] == message);
    (void)message;
    (void)atomic_fetch_add(&self->kept_count, 1);
}

static void
on_packed_end(void *arg, const tutti_error *err)
{
    packed_probe *self = arg;

    self->code = err == NULL ? TUTTI_OK : err->code;
    (void)atomic_fetch_add(&self->ends, 1);
}

static void
pack_both(packed_pair *self)
{
    size_t i;

    for (i = 0; i < PACKED_WRITES; i++) {
        const echo_fields fields = {.text = i == 0 ? "/lease" : "hi", .number = i};
        tutti_rpc_packed **packed = &self->probes[0].waiting[i];
        echo_storage storage;
        const tutti_code code = tutti_rpc_pack(echo_request(&storage, &fields), NULL, packed, NULL);

        assert(code == TUTTI_OK);
        (void)code;
        self->probes[1].waiting[i] = tutti_rpc_packed_copy(*packed);
        assert(tutti_rpc_packed_bytes(*packed) > 0);
    }
}

static void
start_packed(tutti_rpc_task *task)
{
    static const tutti_rpc_flow_ops ops = {
        .on_message = on_packed_message, .on_written = on_packed_written, .on_end = on_packed_end};
    packed_pair *self = tutti_container_of(task, packed_pair, task);
    size_t i;

    pack_both(self);
    for (i = 0; i < 2; i++) {
        const tutti_rpc_call_options options = {.lease = 4711 + i};
        const tutti_code code = tutti_rpc_flow_start(self->rig->channel, self->rig->server.loops[0],
                                                     &echo_chat, NULL, false, &options, &ops,
                                                     &self->probes[i], &self->probes[i].flow, NULL);

        assert(code == TUTTI_OK);
        (void)code;
        write_packed(&self->probes[i]);
    }
}

static void
test_packed__is_read_as_if_it_had_travelled(void **state)
{
    const echo_fields fields = {.text = "hi", .number = 7};
    tutti_rpc_packed *packed = NULL;
    tutti_rpc_message *message = NULL;
    echo_storage storage;
    tutti_error err;

    (void)state;
    assert_int_equal(tutti_rpc_pack(echo_request(&storage, &fields), NULL, &packed, &err),
                     TUTTI_OK);
    assert_int_equal(tutti_rpc_packed_read(echo_request_type(), packed, &message, &err), TUTTI_OK);
    assert_string_equal(echo_request_fields(tutti_rpc_message_get(message)).text, "hi");
    assert_int_equal(echo_request_fields(tutti_rpc_message_get(message)).number, 7);
    tutti_rpc_message_free(message);
}

static void
check_packed(packed_probe *self, const char *lease)
{
    size_t i;

    assert_int_equal(self->code, TUTTI_OK);
    assert_int_equal(self->kept_count, PACKED_WRITES);
    for (i = 0; i < PACKED_WRITES; i++) {
        const echo_fields got = echo_response_fields(tutti_rpc_message_get(self->kept[i]));

        assert_string_equal(got.text, i == 0 ? lease : "hi");
        assert_int_equal(got.number, i);
        tutti_rpc_message_free(self->kept[i]);
    }
}

static void
test_flow__takes_packed_messages_that_two_flows_share(void **state)
{
    static packed_pair pair;

    pair = (packed_pair){.rig = *state, .task.on_run = start_packed};
    tutti_rpc_loop_post(pair.rig->server.loops[0], &pair.task);
    rig_await(pair.probes[0].ends, 1);
    rig_await(pair.probes[1].ends, 1);
    check_packed(&pair.probes[0], "4711");
    check_packed(&pair.probes[1], "4712");
}

#define FLOW_TEST(test) cmocka_unit_test_setup_teardown(test, rig_begin, rig_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        FLOW_TEST(test_flow__chats_on_a_loop),
        FLOW_TEST(test_flow__downloads_on_a_loop),
        FLOW_TEST(test_flow__ends_with_the_error_of_the_server),
        FLOW_TEST(test_flow__is_cancelled_from_its_own_callback),
        FLOW_TEST(test_flow__takes_packed_messages_that_two_flows_share),
        cmocka_unit_test(test_packed__is_read_as_if_it_had_travelled),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
