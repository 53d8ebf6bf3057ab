/* What a call brings becomes the op's: inline bytes, handles, a place for the result, a work. */
#include <inttypes.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/op/list.h"
#include "server/agent/op/op.h"
#include "server/agent/op/works.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/op.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"

/* The bytes of an inline argument become a tensor of their own. */
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
    if (code == TUTTI_OK && bytes > 0) { /* all of them, as new_raw wants it: got == bytes */
        tutti_rpc_message_read(request->payload, op->inline_in->data, (size_t)bytes);
    }
    return code;
}

/* Has the op a result that may be one new tensor? */
static bool
makes_output(tutti_coll_kind kind)
{
    return kind != TUTTI_COLL_BARRIER && kind != TUTTI_COLL_SEND;
}

/* Find what is named: the same tensor as input and output is one exclusive use. */
static tutti_code
lock_tensors(agent_op *op, const agent_request *request, tutti_error *err)
{
    tutti_table *table = op->agent->table;
    const bool in_place = request->input != NULL && request->output[0] != '\0' &&
                          strcmp(request->input, request->output) == 0;
    tutti_code code = TUTTI_OK;

    if (request->input != NULL) {
        code = tutti_table_lock_by_name(table, &op->lock_set, request->input, in_place, err);
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
        code = tutti_table_lock_by_name(table, &op->lock_set, request->output, true, err);
        if (code == TUTTI_OK && op->in != NULL &&
            op->lock_set.locks[op->lock_set.count - 1].entry == op->in->entry) {
            tutti_table_unwant(table, &op->lock_set); /* the same tensor by another name */
            op->in->exclusive = true;
            op->out = op->in;
            return TUTTI_OK;
        }
    } else if (makes_output(request->args.kind) && !op->out_inline &&
               !(request->args.kind == TUTTI_COLL_BROADCAST && op->in != NULL)) {
        code = tutti_table_create_locked(table, &op->lock_set, "", err);
        op->out_is_new = code == TUTTI_OK;
    } else {
        return TUTTI_OK;
    }
    if (code == TUTTI_OK) {
        op->out = &op->lock_set.locks[op->lock_set.count - 1];
    }
    return code;
}

/* The input of an op whose outputs are a list, and are in the lock set. */
static tutti_code
lock_input(agent_op *op, const agent_request *request, tutti_error *err)
{
    uint32_t i;

    if (request->input == NULL) {
        return TUTTI_OK;
    }
    TUTTI_TRY(
        tutti_table_lock_by_name(op->agent->table, &op->lock_set, request->input, false, err));
    op->in = &op->lock_set.locks[op->lock_set.count - 1];
    for (i = 0; i + 1 < op->lock_set.count; i++) {
        if (op->lock_set.locks[i].entry == op->in->entry) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "OUTPUT_ALIAS",
                                  "output %" PRIu32 " is the input", i);
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

tutti_code
agent_op_take(agent_op *op, agent_request *request, tutti_error *err)
{
    op->out_inline = request->options.inline_result ||
                     (request->inline_input && request->output[0] == '\0' &&
                      request->output_count == 0 && makes_output(request->args.kind));
    TUTTI_TRY(check_op_request(op, request, err));
    TUTTI_TRY(request->is_list ? agent_list_take(op, request, err) : take_one(op, request, err));
    TUTTI_TRY(op->agent->hooks->record_take(op, request, err));
    if (request->options.async) {
        TUTTI_TRY(agent_work_new(op->agent, &op->work, err));
    }
    return TUTTI_OK;
}
