/*
 * An op whose turn has come: its locks are granted and all ops before it have been given to the
 * engine. Everything that can be wrong on this rank alone (an unknown rank, shapes, devices,
 * memory) is found here, before the engine exchanges signatures; such an op is refused to the whole
 * group under its number (refuse_posted).
 *
 * Control loop, but for on_spec, which the engine calls when a receiver learns the shape.
 *
 * An op between agent_op_move(POSTED) and the return of tutti_coll_post may end inside the post, on
 * this thread: its on_done is called and `ended` posted before tutti_coll_post returns. The op
 * itself is freed by that task, so it may be read after the post; its results may not be changed.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/agent/op/answers.h"
#include "server/agent/op/check.h"
#include "server/agent/op/deadline.h"
#include "server/agent/op/list.h"
#include "server/agent/op/op.h"
#include "server/agent/op/post.h"
#include "server/agent/op/works.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/device.h"
#include "server/agent/state/group.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/op.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "tensor/space.h"

/*
 * Memory for a result that the op makes itself. Control loop, or the engine's thread by on_spec:
 * the table and the space have locks of their own.
 *
 * A message has a limit, and an inline result is checked against it before any byte is moved. The
 * ops of a Backward (on_end) keep their inline results in this process, so the limit is not theirs.
 */
static tutti_code
make_output(agent_op *op, const tutti_spec *spec, tutti_error *err)
{
    tutti_tensor *tensor = NULL;
    tutti_code code = TUTTI_OK;

    if (op->out_inline && op->on_end == NULL) {
        code = agent_check_inline(tutti_spec_bytes(spec), err);
    }
    if (code == TUTTI_OK) {
        code = tutti_tensor_new(op->space, spec, false, &tensor, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    op->op.output = tensor->data;
    if (op->out_inline) {
        tutti_tensor_mark(tensor, TUTTI_HOLDER_RESULT);
        op->inline_out = tensor;
    } else {
        tutti_table_fill(op->agent->table, op->out, tensor);
    }
    return TUTTI_OK;
}

/*
 * A receiver learns dtype and shape from the sender or root. The thread that runs the engine
 * (op.h). An error here refuses the op for the whole group: without memory at one receiver, no
 * rank's data has been touched yet.
 */
static tutti_code
on_spec(tutti_coll_op *engine_op, const tutti_spec *spec, tutti_error *err)
{
    agent_op *op = tutti_container_of(engine_op, agent_op, op);

    TUTTI_TRY(agent_check_expected(op->expects, op->expect_count, spec, 1, err));
    if (op->op.output == NULL) {
        return make_output(op, spec, err);
    }
    /*
     * A scatter's receiver gets a part, whose shape is known only now. Other receivers have put
     * their output's spec into their signature (take_destination), so the verdict has checked it.
     */
    if (op->op.args.kind == TUTTI_COLL_SCATTER) {
        return agent_check_output(&tutti_table_tensor(op->agent->table, op->out)->spec, spec, err);
    }
    return TUTTI_OK;
}

/* A rank of the job becomes a group rank. Linear: a caller states one rank for one op. */
static tutti_code
translate_rank(const agent_op *op, uint32_t *rank, const char *reason, tutti_error *err)
{
    const uint32_t *ranks = tutti_coll_group_ranks(op->group->coll);
    const uint32_t size = tutti_coll_group_size(op->group->coll);
    uint32_t i;

    for (i = 0; i < size; i++) {
        if (ranks[i] == *rank) {
            *rank = i;
            return TUTTI_OK;
        }
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, reason,
                          "rank %" PRId32 " is not in group %s", (int32_t)*rank, op->group->name);
}

/*
 * The rank that stands in our place in another block of consecutive group ranks: pipeline stages,
 * say, of which each has size / count ranks.
 */
static tutti_code
find_in_block(const agent_op *op, uint32_t *ret_peer, tutti_error *err)
{
    const uint32_t size = tutti_coll_group_size(op->group->coll);
    const uint32_t rank = tutti_coll_group_rank(op->group->coll);
    const uint32_t count = op->options.block_count;
    int64_t block;

    if (count == 0 || count > size || size % count != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "GROUP_SIZE",
                              "group_count %" PRIu32 " does not divide the %" PRIu32
                              " ranks of group %s",
                              count, size, op->group->name);
    }
    block = (int64_t)(rank / (size / count)) + op->options.block_offset;
    if (block < 0 || block >= count) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_NEXT_GROUP",
                              "rank %" PRIu32 " is in block %" PRIu32 " of %" PRIu32
                              " (the first is 0): there is no block %" PRId32 " further",
                              rank, rank / (size / count), count, op->options.block_offset);
    }
    *ret_peer = (uint32_t)block * (size / count) + rank % (size / count);
    return TUTTI_OK;
}

