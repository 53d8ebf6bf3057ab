/*
 * Goal: commands of a session leave in order and their results come back under their tickets, in
 * whichever order they are answered; what fails is told once; a leader that talks nonsense, says
 * nothing or goes away ends a session with words. Method: the fake agent leads a session of workers
 * that are itself. tests/system/test_session_program.py drives real agents.
 */
#include "client_rig.h"

#include "tutti/session.h"
#include "tutti/v1/session_service.pb-c.h"

#define WHICH(NAME) ((int)TUTTI__V1__DRIVE_REQUEST__COMMAND_##NAME)

static tutti_session *
open_session(client_rig *rig)
{
    tutti_session *session = NULL;
    tutti_error err;

    rig->agent.script.session_workers = 2;
    assert_ok(tutti_session_open(rig->client, NULL, &session, &err));
    return session;
}

static const fake_command *
command(const client_rig *rig, unsigned index)
{
    assert_true(index < atomic_load(&rig->agent.drive_count));
    return &rig->agent.drives[index];
}

static tutti_session_move
move_of(uint32_t src, uint32_t dst, uint32_t into)
{
    tutti_session_move move;

    tutti_session_move_init(&move);
    move.src = src;
    move.dst = dst;
    move.into = into;
    return move;
}

/* ------------------------------------------------------------------------------ opening */

static void
test_open__tells_workers_groups_and_the_leader(void **state)
{
    client_rig *rig = *state;
    const tutti_session_info *info;
    tutti_session_options options;
    tutti_session *session = NULL;
    char name[TUTTI_REGISTER_NAME_MAX];
    tutti_error err;

    rig->agent.script.session_workers = 4;
    tutti_session_options_init(&options);
    options.num_groups = 2;
    assert_ok(tutti_session_open(rig->client, &options, &session, &err));
    info = tutti_session_describe(session);
    assert_string_equal(info->id, "7f3a");
    assert_int_equal(info->worker_count, 4);
    assert_int_equal(info->num_groups, 2);
    assert_int_equal(info->secret_bytes, 0);
    assert_int_equal(info->workers[3].rank, 3);
    assert_string_equal(info->workers[3].host, "host-1");
    assert_string_equal(info->workers[3].address, fake_agent_address(&rig->agent));
    assert_string_equal(tutti_session_name(session, 12, name), "reg:7f3a/12");
    assert_ok(tutti_session_close(session, &err));
}

static void
test_open__fails_as_the_leader_says(void **state)
{
    client_rig *rig = *state;
    tutti_session *session = NULL;
    tutti_error err;

    rig->agent.script.fail_method = "Drive";
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_INVALID_ARGUMENT, "GROUP_SIZE",
                         "3 groups of 4 workers");
    assert_fails(tutti_session_open(rig->client, NULL, &session, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "GROUP_SIZE");
    assert_null(session);
    rig->agent.script.fail_method = NULL;
    rig->agent.script.session_workers = 2;
    rig->agent.script.session_disorder = true;
    assert_fails(tutti_session_open(rig->client, NULL, &session, &err), TUTTI_DATA_LOSS);
    rig->agent.script.session_workers = 0;
    assert_fails(tutti_session_open(rig->client, NULL, &session, &err), TUTTI_DATA_LOSS);
}

static void
test_open__does_not_wait_for_ever(void **state)
{
    client_rig *rig = *state;
    tutti_client_options options;
    tutti_session *session = NULL;
    tutti_client *client = NULL;
    tutti_error err;

    tutti_client_options_init(&options);
    options.agent = fake_agent_address(&rig->agent);
    options.timeout_ms = 200;
    assert_ok(tutti_connect_with(&options, &client, &err));
    rig->agent.script.park_method = "Drive";
    assert_fails(tutti_session_open(client, NULL, &session, &err), TUTTI_DEADLINE_EXCEEDED);
    assert_text_has(err.text, "has not opened the session in 200 ms");
    tutti_close(client);
    fake_agent_settle(&rig->agent);
}

