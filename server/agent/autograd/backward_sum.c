/*
 * What a Backward works out without communication: factors, masks, sums, gradients of local ops.
 * Control loop. In host memory it is done at once, and the loop does nothing else meanwhile.
 *
 * A gradient on a GPU that needs any of this goes through a grad_sum: the parts are copied to host
 * memory one after the other (there -> here), the work is done, and the result is copied back.
 * Copies end on a thread of the space and come back to the control loop as tasks (device_copy.h). A
 * grad_sum counts as `flying`, so the pass outlives it; it frees itself in end_grad_sum, which is
 * reached in every case: done, no memory, a failed copy, or a pass that has failed meanwhile.
 */
#include <stdlib.h>

#include "base/error/fail.h"
#include "coll/reduce/reduce.h"
#include "server/agent/autograd/backward_private.h"
#include "server/agent/autograd/grad_op.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/device_copy.h"
#include "tensor/space.h"

enum {
    PART_GRADIENT,
    PART_INPUT, /* input and, below, result of the op: for the mask */
    PART_RESULT,
    PART_BEFORE, /* the gradient that was there already */
    PART_COUNT,
};

/* A gradient that is fetched. */
typedef struct grad_sum {
    agent_backward_pass *backward;
    grad_node *node; /* NULL = it was given */
    tutti_tape_var *var;
    bool shared;                     /* the gradient must not be written */
    bool finished;                   /* the gradient op is: only sums are left */
    tutti_tensor *there[PART_COUNT]; /* [owned] on the device; NULL = not needed */
    tutti_tensor *here[PART_COUNT];  /* [owned] the same in host memory */
    uint32_t at;                     /* the part under way; PART_COUNT: back again */
    agent_posted_move posted;
    tutti_code code;
    tutti_error err;
} grad_sum;

/* ------------------------------------------------------------------------------ the end */

static void
drop_parts(grad_sum *self)
{
    uint32_t i;

    for (i = 0; i < PART_COUNT; i++) {
        tutti_tensor_unref(self->there[i]);
        tutti_tensor_unref(self->here[i]);
        self->there[i] = NULL;
        self->here[i] = NULL;
    }
}

/*
 * The ranks have run the gradient op, so for the others the node is over, also when the sum fails
 * here.
 */
static void
end_grad_sum(grad_sum *self)
{
    agent_backward_pass *backward = self->backward;
    grad_node *node = self->node;

    backward->flying--;
    if (node == NULL) {
        backward->adding--;
    } else {
        if (node->queue != NULL) {
            node->queue->flying--;
        }
        agent_backward_node_over(node);
    }
    if (self->code != TUTTI_OK) {
        agent_backward_fail(backward, &self->err, NULL);
    }
    drop_parts(self);
    free(self);
    agent_backward_post(backward);
}

/* ------------------------------------------------------------------------------ in host memory */

/*
 * The mask stays on the record, so a pass that keeps the tape makes it once; input and result are
 * not needed any more.
 */
static tutti_code
make_mask(grad_sum *self)
{
    tutti_tape_record *record = self->node->record;
    tutti_spec spec = record->made->spec;

    spec.dtype = TUTTI_DTYPE_BOOL;
    TUTTI_TRY(
        tutti_tensor_new(self->backward->agent->space, &spec, false, &record->mask, &self->err));
    tutti_grad_op_mask(&record->made->spec, self->here[PART_INPUT]->data,
                       self->here[PART_RESULT]->data, record->mask->data);
    tutti_tensor_unref(record->made);
    tutti_tensor_unref(record->kept);
    record->made = NULL;
    record->kept = NULL;
    return TUTTI_OK;
}

/*
 * Makes the gradient of the op's result that of its input. A local op makes a new tensor, since
 * shapes differ and the gradient may be shared; else it works in place, on what the gradient op has
 * made.
 */
