/*
 * Which ops are recorded, and what of them is kept. Control loop, but for agent_recording_unpack
 * and agent_recording_computed, which run on the thread that runs the engine.
 *
 * An op is looked at when it is launched and not when it comes: whether its input is on a tape is
 * known when the ops before it have been launched. Its place on the tape is that of its arrival all
 * the same.
 *
 * Receivers do not know whether the op is traced at its root. The root, or sender, tells the names
 * of its tracers with the tensor (tensor_meta.h), and a receiver that has tracers of these names
 * records the op at its end (agent_late). It cannot refuse the op any more then: the others have it
 * on their tapes. A tape without room becomes `lossy`, and Backward on it is refused.
 */
#include "server/agent/autograd/recording.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/autograd/grad_op.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/autograd/tensor_meta.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

/*
 * What the gradient op of a max or min will need, into the entry: a mask in host memory, or copies
 * of input and result on a device.
 */
static tutti_code record_mask(agent_op *op, tutti_tape_entry *entry, tutti_error *err);

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

/*
 * Found when the op comes, and referenced: a tracer may be deleted and made anew under its name
 * before the op is launched, and the caller meant the first one.
 */
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
        return TUTTI_FAIL_MEMORY(err, "no memory for names of tracers");
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

/* A tape may be named by the caller and know the input as well: it gets one record. */
static tutti_code
add_record(agent_op *op, tutti_tape *tape, tutti_tape_entry *entry, tutti_error *err)
{
    tutti_tape_record *record = NULL;

    if (tape->deleted || agent_recording_is_on(op, tape, entry->part)) {
        return TUTTI_OK;
    }
    if (tutti_grad_op_masks(entry->args)) {
        TUTTI_TRY(record_mask(op, entry, err));
    }
    TUTTI_TRY(tutti_tape_record_new(tape, entry, &record, err));
    record->of_op = op->records;
    op->records = record;
    return TUTTI_OK;
}

/*
 * The next variable is read first: the new record maps another variable for the output, which may
 * be the same tensor.
 */
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

/* Ops of a Backward (on_end) are never recorded: gradients of gradients are not supported. */
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

/* Borrows the op's arguments and names; tutti_tape_record_new copies what it keeps. */
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
        .told = &op->told,
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

/* A variable of a tape is a tensor: a gradient of a range would need a place in that of the whole. */
static tutti_code
check_whole(const agent_op *op, tutti_error *err)
{
    uint32_t i;

    for (i = 0; i < op->lock_set.count; i++) {
        if (op->lock_set.locks[i].range != NULL) {
            return TUTTI_FAIL_FOR(
                err, TUTTI_INVALID_ARGUMENT, "TRACED_RANGE",
                "ops on ranges of tensors are not recorded, and the op is traced: "
                "copy the range to a tensor of its own, or call with no_grad");
        }
    }
    return TUTTI_OK;
}

/*
 * An op that is not traced takes what it overwrites off the tapes: gradients must not go back
 * through a tensor whose bytes are others now. In place (with no_grad) a tensor stays what it is.
 */
tutti_code
agent_recording_one(agent_op *op, tutti_tape_entry *entry, tutti_error *err)
{
    if (is_traced(op, entry)) {
        TUTTI_TRY(check_whole(op, err));
        return record_op(op, entry, err);
    }
    if (entry->out_tensor != 0 && entry->out_tensor != entry->in_tensor) {
        tutti_tapes_overwrite(op->agent->tapes, entry->out_tensor);
    }
    return TUTTI_OK;
}

/* A receiver hears from the root whether the op is recorded. */
static bool
may_hear(const agent_op *op)
{
    return op->op.on_spec != NULL && op->on_end == NULL && !op->options.no_grad;
}

/* The fast path: without any tape nothing of an op is looked at. */
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

/* The record gets the spec that the root has said; a given output may have other dimensions. */
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

/* While the tensors are still locked, so their specs are those of this op. */
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

/* ------------------------------------------------------------------------------ recording meta */

/*
 * What a receiver will put on its tapes, should the root say so. `names` is written by the engine's
 * thread before the op's end, and read by the control loop behind it.
 */
typedef struct agent_late {
    tutti_tape_entry entry;
    char group[TUTTI_NAME_MAX + 1];
    unsigned char *names; /* [owned] that have come */
    size_t names_size;
} agent_late;

/* ------------------------------------------------------------------------------ giving */

