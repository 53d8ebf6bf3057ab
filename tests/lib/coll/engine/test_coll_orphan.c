/*
 * Goal: ops that wait for a rank whose program has ended end at once, for programs that were there, and
 * the next program of the rank counts as the others do. Method: the fake transport; programs are times.
 */
#include <inttypes.h>

#include "support/testing.h"

#include "base/os/clock.h"
#include "coll/state/engine.h"
#include "support/world.h"

#define LONG_MS 15000

static int32_t numbers[WORLD_MAX];

static uint64_t
came_before_ns(void)
{
    return tutti_clock_ns() - TUTTI_NS_PER_S;
}

/* An op of a program that came then; 0 = not known. */
static run *
reduce_of(world *w, uint32_t rank, uint64_t caller_ns)
{
    run *one = run_new(TUTTI_COLL_ALL_REDUCE);

    numbers[rank] = (int32_t)rank + 1;
    run_give(one, TUTTI_DTYPE_INT32, 1, &numbers[rank], &numbers[rank]);
    one->op.caller_ns = caller_ns;
    run_post(one, w->groups[rank], LONG_MS);
    return one;
}

static void
check_group_goes_on(world *w)
{
    run *runs[WORLD_MAX];
    uint32_t i;

    for (i = 0; i < w->size; i++) {
        runs[i] = reduce_of(w, i, 0);
    }
    for (i = 0; i < w->size; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_OK);
        assert_int_equal(numbers[i], w->size * (w->size + 1) / 2);
        run_free(runs[i]);
    }
}

/* One rank's messages to another keep their order: what was sent before has come. */
static void
pass_by(world *w, uint32_t from, uint32_t to)
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

/* Of two ops that rank 0 has under way the caller of the second one goes: rank 1, which counts anew,
 * passes over no op that still waits for it. */
static void
test_caller__that_goes_takes_no_op_before_its_own_away(void **state)
{
    tutti_error why;
    world w;
    run *first;
    run *second;
    run *late;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    tutti_coll_group_resync(w.groups[1]);
    first = reduce_of(&w, 0, 0);
    second = reduce_of(&w, 0, 0);
    (void)TUTTI_FAIL_FOR(&why, TUTTI_CANCELLED, "CALLER_GONE", "rank 0's caller went away");
    tutti_coll_cancel(w.engines[0], second->op.id, &why);
    assert_int_equal(run_wait(second), TUTTI_CANCELLED);
    pass_by(&w, 0, 1);
    late = reduce_of(&w, 1, 0);
    assert_int_equal(run_wait(late), TUTTI_OK);
    assert_int_equal(run_wait(first), TUTTI_OK);
    run_free(first);
    run_free(second);
    run_free(late);
    world_close(&w);
}

static void
orphan_rank(world *w, uint32_t rank)
{
    tutti_error why;

    (void)TUTTI_FAIL_FOR(&why, TUTTI_CANCELLED, "CALLER_GONE", "the program of rank %" PRIu32,
                         rank);
    tutti_coll_group_orphan(w->groups[rank], &why);
}

static void
check_gone(run *one, uint64_t sequence)
{
    char text[64];

    assert_int_equal(run_wait(one), TUTTI_CANCELLED);
    (void)snprintf(text, sizeof(text), "group world op %" PRIu64 ": the program of rank 1",
                   sequence);
    assert_string_equal(one->err.text, text);
    assert_int_equal(one->err.rank, 1);
    run_free(one);
}

