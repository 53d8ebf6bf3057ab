/*
 * Ops and tapes: which ops are recorded. An op is looked at when it is launched, since what its
 * input is on a tape is known when the ops before it have ended; it keeps the place that it came
 * at.
 */
#include "server/agent/autograd/recording.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/autograd/grad_op.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

static tutti_code
check_recording_names(const agent_op *op, const agent_request *request, tutti_error *err)
{
    if (request->tracer_count > AGENT_TRACERS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "TRACER_COUNT",
                              "%zu tracers for one op, at most %d", request->tracer_count,
                              AGENT_TRACERS_MAX);
    }
    if (request->tracer_count > 0 && (request->inline_input || op->out_inline)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "TRACED_INLINE",
                              "an inline tensor is on no tape: use handles, or name no tracers");
    }
    return TUTTI_OK;
}

tutti_code
agent_recording_take(agent_op *op, const agent_request *request, tutti_error *err)
{
    tutti_code code = check_recording_names(op, request, err);
    tutti_tape *tape = NULL;
    size_t i;

    if (code != TUTTI_OK || request->tracer_count == 0) {
        return code;
    }
    op->tapes = calloc(request->tracer_count, sizeof(op->tapes[0]));
    if (op->tapes == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for names of tracers");
    }
    for (i = 0; i < request->tracer_count && code == TUTTI_OK; i++) {
        code = tutti_tape_find(op->agent->tapes, request->tracers[i], &tape, err);
        if (code == TUTTI_OK) {
            tutti_tape_ref(tape);
            op->tapes[op->tape_count++] = tape;
        }
    }
    return code;
}

void
agent_recording_drop_names(agent_op *op)
{
    while (op->tape_count > 0) {
        tutti_tape_unref(op->tapes[--op->tape_count]);
    }
    free(op->tapes);
    op->tapes = NULL;
}

/* ------------------------------------------------------------------------------ beginning */

bool
agent_recording_is_on(const agent_op *op, const tutti_tape *tape, uint32_t part)
{
    const tutti_tape_record *record;

    for (record = op->records; record != NULL; record = record->of_op) {
        if (record->tape == tape && record->part == part) {
            return true;
        }
    }
    return false;
}

static tutti_code
add_record(agent_op *op, tutti_tape *tape, tutti_tape_entry *entry, tutti_error *err)
{
    tutti_tape_record *record = NULL;

    if (tape->deleted || agent_recording_is_on(op, tape, entry->part)) {
        return TUTTI_OK;
    }
    if (tutti_grad_op_masks(entry->args)) {
        TUTTI_TRY(agent_recording_mask(op, entry, err));
    }
    TUTTI_TRY(tutti_tape_record_new(tape, entry, &record, err));
    record->of_op = op->records;
    op->records = record;
    return TUTTI_OK;
}

/* Tapes that know the input, whose variables the records are about to change. */
static tutti_code
add_known(agent_op *op, tutti_tape_entry *entry, tutti_error *err)
{
    tutti_tape_var *var = tutti_tapes_first_var(op->agent->tapes, entry->in_tensor);
    tutti_code code = TUTTI_OK;

    while (var != NULL && code == TUTTI_OK) {
        tutti_tape *tape = var->tape;

        var = tutti_tapes_next_var(var);
        code = add_record(op, tape, entry, err);
    }
    return code;
}

static bool
is_traced(const agent_op *op, const tutti_tape_entry *entry)
{
    if (op->options.no_grad || op->on_end != NULL || op->op.args.kind == TUTTI_COLL_BARRIER) {
        return false;
    }
    return op->tape_count > 0 ||
           (entry->in_tensor != 0 &&
            tutti_tapes_first_var(op->agent->tapes, entry->in_tensor) != NULL);
}