static bool
has_output(const agent_op *op)
{
    const tutti_coll_args *args = &op->op.args;

    return args->kind == TUTTI_COLL_SEND || (tutti_coll_is_from_root(args->kind) &&
                                             args->root == tutti_coll_group_rank(op->group->coll));
}

/*
 * A record without communication (local) is this rank's own matter: receivers are not told of it.
 */
static tutti_code
gather_names(const agent_op *op, const char **names, size_t *ret_count, tutti_error *err)
{
    const tutti_tape_record *record;

    for (record = op->records; record != NULL; record = record->of_op) {
        if (*ret_count == TUTTI_TENSOR_META_NAMES_MAX) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "TRACER_COUNT",
                                  "more than %d tracers record the tensor of this op, the limit",
                                  TUTTI_TENSOR_META_NAMES_MAX);
        }
        if (!record->local) {
            names[(*ret_count)++] = record->tape->name;
        }
    }
    return TUTTI_OK;
}

/* Replaces the op's user_meta by names and user_meta in one; op->meta owns the new bytes. */
tutti_code
agent_recording_pack(agent_op *op, tutti_error *err)
{
    const char *names[TUTTI_TENSOR_META_NAMES_MAX];
    const tutti_bytes user = {op->meta, op->meta_size};
    unsigned char *packed;
    size_t count = 0;

    if (op->on_end != NULL || !has_output(op) || (op->records == NULL && user.size == 0)) {
        return TUTTI_OK;
    }
    if (gather_names(op, names, &count, err) != TUTTI_OK) {
        return err->code;
    }
    packed = malloc(TUTTI_TENSOR_META_EXTRA_MAX + user.size);
    if (packed == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for what goes with a tensor");
    }
    op->op.args.meta = (tutti_bytes){packed, tutti_tensor_meta_write(names, count, user, packed)};
    free(op->meta);
    op->meta = packed;
    op->meta_size = op->op.args.meta.size;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ getting */

tutti_code
agent_tensor_meta_expect(agent_op *op, const tutti_tape_entry *entry, tutti_error *err)
{
    agent_late *late = calloc(1, sizeof(*late));

    if (late == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory to record an op");
    }
    late->entry = *entry;
    late->entry.late = true;
    late->entry.local = false;
    (void)snprintf(late->group, sizeof(late->group), "%s", entry->group);
    late->entry.group = late->group; /* the op's may be gone at its end */
    op->late = late;
    return TUTTI_OK;
}

/*
 * The thread that runs the engine, before the caller is answered. What cannot be read comes from an
 * agent of another version: it counts as no user_meta, and the op goes on. The names are copied, as
 * the engine's memory is gone when the control loop records the op; without memory nothing is
 * recorded.
 */
void
agent_recording_unpack(agent_op *op)
{
    tutti_bytes names;
    tutti_bytes user;

    if (op->on_end != NULL || op->op.meta.size == 0) {
        return;
    }
    if (!tutti_tensor_meta_read(op->op.meta, &names, &user)) {
        user = (tutti_bytes){NULL, 0}; /* an agent of another version */
    }
    if (op->late != NULL && names.size > 0) {
        op->late->names = malloc(names.size);
        if (op->late->names != NULL) {
            memcpy(op->late->names, names.data, names.size);
        }
        op->late->names_size = names.size;
    }
    op->op.meta = user;
    op->meta_size = user.size == 0 ? 0 : op->meta_size;
}

/* Too late to refuse the op: a tape that has no room for it is of no use any more. */
static void
record_late(agent_op *op, const tutti_tape_entry *entry, tutti_tape *tape)
{
    tutti_tape_record *record = NULL;

    if (agent_recording_is_on(op, tape, 0) || op->ended_ns < tape->cleared_ns) {
        return; /* or its caller has cleared the tape since */
    }
    if (tutti_tape_record_new(tape, entry, &record, NULL) != TUTTI_OK) {
        tape->lossy = true;
        return;
    }
    record->of_op = op->records; /* ended with the others */
    op->records = record;
}

static void
record_names(agent_op *op)
{
    agent_late *late = op->late;
    tutti_bytes names = {late->names, late->names_size};
    char name[TUTTI_NAME_MAX + 1];
    tutti_tape *tape;

    late->entry.args = &op->op.args;
    if (tutti_grad_op_check(late->entry.args, false, NULL) != TUTTI_OK) {
        return;
    }
    while (tutti_tensor_meta_next(&names, name)) {
        if (tutti_tape_find(op->agent->tapes, name, &tape, NULL) == TUTTI_OK) {
            record_late(op, &late->entry, tape);
        }
    }
}

void
agent_tensor_meta_end(agent_op *op)
{
    agent_late *late = op->late;

    if (!op->failed && late->names != NULL) {
        record_names(op);
    }
    free(late->names);
    free(late);
    op->late = NULL;
}

/* ------------------------------------------------------------------------------ recording mask */

/* The memory that the op, or one tensor of a list, reads; and, below, the memory that it writes. */
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

/*
 * In host memory, the mask is computed as soon as the result is there (agent_recording_computed): a
 * caller may write the input at once after the answer. In place, the input is copied first, since
 * the op overwrites it.
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

/* Two tapes of one op share the copies: they are large, and never written. */
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
    return op->kept != NULL ? TUTTI_OK : TUTTI_FAIL_MEMORY(err, "no memory to record an op");
}

