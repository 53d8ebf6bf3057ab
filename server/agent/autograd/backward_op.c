/*
 * The ops of one node of a Backward. Control loop; their ends come by on_op_end, as tasks.
 *
 * A collective is two ops. First the ranks agree: an all-reduce by MAX of three 64-bit words says
 * whether all go back through the same recorded op and whether any rank has a gradient. Then, if
 * one has, the gradient op runs, and ranks without a gradient give zeros. Both ops have their
 * numbers in the group like any other, so a rank that fails between them refuses the second one and
 * the others hear of it.
 *
 * A message is one op: the receiver of the recorded message sends the gradient back. No bytes say
 * that there is none.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/autograd/backward_private.h"
#include "server/agent/autograd/grad_op.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/op/group.h"
#include "server/agent/op/op.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"

/*
 * Number of the recorded op, and the tensor of it, as one word. More than an op has parts, so words
 * of two ops differ.
 */
#define PARTS (2 * (uint64_t)TUTTI_COLL_LIST_MAX) /* more than an op has */

/* The words that the ranks agree on: of each, the greatest of all ranks. */
enum {
    WORD_SEQUENCE, /* of the recorded op, and which tensor of it */
    WORD_REVERSED, /* its complement: so the least is known too */
    WORD_ANY,      /* 1 = there is a gradient */
    WORD_COUNT,
};

/*
 * sequence * PARTS + part: a sequence number of 64 bits would overflow at 2^64 / PARTS ops of a
 * group, which no group reaches.
 */
static uint64_t
number_of(const tutti_tape_record *record)
{
    return record->sequence * PARTS + record->part;
}

static tutti_tensor *
gradient_of(const grad_node *node)
{
    return node->record->out == NULL ? NULL : node->record->out->gradient;
}

/*
 * A zeroed tensor in host memory: for the words of an agreement, or the empty message that says
 * that there is no gradient.
 */
static tutti_code
new_tensor(const grad_node *node, const tutti_spec *spec, tutti_tensor **ret, tutti_error *err)
{
    return tutti_tensor_new(node->backward->agent->space, spec, true, ret, err);
}

/* ------------------------------------------------------------------------------ ops */

static void on_op_end(agent_op *op);

static agent_op *
new_op(grad_node *node, agent_group *group, tutti_error *err)
{
    agent_op *op = agent_backward_op(node->backward, group, on_op_end, node);

    if (op == NULL) {
        (void)TUTTI_FAIL_MEMORY(err, "no memory for a dual op");
        return NULL;
    }
    op->out_inline = true;
    return op;
}

/*
 * `follows`: this op is begun because the pass's op before it in the group has succeeded here. If
 * that one failed elsewhere, by time or by its caller, this one fails too, instead of waiting for
 * ranks that will not call it.
 */
static void
launch_node(grad_node *node, agent_op *op, tutti_tensor *input)
{
    op->inline_in = input;
    node->op = op;
    op->op.follows = node->queue->went_on;
    node->queue->went_on = true;
    node->backward->flying++;
    node->queue->flying++;
    agent_op_launch(op);
}

/*
 * The group as it was when the op was recorded: another id or epoch means other members, or another
 * count of ops, and the gradient would go to the wrong ranks. A message may have let go of its
 * place; then the group is looked for by name.
 */
static tutti_code
find_group(const grad_node *node, agent_group **ret_group, tutti_error *err)
{
    const tutti_tape_record *record = node->record;
    agent_group *group;

    if (node->backward->agent->engine == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "STOPPING", "this agent is stopping");
    }
    group = node->queue->slot != NULL ? node->queue->group
                                      : agent_group_of(node->backward->agent, record->group, err);

    if (group == NULL) {
        return err->code;
    }
    if (group->coll == NULL || tutti_coll_group_id(group->coll) != record->group_id ||
        group->epoch != record->epoch) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_FAILED_PRECONDITION, "TAPE_STALE",
            "group %s has changed since its op %" PRIu64
            " was recorded on tracer %s: clear the tracer and record the ops again",
            record->group, record->sequence, record->tape->name);
    }
    *ret_group = group;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ agreeing */

/*
 * The complement of the number travels beside it: the greatest of the complements is the complement
 * of the least number, so one MAX gives both ends.
 */
