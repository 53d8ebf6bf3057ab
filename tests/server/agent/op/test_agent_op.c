/*
 * Goal: each kind of op makes on each rank what its definition says, wherever its tensors come from
 * and its results go. Method: agents of one process, whose callers are the test; results are
 * compared with those worked out by hand.
 */
#include "server/agent/op/agent_rig.h"
#include "support/testing.h"

#define RANKS 3

/* Of three ranks: the same request on all, each with its own tensor. */
typedef struct trial {
    agent_rig *rig;
    char inputs[RANKS][RIG_HANDLE_SIZE];
    char results[RANKS][RIG_HANDLE_SIZE];
    agent_request requests[RANKS];
} trial;

/* `count` values for each rank: 1, 2, 3 ... through all ranks. */
static void
open_trial(trial *t, agent_rig *rig, tutti_coll_kind kind, const tutti_spec *spec)
{
    double values[64];
    uint32_t count = (uint32_t)tutti_spec_count(spec);
    uint32_t i;

    *t = (trial){.rig = rig};
    for (i = 0; i < RANKS * count; i++) {
        values[i] = i + 1;
    }
    for (i = 0; i < RANKS; i++) {
        agent_rig_put_spec(rig, i, spec, values + i * count, t->inputs[i]);
        t->requests[i] = rig_request(kind, t->inputs[i]);
        t->requests[i].args.reduce = TUTTI_REDUCE_SUM;
    }
}

static void
run_trial(trial *t)
{
    agent_rig_run_all(t->rig, t->requests, t->results);
}

/* What the result is, by the caller's answer. */
static void
check_result_spec(agent_rig *rig, uint32_t rank, const char *handle, const tutti_spec *spec)
{
    tutti_table_info info;
    tutti_error err;

    assert_ok(tutti_table_stat(rig->agents[rank]->table, handle, &info, &err));
    assert_true(tutti_spec_equal(&info.spec, spec));
}

/* ------------------------------------------------------------------------------ reductions */

static void
test_all_reduce__gives_every_rank_the_reduction(void **state)
{
    static const tutti_reduce reduces[] = {TUTTI_REDUCE_SUM, TUTTI_REDUCE_PROD, TUTTI_REDUCE_MIN,
                                           TUTTI_REDUCE_MAX, TUTTI_REDUCE_AVG};
    static const double wanted[][2] = {{9, 12}, {15, 48}, {1, 2}, {5, 6}, {3, 4}};
    const tutti_spec spec = rig_vector(2);
    trial t;
    size_t r;
    uint32_t i;

    for (r = 0; r < COUNT_OF(reduces); r++) {
        open_trial(&t, *state, TUTTI_COLL_ALL_REDUCE, &spec);
        for (i = 0; i < RANKS; i++) {
            t.requests[i].args.reduce = reduces[r];
        }
        run_trial(&t);
        for (i = 0; i < RANKS; i++) {
            agent_rig_check(t.rig, i, t.results[i], wanted[r], 2);
        }
    }
}

static void
test_all_reduce__in_place_makes_no_tensor(void **state)
{
    const double sum[] = {9, 12};
    const tutti_spec spec = rig_vector(2);
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_ALL_REDUCE, &spec);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].output = t.inputs[i];
    }
    run_trial(&t);
    for (i = 0; i < RANKS; i++) {
        assert_string_equal(t.results[i], t.inputs[i]);
        agent_rig_check(t.rig, i, t.inputs[i], sum, 2);
        assert_int_equal(tutti_table_count(t.rig->agents[i]->table), 1);
    }
}

/* One has it as input and output by two names, another gives another tensor, the third a new one.
 */
static void
test_all_reduce__each_rank_chooses_where_its_result_goes(void **state)
{
    const double sum[] = {9, 12};
    const double zeros[] = {0, 0};
    const double third[] = {5, 6};
    const tutti_spec spec = rig_vector(2);
    char other[RIG_HANDLE_SIZE];
    trial t;

    open_trial(&t, *state, TUTTI_COLL_ALL_REDUCE, &spec);
    agent_rig_put(t.rig, 1, zeros, 2, other);
    t.requests[0].output = t.inputs[0];
    t.requests[1].output = other;
    run_trial(&t);
    agent_rig_check(t.rig, 0, t.inputs[0], sum, 2);
    agent_rig_check(t.rig, 1, other, sum, 2);
    agent_rig_check(t.rig, 2, t.results[2], sum, 2);
    agent_rig_check(t.rig, 2, t.inputs[2], third, 2);
}

