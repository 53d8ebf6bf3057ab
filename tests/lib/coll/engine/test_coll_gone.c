/*
 * Goal: what a rank holds of others for a group ends with the group, also when it never was open
 * there, and when the members wait for each other. Otherwise the memory of ops that have failed long
 * ago would never come back.
 * Method: large sends, whose bytes stay with the sender until the other rank lets go of them. A run
 * is released when its memory is its own again; run_wait waits for that.
 */
#include "support/testing.h"

#include <semaphore.h>
#include <time.h>

#include "base/os/clock.h"
#include "support/world.h"

#define COUNT 100000 /* much more than goes with a packet */
#define SOON_MS 300
#define LONG_MS 60000

static world w;
static float bytes[2][COUNT];

static int
begin(void **state)
{
    (void)state;
    world_open(&w, WIRE, 2);
    return 0;
}

static int
end(void **state)
{
    (void)state;
    world_close(&w);
    return 0;
}

static run *
start(tutti_coll_kind kind, tutti_coll_group *group, uint32_t rank, uint64_t timeout_ms)
{
    run *it = run_new(kind);

    it->op.args.peer = 1 - rank;
    run_give(it, TUTTI_DTYPE_FP32, COUNT, bytes[rank], bytes[rank]);
    run_post(it, group, timeout_ms);
    return it;
}

static void
never_ends_well(run *it)
{
    assert_int_not_equal(run_wait(it), TUTTI_OK);
    run_free(it);
}

static uint64_t
parked(uint32_t rank)
{
    tutti_coll_stats stats;

    tutti_coll_stat(w.engines[rank], &stats);
    return stats.parked;
}

/* How much there is when it is `wanted`, or after a long time. */
static uint64_t
parked_at_last(uint32_t rank, uint64_t wanted)
{
    const uint64_t until = tutti_clock_ns() + 20 * TUTTI_NS_PER_S;

    while (parked(rank) != wanted && tutti_clock_ns() < until) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return parked(rank);
}

static void
wait_for_parked(uint32_t rank, uint64_t wanted)
{
    assert_int_equal(parked_at_last(rank, wanted), wanted);
}

/* All that was said before has been heard, and all that was asked for is done. */
static void
settle(void)
{
    run *runs[2];
    uint32_t i;

    for (i = 0; i < 2; i++) {
        runs[i] = start(TUTTI_COLL_ALL_REDUCE, w.groups[i], i, LONG_MS);
    }
    for (i = 0; i < 2; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_OK);
        run_free(runs[i]);
    }
}

static void
open_group(tutti_coll_group *ret_groups[2])
{
    static const uint32_t ranks[] = {0, 1};

    world_group(&w, "some", ranks, 2, ret_groups);
    settle(); /* ways are there, too */
}

/* On rank 0 alone: rank 1 has not called anything in it. */
static tutti_coll_group *
open_here(uint64_t *ret_id)
{
    static const uint32_t ranks[] = {0, 1};
    tutti_coll_group *group = NULL;
    tutti_error err;

    settle();
    *ret_id = w.next_group++;
    assert_ok(tutti_coll_group_open(w.engines[0], *ret_id, "early", 1, ranks, 2, &group, &err));
    return group;
}

static void
test_group__that_is_closed_keeps_nothing_of_its_members(void **state)
{
    tutti_coll_group *groups[2];
    run *sent;

    (void)state;
    open_group(groups);
    sent = start(TUTTI_COLL_SEND, groups[0], 0, LONG_MS);
    wait_for_parked(1, 1);
    tutti_coll_group_close(groups[1]);
    wait_for_parked(1, 0);
    tutti_coll_group_close(groups[0]);
    never_ends_well(sent);
}

static void
test_group__that_is_closed_keeps_nothing_that_comes_later(void **state)
{
    tutti_coll_group *groups[2];
    run *runs[2];

    (void)state;
    open_group(groups);
    tutti_coll_group_close(groups[1]);
    settle();
    runs[0] = start(TUTTI_COLL_SEND, groups[0], 0, SOON_MS);
    runs[1] = start(TUTTI_COLL_ALL_REDUCE, groups[0], 0, SOON_MS);
    never_ends_well(runs[0]);
    never_ends_well(runs[1]);
    settle();
    assert_int_equal(parked(1), 0);
}

static void
test_group__that_was_never_opened_keeps_nothing_of_a_send_that_is_over(void **state)
{
    uint64_t id;
    run *sent;

    (void)state;
    sent = start(TUTTI_COLL_SEND, open_here(&id), 0, SOON_MS);
    never_ends_well(sent);
    wait_for_parked(1, 0);
}

static void
test_group__that_was_never_opened_keeps_nothing_when_it_is_deleted(void **state)
{
    tutti_coll_group *group;
    uint64_t id;
    run *runs[3];
    size_t i;

    (void)state;
    group = open_here(&id);
    runs[0] = start(TUTTI_COLL_SEND, group, 0, LONG_MS);
    runs[1] = start(TUTTI_COLL_ALL_REDUCE, group, 0, LONG_MS);
    wait_for_parked(1, 2);
    tutti_coll_group_gone(w.engines[1], id);
    wait_for_parked(1, 0);
    runs[2] = start(TUTTI_COLL_SEND, group, 0, LONG_MS); /* rank 0 has not heard of it */
    settle();
    assert_int_equal(parked(1), 0);
    tutti_coll_group_close(group);
    for (i = 0; i < 3; i++) {
        never_ends_well(runs[i]);
    }
}