static tutti_code
translate_posted(agent_op *op, tutti_error *err)
{
    tutti_coll_args *args = &op->op.args;

    if (op->options.has_block) {
        return find_in_block(op, &args->peer, err);
    }
    if (!op->options.root_global) {
        return TUTTI_OK;
    }
    return agent_op_is_p2p(op) ? translate_rank(op, &args->peer, "RANK_NOT_IN_GROUP", err)
                               : translate_rank(op, &args->root, "BAD_ROOT", err);
}

/*
 * An input whose op has failed has no bytes: the op is refused with the error of the op that should
 * have written it, so the first cause travels through a chain of async ops.
 */
static tutti_code
take_input(agent_op *op, tutti_error *err)
{
    const tutti_tensor *tensor = op->inline_in;
    tutti_code code = TUTTI_OK;

    if (op->in != NULL) {
        code = tutti_table_check(op->agent->table, op->in, err);
        tensor = tutti_table_tensor(op->agent->table, op->in);
    }
    if (code == TUTTI_OK && tensor != NULL) {
        op->op.input = tensor->data;
        op->op.args.spec = op->view != NULL ? *op->view : tensor->spec;
        op->op.args.has_spec = true;
    }
    return code == TUTTI_OK ? agent_list_inputs(op, err) : code;
}

/*
 * A receiver that named its output insists on that shape: the spec goes into this rank's signature
 * with count_only, so the verdict compares dtype and element count, and dimensions may differ.
 */
static tutti_code
take_destination(agent_op *op, tutti_error *err)
{
    tutti_tensor *tensor;

    if (op->op.on_spec == NULL || op->out == NULL || op->out_is_new) {
        return TUTTI_OK;
    }
    tensor = tutti_table_tensor(op->agent->table, op->out);
    if (tensor == NULL) {
        return tutti_table_check(op->agent->table, op->out, err);
    }
    op->op.output = tensor->data;
    if (op->op.args.kind != TUTTI_COLL_SCATTER) { /* there it is a part: looked at when known */
        op->op.args.spec = tensor->spec;
        op->op.args.has_spec = true;
        op->op.args.count_only = true;
    }
    return TUTTI_OK;
}

/* Where the result goes: a stated output that can hold it, or new memory. */
static tutti_code
take_output(agent_op *op, const tutti_spec *result, tutti_error *err)
{
    tutti_tensor *tensor;

    TUTTI_TRY(agent_check_expected(op->expects, op->expect_count, result, 1, err));
    if (op->out_is_new || op->out_inline) {
        return make_output(op, result, err);
    }
    if (op->out == NULL) {
        return TUTTI_OK;
    }
    tensor = tutti_table_tensor(op->agent->table, op->out);
    if (tensor == NULL) {
        return tutti_table_check(op->agent->table, op->out, err);
    }
    TUTTI_TRY(agent_check_output(&tensor->spec, result, err));
    op->op.output = tensor->data;
    return TUTTI_OK;
}

/*
 * The root of a broadcast without an output: its input is the result. If the ranks of the group were
 * not known when the call came, a new output was made (is_known_root), which goes again; but not
 * that of an async op, whose caller has its handle already: the root then gets a copy.
 */
