/*
 * Goal: ops go on while members learn of an epoch one after the other; who is not a member any more
 * hinders nobody.
 * Method: engines over sealed transports that are told of epochs in any order, with ops on their
 * way.
 */
#include "support/testing.h"

#include "support/world.h"

#define WORLD 3
#define COUNT 5000 /* more than an eager packet */
#define EPOCHS 30

static world w;

static int
begin(void **state)
{
    (void)state;
    world_open(&w, WIRE, WORLD);
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
start_sum(tutti_coll_group *group)
{
    static float ones[COUNT];
    run *it = run_new(TUTTI_COLL_ALL_REDUCE);

    ones[0] = 1.0F;
    it->made = malloc(COUNT * sizeof(float));
    run_give(it, TUTTI_DTYPE_FP32, COUNT, ones, it->made);
    run_post(it, group, 60000);
    return it;
}

static void
end_sum(run *it, float wanted)
{
    assert_int_equal(run_wait(it), TUTTI_OK);
    assert_true(((const float *)it->made)[0] == wanted);
    run_free(it);
}

static void
test_epochs__learned_at_different_times_lose_no_op(void **state)
{
    run *runs[2][WORLD];
    uint64_t epoch;
    uint32_t rank;

    (void)state;
    for (epoch = 2; epoch < EPOCHS; epoch++) {
        for (rank = 0; rank < WORLD; rank++) {
            runs[0][rank] = start_sum(w.groups[rank]);
        }
        world_rekey(&w, epoch, (uint32_t)(epoch % WORLD)); /* one of them does not know yet */
        for (rank = 0; rank < WORLD; rank++) {
            runs[1][rank] = start_sum(w.groups[rank]);
        }
        world_rekey(&w, epoch, WORLD_MAX);
        for (rank = 0; rank < WORLD; rank++) {
            end_sum(runs[0][rank], WORLD);
            end_sum(runs[1][rank], WORLD);
        }
    }
}

static void
test_expelled__may_call_what_it_wants(void **state)
{
    const uint32_t both[] = {0, 1};
    tutti_coll_group *stay[2];
    run *runs[WORLD];
    run *alone;
    uint32_t i;

    (void)state;
    world_group(&w, "stay", both, 2, stay);
    for (i = 0; i < WORLD; i++) {
        runs[i] = start_sum(w.groups[i]);
    }
    for (i = 0; i < WORLD; i++) {
        end_sum(runs[i], WORLD); /* ways are there, and the old key is known */
    }
    world_rekey(&w, 2, 2);
    for (i = 0; i < 2; i++) {
        tutti_coll_lose_peer(w.engines[i], 2, w.incarnations[2], "it left");
    }
    alone = start_sum(w.groups[2]);
    for (i = 0; i < EPOCHS; i++) {
        runs[0] = start_sum(stay[0]);
        runs[1] = start_sum(stay[1]);
        end_sum(runs[0], 2);
        end_sum(runs[1], 2);
    }
    tutti_coll_lose_peer(w.engines[2], 0, w.incarnations[0], "nobody speaks to it");
    assert_int_not_equal(run_wait(alone), TUTTI_OK);
    run_free(alone);
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_epochs__learned_at_different_times_lose_no_op),
        SENTENCE(test_expelled__may_call_what_it_wants),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