static void
test_reduce__gives_the_root_alone_the_result(void **state)
{
    const double sum[] = {9, 12};
    const tutti_spec spec = rig_vector(2);
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_REDUCE, &spec);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].args.root = 1;
    }
    run_trial(&t);
    agent_rig_check(t.rig, 1, t.results[1], sum, 2);
    for (i = 0; i < RANKS; i += 2) { /* a handle that was made for a result goes again */
        assert_string_equal(t.results[i], "");
        assert_int_equal(tutti_table_count(t.rig->agents[i]->table), 1);
    }
}

static void
test_reduce_scatter__gives_each_rank_its_part_of_the_sum(void **state)
{
    const double parts[] = {12, 15, 18};
    const tutti_spec spec = rig_vector(3);
    trial t;

    open_trial(&t, *state, TUTTI_COLL_REDUCE_SCATTER, &spec);
    run_trial(&t);
    agent_rig_check_all(t.rig, t.results, parts, 1);
}

/* ------------------------------------------------------------------------------ gathering */

static void
test_all_gather__joins_along_any_axis(void **state)
{
    const double rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const double columns[] = {1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12};
    const tutti_spec spec = rig_matrix(2, 2);
    const tutti_spec by_rows = rig_matrix(6, 2);
    const tutti_spec by_columns = rig_matrix(2, 6);
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_ALL_GATHER, &spec);
    run_trial(&t);
    for (i = 0; i < RANKS; i++) {
        agent_rig_check(t.rig, i, t.results[i], rows, 12);
        check_result_spec(t.rig, i, t.results[i], &by_rows);
        t.requests[i].options.axis = -1; /* from the end */
    }
    run_trial(&t);
    for (i = 0; i < RANKS; i++) {
        agent_rig_check(t.rig, i, t.results[i], columns, 12);
        check_result_spec(t.rig, i, t.results[i], &by_columns);
    }
}

static void
test_all_gather__stacks_and_makes_scalars_a_vector(void **state)
{
    const double values[] = {1, 2, 3, 4, 5, 6};
    const double scalars[] = {1, 2, 3};
    const tutti_spec scalar = {.dtype = TUTTI_DTYPE_FP64};
    const tutti_spec spec = rig_vector(2);
    const tutti_spec stacked = rig_matrix(3, 2);
    const tutti_spec joined = rig_vector(3);
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_ALL_GATHER, &spec);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].args.form = TUTTI_FORM_STACK;
    }
    run_trial(&t);
    for (i = 0; i < RANKS; i++) {
        agent_rig_check(t.rig, i, t.results[i], values, 6);
        check_result_spec(t.rig, i, t.results[i], &stacked);
    }
    open_trial(&t, *state, TUTTI_COLL_ALL_GATHER, &scalar);
    run_trial(&t);
    for (i = 0; i < RANKS; i++) {
        agent_rig_check(t.rig, i, t.results[i], scalars, 3);
        check_result_spec(t.rig, i, t.results[i], &joined);
    }
}

static void
test_gather__gives_the_root_alone_what_all_have(void **state)
{
    const double values[] = {1, 2, 3, 4, 5, 6};
    const tutti_spec spec = rig_vector(2);
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_GATHER, &spec);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].args.root = 2;
    }
    run_trial(&t);
    assert_string_equal(t.results[0], "");
    assert_string_equal(t.results[1], "");
    agent_rig_check(t.rig, 2, t.results[2], values, 6);
}

/* ------------------------------------------------------------------------------ from a root */