static tutti_code
work_out(const tutti_tape_record *record, tutti_space *space, tutti_tensor **gradient,
         tutti_error *err)
{
    tutti_tensor *result = NULL;

    if (!record->local) {
        tutti_grad_op_finish(record, *gradient);
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_tensor_new(space, &record->in->spec, true, &result, err));
    tutti_grad_op_local(record, *gradient, result);
    tutti_tensor_unref(*gradient);
    *gradient = result;
    return TUTTI_OK;
}

/*
 * Once: when the sum begins anew with a second gradient, factor and mask must not be applied again.
 */
static tutti_code
finish_grad_op(grad_sum *self)
{
    if (self->finished) {
        return TUTTI_OK;
    }
    self->finished = true;
    if (self->here[PART_INPUT] != NULL) {
        TUTTI_TRY(make_mask(self));
    }
    return work_out(self->node->record, self->backward->agent->space, &self->here[PART_GRADIENT],
                    &self->err);
}

/*
 * The gradient that was there first comes first in the sum, as in host memory (tape_var.c), so both
 * round alike.
 */
static void
add_before(const grad_sum *self)
{
    tutti_tensor *gradient = self->here[PART_GRADIENT];
    const tutti_tensor *before = self->here[PART_BEFORE];
    const void *inputs[2];

    if (before != NULL) {
        inputs[0] = before->data;
        inputs[1] = gradient->data;
        tutti_reduce_run(TUTTI_REDUCE_SUM, gradient->spec.dtype, inputs, 2, NULL,
                         tutti_spec_count(&gradient->spec), gradient->data);
    }
}

/* ------------------------------------------------------------------------------ there and back */

static void resume_grad_sum(grad_sum *self);
static void begin_grad_sum(grad_sum *self);

static void
on_moved(agent_posted_move *posted, const tutti_error *err)
{
    grad_sum *self = tutti_container_of(posted, grad_sum, posted);

    if (err != NULL) {
        self->code = tutti_error_pass(&self->err, err);
    }
    if (self->code != TUTTI_OK || self->backward->failed) {
        end_grad_sum(self);
        return;
    }
    self->at++;
    resume_grad_sum(self);
}

static void
copy_grad_in(grad_sum *self, tutti_tensor *from, tutti_tensor *to)
{
    tutti_move_copy(agent_posted_move_of(&self->posted, self->backward->agent->control, on_moved),
                    from, to);
}

static tutti_code
fetch_grad_sum(grad_sum *self)
{
    return tutti_tensor_new(self->backward->agent->space, &self->there[self->at]->spec, false,
                            &self->here[self->at], &self->err);
}

/*
 * Into the gradient's own memory, where that is ours and as large; a shared one belongs to the
 * caller.
 */
static tutti_code
bring_back(grad_sum *self)
{
    tutti_tensor **there = &self->there[PART_GRADIENT];
    tutti_space *space = (*there)->space;

    TUTTI_TRY(finish_grad_op(self));

    add_before(self);
    if (self->shared || (*there)->bytes != self->here[PART_GRADIENT]->bytes) {
        tutti_tensor_unref(*there);
        *there = NULL;
        TUTTI_TRY(tutti_tensor_new(space, &self->var->spec, false, there, &self->err));
    }
    return TUTTI_OK;
}

/*
 * The result is on the device again. Another node may have put a gradient on the variable while
 * copies ran; then the sum begins anew with both, as sums in host memory are the only ones that
 * exist.
 */
static void
settle_grad_sum(grad_sum *self)
{
    tutti_tensor *gradient = self->there[PART_GRADIENT];

    gradient->spec = self->var->spec;
    self->there[PART_GRADIENT] = NULL;
    drop_parts(self);
    if (self->var->gradient != NULL) {
        self->there[PART_GRADIENT] = gradient;
        self->shared = false;
        begin_grad_sum(self);
        return;
    }
    self->code = tutti_tape_add_gradient(self->var, gradient, false, &self->err);
    end_grad_sum(self);
}

/*
 * `at` counts the parts, then PART_COUNT is the work and the way back, and PART_COUNT + 1 its end.
 * Tensors without elements are not copied: a move of zero bytes has no meaning to a space.
 */
