/* Counters of ops, calls and commands that have ended; for each op a line of the log. Control loop. */
#include "server/agent/record/metrics.h"

#include <inttypes.h>

#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/state/counters.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"

static size_t
kind_of_metrics(const agent_op *op)
{
    const size_t kind = (size_t)op->op.args.kind;

    return kind < AGENT_KINDS ? kind : 0;
}

/* The bytes that this rank gave, from the specs; the tensors may be other sizes on other ranks. */
static uint64_t
get_metrics_bytes(const agent_op *op)
{
    const tutti_coll_args *args = &op->op.args;
    uint64_t bytes = 0;
    uint32_t i;

    if (op->list == NULL || op->list->in == NULL) {
        return args->has_spec ? tutti_spec_bytes(&args->spec) : 0;
    }
    for (i = 0; i < op->list->in_count; i++) {
        bytes += tutti_spec_bytes(&op->list->in[i].spec);
    }
    return bytes;
}

/* One line per op: a person can look for one op in the logs of all agents, by group and number. */
static void
log_op(const agent_op *op)
{
    const char *result = tutti_code_name(op->failed ? op->err.code : TUTTI_OK);

    TUTTI_LOG("agent/op", DEBUG, "group %s op %" PRIu64 " %s: %s in %" PRIu64 " us%s%s",
              op->group == NULL ? "?" : op->group->name, op->sequence,
              tutti_coll_kind_name(op->op.args.kind), result,
              (uint64_t)((op->ended_ns - op->enqueued_ns) / TUTTI_NS_PER_US),
              op->trace[0] == '\0' ? "" : ", trace ", op->trace);
}

static size_t
place_of_code(tutti_code code)
{
    return (size_t)code < AGENT_CODES ? (size_t)code : (size_t)TUTTI_UNKNOWN;
}

void
agent_note_call(tutti_agent *agent, tutti_code code, uint64_t duration_ns)
{
    tutti_count(&agent->numbers.function_calls[place_of_code(code)], 1);
    tutti_meter_add(&agent->numbers.function_durations, duration_ns);
}

void
agent_note_command(tutti_agent *agent, tutti_code code)
{
    tutti_count(&agent->numbers.commands[place_of_code(code)], 1);
}

void
agent_note_op(agent_op *op)
{
    agent_numbers *numbers = &op->agent->numbers;
    const size_t kind = kind_of_metrics(op);

    tutti_count(&numbers->ops[kind][place_of_code(op->failed ? op->err.code : TUTTI_OK)], 1);
    tutti_meter_add(&numbers->op_durations[kind], op->ended_ns - op->enqueued_ns);
    if (!op->failed) {
        tutti_count(&numbers->op_bytes[kind], get_metrics_bytes(op));
    }
    log_op(op);
}