static tutti_code
agree_on_node(grad_node *node, agent_group *group, tutti_error *err)
{
    const tutti_spec spec = {.dtype = TUTTI_DTYPE_UINT64, .dim_count = 1, .dims = {WORD_COUNT}};
    tutti_tensor *words = NULL;
    agent_op *op;
    uint64_t *word;

    if (new_tensor(node, &spec, &words, err) != TUTTI_OK) {
        return err->code;
    }
    op = new_op(node, group, err);
    if (op == NULL) {
        tutti_tensor_unref(words);
        return err->code;
    }
    word = words->data;
    word[WORD_SEQUENCE] = number_of(node->record);
    word[WORD_REVERSED] = ~number_of(node->record);
    word[WORD_ANY] = gradient_of(node) != NULL;
    op->op.args.kind = TUTTI_COLL_ALL_REDUCE;
    op->op.args.reduce = TUTTI_REDUCE_MAX;
    launch_node(node, op, words);
    return TUTTI_OK;
}

static tutti_code
read_agreement(grad_node *node, const agent_op *op, bool *ret_any, tutti_error *err)
{
    const uint64_t *word = op->inline_out->data;
    const uint64_t least = ~word[WORD_REVERSED];

    if (least != word[WORD_SEQUENCE]) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "TAPE_MISMATCH",
                              "group %s: the ranks have recorded different ops: one goes back "
                              "through op %" PRIu64 ", another through op %" PRIu64
                              ", this one through op %" PRIu64,
                              node->record->group, least / PARTS, word[WORD_SEQUENCE] / PARTS,
                              node->record->sequence);
    }
    node->agreed = true;
    *ret_any = word[WORD_ANY] != 0;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the gradient op */

/*
 * The gradient on the tape stays where it is: the op reads it and the pass may add to it no more,
 * as all readers of the result are over.
 */
static tutti_code
take_gradient(const grad_node *node, tutti_tensor **ret, tutti_error *err)
{
    tutti_tensor *gradient = gradient_of(node);

    if (gradient == NULL) {
        return tutti_tensor_new(node->record->space, &node->record->result, true, ret, err);
    }
    tutti_tensor_ref(gradient);
    *ret = gradient;
    return TUTTI_OK;
}

/*
 * `view`: the gradient op reads the gradient in the shape of the recorded op's result, which a
 * given output may not have. New results go to the space where the recorded op ran.
 */
static tutti_code
start_grad_op(grad_node *node, agent_group *group, tutti_error *err)
{
    tutti_tensor *input = NULL;
    tutti_coll_args args;
    bool gives = false;
    agent_op *op;

    tutti_grad_op_args(node->record, &args, &gives);
    if (gives && take_gradient(node, &input, err) != TUTTI_OK) {
        return err->code;
    }
    op = new_op(node, group, err);
    if (op == NULL) {
        tutti_tensor_unref(input);
        return err->code;
    }
    op->op.args = args;
    op->options.axis = (int32_t)args.axis;
    op->options.concat_axis = (int32_t)args.concat_axis;
    op->view = &node->record->result;
    op->space = node->record->space;
    launch_node(node, op, input);
    return TUTTI_OK;
}

/*
 * The gradient of a received tensor goes back to its sender. A message of zero bytes of uint8 says
 * that there is none; no gradient has that dtype.
 */
static tutti_code
start_send(grad_node *node, agent_group *group, tutti_error *err)
{
    const tutti_spec nothing = {.dtype = TUTTI_DTYPE_UINT8, .dim_count = 1, .dims = {0}};
    tutti_tensor *input = gradient_of(node);
    bool gives;
    agent_op *op;

    if (input != NULL) {
        tutti_tensor_ref(input);
    } else if (new_tensor(node, &nothing, &input, err) != TUTTI_OK) {
        return err->code;
    }
    op = new_op(node, group, err);
    if (op == NULL) {
        tutti_tensor_unref(input);
        return err->code;
    }
    tutti_grad_op_args(node->record, &op->op.args, &gives);
    op->out_inline = false;
    launch_node(node, op, input);
    return TUTTI_OK;
}

static tutti_code
start_recv(grad_node *node, agent_group *group, tutti_error *err)
{
    agent_op *op = new_op(node, group, err);
    bool gives;

    if (op == NULL) {
        return err->code;
    }
    tutti_grad_op_args(node->record, &op->op.args, &gives);
    op->space = node->record->space;
    launch_node(node, op, NULL);
    return TUTTI_OK;
}