static void
test_broadcast__gives_the_others_what_the_root_has(void **state)
{
    const double values[] = {3, 4};
    const double zeros[] = {0, 0};
    const tutti_spec spec = rig_vector(2);
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_BROADCAST, &spec);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].args.root = 1;
        t.requests[i].input = i == 1 ? t.inputs[1] : NULL;
    }
    agent_rig_put(t.rig, 2, zeros, 2, t.inputs[2]);
    t.requests[2].output = t.inputs[2];
    run_trial(&t);
    assert_string_equal(t.results[1], t.inputs[1]); /* the root's tensor stands for its result */
    assert_string_equal(t.results[2], t.inputs[2]);
    for (i = 0; i < RANKS; i++) {
        agent_rig_check(t.rig, i, t.results[i], values, 2);
    }
}

/* A receiver's input is ignored; the same request on all ranks is a broadcast in place. */
static void
test_broadcast__ignores_what_a_receiver_gives(void **state)
{
    const double values[] = {1, 2};
    const tutti_spec spec = rig_vector(2);
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_BROADCAST, &spec);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].output = t.inputs[i];
    }
    run_trial(&t);
    for (i = 0; i < RANKS; i++) {
        agent_rig_check(t.rig, i, t.inputs[i], values, 2);
    }
}

/* As programs do that call it alike on all ranks: what receivers name is not looked at. */
static void
test_broadcast__makes_a_tensor_for_a_receiver_that_names_an_input(void **state)
{
    static const bool async[] = {false, true};
    const tutti_spec spec = rig_vector(2);
    rig_call *calls[RANKS];
    double values[2];
    trial t;
    size_t a;
    uint32_t i;

    for (a = 0; a < COUNT_OF(async); a++) {
        open_trial(&t, *state, TUTTI_COLL_BROADCAST, &spec);
        for (i = 0; i < RANKS; i++) {
            t.requests[i].args.root = 1;
            t.requests[i].options.async = async[a];
            calls[i] = agent_rig_begin(t.rig, i, &t.requests[i]);
        }
        agent_rig_settle(t.rig);
        for (i = 0; i < RANKS; i++) {
            agent_rig_end_well(t.rig, calls[i]);
            values[0] = 2 * i + 1, values[1] = 2 * i + 2;
            agent_rig_check(t.rig, i, t.inputs[i], values, 2);
            values[0] = 3, values[1] = 4;
            if (i != 1) {
                assert_string_not_equal(calls[i]->result.handle, t.inputs[i]);
                agent_rig_check(t.rig, i, calls[i]->result.handle, values, 2);
            }
        }
    }
    assert_int_equal(tutti_table_count(t.rig->agents[1]->table), 2); /* the root's two inputs */
}

/* A group whose ranks are not known when the call comes: the root need not be either. */
static void
test_broadcast__on_an_unknown_group_makes_the_root_no_tensor(void **state)
{
    static const uint32_t ranks[] = {0, 1, 2};
    const double values[] = {1, 2};
    const tutti_spec spec = rig_vector(2);
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_BROADCAST, &spec);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].group = "later";
    }
    (void)fake_coordinator_group(&t.rig->coordinator, "later", ranks, RANKS);
    run_trial(&t);
    assert_string_equal(t.results[0], t.inputs[0]);
    agent_rig_check(t.rig, 2, t.results[2], values, 2);
    assert_int_equal(tutti_table_count(t.rig->agents[0]->table), 1);
}

static void
test_op__names_its_result(void **state)
{
    const double sum[] = {9, 12};
    const tutti_spec spec = rig_vector(2);
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_ALL_REDUCE, &spec);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].result = "reg:a/1";
    }
    run_trial(&t);
    for (i = 0; i < RANKS; i++) { /* the register is an input, and the next result */
        agent_rig_check(t.rig, i, "reg:a/1", sum, 2);
        t.requests[i].input = "reg:a/1";
        t.requests[i].args.kind = TUTTI_COLL_BROADCAST;
    }
    run_trial(&t);
    for (i = 0; i < RANKS; i++) {
        agent_rig_check(t.rig, i, "reg:a/1", sum, 2);
        assert_int_equal(tutti_table_count(t.rig->agents[i]->table), 2);
        t.requests[i].output = t.inputs[i];
    }
    agent_rig_end_failed(t.rig, agent_rig_begin(t.rig, 0, &t.requests[0]), TUTTI_INVALID_ARGUMENT,
                         "UNEXPECTED_RESULT");
}