/* The op that ended elsewhere has its number, and nobody will call it here either. */
static void
test_orphan__refuses_behind_an_op_that_has_ended_elsewhere(void **state)
{
    tutti_error why;
    world w;
    run *one;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    orphan_rank(&w, 1);
    (void)TUTTI_FAIL_FOR(&why, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE", "a test refuses it");
    assert_int_equal(tutti_coll_refuse(w.groups[0], 0, &why), 1);
    one = reduce_of(&w, 0, came_before_ns());
    assert_int_equal(run_wait(one), TUTTI_CANCELLED);
    assert_string_equal(one->err.reason, "CALLER_GONE");
    assert_int_equal(one->err.sequence, 2);
    run_free(one);
    world_close(&w);
}

/* Rank 0 is the one before rank 1, whose packet tells that somebody waits; rank 2 hears of it. */
static void
test_orphan__refuses_what_the_others_wait_in_until_somebody_calls(void **state)
{
    char last[64];
    run *runs[3];
    world w;
    int i;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    check_group_goes_on(&w);
    runs[0] = reduce_of(&w, 0, came_before_ns()); /* waits already */
    runs[2] = reduce_of(&w, 2, came_before_ns());
    pass_by(&w, 0, 1);
    orphan_rank(&w, 1);
    check_gone(runs[0], 2);
    check_gone(runs[2], 2);
    for (i = 3; i < 6; i++) { /* calls later */
        runs[2] = reduce_of(&w, 2, came_before_ns());
        runs[0] = reduce_of(&w, 0, came_before_ns());
        check_gone(runs[0], (uint64_t)i);
        check_gone(runs[2], (uint64_t)i);
    }
    tutti_coll_group_adopt(w.groups[1]);
    assert_int_equal(tutti_coll_group_last(w.groups[1], last, sizeof(last)), 5);
    check_group_goes_on(&w);
    assert_int_equal(w.engines[1]->unexpected_count, 0);
    world_close(&w);
}

/* Programs of the next run do not start at one moment. */
static void
test_orphan__lets_programs_wait_that_came_later(void **state)
{
    run *runs[3];
    world w;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    check_group_goes_on(&w);
    orphan_rank(&w, 1);
    runs[0] = reduce_of(&w, 0, tutti_clock_ns());
    runs[2] = reduce_of(&w, 2, 0); /* of a caller that is not known */
    pass_by(&w, 0, 1);
    orphan_rank(&w, 2); /* the one before rank 0, and nobody calls it */
    tutti_coll_group_adopt(w.groups[1]);
    runs[1] = reduce_of(&w, 1, tutti_clock_ns());
    for (i = 0; i < 3; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_OK);
        run_free(runs[i]);
    }
    check_group_goes_on(&w);
    world_close(&w);
}

/* Of both ends of a small world nobody is left; and nobody is told of ops that nobody waits in. */
static void
test_orphan__that_nobody_waits_for_takes_no_number(void **state)
{
    char last[64];
    world w;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    check_group_goes_on(&w);
    orphan_rank(&w, 1);
    orphan_rank(&w, 1);
    orphan_rank(&w, 0);
    pass_by(&w, 0, 1);
    tutti_coll_group_adopt(w.groups[1]);
    tutti_coll_group_adopt(w.groups[0]);
    assert_int_equal(tutti_coll_group_last(w.groups[1], last, sizeof(last)), 1);
    check_group_goes_on(&w);
    world_close(&w);
}

/* A send or receive of a program that came then; 0 = not known. */
static run *
message_of(world *w, uint32_t rank, tutti_coll_kind kind, uint32_t peer, uint64_t caller_ns)
{
    run *one = run_new(kind);

    run_give(one, TUTTI_DTYPE_INT32, 1, kind == TUTTI_COLL_SEND ? &numbers[rank] : NULL,
             kind == TUTTI_COLL_SEND ? NULL : &numbers[rank]);
    one->op.args.peer = peer;
    one->op.caller_ns = caller_ns;
    run_post(one, w->groups[rank], LONG_MS);
    return one;
}

static void
silence_rank(world *w, uint32_t rank)
{
    tutti_error why;

    (void)TUTTI_FAIL_FOR(&why, TUTTI_CANCELLED, "CALLER_GONE", "the program of rank %" PRIu32,
                         rank);
    tutti_coll_group_silence(w->groups[rank], &why);
}

static void
check_silent(run *one, int32_t rank)
{
    char text[64];

    assert_int_equal(run_wait(one), TUTTI_CANCELLED);
    assert_string_equal(one->err.reason, "CALLER_GONE");
    (void)snprintf(text, sizeof(text), "group world tag 0: the program of rank %" PRId32, rank);
    assert_string_equal(one->err.text, text);
    assert_int_equal(one->err.rank, rank);
    run_free(one);
}

/* Where the world goes on, they meet: one from each to the next. */
static void
check_messages_go_on(world *w, uint64_t caller_ns)
{
    run *runs[2 * WORLD_MAX];
    uint32_t i;

    for (i = 0; i < w->size; i++) {
        runs[2 * i] = message_of(w, i, TUTTI_COLL_RECV, (i + w->size - 1) % w->size, caller_ns);
        runs[2 * i + 1] = message_of(w, i, TUTTI_COLL_SEND, (i + 1) % w->size, caller_ns);
    }
    for (i = 0; i < 2 * w->size; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_OK);
        run_free(runs[i]);
    }
}

