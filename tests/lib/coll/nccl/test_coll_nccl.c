/*
 * Goal: an op on a device that cannot end well ends for every rank with NCCL's words, its
 * communicator is aborted in bounded time, and the group goes on with another. Method: engines of
 * one process on stand-ins for CUDA and NCCL that fail, hang and break when they are told to.
 */
#include "support/testing.h"

#include <unistd.h>

#include "base/os/clock.h"
#include "nccl_standin.h"
#include "support/world.h"

#include "cuda_standin.h"

#define LONG_MS 60000
#define SHORT_MS 300

static int32_t numbers[WORLD_MAX];

static run *
reduce_on(tutti_coll_group *group, int32_t *number, int64_t count, uint64_t timeout_ms)
{
    run *self = run_new(TUTTI_COLL_ALL_REDUCE);

    run_give(self, TUTTI_DTYPE_INT32, count, number, number);
    run_post(self, group, timeout_ms);
    return self;
}

static run *
reduce_one(world *w, uint32_t rank, uint64_t timeout_ms)
{
    numbers[rank] = (int32_t)rank + 1;
    return reduce_on(w->groups[rank], &numbers[rank], 1, timeout_ms);
}

static void
reduce_all(world *w, run **runs, uint64_t timeout_ms)
{
    uint32_t i;

    for (i = 0; i < w->size; i++) {
        runs[i] = reduce_one(w, i, timeout_ms);
    }
}

static void
check_group_works(world *w)
{
    run *runs[WORLD_MAX];
    uint32_t i;

    reduce_all(w, runs, LONG_MS);
    for (i = 0; i < w->size; i++) {
        if (run_wait(runs[i]) != TUTTI_OK) {
            fail_msg("the group does not go on: %s", runs[i]->err.text);
        }
        assert_int_equal(numbers[i], w->size * (w->size + 1) / 2);
        run_free(runs[i]);
    }
}

/* Nothing of NCCL's or CUDA's is left behind. The device may have an aborted op for a moment yet.
 */
static void
end(world *w)
{
    int waited = 0;

    tutti_standin_nccl_set("");
    world_close(w);
    while (tutti_standin_nccl_left() > 0 && waited++ < 60000) {
        (void)usleep(1000);
    }
    assert_int_equal(tutti_standin_nccl_left(), 0);
    assert_int_equal(tutti_standin_cuda_left(), 0);
}

/* An op that all ranks call fails on all of them with this code and reason, and these words. */
static void
check_all_fail(world *w, tutti_code code, const char *reason, const char *words)
{
    run *runs[WORLD_MAX];
    uint32_t i;

    reduce_all(w, runs, LONG_MS);
    for (i = 0; i < w->size; i++) {
        if (run_wait(runs[i]) != code) {
            fail_msg("rank %u: %s", i, runs[i]->err.text);
        }
        assert_string_equal(runs[i]->err.reason, reason);
        assert_text_has(runs[i]->err.text, words);
        run_free(runs[i]);
    }
}

/* ------------------------------------------------------------------------------ communicators */

static void
test_group__has_one_communicator_from_its_first_op_to_its_end(void **state)
{
    world w;
    int k;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    assert_int_equal(tutti_standin_nccl_left(), 0);
    for (k = 0; k < 5; k++) {
        check_group_works(&w);
        assert_int_equal(tutti_standin_nccl_left(), 3);
    }
    end(&w);
}

static void
test_group__that_is_closed_destroys_its_communicator(void **state)
{
    const uint64_t aborts = tutti_standin_nccl_aborts();
    world w;
    int waited;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    check_group_works(&w);
    for (i = 0; i < w.size; i++) {
        tutti_coll_group_close(w.groups[i]);
    }
    for (waited = 0; tutti_standin_nccl_left() > 0 && waited < 60000; waited++) {
        (void)usleep(1000);
    }
    assert_int_equal(tutti_standin_nccl_left(), 0);
    assert_int_equal(tutti_standin_nccl_aborts(), aborts);
    end(&w);
}