static sem_t blocked;
static sem_t go_on;

/* On the engine's thread, which neither sends nor gives back anything meanwhile. */
static void
block_engine(tutti_coll_op *op, const tutti_error *err)
{
    (void)op;
    (void)err;
    (void)sem_post(&blocked);
    (void)sem_wait(&go_on);
}

static run *
block_rank_0(tutti_coll_group *group)
{
    run *it = run_new(TUTTI_COLL_RECV);

    (void)sem_init(&blocked, 0, 0);
    (void)sem_init(&go_on, 0, 0);
    it->op.on_done = block_engine;
    it->op.args.peer = 1;
    it->op.args.tag = 1; /* of which nothing comes */
    run_post(it, group, SOON_MS);
    (void)sem_wait(&blocked);
    return it;
}

/* Else two ranks, whose ops wait for what the other has parked, would wait for ever. */
static void
test_group__that_is_closed_keeps_nothing_while_its_own_ops_wait_for_their_memory(void **state)
{
    tutti_coll_group *groups[2];
    uint64_t left;
    run *blocker;
    run *sent[2];

    (void)state;
    open_group(groups);
    sent[0] = start(TUTTI_COLL_SEND, groups[0], 0, LONG_MS);
    wait_for_parked(1, 1);
    blocker = block_rank_0(w.groups[0]);
    sent[1] = start(TUTTI_COLL_SEND, groups[1], 1, SOON_MS);
    while (!run_is_done(sent[1])) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    tutti_coll_group_close(groups[1]);
    left = parked_at_last(1, 0);
    (void)sem_post(&go_on); /* first: a failure stops the engines */
    assert_int_equal(left, 0);
    never_ends_well(sent[1]);
    tutti_coll_group_close(groups[0]);
    never_ends_well(sent[0]);
    (void)run_wait(blocker);
    run_free(blocker);
}

/* Its memory would stay mapped for as long. */
static void
test_process__that_has_been_replaced_is_kept_nothing_of(void **state)
{
    uint64_t id;
    run *sent;

    (void)state;
    world_close(&w);
    world_open(&w, world_transport_fake, 2); /* one that can kill */
    sent = start(TUTTI_COLL_ALL_REDUCE, open_here(&id), 0, LONG_MS);
    wait_for_parked(1, 1);
    world_kill(&w, 0);
    never_ends_well(sent);
    world_revive(&w, 0);
    tutti_coll_set_peer(w.engines[1], 0, w.incarnations[0],
                        tutti_coll_engine_address(w.engines[0]));
    wait_for_parked(1, 0);
}

static void
test_group__that_was_told_gone_while_it_is_open_goes_on(void **state)
{
    tutti_coll_group *groups[2];
    run *runs[2];
    uint32_t i;

    (void)state;
    open_group(groups);
    for (i = 0; i < 2; i++) {
        tutti_coll_group_gone(w.engines[i], w.next_group - 1);
        runs[i] = start(TUTTI_COLL_ALL_REDUCE, groups[i], i, LONG_MS);
    }
    for (i = 0; i < 2; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_OK);
        run_free(runs[i]);
    }
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, begin, end)

/* Found by tests/sim, seed 661: the group looks at the first lost rank, and the receive waited for the other one. */
static void
test_receive__from_a_rank_that_is_lost_behind_another_ends(void **state)
{
    run *one = run_new(TUTTI_COLL_RECV);
    run *barriers[3];
    int32_t number = 0;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    for (i = 0; i < 3;
         i++) { /* so that all know each other, and no answer to a question comes behind the loss */
        barriers[i] = run_new(TUTTI_COLL_BARRIER);
        run_post(barriers[i], w.groups[i], 15000);
    }
    for (i = 0; i < 3; i++) {
        assert_int_equal(run_wait(barriers[i]), TUTTI_OK);
        run_free(barriers[i]);
    }
    one->op.args.peer = 2;
    run_give(one, TUTTI_DTYPE_INT32, 1, NULL, &number);
    run_post(one, w.groups[1], 15000);
    tutti_coll_lose_peer(w.engines[1], 0, 0, "it was killed");
    tutti_coll_lose_peer(w.engines[1], 2, 0, "its host is gone");
    assert_int_equal(run_wait(one), TUTTI_UNAVAILABLE);
    assert_text_has(one->err.text, "rank 2 is gone: its host is gone");
    run_free(one);
    world_close(&w);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_group__that_is_closed_keeps_nothing_of_its_members),
        SENTENCE(test_group__that_is_closed_keeps_nothing_that_comes_later),
        SENTENCE(test_group__that_was_never_opened_keeps_nothing_of_a_send_that_is_over),
        SENTENCE(test_group__that_was_never_opened_keeps_nothing_when_it_is_deleted),
        SENTENCE(test_group__that_is_closed_keeps_nothing_while_its_own_ops_wait_for_their_memory),
        SENTENCE(test_process__that_has_been_replaced_is_kept_nothing_of),
        SENTENCE(test_group__that_was_told_gone_while_it_is_open_goes_on),
        cmocka_unit_test(test_receive__from_a_rank_that_is_lost_behind_another_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
