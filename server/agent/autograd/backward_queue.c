/* The places of a Backward in the queues of its groups, and whom it waits for. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "server/agent/autograd/backward_private.h"

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