static void
test_groups__that_share_devices_never_wait_for_each_other_for_ever(void **state)
{
    enum {
        ROUNDS = 12
    };
    static const uint32_t lists[4][3] = {{0, 1}, {1, 2}, {2, 0}, {2, 1, 0}};
    static const uint32_t counts[4] = {2, 2, 2, 3};
    static int32_t data[4][3][ROUNDS];
    tutti_coll_group *groups[4][3];
    run *runs[4][3][ROUNDS];
    world w;
    uint32_t rank;
    uint32_t i;
    size_t g;
    int k;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    fake_network_shuffle(w.network, 4, 5);
    for (g = 0; g < 4; g++) {
        world_group(&w, "g", lists[g], counts[g], groups[g]);
    }
    for (rank = 0; rank < 3; rank++) { /* each rank in an order of its own */
        for (k = 0; k < ROUNDS * 4; k++) {
            g = (size_t)(k + (int)rank * 3) % 4;
            for (i = 0; i < counts[g]; i++) {
                if (lists[g][i] == rank) {
                    data[g][i][k / 4] = 1;
                    runs[g][i][k / 4] = reduce_on(groups[g][i], &data[g][i][k / 4], 1, LONG_MS);
                }
            }
        }
    }
    for (k = 0; k < ROUNDS; k++) {
        for (g = 0; g < 4; g++) {
            for (i = 0; i < counts[g]; i++) {
                if (run_wait(runs[g][i][k]) != TUTTI_OK) {
                    fail_msg("%s", runs[g][i][k]->err.text);
                }
                assert_int_equal(data[g][i][k], counts[g]);
                run_free(runs[g][i][k]);
            }
        }
    }
    end(&w);
}

/* ------------------------------------------------------------------------------ what differs */

