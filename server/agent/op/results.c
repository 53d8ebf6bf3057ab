/* Results that are lists: where they go, and what the caller hears of them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "server/agent/op/list.h"

/* ------------------------------------------------------------------------------ their places */

static tutti_code
use_given(agent_op *op, uint32_t i, tutti_error *err)
{
    agent_list *list = op->list;
    const tutti_tensor *tensor = tutti_table_tensor(op->agent->table, list->out_uses[i]);
    tutti_code code;

    if (tensor == NULL) {
        return tutti_table_check(op->agent->table, list->out_uses[i], err);
    }
    code = agent_check_output(&tensor->spec, &list->out[i].spec, err);
    list->out[i].data = tensor->data;
    return code;
}

static tutti_code
fill_new(agent_op *op, uint32_t i, tutti_error *err)
{
    agent_list *list = op->list;
    tutti_tensor *tensor = NULL;
    const tutti_code code = tutti_tensor_new(op->space, &list->out[i].spec, false, &tensor, err);

    if (code == TUTTI_OK) {
        list->out[i].data = tensor->data;
        tutti_table_fill(op->agent->table, list->out_uses[i], tensor);
    }
    return code;
}

/* The number of results was not known before. */
static tutti_code
make_room(agent_list *list, uint32_t count, tutti_error *err)
{
    tutti_use **uses = calloc((size_t)count + 1, sizeof(tutti_use *));

    if (uses == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED,
                          "no memory for a list of %" PRIu32 " tensors", count);
    }
    free(list->out_uses);
    list->out_uses = uses;
    return TUTTI_OK;
}

/* Handles for such results: nobody can be in line for them. */
static tutti_code
make_late(agent_op *op, uint32_t count, tutti_error *err)
{
    agent_list *list = op->list;
    tutti_code code = make_room(list, count, err);
    uint32_t i;

    if (code == TUTTI_OK) {
        code = tutti_table_reserve(&list->made, count, err);
        memcpy(list->made.owner, op->claim.owner, sizeof(list->made.owner));
        list->made.lease = op->claim.lease;
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = tutti_table_make(op->agent->table, &list->made, "", err);
        if (code == TUTTI_OK) {
            list->out_uses[i] = &list->made.uses[i];
            list->out_count = i + 1;
        }
    }
    (void)tutti_table_claim(op->agent->table, &list->made);
    return code;
}

static tutti_code
place_inline(agent_op *op, uint32_t count, tutti_error *err)
{
    agent_list *list = op->list;
    tutti_code code = make_room(list, count, err);

    if (code == TUTTI_OK) {
        code = agent_list_share(op, list->out, count, &list->out_memory, err);
    }
    list->out_count = code == TUTTI_OK ? count : 0;
    return code;
}

static tutti_code
place_each(agent_op *op, uint32_t count, tutti_error *err)
{
    agent_list *list = op->list;
    tutti_code code = TUTTI_OK;
    uint32_t i;

    if (list->out_is_new && list->out_count == 0) {
        code = make_late(op, count, err);
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = list->out_is_new ? fill_new(op, i, err) : use_given(op, i, err);
    }
    return code;
}

/* The shapes are known: by now, or from others on the engine's thread. */
static tutti_code
place(agent_op *op, const tutti_spec *specs, uint32_t count, tutti_error *err)
{
    agent_list *list = op->list;
    uint32_t i;
    tutti_code code;

    if (list->given_count > 0 && list->given_count != count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LIST_SIZE",
                              "%" PRIu32 " outputs for %" PRIu32 " results", list->given_count,
                              count);
    }
    list->out = calloc((size_t)count + 1, sizeof(*list->out));
    if (list->out == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED,
                          "no memory for a list of %" PRIu32 " tensors", count);
    }
    for (i = 0; i < count; i++) {
        list->out[i].spec = specs[i];
    }
    if (list->given_count > 0) {
        list->out_count = count;
    }
    code = op->out_inline ? place_inline(op, count, err) : place_each(op, count, err);
    op->op.outputs = list->out;
    return code;
}

