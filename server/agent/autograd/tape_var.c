/*
 * Variables of tapes: what each tensor holds on each tape, leaves, gradients. Control loop.
 *
 * by_tensor has at most one variable for each pair of tensor and tape: the mapped one. Others live
 * on as inputs and results of records. A variable is referenced by its mapping, by being a leaf,
 * and by records; it is freed with the last of these.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/reduce/reduce.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/autograd/tape_private.h"
#include "tensor/space.h"

/* Big-endian, so that the variables of a tensor lie side by side. */
static tutti_bytes
make_key(unsigned char key[TUTTI_TAPE_KEY_SIZE], uint64_t tensor, uint64_t tape)
{
    (void)tutti_map_key_u64(key, tensor);
    (void)tutti_map_key_u64(key + 8, tape);
    return (tutti_bytes){key, TUTTI_TAPE_KEY_SIZE};
}

tutti_tape_var *
agent_tape_var_new(tutti_tape *tape, uint64_t tensor)
{
    tutti_tape_var *var = calloc(1, sizeof(*var));

    if (var == NULL) {
        return NULL;
    }
    var->tape = tape;
    var->tensor = tensor;
    var->refs = 1;
    tutti_list_init(&var->leaf);
    var->by_tensor.key = make_key(var->key, tensor, tape->id);
    return var;
}

void
agent_tape_var_ref(tutti_tape_var *var)
{
    var->refs++;
}

void
agent_tape_var_unref(tutti_tape_var *var)
{
    if (var == NULL) {
        return;
    }
    assert(var->refs > 0);
    var->refs--;
    if (var->refs == 0) {
        assert(!var->mapped && tutti_list_empty(&var->leaf));
        tutti_tensor_unref(var->gradient);
        free(var);
    }
}

void
agent_tape_unmap(tutti_tape_var *var)
{
    if (var->mapped) {
        var->mapped = false;
        tutti_map_remove(&var->tape->tapes->by_tensor, &var->by_tensor);
        agent_tape_var_unref(var);
    }
}

/*
 * Replaces the variable that was mapped. The new one is not mapped anywhere else, as its key has
 * its own tensor and tape.
 */
void
agent_tape_map(tutti_tape_var *var)
{
    tutti_tape_var *now = tutti_tape_var_of(var->tape, var->tensor);

    if (now == var) {
        return;
    }
    if (now != NULL) {
        agent_tape_unmap(now);
    }
    var->mapped = true;
    agent_tape_var_ref(var);
    (void)tutti_map_add(&var->tape->tapes->by_tensor, &var->by_tensor);
}

tutti_tape_var *
tutti_tape_var_of(const tutti_tape *tape, uint64_t tensor)
{
    unsigned char key[TUTTI_TAPE_KEY_SIZE];
    tutti_map_node *node = tutti_map_find(&tape->tapes->by_tensor, make_key(key, tensor, tape->id));

    return node == NULL ? NULL : tutti_container_of(node, tutti_tape_var, by_tensor);
}

static tutti_tape_var *
var_if(tutti_map_node *node, uint64_t tensor)
{
    tutti_tape_var *var = node == NULL ? NULL : tutti_container_of(node, tutti_tape_var, by_tensor);

    return var != NULL && var->tensor == tensor ? var : NULL;
}

static tutti_tape_var *
first_var(const tutti_tapes *tapes, uint64_t tensor)
{
    unsigned char key[TUTTI_TAPE_KEY_SIZE];

    return var_if(tutti_map_from(&tapes->by_tensor, make_key(key, tensor, 0)), tensor);
}

/* A deleted tape that Backwards still read records nothing more. */
static tutti_tape_var *
skip_deleted(tutti_tape_var *var)
{
    while (var != NULL && var->tape->deleted) {
        var = var_if(tutti_map_next(&var->by_tensor), var->tensor);
    }
    return var;
}

tutti_tape_var *
tutti_tapes_first_var(const tutti_tapes *tapes, uint64_t tensor)
{
    return skip_deleted(first_var(tapes, tensor));
}

tutti_tape_var *
tutti_tapes_next_var(tutti_tape_var *var)
{
    return skip_deleted(var_if(tutti_map_next(&var->by_tensor), var->tensor));
}

/*
 * Deleted tapes included: a Backward that still reads one looks tensors up in this map, and the
 * tensor is not what it was.
 */
void
tutti_tapes_overwrite(tutti_tapes *tapes, uint64_t tensor)
{
    tutti_tape_var *var;

    while ((var = first_var(tapes, tensor)) != NULL) {
        agent_tape_unmap(var);
    }
}

/* ------------------------------------------------------------------------------ leaves */

/*
 * The mapped variable first; else the leaf that an op has overwritten, which only the list knows.
 */
tutti_tape_var *
tutti_tape_leaf_of(const tutti_tape *tape, uint64_t tensor)
{
    tutti_tape_var *var = tutti_tape_var_of(tape, tensor);
    tutti_list_node *link;

    if (var != NULL && !tutti_list_empty(&var->leaf)) {
        return var;
    }
    for (link = tape->leaves.next; link != &tape->leaves; link = link->next) {
        var = tutti_container_of(link, tutti_tape_var, leaf);
        if (var->tensor == tensor) {
            return var;
        }
    }
    return NULL;
}

