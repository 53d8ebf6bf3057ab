/*
 * Records of tapes: what an op did. Control loop.
 *
 * A record is made when its op is launched (pending), before it is known whether the op succeeds:
 * the next op may be launched before this one has ended, and must find what its input is. `before`
 * is what the output's tensor held until then; if the op fails, tutti_tape_record_drop puts it
 * back.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/autograd/tape_private.h"

/*
 * Its result is nothing that is traced any more, unless somebody has attached it: then it is a
 * leaf.
 */
void
agent_tape_free_record(tutti_tape_record *record)
{
    tutti_tape_var *out = record->out;

    tutti_list_remove(&record->link);
    record->tape->record_count--;
    record->tape->cleared_count -= record->cleared ? 1 : 0;
    record->tape->tapes->item_count--;
    if (out != NULL) {
        out->maker = NULL;
        if (tutti_list_empty(&out->leaf)) {
            agent_tape_unmap(out);
        }
    }
    agent_tape_var_unref(record->in);
    agent_tape_var_unref(out);
    agent_tape_var_unref(record->before);
    tutti_tensor_unref(record->mask);
    tutti_tensor_unref(record->kept);
    tutti_tensor_unref(record->made);
    free(record->lists);
    free(record);
}

/*
 * Lists that the arguments point to become the record's own: the op's memory goes with the op. A
 * permutation is kept as its inverse, which is what its gradient op needs.
 */
static bool
keep_lists(tutti_tape_record *record, const tutti_coll_args *args)
{
    const size_t split_bytes = args->split_count * sizeof(int64_t);
    uint32_t i;

    record->args = *args;
    if (args->flat != NULL) {
        record->flat = *args->flat;
        record->args.flat = &record->flat;
    }
    if (args->kind == TUTTI_COLL_PERMUTE) {
        uint32_t *inverse = calloc(args->to_count + 1, sizeof(*inverse));

        for (i = 0; i < args->to_count && inverse != NULL; i++) {
            assert(args->to[i] < args->to_count);
            inverse[args->to[i]] = i;
        }
        record->lists = inverse;
        record->args.to = inverse;
    } else if (args->has_splits && args->split_count > 0) {
        int64_t *splits = malloc(2 * split_bytes);

        if (splits != NULL) {
            memcpy(splits, args->send_splits, split_bytes);
            memcpy(splits + args->split_count, args->recv_splits, split_bytes);
            record->args.send_splits = splits;
            record->args.recv_splits = splits + args->split_count;
        }
        record->lists = splits;
    } else {
        return true;
    }
    return record->lists != NULL;
}

static tutti_tape_record *
make_record(tutti_tape *tape, const tutti_tape_entry *entry)
{
    tutti_tape_record *record = calloc(1, sizeof(*record));

    if (record == NULL || !keep_lists(record, entry->args)) {
        free(record);
        return NULL;
    }
    (void)snprintf(record->group, sizeof(record->group), "%s", entry->group);
    record->tape = tape;
    record->number = entry->number;
    record->pending = true;
    record->told = entry->told;
    record->local = entry->local;
    record->group_id = entry->group_id;
    record->epoch = entry->epoch;
    record->size = entry->size;
    record->rank = entry->rank;
    record->result = entry->result;
    record->part = entry->part;
    record->mask = entry->mask;
    record->kept = entry->kept;
    record->made = entry->made;
    record->space = entry->space;
    return record;
}

/*
 * By the number of arrival, not of launch: ops of different groups are launched in any order, and a
 * receiver's record comes at its end. Searched from the end, where nearly all belong.
 */
static void
insert_tape_record(tutti_tape *tape, tutti_tape_record *record)
{
    tutti_list_node *link = tape->records.before;

    while (link != &tape->records &&
           tutti_container_of(link, tutti_tape_record, link)->number > record->number) {
        link = link->before;
    }
    tutti_list_add(link->next, &record->link);
    tape->record_count++;
    tape->tapes->item_count++;
    tutti_tape_ref(tape);
}

