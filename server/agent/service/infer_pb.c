/*
 * CollectivesService.Infer: an op's request, looked at as the op itself would be, and not run.
 * Control loop. No lock is taken and no op is counted: shapes are those that tensors have now. It
 * runs the same readers and the same inference as the op, so that both answer alike.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/agent/op/check.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/op_pb.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"

/*
 * The pointers of the oneof share their place: message->op is whichever is set. False: no op at
 * all.
 */
static bool
read_op(const Tutti__V1__InferRequest *message, tutti_rpc_call *call, agent_request *request,
        tutti_spec *flat)
{
    switch (message->op_case) {
#define READ(op, Name, NAME)                                                                       \
    case TUTTI__V1__INFER_REQUEST__OP_##NAME:                                                      \
        agent_read_##op(message->op, call, request, flat);                                         \
        return true;
        AGENT_OP_MAP(READ)
#undef READ
    default:
        return false;
    }
}

static tutti_code
take_handle(const tutti_agent *agent, const char *handle, tutti_spec *ret_spec, tutti_error *err)
{
    tutti_table_info info;

    TUTTI_TRY(tutti_table_stat(agent->table, handle, &info, err));

    if (!info.has_spec) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "PENDING",
                              "%s has no shape yet: an op makes it", handle);
    }
    *ret_spec = info.spec;
    return TUTTI_OK;
}

static tutti_code
take_one(const tutti_agent *agent, agent_request *request, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (request->input != NULL) {
        code = take_handle(agent, request->input, &request->args.spec, err);
        request->args.has_spec = code == TUTTI_OK;
    }
    if (code == TUTTI_OK && !request->args.coalesced && request->args.form != TUTTI_FORM_LIST) {
        code = agent_take_axes(&request->args, request->options.axis, request->options.concat_axis,
                               err);
    }
    return code;
}

static tutti_code
take_tensor(const tutti_agent *agent, const agent_request *request, size_t i,
            tutti_coll_tensor *tensor, tutti_error *err)
{
    const agent_input *input = &request->inputs[i];
    tutti_code code = TUTTI_OK;

    tensor->spec = input->spec;
    if (input->handle != NULL) {
        code = take_handle(agent, input->handle, &tensor->spec, err);
    } else {
        code = tutti_spec_check(&tensor->spec, NULL, NULL, err);
    }
    return code == TUTTI_OK ? agent_take_list_axis(&request->args,
                                                   request->axis_count == request->input_count
                                                       ? request->axes[i]
                                                       : request->options.axis,
                                                   tensor, err)
                            : code;
}

/* [out] ret_list  to be freed */
static tutti_code
take_inference_list(const tutti_agent *agent, agent_request *request, tutti_coll_tensor **ret_list,
                    tutti_error *err)
{
    tutti_coll_tensor *list = calloc(request->input_count + 1, sizeof(*list));
    tutti_code code = TUTTI_OK;
    size_t i;

    *ret_list = list;
    if (list == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a list of %zu tensors", request->input_count);
    }
    for (i = 0; i < request->input_count && code == TUTTI_OK; i++) {
        code = take_tensor(agent, request, i, &list[i], err);
    }
    if (request->input_count > 0) {
        request->args.list = list;
        request->args.list_count = (uint32_t)request->input_count;
        request->args.spec = list[0].spec;
        request->args.has_spec = true;
    }
    return code;
}

static tutti_code
check_group(const Tutti__V1__InferRequest *message, uint32_t size, const agent_request *request,
            tutti_error *err)
{
    if (message->group_rank >= size || size > TUTTI_RANKS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_NOT_IN_GROUP",
                              "group rank %" PRIu32 " of %" PRIu32
                              " ranks, need a group rank below that number",
                              message->group_rank, size);
    }
    if (request->options.root_global) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_ROOT",
            "Infer does not take a rank of the job as root: give the root's group rank");
    }
    return request->refused.code == TUTTI_OK ? TUTTI_OK : tutti_error_pass(err, &request->refused);
}

/* The result of an inference: one shape or a list of them. */
typedef struct inferred {
    bool is_list;
    uint32_t count;
    tutti_spec *specs; /* [owned] */
    tutti_spec one;
} inferred;

static tutti_code
infer_request(const tutti_agent *agent, const Tutti__V1__InferRequest *message,
              agent_request *request, inferred *ret, tutti_error *err)
{
    const uint32_t size = message->group_size != 0 ? message->group_size : agent->world_size;
    tutti_coll_tensor *list = NULL;
    tutti_code code = check_group(message, size, request, err);

    ret->is_list = tutti_coll_makes_list(&request->args);
    if (code == TUTTI_OK) {
        code = take_inference_list(agent, request, &list, err);
    }
    if (code == TUTTI_OK) {
        code = take_one(agent, request, err);
    }
    if (code == TUTTI_OK && ret->is_list) {
        code = tutti_coll_infer_list(&request->args, size, message->group_rank, &ret->specs,
                                     &ret->count, err);
    } else if (code == TUTTI_OK) {
        code = tutti_coll_infer(&request->args, size, message->group_rank, &ret->one, err);
    }
    free(list);
    return code;
}

static tutti_code
run_inference(const tutti_agent *agent, const Tutti__V1__InferRequest *message,
              tutti_rpc_call *call, inferred *ret, tutti_error *err)
{
    agent_request request = {0};
    tutti_spec flat;
    tutti_code code;

    if (!read_op(message, call, &request, &flat)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_OP", "no op: say which one");
    }
    code = infer_request(agent, message, &request, ret, err);
    agent_request_fini(&request);
    return code;
}

static void
answer_list(tutti_rpc_call *call, const inferred *result)
{
    Tutti__V1__InferResponse response = TUTTI__V1__INFER_RESPONSE__INIT;
    wire_spec *specs = calloc(result->count + 1, sizeof(*specs));
    Tutti__V1__TensorSpec **messages = calloc(result->count + 1, sizeof(Tutti__V1__TensorSpec *));
    uint32_t i;

    for (i = 0; i < result->count && specs != NULL && messages != NULL; i++) {
        agent_write_spec(&result->specs[i], &specs[i]);
        messages[i] = &specs[i].message;
    }
    response.results = messages;
    response.n_results = result->count;
    if (specs == NULL || messages == NULL) {
        agent_fail_answer(call);
    } else {
        tutti_rpc_call_reply(call, &response.base, NULL);
    }
    free(messages);
    free(specs);
}

static void
answer_one(tutti_rpc_call *call, const inferred *result)
{
    Tutti__V1__InferResponse response = TUTTI__V1__INFER_RESPONSE__INIT;
    wire_spec spec;

    if (result->one.dtype != TUTTI_DTYPE_NONE) {
        agent_write_spec(&result->one, &spec);
        response.result = &spec.message;
    }
    tutti_rpc_call_reply(call, &response.base, NULL);
}

void
agent_on_infer(tutti_rpc_call *call, void *self)
{
    inferred result = {0};
    tutti_error err;

    if (run_inference(self, tutti_rpc_call_request(call), call, &result, &err) != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
    } else if (result.is_list) {
        answer_list(call, &result);
    } else {
        answer_one(call, &result);
    }
    free(result.specs);
}