void
agent_recording_describe(const agent_op *op, const tutti_spec *result, tutti_tape_entry *ret)
{
    const tutti_coll_group *coll = op->group->coll;
    const tutti_tensor *output =
        op->out == NULL ? NULL : tutti_table_tensor(op->agent->table, op->out);

    *ret = (tutti_tape_entry){
        .number = op->number,
        .group = op->group->name,
        .group_id = tutti_coll_group_id(coll),
        .epoch = op->group->epoch,
        .size = tutti_coll_group_size(coll),
        .rank = tutti_coll_group_rank(coll),
        .local = op->options.local_grad,
        .args = &op->op.args,
        .result = *result,
        .space = op->space,
    };
    if (op->no_result) {
        ret->result.dtype = TUTTI_DTYPE_NONE;
    }
    if (op->in != NULL && op->op.input != NULL) {
        ret->in_tensor = tutti_table_number(op->in);
    }
    if (op->out != NULL && !op->no_result) {
        ret->out_tensor = tutti_table_number(op->out);
        ret->out_spec = output != NULL ? output->spec : (tutti_spec){0};
    }
}

static tutti_code
record_op(agent_op *op, tutti_tape_entry *entry, tutti_error *err)
{
    uint32_t i;

    TUTTI_TRY(tutti_grad_op_check(entry->args, op->options.local_grad, err));

    if (entry->in_tensor != 0) {
        TUTTI_TRY(add_known(op, entry, err));
    }
    for (i = 0; i < op->tape_count; i++) {
        TUTTI_TRY(add_record(op, op->tapes[i], entry, err));
    }
    return TUTTI_OK;
}

/* On the tapes with it, or off them with what it overwrites; in place, a tensor stays what it is.
 */
tutti_code
agent_recording_one(agent_op *op, tutti_tape_entry *entry, tutti_error *err)
{
    if (is_traced(op, entry)) {
        return record_op(op, entry, err);
    }
    if (entry->out_tensor != 0 && entry->out_tensor != entry->in_tensor) {
        tutti_tapes_overwrite(op->agent->tapes, entry->out_tensor);
    }
    return TUTTI_OK;
}

/* A receiver hears from the root whether it is recorded. */
static bool
may_hear(const agent_op *op)
{
    return op->op.on_spec != NULL && op->on_end == NULL && !op->options.no_grad;
}

tutti_code
agent_recording_begin(agent_op *op, const tutti_spec *result, tutti_error *err)
{
    tutti_tape_entry entry;
    tutti_code code = TUTTI_OK;

    if (tutti_tapes_empty(op->agent->tapes)) {
        agent_recording_drop_names(op);
        return TUTTI_OK;
    }
    if (op->list != NULL) {
        return agent_recording_list(op, err);
    }
    agent_recording_describe(op, result, &entry);
    code = agent_recording_one(op, &entry, err);
    agent_recording_drop_names(op);
    return code == TUTTI_OK && may_hear(op) ? agent_tensor_meta_expect(op, &entry, err) : code;
}

/* ------------------------------------------------------------------------------ ending */

static const tutti_tensor *
made_by(const agent_op *op, uint32_t part)
{
    const tutti_lock *lock = op->list != NULL ? op->list->out_locks[part] : op->out;

    return lock == NULL ? op->inline_out : tutti_table_tensor(op->agent->table, lock);
}

/* A given output may have another shape than what came. */
static void
learn_recorded(const agent_op *op, tutti_tape_record *record)
{
    const tutti_tensor *output = made_by(op, 0);

    if (record->args.kind == TUTTI_COLL_RECV) {
        record->args.peer = op->op.source;
    }
    if (tutti_coll_is_from_root(op->op.args.kind)) {
        (void)tutti_coll_infer(&op->op.args, record->size, record->rank, &record->result, NULL);
    } else if (output != NULL) {
        record->result = output->spec;
    }
}

static void
end_record(const agent_op *op, tutti_tape_record *record)
{
    const tutti_tensor *output;

    if (op->failed) {
        tutti_tape_record_drop(record);
        return;
    }
    if (op->op.on_spec != NULL) { /* now it is known what has come */
        learn_recorded(op, record);
    }
    output = op->no_result ? NULL : made_by(op, record->part);
    tutti_tape_record_end(record, op->op.sequence, output == NULL ? NULL : &output->spec);
}

void
agent_recording_end(agent_op *op)
{
    agent_recording_drop_names(op);
    if (op->late != NULL) {
        agent_tensor_meta_end(op);
    }
    while (op->records != NULL) {
        tutti_tape_record *record = op->records;

        op->records = record->of_op;
        record->of_op = NULL;
        end_record(op, record);
    }
}
