/*
 * The life of a Backward: it comes, waits for ops and Backwards before it, runs, answers. Control
 * loop. The argument for tapes, agreements and places is docs/decisions/0011.
 *
 * Events (an op ended, a lock granted, a place reached, a copy done) never work on the pass
 * themselves: they change a count and call agent_backward_post, which posts one task.
 * check_backward then looks at all counts and does what is due. So no code here runs inside of the
 * callback of another room, and it does not matter which event comes first.
 *
 *   waiting   !started: in line for earlier ops, for its given gradients, for a Backward of the
 *             same tape. It holds its places already, so collectives behind it wait
 *   running   started: nodes and sums are under way
 *   giving    all nodes are over: wanted gradients get memory of their own
 *   failed    from any of these. Nothing new begins; what flies comes back; each group in which
 *             others go on gets one refused op (agent_backward_fail_queues)
 *   over      nothing is under way and it is in no list. Freed when its call is over too
 *
 * The pass is counted in agent->ops_live and has an entry in agent->ops (as_op), so that Sync, a
 * Wait, limits and the agent's end treat it as an op.
 *
 * A dead rank or a deadline reaches the pass as the error of one of its ops, and the tape stays as
 * it was, so that the caller may call Backward again.
 */
#include "server/agent/autograd/backward.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/autograd/backward_private.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/op/sync.h"
#include "server/agent/op/works.h"
#include "server/agent/state/clients.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/op.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/transfer/access.h"

/* ------------------------------------------------------------------------------ the end */

/*
 * Frees the pass when three things are over: the pass, its task, and its call. If the caller left
 * before the answer reached it, nobody has the handles of the gradients, and they are deleted. An
 * async caller has them already (call is NULL).
 */
static void
release_backward(agent_backward_pass *backward)
{
    size_t i;

    if (!backward->over || backward->posted || (backward->call != NULL && !backward->call_over)) {
        return;
    }
    if (backward->call != NULL) {
        for (i = 0; i < backward->grad_out_count && tutti_rpc_call_cancelled(backward->call); i++) {
            char handle[TUTTI_TABLE_HANDLE_SIZE];
            char *handles[] = {handle};

            tutti_table_handle_of(backward->agent->table, backward->grads_out[i].gradient, handle);
            if (backward->grads_out[i].found) { /* nobody was told of it */
                (void)tutti_table_delete(backward->agent->table, handles, 1, false, NULL);
            }
        }
        tutti_rpc_call_unref(backward->call);
    }
    free(backward->grads_out);
    free(backward->grads_in);
    free(backward);
}

static void
on_call_end(tutti_rpc_call *call, void *self)
{
    agent_backward_pass *backward = tutti_rpc_call_user(call);

    (void)self;
    backward->call_over = true;
    release_backward(backward);
}

static void
tell_call(agent_backward_pass *backward)
{
    agent_gradient *gradients = backward->failed ? NULL : agent_backward_describe(backward);

    if (backward->failed) {
        tutti_rpc_call_fail(backward->call, &backward->err);
    } else if (gradients == NULL) {
        (void)TUTTI_FAIL_MEMORY(&backward->err, "no memory to answer");
        tutti_rpc_call_fail(backward->call, &backward->err);
    } else {
        backward->answer(backward->call, gradients, backward->grad_out_count, "",
                         (tutti_clock_ns() - backward->as_op.enqueued_ns) / TUTTI_NS_PER_US);
    }
    free(gradients);
}

/*
 * Work and Syncs hear of the end as of an op's. as_op never goes through agent_op_finish, as it has
 * no group, tensors or call.
 */
static void
tell_waiting(agent_backward_pass *backward)
{
    agent_op *op = &backward->as_op;

    op->failed = backward->failed;
    op->err = backward->err;
    op->ended_ns = tutti_clock_ns();
    if (backward->work != NULL) {
        agent_work_done(backward->work, op);
    }
    agent_sync_op_ended(backward->agent, op);
    tutti_list_remove(&op->live);
}

/* Backwards that have not started may have waited for this one (agent_backward_must_wait). */
static void
look_at_others(tutti_agent *agent)
{
    tutti_list_node *link;

    for (link = agent->backwards.next; link != &agent->backwards; link = link->next) {
        agent_backward_pass *backward = tutti_container_of(link, agent_backward_pass, link);

        if (!backward->started) {
            agent_backward_post(backward);
        }
    }
}

/*
 * Results go into the table before anybody is told of them, and gradients on the tape are dropped
 * in any case: they belong to one pass. A tape is cleared only when its gradients were computed and
 * the caller did not ask to keep it.
 */