static void
let_input_stand(agent_op *op)
{
    if (op->out != NULL && op->out_is_new && op->in != NULL && !op->options.async &&
        !op->out_is_named) {
        tutti_table_drop_new(op->agent->table, op->out);
        op->out = NULL;
        op->out_is_new = false;
    }
    if (op->out == NULL) {
        op->out = op->in;
    }
}

/*
 * What a rank gives and gets depends on whether it is the root. Before the place is looked for:
 * what a receiver names as input is ignored, so its device does not count either.
 */
static void
take_role(agent_op *op)
{
    const tutti_coll_kind kind = op->op.args.kind;
    const bool root = op->op.args.root == tutti_coll_group_rank(op->group->coll);

    if (kind == TUTTI_COLL_RECV) {
        op->op.on_spec = on_spec;
    } else if (tutti_coll_is_from_root(kind) && !root) { /* what a receiver gives is ignored */
        op->op.on_spec = on_spec;
        op->op.input = NULL;
        op->op.args.has_spec = false;
    } else if (tutti_coll_is_to_root(kind) && !root) {
        op->no_result = true;
    } else if (kind == TUTTI_COLL_BROADCAST && !op->out_inline) {
        let_input_stand(op);
    }
}

/*
 * Fill `op->op`. The order is one of dependencies: ranks before roles, specs before axes, roles
 * before destinations, all tensors before the device, the device before memory for results, and
 * results before records, which name them.
 */
static tutti_code
prepare_posted(agent_op *op, tutti_error *err)
{
    tutti_coll_group *coll = op->group->coll;
    tutti_spec result = {0};
    tutti_code code = translate_posted(op, err);

    if (code == TUTTI_OK) {
        code = take_input(op, err);
    }
    if (code == TUTTI_OK && !op->op.args.coalesced && op->op.args.form != TUTTI_FORM_LIST) {
        code = agent_take_axes(&op->op.args, op->options.axis, op->options.concat_axis, err);
    }
    if (code == TUTTI_OK) {
        take_role(op);
        code = take_destination(op, err);
    }
    if (code == TUTTI_OK) {
        code = agent_op_find_place(op, err);
    }
    if (code == TUTTI_OK && tutti_coll_makes_list(&op->op.args)) {
        code = agent_list_results(op, err);
        return code == TUTTI_OK ? op->agent->hooks->record_list(op, err) : code;
    }
    if (code == TUTTI_OK) {
        code = tutti_coll_infer(&op->op.args, tutti_coll_group_size(coll),
                                tutti_coll_group_rank(coll), &result, err);
    }
    if (code == TUTTI_OK && op->op.on_spec == NULL && !op->no_result) {
        code = take_output(op, &result, err);
    }
    return code == TUTTI_OK ? op->agent->hooks->record_begin(op, &result, err) : code;
}

/*
 * An async op is answered when it has its place in the order, or with `done` when that is recorded:
 * handles and work id are valid from now on, although the tensors may have no shape yet. The answer is noted for repeats before it
 * leaves, so a caller that loses the answer and comes again finds it.
 */
void
agent_op_answer_async(agent_op *op)
{
    agent_op_result result = {.sequence = op->sequence};
    agent_output *outputs = agent_list_outputs(op, &result.output_count);

    result.outputs = outputs;
    if (op->out != NULL) {
        const tutti_tensor *tensor = tutti_table_tensor(op->agent->table, op->out);

        tutti_table_handle(op->out, result.handle);
        result.has_spec = tensor != NULL;
        result.spec = tensor != NULL ? tensor->spec : (tutti_spec){0};
    }
    agent_work_name(op->work, result.work);
    agent_answers_note(op, &result);
    agent_answers_settle(op);
    if (op->done != NULL) {
        tutti_rpc_call_set_user(op->call, NULL); /* the op may be gone before the call is */
    }
    op->answer(op->call, &result);
    free(outputs);
    tutti_rpc_call_unref(op->call);
    op->call = NULL;
}

