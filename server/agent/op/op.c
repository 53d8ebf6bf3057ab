/*
 * The life of an op, from the request to the last free. A call becomes an agent_op when it comes
 * in: the op takes its locks, its place in the group's queue and its number at that moment, so the
 * order of the calls is the order of the ops. A call that this rank has to refuse takes its place
 * too (docs/decisions/0002): the other ranks count it, and they get its error.
 *
 * Threads. The control loop owns every agent_op. The one exception is agent_op_on_done, which runs
 * on the thread that runs the engine (the engine's own, or the control loop inside
 * tutti_coll_post). Between agent_op_move(POSTED) and the task `ended`, `failed`, `err`, `ended_ns`
 * and the results belong to that thread. The control loop reads them only in agent_op_finish:
 * posting the task orders the writes before the reads.
 *
 * The end has three parts, in this order: agent_op_on_done answers the caller; agent_op_on_released
 * says that neither the engine nor the network uses the op's memory; agent_op_finish, as a task,
 * releases locks and frees. A lock released before on_released would give memory to the next op
 * while a peer may still read or write it.
 *
 * A dead rank, a deadline and a vanished caller all reach this file as an error of on_done. Only
 * ops that are not posted are failed here (on_cancel, and deadline.c).
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
#include "server/agent/op/caller.h"
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

/* The caller has never heard of this handle, so nobody else can delete the tensor. */
static void
forget_result(agent_op *op, char *handle)
{
    tutti_error err;

    if (handle[0] != '\0') {
        /* A lease that ended, or a client that listed the tensors, may have deleted it before. */
        (void)tutti_table_delete(op->agent->table, &handle, 1, false, &err);
    }
}

/*
 * Only tensors that this op made: tensors that the caller named as outputs existed before the op.
 */
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
 * Frees the op when both have ended: the op (OVER) and its call (call_over). They end in any order,
 * since the answer leaves from the engine's thread and on_call_end is a task of the control loop.
 *
 * A caller learns the handle of a new result from the answer alone. If the answer did not reach the
 * caller, the result is deleted, unless the op has a token: then the answer is kept, and a caller
 * that comes again within --retry-window gets it (answers.c).
 *
 * An async op has no call any more at this point: agent_op_answer_async has answered and dropped
 * it.
 *
 * A result that the caller has named stays as well: it is found by the name. A session that is left
 * to linger ends its streams so early that last answers may still be on their way.
 */
