/*
 * Deadlines of ops in line. The engine watches only ops that were posted to it. An op that still
 * waits here for a tensor, for its group or for an op before it has a timer of this file. When the
 * timer expires, the caller is told, and the op keeps its place with the error: the other ranks may
 * have counted it, and they are told when its turn comes (refuse_posted in post.c). Control loop.
 */
#include "server/agent/op/deadline.h"

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/op/group.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"

/*
 * The engine's own deadline error is better: it names the rank that did not call the op. When an op
 * goes to the engine just before its deadline, these 5 ms let the engine speak first.
 */
#define LATER_NS (5 * TUTTI_NS_PER_MS)

/*
 * The client may leave an async call at once, so that call's gRPC deadline says nothing about how
 * long the op may take.
 */
void
agent_op_limit(agent_op *op)
{
    const uint64_t of_group = op->group == NULL ? 0 : op->group->timeout_ns;
    const uint64_t of_call =
        op->options.async ? TUTTI_TIMERS_NEVER : tutti_rpc_call_deadline(op->call);

    op->deadline_ns =
        tutti_clock_deadline(op->enqueued_ns, op->options.timeout_ms, of_call,
                             of_group != 0 ? of_group : op->agent->options->op_timeout_ns);
}

/* The ops of a Backward have its limit. */
void
agent_group_limit(agent_group *group)
{
    tutti_list_node *link;

    for (link = group->queue.next; link != &group->queue; link = link->next) {
        agent_op *op = tutti_container_of(link, agent_op, link);

        if (op->on_end == NULL && !op->failed && op->overdue.running) {
            agent_op_unwatch(op);
            agent_op_limit(op);
            agent_op_watch(op);
        }
    }
}

static const char *
why_waiting(const agent_op *op)
{
    if (op->group->coll == NULL) {
        return "the coordinator has not said yet who is in the group";
    }
    if (!op->ready) {
        return "its tensors are in use by an earlier op or transfer";
    }
    return "an earlier op of the group has not begun yet";
}

/*
 * The op fails in its place, and a sync caller is told now instead of at the op's turn. `answered`
 * keeps agent_op_end_early from answering a second time. An op of a Backward has no caller, and the
 * error of an async op that was answered is told by Wait.
 */
static void
fail_in_line(agent_op *op, const tutti_error *err)
{
    op->err = *err;
    tutti_error_set_op(&op->err, op->group->name, op->sequence, (int32_t)op->agent->rank);
    op->failed = true;
    if (op->on_end == NULL && op->call != NULL) {
        op->answered = true;
        tutti_rpc_call_fail(op->call, &op->err);
    }
}

static void
on_late(tutti_timer *timer)
{
    agent_op *op = tutti_container_of(timer, agent_op, overdue);
    tutti_error err;

    if (op->state == AGENT_OP_POSTED || op->failed) {
        return;
    }
    (void)TUTTI_FAIL_FOR(&err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                         "group %s: %s timed out on rank %u before it could begin: %s",
                         op->group->name, tutti_coll_kind_name(op->op.args.kind),
                         (unsigned)op->agent->rank, why_waiting(op));
    fail_in_line(op, &err);
    /*
     * A failed op does not wait for the back-off, so it may be able to go now. Last: it may free
     * both.
     */
    agent_group_dispatch(op->group);
}

void
agent_op_watch(agent_op *op)
{
    op->overdue.on_expiry = on_late;
    tutti_rpc_loop_timer_start(op->agent->control, &op->overdue,
                               tutti_clock_add(op->deadline_ns, LATER_NS));
}

void
agent_op_unwatch(agent_op *op)
{
    if (op->overdue.running) {
        tutti_rpc_loop_timer_stop(op->agent->control, &op->overdue);
    }
}

/*
 * The agent cannot go on with anything (it is cut off from the coordinator). Posted ops are failed
 * in the engine, on all ranks. The dispatch may free a group, so the next node is read before it.
 */
void
agent_ops_give_up(tutti_agent *agent, const tutti_error *err)
{
    tutti_map_node *node;
    tutti_map_node *next;
    tutti_list_node *link;

    for (link = agent->ops.next; link != &agent->ops; link = link->next) {
        agent_op *op = tutti_container_of(link, agent_op, live);

        if (op->state == AGENT_OP_POSTED) {
            tutti_coll_cancel(agent->engine, op->op.id, err);
        } else if (!op->failed && op->group != NULL) { /* no Backward */
            fail_in_line(op, err);
        }
    }
    for (node = tutti_map_first(&agent->groups); node != NULL; node = next) {
        next = tutti_map_next(node);
        agent_group_dispatch(tutti_container_of(node, agent_group, by_name));
    }
}
