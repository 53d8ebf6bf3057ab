/*
 * Goal: what a service with a gate answers leaves when the gate has come to its number, in order,
 * and a held answer is no obstacle for clients that go away or for the end of the server.
 * Method: the echo server with a gate whose number the test sets; a second thread asks.
 */
#include "rig.h"

#include "rpc/gate.h"

typedef struct gated {
    rig rig;
    tutti_rpc_gate gate;
    atomic_ullong number; /* for what answers wait; 0 = they do not */
    atomic_size_t asked;  /* answers that were looked at */
    tutti_rpc_task open;
    uint64_t open_to;
    atomic_bool opened;
} gated;

static uint64_t
get_number(void *arg)
{
    gated *self = arg;

    (void)atomic_fetch_add(&self->asked, 1);
    return atomic_load(&self->number);
}

static void
on_open_gate(tutti_rpc_task *task)
{
    gated *self = tutti_container_of(task, gated, open);

    tutti_rpc_gate_open(&self->gate, self->open_to);
    atomic_store(&self->opened, true);
}

/* On the loop of the service, and waits for it. */
static void
open_gate(gated *self, uint64_t number)
{
    self->open_to = number;
    atomic_store(&self->opened, false);
    tutti_rpc_loop_post(self->rig.server.loops[1], &self->open);
    rig_await(atomic_load(&self->opened), true);
}

static int
begin_gated(void **state)
{
    gated *self = calloc(1, sizeof(*self));

    assert_non_null(self);
    tutti_rpc_gate_init(&self->gate, get_number, self);
    self->open.on_run = on_open_gate;
    echo_server_init(&self->rig.server, "127.0.0.1:0");
    self->rig.server.gate = &self->gate;
    rig_start(&self->rig, 2, NULL);
    *state = self;
    return 0;
}

static int
end_gated(void **state)
{
    gated *self = *state;

    rig_stop(&self->rig);
    assert_true(tutti_list_empty(&self->gate.held));
    free(self);
    return 0;
}

/* A thread that asks once. */
typedef struct asker {
    gated *self;
    pthread_t thread;
    atomic_bool answered;
    tutti_code code;
    char text[256];
} asker;

static void *
run_asker(void *arg)
{
    asker *one = arg;
    tutti_error err;

    one->code = rig_ask(one->self->rig.channel, "hello", one->text, &err);
    atomic_store(&one->answered, true);
    return NULL;
}

static void
ask(gated *self, asker *one, uint64_t number)
{
    const size_t before = atomic_load(&self->asked);

    *one = (asker){.self = self};
    atomic_store(&self->number, number);
    assert_int_equal(pthread_create(&one->thread, NULL, run_asker, one), 0);
    rig_await(atomic_load(&self->asked), before + 1);
}

static void
check_answered(asker *one)
{
    assert_int_equal(pthread_join(one->thread, NULL), 0);
    assert_int_equal(one->code, TUTTI_OK);
    assert_string_equal(one->text, "hello");
}

static void
test_gate__lets_pass_what_need_not_wait(void **state)
{
    gated *self = *state;
    asker one;

    ask(self, &one, 0);
    check_answered(&one);
}

static void
test_gate__holds_answers_until_it_has_come_to_their_number(void **state)
{
    gated *self = *state;
    asker early;
    asker late;
    asker free_one;

    ask(self, &early, 3);
    ask(self, &late, 5);
    open_gate(self, 2);
    ask(self, &free_one, 0); /* the server has had every chance to answer the two others */
    check_answered(&free_one);
    assert_false(atomic_load(&early.answered));
    open_gate(self, 4);
    check_answered(&early);
    ask(self, &free_one, 0);
    check_answered(&free_one);
    assert_false(atomic_load(&late.answered));
    open_gate(self, 5);
    check_answered(&late);
}

static void
test_gate__holds_each_message_of_a_stream(void **state)
{
    gated *self = *state;
    const echo_fields request = {.text = "hello", .count = 3};
    tutti_rpc_stream *stream = NULL;
    tutti_rpc_message *message = NULL;
    echo_storage storage;
    tutti_error err;
    uint64_t number;

    atomic_store(&self->number, 1);
    assert_ok(tutti_rpc_stream_open(self->rig.channel, &echo_download, NULL, &stream, &err));
    assert_ok(tutti_rpc_stream_write(stream, echo_request(&storage, &request), NULL, &err));
    assert_ok(tutti_rpc_stream_writes_done(stream, &err));
    for (number = 1; number <= 4; number++) { /* three messages, then the status */
        rig_await(atomic_load(&self->asked), number);
        assert_int_equal(atomic_load(&self->rig.server.written_count), number - 1);
        atomic_store(&self->number, number + 1);
        open_gate(self, number);
    }
    for (number = 0; number < 3; number++) {
        assert_ok(tutti_rpc_stream_read(stream, &message, &err));
        assert_non_null(message);
        tutti_rpc_message_free(message);
    }
    assert_ok(tutti_rpc_stream_read(stream, &message, &err));
    assert_null(message);
    assert_ok(tutti_rpc_stream_finish(stream, &err));
}

static void
test_gate__is_no_obstacle_for_a_client_that_goes_away(void **state)
{
    gated *self = *state;
    const echo_fields request = {.text = "hello", .count = 3};
    tutti_rpc_stream *stream = NULL;
    echo_storage storage;
    tutti_error err;

    atomic_store(&self->number, 7);
    assert_ok(tutti_rpc_stream_open(self->rig.channel, &echo_download, NULL, &stream, &err));
    assert_ok(tutti_rpc_stream_write(stream, echo_request(&storage, &request), NULL, &err));
    rig_await(atomic_load(&self->asked), 1);
    tutti_rpc_stream_cancel(stream);
    assert_fails(tutti_rpc_stream_finish(stream, &err), TUTTI_CANCELLED);
    rig_await(atomic_load(&self->rig.server.cancel_count), 1);
    atomic_store(&self->number, 0); /* nothing is behind 7 */
    open_gate(self, 7);
    rig_await(atomic_load(&self->rig.server.end_count), 1);
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, begin_gated, end_gated)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_gate__lets_pass_what_need_not_wait),
        SENTENCE(test_gate__holds_answers_until_it_has_come_to_their_number),
        SENTENCE(test_gate__holds_each_message_of_a_stream),
        SENTENCE(test_gate__is_no_obstacle_for_a_client_that_goes_away),
    };

    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests_name("rpc/gate", tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
