/*
 * Goal: an op that cannot end well ends for every rank, in bounded time, with the culprit named,
 * and its group goes on. Method: calls that differ, refusals, deadlines, cancellations, ranks that
 * die, freeze and come back, on the fake transport, where all of these are exact.
 */
#include "support/testing.h"

#include <sched.h>

#include "base/os/clock.h"
#include "coll/state/engine.h"
#include "support/world.h"

#define LONG_MS 15000
#define SHORT_MS 100

static int32_t numbers[WORLD_MAX];

/* An all_reduce of one number on one rank: `count` elements of INT32 are claimed. */
static run *
reduce_one(world *w, uint32_t rank, int64_t count, uint64_t timeout_ms)
{
    run *self = run_new(TUTTI_COLL_ALL_REDUCE);

    numbers[rank] = (int32_t)rank + 1;
    run_give(self, TUTTI_DTYPE_INT32, count, &numbers[rank], &numbers[rank]);
    run_post(self, w->groups[rank], timeout_ms);
    return self;
}

static void
check_group_works(world *w)
{
    run *runs[WORLD_MAX];
    uint32_t i;

    for (i = 0; i < w->size; i++) {
        runs[i] = reduce_one(w, i, 1, LONG_MS);
    }
    for (i = 0; i < w->size; i++) {
        if (run_wait(runs[i]) != TUTTI_OK) {
            fail_msg("the group does not go on: %s", runs[i]->err.text);
        }
        assert_int_equal(numbers[i], w->size * (w->size + 1) / 2);
        run_free(runs[i]);
    }
}

/* Back when rank `to` has heard all that `from` said before: the fake transport keeps the order. */
static void
hear(world *w, uint32_t from, uint32_t to)
{
    run *sent = run_new(TUTTI_COLL_SEND);
    run *got = run_new(TUTTI_COLL_RECV);

    run_give(sent, TUTTI_DTYPE_INT32, 1, &numbers[from], NULL);
    sent->op.args.peer = to;
    got->op.args.peer = from;
    run_post(sent, w->groups[from], LONG_MS);
    run_post(got, w->groups[to], LONG_MS);
    assert_int_equal(run_wait(got), TUTTI_OK);
    assert_int_equal(run_wait(sent), TUTTI_OK);
    run_free(sent);
    run_free(got);
}

static void
test_mismatch__is_the_same_error_on_every_rank_and_touches_no_data(void **state)
{
    run *runs[WORLD_MAX];
    world w;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 5);
    for (i = 0; i < w.size; i++) {
        runs[i] = reduce_one(&w, i, i == 3 ? 2 : 1, LONG_MS);
    }
    for (i = 0; i < w.size; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_INVALID_ARGUMENT);
        assert_string_equal(runs[i]->err.reason, "SHAPE_MISMATCH");
        assert_string_equal(runs[i]->err.text,
                            "group world op 1: shape differs: rank 3 called all_reduce(sum, "
                            "INT32[2]), ranks 0-2, 4 all_reduce(sum, INT32[1])");
        assert_int_equal(runs[i]->err.rank, 3);
        assert_int_equal(runs[i]->err.sequence, 1);
        assert_string_equal(runs[i]->err.group, "world");
        assert_int_equal(numbers[i], i + 1);
        run_free(runs[i]);
    }
    check_group_works(&w);
    world_close(&w);
}

/* A retry of what has succeeded elsewhere must not be summed with the others' next step. */
static void
test_mismatch__of_steps_names_who_is_at_which(void **state)
{
    static const uint64_t steps[3] = {UINT64_MAX - 1, UINT64_MAX, UINT64_MAX};
    world w;
    run *runs[3];
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    for (i = 0; i < 3; i++) {
        runs[i] = run_new(TUTTI_COLL_ALL_REDUCE);
        numbers[i] = 1;
        run_give(runs[i], TUTTI_DTYPE_INT32, 1, &numbers[i], &numbers[i]);
        runs[i]->op.args.step = steps[i];
        run_post(runs[i], w.groups[i], LONG_MS);
    }
    for (i = 0; i < 3; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_FAILED_PRECONDITION);
        assert_string_equal(runs[i]->err.reason, "OP_MISMATCH");
        assert_int_equal(runs[i]->err.rank, 0);
        assert_text_has(runs[i]->err.text,
                        "step differs: rank 0 called all_reduce(sum, INT32[1]) at step "
                        "18446744073709551614, ranks 1, 2 all_reduce(sum, INT32[1]) at step "
                        "18446744073709551615");
        assert_int_equal(numbers[i], 1);
        run_free(runs[i]);
    }
    check_group_works(&w);
    world_close(&w);
}