/* A receive in place of one that was refused: it refuses what it gets. */
typedef struct refused_recv {
    tutti_coll_op op;
    tutti_error why;
} refused_recv;

static tutti_code
on_refused_spec(tutti_coll_op *op, const tutti_spec *spec, tutti_error *err)
{
    const refused_recv *self = tutti_container_of(op, refused_recv, op);

    (void)spec;
    return tutti_error_pass(err, &self->why);
}

static void
on_refused_done(tutti_coll_op *op, const tutti_error *err)
{
    (void)op; /* its caller has been told */
    (void)err;
}

static void
on_refused_released(tutti_coll_op *op)
{
    free(tutti_container_of(op, refused_recv, op));
}

/* Without memory the sender waits until its deadline. */
static void
post_refused_recv(const agent_op *op, const tutti_error *why)
{
    refused_recv *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return;
    }
    self->op.args = (tutti_coll_args){
        .kind = TUTTI_COLL_RECV, .peer = op->op.args.peer, .tag = op->op.args.tag};
    self->op.deadline_ns = op->deadline_ns;
    self->op.on_spec = on_refused_spec;
    self->op.on_done = on_refused_done;
    self->op.on_released = on_refused_released;
    (void)TUTTI_FAIL_FOR(&self->why, why->code, why->reason,
                         "group %s tag %" PRIu32 ": rank %" PRIu32 " could not receive: %.700s",
                         op->group->name, op->op.args.tag, op->agent->rank, why->text);
    self->why.rank = (int32_t)op->agent->rank;
    if (tutti_coll_post(op->group->coll, &self->op, 0, NULL) != TUTTI_OK) {
        free(self);
    }
}

/* The other end of a message that was refused here hears why, if it is known who that is. */
static void
tell_peer(agent_op *op, const tutti_error *why)
{
    tutti_coll_args *args = &op->op.args;
    const uint32_t size = tutti_coll_group_size(op->group->coll);
    const bool any = args->kind == TUTTI_COLL_RECV && args->peer == TUTTI_COLL_ANY_SOURCE;

    if (op->options.root_global || translate_posted(op, NULL) != TUTTI_OK ||
        (!any && (args->peer >= size || args->peer == tutti_coll_group_rank(op->group->coll)))) {
        return;
    }
    if (args->kind == TUTTI_COLL_SEND) {
        tutti_coll_refuse_send(op->group->coll, args->peer, args->tag, why);
    } else {
        post_refused_recv(op, why);
    }
}

/*
 * The group counts the refused op, and the others get its error under that number
 * (docs/decisions/0002). A send or receive has no number, and no other rank counts it: only its
 * caller is told, unless he wants the other end to know.
 */
static void
refuse_posted(agent_op *op, const tutti_error *why)
{
    tutti_error err = *why;

    if (agent_op_is_p2p(op) && op->options.tell_refusal) {
        tell_peer(op, why);
    } else if (!agent_op_is_p2p(op)) {
        op->sequence = tutti_coll_refuse(op->group->coll, 0, why);
        /*
         * Progress as the coordinator hears it: this rank has come to the op, so it is not the one
         * that others wait for.
         */
        op->group->entered = op->sequence;
        op->group->failed_ns = op->came_ns;
        agent_group_note_end(op->group, op);
    }
    if (err.group[0] == '\0') {
        tutti_error_set_op(&err, op->group->name, op->sequence, err.rank);
    }
    agent_op_end_early(op, &err);
}

/*
 * Post the op, or refuse it. An op that has failed in line (a refusal, its deadline, its caller)
 * comes here too: its turn is the moment at which the others may be told under the right number.
 */
