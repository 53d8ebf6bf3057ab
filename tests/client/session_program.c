/*
 * Goal: libtutti's sessions do with four real agents what tutti/session.h says.
 * Method: one controller, run by tests/system/test_session_program.py:
 * `tutti run -n 4 -- session_program`. Ranks other than 0 have nothing to do.
 */
#include "support/testing.h"

#include "tutti/session.h"
#include "tutti/tutti.h"

#define WORKERS 4

typedef struct rig {
    tutti_client *client;
    tutti_session *session;
} rig;

static int
open_rig(void **state, uint32_t num_groups)
{
    static rig self;
    tutti_session_options options;
    tutti_error err;

    tutti_session_options_init(&options);
    options.num_groups = num_groups;
    assert_ok(tutti_connect(NULL, &self.client, &err));
    assert_ok(tutti_session_open(self.client, &options, &self.session, &err));
    assert_int_equal(tutti_session_describe(self.session)->worker_count, WORKERS);
    *state = &self;
    return 0;
}

static int
set_up(void **state)
{
    return open_rig(state, 1);
}

static int
set_up_groups(void **state)
{
    return open_rig(state, 2);
}

/* Nothing of a session is left on any worker. */
static int
tear_down(void **state)
{
    rig *self = *state;
    tutti_agent_stats stats = {0};
    tutti_error err;
    int i;

    assert_ok(tutti_session_close(self->session, &err));
    for (i = 0; i < 5000; i++) {
        assert_ok(tutti_agent_stat(self->client, &stats, &err));
        if (stats.tensor_count == 0) {
            break;
        }
    }
    assert_int_equal(stats.tensor_count, 0);
    tutti_close(self->client);
    return 0;
}

static uint32_t
new_register(rig *self)
{
    uint32_t reg = 0;
    tutti_error err;

    assert_ok(tutti_session_register(self->session, &reg, &err));
    return reg;
}

/* On each worker {first, first + 1, first + 2, first + 3}, first = 10 x worker. */
static uint32_t
filled(rig *self)
{
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {4}};
    const uint32_t reg = new_register(self);
    tutti_error err;
    uint32_t worker;
    float data[4];
    int i;

    assert_ok(tutti_session_empty(self->session, reg, &spec, NULL, NULL, &err));
    for (worker = 0; worker < WORKERS; worker++) {
        for (i = 0; i < 4; i++) {
            data[i] = (float)(10 * (int)worker + i);
        }
        assert_ok(tutti_session_write(self->session, worker, reg, &spec, data, NULL, &err));
    }
    return reg;
}

static void
assert_holds(rig *self, uint32_t worker, uint32_t reg, const float *expected, size_t count)
{
    float data[64] = {0};
    tutti_error err;
    size_t i;

    assert_ok(
        tutti_session_read(self->session, worker, reg, data, count * sizeof(float), NULL, &err));
    for (i = 0; i < count; i++) {
        assert_true(data[i] == expected[i]);
    }
}

static tutti_session_move
move_into(uint32_t src, uint32_t into)
{
    tutti_session_move move;

    tutti_session_move_init(&move);
    move.src = src;
    move.into = into;
    return move;
}

/* ------------------------------------------------------------------------------ all workers */

static void
test_all_reduce__of_all_workers_is_on_all(void **state)
{
    rig *self = *state;
    const float sums[4] = {60, 64, 68, 72};
    const uint32_t x = filled(self);
    const uint32_t sum = new_register(self);
    tutti_session_move move = move_into(x, sum);
    tutti_error err;
    uint32_t worker;

    assert_ok(tutti_session_all_reduce(self->session, &move, TUTTI_REDUCE_SUM, NULL, &err));
    assert_ok(tutti_session_sync(self->session, NULL, &err));
    for (worker = 0; worker < WORKERS; worker++) {
        assert_holds(self, worker, sum, sums, 4);
    }
}

static void
test_put__is_broadcast_and_gathered(void **state)
{
    rig *self = *state;
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 2, {2, 1}};
    const float data[2] = {5, 6};
    const float gathered[8] = {5, 6, 5, 6, 5, 6, 5, 6};
    const uint32_t x = new_register(self);
    const uint32_t all = new_register(self);
    tutti_session_result result = {0};
    tutti_session_move move = move_into(x, x);
    uint64_t ticket = 0;
    tutti_error err;

    assert_ok(tutti_session_put(self->session, 0, x, &spec, data, NULL, &err));
    assert_ok(tutti_session_broadcast_from_worker0(self->session, &move, NULL, &err));
    move = move_into(x, all);
    assert_ok(tutti_session_all_gather(self->session, &move, NULL, &err));
    assert_ok(tutti_session_get(self->session, all, NULL, &ticket, &err));
    assert_ok(tutti_session_wait(self->session, ticket, &result, &err));
    assert_int_equal(result.error.code, TUTTI_OK);
    assert_int_equal(result.value_count, WORKERS);
    assert_int_equal(result.values[3].value.kind, TUTTI_VALUE_TENSOR);
    assert_int_equal(result.values[3].value.spec.dims[0], 8);
    assert_int_equal(result.values[3].value.spec.dims[1], 1);
    tutti_session_result_free(&result);
    assert_holds(self, 3, all, gathered, 8);
    assert_ok(tutti_session_sync(self->session, NULL, &err));
}

