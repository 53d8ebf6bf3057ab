/*
 * A call that becomes an op: its tensors are claimed when it comes, it waits for its turn in its
 * group, and then it is given to the engine. A call that has to be refused still takes its turn, so
 * that every rank counts alike and the others hear why.
 */
#include "server/agent/op/op.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/op/answers.h"
#include "server/agent/op/deadline.h"
#include "server/agent/op/group.h"
#include "server/agent/op/list.h"
#include "server/agent/op/sync.h"
#include "server/agent/op/works.h"
#include "server/agent/record/metrics.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/clients.h"
#include "server/agent/state/group.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/op.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/transfer/access.h"

/* ------------------------------------------------------------------------------ the end */

static void
forget_result(agent_op *op, char *handle)
{
    tutti_error err;

    if (handle[0] != '\0') {
        (void)tutti_table_delete(op->agent->table, &handle, 1, &err); /* may be gone already */
    }
}

/* New ones only: the others were there before. */
static void
forget_results(agent_op *op)
{
    uint32_t i;

    forget_result(op, op->handle);
    for (i = 0; i < op->output_count && op->list_is_new; i++) {
        forget_result(op, op->outputs[i].handle);
    }
}

/*
 * The op and its call end in any order. A caller learns the handle of a new result from the answer
 * alone: when that did not reach it, the result goes.
 */
static void
release_op_memory(agent_op *op)
{
    if (op->state != AGENT_OP_OVER || (op->call != NULL && !op->call_over)) {
        return;
    }
    if (op->call != NULL) {
        const bool reached = !tutti_rpc_call_cancelled(op->call);

        if (!agent_answers_release(op, reached) && !reached) {
            forget_results(op);
        }
        tutti_rpc_call_unref(op->call);
    } else {
        (void)agent_answers_release(op, true);
    }
    free(op->outputs);
    free(op);
}

static void
on_call_end(tutti_rpc_call *call, void *self)
{
    agent_op *op = tutti_rpc_call_user(call);

    (void)self;
    op->call_over = true;
    release_op_memory(op);
}

static void
release_op(agent_op *op)
{
    tutti_list_remove(&op->live);
    agent_op_unwatch(op);
    tutti_table_release(op->agent->table, &op->lock_set);
    tutti_tensor_unref(op->inline_in);
    tutti_tensor_unref(op->inline_out);
    op->agent->ops_live--;
    agent_client_leave(&op->agent->clients, op->client);
    op->client = NULL;
    op->agent->hooks->op_over(op->agent);
    agent_list_free(op);
    free(op->meta);
    free(op->to);
    free(op->splits);
    free(op->kept);
    op->meta = NULL;
    agent_op_move(op, AGENT_OP_OVER);
}

/* The same for a list. */
static void
settle_list(agent_op *op)
{
    const bool told = op->list->made.count == 0; /* they had their handles from the beginning */

    op->list_is_new = op->list->out_is_new;
    if (!op->list->out_is_new) {
        return;
    }
    if (op->failed && op->options.async && told && !op->no_result) {
        agent_list_mark(op, &op->err);
    } else if (op->failed || op->no_result) {
        agent_list_drop_new(op);
    }
}

/* Results that nobody was told of go; those that somebody may name keep the error. */
static void
settle_output(agent_op *op)
{
    if (op->list != NULL) {
        settle_list(op);
    }
    if (op->out == NULL || !op->out_is_new) {
        return;
    }
    if (op->failed && op->options.async && !op->no_result) {
        tutti_table_mark(op->agent->table, op->out, &op->err);
    } else if (op->failed || op->no_result) {
        tutti_table_drop_new(op->agent->table, op->out);
    } else if (!op->options.async) {
        tutti_table_handle(op->out, op->handle);
    }
}

/* On the control loop: the op is over in every sense. */
void
agent_op_finish(agent_op *op)
{
    agent_op_note_over(op);
    agent_note_op(op);
    settle_output(op);
    op->agent->hooks->record_end(op);
    agent_groups_note_end(op->agent, op);
    if (op->work != NULL) {
        agent_work_done(op->work, op);
    }
    if (op->on_end != NULL) {
        op->on_end(op);
    } else {
        agent_sync_op_ended(op->agent, op);
    }
    op->agent->hooks->op_ended(op);
    agent_answers_settle(op);
    release_op(op);
    release_op_memory(op);
}

