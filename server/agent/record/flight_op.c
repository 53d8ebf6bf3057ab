/*
 * What an op writes into the flight recorder, at five moments. Control loop, but for
 * agent_op_record_ended, which runs on the thread that runs the engine before the caller is told: a
 * caller that hears of a failure and asks for the record must find it there.
 */
#include <stdio.h>
#include <string.h>

#include "base/os/clock.h"
#include "server/agent/record/flight.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

void
agent_op_record_enqueued(agent_op *op)
{
    agent_group *group = op->group;
    agent_flight_entry *entry = agent_flight_begin(op->agent->flight);

    op->record_id = entry->record_id;
    op->recorded = true;
    entry->kind = op->op.args.kind;
    entry->op_number = ++group->op_count;
    entry->p2p_number = agent_op_is_p2p(op) ? ++group->p2p_count : 0;
    entry->sequence = op->sequence;
    entry->created_ns = op->enqueued_ns;
    entry->timeout_ms = op->deadline_ns > op->enqueued_ns
                            ? (op->deadline_ns - op->enqueued_ns) / TUTTI_NS_PER_MS
                            : 0;
    entry->peer = op->op.args.peer;
    memcpy(entry->group, group->name, strlen(group->name) + 1);
    memcpy(entry->trace, op->trace, sizeof(entry->trace));
    agent_flight_unlock(op->agent->flight);
}

/*
 * Before the post, as the op may end inside of it, and its end must not be overwritten by its
 * start.
 */
void
agent_op_record_started(agent_op *op)
{
    const tutti_coll_args *args = &op->op.args;
    const uint64_t now_ns = tutti_clock_ns();
    agent_flight_entry *entry;

    if (!op->recorded) { /* of a Backward: it never stood in line */
        agent_op_record_enqueued(op);
    }
    entry = agent_flight_change(op->agent->flight, op->record_id);
    if (entry == NULL) {
        return;
    }
    entry->state = AGENT_FLIGHT_STARTED;
    entry->started_ns = now_ns;
    entry->group_id = tutti_coll_group_id(op->group->coll);
    entry->epoch = op->group->epoch;
    entry->group_rank = tutti_coll_group_rank(op->group->coll);
    entry->peer = args->peer; /* a group rank by now */
    if (args->has_spec && args->kind != TUTTI_COLL_RECV) {
        entry->input = args->spec;
        entry->input_count = args->list_count > 0 ? args->list_count : 1;
    }
    agent_flight_unlock(op->agent->flight);
}

/*
 * The engine has numbered the op. It is the number that this agent expected, except where a
 * Backward stood in line. Behind the post; the op may have ended, but is not freed (its `ended`
 * task comes later).
 */
void
agent_op_record_posted(agent_op *op)
{
    agent_flight_entry *entry;

    if (agent_op_is_p2p(op)) {
        return;
    }
    op->group->entered = op->op.sequence;
    if (op->sequence == op->op.sequence) {
        return;
    }
    op->sequence = op->op.sequence;
    entry = agent_flight_change(op->agent->flight, op->record_id);
    if (entry != NULL) {
        entry->sequence = op->sequence;
        agent_flight_unlock(op->agent->flight);
    }
}

/* How many tensors the op made, and the spec of the first of them. */
static uint32_t
find_output(const agent_op *op, tutti_spec *ret_spec)
{
    const tutti_tensor *tensor = op->inline_out;

    if (op->failed) {
        return 0;
    }
    if (op->output_count > 0 && op->outputs != NULL) {
        *ret_spec = op->outputs[0].spec;
        return op->output_count;
    }
    if (op->out != NULL && !op->no_result) {
        tensor = tutti_table_tensor(op->agent->table, op->out);
    }
    if (tensor != NULL) {
        *ret_spec = tensor->spec;
    }
    return tensor == NULL ? 0 : 1;
}

void
agent_op_record_ended(agent_op *op)
{
    tutti_spec output;
    const uint32_t output_count = find_output(op, &output);
    agent_flight_entry *entry;

    if (!op->recorded) {
        agent_op_record_enqueued(op);
    }
    entry = agent_flight_change(op->agent->flight, op->record_id);
    if (entry == NULL) {
        return;
    }
    entry->completed_ns = op->ended_ns;
    entry->output_count = output_count;
    if (output_count > 0) {
        entry->output = output;
    }
    if (op->op.args.kind == TUTTI_COLL_RECV && !op->failed) {
        entry->peer = op->op.source;
    }
    entry->state = op->failed ? AGENT_FLIGHT_FAILED : AGENT_FLIGHT_COMPLETED;
    if (op->failed) {
        entry->code = op->err.code;
        memcpy(entry->reason, op->err.reason, sizeof(entry->reason));
        (void)snprintf(entry->error, sizeof(entry->error), "%.199s", op->err.text);
    }
    agent_flight_unlock(op->agent->flight);
}

void
agent_op_record_retired(const agent_op *op)
{
    agent_flight_entry *entry =
        op->recorded ? agent_flight_change(op->agent->flight, op->record_id) : NULL;

    if (entry != NULL) {
        entry->retired = true;
        agent_flight_unlock(op->agent->flight);
    }
}