void
agent_op_launch(agent_op *op)
{
    tutti_error err;
    tutti_code code;

    agent_op_unwatch(op);
    op->said = op->op.args;
    if (op->failed) {
        err = op->err;
        refuse_posted(op, &err);
        return;
    }
    code = prepare_posted(op, &err);
    if (code != TUTTI_OK) {
        refuse_posted(op, &err);
        return;
    }
    code = op->agent->hooks->record_pack(op, &err);
    if (code != TUTTI_OK) {
        refuse_posted(op, &err);
        return;
    }
    /*
     * Nothing has failed. From the move on, the engine's thread may write to the op, so what this
     * thread needs (`said`, the running list, the record) is set before the post.
     */
    op->op.deadline_ns = op->deadline_ns;
    op->op.caller_ns = op->came_ns;
    op->op.on_done = agent_op_on_done;
    op->op.on_launched = op->done != NULL ? agent_op_on_launched : NULL;
    op->op.on_released = agent_op_on_released;
    agent_op_move(op, AGENT_OP_POSTED);
    agent_op_record_started(op);
    op->said = op->op.args;
    agent_group_changed(op->group);
    tutti_list_add(&op->group->running, &op->link);
    code = tutti_coll_post(op->group->coll, &op->op, op->expect, &err);
    if (code == TUTTI_OK) {
        agent_op_record_posted(op);
    }
    if (code != TUTTI_OK) {
        /* OP_LIMIT or OUT_OF_SEQUENCE: the engine has not taken it, and no callback will come. */
        tutti_list_remove(&op->link);
        refuse_posted(op, &err);
    }
}

/* ------------------------------------------------------------------------------ place */

/*
 * One more tensor of the op: it has to be in the same space as those before it. Transfers between
 * devices are never made silently, as they cost more than most ops. NULL is fine.
 */
static tutti_code
add_tensor(agent_op *op, const tutti_tensor *tensor, tutti_error *err)
{
    if (tensor == NULL || op->space == tensor->space) {
        return TUTTI_OK;
    }
    if (op->space != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DEVICE_MISMATCH",
                              "tensors of one op are on %s and on %s: Copy with `device` brings "
                              "them together",
                              tutti_space_device(op->space), tutti_space_device(tensor->space));
    }
    op->space = tensor->space;
    return TUTTI_OK;
}

static tutti_code
add_lock(agent_op *op, const tutti_lock *lock, tutti_error *err)
{
    return lock == NULL ? TUTTI_OK
                        : add_tensor(op, tutti_table_tensor(op->agent->table, lock), err);
}

static tutti_code
add_list(agent_op *op, tutti_error *err)
{
    const agent_list *list = op->list;
    uint32_t i;

    TUTTI_TRY(add_tensor(op, list->in_memory, err));

    for (i = 0; i < list->in_count; i++) {
        TUTTI_TRY(add_lock(op, list->in_locks[i], err));
    }
    for (i = 0; i < list->given_count; i++) {
        TUTTI_TRY(add_lock(op, list->out_locks[i], err));
    }
    return TUTTI_OK;
}

/* The GPU of the group's collectives in this epoch; NULL: none has used one. */
static tutti_space *
find_place(const agent_group *group)
{
    return group->placed == group->epoch ? group->place : NULL;
}

/*
 * NCCL communicators belong to a group and a GPU. A group whose ops changed from one GPU to another
 * would need a second communicator, whose making is itself a collective that other ranks do not
 * know they have to join. So the first collective of an epoch fixes the GPU.
 */
static tutti_code
keep_place(const agent_op *op, tutti_error *err)
{
    agent_group *group = op->group;
    tutti_space *place = find_place(group);

    if (place != NULL && place != op->space) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DEVICE_MISMATCH",
                              "group %s runs its ops on %s at this rank, and these tensors are on "
                              "%s: make a group of the same ranks for them, or Copy them there",
                              group->name, tutti_space_device(place),
                              tutti_space_device(op->space));
    }
    group->place = op->space;
    group->placed = group->epoch;
    return TUTTI_OK;
}

/*
 * Which of the engine's device backends runs the op. A GPU without one (tutti-nccl.so was not
 * found) holds tensors and runs no ops.
 */
