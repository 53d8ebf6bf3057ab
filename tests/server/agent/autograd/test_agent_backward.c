/*
 * Goal: gradients go back through what the ranks have recorded, in whatever order they call; a
 * Backward that cannot work fails on all ranks, with the reason of the one where it is wrong, and
 * leaves the tape as it was. Method: agents of one process; gradients are compared with those
 * worked out by hand.
 */
#include "server/agent/autograd/backward_rig.h"
#include "server/agent/op/agent_rig.h"
#include "server/agent/op/group.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "support/testing.h"

#define RANKS 2
#define TRACER "t"

/* Of each rank: a tensor that is attached, what ops made of it, and a gradient of that. */
typedef struct trial {
    agent_rig *rig;
    tutti_tape *tapes[RANKS];
    char inputs[RANKS][RIG_HANDLE_SIZE];
    char results[RANKS][RIG_HANDLE_SIZE];
    char gradients[RANKS][RIG_HANDLE_SIZE];
    rig_backward requests[RANKS];
    rig_call *calls[RANKS];
} trial;

static const double values[] = {1, 5, 3, 2}; /* rank 0 has 1 and 5 */
static const double given[] = {10, 20, 1, 2};
static const double sums[] = {11, 22};

static bool
is_answered(const rig_call *call)
{
    return atomic_load(&call->call.answered);
}

static void
open_trial(trial *t, agent_rig *rig)
{
    tutti_error err;
    uint32_t i;

    *t = (trial){.rig = rig};
    agent_rig_put_all(rig, values, 2, t->inputs);
    agent_rig_put_all(rig, given, 2, t->gradients);
    for (i = 0; i < RANKS; i++) {
        t->tapes[i] = agent_rig_trace(rig, i, TRACER);
        assert_ok(agent_rig_attach(rig, i, TRACER, t->inputs[i], &err));
        t->requests[i] = (rig_backward){
            .tracer = TRACER, .tensors = {t->results[i]}, .gradients = {t->gradients[i]}};
    }
}

/* The same op on both ranks, each on a tensor of its own. */
static void
run_op(trial *t, agent_request request, char inputs[][RIG_HANDLE_SIZE],
       char ret_results[][RIG_HANDLE_SIZE])
{
    agent_request requests[RANKS];
    uint32_t i;

    for (i = 0; i < RANKS; i++) {
        requests[i] = request;
        requests[i].input = inputs[i];
    }
    agent_rig_run_all(t->rig, requests, ret_results);
}

/* The sum of both inputs is on the tape. */
static void
open_sum(trial *t, agent_rig *rig)
{
    open_trial(t, rig);
    run_op(t, rig_all_reduce(NULL), t->inputs, t->results);
    assert_int_equal(t->tapes[0]->record_count, 1);
}

static void
begin_backwards(trial *t)
{
    uint32_t i;

    for (i = 0; i < RANKS; i++) {
        t->calls[i] = agent_rig_backward(t->rig, i, &t->requests[i]);
    }
}

static void
run_backwards(trial *t)
{
    uint32_t i;

    begin_backwards(t);
    for (i = 0; i < RANKS; i++) {
        agent_rig_end_well(t->rig, t->calls[i]);
    }
    agent_rig_settle(t->rig);
}

/* Both fail like that; what is recorded is still there. */
static void
fail_backwards(trial *t, tutti_code code, const char *reason)
{
    uint32_t i;

    begin_backwards(t);
    for (i = 0; i < RANKS; i++) {
        agent_rig_end_failed(t->rig, t->calls[i], code, reason);
    }
    agent_rig_settle(t->rig);
}

static rig_call *
begin_barrier(agent_rig *rig, uint32_t rank)
{
    const agent_request request = rig_request(TUTTI_COLL_BARRIER, NULL);

    return agent_rig_begin(rig, rank, &request);
}

/* ------------------------------------------------------------------------------ gradients */

static void
test_backward__of_a_sum_gives_each_rank_the_sum_of_gradients(void **state)
{
    trial t;
    uint32_t i;

    open_sum(&t, *state);
    run_backwards(&t);
    for (i = 0; i < RANKS; i++) {
        assert_int_equal(t.calls[i]->gradient_count, 1);
        assert_string_equal(t.calls[i]->gradients[0].tensor, t.inputs[i]);
        rig_check_gradient(t.rig, i, t.calls[i], 0, sums, 2);
        assert_int_equal(t.tapes[i]->record_count, 0);
        assert_int_equal(t.tapes[i]->leaf_count, 1); /* still attached */
    }
}

