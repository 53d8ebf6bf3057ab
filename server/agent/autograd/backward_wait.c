/* Whom a Backward waits for before it begins. */
#include <assert.h>
#include <stdlib.h>

#include "base/fail.h"
#include "server/agent/autograd/backward_private.h"

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
