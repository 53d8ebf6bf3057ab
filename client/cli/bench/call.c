/* One call of one rank, in each way there is. */
#include <assert.h>

#include "client/cli/bench/bench.h"
#include "client/cli/bench/pattern.h"
#include "client/cli/collective/collective.h"

static void
make_op(const bench_run *run, uint32_t index, tutti_op *ret)
{
    const bench_plan *plan = run->plan;

    tutti_op_init(ret);
    ret->group = plan->group;
    ret->timeout_ms = run->self->timeout_ms;
    ret->root = (int32_t)plan->root;
    ret->peer = (int32_t)((index + 1) % run->world.count); /* of send */
    if (plan->op->reduces) {
        ret->reduce = plan->reduce;
    }
    if (plan->reduce == TUTTI_REDUCE_PREMUL_SUM) {
        ret->factor = BENCH_PREMUL_FACTOR;
    }
    if (plan->op->kind == TUTTI_OP_PERMUTE) {
        ret->src_dst = run->next;
        ret->src_dst_count = run->world.count;
    }
}

static const char *
text_or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

/*
 * Chooses the tensors of a call. In place, a rank that gives something has one tensor for both,
 * if it gets anything.
 */
static void
add_tensors(const bench_run *run, uint32_t index, tutti_op *op)
{
    const bench_rank *rank = &run->ranks[index];

    op->input = text_or_null(rank->input);
    op->output = text_or_null(rank->output);
    if (run->in_place && op->input != NULL && rank->out_bytes > 0) {
        op->output = rank->input;
    }
}

/* ------------------------------------------------------------------------------ inline */

/*
 * For calls with data the caller says the size of both sides. `in` and `out` are one memory when
 * the call is in place.
 */
static tutti_code
call_inline(const bench_run *run, uint32_t index, const tutti_op *op, tutti_error *err)
{
    tutti_client *client = run->world.clients[index];
    const bench_rank *rank = &run->ranks[index];
    const uint64_t bytes = rank->in_bytes > 0 ? rank->in_bytes : rank->out_bytes;
    const int64_t count = (int64_t)(bytes / tutti_dtype_bytes(run->plan->dtype));
    const tutti_spec spec = {run->plan->dtype, 1, {count}};
    const uint64_t size = rank->out_bytes;
    void *in = rank->in_data;
    void *out = run->in_place && in != NULL ? in : rank->out_data;

    switch (run->plan->op->kind) {
    case TUTTI_OP_ALL_REDUCE:
        return tutti_all_reduce_data(client, op, &spec, in, out, err);
    case TUTTI_OP_REDUCE_TO_ROOT:
        return tutti_reduce_to_root_data(client, op, &spec, in, out, err);
    case TUTTI_OP_REDUCE_SCATTER:
        return tutti_reduce_scatter_data(client, op, &spec, in, out, size, err);
    case TUTTI_OP_BROADCAST:
        return tutti_broadcast_data(client, op, &spec, out, err);
    case TUTTI_OP_ALL_GATHER:
        return tutti_all_gather_data(client, op, &spec, in, out, size, err);
    case TUTTI_OP_GATHER:
        return tutti_gather_data(client, op, &spec, in, out, size, err);
    case TUTTI_OP_SCATTER:
        return tutti_scatter_data(client, op, &spec, in, out, size, err);
    case TUTTI_OP_ALL_TO_ALL:
        return tutti_all_to_all_data(client, op, &spec, in, out, err);
    default:
        assert(run->plan->op->kind == TUTTI_OP_PERMUTE);
        return tutti_permute_data(client, op, &spec, in, out, err);
    }
}

/* ------------------------------------------------------------------------------ tensors */

/* Begins one async call; what comes back is the work to wait for. */
static tutti_code
begin_one(tutti_client *client, collective_fn fn, const tutti_op *op, bench_work ret_work,
          tutti_error *err)
{
    tutti_op_result result = {0};
    const tutti_code code = fn(client, op, &result, err);

    if (code == TUTTI_OK) {
        (void)snprintf(ret_work, sizeof(bench_work), "%s", result.work);
    }
    return code;
}

/* Each sends to the one after it, and gets from the one before it. */
static void
make_recv(const bench_run *run, uint32_t index, const tutti_op *send, tutti_op *ret)
{
    *ret = *send;
    ret->input = NULL;
    ret->output = run->ranks[index].output;
    ret->peer = (int32_t)((index + run->world.count - 1) % run->world.count);
}

/*
 * Sending and receiving at the same time. The send is begun first and waited for last: two ranks
 * that both sent first and waited would wait for each other.
 */
static tutti_code
swap_tensors(const bench_run *run, uint32_t index, tutti_op *op, tutti_error *err)
{
    tutti_client *client = run->world.clients[index];
    const char *waited[1];
    bench_work work;
    tutti_op recv;
    tutti_code code;

    make_recv(run, index, op, &recv);
    op->output = NULL;
    op->async = true;
    code = begin_one(client, tutti_send, op, work, err);
    if (code == TUTTI_OK) {
        code = tutti_recv(client, &recv, NULL, err);
    }
    waited[0] = work;
    return code == TUTTI_OK ? tutti_wait(client, waited, 1, op->timeout_ms, NULL, err) : code;
}

static tutti_code
call_handle(const bench_run *run, uint32_t index, tutti_op *op, tutti_error *err)
{
    add_tensors(run, index, op);
    return run->plan->op->kind == TUTTI_OP_SEND
               ? swap_tensors(run, index, op, err)
               : run->plan->op->fn(run->world.clients[index], op, NULL, err);
}

/*
 * As a program does that is right for copies, too: it pushes before the call and pulls after it.
 * Where the memory is really shared both cost nothing.
 */
static tutti_code
call_shared(const bench_run *run, uint32_t index, tutti_op *op, tutti_error *err)
{
    const bench_rank *rank = &run->ranks[index];
    tutti_view *out = run->in_place && rank->out_bytes > 0 && rank->in_view != NULL
                          ? rank->in_view
                          : rank->out_view;
    tutti_code code = rank->in_view == NULL ? TUTTI_OK : tutti_view_push(rank->in_view, err);

    if (code == TUTTI_OK) {
        code = call_handle(run, index, op, err);
    }
    return code == TUTTI_OK && out != NULL ? tutti_view_pull(out, err) : code;
}

tutti_code
bench_call(const bench_run *run, uint32_t index, tutti_error *err)
{
    tutti_op op;

    make_op(run, index, &op);
    switch (run->plan->way) {
    case BENCH_INLINE:
        return call_inline(run, index, &op, err);
    case BENCH_SHARE:
        return call_shared(run, index, &op, err);
    default:
        return call_handle(run, index, &op, err);
    }
}

/* With send, both halves are works of their own, so a call has two. */
tutti_code
bench_begin(const bench_run *run, uint32_t index, bench_work ret_works[BENCH_WORKS_MAX],
            size_t *ret_count, tutti_error *err)
{
    tutti_client *client = run->world.clients[index];
    tutti_op recv;
    tutti_op op;
    tutti_code code;

    make_op(run, index, &op);
    add_tensors(run, index, &op);
    op.async = true;
    *ret_count = 1;
    if (run->plan->op->kind != TUTTI_OP_SEND) {
        return begin_one(client, run->plan->op->fn, &op, ret_works[0], err);
    }
    make_recv(run, index, &op, &recv);
    op.output = NULL;
    *ret_count = 2;
    code = begin_one(client, tutti_send, &op, ret_works[0], err);
    return code == TUTTI_OK ? begin_one(client, tutti_recv, &recv, ret_works[1], err) : code;
}
