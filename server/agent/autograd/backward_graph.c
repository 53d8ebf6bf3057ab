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
takes_part(const agent_walk *walk, const tutti_tape_record *record)
{
    return !record->pending && record->number < walk->as_op.number;
}

/* Duals that meet others in their order: of one group, or one peer, tag and direction. */
static void
make_channel(walk_node *node)
{
    const tutti_coll_args *args = &node->record->args;
    const uint64_t line = (uint64_t)(uintptr_t)node->line;
    const uint32_t words[4] = {args->kind, args->peer, args->tag, 1};

    memset(node->channel, 0, sizeof(node->channel));
    memcpy(node->channel, &line, sizeof(line));
    if (is_message(node->record)) {
        memcpy(node->channel + sizeof(line), words, sizeof(words));
    }
    node->by_channel.key = (tutti_bytes){node->channel, sizeof(node->channel)};
}

/* The node goes behind the one of its line that was the last so far. */
static void
join_line(tutti_map *channels, walk_node *node)
{
    tutti_map_node *found;

    if (node->line == NULL) {
        return;
    }
    make_channel(node);
    found = tutti_map_find(channels, node->by_channel.key);
    if (found != NULL) {
        walk_node *later = tutti_container_of(found, walk_node, by_channel);

        later->next = node;
        node->blockers++;
        tutti_map_remove(channels, found);
    }
    (void)tutti_map_add(channels, &node->by_channel);
    if (is_message(node->record)) {
        node->line->messages++;
    } else {
        node->line->left++;
    }
}

static tutti_code
make_node(agent_walk *walk, tutti_tape_record *record, tutti_map *channels, tutti_error *err)
{
    walk_node *node = &walk->nodes[walk->node_count++];

    tutti_list_init(&node->ready);
    node->walk = walk;
    node->record = record;
    record->node = node;
    walk->nodes_left++;
    if (!record->local) {
        node->line = agent_walk_line_of(walk, record->group, !is_message(record), err);
        if (node->line == NULL) {
            return err->code;
        }
    }
    join_line(channels, node);
    return TUTTI_OK;
}

/* The node whose result a node reads, on this walk. */
static walk_node *
maker_of(const walk_node *node)
{
    const tutti_tape_var *in = node->record->in;

    return in == NULL || in->maker == NULL ? NULL : in->maker->node;
}

static void
add_ready(walk_node *node)
{
    if (node->blockers == 0) {
        tutti_list_add(&node->walk->ready, &node->ready);
    }
}

static void
block_makers(agent_walk *walk)
{
    size_t i;

    for (i = 0; i < walk->node_count; i++) {
        walk_node *maker = maker_of(&walk->nodes[i]);

        if (maker != NULL) {
            maker->blockers++;
        }
    }
    for (i = 0; i < walk->node_count; i++) {
        add_ready(&walk->nodes[i]);
    }
}

tutti_code
agent_walk_make_nodes(agent_walk *walk, tutti_error *err)
{
    tutti_link *records = &walk->tape->records;
    tutti_code code = TUTTI_OK;
    tutti_map channels;
    tutti_link *link;

    if (walk->tape->lossy) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "TAPE_LIMIT",
                              "tracer %s has lost ops that found no room on it (--tape-max): clear "
                              "it and begin again",
                              walk->tape->name);
    }
    walk->nodes = calloc(walk->tape->record_count + 1, sizeof(walk->nodes[0]));
    if (walk->nodes == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a Backward");
    }
    tutti_map_init(&channels);
    for (link = records->before; link != records && code == TUTTI_OK; link = link->before) {
        tutti_tape_record *record = tutti_container_of(link, tutti_tape_record, link);

        if (takes_part(walk, record)) {
            code = make_node(walk, record, &channels, err);
        }
    }
    block_makers(walk);
    return code;
}

void
agent_walk_free_nodes(agent_walk *walk)
{
    size_t i;

    for (i = 0; i < walk->node_count; i++) {
        assert(walk->nodes[i].op == NULL);
    }
    free(walk->nodes);
    walk->nodes = NULL;
    walk->node_count = 0;
}

/* ------------------------------------------------------------------------------ going on */

static void
unblock(walk_node *node)
{
    if (node != NULL) {
        assert(node->blockers > 0);
        node->blockers--;
        add_ready(node);
    }
}

void
agent_walk_node_over(walk_node *node)
{
    walk_line *line = node->line;

    node->walk->nodes_left--;
    if (line != NULL && is_message(node->record)) {
        line->messages--;
    } else if (line != NULL) {
        line->left--;
    }
    unblock(node->next);
    unblock(maker_of(node));
    agent_walk_post(node->walk);
}

/* Start what may start; what waits for its turn in a group stays. */
void
agent_walk_go_on(agent_walk *walk)
{
    tutti_link *link;
    tutti_link *spare;
    tutti_error err;

    tutti_list_each(link, spare, &walk->ready)
    {
        walk_node *node = tutti_container_of(link, walk_node, ready);

        if (node->line != NULL && !node->line->reached) {
            continue;
        }
        tutti_list_remove(&node->ready);
        if (agent_walk_node_start(node, &err) != TUTTI_OK) {
            agent_walk_fail(walk, &err, NULL);
        }
        if (walk->failed) {
            return;
        }
    }
    agent_walk_tidy(walk);
}
