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

static void
let_go(agent_walk *walk)
{
    size_t i;

    if (!walk->over || walk->posted || (walk->call != NULL && !walk->call_over)) {
        return;
    }
    if (walk->call != NULL) {
        for (i = 0; i < walk->want_count && tutti_rpc_call_cancelled(walk->call); i++) {
            char handle[TUTTI_TABLE_HANDLE_SIZE];
            char *handles[] = {handle};

            tutti_table_handle_of(walk->agent->table, walk->wants[i].gradient, handle);
            if (walk->wants[i].found) { /* nobody was told of it */
                (void)tutti_table_delete(walk->agent->table, handles, 1, NULL);
            }
        }
        tutti_rpc_call_unref(walk->call);
    }
    free(walk->wants);
    free(walk->seeds);
    free(walk);
}

static void
on_call_end(tutti_rpc_call *call, void *self)
{
    agent_walk *walk = tutti_rpc_call_user(call);

    (void)self;
    walk->call_over = true;
    let_go(walk);
}

static void
tell_call(agent_walk *walk)
{
    agent_gradient *gradients = walk->failed ? NULL : agent_walk_describe(walk);

    if (walk->failed) {
        tutti_rpc_call_fail(walk->call, &walk->err);
    } else if (gradients == NULL) {
        (void)TUTTI_FAIL(&walk->err, TUTTI_RESOURCE_EXHAUSTED, "no memory to answer");
        tutti_rpc_call_fail(walk->call, &walk->err);
    } else {
        walk->answer(walk->call, gradients, walk->want_count, "",
                     (tutti_clock_ns() - walk->as_op.came_ns) / TUTTI_NS_PER_US);
    }
    free(gradients);
}

/* Who waits for ops hears of it as of one. */
static void
tell_waiting(agent_walk *walk)
{
    agent_op *op = &walk->as_op;

    op->failed = walk->failed;
    op->err = walk->err;
    op->ended_ns = tutti_clock_ns();
    if (walk->work != NULL) {
        agent_work_done(walk->work, op);
    }
    agent_sync_op_ended(walk->agent, op);
    tutti_list_remove(&op->live);
}

/* Those that have not started may have waited for one that is over now. */
static void
look_at_others(tutti_agent *agent)
{
    tutti_link *link;

    for (link = agent->walks.next; link != &agent->walks; link = link->next) {
        agent_walk *walk = tutti_container_of(link, agent_walk, link);

        if (!walk->started) {
            agent_walk_post(walk);
        }
    }
}

static void
end_walk(agent_walk *walk)
{
    tutti_agent *agent = walk->agent;

    if (!walk->failed) {
        agent_walk_give(walk);
    }
    if (walk->started) {
        if (!walk->failed && !walk->keep) {
            tutti_tape_clear(walk->tape, true);
        }
        tutti_tape_drop_gradients(walk->tape);
    }
    agent_walk_free_nodes(walk);
    if (walk->call != NULL) {
        tell_call(walk);
    }
    agent_walk_drop_args(walk);
    tell_waiting(walk);
    walk->tape->walk_count--;
    tutti_tape_unref(walk->tape);
    tutti_list_remove(&walk->link);
    agent->ops_live--;
    agent_client_leave(&agent->clients, walk->client);
    walk->over = true;
    let_go(walk);
    look_at_others(agent);
}

void
agent_walk_fail(agent_walk *walk, const tutti_error *err, walk_line *line)
{
    size_t i;

    if (line != NULL) {
        line->told = true;
    }
    if (walk->failed || walk->over) {
        return;
    }
    walk->failed = true;
    walk->err = *err;
    for (i = 0; i < walk->node_count && walk->agent->engine != NULL; i++) {
        const agent_op *op = walk->nodes[i].op;

        if (op != NULL && op->posted) {
            tutti_coll_cancel(walk->agent->engine, op->op.id, err);
        }
    }
    agent_walk_post(walk);
}

/* ------------------------------------------------------------------------------ going on */

static void
start(agent_walk *walk)
{
    tutti_error err;
    tutti_code code = agent_walk_make_nodes(walk, &err);

    walk->started = true;
    if (code == TUTTI_OK) {
        code = agent_walk_take_seeds(walk, &err);
    }
    if (code != TUTTI_OK) {
        agent_walk_fail(walk, &err, NULL);
    }
}

/* Nothing of it is under way. */
static bool
rests(const agent_walk *walk)
{
    return (walk->failed || (walk->started && walk->nodes_left == 0)) && walk->flying == 0 &&
           walk->claims_waiting + walk->ops_waiting == 0 && tutti_list_empty(&walk->lines);
}

static void
look(agent_walk *walk)
{
    tutti_error err;

    if (!walk->started && !walk->failed && !agent_walk_must_wait(walk)) {
        start(walk);
    }
    if (walk->started && !walk->failed && walk->adding == 0) {
        agent_walk_go_on(walk);
    }
    if (walk->failed) {
        agent_walk_unwind(walk);
    }
    if (rests(walk) && !walk->failed && !walk->giving) {
        walk->giving = true;
        if (agent_walk_own(walk, &err) != TUTTI_OK) {
            agent_walk_fail(walk, &err, NULL);
        }
    }
    if (rests(walk)) {
        end_walk(walk);
    }
}