/* An op on a register that no call has written, and what depends on its result. */
static void
test_op__that_fails_leaves_its_error_in_its_register(void **state)
{
    const tutti_spec spec = rig_vector(2);
    rig_call *calls[2][RANKS];
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_ALL_REDUCE, &spec);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].input = i == 1 ? "reg:a/7" : t.inputs[i];
        t.requests[i].result = "reg:a/8";
        calls[0][i] = agent_rig_begin(t.rig, i, &t.requests[i]);
        t.requests[i].input = "reg:a/8";
        t.requests[i].result = "reg:a/9";
        calls[1][i] = agent_rig_begin(t.rig, i, &t.requests[i]);
    }
    agent_rig_settle(t.rig);
    for (i = 0; i < RANKS; i++) {
        agent_rig_end_failed(t.rig, calls[0][i], TUTTI_NOT_FOUND, "NO_TENSOR");
        agent_rig_end_failed(t.rig, calls[1][i], TUTTI_NOT_FOUND, "NO_TENSOR");
        assert_non_null(strstr(calls[1][i]->call.err.text, "register 7 of session a is null"));
        agent_rig_check_failed(t.rig, i, "reg:a/9", TUTTI_NOT_FOUND);
    }
}

/* Its result had a handle when the tracer was not found. */
static void
test_op__that_is_refused_leaves_no_tensor_behind(void **state)
{
    static char nobody[] = "nobody";
    char *tracers[] = {nobody};
    const tutti_spec spec = rig_vector(2);
    rig_call *calls[RANKS];
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_ALL_REDUCE, &spec);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].tracers = tracers;
        t.requests[i].tracer_count = 1;
        calls[i] = agent_rig_begin(t.rig, i, &t.requests[i]);
    }
    agent_rig_settle(t.rig);
    for (i = 0; i < RANKS; i++) {
        agent_rig_end_failed(t.rig, calls[i], TUTTI_NOT_FOUND, "NO_TRACER");
        assert_int_equal(tutti_table_count(t.rig->agents[i]->table), 1);
    }
}

static void
test_scatter__gives_each_rank_its_part(void **state)
{
    static const int64_t rows[] = {1, 0, 2};
    const double values[] = {4, 5, 6};
    const double zero = 0;
    const tutti_spec spec = rig_vector(3);
    char given[RIG_HANDLE_SIZE];
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_SCATTER, &spec);
    agent_rig_put(t.rig, 0, &zero, 1, given);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].args.root = 1;
        t.requests[i].input = i == 1 ? t.inputs[1] : NULL;
    }
    t.requests[0].output = given;
    run_trial(&t);
    agent_rig_check_all(t.rig, t.results, values, 1);
    agent_rig_check(t.rig, 0, given, values, 1);

    t.requests[0].output = "";
    t.requests[1].args.split_count = RANKS;
    t.requests[1].args.root_splits = rows;
    run_trial(&t);
    agent_rig_check(t.rig, 0, t.results[0], values, 1);
    agent_rig_check(t.rig, 1, t.results[1], values, 0);
    agent_rig_check(t.rig, 2, t.results[2], values + 1, 2);
}

static void
test_broadcast__carries_the_roots_bytes_along(void **state)
{
    const tutti_spec spec = rig_vector(1);
    rig_call *calls[RANKS];
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_BROADCAST, &spec);
    t.requests[0].args.meta = (tutti_bytes){"step 7", 6};
    for (i = 0; i < RANKS; i++) {
        t.requests[i].input = i == 0 ? t.inputs[0] : NULL;
        calls[i] = agent_rig_begin(t.rig, i, &t.requests[i]);
    }
    for (i = 0; i < RANKS; i++) {
        agent_rig_end_well(t.rig, calls[i]);
        assert_int_equal(calls[i]->result.meta.size, 6);
        assert_memory_equal(calls[i]->meta, "step 7", 6);
    }
}