static void
resume_grad_sum(grad_sum *self)
{
    for (; self->at < PART_COUNT; self->at++) {
        if (self->there[self->at] == NULL) {
            continue;
        }
        self->code = fetch_grad_sum(self);
        if (self->code != TUTTI_OK) {
            end_grad_sum(self);
            return;
        }
        if (self->there[self->at]->bytes > 0) {
            copy_grad_in(self, self->there[self->at], self->here[self->at]);
            return;
        }
    }
    if (self->at > PART_COUNT) {
        settle_grad_sum(self);
        return;
    }
    self->code = bring_back(self);
    if (self->code != TUTTI_OK) {
        end_grad_sum(self);
    } else if (self->there[PART_GRADIENT]->bytes == 0) {
        settle_grad_sum(self);
    } else {
        copy_grad_in(self, self->here[PART_GRADIENT], self->there[PART_GRADIENT]);
    }
}

/*
 * Takes the gradient that is there off the variable: while copies run, others that come find none
 * and do not add to it.
 */
static void
begin_grad_sum(grad_sum *self)
{
    const tutti_tape_record *record = self->node == NULL ? NULL : self->node->record;

    self->there[PART_BEFORE] = self->var->gradient;
    self->var->gradient = NULL;
    self->var->shared = false;
    if (!self->finished && record->made != NULL) {
        self->there[PART_INPUT] = record->kept;
        self->there[PART_RESULT] = record->made;
        tutti_tensor_ref(record->kept);
        tutti_tensor_ref(record->made);
    }
    self->at = 0;
    resume_grad_sum(self);
}

/* ------------------------------------------------------------------------------ gradients */

static tutti_code
take_on_host(grad_node *node, tutti_tensor *gradient, tutti_error *err)
{
    const tutti_code code = work_out(node->record, node->backward->agent->space, &gradient, err);

    if (code != TUTTI_OK) {
        tutti_tensor_unref(gradient);
        return code;
    }
    return tutti_tape_add_gradient(node->record->in, gradient, false, err);
}

static tutti_code
start_grad_sum(agent_backward_pass *backward, grad_node *node, tutti_tape_var *var,
               tutti_tensor *gradient, bool shared, tutti_error *err)
{
    grad_sum *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        tutti_tensor_unref(gradient);
        return TUTTI_FAIL_MEMORY(err, "no memory to work out a gradient");
    }
    self->backward = backward;
    self->node = node;
    self->var = var;
    self->shared = shared;
    self->there[PART_GRADIENT] = gradient;
    backward->flying++;
    if (node == NULL) {
        self->finished = true;
        backward->adding++;
    } else {
        self->finished = tutti_grad_op_is_plain(node->record);
        if (node->queue != NULL) {
            node->queue->flying++;
        }
    }
    begin_grad_sum(self);
    return TUTTI_OK;
}

/* A gradient on a GPU that is plain and the first of its variable stays where it is. */
tutti_code
agent_backward_take_gradient(grad_node *node, tutti_tensor *gradient, tutti_error *err)
{
    tutti_tape_var *in = node->record->in;
    const bool local = node->record->local;

    if (!tutti_tensor_is_host(gradient) &&
        (in->gradient != NULL || !tutti_grad_op_is_plain(node->record))) {
        return start_grad_sum(node->backward, node, in, gradient, local, err);
    }
    TUTTI_TRY(tutti_tensor_is_host(gradient) ? take_on_host(node, gradient, err)
                                             : tutti_tape_add_gradient(in, gradient, false, err));
    agent_backward_node_over(node);
    return TUTTI_OK;
}

/*
 * `shared`: the caller's tensor, under a shared lock until the pass is over, so it must not be
 * written.
 */
tutti_code
agent_backward_take_given(agent_backward_pass *backward, tutti_tape_var *var,
                          tutti_tensor *gradient, tutti_error *err)
{
    if (!tutti_tensor_is_host(gradient) && var->gradient != NULL) {
        return start_grad_sum(backward, NULL, var, gradient, true, err);
    }
    return tutti_tape_add_gradient(var, gradient, true, err);
}