static void
test_mismatch__is_refused_before_anything_is_launched(void **state)
{
    const uint64_t before = tutti_standin_nccl_groups();
    world w;
    run *one;
    run *other;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    one = reduce_on(w.groups[0], &numbers[0], 1, LONG_MS);
    other = reduce_on(w.groups[1], &numbers[1], 2, LONG_MS);
    assert_int_equal(run_wait(one), TUTTI_INVALID_ARGUMENT);
    assert_int_equal(run_wait(other), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(one->err.reason, "SHAPE_MISMATCH");
    assert_text_has(one->err.text, "all_reduce(sum, INT32[1]) on cuda");
    assert_int_equal(tutti_standin_nccl_groups(), before);
    run_free(one);
    run_free(other);
    check_group_works(&w);
    end(&w);
}

static void
test_mismatch__of_places_names_who_is_where(void **state)
{
    world w;
    run *one;
    run *other;
    tutti_error err;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    one = reduce_one(&w, 0, LONG_MS);
    other = run_new(TUTTI_COLL_ALL_REDUCE);
    run_give(other, TUTTI_DTYPE_INT32, 1, &numbers[1], &numbers[1]);
    other->op.deadline_ns = tutti_clock_ns() + LONG_MS * TUTTI_NS_PER_MS;
    assert_ok(tutti_coll_post(w.groups[1], &other->op, 0, &err));
    assert_int_equal(run_wait(one), TUTTI_FAILED_PRECONDITION);
    assert_int_equal(run_wait(other), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(one->err.reason, "DEVICE_MISMATCH");
    assert_text_has(one->err.text, "rank 0 called all_reduce(sum, INT32[1]) on cuda, rank 1 "
                                   "all_reduce(sum, INT32[1])");
    run_free(one);
    run_free(other);
    check_group_works(&w);
    end(&w);
}

/* ------------------------------------------------------------------------------ what fails */

static void
test_failure__of_any_call_is_told_to_all_with_nccls_words(void **state)
{
    static const char *const calls[] = {"ncclGetUniqueId", "ncclCommInitRankConfig",
                                        "ncclGroupStart",  "ncclAllReduce",
                                        "ncclGroupEnd",    "ncclCommGetAsyncError"};
    char setting[64];
    char words[96];
    world w;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(calls); i++) {
        world_open(&w, world_transport_fake, 3);
        (void)snprintf(setting, sizeof(setting), "fail:%s:1", calls[i]);
        (void)snprintf(words, sizeof(words), "%s: unhandled system error",
                       i < COUNT_OF(calls) - 1 ? calls[i] : "ncclCommInitRankConfig");
        tutti_standin_nccl_set(setting);
        check_all_fail(&w, TUTTI_INTERNAL, "NCCL_FAILED", words);
        check_group_works(&w);
        end(&w);
    }
}

static void
test_failure__says_the_op_the_ranks_and_what_to_do(void **state)
{
    world w;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    tutti_standin_nccl_set("fail:ncclAllReduce:1");
    check_all_fail(&w, TUTTI_INTERNAL, "NCCL_FAILED",
                   "group world op 1: all_reduce(sum, INT32[1]) on cuda at rank ");
    tutti_standin_nccl_set("fail:ncclAllReduce:1");
    check_all_fail(&w, TUTTI_INTERNAL, "NCCL_FAILED",
                   "(ncclAllReduce: as it was asked to); a call of the system failed: start the "
                   "agents with NCCL_DEBUG=WARN");
    end(&w);
}

/* Who is through with the op before another rank's end of it fails has the right result. */
static void
check_some_fail(world *w, tutti_code code, const char *reason, const char *words)
{
    run *runs[WORLD_MAX];
    uint32_t failed = 0;
    uint32_t i;

    reduce_all(w, runs, LONG_MS);
    for (i = 0; i < w->size; i++) {
        if (run_wait(runs[i]) == TUTTI_OK) {
            assert_int_equal(numbers[i], w->size * (w->size + 1) / 2);
        } else {
            assert_int_equal(runs[i]->err.code, code);
            assert_string_equal(runs[i]->err.reason, reason);
            assert_text_has(runs[i]->err.text, words);
            failed++;
        }
        run_free(runs[i]);
    }
    assert_true(failed > 0);
}

static void
test_failure__of_cuda_is_told_too(void **state)
{
    world w;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    check_group_works(&w);
    tutti_standin_cuda_fail("cudaEventRecord", 1);
    check_some_fail(&w, TUTTI_INTERNAL, "DEVICE_FAILED", "cudaEventRecord: ");
    tutti_standin_cuda_fail(NULL, 0);
    check_group_works(&w);
    end(&w);
}

static void
test_async_error__is_noticed_and_the_communicator_replaced(void **state)
{
    const uint64_t aborts = tutti_standin_nccl_aborts();
    int waited = 0;
    world w;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    check_group_works(&w);
    tutti_standin_nccl_set("async:1");
    check_all_fail(&w, TUTTI_UNAVAILABLE, "NCCL_FAILED",
                   "remote process exited or there was a network error");
    while (tutti_standin_nccl_aborts() < aborts + 3 && waited++ < 60000) {
        (void)usleep(1000); /* whose op was not launched does not wait for it */
    }
    assert_true(tutti_standin_nccl_aborts() >= aborts + 3);
    check_group_works(&w);
    end(&w);
}

static void
test_making__that_fails_is_an_error_and_the_next_op_tries_again(void **state)
{
    world w;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    tutti_standin_nccl_set("init:2");
    check_all_fail(&w, TUTTI_UNAVAILABLE, "NCCL_FAILED", "ncclCommInitRankConfig: ");
    check_group_works(&w);
    end(&w);
}

/* ------------------------------------------------------------------------------ what hangs */

static void
test_hang__ends_at_the_deadline_for_all_and_memory_comes_back(void **state)
{
    run *runs[WORLD_MAX];
    world w;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    check_group_works(&w);
    tutti_standin_nccl_set("hang:2");
    reduce_all(&w, runs, SHORT_MS);
    for (i = 0; i < w.size; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_DEADLINE_EXCEEDED);
        run_free(runs[i]);
    }
    check_group_works(&w);
    end(&w);
}

static void
test_hang__of_one_group_fails_later_ops_of_it_and_delays_those_of_others(void **state)
{
    static const uint32_t ranks[2] = {1, 0};
    static int32_t others[2];
    tutti_coll_group *groups[2];
    run *first[2];
    run *behind[2];
    run *beside[2];
    world w;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    world_group(&w, "other", ranks, 2, groups);
    check_group_works(&w);
    tutti_standin_nccl_set("hang:1");
    for (i = 0; i < 2; i++) {
        first[i] = reduce_one(&w, i, SHORT_MS);
    }
    for (i = 0; i < 2; i++) {
        behind[i] = reduce_one(&w, i, LONG_MS);
        others[i] = 1;
        beside[i] = reduce_on(groups[i], &others[i], 1, LONG_MS);
    }
    for (i = 0; i < 2; i++) {
        assert_int_equal(run_wait(first[i]), TUTTI_DEADLINE_EXCEEDED);
        (void)run_wait(behind[i]); /* it was launched on the same communicator, or was not yet */
        assert_int_equal(run_wait(beside[i]), TUTTI_OK);
        assert_int_equal(others[i], 2);
    }
    assert_int_equal(behind[0]->code, behind[1]->code);
    for (i = 0; i < 2; i++) {
        run_free(first[i]);
        run_free(behind[i]);
        run_free(beside[i]);
    }
    check_group_works(&w);
    end(&w);
}