static void
test_resume__knows_which_registers_are_taken(void **state)
{
    client_rig *rig = *state;
    tutti_session_options options;
    tutti_session *session = NULL;
    unsigned char secret[TUTTI_SESSION_SECRET_BYTES];
    uint32_t numbers[4];
    tutti_error err;
    int i;

    rig->agent.script.session_workers = 2;
    tutti_session_options_init(&options);
    options.linger = true;
    assert_ok(tutti_session_open(rig->client, &options, &session, &err));
    assert_int_equal(tutti_session_describe(session)->secret_bytes, sizeof(secret));
    memcpy(secret, tutti_session_describe(session)->secret, sizeof(secret));
    assert_ok(tutti_session_close(session, &err));
    assert_ok(tutti_session_resume(rig->client, "7f3a", secret, NULL, &session, &err));
    for (i = 0; i < 4; i++) { /* 2 and 4 are taken, 6 is the last */
        assert_ok(tutti_session_register(session, &numbers[i], &err));
    }
    assert_int_equal(numbers[0], 1);
    assert_int_equal(numbers[1], 3);
    assert_int_equal(numbers[2], 5);
    assert_int_equal(numbers[3], 6);
    assert_ok(tutti_session_close(session, &err));
    assert_fails(tutti_session_resume(rig->client, "", secret, NULL, &session, &err),
                 TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_SESSION");
}

/* ------------------------------------------------------------------------------ registers */

static void
test_registers__are_given_lowest_first_and_the_last_dropped_before(void **state)
{
    client_rig *rig = *state;
    tutti_session *session = open_session(rig);
    uint32_t numbers[7] = {0};
    tutti_error err;
    int i;

    for (i = 0; i < 6; i++) {
        assert_ok(tutti_session_register(session, &numbers[i], &err));
        assert_int_equal(numbers[i], i + 1);
    }
    assert_fails(tutti_session_register(session, &numbers[6], &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "REGISTER_LIMIT");
    assert_int_equal(numbers[6], 0);
    assert_ok(tutti_session_drop(session, (const uint32_t[]){2, 5}, 2, NULL, &err));
    assert_ok(tutti_session_drop(session, (const uint32_t[]){2}, 1, NULL, &err)); /* once more */
    assert_ok(tutti_session_register(session, &numbers[6], &err));
    assert_int_equal(numbers[6], 5);
    assert_ok(tutti_session_register(session, &numbers[6], &err));
    assert_int_equal(numbers[6], 2);
    assert_fails(tutti_session_register(session, &numbers[6], &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_ok(tutti_session_close(session, &err));
}

static void
test_registers__that_a_program_has_chosen_are_not_given(void **state)
{
    client_rig *rig = *state;
    const tutti_value seven = tutti_value_int(7);
    tutti_session *session = open_session(rig);
    uint32_t number = 0;
    tutti_error err;

    assert_ok(tutti_session_set(session, 1, &seven, NULL, NULL, &err));
    assert_ok(tutti_session_register(session, &number, &err));
    assert_int_equal(number, 2);
    assert_ok(tutti_session_close(session, &err));
}

/* ------------------------------------------------------------------------------ commands */

static void
test_commands__say_what_is_moved_where(void **state)
{
    client_rig *rig = *state;
    tutti_session *session = open_session(rig);
    tutti_session_move move = move_of(1, 2, 0);
    tutti_error err;

    move.in_group = true;
    assert_ok(tutti_session_all_reduce(session, &move, TUTTI_REDUCE_MAX, NULL, &err));
    move = move_of(3, 0, 4);
    assert_ok(tutti_session_all_gather(session, &move, NULL, &err));
    assert_ok(tutti_session_broadcast_from_worker0(session, &move, NULL, &err));
    assert_ok(tutti_session_scatter_from_worker0(session, &move, NULL, &err));
    assert_ok(tutti_session_gather_to_worker0(session, &move, NULL, &err));
    assert_ok(tutti_session_send_to_next_group(session, &move, NULL, &err));
    assert_ok(tutti_session_recv_from_prev_group(session, &move, NULL, &err));
    assert_ok(tutti_session_transfer(session, &move, 0, 1, NULL, &err));
    assert_ok(tutti_session_copy(session, &move, NULL, NULL, &err));
    assert_ok(tutti_session_get_function(session, 5, "demo.scale", NULL, &err));
    assert_ok(tutti_session_import_module(session, "demo", NULL, &err));
    assert_ok(tutti_session_sync(session, NULL, &err));
    assert_int_equal(command(rig, 0)->which, WHICH(ALL_REDUCE));
    assert_int_equal(command(rig, 0)->src, 1);
    assert_int_equal(command(rig, 0)->dst, 2);
    assert_int_equal(command(rig, 0)->into, 0);
    assert_true(command(rig, 0)->in_group);
    assert_int_equal(command(rig, 0)->reduce, TUTTI_REDUCE_MAX);
    assert_int_equal(command(rig, 1)->which, WHICH(ALL_GATHER));
    assert_int_equal(command(rig, 1)->into, 4);
    assert_false(command(rig, 1)->in_group);
    assert_int_equal(command(rig, 2)->which, WHICH(BROADCAST_FROM_WORKER0));
    assert_int_equal(command(rig, 3)->which, WHICH(SCATTER_FROM_WORKER0));
    assert_int_equal(command(rig, 4)->which, WHICH(GATHER_TO_WORKER0));
    assert_int_equal(command(rig, 5)->which, WHICH(SEND_TO_NEXT_GROUP));
    assert_int_equal(command(rig, 6)->which, WHICH(RECV_FROM_PREV_GROUP));
    assert_int_equal(command(rig, 7)->which, WHICH(TRANSFER));
    assert_int_equal(command(rig, 8)->which, WHICH(COPY));
    assert_int_equal(command(rig, 9)->which, WHICH(GET_FUNCTION));
    assert_int_equal(command(rig, 10)->which, WHICH(IMPORT_MODULE));
    assert_ok(tutti_session_close(session, &err));
}

static void
test_call__takes_values_and_registers_and_gives_each_workers_result(void **state)
{
    client_rig *rig = *state;
    const tutti_value function = tutti_value_function("demo.scale");
    const tutti_value held = tutti_value_register(3);
    const tutti_value args[] = {tutti_value_register(1), tutti_value_float(0.5),
                                tutti_value_text("mean")};
    tutti_session *session = open_session(rig);
    tutti_session_result result = {0};
    uint64_t ticket = 0;
    tutti_error err;

    assert_ok(tutti_session_call(session, &function, args, 3, NULL, &ticket, &err));
    assert_ok(tutti_session_wait(session, ticket, &result, &err));
    assert_int_equal(result.ticket, ticket);
    assert_int_equal(result.error.code, TUTTI_OK);
    assert_int_equal(result.value_count, 2);
    assert_int_equal(result.values[0].value.kind, TUTTI_VALUE_INT);
    assert_int_equal(result.values[0].value.u.integer, -5);
    assert_int_equal(result.values[1].worker, 1);
    assert_int_equal(result.values[1].value.kind, TUTTI_VALUE_TENSOR);
    assert_int_equal(result.values[1].value.spec.dims[1], 3);
    tutti_session_result_free(&result);
    assert_string_equal(command(rig, 0)->name, "demo.scale");
    assert_int_equal(command(rig, 0)->worker_count, 3);
    assert_ok(tutti_session_call(session, &held, NULL, 0, NULL, &ticket, &err));
    assert_ok(tutti_session_wait(session, ticket, NULL, &err));
    assert_string_equal(command(rig, 1)->name, "register");
    assert_ok(tutti_session_close(session, &err));
}

static void
test_commands__refuse_what_no_message_can_say(void **state)
{
    client_rig *rig = *state;
    static const tutti_value many[TUTTI_ARGUMENTS_MAX + 1];
    static char long_text[TUTTI_VALUE_BYTES_MAX + 2];
    const tutti_value function = tutti_value_function("f");
    const tutti_value tensor = tutti_value_tensor("weights");
    const tutti_value name = tutti_value_named("weights");
    tutti_session *session = open_session(rig);
    tutti_value text;
    tutti_session_move move = {0};
    tutti_error err;

    memset(long_text, 'x', sizeof(long_text) - 1);
    text = tutti_value_text(long_text);
    assert_fails(tutti_session_set(session, 1, &tensor, NULL, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_VALUE");
    assert_fails(tutti_session_set(session, 1, &text, NULL, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "at most 1048576");
    assert_fails(tutti_session_call(session, &function, &name, 1, NULL, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "argument 1 is a name");
    assert_fails(tutti_session_call(session, &name, NULL, 0, NULL, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_fails(
        tutti_session_call(session, &function, many, TUTTI_ARGUMENTS_MAX + 1, NULL, NULL, &err),
        TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "ARGUMENT_LIMIT");
    assert_fails(tutti_session_all_gather(session, &move, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_ok(tutti_session_sync(session, NULL, &err));
    assert_int_equal(atomic_load(&rig->agent.drive_count), 1); /* the sync alone */
    assert_ok(tutti_session_close(session, &err));
}

/* ------------------------------------------------------------------------------ results */

static void
test_results__come_under_their_tickets_in_any_order(void **state)
{
    client_rig *rig = *state;
    tutti_session *session = open_session(rig);
    tutti_session_result result = {0};
    uint64_t tickets[4];
    bool ended = true;
    tutti_error err;
    int i;

    rig->agent.script.session_hold = 3; /* the fourth answer brings all, itself first */
    for (i = 0; i < 3; i++) {
        assert_ok(tutti_session_get(session, 1, NULL, &tickets[i], &err));
    }
    assert_ok(tutti_session_poll(session, tickets[0], 1, &ended, &err));
    assert_false(ended);
    assert_ok(tutti_session_load_module(session, 0, "mlp.so", NULL, &tickets[3], &err));
    assert_int_equal(tutti_session_count(session), 4);
    assert_ok(tutti_session_next(session, &result, &err));
    assert_int_equal(result.ticket, tickets[3]);
    assert_int_equal(result.function_count, 1);
    assert_string_equal(result.functions[0].name, "mlp.forward");
    tutti_session_result_free(&result);
    assert_ok(tutti_session_wait(session, tickets[0], &result, &err));
    assert_int_equal(result.value_count, 2);
    tutti_session_result_free(&result);
    assert_ok(tutti_session_poll(session, tickets[1], 0, &ended, &err));
    assert_true(ended);
    assert_fails(tutti_session_wait(session, tickets[0], &result, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NOTHING_SUBMITTED");
    assert_ok(tutti_session_close(session, &err)); /* with two that nobody took */
}

static void
test_results__name_the_workers_that_failed(void **state)
{
    client_rig *rig = *state;
    tutti_session *session = open_session(rig);
    tutti_session_result result = {0};
    uint64_t ticket = 0;
    tutti_error err;

    rig->agent.script.session_fail = WHICH(GET);
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_NOT_FOUND, "NO_VALUE", "register 1");
    assert_ok(tutti_session_get(session, 1, NULL, &ticket, &err));
    assert_ok(tutti_session_wait(session, ticket, &result, &err));
    assert_int_equal(result.error.code, TUTTI_NOT_FOUND);
    assert_string_equal(result.error.reason, "NO_VALUE");
    assert_int_equal(result.failed_count, 1);
    assert_int_equal(result.failed[0].worker, 1);
    assert_string_equal(result.failed[0].error.text, "register 1");
    tutti_session_result_free(&result);
    assert_ok(tutti_session_get(session, 1, NULL, &ticket, &err));
    assert_fails(tutti_session_wait(session, ticket, NULL, &err), TUTTI_NOT_FOUND);
    assert_ok(tutti_session_close(session, &err));
}

static void
test_sync__tells_the_first_error_that_nobody_asked_for_and_once(void **state)
{
    client_rig *rig = *state;
    const tutti_value one = tutti_value_int(1);
    tutti_session *session = open_session(rig);
    tutti_error err;

    rig->agent.script.session_fail = WHICH(SET);
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_RESOURCE_EXHAUSTED, "MEMORY_LIMIT",
                         "no room");
    assert_ok(tutti_session_set(session, 1, &one, NULL, NULL, &err));
    assert_ok(tutti_session_get(session, 1, NULL, NULL, &err));
    assert_fails(tutti_session_sync(session, NULL, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "MEMORY_LIMIT");
    assert_ok(tutti_session_sync(session, NULL, &err));
    assert_ok(tutti_session_close(session, &err));
}

static void
test_commands__beyond_the_window_wait_for_answers(void **state)
{
    client_rig *rig = *state;
    tutti_session_options options;
    tutti_session *session = NULL;
    const tutti_value one = tutti_value_int(1);
    tutti_error err;
    int i;

    rig->agent.script.session_workers = 2;
    tutti_session_options_init(&options);
    options.in_flight_max = 4;
    assert_ok(tutti_session_open(rig->client, &options, &session, &err));
    for (i = 0; i < 5000; i++) {
        assert_ok(tutti_session_set(session, 1, &one, NULL, NULL, &err));
    }
    assert_ok(tutti_session_sync(session, NULL, &err));
    assert_int_equal(atomic_load(&rig->agent.drive_count), 5001);
    assert_ok(tutti_session_close(session, &err));
}

/* ------------------------------------------------------------------------------ bytes */

static void
test_put__makes_the_tensor_in_the_session_and_writes_at_the_worker(void **state)
{
    client_rig *rig = *state;
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 2, {2, 3}};
    const float data[6] = {1, 2, 3, 4, 5, 6};
    tutti_session *session = open_session(rig);
    float back[6] = {0};
    tutti_error err;

    assert_ok(tutti_session_put(session, 0, 3, &spec, data, NULL, &err));
    assert_int_equal(command(rig, 0)->which, WHICH(EMPTY));
    assert_int_equal(command(rig, 0)->into, 3);
    assert_int_equal(command(rig, 0)->worker_count, 1);
    assert_int_equal(atomic_load(&rig->agent.put_count), 1);
    assert_ok(tutti_session_read(session, 0, 3, back, sizeof(back), NULL, &err));
    assert_int_equal(command(rig, 1)->which, WHICH(FLUSH));
    assert_memory_equal(back, data, sizeof(data));
    assert_ok(tutti_session_write(session, 0, 3, &spec, back, NULL, &err));
    assert_int_equal(command(rig, 2)->which, WHICH(FLUSH));
    assert_fails(tutti_session_put(session, 2, 3, &spec, data, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_WORKER");
    assert_ok(tutti_session_close(session, &err));
}

static void
test_client__of_a_worker_must_be_the_rank_that_was_told(void **state)
{
    client_rig *rig = *state;
    tutti_session *session = open_session(rig);
    tutti_client *client = NULL;
    tutti_error err;

    rig->agent.script.rank = 1;
    assert_ok(tutti_session_client(session, 1, &client, &err)); /* "worker 1" is this agent, too */
    assert_ptr_not_equal(client, rig->client);
    assert_ok(tutti_session_client(session, 0, &client, &err));
    assert_ptr_equal(client, rig->client);
    assert_ok(tutti_session_close(session, &err));
    session = open_session(rig);
    rig->agent.script.rank = 0;
    assert_fails(tutti_session_client(session, 1, &client, &err), TUTTI_UNAVAILABLE);
    assert_text_has(err.text, "worker 1 is rank 1");
    assert_ok(tutti_session_close(session, &err));
}

/* ------------------------------------------------------------------------------ endings */

static void
test_session__that_breaks_says_how_each_time(void **state)
{
    client_rig *rig = *state;
    const tutti_value one = tutti_value_int(1);
    tutti_session *session = open_session(rig);
    tutti_session_result result = {0};
    uint64_t ticket = 0;
    tutti_error err;

    rig->agent.script.session_end = WHICH(GET);
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_UNAVAILABLE, "STOPPING", "it stops");
    assert_ok(tutti_session_get(session, 1, NULL, &ticket, &err));
    assert_fails(tutti_session_wait(session, ticket, &result, &err), TUTTI_UNAVAILABLE);
    assert_string_equal(err.reason, "STOPPING");
    assert_fails(tutti_session_set(session, 1, &one, NULL, NULL, &err), TUTTI_UNAVAILABLE);
    assert_string_equal(err.reason, "STOPPING");
    assert_fails(tutti_session_sync(session, NULL, &err), TUTTI_UNAVAILABLE);
    assert_fails(tutti_session_close(session, &err), TUTTI_UNAVAILABLE);
    assert_string_equal(err.reason, "STOPPING");
}

static void
test_session__ends_when_answers_are_for_nobody(void **state)
{
    client_rig *rig = *state;
    tutti_session *session = open_session(rig);
    tutti_error err;

    rig->agent.script.session_stranger = true;
    assert_fails(tutti_session_sync(session, NULL, &err), TUTTI_DATA_LOSS);
    assert_text_has(err.text, "which was not given");
    assert_fails(tutti_session_close(session, &err), TUTTI_DATA_LOSS);
    fake_agent_settle(&rig->agent);
}

static void
test_cancel__lets_go_of_who_waits(void **state)
{
    client_rig *rig = *state;
    tutti_session *session = open_session(rig);
    uint64_t ticket = 0;
    tutti_error err;

    rig->agent.script.session_hold = 5; /* no answer comes */
    assert_ok(tutti_session_get(session, 1, NULL, &ticket, &err));
    tutti_session_cancel(session);
    assert_fails(tutti_session_wait(session, ticket, NULL, &err), TUTTI_CANCELLED);
    assert_fails(tutti_session_close(session, &err), TUTTI_CANCELLED);
    fake_agent_settle(&rig->agent);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        client_test(test_open__tells_workers_groups_and_the_leader),
        client_test(test_open__fails_as_the_leader_says),
        client_test(test_open__does_not_wait_for_ever),
        client_test(test_resume__knows_which_registers_are_taken),
        client_test(test_registers__are_given_lowest_first_and_the_last_dropped_before),
        client_test(test_registers__that_a_program_has_chosen_are_not_given),
        client_test(test_commands__say_what_is_moved_where),
        client_test(test_call__takes_values_and_registers_and_gives_each_workers_result),
        client_test(test_commands__refuse_what_no_message_can_say),
        client_test(test_results__come_under_their_tickets_in_any_order),
        client_test(test_results__name_the_workers_that_failed),
        client_test(test_sync__tells_the_first_error_that_nobody_asked_for_and_once),
        client_test(test_commands__beyond_the_window_wait_for_answers),
        client_test(test_put__makes_the_tensor_in_the_session_and_writes_at_the_worker),
        client_test(test_client__of_a_worker_must_be_the_rank_that_was_told),
        client_test(test_session__that_breaks_says_how_each_time),
        client_test(test_session__ends_when_answers_are_for_nobody),
        client_test(test_cancel__lets_go_of_who_waits),
    };

    return cmocka_run_group_tests(tests, client_rig_open, client_rig_close);
}