static void
end_backward(agent_backward_pass *backward)
{
    tutti_agent *agent = backward->agent;

    if (!backward->failed) {
        agent_backward_write_grads(backward);
    }
    if (backward->started) {
        if (!backward->failed && !backward->keep) {
            tutti_tape_clear(backward->tape, true);
        }
        tutti_tape_drop_gradients(backward->tape);
    }
    agent_backward_free_nodes(backward);
    if (backward->call != NULL) {
        tell_call(backward);
    }
    agent_backward_drop_args(backward);
    tell_waiting(backward);
    backward->tape->backward_count--;
    tutti_tape_unref(backward->tape);
    tutti_list_remove(&backward->link);
    agent->ops_live--;
    agent_client_leave(&agent->clients, backward->client);
    backward->over = true;
    release_backward(backward);
    look_at_others(agent);
}

/*
 * The first error is the pass's error. Its ops in the engine are cancelled, which fails them on all
 * ranks; their ends come back by on_op_end. `queue`, if given, is one whose group has just seen
 * this error, so it needs no refused op.
 */
void
agent_backward_fail(agent_backward_pass *backward, const tutti_error *err, grad_queue *queue)
{
    size_t i;

    if (queue != NULL) {
        queue->told = true;
    }
    if (backward->failed || backward->over) {
        return;
    }
    backward->failed = true;
    backward->err = *err;
    for (i = 0; i < backward->node_count && backward->agent->engine != NULL; i++) {
        const agent_op *op = backward->nodes[i].op;

        if (op != NULL && op->state == AGENT_OP_POSTED) {
            tutti_coll_cancel(backward->agent->engine, op->op.id, err);
        }
    }
    agent_backward_post(backward);
}

/* ------------------------------------------------------------------------------ going on */

/*
 * `started` is set even when this fails: from here on agent_backward_fail_queues uses the nodes to
 * know where others go on.
 */
static void
start_backward(agent_backward_pass *backward)
{
    tutti_error err;
    tutti_code code = agent_backward_make_nodes(backward, &err);

    backward->started = true;
    if (code == TUTTI_OK) {
        code = agent_backward_take_grads_in(backward, &err);
    }
    if (code != TUTTI_OK) {
        agent_backward_fail(backward, &err, NULL);
    }
}

/*
 * Nothing of it is under way. A failed pass has to wait for its locks and earlier ops too, since
 * their callbacks point to it.
 */
static bool
is_backward_idle(const agent_backward_pass *backward)
{
    return (backward->failed || (backward->started && backward->nodes_left == 0)) &&
           backward->flying == 0 && backward->lock_sets_waiting + backward->ops_waiting == 0 &&
           tutti_list_empty(&backward->queues);
}

/*
 * The one function that moves a pass on. `adding`: nodes begin when all given gradients are on the
 * tape, since a node may read any of them.
 */
static void
check_backward(agent_backward_pass *backward)
{
    tutti_error err;

    if (!backward->started && !backward->failed && !agent_backward_must_wait(backward)) {
        start_backward(backward);
    }
    if (backward->started && !backward->failed && backward->adding == 0) {
        agent_backward_advance(backward);
    }
    if (backward->failed) {
        agent_backward_fail_queues(backward);
    }
    if (is_backward_idle(backward) && !backward->failed && !backward->giving) {
        backward->giving = true;
        if (agent_backward_own(backward, &err) != TUTTI_OK) {
            agent_backward_fail(backward, &err, NULL);
        }
    }
    /* Again: agent_backward_own may have started copies, and then this is not the end yet. */
    if (is_backward_idle(backward)) {
        end_backward(backward);
    }
}

/*
 * A post may still be on its way when the pass ends: then this task is the last that points to it.
 */
static void
run_backward(tutti_rpc_task *task)
{
    agent_backward_pass *backward = tutti_container_of(task, agent_backward_pass, task);

    backward->posted = false;
    if (backward->over) {
        release_backward(backward);
    } else {
        check_backward(backward);
    }
}

void
agent_backward_post(agent_backward_pass *backward)
{
    if (!backward->posted) {
        backward->posted = true;
        backward->task.on_run = run_backward;
        tutti_rpc_loop_post(backward->agent->control, &backward->task);
    }
}

/* ------------------------------------------------------------------------------ its coming */

/*
 * As on_cancel of op.c: within 5 ms of the call's deadline the ops' own deadlines give a better
 * error.
 */
static void
on_cancel(tutti_rpc_call *call, void *self)
{
    tutti_agent *agent = self;
    agent_backward_pass *backward = tutti_rpc_call_user(call);
    tutti_error err;

    if (agent->state == AGENT_LEAVING) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING", "rank %" PRIu32 " is stopping",
                             agent->rank);
    } else if (tutti_clock_ns() + 5 * TUTTI_NS_PER_MS >= tutti_rpc_call_deadline(call)) {
        return; /* the ops' own deadlines say it better */
    } else {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_CANCELLED, "CALLER_GONE",
                             "the caller of rank %" PRIu32 " went away", agent->rank);
    }
    tutti_error_set_op(&err, NULL, 0, (int32_t)agent->rank);
    agent_backward_fail(backward, &err, NULL);
}