static void
test_backward__goes_through_several_ops(void **state)
{
    const double thrice[] = {33, 66};
    agent_request parts = rig_request(TUTTI_COLL_REDUCE_SCATTER, NULL);
    agent_request all = rig_request(TUTTI_COLL_ALL_GATHER, NULL);
    agent_request sum = rig_all_reduce(NULL);
    char made[3][RANKS][RIG_HANDLE_SIZE];
    trial t;
    uint32_t i;

    open_trial(&t, *state);
    parts.args.reduce = TUTTI_REDUCE_PREMUL_SUM;
    parts.args.factor = 3;
    sum.args.reduce = TUTTI_REDUCE_AVG;
    run_op(&t, parts, t.inputs, made[0]);
    run_op(&t, all, made[0], made[1]);
    run_op(&t, sum, made[1], t.results);
    for (i = 0; i < RANKS; i++) { /* tapes keep no tensors */
        agent_rig_delete(t.rig, i, made[0][i]);
        agent_rig_delete(t.rig, i, made[1][i]);
    }
    run_backwards(&t);
    for (i = 0; i < RANKS; i++) {
        rig_check_gradient(t.rig, i, t.calls[i], 0, thrice, 2);
    }
}

static void
test_backward__adds_the_gradients_of_a_tensor_that_was_used_twice(void **state)
{
    const double wanted[] = {22 + 11, 44 + 22};
    char twice[RANKS][RIG_HANDLE_SIZE];
    trial t;
    uint32_t i;

    open_sum(&t, *state);
    run_op(&t, rig_all_reduce(NULL), t.inputs, twice);
    for (i = 0; i < RANKS; i++) { /* and one result has two gradients */
        t.requests[i].tensors[1] = t.results[i];
        t.requests[i].gradients[1] = t.gradients[i];
        t.requests[i].tensors[2] = twice[i];
        t.requests[i].gradients[2] = t.gradients[i];
    }
    run_backwards(&t);
    for (i = 0; i < RANKS; i++) {
        rig_check_gradient(t.rig, i, t.calls[i], 0, wanted, 2);
        agent_rig_check(t.rig, i, t.gradients[i], given + 2 * i, 2); /* what was given stays */
    }
}

/* Also where the result overwrites the input. */
static void
test_backward__of_a_maximum_reaches_the_rank_that_has_it(void **state)
{
    const double wanted[RANKS][2] = {{0, 22}, {11, 0}};
    agent_request requests[RANKS];
    agent_rig *rig = *state;
    uint32_t round;
    trial t;
    uint32_t i;

    open_trial(&t, rig);
    for (round = 0; round < 2; round++) {
        for (i = 0; i < RANKS; i++) {
            requests[i] = rig_all_reduce(t.inputs[i]);
            requests[i].args.reduce = TUTTI_REDUCE_MAX;
            requests[i].output = round == 0 ? "" : t.inputs[i];
        }
        agent_rig_run_all(rig, requests, t.results);
        run_backwards(&t);
        for (i = 0; i < RANKS; i++) {
            rig_check_gradient(rig, i, t.calls[i], 0, wanted[i], 2);
        }
    }
}

static void
test_backward__of_a_broadcast_sums_at_the_root(void **state)
{
    agent_request request = rig_request(TUTTI_COLL_BROADCAST, NULL);
    agent_request requests[RANKS] = {request, request};
    trial t;

    open_trial(&t, *state);
    requests[0].input = t.inputs[0];
    agent_rig_run_all(t.rig, requests, t.results);
    assert_int_equal(t.tapes[1]->record_count, 1); /* the root said so */
    run_backwards(&t);
    rig_check_gradient(t.rig, 0, t.calls[0], 0, sums, 2);
    rig_check_no_gradient(t.calls[1], 0);
}

static void
test_backward__of_a_message_goes_to_its_sender(void **state)
{
    agent_request requests[RANKS];
    trial t;

    open_trial(&t, *state);
    requests[0] = rig_request(TUTTI_COLL_SEND, t.inputs[0]);
    requests[0].args.peer = 1;
    requests[1] = rig_request(TUTTI_COLL_RECV, NULL);
    requests[1].args.peer = TUTTI_COLL_ANY_SOURCE;
    agent_rig_run_all(t.rig, requests, t.results);
    t.requests[0].tensors[0] = NULL;
    run_backwards(&t);
    rig_check_gradient(t.rig, 0, t.calls[0], 0, given + 2, 2);
    rig_check_no_gradient(t.calls[1], 0);
}