/* ------------------------------------------------------------------------------ exchanging */

static void
test_all_to_all__gives_each_rank_a_part_of_each(void **state)
{
    static const int64_t sent[RANKS][RANKS] = {{0, 1, 2}, {1, 1, 1}, {3, 0, 0}};
    static const int64_t got[RANKS][RANKS] = {{0, 1, 3}, {1, 1, 0}, {2, 1, 0}};
    const double parts[] = {1, 4, 7, 2, 5, 8, 3, 6, 9};
    const double uneven[RANKS][4] = {{4, 7, 8, 9}, {1, 5}, {2, 3, 6}};
    const int64_t counts[] = {4, 2, 3};
    const tutti_spec spec = rig_vector(3);
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_ALL_TO_ALL, &spec);
    run_trial(&t);
    agent_rig_check_all(t.rig, t.results, parts, 3);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].args.has_splits = true;
        t.requests[i].args.split_count = RANKS;
        t.requests[i].args.send_splits = sent[i];
        t.requests[i].args.recv_splits = got[i];
    }
    run_trial(&t);
    for (i = 0; i < RANKS; i++) {
        agent_rig_check(t.rig, i, t.results[i], uneven[i], counts[i]);
    }
}

static void
test_permute__gives_each_rank_what_was_sent_to_it(void **state)
{
    static const uint32_t to[] = {2, 0, 1};
    const double values[] = {2, 3, 1};
    const tutti_spec spec = rig_vector(1);
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_PERMUTE, &spec);
    for (i = 0; i < RANKS; i++) {
        t.requests[i].args.to = to;
        t.requests[i].args.to_count = RANKS;
    }
    run_trial(&t);
    agent_rig_check_all(t.rig, t.results, values, 1);
}

static void
test_barrier__lets_nobody_go_before_the_last(void **state)
{
    const agent_request request = rig_request(TUTTI_COLL_BARRIER, NULL);
    agent_rig *rig = *state;
    rig_call *first = agent_rig_begin(rig, 0, &request);
    rig_call *second = agent_rig_begin(rig, 2, &request);
    rig_call *last;

    (void)agent_rig_run(rig);
    agent_rig_step(rig, TUTTI_NS_PER_S);
    assert_false(atomic_load(&first->call.answered));
    assert_false(atomic_load(&second->call.answered));
    last = agent_rig_begin(rig, 1, &request);
    agent_rig_end_well(rig, first);
    agent_rig_end_well(rig, second);
    agent_rig_end_well(rig, last);
    assert_string_equal(last->result.handle, "");
    assert_false(last->result.has_spec);
}

/* ------------------------------------------------------------------------------ messages */

static void
test_recv__takes_what_was_sent_with_its_tag(void **state)
{
    const double values[] = {1, 2, 3, 4};
    char tensors[2][RIG_HANDLE_SIZE];
    agent_request send = rig_request(TUTTI_COLL_SEND, NULL);
    agent_request recv = rig_request(TUTTI_COLL_RECV, NULL);
    agent_rig *rig = *state;
    rig_call *sent[2];
    rig_call *got[2];
    uint32_t i;

    for (i = 0; i < 2; i++) {
        agent_rig_put(rig, 0, values + 2 * i, 2, tensors[i]);
        send.input = tensors[i];
        send.args.peer = 2;
        send.args.tag = i;
        sent[i] = agent_rig_begin(rig, 0, &send);
    }
    for (i = 0; i < 2; i++) { /* the other way around */
        recv.args.peer = 0;
        recv.args.tag = 1 - i;
        got[i] = agent_rig_begin(rig, 2, &recv);
        agent_rig_end_well(rig, got[i]);
        agent_rig_check(rig, 2, got[i]->result.handle, values + 2 * (1 - i), 2);
    }
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(rig, sent[i]);
        assert_int_equal(sent[i]->result.sequence, 0); /* messages have no number */
    }
}