/* A record of local_grad: the rank's own gradient alone counts, and nothing is agreed. */
static tutti_code
run_local(grad_node *node, tutti_error *err)
{
    tutti_tensor *gradient = gradient_of(node);

    if (gradient == NULL || node->record->in == NULL) {
        agent_backward_node_over(node);
        return TUTTI_OK;
    }
    tutti_tensor_ref(gradient);
    return agent_backward_take_gradient(node, gradient, err);
}

tutti_code
agent_backward_node_start(grad_node *node, tutti_error *err)
{
    agent_group *group = NULL;

    if (node->queue == NULL) {
        return run_local(node, err);
    }
    TUTTI_TRY(find_group(node, &group, err));
    if (node->record->args.kind == TUTTI_COLL_RECV) {
        return start_send(node, group, err);
    }
    return node->record->args.kind == TUTTI_COLL_SEND ? start_recv(node, group, err)
                                                      : agree_on_node(node, group, err);
}

/* ------------------------------------------------------------------------------ their ends */

/*
 * The bytes are the gradient's in the input's order; only the dimensions may differ (a flat
 * result).
 */
static tutti_code
take_result(grad_node *node, tutti_tensor *gradient, tutti_error *err)
{
    const tutti_spec *spec = &node->record->in->spec;

    if (gradient->spec.dtype != spec->dtype ||
        tutti_spec_count(&gradient->spec) != tutti_spec_count(spec)) {
        char got[128];
        char out_grad[128];
        tutti_text got_text = tutti_text_in(got, sizeof(got));
        tutti_text want_text = tutti_text_in(out_grad, sizeof(out_grad));

        tutti_spec_describe(&gradient->spec, &got_text);
        tutti_spec_describe(spec, &want_text);
        tutti_tensor_unref(gradient);
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SHAPE_MISMATCH",
                              "the ranks gave a gradient of %s for a tensor of %s, need the same",
                              got, out_grad);
    }
    gradient->spec = *spec; /* as many bytes */
    return agent_backward_take_gradient(node, gradient, err);
}

static bool
says_nothing(const grad_node *node, const tutti_tensor *result)
{
    return result == NULL || node->record->in == NULL ||
           (node->record->args.kind == TUTTI_COLL_SEND && result->bytes == 0 &&
            result->spec.dtype == TUTTI_DTYPE_UINT8);
}

static tutti_code
end_grad_op(grad_node *node, agent_op *op, tutti_error *err)
{
    tutti_tensor *result = op->inline_out;

    if (node->backward->failed || says_nothing(node, result)) {
        agent_backward_node_over(node);
        return TUTTI_OK;
    }
    op->inline_out = NULL; /* ours now */
    return take_result(node, result, err);
}

/*
 * Ranks whose tapes differ find that out here, all of them at the same op and with the same words,
 * so `told`: nobody has to be told by a refused op.
 */
static tutti_code
end_agreement(grad_node *node, const agent_op *op, tutti_error *err)
{
    bool any = false;
    tutti_code code = read_agreement(node, op, &any, err);
    agent_group *group = NULL;

    if (code != TUTTI_OK) {
        node->queue->told = true;
        return code;
    }
    if (!any) {
        agent_backward_node_over(node);
        return TUTTI_OK;
    }
    /* The others go on to the gradient op: agent_backward_fail_queues refuses it. */
    if (node->backward->failed) {
        return TUTTI_OK;
    }
    code = find_group(node, &group, err);
    return code == TUTTI_OK ? start_grad_op(node, group, err) : code;
}

/*
 * An op of the node has ended. Its group knows of a failed collective, since all ranks got its
 * error; of a failed message only its two ranks know, so the group has to be told.
 */
static void
on_op_end(agent_op *op)
{
    grad_node *node = op->owner;
    agent_backward_pass *backward = node->backward;
    const bool message = op->op.args.kind == TUTTI_COLL_SEND || op->op.args.kind == TUTTI_COLL_RECV;
    tutti_error err;
    tutti_code code;

    node->op = NULL;
    backward->flying--;
    node->queue->flying--;
    if (op->failed) {
        agent_backward_fail(backward, &op->err, message ? NULL : node->queue);
    } else {
        code =
            node->agreed || message ? end_grad_op(node, op, &err) : end_agreement(node, op, &err);
        if (code != TUTTI_OK) {
            agent_backward_fail(backward, &err, NULL);
        }
    }
    agent_backward_post(backward);
}
