/*
 * Goal: whichever allocation fails, a completion queue says so, and each submission that succeeded has exactly one
 * completion. Method: one rank against a real agent, run by tests/system/test_queue.py: `tutti run -n 1 --
 * queue_sweep_program`; the n-th allocation of libtutti's own code fails, for every n.
 */
#include "support/sweep.h"
#include "support/testing.h"

#include "tutti/tutti.h"

#define MOST 200 /* allocations of one call: more are not expected, and would be found */

typedef struct rig {
    tutti_client *client;
    tutti_queue *queue;
    float given[2];
    float result[2];
} rig;

static const tutti_spec pair = {TUTTI_DTYPE_FP32, 1, {2}};

static int
set_up(void **state)
{
    static rig self;
    tutti_error err;

    self = (rig){.given = {1, 2}};
    assert_ok(tutti_connect(NULL, &self.client, &err));
    assert_ok(tutti_queue_open(self.client, NULL, &self.queue, &err));
    *state = &self;
    return 0;
}

static int
tear_down(void **state)
{
    rig *self = *state;
    tutti_agent_stats stats;
    tutti_error err;

    assert_ok(tutti_queue_close(self->queue, &err));
    assert_ok(tutti_agent_stat(self->client, &stats, &err));
    assert_int_equal(stats.tensor_count, 0);
    tutti_close(self->client);
    return 0;
}

static tutti_code
submit(rig *self, void *user, tutti_error *err)
{
    const tutti_op_data data = {.spec = pair,
                                .data = self->given,
                                .result = self->result,
                                .result_bytes = sizeof(self->result)};

    memset(self->result, 0, sizeof(self->result));
    return tutti_queue_submit_data(self->queue, TUTTI_OP_ALL_REDUCE, NULL, &data, user, NULL, err);
}

static tutti_code
submit_list(rig *self, void *user, tutti_error *err)
{
    const tutti_op_data arrays[2] = {
        {.spec = pair, .data = self->given, .result = self->result, .result_bytes = 8},
        {.spec = {TUTTI_DTYPE_FP32, 0, {0}},
         .data = self->given,
         .result = self->result + 1,
         .result_bytes = 4},
    };

    return tutti_queue_submit_list(self->queue, TUTTI_OP_ALL_REDUCE, NULL, arrays, 2, user, NULL,
                                   err);
}

/* The one completion that is due, however often it is asked for. */
static tutti_queue_completion
take_due(rig *self, const void *user)
{
    tutti_queue_completion done = {0};
    tutti_error err;

    assert_ok(tutti_queue_next(self->queue, TUTTI_QUEUE_FOREVER, &done, &err));
    assert_ptr_equal(done.user, user);
    tutti_op_more_free(&done.more);
    assert_int_equal(tutti_queue_count(self->queue), 0);
    return done;
}

static void
test_sweep__opening_fails_or_gives_a_queue_that_works(void **state)
{
    rig *self = *state;
    tutti_queue *queue;
    tutti_error err;
    bool more = true;
    size_t n;

    for (n = 0; more; n++) {
        tutti_code code;

        assert_true(n < MOST);
        queue = NULL;
        sweep_fail_at(n);
        code = tutti_queue_open(self->client, NULL, &queue, &err);
        more = sweep_stop();
        if (code == TUTTI_OK) {
            assert_ok(tutti_queue_close(queue, &err));
        } else {
            assert_int_equal(code, TUTTI_RESOURCE_EXHAUSTED);
            assert_true(err.text[0] != '\0');
        }
    }
    assert_true(n > 2);
}

/* A queue whose stream had no memory for an answer has failed as a whole. */
static void
open_anew(rig *self)
{
    tutti_error err;

    assert_ok(tutti_queue_close(self->queue, &err));
    assert_ok(tutti_queue_open(self->client, NULL, &self->queue, &err));
}

/* One allocation fails, between the submission and the end of its completion. How many have been told? */
static size_t
sweep_submissions(rig *self, tutti_code (*submit_one)(rig *, void *, tutti_error *))
{
    tutti_queue_completion done;
    tutti_error err;
    bool more = true;
    size_t told = 0;
    size_t n;

    for (n = 0; more; n++) {
        tutti_code code;

        assert_true(n < MOST);
        sweep_fail_once(n);
        code = submit_one(self, &n, &err);
        if (code == TUTTI_OK) {
            done = take_due(self, &n);
        }
        more = sweep_stop();
        assert_int_equal(tutti_queue_count(self->queue), 0);
        if (code == TUTTI_OK && done.error.code == TUTTI_OK) {
            assert_true(self->result[0] == 1);
            continue;
        }
        assert_int_equal(code == TUTTI_OK ? done.error.code : code, TUTTI_RESOURCE_EXHAUSTED);
        assert_true((code == TUTTI_OK ? done.error.text : err.text)[0] != '\0');
        told++;
        if (code == TUTTI_OK) {
            open_anew(self);
        }
    }
    return told;
}

static void
test_sweep__a_submission_is_refused_or_completed(void **state)
{
    assert_true(sweep_submissions(*state, submit) >= 2); /* refused, and an answer */
}

static void
test_sweep__a_list_is_refused_or_completed(void **state)
{
    assert_true(sweep_submissions(*state, submit_list) >= 5);
}

static void
test_sweep__a_cancel_fails_or_cancels(void **state)
{
    rig *self = *state;
    tutti_error err;
    bool more = true;
    size_t n;

    for (n = 0; more; n++) {
        const tutti_op_data data = {.spec = pair, .result = self->result, .result_bytes = 8};
        tutti_op op;
        tutti_code code;
        uint64_t id = 0;

        assert_true(n < MOST);
        tutti_op_init(&op);
        op.peer = TUTTI_ANY_SOURCE; /* nobody is there: it waits */
        assert_ok(tutti_queue_submit_data(self->queue, TUTTI_OP_RECV, &op, &data, &n, &id, &err));
        sweep_fail_at(n);
        code = tutti_queue_cancel(self->queue, id, &err);
        more = sweep_stop();
        if (code != TUTTI_OK) {
            assert_int_equal(code, TUTTI_RESOURCE_EXHAUSTED);
            assert_ok(tutti_queue_cancel(self->queue, id, &err));
        }
        assert_int_equal(take_due(self, &n).error.code, TUTTI_CANCELLED);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_sweep__opening_fails_or_gives_a_queue_that_works),
        TEST(test_sweep__a_submission_is_refused_or_completed),
        TEST(test_sweep__a_list_is_refused_or_completed),
        TEST(test_sweep__a_cancel_fails_or_cancels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
