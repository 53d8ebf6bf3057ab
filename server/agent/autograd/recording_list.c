/* Ops on lists and tapes: a coalesced op is recorded as many ops, others are refused. */
#include "base/error/fail.h"
#include "server/agent/autograd/recording.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

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

/* One tensor of a coalesced op, as an op of its own. */
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
        code =
            TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "TRACED_LIST",
                           "lists by rank, and those from a root, are not recorded, and a tensor "
                           "is traced: call it for each tensor, or with no_grad");
    }
    agent_recording_drop_names(op);
    return code;
}