static void
test_mismatch__of_a_step_and_none_is_found(void **state)
{
    world w;
    run *one;
    run *other;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    one = reduce_one(&w, 0, 1, LONG_MS);
    other = run_new(TUTTI_COLL_BARRIER);
    other->op.args.step = 7;
    run_post(other, w.groups[1], LONG_MS);
    assert_int_equal(run_wait(one), TUTTI_FAILED_PRECONDITION);
    assert_int_equal(run_wait(other), TUTTI_FAILED_PRECONDITION);
    assert_text_has(one->err.text, "rank 0 called all_reduce(sum, INT32[1]) without a step");
    assert_text_has(one->err.text, "rank 1 barrier() at step 7");
    run_free(one);
    run_free(other);
    check_group_works(&w);
    world_close(&w);
}

static void
test_mismatch__of_ops_is_found_too(void **state)
{
    world w;
    run *one;
    run *other;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    one = reduce_one(&w, 0, 1, LONG_MS);
    other = run_new(TUTTI_COLL_BARRIER);
    run_post(other, w.groups[1], LONG_MS);
    assert_int_equal(run_wait(one), TUTTI_FAILED_PRECONDITION);
    assert_int_equal(run_wait(other), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(one->err.reason, "OP_MISMATCH");
    assert_string_equal(one->err.text, other->err.text);
    run_free(one);
    run_free(other);
    check_group_works(&w);
    world_close(&w);
}

static void
test_refusal__of_one_rank_is_heard_by_all_before_and_after_they_call(void **state)
{
    run *runs[3];
    world w;
    tutti_error why;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    (void)TUTTI_FAIL_FOR(&why, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE", "dimension -1");
    runs[0] = reduce_one(&w, 0, 1, LONG_MS); /* calls before */
    assert_int_equal(tutti_coll_refuse(w.groups[1], 0, &why), 1);
    assert_int_equal(run_wait(runs[0]), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(runs[0]->err.text, "group world op 1: rank 1 was refused: dimension -1");
    assert_string_equal(runs[0]->err.reason, "BAD_SHAPE");
    assert_int_equal(runs[0]->err.rank, 1);
    runs[2] = reduce_one(&w, 2, 1, LONG_MS); /* calls after */
    assert_int_equal(run_wait(runs[2]), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(runs[2]->err.text, runs[0]->err.text);
    run_free(runs[0]);
    run_free(runs[2]);
    check_group_works(&w);
    world_close(&w);
}

static void
test_deadline__names_who_has_not_called_and_what_it_did_last(void **state)
{
    run *runs[4];
    world w;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 4);
    check_group_works(&w);
    for (i = 0; i < 3; i++) {
        runs[i] = reduce_one(&w, i, 1, i == 0 ? SHORT_MS : LONG_MS);
    }
    for (i = 0; i < 3; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_DEADLINE_EXCEEDED);
        assert_string_equal(runs[i]->err.reason, "TIMEOUT");
        assert_text_has(runs[i]->err.text, "group world op 2 all_reduce(sum, INT32[1]) timed out");
        assert_text_has(runs[i]->err.text,
                        "; rank 3 has not called it (last: op 1 all_reduce(sum, INT32[1]))");
        assert_int_equal(runs[i]->err.rank, 3);
        assert_string_equal(runs[i]->err.text, runs[0]->err.text);
    }
    for (i = 0; i < 3; i++) {
        run_free(runs[i]);
    }
    /* Too late: it gets the same word. Before it has heard that word it would find all that it
     * needs, for what the others gave came with their signatures. */
    for (i = 0; i < 3; i++) {
        hear(&w, i, 3);
    }
    runs[3] = reduce_one(&w, 3, 1, LONG_MS);
    assert_int_equal(run_wait(runs[3]), TUTTI_DEADLINE_EXCEEDED);
    assert_text_has(runs[3]->err.text, "rank 3 has not called it");
    run_free(runs[3]);
    check_group_works(&w);
    world_close(&w);
}

static void
test_deadline__says_who_does_not_answer(void **state)
{
    world w;
    run *one;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    check_group_works(&w);
    fake_transport_freeze(w.wires[1], true);
    one = reduce_one(&w, 0, 1, 10 * SHORT_MS); /* rank 2 has time to answer */
    assert_int_equal(run_wait(one), TUTTI_DEADLINE_EXCEEDED);
    assert_text_has(one->err.text, "rank 1 does not answer");
    assert_text_has(one->err.text, "rank 2 has not called it");
    assert_int_equal(one->err.rank, TUTTI_ERROR_RANK_NONE);
    run_free(one);
    fake_transport_freeze(w.wires[1], false);
    world_close(&w);
}

static void
test_deadline__frees_memory_that_a_frozen_rank_holds(void **state)
{
    enum {
        COUNT = 1 << 20
    };
    world w;
    uint32_t i;
    run *runs[2];
    int32_t *data[2];

    (void)state;
    world_open(&w, world_transport_fake, 2);
    check_group_works(&w);
    for (i = 0; i < 2; i++) {
        data[i] = calloc(COUNT, sizeof(int32_t));
        runs[i] = run_new(TUTTI_COLL_SEND);
        run_give(runs[i], TUTTI_DTYPE_INT32, COUNT, data[i], NULL);
        runs[i]->op.args.peer = 1 - i;
    }
    fake_transport_freeze(w.wires[1], true);
    run_post(runs[0], w.groups[0], SHORT_MS);
    assert_int_equal(run_wait(runs[0]), TUTTI_DEADLINE_EXCEEDED); /* released, too */
    assert_text_has(runs[0]->err.text, "rank 1 has not received it");
    fake_transport_freeze(w.wires[1], false);
    for (i = 0; i < 2; i++) {
        free(data[i]);
        run_free(runs[i]);
    }
    world_close(&w);
}

static void
test_cancel__is_told_to_all(void **state)
{
    world w;
    run *runs[2];
    tutti_error why;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    runs[0] = reduce_one(&w, 0, 1, LONG_MS);
    runs[1] = reduce_one(&w, 1, 1, LONG_MS);
    (void)TUTTI_FAIL_FOR(&why, TUTTI_CANCELLED, "CALLER_GONE", "rank 0's caller went away");
    tutti_coll_cancel(w.engines[0], runs[0]->op.id, &why);
    assert_int_equal(run_wait(runs[0]), TUTTI_CANCELLED);
    assert_int_equal(run_wait(runs[1]), TUTTI_CANCELLED);
    assert_text_has(runs[1]->err.text, "rank 0's caller went away");
    tutti_coll_cancel(w.engines[0], runs[0]->op.id, &why); /* once more is nothing */
    run_free(runs[0]);
    run_free(runs[1]);
    hear(&w, 0, 2);
    runs[0] = reduce_one(&w, 2, 1, LONG_MS);
    assert_int_equal(run_wait(runs[0]), TUTTI_CANCELLED);
    run_free(runs[0]);
    check_group_works(&w);
    world_close(&w);
}

static void
test_shape__that_a_receiver_cannot_take_fails_for_all(void **state)
{
    world w;
    run *runs[3];
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    for (i = 0; i < 3; i++) {
        runs[i] = run_new(TUTTI_COLL_BROADCAST);
        if (i == 0) {
            run_give(runs[i], TUTTI_DTYPE_INT32, 1, &numbers[0], &numbers[0]);
        }
        runs[i]->refuse = i == 2 ? TUTTI_RESOURCE_EXHAUSTED : TUTTI_OK;
        run_post(runs[i], w.groups[i], LONG_MS);
    }
    for (i = 0; i < 3; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_RESOURCE_EXHAUSTED);
        assert_text_has(runs[i]->err.text, "this test refuses the shape");
        run_free(runs[i]);
    }
    check_group_works(&w);
    world_close(&w);
}

static void
test_death__is_named_to_every_rank_long_before_its_deadline(void **state)
{
    world w;
    run *runs[4];
    uint64_t before;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 4);
    check_group_works(&w);
    for (i = 0; i < 3; i++) {
        runs[i] = reduce_one(&w, i, 1, LONG_MS);
    }
    before = tutti_clock_ns();
    world_kill(&w, 3);
    for (i = 0; i < 3; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_UNAVAILABLE);
        assert_string_equal(runs[i]->err.reason, "RANK_LOST");
        assert_text_has(runs[i]->err.text, "rank 3 is gone: ");
        assert_int_equal(runs[i]->err.rank, 3);
        assert_int_equal(runs[i]->err.scope, TUTTI_SCOPE_GROUP);
        run_free(runs[i]);
    }
    assert_true(tutti_clock_ns() - before < LONG_MS / 2 * TUTTI_NS_PER_MS);
    world_close(&w);
}

