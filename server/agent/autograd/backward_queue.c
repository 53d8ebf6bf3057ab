/* The places of a Backward in the queues of its groups, and whom it waits for. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/autograd/backward.h"
#include "server/agent/autograd/backward_private.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/op/group.h"
#include "server/agent/op/op.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

/* ------------------------------------------------------------------------------ opening */

agent_op *
agent_backward_op(agent_backward_pass *backward, agent_group *group, void (*on_end)(agent_op *op),
                  void *owner)
{
    agent_op *op = calloc(1, sizeof(*op));

    if (op == NULL) {
        return NULL;
    }
    op->agent = backward->agent;
    op->group = group;
    op->on_end = on_end;
    op->owner = owner;
    op->options.async = true; /* no call waits for it */
    op->ready = true;
    op->enqueued_ns = tutti_clock_ns();
    op->deadline_ns = backward->deadline_ns;
    tutti_list_init(&op->link);
    tutti_list_init(&op->live);
    backward->agent->ops_live++;
    return op;
}

static void
on_slot_end(agent_op *slot)
{
    grad_queue *queue = slot->owner;
    agent_backward_pass *backward = queue->backward;

    agent_group_unhold(slot);
    queue->slot = NULL;
    if (slot->failed && !backward->failed) { /* the group is gone, or has begun a new epoch */
        agent_backward_fail(backward, &slot->err, queue);
    }
    if (queue->flying == 0 || backward->failed) {
        agent_backward_post(backward);
    }
}

static grad_queue *
find_queue(const agent_backward_pass *backward, const char *group)
{
    const tutti_list_node *link;

    for (link = backward->queues.next; link != &backward->queues; link = link->next) {
        grad_queue *queue = tutti_container_of(link, grad_queue, link);

        if (strcmp(queue->name, group) == 0) {
            return queue;
        }
    }
    return NULL;
}

static grad_queue *
open_queue(agent_backward_pass *backward, const char *name, tutti_error *err)
{
    agent_group *group = agent_group_of(backward->agent, name, err);
    grad_queue *queue = group == NULL ? NULL : calloc(1, sizeof(*queue));

    if (queue != NULL) {
        queue->slot = agent_backward_op(backward, group, on_slot_end, queue);
    }
    if (queue == NULL || queue->slot == NULL) {
        free(queue);
        (void)TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to wait in group %s", name);
        return NULL;
    }
    queue->backward = backward;
    queue->group = group;
    (void)snprintf(queue->name, sizeof(queue->name), "%s", name);
    tutti_list_init(&queue->link);
    tutti_list_add(&backward->queues, &queue->link);
    queue->slot->op.args.kind = TUTTI_COLL_BARRIER; /* should it have to be refused */
    agent_group_add_slot(queue->slot);
    return queue;
}

grad_queue *
agent_backward_find_queue(agent_backward_pass *backward, const char *group, bool shared,
                          tutti_error *err)
{
    grad_queue *queue = find_queue(backward, group);

    if (queue == NULL) {
        queue = open_queue(backward, group, err);
    }
    if (queue != NULL) {
        queue->shared = queue->shared || shared;
    }
    return queue;
}

tutti_code
agent_backward_open_queues(agent_backward_pass *backward, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    tutti_list_node *link;

    for (link = backward->tape->records.next; link != &backward->tape->records && code == TUTTI_OK;
         link = link->next) {
        const tutti_tape_record *record = tutti_container_of(link, tutti_tape_record, link);
        const bool p2p =
            record->args.kind == TUTTI_COLL_SEND || record->args.kind == TUTTI_COLL_RECV;

        if (!record->local &&
            agent_backward_find_queue(backward, record->group, !p2p, err) == NULL) {
            code = err->code;
        }
    }
    return code;
}

/* ------------------------------------------------------------------------------ the end */

void
agent_backward_on_slot_reached(agent_op *slot)
{
    grad_queue *queue = slot->owner;

    if (!queue->reached) {
        queue->reached = true;
        agent_backward_post(queue->backward);
    }
}

void
agent_backward_release_slot(grad_queue *queue)
{
    agent_group *group = queue->group;
    agent_op *slot = queue->slot;

    if (slot != NULL) {
        tutti_list_remove(&slot->link);
        agent_op_finish(slot);
        agent_group_dispatch(group);
    }
}

void
agent_backward_release_idle_slots(agent_backward_pass *backward)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &backward->queues)
    {
        grad_queue *queue = tutti_container_of(link, grad_queue, link);

        if (queue->left == 0 && queue->flying == 0 && (queue->reached || queue->messages == 0)) {
            agent_backward_release_slot(queue);
        }
        if (queue->slot == NULL && queue->left == 0 && queue->messages == 0) {
            tutti_list_remove(&queue->link);
            free(queue);
        }
    }
}