/* Each rank alone: the other one does not call. */
static void
test_backward__of_a_local_op_needs_no_other_rank(void **state)
{
    agent_request request = rig_all_reduce(NULL);
    trial t;

    open_trial(&t, *state);
    request.options.local_grad = true;
    run_op(&t, request, t.inputs, t.results);
    t.calls[0] = agent_rig_backward(t.rig, 0, &t.requests[0]);
    agent_rig_end_well(t.rig, t.calls[0]);
    rig_check_gradient(t.rig, 0, t.calls[0], 0, given, 2);
}

/* A coalesced op is as many ops. */
static void
test_backward__goes_through_each_tensor_of_a_list(void **state)
{
    agent_request requests[RANKS];
    agent_input inputs[RANKS][2];
    char others[RANKS][RIG_HANDLE_SIZE];
    rig_call *calls[RANKS];
    tutti_error err;
    trial t;
    uint32_t i;

    open_trial(&t, *state);
    agent_rig_put_all(t.rig, values, 1, others);
    for (i = 0; i < RANKS; i++) {
        assert_ok(agent_rig_attach(t.rig, i, TRACER, others[i], &err));
        inputs[i][0] = (agent_input){.handle = others[i]};
        inputs[i][1] = (agent_input){.handle = t.inputs[i]};
        requests[i] = rig_all_reduce(NULL);
        requests[i].is_list = true;
        requests[i].args.coalesced = true;
        requests[i].input_count = 2;
        requests[i].inputs = inputs[i];
        calls[i] = agent_rig_begin(t.rig, i, &requests[i]);
    }
    for (i = 0; i < RANKS; i++) {
        agent_rig_end_well(t.rig, calls[i]);
        assert_int_equal(calls[i]->result.output_count, 2);
        memcpy(t.results[i], calls[i]->outputs[1].handle, RIG_HANDLE_SIZE);
    }
    agent_rig_settle(t.rig);
    assert_int_equal(t.tapes[0]->record_count, 2);
    run_backwards(&t);
    for (i = 0; i < RANKS; i++) {
        rig_check_gradient(t.rig, i, t.calls[i], 0, sums, 2);
        rig_check_no_gradient(t.calls[i], 1);
    }
}

static void
test_backward__without_any_gradient_runs_no_gradient_ops(void **state)
{
    trial t;
    uint32_t i;

    open_sum(&t, *state);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].tensors[0] = NULL;
    }
    run_backwards(&t);
    for (i = 0; i < RANKS; i++) {
        rig_check_no_gradient(t.calls[i], 0);
    }
}

/* The other one only takes part, with zeros. */
static void
test_backward__may_have_a_gradient_on_one_rank_alone(void **state)
{
    trial t;
    uint32_t i;

    open_sum(&t, *state);
    t.requests[1].tensors[0] = NULL;
    run_backwards(&t);
    for (i = 0; i < RANKS; i++) {
        rig_check_gradient(t.rig, i, t.calls[i], 0, given, 2);
    }
}

static void
test_backward__gives_the_gradients_that_are_wanted(void **state)
{
    trial t;
    uint32_t i;

    open_sum(&t, *state);
    for (i = 0; i < RANKS; i++) { /* of a result in between, too */
        t.requests[i].wanted[0] = t.results[i];
        t.requests[i].wanted[1] = t.inputs[i];
    }
    run_backwards(&t);
    for (i = 0; i < RANKS; i++) {
        assert_int_equal(t.calls[i]->gradient_count, 2);
        rig_check_gradient(t.rig, i, t.calls[i], 0, given + 2 * i, 2);
        rig_check_gradient(t.rig, i, t.calls[i], 1, sums, 2);
        assert_string_not_equal(t.calls[i]->gradients[0].gradient, t.gradients[i]);
    }
}

/* ------------------------------------------------------------------------------ again */

static void
test_backward__empties_its_tape_so_a_second_one_knows_nothing_of_results(void **state)
{
    trial t;

    open_sum(&t, *state);
    run_backwards(&t);
    fail_backwards(&t, TUTTI_FAILED_PRECONDITION, "NOT_ON_TAPE");
    assert_text_has(t.calls[0]->call.err.text, t.results[0]);
}