/* Ranks of the group, which are not those of the job. */
static void
test_recv__from_anybody_says_who_it_was(void **state)
{
    static const uint32_t ranks[] = {2, 1};
    const double values[] = {8};
    agent_request send = rig_request(TUTTI_COLL_SEND, NULL);
    agent_request recv = rig_request(TUTTI_COLL_RECV, NULL);
    char tensor[RIG_HANDLE_SIZE];
    agent_rig *rig = *state;
    rig_call *sent;
    rig_call *got;

    (void)fake_coordinator_group(&rig->coordinator, "pair", ranks, 2);
    agent_rig_put(rig, 2, values, 1, tensor);
    send.group = "pair";
    send.input = tensor;
    send.args.peer = 1;
    send.args.meta = (tutti_bytes){"\1\2", 2};
    recv.group = "pair";
    recv.args.peer = TUTTI_COLL_ANY_SOURCE;
    sent = agent_rig_begin(rig, 2, &send);
    got = agent_rig_begin(rig, 1, &recv);
    agent_rig_end_well(rig, sent);
    agent_rig_end_well(rig, got);
    assert_int_equal(got->result.source, 0);
    assert_int_equal(got->result.source_global, 2);
    assert_int_equal(got->result.meta.size, 2);
    agent_rig_check(rig, 1, got->result.handle, values, 1);
}

/* A pipeline of three stages of one rank: each sends to the next one. */
static void
test_send__finds_the_rank_in_its_place_of_the_next_block(void **state)
{
    const tutti_spec spec = rig_vector(1);
    const double values[] = {1, 2};
    agent_request recv = rig_request(TUTTI_COLL_RECV, NULL);
    rig_call *sent[2];
    rig_call *got[2];
    trial t;
    uint32_t i;

    open_trial(&t, *state, TUTTI_COLL_SEND, &spec);
    for (i = 0; i < 2; i++) {
        t.requests[i].options.has_block = true;
        t.requests[i].options.block_count = RANKS;
        t.requests[i].options.block_offset = 1;
        recv.options.has_block = true;
        recv.options.block_count = RANKS;
        recv.options.block_offset = -1;
        sent[i] = agent_rig_begin(t.rig, i, &t.requests[i]);
        got[i] = agent_rig_begin(t.rig, i + 1, &recv);
    }
    for (i = 0; i < 2; i++) {
        agent_rig_end_well(t.rig, sent[i]);
        agent_rig_end_well(t.rig, got[i]);
        agent_rig_check(t.rig, i + 1, got[i]->result.handle, values + i, 1);
    }
}

/* ------------------------------------------------------------------------------ places */

static void
test_op__takes_and_gives_inline_tensors(void **state)
{
    const double values[] = {1, 2, 3, 4, 5, 6};
    const double sum[] = {9, 12};
    agent_request request = rig_all_reduce(NULL);
    agent_rig *rig = *state;
    rig_call *calls[RANKS];
    uint32_t i;

    request.args.spec = rig_vector(2);
    for (i = 0; i < RANKS; i++) {
        calls[i] = agent_rig_begin_inline(rig, i, &request, values + 2 * i, 16);
    }
    for (i = 0; i < RANKS; i++) {
        agent_rig_end_well(rig, calls[i]);
        assert_string_equal(calls[i]->result.handle, "");
        assert_true(calls[i]->result.has_spec);
        assert_int_equal(calls[i]->result.payload_bytes, 16);
        assert_memory_equal(calls[i]->result.payload->data, sum, 16);
        assert_int_equal(tutti_table_count(rig->agents[i]->table), 0);
    }
}

/* Ranks of the job as root of a group that has them in another order. */
static void
test_op__finds_a_root_of_the_job_in_its_group(void **state)
{
    static const uint32_t ranks[] = {2, 0};
    const double values[] = {5};
    agent_request request = rig_request(TUTTI_COLL_BROADCAST, NULL);
    char tensor[RIG_HANDLE_SIZE];
    agent_rig *rig = *state;
    rig_call *calls[2];

    (void)fake_coordinator_group(&rig->coordinator, "two", ranks, 2);
    agent_rig_put(rig, 2, values, 1, tensor);
    request.group = "two";
    request.options.root_global = true;
    request.args.root = 2;
    calls[0] = agent_rig_begin(rig, 0, &request);
    request.input = tensor;
    calls[1] = agent_rig_begin(rig, 2, &request);
    agent_rig_end_well(rig, calls[0]);
    agent_rig_end_well(rig, calls[1]);
    agent_rig_check(rig, 0, calls[0]->result.handle, values, 1);
}

