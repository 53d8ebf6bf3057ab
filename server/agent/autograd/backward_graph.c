/* Records as parts of a Backward: what comes after what. */
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

static bool
takes_part(const agent_backward_pass *backward, const tutti_tape_record *record)
{
    return !record->pending && record->number < backward->as_op.number;
}

/* Duals that meet others in their order: of one group, or one peer, tag and direction. */
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

/* The node goes behind the one of its line that was the last so far. */
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

/* The node whose result a node reads, on this backward pass. */
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

tutti_code
agent_backward_make_nodes(agent_backward_pass *backward, tutti_error *err)
{
    tutti_list_node *records = &backward->tape->records;
    tutti_code code = TUTTI_OK;
    tutti_map channels;
    tutti_list_node *link;

    if (backward->tape->lossy) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "TAPE_LIMIT",
                              "tracer %s has lost ops that found no room on it (--tape-max): clear "
                              "it and begin again",
                              backward->tape->name);
    }
    backward->nodes = calloc(backward->tape->record_count + 1, sizeof(backward->nodes[0]));
    if (backward->nodes == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a Backward");
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

/* Start what may start; what waits for its turn in a group stays. */
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
