/*
 * The beginning of an op: a struct with copies of all that the request's arguments point to, and
 * the locks of the tensors that the request names. Control loop.
 *
 * Why copies: the request is gRPC's memory and is gone when the handler returns, while the op waits
 * for its turn and then runs. Tensor bytes are not copied, but for inline arguments.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/op/deadline.h"
#include "server/agent/op/list.h"
#include "server/agent/op/op.h"
#include "server/agent/op/works.h"
#include "server/agent/state/device.h"
#include "server/agent/state/group.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/op.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"

/*
 * One allocation for both lists: all-to-all has send and receive splits, a scatter or gather has
 * the root's splits alone.
 */
static bool
keep_splits(agent_op *op, const tutti_coll_args *args)
{
    const size_t bytes = args->split_count * sizeof(*op->splits);
    const bool rooted = args->root_splits != NULL;

    op->splits = malloc(2 * bytes);
    if (op->splits == NULL) {
        return false;
    }
    memcpy(op->splits, rooted ? args->root_splits : args->send_splits, bytes);
    op->op.args.root_splits = rooted ? op->splits : NULL;
    if (!rooted) {
        memcpy(op->splits + args->split_count, args->recv_splits, bytes);
        op->op.args.send_splits = op->splits;
        op->op.args.recv_splits = op->splits + args->split_count;
    }
    return true;
}

/*
 * The arguments with every pointer turned to memory of the op, so that `args` stays valid until the
 * op is freed.
 */
static bool
keep_lists(agent_op *op, const tutti_coll_args *args)
{
    op->op.args = *args;
    if (args->flat != NULL) {
        op->flat = *args->flat;
        op->op.args.flat = &op->flat;
    }
    if (args->kind == TUTTI_COLL_PERMUTE) {
        /* One element more: calloc(0) may return NULL, which would look like a failure. */
        op->to = calloc(args->to_count + 1, sizeof(*op->to));
        if (op->to == NULL) {
            return false;
        }
        if (args->to_count > 0) {
            memcpy(op->to, args->to, args->to_count * sizeof(*op->to));
        }
        op->op.args.to = op->to;
    }
    return args->split_count == 0 || keep_splits(op, args);
}

static bool
keep_expected(agent_op *op, const agent_request *request)
{
    if (request->expects == NULL) {
        return true;
    }
    op->expects = calloc(request->expect_count, sizeof(*op->expects));
    if (op->expects == NULL) {
        return false;
    }
    memcpy(op->expects, request->expects, request->expect_count * sizeof(*op->expects));
    op->expect_count = (uint32_t)request->expect_count;
    return true;
}

static bool
keep_meta_given(agent_op *op, const tutti_coll_args *args)
{
    if (args->meta.size == 0) {
        return true;
    }
    op->meta = malloc(args->meta.size);
    if (op->meta == NULL) {
        return false;
    }
    memcpy(op->meta, args->meta.data, args->meta.size);
    op->meta_size = args->meta.size;
    op->op.args.meta = (tutti_bytes){op->meta, op->meta_size};
    return true;
}

static void
free_op(agent_op *op)
{
    if (op != NULL) {
        free(op->to);
        free(op->splits);
        free(op->meta);
        free(op->expects);
        free(op);
    }
}

/*
 * Nothing that needs undoing is done before the last allocation has succeeded: the op joins
 * agent->ops, is counted and takes its reference to the call behind that.
 */
agent_op *
agent_op_new(tutti_agent *agent, tutti_rpc_call *call, const agent_request *request,
             agent_answer_fn answer)
{
    agent_op *op = calloc(1, sizeof(*op));

    if (op == NULL || !keep_lists(op, &request->args) || !keep_meta_given(op, &request->args) ||
        !keep_expected(op, request)) {
        free_op(op);
        return NULL;
    }
    op->agent = agent;
    op->call = call;
    op->answer = answer;
    op->options = request->options;
    op->lock_set.loop = agent->control;
    op->enqueued_ns = tutti_clock_ns();
    agent_op_limit(op);
    tutti_list_init(&op->link);
    tutti_list_init(&op->live);
    tutti_list_add(&agent->ops, &op->live);
    op->number = ++agent->ops_last;
    tutti_rpc_call_trace(call, op->trace);
    tutti_rpc_call_ref(call);
    agent->ops_live++;
    return op;
}

/* ------------------------------------------------------------------------------ resolve */

/*
 * The bytes of an inline argument become a host tensor of the op, which no handle names. Sizes are
 * compared before memory is asked for, so a false header costs no memory.
 */