static void
test_loss__that_only_the_coordinator_saw_ends_ops_now_and_later(void **state)
{
    world w;
    run *one;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    check_group_works(&w);
    fake_transport_freeze(w.wires[2], true);
    one = reduce_one(&w, 0, 1, LONG_MS);
    for (i = 0; i < 2; i++) {
        tutti_coll_lose_peer(w.engines[i], 2, w.incarnations[2], "no heartbeat for 10 s");
    }
    assert_int_equal(run_wait(one), TUTTI_UNAVAILABLE);
    assert_text_has(one->err.text, "rank 2 is gone: no heartbeat for 10 s");
    run_free(one);
    one = reduce_one(&w, 1, 1, LONG_MS); /* rank 0 has told it, or it knows by itself */
    assert_int_equal(run_wait(one), TUTTI_UNAVAILABLE);
    run_free(one);
    one = reduce_one(&w, 1, 1, LONG_MS);
    assert_int_equal(run_wait(one), TUTTI_UNAVAILABLE);
    run_free(one);
    fake_transport_freeze(w.wires[2], false);
    world_close(&w);
}

static void
test_return__of_a_rank_makes_its_groups_work_again(void **state)
{
    static const uint32_t ranks[] = {0, 1, 2};
    world w;
    run *one;
    uint32_t i;
    tutti_error err;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    check_group_works(&w);
    world_kill(&w, 1);
    one = reduce_one(&w, 0, 1, LONG_MS);
    assert_int_equal(run_wait(one), TUTTI_UNAVAILABLE);
    run_free(one);
    for (i = 0; i < 3; i += 2) {
        tutti_coll_lose_peer(w.engines[i], 1, w.incarnations[1], "killed");
    }
    world_revive(&w, 1);
    assert_ok(tutti_coll_group_open(w.engines[1], 1, "world", 2, ranks, 3, &w.groups[1], &err));
    for (i = 0; i < 3; i += 2) {
        tutti_coll_set_peer(w.engines[i], 1, w.incarnations[1],
                            tutti_coll_engine_address(w.engines[1]));
        tutti_coll_group_renew(w.groups[i], 2);
        tutti_coll_group_renew(w.groups[i], 2); /* again is nothing */
    }
    check_group_works(&w);
    check_group_works(&w);
    world_close(&w);
}

