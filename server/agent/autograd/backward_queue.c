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
agent_walk_op(agent_walk *walk, agent_group *group, void (*on_end)(agent_op *op), void *owner)
{
    agent_op *op = calloc(1, sizeof(*op));

    if (op == NULL) {
        return NULL;
    }
    op->agent = walk->agent;
    op->group = group;
    op->on_end = on_end;
    op->owner = owner;
    op->async = true; /* no call waits for it */
    op->ready = true;
    op->came_ns = tutti_clock_ns();
    op->deadline_ns = walk->deadline_ns;
    tutti_list_init(&op->link);
    tutti_list_init(&op->live);
    walk->agent->ops_live++;
    return op;
}

static void
on_hold_end(agent_op *hold)
{
    walk_line *line = hold->owner;
    agent_walk *walk = line->walk;

    agent_group_unhold(hold);
    line->hold = NULL;
    if (hold->failed && !walk->failed) { /* the group is gone, or has begun a new epoch */
        agent_walk_fail(walk, &hold->err, line);
    }
    if (line->flying == 0 || walk->failed) {
        agent_walk_post(walk);
    }
}

static walk_line *
find_line(const agent_walk *walk, const char *group)
{
    const tutti_link *link;

    for (link = walk->lines.next; link != &walk->lines; link = link->next) {
        walk_line *line = tutti_container_of(link, walk_line, link);

        if (strcmp(line->name, group) == 0) {
            return line;
        }
    }
    return NULL;
}

static walk_line *
open_line(agent_walk *walk, const char *name, tutti_error *err)
{
    agent_group *group = agent_group_of(walk->agent, name, err);
    walk_line *line = group == NULL ? NULL : calloc(1, sizeof(*line));

    if (line != NULL) {
        line->hold = agent_walk_op(walk, group, on_hold_end, line);
    }
    if (line == NULL || line->hold == NULL) {
        free(line);
        (void)TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to wait in group %s", name);
        return NULL;
    }
    line->walk = walk;
    line->group = group;
    (void)snprintf(line->name, sizeof(line->name), "%s", name);
    tutti_list_init(&line->link);
    tutti_list_add(&walk->lines, &line->link);
    line->hold->op.args.kind = TUTTI_COLL_BARRIER; /* should it have to be refused */
    agent_group_hold(line->hold);
    return line;
}

walk_line *
agent_walk_line_of(agent_walk *walk, const char *group, bool shared, tutti_error *err)
{
    walk_line *line = find_line(walk, group);

    if (line == NULL) {
        line = open_line(walk, group, err);
    }
    if (line != NULL) {
        line->shared = line->shared || shared;
    }
    return line;
}

tutti_code
agent_walk_open_lines(agent_walk *walk, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    tutti_link *link;

    for (link = walk->tape->records.next; link != &walk->tape->records && code == TUTTI_OK;
         link = link->next) {
        const tutti_tape_record *record = tutti_container_of(link, tutti_tape_record, link);
        const bool p2p =
            record->args.kind == TUTTI_COLL_SEND || record->args.kind == TUTTI_COLL_RECV;

        if (!record->local && agent_walk_line_of(walk, record->group, !p2p, err) == NULL) {
            code = err->code;
        }
    }
    return code;
}

/* ------------------------------------------------------------------------------ the end */

void
agent_walk_reached(agent_op *hold)
{
    walk_line *line = hold->owner;

    if (!line->reached) {
        line->reached = true;
        agent_walk_post(line->walk);
    }
}

void
agent_walk_let_go(walk_line *line)
{
    agent_group *group = line->group;
    agent_op *hold = line->hold;

    if (hold != NULL) {
        tutti_list_remove(&hold->link);
        agent_op_finish(hold);
        agent_group_pump(group);
    }
}

void
agent_walk_tidy(agent_walk *walk)
{
    tutti_link *link;
    tutti_link *spare;

    tutti_list_each(link, spare, &walk->lines)
    {
        walk_line *line = tutti_container_of(link, walk_line, link);

        if (line->left == 0 && line->flying == 0 && (line->reached || line->messages == 0)) {
            agent_walk_let_go(line);
        }
        if (line->hold == NULL && line->left == 0 && line->messages == 0) {
            tutti_list_remove(&line->link);
            free(line);
        }
    }
}

