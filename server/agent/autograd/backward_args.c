/*
 * What a Backward takes and gives: gradients by handle. Control loop.
 *
 * Each given gradient has a shared lock from the call to the end of the pass. Each wanted one has a
 * new entry with an exclusive lock, so that an async caller may name it at once and a call on it
 * waits. Locks may come in any order and are counted in lock_sets_waiting. They cannot close a
 * circle: new entries are nobody else's, and readers wait only for calls that came before.
 */
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
check_grad_args_count(size_t count, const char *what, tutti_error *err)
{
    if (count > ARGS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "GRADIENT_COUNT",
                              "%zu gradients %s, at most %d", count, what, ARGS_MAX);
    }
    return TUTTI_OK;
}

static void
on_granted(tutti_lock_set *lock_set)
{
    grad_in *in_grad = tutti_container_of(lock_set, grad_in, lock_set);

    in_grad->backward->lock_sets_waiting--;
    agent_backward_post(in_grad->backward);
}

/*
 * The tensor itself is only looked up, without a lock: its number is all that a tape knows of it.
 */
static tutti_code
lock_grad_in(agent_backward_pass *backward, const agent_backward *request, size_t i,
             tutti_error *err)
{
    tutti_table *table = backward->agent->table;
    grad_in *in_grad = &backward->grads_in[i];
    tutti_table_info info;
    tutti_code code = tutti_table_stat(table, request->tensor_of(request->message, i), &info, err);

    if (code == TUTTI_OK) {
        code = tutti_table_lock_by_name(table, &in_grad->lock_set,
                                        request->gradient_of(request->message, i), false, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    in_grad->backward = backward;
    in_grad->tensor = info.number;
    in_grad->lock_set.loop = backward->agent->control;
    in_grad->lock_set.on_ready = on_granted;
    if (!tutti_table_acquire(table, &in_grad->lock_set)) {
        backward->lock_sets_waiting++;
    }
    return TUTTI_OK;
}

/* A new entry, which nobody else knows, is granted at once. */
static tutti_code
make_grad_out(agent_backward_pass *backward, uint64_t tensor, grad_out *out_grad, tutti_error *err)
{
    const tutti_lock_set *callers = &backward->as_op.lock_set;
    tutti_code code;

    memcpy(out_grad->lock_set.owner, callers->owner, sizeof(out_grad->lock_set.owner));
    out_grad->lock_set.lease = callers->lease;
    code = tutti_table_create_locked(backward->agent->table, &out_grad->lock_set, "", err);
    out_grad->tensor = tensor;
    if (code == TUTTI_OK) {
        out_grad->made = true;
        out_grad->gradient = tutti_table_number(&out_grad->lock_set.locks[0]);
        out_grad->lock_set.loop = backward->agent->control;
        (void)tutti_table_acquire(backward->agent->table,
                                  &out_grad->lock_set); /* nobody else knows it */
    }
    return code;
}

static tutti_code
lock_named(agent_backward_pass *backward, const agent_backward *request, tutti_error *err)
{
    tutti_table_info info;
    size_t i;

    for (i = 0; i < request->wanted_count; i++) {
        TUTTI_TRY(tutti_table_stat(backward->agent->table, request->wanted[i], &info, err));
        TUTTI_TRY(make_grad_out(backward, info.number, &backward->grads_out[i], err));
    }
    return TUTTI_OK;
}

static tutti_code
lock_leaves(agent_backward_pass *backward, tutti_error *err)
{
    const tutti_list_node *leaves = &backward->tape->leaves;
    const tutti_list_node *link;
    size_t i = 0;

    for (link = leaves->next; link != leaves; link = link->next) {
        TUTTI_TRY(make_grad_out(backward, tutti_container_of(link, tutti_tape_var, leaf)->tensor,
                                &backward->grads_out[i++], err));
    }
    return TUTTI_OK;
}

/*
 * Zeroed arrays with one element more: calloc(0) may return NULL. On failure, what was made so far
 * stays in them, and agent_backward_drop_args lets go of it.
 */
tutti_code
agent_backward_take(agent_backward_pass *backward, const agent_backward *request, tutti_error *err)
{
    const bool named = request->wanted_count > 0;
    size_t i;

    TUTTI_TRY(check_grad_args_count(request->grad_in_count, "given", err));
    TUTTI_TRY(check_grad_args_count(request->wanted_count, "wanted", err));
    backward->grad_in_count = request->grad_in_count;
    backward->grad_out_count = named ? request->wanted_count : backward->tape->leaf_count;
    backward->grads_in = calloc(backward->grad_in_count + 1, sizeof(backward->grads_in[0]));
    backward->grads_out = calloc(backward->grad_out_count + 1, sizeof(backward->grads_out[0]));
    if (backward->grads_in == NULL || backward->grads_out == NULL) {
        backward->grad_in_count = 0;
        backward->grad_out_count = 0;
        return TUTTI_FAIL_MEMORY(err, "no memory for gradients");
    }
    TUTTI_TRY(named ? lock_named(backward, request, err) : lock_leaves(backward, err));
    for (i = 0; i < backward->grad_in_count; i++) {
        TUTTI_TRY(lock_grad_in(backward, request, i, err));
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ starting */

/*
 * A tensor may mean two variables: the leaf that was attached, and what an op has written there
 * since. A wanted gradient means the leaf first; a given one means what the tensor holds now.
 */
static tutti_code
find_var(const agent_backward_pass *backward, uint64_t tensor, bool leaf_first,
         tutti_tape_var **ret, tutti_error *err)
{
    tutti_tape_var *leaf = tutti_tape_leaf_of(backward->tape, tensor);
    tutti_tape_var *now = tutti_tape_var_of(backward->tape, tensor);
    char handle[TUTTI_TABLE_HANDLE_SIZE];

    *ret = leaf_first ? leaf : now;
    if (*ret == NULL) {
        *ret = leaf_first ? now : leaf;
    }
    if (*ret == NULL) {
        tutti_table_handle_of(backward->agent->table, tensor, handle);
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_ON_TAPE",
                              "tracer %s knows nothing of %s: attach it before it is used",
                              backward->tape->name, handle);
    }
    return TUTTI_OK;
}

/* A gradient has the shape of its tensor, dimensions included, and lies beside it. */
static tutti_code
check_gradient(const tutti_tape_var *var, const tutti_tensor *gradient, tutti_error *err)
{
    const tutti_spec *spec = &gradient->spec;

    if (var->space != gradient->space) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "DEVICE_MISMATCH",
            "a gradient is on %s, its tensor on %s: Copy the gradient there with `device`",
            tutti_space_device(gradient->space), tutti_space_device(var->space));
    }
    if (var->spec.dtype != spec->dtype) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DTYPE_MISMATCH",
                              "a gradient is %s, its tensor %s, need the same dtype",
                              tutti_dtype_name(spec->dtype), tutti_dtype_name(var->spec.dtype));
    }
    if (!tutti_spec_same_shape(&var->spec, spec)) {
        char got[256];
        char out_grad[256];
        tutti_text got_text = tutti_text_in(got, sizeof(got));
        tutti_text want_text = tutti_text_in(out_grad, sizeof(out_grad));

        tutti_spec_describe(spec, &got_text);
        tutti_spec_describe(&var->spec, &want_text);
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SHAPE_MISMATCH",
                              "a gradient is %.80s, its tensor %.80s, need the same shape", got,
                              out_grad);
    }
    return TUTTI_OK;
}