static void
on_ended(tutti_rpc_task *task)
{
    agent_op_finish(tutti_container_of(task, agent_op, ended));
}

static void
fill_result(agent_op *op, agent_op_result *result)
{
    const tutti_tensor *tensor = op->inline_out;

    *result = (agent_op_result){.sequence = op->op.sequence,
                                .source = op->op.source,
                                .output_count = op->output_count,
                                .outputs = op->outputs,
                                .meta = op->op.meta};
    result->elapsed_us = (op->ended_ns - op->enqueued_ns) / TUTTI_NS_PER_US;
    result->source_global = op->source_global;
    if (op->out != NULL && !op->no_result) {
        tutti_table_handle(op->out, result->handle);
        tensor = tutti_table_tensor(op->agent->table, op->out);
    }
    result->payload = op->inline_out;
    result->payload_bytes = tensor == NULL ? 0 : tensor->bytes;
    if (op->list != NULL && op->list->out_memory != NULL) {
        result->payload = op->list->out_memory;
        result->payload_bytes = agent_list_pack(op->list);
    }
    if (tensor != NULL) {
        result->has_spec = true;
        result->spec = tensor->spec;
    }
}

/* What came with the tensor, for a Wait: the engine forgets it. */
static void
keep_meta(agent_op *op)
{
    const tutti_bytes meta = op->op.meta;
    unsigned char *kept;

    if (!op->options.async || meta.data == op->meta || meta.size == 0) {
        return;
    }
    kept = malloc(meta.size);
    if (kept != NULL) {
        memcpy(kept, meta.data, meta.size); /* perhaps from what it replaces */
    }
    free(op->meta);
    op->meta = kept;
    op->meta_size = kept == NULL ? 0 : meta.size;
}

/* Before anybody hears of the end. */
static void
take_results(agent_op *op)
{
    if (op->op.args.kind == TUTTI_COLL_RECV) {
        op->source_global = tutti_coll_group_ranks(op->op.group)[op->op.source];
    }
    if (op->out != NULL && op->out->exclusive) {
        tutti_table_mark(op->agent->table, op->out, NULL);
    }
    if (op->list != NULL) {
        agent_list_mark(op, NULL);
        free(op->outputs);
        op->outputs = agent_list_outputs(op, &op->output_count);
    }
    op->agent->hooks->record_unpack(op);
    keep_meta(op);
}

/* The thread that runs the engine, which may be the control loop inside tutti_coll_post
 * (coll/coll.h): the caller is answered from it, without a task for another thread. */
void
agent_op_on_done(tutti_coll_op *engine_op, const tutti_error *err)
{
    agent_op *op = tutti_container_of(engine_op, agent_op, op);
    agent_op_result result;

    op->ended_ns = tutti_clock_ns();
    if (err != NULL) {
        op->failed = true;
        op->err = *err;
    } else {
        take_results(op);
    }
    if (err == NULL) {
        op->agent->hooks->record_computed(op);
    }
    agent_op_record_ended(op);
    atomic_store(&op->told, true);
    if (op->options.async) {
        return;
    }
    if (err != NULL) {
        tutti_rpc_call_fail(op->call, err);
        return;
    }
    fill_result(op, &result);
    agent_answers_note(op, &result);
    op->answer(op->call, &result);
}

void
agent_op_on_released(tutti_coll_op *engine_op)
{
    agent_op *op = tutti_container_of(engine_op, agent_op, op);

    op->ended.on_run = on_ended;
    tutti_rpc_loop_post(op->agent->control, &op->ended);
}

/* It never came to the engine: answer, and let the others know when it had a place in the order. */
void
agent_op_end_early(agent_op *op, const tutti_error *err)
{
    op->failed = true;
    op->err = *err;
    op->ended_ns = tutti_clock_ns();
    agent_op_record_ended(op);
    if (op->on_end == NULL && (!op->options.async || op->work == NULL) && !op->answered) {
        tutti_rpc_call_fail(op->call, err);
    }
    agent_op_finish(op);
}

/* ------------------------------------------------------------------------------ its coming */

static void
on_claimed(tutti_lock_set *lock_set)
{
    agent_op *op = tutti_container_of(lock_set, agent_op, lock_set);

    op->ready = true;
    agent_group_dispatch(op->group);
}

