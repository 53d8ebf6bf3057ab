/*
 * Ops whose gradient op needs to know where the input is the result: max and min. In host memory
 * the mask is made when the op ends. A device leaves copies of both beside the op, and the mask is
 * made of them when a Backward comes this way.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/autograd/grad_op.h"
#include "server/agent/autograd/recording.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"

/* What the op, or one tensor of a list, gives and gets. */
static const void *
input_of(const agent_op *op, uint32_t part)
{
    return op->list != NULL ? op->list->in[part].data : op->op.input;
}

static const void *
output_of(const agent_op *op, uint32_t part)
{
    return op->list != NULL ? op->list->out[part].data : op->op.output;
}

/* In host memory: the mask is calculated when the result is there; the input may be gone by then.
 */
static tutti_code
make_mask(const agent_op *op, tutti_tape_entry *entry, tutti_error *err)
{
    const void *input = input_of(op, entry->part);
    tutti_spec spec = entry->args->spec;
    tutti_code code = TUTTI_OK;

    entry->kept = NULL;
    if (input == output_of(op, entry->part)) {
        code = tutti_tensor_new(op->agent->space, &spec, false, &entry->kept, err);
        if (code == TUTTI_OK) {
            memcpy(entry->kept->data, input, (size_t)entry->kept->bytes);
        }
    }
    spec.dtype = TUTTI_DTYPE_BOOL;
    if (code == TUTTI_OK) {
        code = tutti_tensor_new(op->agent->space, &spec, false, &entry->mask, err);
    }
    if (code != TUTTI_OK) {
        tutti_tensor_unref(entry->kept);
    }
    return code;
}

/* What another tape keeps of the same tensor. */
static const tutti_tape_record *
find_kept(const agent_op *op, uint32_t part)
{
    const tutti_tape_record *record = op->records;

    while (record != NULL && (record->part != part || record->made == NULL)) {
        record = record->of_op;
    }
    return record;
}

static tutti_code
make_room_mask(agent_op *op, tutti_error *err)
{
    if (op->kept == NULL) {
        op->kept = calloc(op->list != NULL ? op->list->in_count : 1, sizeof(op->kept[0]));
        op->op.kept = op->kept;
    }
    return op->kept != NULL
               ? TUTTI_OK
               : TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to record an op");
}

static tutti_code
keep_both(agent_op *op, tutti_tape_entry *entry, tutti_error *err)
{
    const tutti_tape_record *other = find_kept(op, entry->part);
    tutti_code code = TUTTI_OK;

    entry->kept = other != NULL ? other->kept : NULL;
    entry->made = other != NULL ? other->made : NULL;
    if (other != NULL) {
        tutti_tensor_ref(entry->kept);
        tutti_tensor_ref(entry->made);
        return TUTTI_OK;
    }
    code = make_room_mask(op, err);
    if (code == TUTTI_OK) {
        code = tutti_tensor_new(op->space, &entry->args->spec, false, &entry->kept, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_tensor_new(op->space, &entry->args->spec, false, &entry->made, err);
    }
    if (code != TUTTI_OK) {
        tutti_tensor_unref(entry->kept);
        return code;
    }
    op->kept[entry->part] = (tutti_coll_kept){entry->kept->data, entry->made->data};
    return TUTTI_OK;
}

tutti_code
agent_recording_mask(agent_op *op, tutti_tape_entry *entry, tutti_error *err)
{
    return op->op.args.on_device ? keep_both(op, entry, err) : make_mask(op, entry, err);
}

void
agent_recording_computed(agent_op *op)
{
    const tutti_tape_record *record;

    for (record = op->records; record != NULL; record = record->of_op) {
        if (record->mask != NULL) {
            tutti_grad_op_mask(&record->args.spec,
                               record->kept != NULL ? record->kept->data
                                                    : input_of(op, record->part),
                               output_of(op, record->part), record->mask->data);
        }
    }
}
