/* What a Backward takes and gives: gradients by handle. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/autograd/backward.h"
#include "server/agent/autograd/backward_private.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/device_copy.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"

#define ARGS_MAX 1024

static tutti_code
check_count(size_t count, const char *what, tutti_error *err)
{
    if (count > ARGS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "GRADIENT_COUNT",
                              "%zu gradients %s, at most %d", count, what, ARGS_MAX);
    }
    return TUTTI_OK;
}

static void
on_granted(tutti_claim *claim)
{
    walk_seed *seed = tutti_container_of(claim, walk_seed, claim);

    seed->walk->claims_waiting--;
    agent_walk_post(seed->walk);
}

static tutti_code
claim_seed(agent_walk *walk, const agent_backward *request, size_t i, tutti_error *err)
{
    tutti_table *table = walk->agent->table;
    walk_seed *seed = &walk->seeds[i];
    tutti_table_info info;
    tutti_code code = tutti_table_stat(table, request->tensor_of(request->message, i), &info, err);

    if (code == TUTTI_OK) {
        code = tutti_table_want(table, &seed->claim, request->gradient_of(request->message, i),
                                false, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    seed->walk = walk;
    seed->tensor = info.number;
    seed->claim.loop = walk->agent->control;
    seed->claim.on_ready = on_granted;
    if (!tutti_table_claim(table, &seed->claim)) {
        walk->claims_waiting++;
    }
    return TUTTI_OK;
}

static tutti_code
make_want(agent_walk *walk, uint64_t tensor, walk_want *want, tutti_error *err)
{
    const tutti_claim *callers = &walk->as_op.claim;
    tutti_code code;

    memcpy(want->claim.owner, callers->owner, sizeof(want->claim.owner));
    want->claim.lease = callers->lease;
    code = tutti_table_make(walk->agent->table, &want->claim, "", err);
    want->tensor = tensor;
    if (code == TUTTI_OK) {
        want->made = true;
        want->gradient = tutti_table_number(&want->claim.uses[0]);
        want->claim.loop = walk->agent->control;
        (void)tutti_table_claim(walk->agent->table, &want->claim); /* nobody else knows it */
    }
    return code;
}

static tutti_code
want_named(agent_walk *walk, const agent_backward *request, tutti_error *err)
{
    tutti_table_info info;
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < request->wanted_count && code == TUTTI_OK; i++) {
        code = tutti_table_stat(walk->agent->table, request->wanted[i], &info, err);
        if (code == TUTTI_OK) {
            code = make_want(walk, info.number, &walk->wants[i], err);
        }
    }
    return code;
}

static tutti_code
want_leaves(agent_walk *walk, tutti_error *err)
{
    const tutti_link *leaves = &walk->tape->leaves;
    const tutti_link *link;
    tutti_code code = TUTTI_OK;
    size_t i = 0;

    for (link = leaves->next; link != leaves && code == TUTTI_OK; link = link->next) {
        code = make_want(walk, tutti_container_of(link, tutti_tape_var, leaf)->tensor,
                         &walk->wants[i++], err);
    }
    return code;
}

tutti_code
agent_walk_take(agent_walk *walk, const agent_backward *request, tutti_error *err)
{
    const bool named = request->wanted_count > 0;
    tutti_code code = check_count(request->seed_count, "given", err);
    size_t i;

    if (code == TUTTI_OK) {
        code = check_count(request->wanted_count, "wanted", err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    walk->seed_count = request->seed_count;
    walk->want_count = named ? request->wanted_count : walk->tape->leaf_count;
    walk->seeds = calloc(walk->seed_count + 1, sizeof(walk->seeds[0]));
    walk->wants = calloc(walk->want_count + 1, sizeof(walk->wants[0]));
    if (walk->seeds == NULL || walk->wants == NULL) {
        walk->seed_count = 0;
        walk->want_count = 0;
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for gradients");
    }
    code = named ? want_named(walk, request, err) : want_leaves(walk, err);
    for (i = 0; i < walk->seed_count && code == TUTTI_OK; i++) {
        code = claim_seed(walk, request, i, err);
    }
    return code;
}

/* ------------------------------------------------------------------------------ starting */

static tutti_code
find_var(const agent_walk *walk, uint64_t tensor, bool leaf_first, tutti_tape_var **ret,
         tutti_error *err)
{
    tutti_tape_var *leaf = tutti_tape_leaf_of(walk->tape, tensor);
    tutti_tape_var *now = tutti_tape_var_of(walk->tape, tensor);
    char handle[TUTTI_TABLE_HANDLE_SIZE];

    *ret = leaf_first ? leaf : now;
    if (*ret == NULL) {
        *ret = leaf_first ? now : leaf;
    }
    if (*ret == NULL) {
        tutti_table_handle_of(walk->agent->table, tensor, handle);
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_ON_TAPE",
                              "tracer %s knows nothing of %s: attach it before it is used",
                              walk->tape->name, handle);
    }
    return TUTTI_OK;
}

static tutti_code
check_gradient(const tutti_tape_var *var, const tutti_tensor *gradient, tutti_error *err)
{
    const tutti_spec *spec = &gradient->spec;

    if (var->space != gradient->space) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DEVICE_MISMATCH",
                              "a gradient is on %s, its tensor on %s: Copy it there with `device`",
                              tutti_space_device(gradient->space), tutti_space_device(var->space));
    }
    if (var->spec.dtype != spec->dtype) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DTYPE_MISMATCH",
                              "a gradient is %s, its tensor %s", tutti_dtype_name(spec->dtype),
                              tutti_dtype_name(var->spec.dtype));
    }
    if (!tutti_spec_same_shape(&var->spec, spec)) {
        char got[256];
        char want[256];
        tutti_text got_text = tutti_text_in(got, sizeof(got));
        tutti_text want_text = tutti_text_in(want, sizeof(want));

        tutti_spec_describe(spec, &got_text);
        tutti_spec_describe(&var->spec, &want_text);
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SHAPE_MISMATCH",
                              "a gradient is %.80s, its tensor %.80s", got, want);
    }
    return TUTTI_OK;
}

