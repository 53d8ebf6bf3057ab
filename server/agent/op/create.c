/* A call's op, with copies of all that its arguments point to. */
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "server/agent/op/op.h"
#include "server/agent/state/op.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"

/* Splits of both ends, or of a root: one behind the other. */
static bool
keep_splits(agent_op *op, const tutti_coll_args *args)
{
    const size_t bytes = args->split_count * sizeof(*op->splits);
    const bool rooted = args->root_splits != NULL;

    op->splits = malloc(2 * bytes);
    if (op->splits == NULL) {
        return false;
    }
    memcpy(op->splits, rooted ? args->root_splits : args->send_splits, bytes);
    op->op.args.root_splits = rooted ? op->splits : NULL;
    if (!rooted) {
        memcpy(op->splits + args->split_count, args->recv_splits, bytes);
        op->op.args.send_splits = op->splits;
        op->op.args.recv_splits = op->splits + args->split_count;
    }
    return true;
}

/* Arguments that point into the request. */
static bool
keep_lists(agent_op *op, const tutti_coll_args *args)
{
    op->op.args = *args;
    if (args->flat != NULL) {
        op->flat = *args->flat;
        op->op.args.flat = &op->flat;
    }
    if (args->kind == TUTTI_COLL_PERMUTE) {
        op->to = calloc(args->to_count + 1, sizeof(*op->to));
        if (op->to == NULL) {
            return false;
        }
        if (args->to_count > 0) {
            memcpy(op->to, args->to, args->to_count * sizeof(*op->to));
        }
        op->op.args.to = op->to;
    }
    return args->split_count == 0 || keep_splits(op, args);
}

static bool
keep_meta_given(agent_op *op, const tutti_coll_args *args)
{
    if (args->meta.size == 0) {
        return true;
    }
    op->meta = malloc(args->meta.size);
    if (op->meta == NULL) {
        return false;
    }
    memcpy(op->meta, args->meta.data, args->meta.size);
    op->meta_size = args->meta.size;
    op->op.args.meta = (tutti_bytes){op->meta, op->meta_size};
    return true;
}

static void
free_op(agent_op *op)
{
    if (op != NULL) {
        free(op->to);
        free(op->splits);
        free(op->meta);
        free(op);
    }
}

agent_op *
agent_op_new(tutti_agent *agent, tutti_rpc_call *call, const agent_request *request,
             agent_answer_fn answer)
{
    agent_op *op = calloc(1, sizeof(*op));

    if (op == NULL || !keep_lists(op, &request->args) || !keep_meta_given(op, &request->args)) {
        free_op(op);
        return NULL;
    }
    op->agent = agent;
    op->call = call;
    op->answer = answer;
    op->options = request->options;
    op->lock_set.loop = agent->control;
    op->enqueued_ns = tutti_clock_ns();
    op->deadline_ns = tutti_clock_deadline(op->enqueued_ns, request->options.timeout_ms,
                                           request->options.async ? TUTTI_TIMERS_NEVER
                                                                  : tutti_rpc_call_deadline(call),
                                           agent->options->op_timeout_ns);
    tutti_list_init(&op->link);
    tutti_list_init(&op->live);
    tutti_list_add(&agent->ops, &op->live);
    op->number = ++agent->ops_last;
    tutti_rpc_call_trace(call, op->trace);
    tutti_rpc_call_ref(call);
    agent->ops_live++;
    return op;
}