/*
 * A fresh variable for what the op writes. A receiver's op is recorded at its end, and the caller
 * may have attached its result meanwhile (it had the answer): that leaf is meant, not a variable
 * before it.
 */
static tutti_tape_var *
take_out(tutti_tape *tape, const tutti_tape_entry *entry, tutti_tape_var **ret_before)
{
    tutti_tape_var *before = tutti_tape_var_of(tape, entry->out_tensor);
    tutti_tape_var *out;

    if (entry->late && before != NULL && before->maker == NULL) {
        agent_tape_var_ref(before);
        return before;
    }
    out = agent_tape_var_new(tape, entry->out_tensor);
    if (out == NULL) {
        return NULL;
    }
    if (before != NULL) {
        agent_tape_var_ref(before);
    }
    *ret_before = before;
    out->has_spec = entry->out_spec.dtype != TUTTI_DTYPE_NONE;
    out->spec = entry->out_spec;
    out->space = entry->space;
    agent_tape_map(out);
    return out;
}

/*
 * mask, kept and made are the record's from the start, also when this fails: callers do not free
 * them.
 */
tutti_code
tutti_tape_record_new(tutti_tape *tape, const tutti_tape_entry *entry,
                      tutti_tape_record **ret_record, tutti_error *err)
{
    tutti_code code = agent_tape_room(tape, err);
    tutti_tape_record *record = code == TUTTI_OK ? make_record(tape, entry) : NULL;

    if (record == NULL) {
        tutti_tensor_unref(entry->mask);
        tutti_tensor_unref(entry->kept);
        tutti_tensor_unref(entry->made);
        return code != TUTTI_OK
                   ? code
                   : TUTTI_FAIL_MEMORY(err, "no memory to record an op on tracer %s", tape->name);
    }
    insert_tape_record(tape, record);
    record->in = entry->in_tensor == 0 ? NULL : tutti_tape_var_of(tape, entry->in_tensor);
    if (record->in != NULL) {
        agent_tape_var_ref(record->in);
    }
    if (entry->out_tensor != 0) {
        record->out = take_out(tape, entry, &record->before);
        if (record->out == NULL) {
            tutti_tape_record_drop(record);
            return TUTTI_FAIL_MEMORY(err, "no memory to record an op on tracer %s", tape->name);
        }
        record->out->maker = record;
    }
    *ret_record = record;
    return TUTTI_OK;
}

/*
 * The op has ended well: nothing will be put back. The kept input was only needed to make the mask;
 * on a device the mask is made later, from `kept` and `made`.
 */
void
tutti_tape_record_end(tutti_tape_record *record, uint64_t sequence, const tutti_spec *out_spec)
{
    tutti_tape *tape = record->tape;

    assert(record->pending);
    record->pending = false;
    record->sequence = sequence;
    if (record->out != NULL && out_spec != NULL) {
        record->out->has_spec = true;
        record->out->spec = *out_spec;
    }
    agent_tape_var_unref(record->before);
    record->before = NULL;
    if (record->made == NULL) {
        tutti_tensor_unref(record->kept);
        record->kept = NULL;
    }
    if (record->cleared) {
        agent_tape_free_record(record);
        if (!tape->deleted) {
            agent_tape_remap_leaves(tape);
        }
    }
    tutti_tape_unref(tape);
}

/* Does the tape still know the variable? Not when the record of its maker was cleared meanwhile. */
static bool
is_known(const tutti_tape_var *var)
{
    return var != NULL && (var->maker != NULL || !tutti_list_empty(&var->leaf));
}

/*
 * As if the op had never been. Only when its result is still what the tensor holds: a later op may
 * have written it since, and its own record says what was before.
 */
void
tutti_tape_record_drop(tutti_tape_record *record)
{
    tutti_tape *tape = record->tape;

    assert(record->pending);
    if (record->out != NULL && record->out->mapped && !tape->deleted && is_known(record->before)) {
        agent_tape_map(record->before);
    }
    agent_tape_free_record(record);
    tutti_tape_unref(tape);
}