static tutti_code
on_list(tutti_coll_op *engine_op, const tutti_spec *specs, uint32_t count, tutti_error *err)
{
    return place(tutti_container_of(engine_op, agent_op, op), specs, count, err);
}

/* A root's list stands for its results, unless it named others. */
static tutti_code
place_of_root(agent_op *op, const tutti_spec *specs, uint32_t count, tutti_error *err)
{
    agent_list *list = op->list;

    if (op->op.args.kind != TUTTI_COLL_BROADCAST || list->given_count > 0 || op->out_inline) {
        return place(op, specs, count, err);
    }
    list->out = calloc((size_t)count + 1, sizeof(*list->out));
    if (list->out == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED,
                          "no memory for a list of %" PRIu32 " tensors", count);
    }
    memcpy(list->out, list->in, count * sizeof(*list->out));
    memcpy(list->out_uses, list->in_uses, count * sizeof(tutti_use *));
    list->out_count = count;
    list->out_is_new = false;
    op->op.outputs = list->out;
    return TUTTI_OK;
}

tutti_code
agent_list_results(agent_op *op, tutti_error *err)
{
    tutti_coll_group *coll = op->group->coll;
    const tutti_coll_args *args = &op->op.args;
    const uint32_t me = tutti_coll_group_rank(coll);
    const bool learns = tutti_coll_is_from_root(args->kind) && me != args->root;
    tutti_spec *specs = NULL;
    uint32_t count = 0;
    tutti_code code;

    code = learns && args->form != TUTTI_FORM_LIST
               ? TUTTI_OK
               : tutti_coll_infer_list(args, tutti_coll_group_size(coll), me, &specs, &count, err);
    if (learns || args->form == TUTTI_FORM_LIST) {
        op->op.on_list = on_list;
    } else if (code == TUTTI_OK && !op->no_result) {
        code = tutti_coll_is_from_root(args->kind) ? place_of_root(op, specs, count, err)
                                                   : place(op, specs, count, err);
    }
    free(specs);
    return code;
}

/* ------------------------------------------------------------------------------ what is said */

agent_output *
agent_list_outputs(const agent_op *op, uint32_t *ret_count)
{
    const agent_list *list = op->list;
    agent_output *outputs;
    uint32_t i;

    *ret_count = 0;
    if (list == NULL || list->out_count == 0 || op->no_result) {
        return NULL;
    }
    outputs = calloc(list->out_count, sizeof(*outputs));
    for (i = 0; i < list->out_count && outputs != NULL; i++) {
        if (list->out_uses[i] != NULL) {
            tutti_table_handle(list->out_uses[i], outputs[i].handle);
        }
        outputs[i].has_spec = list->out != NULL;
        if (list->out != NULL) {
            const tutti_tensor *tensor =
                list->out_uses[i] == NULL ? NULL
                                          : tutti_table_tensor(op->agent->table, list->out_uses[i]);

            outputs[i].spec = tensor != NULL ? tensor->spec : list->out[i].spec;
        }
    }
    *ret_count = outputs == NULL ? 0 : list->out_count;
    return outputs;
}

uint64_t
agent_list_pack(agent_list *list)
{
    unsigned char *to = list->out_memory->data;
    uint32_t i;

    for (i = 0; i < list->out_count; i++) {
        const size_t bytes = (size_t)tutti_spec_bytes(&list->out[i].spec);

        memmove(to, list->out[i].data, bytes);
        to += bytes;
    }
    return (uint64_t)(to - (unsigned char *)list->out_memory->data);
}

void
agent_list_mark(agent_op *op, const tutti_error *err)
{
    const agent_list *list = op->list;
    uint32_t i;

    for (i = 0; i < list->out_count; i++) {
        if (list->out_uses[i] != NULL && list->out_uses[i]->exclusive) {
            tutti_table_mark(op->agent->table, list->out_uses[i], err);
        }
    }
}

void
agent_list_drop_new(agent_op *op)
{
    const agent_list *list = op->list;
    uint32_t i;

    for (i = 0; i < list->out_count && list->out_is_new; i++) {
        tutti_table_drop_new(op->agent->table, list->out_uses[i]);
    }
}