/*
 * First all wanted ones are looked for: a pass that cannot give what is asked fails before it adds
 * anything.
 */
tutti_code
agent_backward_take_grads_in(agent_backward_pass *backward, tutti_error *err)
{
    tutti_table *table = backward->agent->table;
    tutti_tape_var *var = NULL;
    size_t i;

    for (i = 0; i < backward->grad_out_count; i++) {
        TUTTI_TRY(find_var(backward, backward->grads_out[i].tensor, true, &var, err));
    }
    for (i = 0; i < backward->grad_in_count; i++) {
        const tutti_lock *lock = &backward->grads_in[i].lock_set.locks[0];
        tutti_tensor *gradient = tutti_table_tensor(table, lock);

        TUTTI_TRY(tutti_table_check(table, lock, err));
        TUTTI_TRY(find_var(backward, backward->grads_in[i].tensor, false, &var, err));
        TUTTI_TRY(check_gradient(var, gradient, err));
        tutti_tensor_ref(gradient);
        TUTTI_TRY(agent_backward_take_given(backward, var, gradient, err));
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ ending */

static void
on_copied(agent_posted_move *posted, const tutti_error *err)
{
    grad_out *out_grad = tutti_container_of(posted, grad_out, posted);

    out_grad->backward->flying--;
    if (err != NULL) {
        agent_backward_fail(out_grad->backward, err, NULL);
    }
    agent_backward_post(out_grad->backward);
}

static void
copy_grad_args(grad_out *out_grad, tutti_tensor *from)
{
    if (tutti_tensor_is_host(from)) {
        memcpy(out_grad->own->data, from->data, (size_t)from->bytes);
    } else if (from->bytes > 0) {
        out_grad->backward->flying++;
        tutti_move_copy(
            agent_posted_move_of(&out_grad->posted, out_grad->backward->agent->control, on_copied),
            from, out_grad->own);
    }
}

/*
 * Bytes that nobody else has. A tensor that is wanted twice, or that the caller gave, is copied;
 * else the pass's own is handed out, and counts as shared from then on.
 */
static tutti_code
own_grad_out(grad_out *out_grad, tutti_tape_var *var, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (var->shared) {
        code = tutti_tensor_new(var->gradient->space, &var->spec, false, &out_grad->own, err);
        if (code == TUTTI_OK) {
            copy_grad_args(out_grad, var->gradient);
        }
        return code;
    }
    tutti_tensor_ref(var->gradient);
    out_grad->own = var->gradient;
    var->shared = true;
    return code;
}

tutti_code
agent_backward_own(agent_backward_pass *backward, tutti_error *err)
{
    tutti_tape_var *var = NULL;
    size_t i;

    for (i = 0; i < backward->grad_out_count; i++) {
        backward->grads_out[i].backward = backward;
        TUTTI_TRY(find_var(backward, backward->grads_out[i].tensor, true, &var, err));
        if (var->gradient != NULL) {
            TUTTI_TRY(own_grad_out(&backward->grads_out[i], var, err));
        }
    }
    return TUTTI_OK;
}

/* Without anything that can fail: the pass has succeeded on the other ranks. */
void
agent_backward_write_grads(agent_backward_pass *backward)
{
    size_t i;

    for (i = 0; i < backward->grad_out_count; i++) {
        grad_out *out_grad = &backward->grads_out[i];

        if (out_grad->own != NULL) {
            tutti_table_fill(backward->agent->table, &out_grad->lock_set.locks[0], out_grad->own);
            out_grad->own = NULL;
            out_grad->found = true;
        }
    }
}

/*
 * As settle_output in op.c: an async caller has the handle, so a failed gradient keeps its error; a
 * sync caller has none, so it is dropped. A variable without gradient has none to give: dropped
 * too.
 */
static void
drop_grad_out(agent_backward_pass *backward, grad_out *out_grad)
{
    tutti_table *table = backward->agent->table;

    tutti_tensor_unref(out_grad->own);
    out_grad->own = NULL;
    if (!out_grad->made) {
        return;
    }
    if (backward->failed && backward->work != NULL) {
        tutti_table_mark(table, &out_grad->lock_set.locks[0], &backward->err);
    } else if (backward->failed || !out_grad->found) {
        tutti_table_drop_new(table, &out_grad->lock_set.locks[0]);
    }
    tutti_table_release(table, &out_grad->lock_set);
}

void
agent_backward_drop_args(agent_backward_pass *backward)
{
    size_t i;

    for (i = 0; i < backward->grad_out_count; i++) {
        drop_grad_out(backward, &backward->grads_out[i]);
    }
    for (i = 0; i < backward->grad_in_count; i++) {
        tutti_table_release(backward->agent->table, &backward->grads_in[i].lock_set);
    }
}

agent_gradient *
agent_backward_describe(const agent_backward_pass *backward)
{
    agent_gradient *gradients = calloc(backward->grad_out_count + 1, sizeof(*gradients));
    size_t i;

    for (i = 0; i < backward->grad_out_count && gradients != NULL; i++) {
        const grad_out *out_grad = &backward->grads_out[i];
        const tutti_tensor *tensor =
            tutti_table_tensor(backward->agent->table, &out_grad->lock_set.locks[0]);

        tutti_table_handle_of(backward->agent->table, out_grad->tensor, gradients[i].tensor);
        if (out_grad->found || backward->call == NULL) { /* of an async one: a promise */
            tutti_table_handle(&out_grad->lock_set.locks[0], gradients[i].gradient);
        }
        if (tensor != NULL) {
            gradients[i].has_spec = true;
            gradients[i].spec = tensor->spec;
        }
    }
    return gradients;
}
