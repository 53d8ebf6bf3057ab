/*
 * What goes with a tensor from a root or a sender: the caller's bytes, and on which tracers it has
 * recorded the op. A receiver that has tracers of these names records it there too, in the place at
 * which its own call came.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/autograd/grad_op.h"
#include "server/agent/autograd/recording.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/autograd/tensor_meta.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"

/* What a receiver will put on its tapes, should the root say so. */
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

static tutti_code
gather_names(const agent_op *op, const char **names, size_t *ret_count, tutti_error *err)
{
    const tutti_tape_record *record;

    for (record = op->records; record != NULL; record = record->of_op) {
        if (*ret_count == TUTTI_TENSOR_META_NAMES_MAX) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "TRACER_COUNT",
                                  "more than %d tracers go with one tensor",
                                  TUTTI_TENSOR_META_NAMES_MAX);
        }
        if (!record->local) {
            names[(*ret_count)++] = record->tape->name;
        }
    }
    return TUTTI_OK;
}

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
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for what goes with a tensor");
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
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to record an op");
    }
    late->entry = *entry;
    late->entry.late = true;
    late->entry.local = false;
    (void)snprintf(late->group, sizeof(late->group), "%s", entry->group);
    late->entry.group = late->group; /* the op's may be gone at its end */
    op->late = late;
    return TUTTI_OK;
}

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

/* It cannot be refused any more: a tape that has no room for it is of no use. */
static void
record_late(agent_op *op, const tutti_tape_entry *entry, tutti_tape *tape)
{
    tutti_tape_record *record = NULL;

    if (agent_recording_is_on(op, tape, 0)) {
        return;
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