static tutti_code
admit_backward(const tutti_agent *agent, const agent_backward *request, tutti_tape **ret_tape,
               tutti_error *err)
{
    TUTTI_TRY(agent->hooks->check_begin(agent, err));
    if (agent->ops_live >= agent->options->ops_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "OP_LIMIT",
                              "%" PRIu64 " ops are in flight, the limit (--ops-max)",
                              agent->ops_live);
    }
    return tutti_tape_find(agent->tapes, request->tracer, ret_tape, err);
}

/* op number and place in agent->ops are taken now: they say which ops came before it. */
static agent_backward_pass *
new_backward(tutti_agent *agent, tutti_rpc_call *call, const agent_backward *request,
             tutti_tape *tape)
{
    agent_backward_pass *backward = calloc(1, sizeof(*backward));

    if (backward == NULL) {
        return NULL;
    }
    backward->agent = agent;
    backward->tape = tape;
    backward->keep = request->keep;
    backward->as_op.agent = agent;
    backward->as_op.number = ++agent->ops_last;
    backward->as_op.enqueued_ns = tutti_clock_ns();
    tutti_list_init(&backward->as_op.live);
    tutti_list_add(&agent->ops, &backward->as_op.live);
    backward->deadline_ns =
        tutti_clock_deadline(backward->as_op.enqueued_ns, request->timeout_ms,
                             request->async ? TUTTI_TIMERS_NEVER : tutti_rpc_call_deadline(call),
                             agent->options->op_timeout_ns);
    tutti_list_init(&backward->queues);
    tutti_list_init(&backward->ready);
    tutti_list_init(&backward->link);
    tutti_list_add(&agent->backwards, &backward->link);
    tutti_tape_ref(tape);
    tape->backward_count++;
    agent->ops_live++;
    return backward;
}

/*
 * The handles are promises: each is a new tensor that this pass writes, or that keeps its error.
 * The work is made last, as only it would have to be taken back.
 */
static void
cancel_backward(void *owner, const tutti_error *err)
{
    agent_backward_fail(owner, err, NULL);
}

static tutti_code
answer_async(agent_backward_pass *backward, tutti_rpc_call *call, agent_gradients_fn answer,
             tutti_error *err)
{
    agent_gradient *gradients = agent_backward_describe(backward);
    char name[AGENT_WORK_SIZE];
    tutti_code code = TUTTI_OK;

    if (gradients == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory to answer");
    }
    code = agent_work_new(backward->agent, cancel_backward, backward, &backward->work, err);
    if (code == TUTTI_OK) {
        agent_work_name(backward->work, name);
        answer(call, gradients, backward->grad_out_count, name, 0);
    }
    free(gradients);
    return code;
}

/*
 * A request that is wrong in itself still opens its places and then fails: the other ranks have
 * called Backward too, and wait for this one in their agreements (docs/decisions/0002).
 */
void
agent_backward_start(tutti_agent *agent, tutti_rpc_call *call, const agent_backward *request,
                     agent_gradients_fn answer)
{
    agent_client *client = NULL;
    tutti_tape *tape = NULL;
    agent_backward_pass *backward = NULL;
    tutti_error err;
    tutti_code code = admit_backward(agent, request, &tape, &err);

    if (code == TUTTI_OK) {
        code = agent_client_enter(&agent->clients, call, &client, &err);
    }
    if (code == TUTTI_OK) {
        backward = new_backward(agent, call, request, tape);
        /* Written in any case; it is told only when there is no pass. */
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a Backward");
    }
    if (backward == NULL) {
        agent_client_leave(&agent->clients, client);
        tutti_rpc_call_fail(call, &err);
        return;
    }
    backward->client = client;
    code = agent_lock_own(&backward->as_op.lock_set, call, &err);
    code = code == TUTTI_OK ? agent_backward_take(backward, request, &err) : code;
    if (code == TUTTI_OK && request->async) {
        code = answer_async(backward, call, answer, &err);
    }
    if (backward->work == NULL) {
        backward->call = call;
        backward->answer = answer;
        tutti_rpc_call_ref(call);
        tutti_rpc_call_set_user(call, backward);
        tutti_rpc_call_on_cancel(call, on_cancel);
        tutti_rpc_call_on_end(call, on_call_end);
    }
    if (code != TUTTI_OK) {
        agent_backward_fail(backward, &err, NULL);
    }
    code = agent_backward_open_queues(backward, &err);
    if (code == TUTTI_OK) {
        code = agent_backward_find_earlier(backward, &err);
    }
    if (code != TUTTI_OK) {
        agent_backward_fail(backward, &err, NULL);
    }
    agent_backward_post(backward);
}
