/*
 * Goal: a rank that leaves says so, ends what is under way, and nobody waits for it in vain.
 * Method: engines on the fake transport; who has begun what is exact.
 */
#include "support/testing.h"

#include "base/data/id.h"
#include "support/world.h"

#define LONG_MS 15000

/* A number for each op: those before it may be under way. */
static int32_t numbers[32];
static int32_t *number;

static run *
reduce_one(world *w, uint32_t rank)
{
    static size_t count;
    run *self = run_new(TUTTI_COLL_ALL_REDUCE);

    number = &numbers[count++];
    assert_true(count <= COUNT_OF(numbers));
    *number = (int32_t)rank + 1;
    run_give(self, TUTTI_DTYPE_INT32, 1, number, number);
    run_post(self, w->groups[rank], LONG_MS);
    return self;
}

static void
expect_leaving(run *one, uint64_t sequence, uint32_t rank)
{
    assert_int_equal(run_wait(one), TUTTI_UNAVAILABLE);
    assert_string_equal(one->err.reason, "RANK_LEAVING");
    assert_text_has(one->err.text, "is leaving: pod deleted");
    assert_int_equal(one->err.sequence, sequence);
    assert_int_equal(one->err.rank, rank);
    run_free(one);
}

static void
expect_good(run *one)
{
    if (run_wait(one) != TUTTI_OK) {
        fail_msg("%s", one->err.text);
    }
    run_free(one);
}

/* An op of both ranks of a world of two. */
static void
expect_both_good(world *w)
{
    run *one[2];

    one[0] = reduce_one(w, 0);
    one[1] = reduce_one(w, 1);
    expect_good(one[0]);
    expect_good(one[1]);
}

static void
test_leave__lets_end_what_the_leaver_has_begun(void **state)
{
    run *first[3];
    run *second[3];
    world w;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    first[0] = reduce_one(&w, 0);
    second[0] = reduce_one(&w, 0); /* the leaver never begins it */
    first[2] = reduce_one(&w, 2);
    tutti_coll_group_leave(w.groups[2], "pod deleted");
    expect_leaving(second[0], 2, 2);
    expect_good(reduce_one(&w, 1)); /* after the news: it is under way elsewhere */
    assert_int_equal(*number, 6);
    second[1] = reduce_one(&w, 1);
    expect_leaving(second[1], 2, 2);
    second[2] = reduce_one(&w, 2); /* itself, too */
    expect_leaving(second[2], 2, 2);
    expect_good(first[0]);
    expect_good(first[2]);
    expect_leaving(reduce_one(&w, 0), 3, 2);
    world_close(&w);
}

static void
test_leave__of_two_counts_from_who_began_less(void **state)
{
    run *first[2];
    run *second;
    world w;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    first[1] = reduce_one(&w, 1);
    second = reduce_one(&w, 1);
    first[0] = reduce_one(&w, 0);
    tutti_coll_group_leave(w.groups[1], "pod deleted");
    tutti_coll_group_leave(w.groups[0], "pod deleted");
    expect_leaving(second, 2, 0);
    expect_good(reduce_one(&w, 2));
    expect_good(first[0]);
    expect_good(first[1]);
    expect_leaving(reduce_one(&w, 2), 2, 0);
    world_close(&w);
}

/* Who has left is gone, and says so with other words; a newcomer ends both. */
static void
test_leave__ends_with_the_loss_and_with_a_new_epoch(void **state)
{
    run *runs[2];
    run *late;
    world w;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    tutti_coll_group_leave(w.groups[1], "pod deleted");
    expect_leaving(reduce_one(&w, 0), 1, 1);
    tutti_coll_lose_peer(w.engines[0], 1, w.incarnations[1], "left: pod deleted");
    late = reduce_one(&w, 0);
    assert_int_equal(run_wait(late), TUTTI_UNAVAILABLE);
    assert_string_equal(late->err.reason, "RANK_LOST");
    assert_text_has(late->err.text, "rank 1 is gone: left: pod deleted");
    run_free(late);
    w.incarnations[1] = tutti_id_draw(); /* who was lost does not come back as the same */
    world_sit(&w, 1);
    tutti_coll_set_peer(w.engines[0], 1, w.incarnations[1],
                        tutti_coll_engine_address(w.engines[1]));
    for (i = 0; i < 2; i++) {
        tutti_coll_group_renew(w.groups[i], 2);
    }
    for (i = 0; i < 2; i++) {
        runs[i] = reduce_one(&w, i);
    }
    expect_good(runs[0]);
    expect_good(runs[1]);
    world_close(&w);
}

/*
 * The host of a rank has lost its power: nothing says that connections to it are no more. An op that fails because
 * another process has taken the seat is told to all members, and must not have a new way made to the old one.
 */
static void
test_successor__of_a_silent_process_gets_what_is_sent(void **state)
{
    static const uint32_t ranks[] = {0, 1};
    tutti_coll_engine *predecessor;
    run *one[2];
    tutti_error err;
    world w;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    expect_both_good(&w);
    predecessor = w.engines[1];
    fake_transport_freeze(w.wires[1], true);
    one[0] = reduce_one(&w, 0);
    one[1] = reduce_one(&w, 0); /* the second op has nobody to wait for when it fails */
    world_revive(&w, 1);
    assert_ok(tutti_coll_group_open(w.engines[1], 1, "world", 2, ranks, 2, &w.groups[1], &err));
    tutti_coll_set_peer(w.engines[0], 1, w.incarnations[1],
                        tutti_coll_engine_address(w.engines[1]));
    assert_int_equal(run_wait(one[0]), TUTTI_UNAVAILABLE);
    run_free(one[0]);
    tutti_coll_group_renew(w.groups[0], 2);
    assert_int_not_equal(run_wait(one[1]), TUTTI_OK);
    run_free(one[1]);
    expect_both_good(&w);
    tutti_coll_engine_stop(predecessor);
    world_close(&w);
}

/* The coordinator answers who a rank is, and the news of its loss comes by another way and first. */
static void
test_loss__is_not_taken_back_by_an_older_answer(void **state)
{
    run *one[2];
    uint32_t i;
    world w;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    expect_both_good(&w);
    tutti_coll_lose_peer(w.engines[0], 1, w.incarnations[1], "killed");
    tutti_coll_set_peer(w.engines[0], 1, w.incarnations[1],
                        tutti_coll_engine_address(w.engines[1]));
    one[0] = reduce_one(&w, 0);
    assert_int_equal(run_wait(one[0]), TUTTI_UNAVAILABLE);
    assert_string_equal(one[0]->err.reason, "RANK_LOST");
    run_free(one[0]);
    /* It joins again, at a coordinator that knows nothing of the loss. */
    world_sit(&w, 0);
    tutti_coll_set_peer(w.engines[0], 1, w.incarnations[1],
                        tutti_coll_engine_address(w.engines[1]));
    for (i = 0; i < 2; i++) {
        tutti_coll_group_renew(w.groups[i], 2);
    }
    expect_both_good(&w);
    world_close(&w);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leave__lets_end_what_the_leaver_has_begun),
        cmocka_unit_test(test_leave__of_two_counts_from_who_began_less),
        cmocka_unit_test(test_leave__ends_with_the_loss_and_with_a_new_epoch),
        cmocka_unit_test(test_successor__of_a_silent_process_gets_what_is_sent),
        cmocka_unit_test(test_loss__is_not_taken_back_by_an_older_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