static void
test_silence__ends_sends_and_receives_that_wait_until_somebody_calls(void **state)
{
    const uint64_t before_ns = came_before_ns();
    run *runs[3];
    world w;
    int i;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    runs[0] = message_of(&w, 0, TUTTI_COLL_RECV, 1, before_ns);
    runs[1] = message_of(&w, 2, TUTTI_COLL_SEND, 1, before_ns);
    runs[2] = message_of(&w, 2, TUTTI_COLL_RECV, 0, before_ns);
    silence_rank(&w, 1);
    check_silent(runs[0], 1);
    check_silent(runs[1], 1);
    for (i = 0; i < 2; i++) { /* called later */
        check_silent(message_of(&w, 0, TUTTI_COLL_SEND, 1, before_ns), 1);
        check_silent(message_of(&w, 2, TUTTI_COLL_RECV, 1, before_ns), 1);
    }
    runs[0] = message_of(&w, 0, TUTTI_COLL_SEND, 2, before_ns);
    for (i = 0; i < 3; i += 2) {
        assert_int_equal(run_wait(runs[i]), TUTTI_OK);
        run_free(runs[i]);
    }
    tutti_coll_group_silence(w.groups[1], NULL);
    pass_by(&w, 1, 0);
    pass_by(&w, 1, 2);
    check_messages_go_on(&w, before_ns);
    assert_int_equal(w.engines[1]->unexpected_count, 0);
    world_close(&w);
}

/* From any rank: while one is left, that one may send. */
static void
test_silence__ends_a_receive_from_any_with_the_last_rank(void **state)
{
    const uint64_t before_ns = came_before_ns();
    run *one;
    world w;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    one = message_of(&w, 0, TUTTI_COLL_RECV, TUTTI_COLL_ANY_SOURCE, before_ns);
    silence_rank(&w, 1);
    check_silent(message_of(&w, 0, TUTTI_COLL_RECV, 1, before_ns), 1);
    silence_rank(&w, 2);
    check_silent(one, 2);
    check_silent(message_of(&w, 0, TUTTI_COLL_RECV, TUTTI_COLL_ANY_SOURCE, before_ns), 2);
    world_close(&w);
}

/* What was sent before is taken; and programs of the next run do not start at one moment. */
static void
test_silence__spares_what_has_come_and_programs_that_came_later(void **state)
{
    run *runs[2];
    world w;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    runs[0] = message_of(&w, 1, TUTTI_COLL_SEND, 0, 0);
    pass_by(&w, 1, 2);
    silence_rank(&w, 1);
    check_silent(message_of(&w, 2, TUTTI_COLL_SEND, 1, came_before_ns()), 1);
    runs[1] = message_of(&w, 0, TUTTI_COLL_RECV, 1, came_before_ns());
    assert_int_equal(run_wait(runs[0]), TUTTI_OK);
    assert_int_equal(run_wait(runs[1]), TUTTI_OK);
    run_free(runs[0]);
    run_free(runs[1]);
    check_silent(message_of(&w, 0, TUTTI_COLL_RECV, 1, came_before_ns()), 1);
    check_messages_go_on(&w, 0); /* of callers that are not known */
    check_messages_go_on(&w, tutti_clock_ns() + TUTTI_NS_PER_S);
    world_close(&w);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_caller__that_goes_takes_no_op_before_its_own_away),
        cmocka_unit_test(test_orphan__refuses_what_the_others_wait_in_until_somebody_calls),
        cmocka_unit_test(test_orphan__refuses_behind_an_op_that_has_ended_elsewhere),
        cmocka_unit_test(test_orphan__lets_programs_wait_that_came_later),
        cmocka_unit_test(test_orphan__that_nobody_waits_for_takes_no_number),
        cmocka_unit_test(test_silence__ends_sends_and_receives_that_wait_until_somebody_calls),
        cmocka_unit_test(test_silence__ends_a_receive_from_any_with_the_last_rank),
        cmocka_unit_test(test_silence__spares_what_has_come_and_programs_that_came_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