/*
 * On a device, the stream that runs the op copies input and result beside it (op->kept). The mask
 * is made of them when a Backward comes, and never if none does.
 */
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

static tutti_code
record_mask(agent_op *op, tutti_tape_entry *entry, tutti_error *err)
{
    return op->op.args.on_device ? keep_both(op, entry, err) : make_mask(op, entry, err);
}

/*
 * The thread that runs the engine, before the caller is answered: input and result are still locked
 * and whole.
 */
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

/* ------------------------------------------------------------------------------ recording list */

static bool
is_use_traced(const agent_op *op, const tutti_lock *lock)
{
    return lock != NULL &&
           tutti_tapes_first_var(op->agent->tapes, tutti_table_number(lock)) != NULL;
}

static bool
is_list_traced(const agent_op *op)
{
    bool traced = op->tape_count > 0 || is_use_traced(op, op->in);
    uint32_t i;

    for (i = 0; i < op->list->in_count && !traced; i++) {
        traced = is_use_traced(op, op->list->in_locks[i]);
    }
    return traced && !op->options.no_grad;
}

/*
 * One tensor of a coalesced op, as an op of its own. `args` is the caller's, as the entry borrows
 * it.
 */
static void
describe_part(const agent_op *op, uint32_t i, tutti_coll_args *args, tutti_tape_entry *ret)
{
    const agent_list *list = op->list;
    const tutti_spec nothing = {.dtype = TUTTI_DTYPE_NONE};
    const tutti_lock *in = list->in_locks[i];
    const tutti_lock *out = op->no_result ? NULL : list->out_locks[i];

    *args = op->op.args;
    args->coalesced = false;
    args->list = NULL;
    args->list_count = 0;
    args->has_spec = true;
    args->spec = list->in[i].spec;
    args->axis = list->in[i].axis;
    agent_recording_describe(op, op->no_result ? &nothing : &list->out[i].spec, ret);
    ret->args = args;
    ret->part = i;
    ret->in_tensor = in == NULL ? 0 : tutti_table_number(in);
    if (out != NULL) {
        ret->out_tensor = tutti_table_number(out);
        ret->out_spec = tutti_table_tensor(op->agent->table, out)->spec;
    }
}

static tutti_code
record_parts(agent_op *op, tutti_error *err)
{
    tutti_coll_args args;
    tutti_tape_entry entry;
    uint32_t i;

    for (i = 0; i < op->list->in_count; i++) {
        describe_part(op, i, &args, &entry);
        TUTTI_TRY(agent_recording_one(op, &entry, err));
    }
    return TUTTI_OK;
}

/* New results are on no tape; given ones may have been. */
static void
forget_outputs(const agent_op *op)
{
    uint32_t i;

    for (i = 0; i < op->list->given_count && !op->options.no_grad; i++) {
        tutti_tapes_overwrite(op->agent->tapes, tutti_table_number(op->list->out_locks[i]));
    }
}

tutti_code
agent_recording_list(agent_op *op, tutti_error *err)
{
    const tutti_coll_args *args = &op->op.args;
    tutti_code code = TUTTI_OK;

    if (!is_list_traced(op)) {
        forget_outputs(op);
    } else if (args->coalesced && args->form != TUTTI_FORM_LIST &&
               !tutti_coll_is_from_root(args->kind)) {
        code = record_parts(op, err);
    } else {
        code = TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "TRACED_LIST",
            "ops on lists of one tensor for each rank, and on a root's list, cannot be recorded, "
            "and a tensor is traced: call the op for each tensor, or with no_grad");
    }
    agent_recording_drop_names(op);
    return code;
}