void
agent_tape_unleaf(tutti_tape_var *var)
{
    tutti_list_remove(&var->leaf);
    var->tape->leaf_count--;
    var->tape->tapes->item_count--;
    agent_tape_unmap(var);
    agent_tape_var_unref(var);
}

/* The dtypes that a factor can multiply are those that have gradients: FP8 is not among them. */
tutti_code
tutti_tape_check_dtype(tutti_dtype dtype, tutti_error *err)
{
    if (tutti_reduce_check(TUTTI_REDUCE_PREMUL_SUM, dtype, NULL) != TUTTI_OK) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DTYPE_UNSUPPORTED",
                              "%s has no gradients: floats and complex numbers have, FP8 has not",
                              tutti_dtype_name(dtype));
    }
    return TUTTI_OK;
}

/* A second attach changes nothing. What an op has made becomes a leaf as it is, with its maker. */
tutti_code
tutti_tape_attach(tutti_tape *tape, uint64_t tensor, const tutti_spec *spec, tutti_space *space,
                  tutti_error *err)
{
    tutti_tape_var *var = tutti_tape_var_of(tape, tensor);
    tutti_code code = tutti_tape_check_dtype(spec->dtype, err);

    if (code != TUTTI_OK || (var != NULL && !tutti_list_empty(&var->leaf))) {
        return code;
    }
    TUTTI_TRY(agent_tape_room(tape, err));
    if (var == NULL) {
        var = agent_tape_var_new(tape, tensor);
        if (var == NULL) {
            return TUTTI_FAIL_MEMORY(err, "no memory to attach a tensor");
        }
        agent_tape_map(var);
    } else {
        agent_tape_var_ref(var);
    }
    var->has_spec = true;
    var->spec = *spec;
    var->space = space;
    tutti_list_add(&tape->leaves, &var->leaf);
    tape->leaf_count++;
    tape->tapes->item_count++;
    return TUTTI_OK;
}

/*
 * The last leaf was attached a moment ago. It is what its tensor holds if an op has made it, and
 * nothing that is traced if not: then only the map has it.
 */
static void
undo_attach(tutti_tape *tape)
{
    tutti_tape_var *var = tutti_container_of(tape->leaves.before, tutti_tape_var, leaf);

    tutti_list_remove(&var->leaf);
    tape->leaf_count--;
    tape->tapes->item_count--;
    agent_tape_var_unref(var);
    if (var->refs == 1) {
        agent_tape_unmap(var);
    }
}

tutti_code
tutti_tape_attach_all(tutti_tape *tape, const tutti_tape_leaf *leaves, size_t count,
                      tutti_error *err)
{
    const uint32_t before = tape->leaf_count;
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = tutti_tape_attach(tape, leaves[i].tensor, leaves[i].spec, leaves[i].space, err);
    }
    while (code != TUTTI_OK && tape->leaf_count > before) {
        undo_attach(tape);
    }
    return code;
}

/* ------------------------------------------------------------------------------ gradients */

/* Into a new tensor, since neither may be written. Takes both. */
static tutti_code
add_up(tutti_tensor *left, tutti_tensor *right, tutti_tensor **ret_sum, tutti_error *err)
{
    const void *inputs[2] = {left->data, right->data};
    tutti_tensor *sum = NULL;
    const tutti_code code = tutti_tensor_new(left->space, &left->spec, false, &sum, err);

    if (code == TUTTI_OK) {
        tutti_reduce_run(TUTTI_REDUCE_SUM, left->spec.dtype, inputs, 2, NULL,
                         tutti_spec_count(&left->spec), sum->data);
        *ret_sum = sum;
    }
    tutti_tensor_unref(left);
    tutti_tensor_unref(right);
    return code;
}

/*
 * The gradient that was there first is the left operand, so the order of a sum is the order in
 * which gradients came. That order may differ between runs where nodes of different groups end in
 * another order, and floats may then round differently in the last place.
 */
tutti_code
tutti_tape_add_gradient(tutti_tape_var *var, tutti_tensor *gradient, bool shared, tutti_error *err)
{
    tutti_tensor *before = var->gradient;
    const void *inputs[2];

    if (before == NULL) {
        var->gradient = gradient;
        var->shared = shared;
        return TUTTI_OK;
    }
    assert(before->bytes == gradient->bytes && before->spec.dtype == gradient->spec.dtype);
    if (var->shared) {
        var->gradient = NULL;
        var->shared = false;
        return add_up(before, gradient, &var->gradient, err);
    }
    inputs[0] = before->data;
    inputs[1] = gradient->data;
    tutti_reduce_run(TUTTI_REDUCE_SUM, before->spec.dtype, inputs, 2, NULL,
                     tutti_spec_count(&before->spec), before->data);
    tutti_tensor_unref(gradient);
    return TUTTI_OK;
}

static void
drop_gradient(tutti_tape_var *var)
{
    if (var != NULL) {
        tutti_tensor_unref(var->gradient);
        var->gradient = NULL;
        var->shared = false;
    }
}

void
tutti_tape_drop_gradients(tutti_tape *tape)
{
    tutti_list_node *link;

    for (link = tape->leaves.next; link != &tape->leaves; link = link->next) {
        drop_gradient(tutti_container_of(link, tutti_tape_var, leaf));
    }
    for (link = tape->records.next; link != &tape->records; link = link->next) {
        tutti_tape_record *record = tutti_container_of(link, tutti_tape_record, link);

        drop_gradient(record->in);
        drop_gradient(record->out);
        record->node = NULL;
    }
}