static void
test_put__of_many_bytes_goes_through_streams(void **state)
{
    rig *self = *state;
    const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {5 << 20}};
    unsigned char *data = malloc((size_t)5 << 20);
    unsigned char *back = calloc(1, (size_t)5 << 20);
    const uint32_t x = new_register(self);
    tutti_error err;
    size_t i;

    assert_non_null(data);
    assert_non_null(back);
    for (i = 0; i < (size_t)5 << 20; i++) {
        data[i] = (unsigned char)(i * 31 >> 3);
    }
    assert_ok(tutti_session_put(self->session, 2, x, &spec, data, NULL, &err));
    assert_ok(tutti_session_read(self->session, 2, x, back, (uint64_t)5 << 20, NULL, &err));
    assert_memory_equal(data, back, (size_t)5 << 20);
    assert_fails(tutti_session_read(self->session, 1, x, back, 4, NULL, &err), TUTTI_NOT_FOUND);
    free(data);
    free(back);
}

static void
test_scatter__and_gather_and_transfer_move_parts(void **state)
{
    rig *self = *state;
    const float second[1] = {1};
    const float whole[4] = {0, 1, 2, 3};
    const uint32_t x = filled(self);
    const uint32_t part = new_register(self);
    const uint32_t back = new_register(self);
    tutti_session_move move = move_into(x, part);
    tutti_error err;

    assert_ok(tutti_session_scatter_from_worker0(self->session, &move, NULL, &err));
    move = move_into(part, back);
    assert_ok(tutti_session_gather_to_worker0(self->session, &move, NULL, &err));
    assert_holds(self, 1, part, second, 1);
    assert_holds(self, 0, back, whole, 4);
    move = move_into(x, back);
    assert_ok(tutti_session_transfer(self->session, &move, 0, 3, NULL, &err));
    assert_holds(self, 3, back, whole, 4);
    assert_ok(tutti_session_sync(self->session, NULL, &err));
}

/* ------------------------------------------------------------------------------ groups */

static void
test_groups__reduce_by_themselves_and_send_to_the_next(void **state)
{
    rig *self = *state;
    const float first[4] = {10, 12, 14, 16};
    const float second[4] = {50, 52, 54, 56};
    const float sent[4] = {10, 11, 12, 13};
    const uint32_t x = filled(self);
    const uint32_t sum = new_register(self);
    const uint32_t got = new_register(self);
    tutti_session_move move = move_into(x, sum);
    tutti_error err;

    move.in_group = true;
    assert_ok(tutti_session_all_reduce(self->session, &move, TUTTI_REDUCE_SUM, NULL, &err));
    move = move_into(x, 0);
    assert_ok(tutti_session_send_to_next_group(self->session, &move, NULL, &err));
    move = move_into(0, got);
    assert_ok(tutti_session_recv_from_prev_group(self->session, &move, NULL, &err));
    assert_ok(tutti_session_sync(self->session, NULL, &err));
    assert_holds(self, 1, sum, first, 4);
    assert_holds(self, 2, sum, second, 4);
    assert_holds(self, 3, got, sent, 4);
}

/* ------------------------------------------------------------------------------ what fails */