static void
test_backward__may_keep_its_tape_for_another_one(void **state)
{
    trial t;
    uint32_t round;
    uint32_t i;

    open_sum(&t, *state);
    for (round = 0; round < 2; round++) {
        for (i = 0; i < RANKS; i++) {
            t.requests[i].keep = round == 0;
        }
        run_backwards(&t);
        for (i = 0; i < RANKS; i++) { /* gradients do not pile up */
            rig_check_gradient(t.rig, i, t.calls[i], 0, sums, 2);
        }
    }
    assert_int_equal(t.tapes[0]->record_count, 0);
}

static void
test_backward__waits_for_one_of_the_same_tape_that_came_before(void **state)
{
    rig_call *second[RANKS];
    trial t;
    uint32_t i;

    open_sum(&t, *state);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].keep = true;
    }
    begin_backwards(&t);
    for (i = 0; i < RANKS; i++) {
        second[i] = agent_rig_backward(t.rig, i, &t.requests[i]);
    }
    for (i = 0; i < RANKS; i++) {
        agent_rig_end_well(t.rig, t.calls[i]);
        agent_rig_end_well(t.rig, second[i]);
        assert_true(t.calls[i]->call.turn < second[i]->call.turn);
        rig_check_gradient(t.rig, i, second[i], 0, sums, 2);
    }
}

/* ------------------------------------------------------------------------------ order */

/* The op has not run when Backward is called, so its result has no shape yet. */
static void
test_backward__waits_for_ops_that_came_before_it(void **state)
{
    agent_request request;
    trial t;
    uint32_t i;

    open_trial(&t, *state);
    for (i = 0; i < RANKS; i++) {
        rig_call *call;

        request = rig_all_reduce(t.inputs[i]);
        request.options.async = true;
        call = agent_rig_begin(t.rig, i, &request);
        memcpy(t.results[i], call->result.handle, RIG_HANDLE_SIZE);
        t.calls[i] = agent_rig_backward(t.rig, i, &t.requests[i]);
    }
    for (i = 0; i < RANKS; i++) {
        agent_rig_end_well(t.rig, t.calls[i]);
        rig_check_gradient(t.rig, i, t.calls[i], 0, sums, 2);
    }
}

/* Rank 0 calls a barrier behind it, rank 1 has not called it yet. */
static void
test_backward__keeps_its_place_in_the_order_of_its_group(void **state)
{
    rig_call *barriers[RANKS];
    trial t;
    uint32_t i;

    open_sum(&t, *state);
    t.calls[0] = agent_rig_backward(t.rig, 0, &t.requests[0]);
    barriers[0] = begin_barrier(t.rig, 0);
    agent_rig_step(t.rig, TUTTI_NS_PER_S);
    assert_false(is_answered(t.calls[0]) || is_answered(barriers[0]));
    t.calls[1] = agent_rig_backward(t.rig, 1, &t.requests[1]);
    barriers[1] = begin_barrier(t.rig, 1);
    for (i = 0; i < RANKS; i++) {
        agent_rig_end_well(t.rig, t.calls[i]);
        agent_rig_end_well(t.rig, barriers[i]);
        assert_int_equal(barriers[i]->result.sequence, 4); /* sum, what is agreed, gradient op */
    }
}

/* Each rank recorded the ops of two groups in its own order. */
static void
test_backward__of_two_groups_in_different_orders_ends(void **state)
{
    static const uint32_t ranks[] = {0, 1};
    char other[RANKS][RIG_HANDLE_SIZE];
    const double twice[] = {22, 44};
    rig_call *calls[RANKS][2];
    agent_request request;
    trial t;
    uint32_t n;
    uint32_t i;

    open_trial(&t, *state);
    (void)fake_coordinator_group(&t.rig->coordinator, "pair", ranks, RANKS);
    for (i = 0; i < RANKS; i++) {
        for (n = 0; n < 2; n++) {
            request = rig_all_reduce(t.inputs[i]);
            request.group = n == i ? "pair" : "";
            calls[i][n] = agent_rig_begin(t.rig, i, &request);
        }
    }
    for (i = 0; i < RANKS; i++) {
        agent_rig_end_well(t.rig, calls[i][0]);
        agent_rig_end_well(t.rig, calls[i][1]);
        memcpy(t.results[i], calls[i][0]->result.handle, RIG_HANDLE_SIZE);
        memcpy(other[i], calls[i][1]->result.handle, RIG_HANDLE_SIZE);
        t.requests[i].tensors[1] = other[i];
        t.requests[i].gradients[1] = t.gradients[i];
    }
    agent_rig_settle(t.rig);
    run_backwards(&t);
    for (i = 0; i < RANKS; i++) {
        rig_check_gradient(t.rig, i, t.calls[i], 0, twice, 2);
    }
}

