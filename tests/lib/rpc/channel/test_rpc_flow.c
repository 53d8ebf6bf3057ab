/*
 * Goal: streams on a loop bring their messages in order and end once, with the error of the server
 * or because they were cancelled. Method: flows on the server's own loop against the echo server.
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

#define FLOW_TEST(test) cmocka_unit_test_setup_teardown(test, rig_begin, rig_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        FLOW_TEST(test_flow__chats_on_a_loop),
        FLOW_TEST(test_flow__downloads_on_a_loop),
        FLOW_TEST(test_flow__ends_with_the_error_of_the_server),
        FLOW_TEST(test_flow__is_cancelled_from_its_own_callback),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