static void
test_errors__name_workers_and_leave_the_session_going(void **state)
{
    rig *self = *state;
    const uint32_t x = filled(self);
    const uint32_t none = new_register(self);
    tutti_session_move move = move_into(none, x);
    tutti_session_result result = {0};
    uint64_t ticket = 0;
    tutti_error err;

    assert_ok(tutti_session_get(self->session, 0, NULL, NULL, &err));
    assert_fails(tutti_session_sync(self->session, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_REGISTER");
    move = move_into(none, new_register(self));
    assert_ok(tutti_session_copy(self->session, &move, NULL, &ticket, &err));
    assert_ok(tutti_session_wait(self->session, ticket, &result, &err));
    assert_int_equal(result.error.code, TUTTI_NOT_FOUND);
    assert_int_equal(result.failed_count, WORKERS);
    assert_int_equal(result.failed[2].worker, 2);
    tutti_session_result_free(&result);
    assert_ok(tutti_session_drop(self->session, &x, 1, NULL, &err));
    assert_ok(tutti_session_sync(self->session, NULL, &err));
}

static void
test_set__is_got_back_from_each_worker(void **state)
{
    rig *self = *state;
    const tutti_value word = tutti_value_text("tutti");
    const uint32_t third = 2;
    const tutti_workers on = {&third, 1};
    const uint32_t reg = new_register(self);
    tutti_session_result result = {0};
    uint64_t ticket = 0;
    tutti_error err;

    assert_ok(tutti_session_set(self->session, reg, &word, &on, NULL, &err));
    assert_ok(tutti_session_get(self->session, reg, NULL, &ticket, &err));
    assert_ok(tutti_session_wait(self->session, ticket, &result, &err));
    assert_int_equal(result.error.code, TUTTI_OK);
    assert_int_equal(result.value_count, WORKERS);
    assert_int_equal(result.values[0].value.kind, TUTTI_VALUE_NULL);
    assert_int_equal(result.values[2].value.kind, TUTTI_VALUE_TEXT);
    assert_string_equal(result.values[2].value.u.text, "tutti");
    tutti_session_result_free(&result);
    assert_ok(tutti_session_sync(self->session, NULL, &err));
}

static void
test_call__runs_on_each_worker(void **state)
{
    rig *self = *state;
    const tutti_value function = tutti_value_function("runtime.disco.worker_id");
    const tutti_value held = tutti_value_register(9);
    tutti_session_result result = {0};
    uint64_t ticket = 0;
    uint32_t worker;
    tutti_error err;

    assert_ok(tutti_session_get_function(self->session, 9, "runtime.disco.worker_id", NULL, &err));
    assert_ok(tutti_session_call(self->session, &held, NULL, 0, NULL, &ticket, &err));
    assert_ok(tutti_session_wait(self->session, ticket, &result, &err));
    assert_int_equal(result.error.code, TUTTI_OK);
    for (worker = 0; worker < WORKERS; worker++) {
        assert_int_equal(result.values[worker].value.kind, TUTTI_VALUE_INT);
        assert_int_equal(result.values[worker].value.u.integer, worker);
    }
    tutti_session_result_free(&result);
    assert_ok(tutti_session_call(self->session, &function, NULL, 0, NULL, NULL, &err));
    assert_ok(tutti_session_sync(self->session, NULL, &err));
}

/* The rig's session is in the way of none: this one is another. */
static void
test_resume__finds_registers_as_they_were(void **state)
{
    rig *self = *state;
    const tutti_value word = tutti_value_text("kept");
    unsigned char secret[TUTTI_SESSION_SECRET_BYTES];
    char id[TUTTI_SESSION_ID_MAX + 1];
    tutti_session_options options;
    tutti_session *session = NULL;
    tutti_session_result result = {0};
    uint64_t ticket = 0;
    uint32_t reg = 0;
    tutti_error err;

    tutti_session_options_init(&options);
    options.linger = true;
    assert_ok(tutti_session_open(self->client, &options, &session, &err));
    assert_int_equal(tutti_session_describe(session)->secret_bytes, sizeof(secret));
    memcpy(secret, tutti_session_describe(session)->secret, sizeof(secret));
    memcpy(id, tutti_session_describe(session)->id, sizeof(id));
    assert_ok(tutti_session_set(session, 3, &word, NULL, NULL, &err));
    assert_ok(tutti_session_sync(session, NULL, &err));
    assert_ok(tutti_session_close(session, &err));
    secret[0] ^= 1;
    assert_fails(tutti_session_resume(self->client, id, secret, NULL, &session, &err),
                 TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_SESSION");
    secret[0] ^= 1;
    options.linger = false; /* the next end is the last */
    assert_ok(tutti_session_resume(self->client, id, secret, &options, &session, &err));
    assert_ok(tutti_session_get(session, 3, NULL, &ticket, &err));
    assert_ok(tutti_session_wait(session, ticket, &result, &err));
    assert_int_equal(result.value_count, WORKERS);
    assert_string_equal(result.values[0].value.u.text, "kept");
    tutti_session_result_free(&result);
    assert_ok(tutti_session_register(session, &reg, &err));
    assert_int_equal(reg, 1);
    assert_ok(tutti_session_close(session, &err));
}

int
main(void)
{
#define ALL(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TWO(name) cmocka_unit_test_setup_teardown(name, set_up_groups, tear_down)
    const struct CMUnitTest tests[] = {
        ALL(test_all_reduce__of_all_workers_is_on_all),
        ALL(test_put__is_broadcast_and_gathered),
        ALL(test_put__of_many_bytes_goes_through_streams),
        ALL(test_scatter__and_gather_and_transfer_move_parts),
        TWO(test_groups__reduce_by_themselves_and_send_to_the_next),
        ALL(test_errors__name_workers_and_leave_the_session_going),
        ALL(test_set__is_got_back_from_each_worker),
        ALL(test_call__runs_on_each_worker),
        ALL(test_resume__finds_registers_as_they_were),
    };
    const char *rank = getenv("RANK");

    if (rank != NULL && strcmp(rank, "0") != 0) {
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