static tutti_code
keep_inline(agent_op *op, agent_request *request, tutti_error *err)
{
    uint64_t bytes = 0;
    tutti_code code = tutti_spec_check(&request->args.spec, NULL, &bytes, err);
    const size_t got =
        request->payload == NULL ? 0 : tutti_rpc_message_payload_bytes(request->payload);

    if (code == TUTTI_OK && got != bytes) {
        code =
            TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                           "%zu bytes in the payload, the inline tensor has %" PRIu64, got, bytes);
    }
    if (code == TUTTI_OK && bytes > TUTTI_INLINE_BYTES_MAX) {
        code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "INLINE_LIMIT",
                              "%" PRIu64 " bytes inline, at most %u: upload it and use the handle",
                              bytes, TUTTI_INLINE_BYTES_MAX);
    }
    if (code == TUTTI_OK) {
        code = tutti_tensor_new_raw(op->agent->space, &request->args.spec, &op->inline_in, err);
    }
    if (code == TUTTI_OK) {
        tutti_tensor_mark(op->inline_in, TUTTI_HOLDER_STAGED);
    }
    if (code == TUTTI_OK && bytes > 0) { /* all of them, as new_raw wants it: got == bytes */
        tutti_rpc_message_read(request->payload, op->inline_in->data, (size_t)bytes);
    }
    return code;
}

/* A barrier and a send have no result; every other op may make one new tensor. */
static bool
makes_output(tutti_coll_kind kind)
{
    return kind != TUTTI_COLL_BARRIER && kind != TUTTI_COLL_SEND;
}

/*
 * Is this rank known to be the root of a broadcast? Then its input stands for the result, and no
 * new tensor is made. False too if the ranks of the group are not known yet: take_role decides
 * then.
 */
static bool
is_known_root(const agent_op *op)
{
    const tutti_coll_group *coll = op->group->coll;
    uint32_t me;

    if (coll == NULL) {
        return false;
    }
    me = tutti_coll_group_rank(coll);
    return op->op.args.root == (op->options.root_global ? tutti_coll_group_ranks(coll)[me] : me);
}

/* The output, locked last, is the input by another name, or has only some of its bytes. */
static tutti_code
use_input_as_output(agent_op *op, tutti_error *err)
{
    const bool same = tutti_lock_equals(&op->lock_set.locks[op->lock_set.count - 1], op->in);

    tutti_table_unwant(op->agent->table, &op->lock_set);
    if (!same) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "RANGE_OVERLAP",
            "input and output have bytes in common and are not the same range and "
            "dtype: give one range for both (in place), or ranges that are apart");
    }
    op->in->exclusive = true;
    op->out = op->in;
    return TUTTI_OK;
}

/*
 * Locks for one input and one output. The same tensor as both is one exclusive lock: two locks of
 * one op would wait for each other for ever. Both names are resolved before they are compared, as a
 * handle and a name may mean the same tensor.
 *
 * A new output gets its entry now, although its shape may be unknown until another rank says it: so
 * the caller of an async op has the handle at once, and a later op may name it and waits in line.
 * A receiver of a broadcast gets a new output also if it gives an input, which is ignored.
 */
static tutti_code
lock_tensors(agent_op *op, const agent_request *request, tutti_error *err)
{
    tutti_table *table = op->agent->table;
    const bool in_place = request->input != NULL && request->output[0] != '\0' &&
                          strcmp(request->input, request->output) == 0;
    tutti_code code = TUTTI_OK;

    if (request->input != NULL) {
        code = tutti_table_lock_range(table, &op->lock_set, request->input, in_place, err);
        if (code != TUTTI_OK) {
            return code;
        }
        op->in = &op->lock_set.locks[op->lock_set.count - 1];
    }
    if (in_place) {
        op->out = op->in;
        return TUTTI_OK;
    }
    if (request->output[0] != '\0') {
        code = tutti_table_lock_range(table, &op->lock_set, request->output, true, err);
        if (code == TUTTI_OK && op->in != NULL &&
            tutti_lock_meets(&op->lock_set.locks[op->lock_set.count - 1], op->in)) {
            return use_input_as_output(op, err);
        }
    } else if (makes_output(request->args.kind) && !op->out_inline &&
               !(request->args.kind == TUTTI_COLL_BROADCAST && op->in != NULL &&
                 request->result == NULL && is_known_root(op))) {
        code = tutti_table_create_locked(table, &op->lock_set,
                                         request->result != NULL ? request->result : "", err);
        op->out_is_named = request->result != NULL;
        op->out_is_new = code == TUTTI_OK;
    } else {
        return TUTTI_OK;
    }
    if (code == TUTTI_OK) {
        op->out = &op->lock_set.locks[op->lock_set.count - 1];
    }
    return code;
}

