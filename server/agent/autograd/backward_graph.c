/*
 * Records as parts of a Backward: which node may begin when. Control loop.
 *
 * Two rules make the order (docs/decisions/0011). A node waits for all nodes that read its result,
 * since its gradient is their sum. And a node waits for the next later node on the same channel: of
 * one group, or of one peer, tag and direction; the other ranks' gradient ops meet it in that
 * order. A list walked backwards would be simpler and can wait for ever: ranks may have called ops
 * of two groups in different orders. Both rules follow the order in which ops were complete in the
 * forward pass, which did not wait in a circle, so neither does this.
 *
 * `blockers` counts what a node waits for; at 0 it goes into backward->ready.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/autograd/backward_private.h"
#include "server/agent/autograd/tape.h"

static bool
is_message(const tutti_tape_record *record)
{
    return record->args.kind == TUTTI_COLL_SEND || record->args.kind == TUTTI_COLL_RECV;
}

/*
 * Ops that came after the Backward are not its own, also when they are on the tape by now. A
 * pending record is one of those: the pass has waited for all earlier ones.
 */
static bool
takes_part(const agent_backward_pass *backward, const tutti_tape_record *record)
{
    return !record->pending && record->number < backward->as_op.number;
}

/*
 * Key of the channel: the queue's address, and for messages kind, peer and tag. The last word, 1,
 * keeps a message's key apart from its group's key, which is zero there.
 */
static void
make_channel(grad_node *node)
{
    const tutti_coll_args *args = &node->record->args;
    const uint64_t queue = (uint64_t)(uintptr_t)node->queue;
    const uint32_t words[4] = {args->kind, args->peer, args->tag, 1};

    memset(node->channel, 0, sizeof(node->channel));
    memcpy(node->channel, &queue, sizeof(queue));
    if (is_message(node->record)) {
        memcpy(node->channel + sizeof(queue), words, sizeof(words));
    }
    node->by_channel.key = (tutti_bytes){node->channel, sizeof(node->channel)};
}

/*
 * Records are walked from the last to the first, so the node found is the next later one. The map
 * always has the earliest node so far of each channel.
 */
static void
join_queue(tutti_map *channels, grad_node *node)
{
    tutti_map_node *found;

    if (node->queue == NULL) {
        return;
    }
    make_channel(node);
    found = tutti_map_find(channels, node->by_channel.key);
    if (found != NULL) {
        grad_node *later = tutti_container_of(found, grad_node, by_channel);

        later->next = node;
        node->blockers++;
        tutti_map_remove(channels, found);
    }
    (void)tutti_map_add(channels, &node->by_channel);
    if (is_message(node->record)) {
        node->queue->messages++;
    } else {
        node->queue->left++;
    }
}

static tutti_code
make_node(agent_backward_pass *backward, tutti_tape_record *record, tutti_map *channels,
          tutti_error *err)
{
    grad_node *node = &backward->nodes[backward->node_count++];

    tutti_list_init(&node->ready);
    node->backward = backward;
    node->record = record;
    record->node = node;
    backward->nodes_left++;
    if (!record->local) {
        node->queue = agent_backward_find_queue(backward, record->group, !is_message(record), err);
        if (node->queue == NULL) {
            return err->code;
        }
    }
    join_queue(channels, node);
    return TUTTI_OK;
}

/* NULL: what the node reads is a leaf, or its maker was cleared or takes no part in this pass. */
static grad_node *
maker_of(const grad_node *node)
{
    const tutti_tape_var *in = node->record->in;

    return in == NULL || in->maker == NULL ? NULL : in->maker->node;
}

static void
add_ready(grad_node *node)
{
    if (node->blockers == 0) {
        tutti_list_add(&node->backward->ready, &node->ready);
    }
}

/* A second walk: a node becomes ready only when all of its blockers are counted. */
static void
block_makers(agent_backward_pass *backward)
{
    size_t i;

    for (i = 0; i < backward->node_count; i++) {
        grad_node *maker = maker_of(&backward->nodes[i]);

        if (maker != NULL) {
            maker->blockers++;
        }
    }
    for (i = 0; i < backward->node_count; i++) {
        add_ready(&backward->nodes[i]);
    }
}

/*
 * One array, which does not move: records, queues and ops point to its elements. A tape that has
 * lost an op (a receiver's, which could not be refused any more) would give wrong gradients, so it
 * is refused.
 */
tutti_code
agent_backward_make_nodes(agent_backward_pass *backward, tutti_error *err)
{
    tutti_list_node *records = &backward->tape->records;
    tutti_code code = TUTTI_OK;
    tutti_map channels;
    tutti_list_node *link;

    if (backward->tape->lossy) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "TAPE_LIMIT",
                              "tracer %s has lost ops that found no room on it: raise the limit "
                              "(--tape-max), or clear the tracer and record the ops again",
                              backward->tape->name);
    }
    backward->nodes = calloc(backward->tape->record_count + 1, sizeof(backward->nodes[0]));
    if (backward->nodes == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a Backward");
    }
    tutti_map_init(&channels);
    for (link = records->before; link != records && code == TUTTI_OK; link = link->before) {
        tutti_tape_record *record = tutti_container_of(link, tutti_tape_record, link);

        if (takes_part(backward, record)) {
            code = make_node(backward, record, &channels, err);
        }
    }
    block_makers(backward);
    return code;
}

void
agent_backward_free_nodes(agent_backward_pass *backward)
{
    size_t i;

    for (i = 0; i < backward->node_count; i++) {
        assert(backward->nodes[i].op == NULL);
    }
    free(backward->nodes);
    backward->nodes = NULL;
    backward->node_count = 0;
}

/* ------------------------------------------------------------------------------ going on */

static void
unblock_node(grad_node *node)
{
    if (node != NULL) {
        assert(node->blockers > 0);
        node->blockers--;
        add_ready(node);
    }
}

/* Also for a node without gradient: what waits for it must go on all the same. */
void
agent_backward_node_over(grad_node *node)
{
    grad_queue *queue = node->queue;

    node->backward->nodes_left--;
    if (queue != NULL && is_message(node->record)) {
        queue->messages--;
    } else if (queue != NULL) {
        queue->left--;
    }
    unblock_node(node->next);
    unblock_node(maker_of(node));
    agent_backward_post(node->backward);
}

/*
 * Nodes whose place in their group is not reached yet stay in the list. A node that starts may be
 * over at once and make others ready; those were added to the end of the list, which this loop
 * reaches too or the posted task looks at.
 */
void
agent_backward_advance(agent_backward_pass *backward)
{
    tutti_list_node *link;
    tutti_list_node *spare;
    tutti_error err;

    tutti_list_each(link, spare, &backward->ready)
    {
        grad_node *node = tutti_container_of(link, grad_node, ready);

        if (node->queue != NULL && !node->queue->reached) {
            continue;
        }
        tutti_list_remove(&node->ready);
        if (agent_backward_node_start(node, &err) != TUTTI_OK) {
            agent_backward_fail(backward, &err, NULL);
        }
        if (backward->failed) {
            return;
        }
    }
    agent_backward_release_idle_slots(backward);
}