static void
test_abort__that_takes_long_does_not_keep_the_caller_waiting(void **state)
{
    run *runs[WORLD_MAX];
    uint64_t told_ns = 0;
    world w;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    tutti_standin_nccl_set("fail:ncclAllReduce:1,abort:3000");
    reduce_all(&w, runs, LONG_MS);
    while (!run_is_done(runs[0]) || !run_is_done(runs[1])) {
        (void)usleep(1000);
    }
    told_ns = tutti_clock_ns();
    for (i = 0; i < w.size; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_INTERNAL);
        run_free(runs[i]);
    }
    assert_true(tutti_clock_ns() - told_ns > TUTTI_NS_PER_S); /* memory came back behind it */
    tutti_standin_nccl_set("");
    check_group_works(&w);
    end(&w);
}

static void
test_death__of_a_member_aborts_what_the_others_launched(void **state)
{
    run *runs[WORLD_MAX];
    world w;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 3);
    check_group_works(&w);
    tutti_standin_nccl_set("hang:1");
    reduce_all(&w, runs, LONG_MS);
    (void)usleep(50000);
    world_kill(&w, 2);
    tutti_coll_lose_peer(w.engines[0], 2, 0, "its process is gone");
    tutti_coll_lose_peer(w.engines[1], 2, 0, "its process is gone");
    for (i = 0; i < w.size; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_UNAVAILABLE);
        run_free(runs[i]);
    }
    end(&w);
}

/* ------------------------------------------------------------------------------ send, receive */

static void
test_send__goes_on_while_an_op_of_the_device_hangs(void **state)
{
    static int32_t sent = 41;
    static int32_t got;
    run *runs[WORLD_MAX];
    run *send;
    run *recv;
    world w;
    uint32_t i;

    (void)state;
    world_open(&w, world_transport_fake, 2);
    tutti_standin_nccl_set("hang:1");
    reduce_all(&w, runs, LONG_MS);
    send = run_new(TUTTI_COLL_SEND);
    run_give(send, TUTTI_DTYPE_INT32, 1, &sent, NULL);
    send->op.args.peer = 1;
    recv = run_new(TUTTI_COLL_RECV);
    run_give(recv, TUTTI_DTYPE_INT32, 1, NULL, &got);
    recv->op.args.peer = 0;
    run_post(recv, w.groups[1], LONG_MS);
    run_post(send, w.groups[0], LONG_MS);
    assert_int_equal(run_wait(send), TUTTI_OK);
    assert_int_equal(run_wait(recv), TUTTI_OK);
    assert_int_equal(got, 41);
    run_free(send);
    run_free(recv);
    tutti_coll_engine_refuse(w.engines[0]);
    for (i = 0; i < w.size; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_UNAVAILABLE);
        run_free(runs[i]);
    }
    end(&w);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group__has_one_communicator_from_its_first_op_to_its_end),
        cmocka_unit_test(test_group__that_is_closed_destroys_its_communicator),
        cmocka_unit_test(test_groups__that_share_devices_never_wait_for_each_other_for_ever),
        cmocka_unit_test(test_mismatch__is_refused_before_anything_is_launched),
        cmocka_unit_test(test_mismatch__of_places_names_who_is_where),
        cmocka_unit_test(test_failure__of_any_call_is_told_to_all_with_nccls_words),
        cmocka_unit_test(test_failure__says_the_op_the_ranks_and_what_to_do),
        cmocka_unit_test(test_failure__of_cuda_is_told_too),
        cmocka_unit_test(test_async_error__is_noticed_and_the_communicator_replaced),
        cmocka_unit_test(test_making__that_fails_is_an_error_and_the_next_op_tries_again),
        cmocka_unit_test(test_hang__ends_at_the_deadline_for_all_and_memory_comes_back),
        cmocka_unit_test(test_hang__of_one_group_fails_later_ops_of_it_and_delays_those_of_others),
        cmocka_unit_test(test_abort__that_takes_long_does_not_keep_the_caller_waiting),
        cmocka_unit_test(test_death__of_a_member_aborts_what_the_others_launched),
        cmocka_unit_test(test_send__goes_on_while_an_op_of_the_device_hangs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