/* Ranks whose time was up at the same moment may have come to different ops of it. */
static void
resync_queue(const grad_queue *queue)
{
    if (queue->group->coll != NULL && queue->backward->started &&
        queue->backward->agent->engine != NULL) {
        tutti_coll_group_resync(queue->group->coll);
    }
}

/* The hold becomes an op that is refused when its turn comes: so the others hear why. */
static void
refuse_queue(grad_queue *queue)
{
    agent_op *slot = queue->slot;

    if (!slot->failed) {
        slot->failed = true;
        slot->err = queue->backward->err;
        agent_group_dispatch(queue->group);
    }
}

void
agent_backward_fail_queues(agent_backward_pass *backward)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &backward->queues)
    {
        grad_queue *queue = tutti_container_of(link, grad_queue, link);
        const bool others =
            backward->started && backward->nodes != NULL ? queue->left > 0 : queue->shared;

        if (queue->slot != NULL && queue->flying == 0) {
            resync_queue(queue);
            if (others && !queue->told && backward->agent->engine != NULL) {
                refuse_queue(queue);
            } else {
                agent_backward_release_slot(queue);
            }
        }
        if (queue->slot == NULL && queue->flying == 0) {
            tutti_list_remove(&queue->link);
            free(queue);
        }
    }
}

/* ------------------------------ ops that came before */

/* A set of tensors: what ops that matter will make. */
typedef struct numbers {
    uint64_t *items;
    size_t count;
} numbers;

static bool
has_number(const numbers *set, uint64_t number)
{
    size_t i;

    for (i = 0; i < set->count; i++) {
        if (set->items[i] == number) {
            return true;
        }
    }
    return false;
}

static bool
is_recorded(const agent_op *op, const tutti_tape *tape)
{
    const tutti_tape_record *record;
    uint32_t i;

    for (record = op->records; record != NULL; record = record->of_op) {
        if (record->tape == tape) {
            return true;
        }
    }
    for (i = 0; i < op->tape_count; i++) {
        if (op->tapes[i] == tape) {
            return true;
        }
    }
    return false;
}

/*
 * Is the op on the tape, or will it be? One that only receives counts from its end, which its
 * caller may know before us: or a receive for later would hold up what has to come before it.
 */
static bool
does_op_matter(const agent_op *op, const tutti_tape *tape, const numbers *made)
{
    uint64_t number;

    if (is_recorded(op, tape)) {
        return true;
    }
    if (op->op.on_spec != NULL && atomic_load(&op->told)) {
        return true;
    }
    if (op->in == NULL || op->options.no_grad || op->state == AGENT_OP_POSTED) {
        return false;
    }
    number = tutti_table_number(op->in);
    return tutti_tape_var_of(tape, number) != NULL || has_number(made, number);
}

static tutti_code
await_op(agent_backward_pass *backward, agent_op *op, tutti_error *err)
{
    const bool local = op->op.args.kind == TUTTI_COLL_BARRIER || op->options.local_grad ||
                       op->group == NULL; /* what becomes of it is told without a group */
    backward_wait *wait = malloc(sizeof(*wait));

    if (wait == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a Backward");
    }
    wait->backward = backward;
    wait->next = op->waits;
    op->waits = wait;
    backward->ops_waiting++;
    if (!local &&
        agent_backward_find_queue(backward, op->group->name, !agent_op_is_p2p(op), err) == NULL) {
        return err->code;
    }
    return TUTTI_OK;
}

tutti_code
agent_backward_find_earlier(agent_backward_pass *backward, tutti_error *err)
{
    const tutti_list_node *ops = &backward->agent->ops;
    numbers made = {.items = calloc(backward->agent->ops_live + 1, sizeof(uint64_t))};
    tutti_code code = TUTTI_OK;
    const tutti_list_node *link;

    if (made.items == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a Backward");
    }
    for (link = ops->next; link != ops && code == TUTTI_OK; link = link->next) {
        agent_op *op = tutti_container_of(link, agent_op, live);

        if (does_op_matter(op, backward->tape, &made)) {
            if (op->out != NULL) {
                made.items[made.count++] = tutti_table_number(op->out);
            }
            code = await_op(backward, op, err);
        }
    }
    free(made.items);
    return code;
}

void
agent_walks_op_ended(agent_op *op)
{
    backward_wait *wait;

    while ((wait = op->waits) != NULL) {
        op->waits = wait->next;
        assert(wait->backward->ops_waiting > 0);
        wait->backward->ops_waiting--;
        agent_backward_post(wait->backward);
        free(wait);
    }
}

bool
agent_backward_must_wait(const agent_backward_pass *backward)
{
    const tutti_list_node *link;

    for (link = backward->agent->backwards.next; link != &backward->link; link = link->next) {
        if (tutti_container_of(link, agent_backward_pass, link)->tape == backward->tape) {
            return true;
        }
    }
    return backward->ops_waiting > 0 || backward->lock_sets_waiting > 0;
}