/* Ranks whose time was up at the same moment may have come to different ops of it. */
static void
doubt_line(const walk_line *line)
{
    if (line->group->coll != NULL && line->walk->started && line->walk->agent->engine != NULL) {
        tutti_coll_group_doubt(line->group->coll);
    }
}

/* The hold becomes an op that is refused when its turn comes: so the others hear why. */
static void
refuse_line(walk_line *line)
{
    agent_op *hold = line->hold;

    if (!hold->failed) {
        hold->failed = true;
        hold->err = line->walk->err;
        agent_group_pump(line->group);
    }
}

void
agent_walk_unwind(agent_walk *walk)
{
    tutti_link *link;
    tutti_link *spare;

    tutti_list_each(link, spare, &walk->lines)
    {
        walk_line *line = tutti_container_of(link, walk_line, link);
        const bool others = walk->started && walk->nodes != NULL ? line->left > 0 : line->shared;

        if (line->hold != NULL && line->flying == 0) {
            doubt_line(line);
            if (others && !line->told && walk->agent->engine != NULL) {
                refuse_line(line);
            } else {
                agent_walk_let_go(line);
            }
        }
        if (line->hold == NULL && line->flying == 0) {
            tutti_list_remove(&line->link);
            free(line);
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
matters(const agent_op *op, const tutti_tape *tape, const numbers *made)
{
    uint64_t number;

    if (is_recorded(op, tape)) {
        return true;
    }
    if (op->op.on_spec != NULL && atomic_load(&op->told)) {
        return true;
    }
    if (op->in == NULL || op->no_grad || op->posted) {
        return false;
    }
    number = tutti_table_number(op->in);
    return tutti_tape_var_of(tape, number) != NULL || has_number(made, number);
}

static tutti_code
await(agent_walk *walk, agent_op *op, tutti_error *err)
{
    const bool local = op->op.args.kind == TUTTI_COLL_BARRIER || op->local_grad ||
                       op->group == NULL; /* what becomes of it is told without a group */
    walk_wait *wait = malloc(sizeof(*wait));

    if (wait == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a Backward");
    }
    wait->walk = walk;
    wait->next = op->waits;
    op->waits = wait;
    walk->ops_waiting++;
    if (!local && agent_walk_line_of(walk, op->group->name, !agent_op_is_p2p(op), err) == NULL) {
        return err->code;
    }
    return TUTTI_OK;
}

tutti_code
agent_walk_await(agent_walk *walk, tutti_error *err)
{
    const tutti_link *ops = &walk->agent->ops;
    numbers made = {.items = calloc(walk->agent->ops_live + 1, sizeof(uint64_t))};
    tutti_code code = TUTTI_OK;
    const tutti_link *link;

    if (made.items == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a Backward");
    }
    for (link = ops->next; link != ops && code == TUTTI_OK; link = link->next) {
        agent_op *op = tutti_container_of(link, agent_op, live);

        if (matters(op, walk->tape, &made)) {
            if (op->out != NULL) {
                made.items[made.count++] = tutti_table_number(op->out);
            }
            code = await(walk, op, err);
        }
    }
    free(made.items);
    return code;
}

void
agent_walks_op_ended(agent_op *op)
{
    walk_wait *wait;

    while ((wait = op->waits) != NULL) {
        op->waits = wait->next;
        assert(wait->walk->ops_waiting > 0);
        wait->walk->ops_waiting--;
        agent_walk_post(wait->walk);
        free(wait);
    }
}

bool
agent_walk_must_wait(const agent_walk *walk)
{
    const tutti_link *link;

    for (link = walk->agent->walks.next; link != &walk->link; link = link->next) {
        if (tutti_container_of(link, agent_walk, link)->tape == walk->tape) {
            return true;
        }
    }
    return walk->ops_waiting > 0 || walk->claims_waiting > 0;
}