static void
test_renewal__fails_what_runs_and_counts_from_one(void **state)
{
    world w;
    run *one;
    run *late;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    check_group_works(&w);
    one = reduce_one(&w, 0, 1, LONG_MS);
    tutti_coll_group_renew(w.groups[0], 2);
    assert_int_equal(run_wait(one), TUTTI_UNAVAILABLE);
    assert_string_equal(one->err.reason, "EPOCH_CHANGED");
    run_free(one);
    one = reduce_one(&w, 0, 1, LONG_MS); /* of the new epoch; rank 1 has not heard of it yet */
    assert_int_equal(one->op.sequence, 1);
    tutti_coll_group_renew(w.groups[1], 2);
    late = reduce_one(&w, 1, 1, LONG_MS);
    assert_int_equal(run_wait(one), TUTTI_OK);
    assert_int_equal(run_wait(late), TUTTI_OK);
    run_free(one);
    run_free(late);
    world_close(&w);
}

/* Rank 0 has begun an op that rank 1 never will; rank 1 knows before it hears of it, or after. */
static void
test_doubt__lets_ranks_count_alike_until_an_op_succeeds(void **state)
{
    char last[64];
    world w;
    run *one;
    int late;

    (void)state;
    for (late = 0; late < 2; late++) {
        world_open(&w, world_transport_fake, 2);
        check_group_works(&w);
        if (!late) {
            tutti_coll_group_resync(w.groups[1]);
        }
        one = reduce_one(&w, 0, 1, SHORT_MS);
        assert_int_equal(run_wait(one), TUTTI_DEADLINE_EXCEEDED);
        run_free(one);
        hear(&w, 0, 1);
        if (late) {
            tutti_coll_group_resync(w.groups[1]);
            hear(&w, 0, 1); /* and it has come to its own resync */
        }
        check_group_works(&w);
        assert_int_equal(tutti_coll_group_last(w.groups[0], last, sizeof(last)), 3);
        assert_int_equal(tutti_coll_group_last(w.groups[1], last, sizeof(last)), 3);
        one = reduce_one(&w, 0, 1, SHORT_MS); /* one has succeeded: all count as before */
        assert_int_equal(run_wait(one), TUTTI_DEADLINE_EXCEEDED);
        run_free(one);
        hear(&w, 0, 1);
        one = reduce_one(&w, 1, 1, LONG_MS);
        assert_int_equal(run_wait(one), TUTTI_DEADLINE_EXCEEDED);
        assert_int_equal(one->op.sequence, 4);
        run_free(one);
        world_close(&w);
    }
}

typedef struct passing {
    tutti_coll_pass pass;
    atomic_bool passed;
} passing;

static void
on_passed(tutti_coll_pass *pass)
{
    atomic_store(&tutti_container_of(pass, passing, pass)->passed, true);
}

/* A caller of rank 1 comes now, or so much later. */
static void
come(world *w, uint64_t later_ns)
{
    passing one = {.pass = {.caller_ns = tutti_clock_ns() + later_ns, .on_passed = on_passed}};

    assert_true(tutti_coll_group_pass(w->groups[1], &one.pass));
    while (!atomic_load(&one.passed)) {
        (void)sched_yield();
    }
}