static void
release_op_memory(agent_op *op)
{
    if (op->state != AGENT_OP_OVER || (op->call != NULL && !op->call_over)) {
        return;
    }
    if (op->call != NULL) {
        const bool reached = !tutti_rpc_call_cancelled(op->call);

        if (!agent_answers_release(op, reached) && !reached && !op->out_is_named) {
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
    if (op != NULL) { /* not that of an async op, which goes on without its call */
        op->call_over = true;
        release_op_memory(op);
    }
}

/*
 * Gives back all that the op holds but its own memory, which the end of the call may still need.
 * The locks go first of the resources: the next op in line for a tensor may begin at once.
 */
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
    /*
     * The op may live on until its call is over, and must not count against the client a second
     * time.
     */
    op->client = NULL;
    agent_event_unref(op->after);
    agent_event_unref(op->done);
    /*
     * Behind ops_live--: an agent that leaves looks here whether this was the last op (shutdown.c).
     */
    op->agent->hooks->op_over(op->agent);
    agent_list_free(op);
    free(op->meta);
    free(op->to);
    free(op->splits);
    free(op->kept);
    free(op->expects);
    op->meta = NULL;
    agent_op_move(op, AGENT_OP_OVER);
}

/*
 * As settle_output, for each tensor of a list. `told` is true when the handles existed from the
 * beginning, so an async caller has them in its answer. When the number of results was unknown, the
 * handles are in list->made, and nobody has heard of them.
 */
static void
settle_list(agent_op *op)
{
    const bool told = op->list->made.count == 0; /* they had their handles from the beginning */

    op->list_is_new = op->list->out_is_new;
    if (!op->list->out_is_new) {
        return;
    }
    if (op->failed && agent_op_is_answered_early(op) && told && !op->no_result) {
        agent_list_mark(op, &op->err);
    } else if (op->failed || op->no_result) {
        agent_list_drop_new(op);
    }
}

/*
 * What becomes of a result tensor that the op made:
 *
 *   failed, async, has a result  the caller has the handle already: the tensor stays and keeps the
 *                                error, so a Get or an op on it fails for the same reason
 *   failed, or no result here    nobody has the handle: the entry is dropped. Calls that wait for
 *                                its lock get "the tensor was never written". But a register keeps
 *                                the error
 *   succeeded, sync              op->handle is kept, for the case that the answer is lost
 *
 * A caller's own output tensor is not touched: its bytes may be half written, as in MPI.
 */
static void
settle_output(agent_op *op)
{
    if (op->list != NULL) {
        settle_list(op);
    }
    if (op->out == NULL || !op->out_is_new) {
        return;
    }
    if (op->failed && agent_op_is_answered_early(op) && !op->no_result) {
        tutti_table_mark(op->agent->table, op->out, &op->err);
    } else if (op->failed) {
        tutti_table_fail_new(op->agent->table, op->out, &op->err);
    } else if (op->no_result) {
        tutti_table_drop_new(op->agent->table, op->out);
    } else if (!op->options.async) {
        tutti_table_handle(op->out, op->handle);
    }
}

/*
 * The op is over in every sense. Control loop; for an op that ran, as the task that
 * agent_op_on_released posts. The order matters:
 *
 * - settle_output comes before works and Syncs are told: a caller that hears of the end may name
 *   the result at once.
 * - record_end comes before the locks are released: it reads the tensors' specs, which the next op
 *   in line may change.
 * - agent_work_done takes `outputs` and `meta` out of the op, so it comes before release_op frees.
 * - agent_answers_settle comes after settle_output, which writes op->handle.
 * - release_op_memory is last, as it may free the op.
 */
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

/*
 * The answer's contents. The thread that runs the engine: it reads the table under the table's
 * lock, and the rest is the op's own. An op with a new tensor fills `handle`, an inline one
 * `payload`.
 */
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

/*
 * A copy of the sender's user_meta for a later Wait: the engine's own copy is valid until
 * on_released only. Not needed by a sync op, whose answer is written before that. Without memory
 * the result comes without its user_meta; the op has succeeded on all ranks and cannot fail any
 * more.
 */
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

/*
 * Before anybody hears of the end: a caller that hears of it may use the results at once. An output
 * that already existed loses the error that an earlier failed op has left on it.
 *
 */
static void
take_results(agent_op *op)
{
    if (op->op.args.kind == TUTTI_COLL_RECV) {
        op->source_global = tutti_coll_group_ranks(op->op.group)[op->op.source];
    }
    if (op->out != NULL && op->out->exclusive && op->out->range == NULL) {
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

/*
 * The engine's word that the op has ended. It runs on the thread that runs the engine, which may be
 * the control loop inside tutti_coll_post (coll/coll.h). The caller is answered from here: a task
 * for the control loop would add a wake-up of another thread to every op's latency.
 *
 * `told` is stored with sequential consistency, after the results and the record are written:
 * backward_queue.c reads it on the control loop to tell an op whose caller may know of the end (and
 * may so have called Backward because of it) from one that runs.
 */
void
agent_op_on_done(tutti_coll_op *engine_op, const tutti_error *err)
{
    agent_op *op = tutti_container_of(engine_op, agent_op, op);
    agent_op_result result;

    op->ended_ns = tutti_clock_ns();
    if (err != NULL) {
        op->failed = true;
        op->err = *err;
        if (op->group != NULL && strcmp(err->reason, TUTTI_COLL_ABORTED) == 0) {
            atomic_store(&op->group->abort_met, true); /* before the caller may call the next one */
        }
    } else {
        take_results(op);
    }
    if (err == NULL) {
        op->agent->hooks->record_computed(op);
    }
    agent_op_record_ended(op);
    atomic_store(&op->told, true);
    /* An op with `done` for which the device had nothing to do: that event stays as it was. */
    if (op->done != NULL && err == NULL && !op->launched) {
        agent_op_on_launched(engine_op);
    }
    /* Its call was answered when it had its place; agent_op_finish tells those who Wait. */
    if (op->options.async && (op->done == NULL || op->launched)) {
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

static void
on_launch_told(tutti_rpc_task *task)
{
    agent_op_answer_async(tutti_container_of(task, agent_op, launch_told));
}

/*
 * `done` is recorded: who waits for it from now on waits for the op. The answer reads the table and
 * the works, so it is the control loop's. Tasks of one loop keep their order: this one comes before
 * `ended`.
 */
void
agent_op_on_launched(tutti_coll_op *engine_op)
{
    agent_op *op = tutti_container_of(engine_op, agent_op, op);

    op->launched = true;
    op->launch_told.on_run = on_launch_told;
    tutti_rpc_loop_post(op->agent->control, &op->launch_told);
}

/*
 * The thread that runs the engine. Locks, lists and works are the control loop's, so the rest of
 * the end is a task there. The op must not be touched after the post: the control loop may free it
 * at once.
 */
void
agent_op_on_released(tutti_coll_op *engine_op)
{
    agent_op *op = tutti_container_of(engine_op, agent_op, op);

    op->ended.on_run = on_ended;
    tutti_rpc_loop_post(op->agent->control, &op->ended);
}

/*
 * The op ends without having run in the engine. Control loop. The caller is answered here unless it
 * has its answer already: an async op has its place's answer (a Wait tells the error), and an op
 * whose time was up in line was answered by deadline.c. refuse_posted (post.c) has told the other
 * ranks before, where the group counts the op.
 */
void
agent_op_end_early(agent_op *op, const tutti_error *err)
{
    op->failed = true;
    op->err = *err;
    op->ended_ns = tutti_clock_ns();
    agent_op_record_ended(op);
    if (op->on_end == NULL && op->call != NULL && !op->answered) {
        tutti_rpc_call_fail(op->call, err);
    }
    agent_op_finish(op);
}

/* ------------------------------------------------------------------------------ its coming */

/*
 * The lock set is granted. The op may not be the first in line, so the group decides what goes
 * next.
 */
static void
on_claimed(tutti_lock_set *lock_set)
{
    agent_op *op = tutti_container_of(lock_set, agent_op, lock_set);

    op->ready = true;
    agent_group_dispatch(op->group);
}

/*
 * A posted op is cancelled in the engine, which fails it on all ranks. An op in line keeps its
 * place with its error, because the other ranks may have counted it; it ends when its turn comes.
 * No dispatch is needed: an op is not held back by its own failure.
 */
void
agent_op_cancel(void *owner, const tutti_error *err)
{
    agent_op *op = owner;

    if (op->state == AGENT_OP_POSTED) {
        tutti_coll_cancel(op->agent->engine, op->op.id, err);
    } else if (op->state != AGENT_OP_OVER && !op->failed) {
        op->failed = true;
        op->err = *err;
    }
}

/*
 * The caller went away, or the server drains. Control loop, at most once.
 *
 * A call's gRPC deadline and the op's own one end at the same moment. The engine's deadline gives
 * the better error, since it asks the other ranks where they stand. So within 5 ms of the deadline
 * this does nothing, and the engine (or deadline.c) ends the op.
 */
static void
on_cancel(tutti_rpc_call *call, void *self)
{
    tutti_agent *agent = self;
    agent_op *op = tutti_rpc_call_user(call);
    tutti_error err;

    if (op == NULL || op->state == AGENT_OP_OVER ||
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
    agent_op_cancel(op, &err);
    agent_caller_note_given_up(op);
}

/*
 * Checks that come before the call has a place in any order. The other ranks never hear of a call
 * that is refused here, so only conditions belong here that the caller can see on this rank alone:
 * the agent is not open, a limit, a bad name, a number that does not fit.
 *
 * The number is not checked while a Backward is in line (`barriers`): how many ops it makes is not
 * known. The number is then checked by the engine at the post (op->expect).
 */
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
    agent_caller_come(*ret_group);
    if (request->options.sequence != 0 && (*ret_group)->barriers == 0 &&
        request->options.sequence != (*ret_group)->sequence + 1) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "OUT_OF_SEQUENCE",
                              "the call asks for op %" PRIu64
                              " of group %s, but the next op is %" PRIu64,
                              request->options.sequence, name, (*ret_group)->sequence + 1);
    }
    return TUTTI_OK;
}

/*
 * Can the op make new tensors? They are labelled with the caller's identity and lease, and reading
 * those from the call's metadata costs time that other ops need not spend.
 */
static bool
may_make(const agent_request *request)
{
    return !request->options.inline_result && request->output[0] == '\0' &&
           request->output_count == 0 && request->args.kind != TUTTI_COLL_BARRIER;
}

/* Entries that a call made before it was refused: nobody has their handles. */
static void
drop_results(agent_op *op)
{
    if (op->list != NULL) {
        agent_list_drop_new(op);
    }
    if (op->out != NULL && op->out_is_new) {
        tutti_table_drop_new(op->agent->table, op->out);
    }
}

/*
 * From request to place in line. Control loop; the request is borrowed until this returns. Each
 * outcome answers the call exactly once: a repeated answer, a refusal without a place, or the end
 * of the op.
 */
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
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for an op");
        tutti_rpc_call_fail(call, &err);
        return;
    }
    op->client = client;
    op->came_ns = agent_client_came_ns(client);
    op->group = group;
    agent_caller_note(group, op);
    agent_op_limit(op);
    if (agent_answers_expect(op, call, request, &op->err) != TUTTI_OK ||
        (may_make(request) && agent_lock_own(&op->lock_set, call, &op->err) != TUTTI_OK) ||
        agent_op_take(op, request, &op->err) != TUTTI_OK) {
        /*
         * Refused, but it keeps its place in the group (docs/decisions/0002). It holds no tensor
         * meanwhile: later calls on the same tensors need not wait for it.
         */
        op->failed = true;
        drop_results(op);
        if (request->result != NULL) { /* what depends on a register fails with the cause */
            tutti_table_fail_register(agent->table, request->result, op->lock_set.owner,
                                      op->lock_set.lease, &op->err);
        }
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
    agent_op_record_enqueued(op);
    agent_group_changed(group);
    /*
     * In line for all locks at once, on the thread on which calls come: so two ops can never wait
     * for each other's tensors. When it is not granted now, on_claimed follows as a task of this
     * loop, so not before this function has returned.
     */
    op->ready = tutti_table_acquire(agent->table, &op->lock_set);
    /* A refused async op is answered like a sync one: it has no work that could tell the error. One
     * with `done` is answered when that is recorded. */
    if (!op->options.async || op->failed || op->done != NULL) {
        tutti_rpc_call_set_user(call, op);
        tutti_rpc_call_on_cancel(call, on_cancel);
        tutti_rpc_call_on_end(call, on_call_end);
    } else {
        agent_op_answer_async(op);
    }
    /*
     * An op that goes to the engine at once has the engine's deadline and needs no timer of its
     * own.
     */
    if (!op->ready || group->coll == NULL || !tutti_list_empty(&group->queue)) {
        agent_op_watch(op);
    }
    /* Last: it may launch, end and free the op, and free the group. */
    agent_group_add(group, op);
}