static tutti_code
take_backend(agent_op *op, tutti_error *err)
{
    const agent_devices *devices = &op->agent->devices;
    uint32_t i = 0;

    if (!op->op.args.on_device) {
        return TUTTI_OK;
    }
    while (i < devices->count && devices->list[i].space != op->space) {
        i++;
    }
    if (i == devices->count || !devices->list[i].has_backend) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_BACKEND",
                              "%s on %s: this agent runs no ops there, because it could not load "
                              "tutti-nccl.so (its log says more): Copy the tensors to \"cpu\"",
                              tutti_coll_kind_name(op->op.args.kind),
                              tutti_space_device(op->space));
    }
    op->op.device = i;
    return agent_op_is_p2p(op) ? TUTTI_OK : keep_place(op, err);
}

static tutti_code
check_event_place(const agent_op *op, const agent_event *event, const char *name, tutti_error *err)
{
    if (event == NULL || event->space == op->space) {
        return TUTTI_OK;
    }
    if (!op->op.args.on_device) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_EVENT",
                              "%s of an op in host memory: events order what GPUs do", name);
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DEVICE_MISMATCH",
                          "%s is an event of %s, and the tensors are on %s", name,
                          tutti_space_device(event->space), tutti_space_device(op->space));
}

static tutti_code
give_events(agent_op *op, tutti_error *err)
{
    TUTTI_TRY(check_event_place(op, op->after, "after_event", err));
    TUTTI_TRY(check_event_place(op, op->done, "done_event", err));

    if (op->after != NULL) {
        op->events.after = op->after->event;
        op->events.left = &op->after->left;
    }
    if (op->done != NULL) {
        op->events.done = op->done->event;
    }
    op->op.events = op->after != NULL || op->done != NULL ? &op->events : NULL;
    return TUTTI_OK;
}

/*
 * Where results of an op go that names no tensor of this rank, such as a broadcast's receiver: on
 * the GPU on which the group's other ops run, else on the first device of --device. An inline
 * result is always in host memory, as it becomes part of a message.
 */
static tutti_space *
default_place(const agent_op *op)
{
    tutti_space *home = op->agent->devices.home;
    tutti_space *place = find_place(op->group);

    if (op->out_inline || op->op.args.kind == TUTTI_COLL_BARRIER) {
        return op->agent->space;
    }
    return home == op->agent->space || place == NULL || agent_op_is_p2p(op) ? home : place;
}

/* The op's tensors are elsewhere than its caller wants the new result. */
static tutti_code
check_wanted(const agent_op *op, tutti_error *err)
{
    const tutti_space *place = op->out_inline ? op->agent->space : op->space;

    if (op->wanted == NULL || place == NULL || place == op->wanted) {
        return TUTTI_OK;
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DEVICE_MISMATCH",
                          "the result is to be on %s, and %s on %s", tutti_space_device(op->wanted),
                          op->out_inline ? "an inline result is" : "the op's tensors are",
                          tutti_space_device(place));
}

/*
 * What a receiver of a broadcast names as input is ignored, so it may be on any device: `gives` is
 * false there. A new output has no tensor yet and follows the others.
 */
tutti_code
agent_op_find_place(agent_op *op, tutti_error *err)
{
    const bool gives = op->op.input != NULL;

    TUTTI_TRY(gives ? add_tensor(op, op->inline_in, err) : TUTTI_OK);

    if (gives) {
        TUTTI_TRY(add_lock(op, op->in, err));
    }
    if (!op->out_is_new) {
        TUTTI_TRY(add_lock(op, op->out, err));
    }
    if (op->list != NULL) {
        TUTTI_TRY(add_list(op, err));
    }
    if (op->out_inline && op->on_end == NULL && op->space != NULL &&
        op->space != op->agent->space) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DEVICE_MISMATCH",
                              "an inline result of tensors on %s: ask for a handle, and Get it",
                              tutti_space_device(op->space));
    }
    TUTTI_TRY(check_wanted(op, err));
    if (op->space == NULL) {
        op->space = op->wanted != NULL ? op->wanted : default_place(op);
    }
    op->op.args.on_device = op->space != op->agent->space;
    TUTTI_TRY(take_backend(op, err));
    return give_events(op, err);
}