static void
time_out(world *w)
{
    run *one = reduce_one(w, 0, 1, SHORT_MS);

    assert_int_equal(run_wait(one), TUTTI_DEADLINE_EXCEEDED);
    run_free(one);
    hear(w, 0, 1);
}

static void
test_caller__that_comes_is_behind_ops_whose_time_was_over(void **state)
{
    char last[64];
    world w;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    come(&w, 0); /* nothing has ended */
    time_out(&w);
    time_out(&w);
    assert_true(tutti_coll_group_has_ends(w.groups[1]));
    come(&w, 0);
    assert_false(tutti_coll_group_has_ends(w.groups[1]));
    check_group_works(&w);
    assert_int_equal(tutti_coll_group_last(w.groups[1], last, sizeof(last)), 3);
    world_close(&w);
}

/* A refusal, until it is older than what a program takes to start, and all that is behind it. */
static void
test_caller__that_comes_hears_of_a_refusal_that_is_new(void **state)
{
    char last[64];
    tutti_error why;
    world w;
    run *one;

    (void)state;
    (void)TUTTI_FAIL_FOR(&why, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE", "dimension -1");
    world_open(&w, world_transport_fake, 2);
    time_out(&w);
    assert_int_equal(tutti_coll_refuse(w.groups[0], 0, &why), 2);
    time_out(&w);
    come(&w, 0);
    one = reduce_one(&w, 1, 1, LONG_MS);
    assert_int_equal(run_wait(one), TUTTI_INVALID_ARGUMENT);
    assert_int_equal(one->op.sequence, 2);
    run_free(one);
    come(&w, 0);
    check_group_works(&w);
    assert_int_equal(tutti_coll_refuse(w.groups[0], 0, &why), 5);
    hear(&w, 0, 1);
    come(&w, 9 * TUTTI_NS_PER_S);
    assert_true(tutti_coll_group_has_ends(w.groups[1]));
    come(&w, 11 * TUTTI_NS_PER_S);
    check_group_works(&w);
    assert_int_equal(tutti_coll_group_last(w.groups[1], last, sizeof(last)), 6);
    assert_int_equal(tutti_coll_refuse(w.groups[0], 0, &why), 7);
    tutti_coll_group_over(w.groups[0]);
    assert_int_equal(tutti_coll_refuse(w.groups[0], 0, &why), 8); /* of the next caller */
    hear(&w, 0, 1);
    come(&w, 0);
    one = reduce_one(&w, 1, 1, LONG_MS);
    assert_int_equal(run_wait(one), TUTTI_INVALID_ARGUMENT);
    assert_int_equal(one->op.sequence, 8);
    run_free(one);
    world_close(&w);
}

/* What ended behind its coming is for it; so is an op that another caller has called here already. */
static void
test_caller__that_was_there_is_told_as_ever(void **state)
{
    const uint64_t before_ns = tutti_clock_ns();
    world w;
    run *one;
    run *late;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    time_out(&w);
    come(&w, before_ns - tutti_clock_ns());
    one = reduce_one(&w, 1, 1, LONG_MS);
    assert_int_equal(run_wait(one), TUTTI_DEADLINE_EXCEEDED);
    run_free(one);
    late = reduce_one(&w, 1, 1, LONG_MS);
    come(&w, 0);
    one = reduce_one(&w, 0, 1, LONG_MS);
    assert_int_equal(run_wait(one), TUTTI_OK);
    assert_int_equal(run_wait(late), TUTTI_OK);
    run_free(one);
    run_free(late);
    check_group_works(&w);
    world_close(&w);
}

/* Packets that came for an op which its rank then refuses, or passes over, are kept no longer. */
static void
test_packets__of_ops_that_are_passed_or_refused_are_dropped(void **state)
{
    tutti_error why;
    world w;
    run *one;

    (void)state;
    (void)TUTTI_FAIL_FOR(&why, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE", "dimension -1");
    world_open(&w, world_transport_fake, 2);
    time_out(&w);
    come(&w, 0);
    one = reduce_one(&w, 0, 1, LONG_MS);
    hear(&w, 0, 1);
    assert_int_equal(w.engines[1]->unexpected_count, 1);
    assert_int_equal(tutti_coll_refuse(w.groups[1], 0, &why), 2);
    assert_int_equal(run_wait(one), TUTTI_INVALID_ARGUMENT);
    check_group_works(&w);
    assert_int_equal(w.engines[1]->unexpected_count, 0);
    run_free(one);
    world_close(&w);
}

/*
 * Rank 1 meets what rank 0 gave to an op that was cancelled since: it has called as many as rank 0,
 * but rank 0's next one is its second try.
 */
static void
test_doubt__comes_back_when_the_op_that_ended_it_failed_elsewhere(void **state)
{
    tutti_error why;
    world w;
    run *first;
    run *stale;
    run *tried;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    check_group_works(&w);
    tutti_coll_group_resync(w.groups[1]);
    first = reduce_one(&w, 0, 1, LONG_MS);
    hear(&w, 0, 1); /* rank 1 has what it gave */
    fake_transport_freeze(w.wires[1], true);
    (void)TUTTI_FAIL_FOR(&why, TUTTI_CANCELLED, "CALLER_GONE", "rank 0's caller went away");
    tutti_coll_cancel(w.engines[0], first->op.id, &why);
    assert_int_equal(run_wait(first), TUTTI_CANCELLED);
    stale = reduce_one(&w, 1, 1, LONG_MS);
    assert_int_equal(run_wait(stale), TUTTI_OK);
    fake_transport_freeze(w.wires[1], false);
    tried = reduce_one(&w, 0, 1, SHORT_MS);
    assert_int_equal(run_wait(tried), TUTTI_DEADLINE_EXCEEDED);
    hear(&w, 0, 1);
    check_group_works(&w);
    run_free(first);
    run_free(stale);
    run_free(tried);
    world_close(&w);
}

/* Called in rounds: in the first one rank 1 has failed before it heard of the new epoch. */
static void
test_renewal__lets_ranks_count_alike_until_an_op_succeeds(void **state)
{
    world w;
    run *one;
    run *other;
    int round;
    int met = 0;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    check_group_works(&w);
    tutti_coll_group_renew(w.groups[0], 2);
    tutti_coll_group_renew(w.groups[1], 2);
    one = reduce_one(&w, 0, 1, SHORT_MS); /* op 1 of rank 0 alone */
    assert_int_equal(run_wait(one), TUTTI_DEADLINE_EXCEEDED);
    run_free(one);
    for (round = 0; round < 20 && met < 2; round++) { /* news of deadlines may be on its way */
        one = reduce_one(&w, 0, 1, SHORT_MS);
        other = reduce_one(&w, 1, 1, SHORT_MS);
        met = (run_wait(one) == TUTTI_OK) + (run_wait(other) == TUTTI_OK);
        run_free(one);
        run_free(other);
    }
    assert_int_equal(met, 2);
    one = reduce_one(&w, 0, 1, SHORT_MS); /* from now on who is late is told so */
    assert_int_equal(run_wait(one), TUTTI_DEADLINE_EXCEEDED);
    run_free(one);
    hear(&w, 0, 1); /* else rank 1 finds all that it needs, as above */
    one = reduce_one(&w, 1, 1, LONG_MS);
    assert_int_equal(run_wait(one), TUTTI_DEADLINE_EXCEEDED);
    run_free(one);
    check_group_works(&w);
    world_close(&w);
}

static void
test_closing__a_group_ends_its_ops(void **state)
{
    world w;
    run *one;
    run *got;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    one = reduce_one(&w, 0, 1, LONG_MS);
    got = run_new(TUTTI_COLL_RECV);
    got->op.args.peer = TUTTI_COLL_ANY_SOURCE;
    run_post(got, w.groups[0], LONG_MS);
    tutti_coll_group_close(w.groups[0]);
    assert_int_equal(run_wait(one), TUTTI_NOT_FOUND);
    assert_string_equal(one->err.reason, "NO_GROUP");
    assert_int_equal(run_wait(got), TUTTI_NOT_FOUND);
    run_free(one);
    run_free(got);
    world_close(&w);
}

/* One rank is through, and deletes the group, before the others have heard the last packet. */
static void
test_closing__a_group_lets_the_ops_end_that_all_call(void **state)
{
    world w;
    run *unexpected;
    run *late;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    unexpected = reduce_one(&w, 0, 1, LONG_MS);
    tutti_coll_group_close(w.groups[0]);
    late = reduce_one(&w, 1, 1, LONG_MS); /* it has not heard of the deletion */
    assert_int_equal(run_wait(unexpected), TUTTI_OK);
    assert_int_equal(run_wait(late), TUTTI_OK);
    run_free(unexpected);
    run_free(late);
    world_close(&w);
}

static void
test_closing__group_outlives_the_loss_of_a_member(void **state)
{
    world w;
    run *one;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    one = reduce_one(&w, 0, 1, LONG_MS);
    tutti_coll_group_close(w.groups[0]);
    tutti_coll_lose_peer(w.engines[0], 1, w.incarnations[1], "left");
    assert_int_equal(run_wait(one), TUTTI_UNAVAILABLE);
    run_free(one);
    world_close(&w);
}

static void
test_stopping__an_engine_ends_groups_that_close(void **state)
{
    world w;
    run *one;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    one = reduce_one(&w, 0, 1, LONG_MS);
    tutti_coll_group_close(w.groups[0]);
    tutti_coll_engine_stop(w.engines[0]);
    w.engines[0] = NULL;
    assert_int_equal(run_wait(one), TUTTI_UNAVAILABLE);
    run_free(one);
    world_close(&w);
}

static void
test_stopping__an_engine_is_told_to_the_others(void **state)
{
    world w;
    run *runs[2];

    (void)state;
    world_open(&w, world_transport_fake, 2);
    check_group_works(&w);
    runs[0] = reduce_one(&w, 0, 1, LONG_MS);
    runs[1] = run_new(TUTTI_COLL_RECV); /* keeps rank 1 busy */
    runs[1]->op.args.peer = 0;
    run_post(runs[1], w.groups[1], LONG_MS);
    tutti_coll_engine_stop(w.engines[1]);
    w.engines[1] = NULL;
    assert_int_equal(run_wait(runs[1]), TUTTI_UNAVAILABLE);
    assert_string_equal(runs[1]->err.reason, "STOPPING");
    run_free(runs[1]);
    tutti_coll_lose_peer(w.engines[0], 1, w.incarnations[1], "left");
    assert_int_equal(run_wait(runs[0]), TUTTI_UNAVAILABLE);
    run_free(runs[0]);
    world_close(&w);
}

static void
test_post__keeps_to_the_number_that_was_asked_for(void **state)
{
    world w;
    run *one = run_new(TUTTI_COLL_BARRIER);
    tutti_error err;

    (void)state;
    world_open(&w, world_transport_fake, 1);
    one->op.deadline_ns = tutti_clock_ns() + TUTTI_NS_PER_S;
    assert_fails(tutti_coll_post(w.groups[0], &one->op, 2, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "OUT_OF_SEQUENCE");
    assert_text_has(err.text, "the call asks for op 2 of group world, but the next op is 1");
    assert_ok(tutti_coll_post(w.groups[0], &one->op, 1, &err));
    assert_int_equal(run_wait(one), TUTTI_OK);
    run_free(one);
    world_close(&w);
}

static void
test_retracted__send_leaves_nothing_for_a_later_receive(void **state)
{
    world w;
    run *sent;
    run *got;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    sent = run_new(TUTTI_COLL_SEND);
    run_give(sent, TUTTI_DTYPE_INT32, 1, &numbers[0], NULL);
    sent->op.args.peer = 1;
    run_post(sent, w.groups[0], SHORT_MS);
    assert_int_equal(run_wait(sent), TUTTI_DEADLINE_EXCEEDED);
    run_free(sent);
    check_group_works(&w); /* what rank 0 said before is heard */
    got = run_new(TUTTI_COLL_RECV);
    got->op.args.peer = 0;
    run_post(got, w.groups[1], 2 * SHORT_MS);
    assert_int_equal(run_wait(got), TUTTI_DEADLINE_EXCEEDED);
    assert_text_has(got->err.text, "rank 0 has not sent");
    run_free(got);
    world_close(&w);
}

/* Each packet is put in front of the last one that rank 1, which is frozen, has not heard: the SEND, the RETRACT, the META. */
static void
test_retracted__send_that_comes_late_is_dropped(void **state)
{
    tutti_coll_stats stats;
    world w;
    run *sent;
    run *got;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    check_group_works(&w);
    fake_transport_freeze(w.wires[1], true);
    fake_network_shuffle(w.network, 1, 1);
    sent = run_new(TUTTI_COLL_SEND);
    run_give(sent, TUTTI_DTYPE_INT32, 1, &numbers[0], NULL);
    sent->op.args.peer = 1;
    sent->op.args.meta = tutti_bytes_of("beside it");
    run_post(sent, w.groups[0], SHORT_MS);
    assert_int_equal(run_wait(sent), TUTTI_DEADLINE_EXCEEDED);
    run_free(sent);
    fake_network_shuffle(w.network, 0, 0);
    fake_transport_freeze(w.wires[1], false);
    check_group_works(&w); /* what rank 0 said before is heard */
    got = run_new(TUTTI_COLL_RECV);
    got->op.args.peer = 0;
    run_post(got, w.groups[1], 2 * SHORT_MS);
    assert_int_equal(run_wait(got), TUTTI_DEADLINE_EXCEEDED);
    assert_text_has(got->err.text, "rank 0 has not sent");
    run_free(got);
    hear(&w, 0, 1); /* a new send arrives */
    tutti_coll_stat(w.engines[1], &stats);
    assert_int_equal(stats.parked, 0);
    world_close(&w);
}

static void
test_receive__ends_when_its_sender_dies(void **state)
{
    world w;
    run *got;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    check_group_works(&w);
    got = run_new(TUTTI_COLL_RECV);
    got->op.args.peer = 1;
    run_post(got, w.groups[0], LONG_MS);
    world_kill(&w, 1);
    assert_int_equal(run_wait(got), TUTTI_UNAVAILABLE);
    assert_text_has(got->err.text, "recv(from group rank 1, tag 0): rank 1 is gone");
    run_free(got);
    world_close(&w);
}

static void
abort_group(world *w, uint32_t rank, const char *text)
{
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_ABORTED, TUTTI_COLL_ABORTED, "%s", text);
    tutti_error_set_op(&err, "world", 0, 2);
    tutti_coll_group_abort(w->groups[rank], &err, rank == 2);
}

/* Rank 2 asks; only its engine is told, as if the others had not heard of it: they hear it from
 * rank 2 for what runs. */
static void
test_group_abort__ends_what_runs_everywhere_and_what_comes_here(void **state)
{
    run *first[3];
    run *later;
    world w;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    first[2] = run_new(TUTTI_COLL_RECV);
    first[2]->op.args.peer = 0;
    run_give(first[2], TUTTI_DTYPE_INT32, 1, NULL, &numbers[0]);
    run_post(first[2], w.groups[2], LONG_MS);
    abort_group(&w, 2, "enough");
    abort_group(&w, 2, "the second one does not count");
    assert_int_equal(run_wait(first[2]), TUTTI_ABORTED);
    later = reduce_one(&w, 2, 1, LONG_MS);
    assert_int_equal(run_wait(later), TUTTI_ABORTED);
    assert_string_equal(later->err.reason, "GROUP_ABORTED");
    assert_string_equal(later->err.text, "enough");
    assert_int_equal(later->err.sequence, 1);
    assert_int_equal(later->err.rank, 2);
    for (i = 0; i < 2; i++) {
        abort_group(&w, i, "enough");
        first[i] = reduce_one(&w, i, 1, LONG_MS);
        assert_int_equal(run_wait(first[i]), TUTTI_ABORTED);
    }
    for (i = 0; i < 3; i++) {
        tutti_coll_group_renew(w.groups[i], 2);
        run_free(first[i]);
    }
    run_free(later);
    check_group_works(&w);
    world_close(&w);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch__is_the_same_error_on_every_rank_and_touches_no_data),
        cmocka_unit_test(test_mismatch__of_steps_names_who_is_at_which),
        cmocka_unit_test(test_mismatch__of_a_step_and_none_is_found),
        cmocka_unit_test(test_mismatch__of_ops_is_found_too),
        cmocka_unit_test(test_refusal__of_one_rank_is_heard_by_all_before_and_after_they_call),
        cmocka_unit_test(test_deadline__names_who_has_not_called_and_what_it_did_last),
        cmocka_unit_test(test_deadline__says_who_does_not_answer),
        cmocka_unit_test(test_deadline__frees_memory_that_a_frozen_rank_holds),
        cmocka_unit_test(test_cancel__is_told_to_all),
        cmocka_unit_test(test_shape__that_a_receiver_cannot_take_fails_for_all),
        cmocka_unit_test(test_death__is_named_to_every_rank_long_before_its_deadline),
        cmocka_unit_test(test_loss__that_only_the_coordinator_saw_ends_ops_now_and_later),
        cmocka_unit_test(test_doubt__lets_ranks_count_alike_until_an_op_succeeds),
        cmocka_unit_test(test_caller__that_comes_is_behind_ops_whose_time_was_over),
        cmocka_unit_test(test_caller__that_comes_hears_of_a_refusal_that_is_new),
        cmocka_unit_test(test_caller__that_was_there_is_told_as_ever),
        cmocka_unit_test(test_packets__of_ops_that_are_passed_or_refused_are_dropped),
        cmocka_unit_test(test_doubt__comes_back_when_the_op_that_ended_it_failed_elsewhere),
        cmocka_unit_test(test_return__of_a_rank_makes_its_groups_work_again),
        cmocka_unit_test(test_renewal__fails_what_runs_and_counts_from_one),
        cmocka_unit_test(test_renewal__lets_ranks_count_alike_until_an_op_succeeds),
        cmocka_unit_test(test_closing__a_group_ends_its_ops),
        cmocka_unit_test(test_closing__a_group_lets_the_ops_end_that_all_call),
        cmocka_unit_test(test_closing__group_outlives_the_loss_of_a_member),
        cmocka_unit_test(test_stopping__an_engine_ends_groups_that_close),
        cmocka_unit_test(test_stopping__an_engine_is_told_to_the_others),
        cmocka_unit_test(test_post__keeps_to_the_number_that_was_asked_for),
        cmocka_unit_test(test_retracted__send_leaves_nothing_for_a_later_receive),
        cmocka_unit_test(test_retracted__send_that_comes_late_is_dropped),
        cmocka_unit_test(test_receive__ends_when_its_sender_dies),
        cmocka_unit_test(test_group_abort__ends_what_runs_everywhere_and_what_comes_here),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