/*
 * The input of an op that makes a list. The outputs are in the lock set already, all exclusive, so
 * the input may be none of them.
 */
static tutti_code
lock_input(agent_op *op, const agent_request *request, tutti_error *err)
{
    uint32_t i;

    if (request->input == NULL) {
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_table_lock_range(op->agent->table, &op->lock_set, request->input, false, err));
    op->in = &op->lock_set.locks[op->lock_set.count - 1];
    for (i = 0; i + 1 < op->lock_set.count; i++) {
        if (tutti_lock_meets(&op->lock_set.locks[i], op->in)) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "OUTPUT_ALIAS",
                                  "output %" PRIu32 " is the input of the op, need another tensor",
                                  i);
        }
    }
    return TUTTI_OK;
}

static tutti_code
check_op_request(const agent_op *op, const agent_request *request, tutti_error *err)
{
    if (request->refused.code != TUTTI_OK) {
        return tutti_error_pass(err, &request->refused);
    }
    if (request->options.async && (request->inline_input || op->out_inline)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "ASYNC_INLINE",
                              "an async op cannot take or give inline tensors: use handles");
    }
    if (request->result != NULL &&
        (request->output[0] != '\0' || op->out_inline || request->is_list ||
         tutti_coll_makes_list(&op->op.args) || !makes_output(request->args.kind))) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "UNEXPECTED_RESULT",
                              "\"%.127s\" is to name the result, but the op makes no new tensor: "
                              "leave out `result`, or `output`, inline data and lists",
                              request->result);
    }
    return TUTTI_OK;
}

/* One tensor goes in; what comes out may be a list. */
static tutti_code
take_one(agent_op *op, agent_request *request, tutti_error *err)
{
    TUTTI_TRY(request->inline_input ? keep_inline(op, request, err) : TUTTI_OK);
    if (!tutti_coll_makes_list(&op->op.args)) {
        return request->output_count == 0
                   ? lock_tensors(op, request, err)
                   : TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LIST_SIZE",
                                    "%zu outputs for one result: use `output`",
                                    request->output_count);
    }
    TUTTI_TRY(agent_list_take(op, request, err));
    return lock_input(op, request, err);
}

/* On which GPU they are is compared when the op's place is known (post.c). */
static tutti_code
take_events(agent_op *op, tutti_error *err)
{
    const agent_op_options *options = &op->options;

    if (options->done_event != 0 && !options->async) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_EVENT",
                              "an op with done_event needs async: it is answered before it ends");
    }
    if (options->done_event != 0 && options->done_event == options->after_event) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_EVENT",
                              "after_event and done_event are the same: need two events");
    }
    if ((options->done_event != 0 || options->after_event != 0) && agent_op_is_p2p(op)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_EVENT",
                              "a send or receive has no events: wait for the stream before, and "
                              "for the answer behind it");
    }
    TUTTI_TRY(options->after_event == 0
                  ? TUTTI_OK
                  : agent_event_find(op->agent, options->after_event, &op->after, err));
    return options->done_event == 0
               ? TUTTI_OK
               : agent_event_find(op->agent, options->done_event, &op->done, err);
}

/*
 * The result is inline when that was asked for, or when an inline input has no named output: a
 * caller that sends bytes wants bytes. The work comes last, as only it would have to be taken back.
 */
tutti_code
agent_op_take(agent_op *op, agent_request *request, tutti_error *err)
{
    op->out_inline = request->options.inline_result ||
                     (request->inline_input && request->output[0] == '\0' &&
                      request->output_count == 0 && makes_output(request->args.kind));
    TUTTI_TRY(check_op_request(op, request, err));
    TUTTI_TRY(request->is_list ? agent_list_take(op, request, err) : take_one(op, request, err));
    TUTTI_TRY(op->agent->hooks->record_take(op, request, err));
    TUTTI_TRY(take_events(op, err));
    if (request->device != NULL && request->device[0] != '\0') {
        TUTTI_TRY(agent_devices_find(op->agent, request->device, &op->wanted, err));
    }
    if (request->options.async) {
        TUTTI_TRY(agent_work_new(op->agent, agent_op_cancel, op, &op->work, err));
    }
    return TUTTI_OK;
}