static void
run(tutti_rpc_task *task)
{
    agent_walk *walk = tutti_container_of(task, agent_walk, task);

    walk->posted = false;
    if (walk->over) {
        let_go(walk);
    } else {
        look(walk);
    }
}

void
agent_walk_post(agent_walk *walk)
{
    if (!walk->posted) {
        walk->posted = true;
        walk->task.on_run = run;
        tutti_rpc_loop_post(walk->agent->control, &walk->task);
    }
}

/* ------------------------------------------------------------------------------ its coming */

static void
on_cancel(tutti_rpc_call *call, void *self)
{
    tutti_agent *agent = self;
    agent_walk *walk = tutti_rpc_call_user(call);
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
    agent_walk_fail(walk, &err, NULL);
}

static tutti_code
admit(const tutti_agent *agent, const agent_backward *request, tutti_tape **ret_tape,
      tutti_error *err)
{
    const tutti_code code = agent->hooks->check_begin(agent, err);

    if (code != TUTTI_OK) {
        return code;
    }
    if (agent->ops_live >= agent->options->ops_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "OP_LIMIT",
                              "%" PRIu64 " ops are in flight, the limit (--ops-max)",
                              agent->ops_live);
    }
    return tutti_tape_find(agent->tapes, request->tracer, ret_tape, err);
}

static agent_walk *
new_walk(tutti_agent *agent, tutti_rpc_call *call, const agent_backward *request, tutti_tape *tape)
{
    agent_walk *walk = calloc(1, sizeof(*walk));

    if (walk == NULL) {
        return NULL;
    }
    walk->agent = agent;
    walk->tape = tape;
    walk->keep = request->keep;
    walk->as_op.agent = agent;
    walk->as_op.number = ++agent->ops_last;
    walk->as_op.came_ns = tutti_clock_ns();
    tutti_list_init(&walk->as_op.live);
    tutti_list_add(&agent->ops, &walk->as_op.live);
    walk->deadline_ns =
        tutti_clock_deadline(walk->as_op.came_ns, request->timeout_ms,
                             request->async ? TUTTI_TIMERS_NEVER : tutti_rpc_call_deadline(call),
                             agent->options->op_timeout_ns);
    tutti_list_init(&walk->lines);
    tutti_list_init(&walk->ready);
    tutti_list_init(&walk->link);
    tutti_list_add(&agent->walks, &walk->link);
    tutti_tape_ref(tape);
    tape->walk_count++;
    agent->ops_live++;
    return walk;
}

static tutti_code
answer_async(agent_walk *walk, tutti_rpc_call *call, agent_gradients_fn answer, tutti_error *err)
{
    agent_gradient *gradients = agent_walk_describe(walk);
    char name[AGENT_WORK_SIZE];
    tutti_code code = TUTTI_OK;

    if (gradients == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to answer");
    }
    code = agent_work_new(walk->agent, &walk->work, err);
    if (code == TUTTI_OK) {
        agent_work_name(walk->work, name);
        answer(call, gradients, walk->want_count, name, 0);
    }
    free(gradients);
    return code;
}

void
agent_walk_start(tutti_agent *agent, tutti_rpc_call *call, const agent_backward *request,
                 agent_gradients_fn answer)
{
    agent_client *client = NULL;
    tutti_tape *tape = NULL;
    agent_walk *walk = NULL;
    tutti_error err;
    tutti_code code = admit(agent, request, &tape, &err);

    if (code == TUTTI_OK) {
        code = agent_client_enter(&agent->clients, call, &client, &err);
    }
    if (code == TUTTI_OK) {
        walk = new_walk(agent, call, request, tape);
        (void)TUTTI_FAIL(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a Backward");
    }
    if (walk == NULL) {
        agent_client_leave(&agent->clients, client);
        tutti_rpc_call_fail(call, &err);
        return;
    }
    walk->client = client;
    code = agent_own_claim(&walk->as_op.claim, call, &err);
    code = code == TUTTI_OK ? agent_walk_take(walk, request, &err) : code;
    if (code == TUTTI_OK && request->async) {
        code = answer_async(walk, call, answer, &err);
    }
    if (walk->work == NULL) {
        walk->call = call;
        walk->answer = answer;
        tutti_rpc_call_ref(call);
        tutti_rpc_call_set_user(call, walk);
        tutti_rpc_call_on_cancel(call, on_cancel);
        tutti_rpc_call_on_end(call, on_call_end);
    }
    if (code != TUTTI_OK) { /* the others are in theirs, and hear of it */
        agent_walk_fail(walk, &err, NULL);
    }
    code = agent_walk_open_lines(walk, &err);
    if (code == TUTTI_OK) {
        code = agent_walk_await(walk, &err);
    }
    if (code != TUTTI_OK) {
        agent_walk_fail(walk, &err, NULL);
    }
    agent_walk_post(walk);
}