tutti_code
agent_walk_take_seeds(agent_walk *walk, tutti_error *err)
{
    tutti_table *table = walk->agent->table;
    tutti_code code = TUTTI_OK;
    tutti_tape_var *var = NULL;
    size_t i;

    for (i = 0; i < walk->want_count && code == TUTTI_OK; i++) {
        code = find_var(walk, walk->wants[i].tensor, true, &var, err);
    }
    for (i = 0; i < walk->seed_count && code == TUTTI_OK; i++) {
        const tutti_use *use = &walk->seeds[i].claim.uses[0];
        tutti_tensor *gradient = tutti_table_tensor(table, use);

        code = tutti_table_check(table, use, err);
        if (code == TUTTI_OK) {
            code = find_var(walk, walk->seeds[i].tensor, false, &var, err);
        }
        if (code == TUTTI_OK) {
            code = check_gradient(var, gradient, err);
        }
        if (code == TUTTI_OK) {
            tutti_tensor_ref(gradient);
            code = agent_walk_take_given(walk, var, gradient, err);
        }
    }
    return code;
}

/* ------------------------------------------------------------------------------ ending */

static void
on_copied(agent_posted_move *posted, const tutti_error *err)
{
    walk_want *want = tutti_container_of(posted, walk_want, posted);

    want->walk->flying--;
    if (err != NULL) {
        agent_walk_fail(want->walk, err, NULL);
    }
    agent_walk_post(want->walk);
}

static void
copy(walk_want *want, tutti_tensor *from)
{
    if (tutti_tensor_is_host(from)) {
        memcpy(want->own->data, from->data, (size_t)from->bytes);
    } else if (from->bytes > 0) {
        want->walk->flying++;
        tutti_move_copy(agent_posted_move_of(&want->posted, want->walk->agent->control, on_copied),
                        from, want->own);
    }
}

/* Bytes that nobody else has. */
static tutti_code
own(walk_want *want, tutti_tape_var *var, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (var->shared) {
        code = tutti_tensor_new(var->gradient->space, &var->spec, false, &want->own, err);
        if (code == TUTTI_OK) {
            copy(want, var->gradient);
        }
        return code;
    }
    tutti_tensor_ref(var->gradient);
    want->own = var->gradient;
    var->shared = true;
    return code;
}

tutti_code
agent_walk_own(agent_walk *walk, tutti_error *err)
{
    tutti_tape_var *var = NULL;
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < walk->want_count && code == TUTTI_OK; i++) {
        walk->wants[i].walk = walk;
        code = find_var(walk, walk->wants[i].tensor, true, &var, err);
        if (code == TUTTI_OK && var->gradient != NULL) {
            code = own(&walk->wants[i], var, err);
        }
    }
    return code;
}

void
agent_walk_give(agent_walk *walk)
{
    size_t i;

    for (i = 0; i < walk->want_count; i++) {
        walk_want *want = &walk->wants[i];

        if (want->own != NULL) {
            tutti_table_fill(walk->agent->table, &want->claim.uses[0], want->own);
            want->own = NULL;
            want->found = true;
        }
    }
}

static void
drop_want(agent_walk *walk, walk_want *want)
{
    tutti_table *table = walk->agent->table;

    tutti_tensor_unref(want->own);
    want->own = NULL;
    if (!want->made) {
        return;
    }
    if (walk->failed && walk->work != NULL) {
        tutti_table_mark(table, &want->claim.uses[0], &walk->err);
    } else if (walk->failed || !want->found) {
        tutti_table_drop_new(table, &want->claim.uses[0]);
    }
    tutti_table_release(table, &want->claim);
}

void
agent_walk_drop_args(agent_walk *walk)
{
    size_t i;

    for (i = 0; i < walk->want_count; i++) {
        drop_want(walk, &walk->wants[i]);
    }
    for (i = 0; i < walk->seed_count; i++) {
        tutti_table_release(walk->agent->table, &walk->seeds[i].claim);
    }
}

agent_gradient *
agent_walk_describe(const agent_walk *walk)
{
    agent_gradient *gradients = calloc(walk->want_count + 1, sizeof(*gradients));
    size_t i;

    for (i = 0; i < walk->want_count && gradients != NULL; i++) {
        const walk_want *want = &walk->wants[i];
        const tutti_tensor *tensor = tutti_table_tensor(walk->agent->table, &want->claim.uses[0]);

        tutti_table_handle_of(walk->agent->table, want->tensor, gradients[i].tensor);
        if (want->found || walk->call == NULL) { /* of an async one: a promise */
            tutti_table_handle(&want->claim.uses[0], gradients[i].gradient);
        }
        if (tensor != NULL) {
            gradients[i].has_spec = true;
            gradients[i].spec = tensor->spec;
        }
    }
    return gradients;
}