/* ------------------------------------------------------------------------------ async */

static void
test_async_backward__promises_gradients_that_readers_wait_for(void **state)
{
    char *works[1];
    rig_call *wait;
    trial t;
    uint32_t i;

    open_sum(&t, *state);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].async = true;
        t.calls[i] = agent_rig_backward(t.rig, i, &t.requests[i]);
        assert_true(is_answered(t.calls[i]));
        assert_string_not_equal(t.calls[i]->work, "");
    }
    for (i = 0; i < RANKS; i++) {
        rig_check_gradient(t.rig, i, t.calls[i], 0, sums, 2);
        works[0] = t.calls[i]->work;
        wait = agent_rig_wait(t.rig, i, works, 1, 0);
        agent_rig_end_well(t.rig, wait);
        assert_false(wait->statuses[0].failed);
    }
}

static void
test_async_backward__that_fails_leaves_its_error_in_what_it_promised(void **state)
{
    rig_call *sync;
    trial t;

    open_sum(&t, *state);
    t.requests[0].async = true;
    t.calls[0] = agent_rig_backward(t.rig, 0, &t.requests[0]);
    sync = agent_rig_sync(t.rig, 0, "", 0);
    agent_rig_end_failed(t.rig, begin_barrier(t.rig, 1), TUTTI_FAILED_PRECONDITION, "OP_MISMATCH");
    agent_rig_check_failed(t.rig, 0, t.calls[0]->gradients[0].gradient, TUTTI_FAILED_PRECONDITION);
    agent_rig_end_well(t.rig, sync); /* it counts as an op */
    assert_int_equal(sync->sync.failed, 1);
    assert_string_equal(sync->sync.err.reason, "OP_MISMATCH");
}

/* ------------------------------------------------------------------------------ refused */