/* The caller went away. When only its time is up, the engine's own deadline says it better. */
static void
on_cancel(tutti_rpc_call *call, void *self)
{
    tutti_agent *agent = self;
    agent_op *op = tutti_rpc_call_user(call);
    tutti_error err;

    if (op->state == AGENT_OP_OVER ||
        tutti_clock_ns() + 5 * TUTTI_NS_PER_MS >= tutti_rpc_call_deadline(call)) {
        return;
    }
    if (agent->state == AGENT_LEAVING) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING", "rank %" PRIu32 " is stopping",
                             agent->rank);
    } else {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_CANCELLED, "CALLER_GONE",
                             "the caller of rank %" PRIu32 " went away", agent->rank);
    }
    tutti_error_set_op(&err, NULL, 0, (int32_t)agent->rank);
    if (op->state == AGENT_OP_POSTED) {
        tutti_coll_cancel(agent->engine, op->op.id, &err);
    } else if (!op->failed) {
        op->failed = true;
        op->err = err;
    }
}

/* Before it has a place in any order: nobody else hears of it. */
static tutti_code
admit_op(tutti_agent *agent, const agent_request *request, agent_group **ret_group,
         tutti_error *err)
{
    const char *name = request->group[0] == '\0' ? "world" : request->group;
    tutti_code code;

    TUTTI_TRY(agent->hooks->check_begin(agent, err));
    if (agent->ops_live >= agent->options->ops_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "OP_LIMIT",
                              "%" PRIu64 " ops are in flight, the limit (--ops-max)",
                              agent->ops_live);
    }
    code = tutti_check_group_name(name, err);
    if (code != TUTTI_OK) {
        return code;
    }
    *ret_group = agent_group_of(agent, name, err);
    if (*ret_group == NULL) {
        return err->code;
    }
    if (request->options.sequence != 0 && (*ret_group)->barriers == 0 &&
        request->options.sequence != (*ret_group)->sequence + 1) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "OUT_OF_SEQUENCE",
                              "op %" PRIu64 " of group %s: the next one is %" PRIu64,
                              request->options.sequence, name, (*ret_group)->sequence + 1);
    }
    return TUTTI_OK;
}

/* New tensors, which need an owner? Nobody else pays for finding out who calls. */
static bool
may_make(const agent_request *request)
{
    return !request->options.inline_result && request->output[0] == '\0' &&
           request->output_count == 0 && request->args.kind != TUTTI_COLL_BARRIER;
}

void
agent_op_start(tutti_agent *agent, tutti_rpc_call *call, agent_request *request,
               agent_answer_fn answer)
{
    agent_client *client = NULL;
    agent_group *group = NULL;
    agent_op *op;
    tutti_error err;

    if (agent_answers_repeat(agent, call, request, answer)) {
        return;
    }
    if (admit_op(agent, request, &group, &err) != TUTTI_OK ||
        agent_client_enter(&agent->clients, call, &client, &err) != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    op = agent_op_new(agent, call, request, answer);
    if (op == NULL) {
        agent_client_leave(&agent->clients, client);
        (void)TUTTI_FAIL(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory for an op");
        tutti_rpc_call_fail(call, &err);
        return;
    }
    op->client = client;
    if (agent_answers_expect(op, request, &op->err) != TUTTI_OK ||
        (may_make(request) && agent_lock_own(&op->lock_set, call, &op->err) != TUTTI_OK) ||
        agent_op_take(op, request, &op->err) != TUTTI_OK) {
        op->failed = true;
        tutti_table_release(agent->table, &op->lock_set);
        agent_list_free(op);
        op->in = NULL;
        op->out = NULL;
    }
    if (group->barriers > 0) { /* known when the Backwards before it are over */
        op->expect = request->options.sequence;
    } else if (!agent_op_is_p2p(op)) {
        op->sequence = ++group->sequence;
    }
    op->lock_set.on_ready = on_claimed;
    op->group = group;
    agent_op_record_enqueued(op);
    agent_group_changed(group);
    op->ready = tutti_table_acquire(agent->table, &op->lock_set);
    if (!op->options.async || op->failed) {
        tutti_rpc_call_set_user(call, op);
        tutti_rpc_call_on_cancel(call, on_cancel);
        tutti_rpc_call_on_end(call, on_call_end);
    } else {
        agent_op_answer_async(op);
    }
    if (!op->ready || group->coll == NULL || !tutti_list_empty(&group->queue)) {
        agent_op_watch(op);
    }
    agent_group_add(group, op);
}