static void
test_op__of_a_world_of_one_works_too(void **state)
{
    static const tutti_coll_kind kinds[] = {
        TUTTI_COLL_ALL_REDUCE,     TUTTI_COLL_ALL_GATHER, TUTTI_COLL_REDUCE,    TUTTI_COLL_GATHER,
        TUTTI_COLL_REDUCE_SCATTER, TUTTI_COLL_ALL_TO_ALL, TUTTI_COLL_BROADCAST, TUTTI_COLL_SCATTER};
    const double values[] = {1, 2, 3};
    char tensor[RIG_HANDLE_SIZE];
    agent_rig *rig = *state;
    size_t i;

    agent_rig_put(rig, 0, values, 3, tensor);
    for (i = 0; i < COUNT_OF(kinds); i++) {
        agent_request request = rig_request(kinds[i], tensor);
        rig_call *call;

        request.args.reduce = TUTTI_REDUCE_SUM;
        call = agent_rig_begin(rig, 0, &request);
        agent_rig_end_well(rig, call);
        assert_int_equal(call->result.sequence, i + 1);
        agent_rig_check(rig, 0, call->result.handle, values, 3);
    }
}

int
main(void)
{
#define WITH_THREE(name)                                                                           \
    cmocka_unit_test_setup_teardown(name, agent_rig_setup_3, agent_rig_teardown)
    const struct CMUnitTest tests[] = {
        WITH_THREE(test_all_reduce__gives_every_rank_the_reduction),
        WITH_THREE(test_all_reduce__in_place_makes_no_tensor),
        WITH_THREE(test_all_reduce__each_rank_chooses_where_its_result_goes),
        WITH_THREE(test_reduce__gives_the_root_alone_the_result),
        WITH_THREE(test_reduce_scatter__gives_each_rank_its_part_of_the_sum),
        WITH_THREE(test_all_gather__joins_along_any_axis),
        WITH_THREE(test_all_gather__stacks_and_makes_scalars_a_vector),
        WITH_THREE(test_gather__gives_the_root_alone_what_all_have),
        WITH_THREE(test_broadcast__gives_the_others_what_the_root_has),
        WITH_THREE(test_broadcast__ignores_what_a_receiver_gives),
        WITH_THREE(test_broadcast__makes_a_tensor_for_a_receiver_that_names_an_input),
        WITH_THREE(test_broadcast__on_an_unknown_group_makes_the_root_no_tensor),
        WITH_THREE(test_op__names_its_result),
        WITH_THREE(test_op__that_fails_leaves_its_error_in_its_register),
        WITH_THREE(test_op__that_is_refused_leaves_no_tensor_behind),
        WITH_THREE(test_scatter__gives_each_rank_its_part),
        WITH_THREE(test_broadcast__carries_the_roots_bytes_along),
        WITH_THREE(test_all_to_all__gives_each_rank_a_part_of_each),
        WITH_THREE(test_permute__gives_each_rank_what_was_sent_to_it),
        WITH_THREE(test_barrier__lets_nobody_go_before_the_last),
        WITH_THREE(test_recv__takes_what_was_sent_with_its_tag),
        WITH_THREE(test_recv__from_anybody_says_who_it_was),
        WITH_THREE(test_send__finds_the_rank_in_its_place_of_the_next_block),
        WITH_THREE(test_op__takes_and_gives_inline_tensors),
        WITH_THREE(test_op__finds_a_root_of_the_job_in_its_group),
        cmocka_unit_test_setup_teardown(test_op__of_a_world_of_one_works_too, agent_rig_setup_1,
                                        agent_rig_teardown),
    };

    return cmocka_run_group_tests_name("agent_op", tests, NULL, NULL);
}