/* What is wrong on rank 0 alone is what rank 1 is told, too. */
static void
test_backward__that_is_wrong_on_one_rank_fails_on_all(void **state)
{
    const tutti_spec floats = {.dtype = TUTTI_DTYPE_FP32, .dim_count = 1, .dims = {2}};
    const tutti_spec row = rig_matrix(1, 2);
    char foreign[RIG_HANDLE_SIZE];
    char narrow[RIG_HANDLE_SIZE];
    char shaped[RIG_HANDLE_SIZE];
    trial t;
    size_t i;
    const struct {
        const char *tensor;
        const char *gradient;
        char *wanted;
        tutti_code code;
        const char *reason;
    } rows[] = {
        {t.results[0], narrow, NULL, TUTTI_INVALID_ARGUMENT, "DTYPE_MISMATCH"},
        {t.results[0], shaped, NULL, TUTTI_INVALID_ARGUMENT, "SHAPE_MISMATCH"},
        {t.results[0], "tensor:nothing", NULL, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE"},
        {foreign, t.gradients[0], NULL, TUTTI_FAILED_PRECONDITION, "NOT_ON_TAPE"},
        {t.results[0], t.gradients[0], foreign, TUTTI_FAILED_PRECONDITION, "NOT_ON_TAPE"},
    };

    open_sum(&t, *state);
    agent_rig_put(t.rig, 0, values, 2, foreign);
    agent_rig_put_spec(t.rig, 0, &floats, values, narrow);
    agent_rig_put_spec(t.rig, 0, &row, values, shaped);
    for (i = 0; i < COUNT_OF(rows); i++) {
        t.requests[0].tensors[0] = rows[i].tensor;
        t.requests[0].gradients[0] = rows[i].gradient;
        t.requests[0].wanted[0] = rows[i].wanted;
        fail_backwards(&t, rows[i].code, rows[i].reason);
        assert_int_equal(t.tapes[0]->record_count, 1);
        assert_int_equal(t.tapes[1]->record_count, 1);
    }
    t.requests[0] = t.requests[1]; /* nothing was spoiled */
    t.requests[0].tensors[0] = t.results[0];
    t.requests[0].gradients[0] = t.gradients[0];
    run_backwards(&t);
    rig_check_gradient(t.rig, 1, t.calls[1], 0, sums, 2);
}

static void
test_backward__refuses_what_it_does_not_know(void **state)
{
    trial t;
    rig_backward request = {.tracer = "none"};

    open_sum(&t, *state);
    agent_rig_end_failed(t.rig, agent_rig_backward(t.rig, 0, &request), TUTTI_NOT_FOUND,
                         "NO_TRACER");
    t.rig->options.ops_max = 0;
    agent_rig_end_failed(t.rig, agent_rig_backward(t.rig, 0, &t.requests[0]),
                         TUTTI_RESOURCE_EXHAUSTED, "OP_LIMIT");
    t.rig->options.ops_max = 64;
    run_backwards(&t); /* they took no place */
}

/* Rank 1 did not record the second op. */
static void
test_backward__tells_ranks_that_have_recorded_different_ops(void **state)
{
    agent_request requests[RANKS];
    trial t;

    open_sum(&t, *state);
    requests[0] = rig_all_reduce(t.inputs[0]);
    requests[1] = rig_all_reduce(t.inputs[1]);
    requests[1].options.no_grad = true;
    agent_rig_run_all(t.rig, requests, NULL);
    assert_int_equal(t.tapes[0]->record_count, 2);
    assert_int_equal(t.tapes[1]->record_count, 1);
    fail_backwards(&t, TUTTI_FAILED_PRECONDITION, "TAPE_MISMATCH");
    assert_text_has(t.calls[0]->call.err.text, "op 1, another through op 2");
}

static void
test_backward__refuses_ops_of_an_epoch_that_is_over(void **state)
{
    trial t;
    uint32_t i;

    open_sum(&t, *state);
    for (i = 0; i < RANKS; i++) {
        agent_groups_renew(t.rig->agents[i], 1, 2);
    }
    fail_backwards(&t, TUTTI_FAILED_PRECONDITION, "TAPE_STALE");
    tutti_tape_clear(t.tapes[0], false);
    assert_int_equal(t.tapes[0]->record_count, 0);
}

/* How many ops of the world the rank has counted. */
static uint64_t
count_ops(const agent_rig *rig, uint32_t rank)
{
    const tutti_map_node *node =
        tutti_map_find(&rig->agents[rank]->groups, tutti_bytes_of("world"));
    char words[64];

    return tutti_coll_group_last(tutti_container_of(node, agent_group, by_name)->coll, words,
                                 sizeof(words));
}

static void
wait_for_ops(agent_rig *rig, uint32_t rank, uint64_t count)
{
    unsigned tries = 0;

    while (count_ops(rig, rank) != count) {
        if (tries++ == 2000) {
            fail_msg("rank %u has counted %u ops, not %u", (unsigned)rank,
                     (unsigned)count_ops(rig, rank), (unsigned)count);
        }
        (void)agent_rig_run(rig);
        fake_loop_wait_briefly(&rig->loop);
    }
}

/* Both are told, the tape is as it was, and the ranks count alike. */
static void
check_caller_gone(trial *t)
{
    uint32_t i;

    for (i = 0; i < RANKS; i++) {
        agent_rig_end_failed(t->rig, t->calls[i], TUTTI_CANCELLED, "CALLER_GONE");
        assert_int_equal(t->calls[i]->call.err.rank, 0);
    }
    fake_transport_freeze(t->rig->transports[0], false);
    agent_rig_settle(t->rig);
    wait_for_ops(t->rig, 0, count_ops(t->rig, 1));
    run_backwards(t);
    rig_check_gradient(t->rig, 0, t->calls[0], 0, sums, 2);
}

static void
test_backward__whose_caller_goes_fails_on_all_ranks(void **state)
{
    trial t;

    open_sum(&t, *state);
    t.calls[0] = agent_rig_backward(t.rig, 0, &t.requests[0]);
    (void)agent_rig_run(t.rig);
    fake_call_cancel(&t.calls[0]->call, false);
    t.calls[1] = agent_rig_backward(t.rig, 1, &t.requests[1]);
    check_caller_gone(&t);
}

/* Rank 1 has heard what rank 0 gives, and goes on; rank 0 has not heard of rank 1 when its caller
 * goes. */
static void
test_backward__whose_caller_goes_fails_on_ranks_that_are_ahead(void **state)
{
    trial t;

    open_sum(&t, *state);
    fake_transport_freeze(t.rig->transports[0], true);
    t.calls[0] = agent_rig_backward(t.rig, 0, &t.requests[0]);
    t.calls[1] = agent_rig_backward(t.rig, 1, &t.requests[1]);
    wait_for_ops(t.rig, 0, 2);
    wait_for_ops(t.rig, 1, 3);
    fake_call_cancel(&t.calls[0]->call, false);
    check_caller_gone(&t);
}

static void
test_backward__times_out_when_a_rank_does_not_call(void **state)
{
    trial t;

    open_sum(&t, *state);
    t.requests[0].timeout_ms = 1000;
    t.calls[0] = agent_rig_backward(t.rig, 0, &t.requests[0]);
    agent_rig_end_in_time(t.rig, t.calls[0]);
    agent_rig_end_failed(t.rig, t.calls[0], TUTTI_DEADLINE_EXCEEDED, "TIMEOUT");
    assert_int_equal(t.tapes[0]->record_count, 1);
}

static void
test_backward__goes_on_when_its_tracer_is_deleted(void **state)
{
    trial t;
    uint32_t i;

    open_sum(&t, *state);
    begin_backwards(&t);
    for (i = 0; i < RANKS; i++) {
        tutti_tape_delete(t.tapes[i]);
    }
    for (i = 0; i < RANKS; i++) {
        agent_rig_end_well(t.rig, t.calls[i]);
        rig_check_gradient(t.rig, i, t.calls[i], 0, sums, 2);
    }
    assert_true(tutti_tapes_empty(t.rig->agents[0]->tapes));
}

int
main(void)
{
#define WITH_TWO(name) cmocka_unit_test_setup_teardown(name, agent_rig_setup_2, agent_rig_teardown)
    const struct CMUnitTest tests[] = {
        WITH_TWO(test_backward__of_a_sum_gives_each_rank_the_sum_of_gradients),
        WITH_TWO(test_backward__goes_through_several_ops),
        WITH_TWO(test_backward__adds_the_gradients_of_a_tensor_that_was_used_twice),
        WITH_TWO(test_backward__of_a_maximum_reaches_the_rank_that_has_it),
        WITH_TWO(test_backward__of_a_broadcast_sums_at_the_root),
        WITH_TWO(test_backward__of_a_message_goes_to_its_sender),
        WITH_TWO(test_backward__of_a_local_op_needs_no_other_rank),
        WITH_TWO(test_backward__goes_through_each_tensor_of_a_list),
        WITH_TWO(test_backward__without_any_gradient_runs_no_gradient_ops),
        WITH_TWO(test_backward__may_have_a_gradient_on_one_rank_alone),
        WITH_TWO(test_backward__gives_the_gradients_that_are_wanted),
        WITH_TWO(test_backward__empties_its_tape_so_a_second_one_knows_nothing_of_results),
        WITH_TWO(test_backward__may_keep_its_tape_for_another_one),
        WITH_TWO(test_backward__waits_for_one_of_the_same_tape_that_came_before),
        WITH_TWO(test_backward__waits_for_ops_that_came_before_it),
        WITH_TWO(test_backward__keeps_its_place_in_the_order_of_its_group),
        WITH_TWO(test_backward__of_two_groups_in_different_orders_ends),
        WITH_TWO(test_async_backward__promises_gradients_that_readers_wait_for),
        WITH_TWO(test_async_backward__that_fails_leaves_its_error_in_what_it_promised),
        WITH_TWO(test_backward__that_is_wrong_on_one_rank_fails_on_all),
        WITH_TWO(test_backward__refuses_what_it_does_not_know),
        WITH_TWO(test_backward__tells_ranks_that_have_recorded_different_ops),
        WITH_TWO(test_backward__refuses_ops_of_an_epoch_that_is_over),
        WITH_TWO(test_backward__whose_caller_goes_fails_on_all_ranks),
        WITH_TWO(test_backward__whose_caller_goes_fails_on_ranks_that_are_ahead),
        WITH_TWO(test_backward__times_out_when_a_rank_does_not_call),
        WITH_TWO(test_backward__goes_on_when_its_tracer_is_deleted),
    };

    return cmocka_run_group_tests_name("agent_backward", tests, NULL, NULL);
}
