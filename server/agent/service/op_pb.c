#include "server/agent/service/op_pb.h"

#include <inttypes.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/request.h"

void
agent_request_refuse(agent_request *request, const tutti_error *err)
{
    if (request->refused.code == TUTTI_OK) {
        request->refused = *err;
    }
}

void
agent_read_input(const Tutti__V1__TensorArg *input, tutti_rpc_call *call, agent_request *request)
{
    tutti_error err;

    if (input == NULL || input->kind_case == TUTTI__V1__TENSOR_ARG__KIND__NOT_SET) {
        return;
    }
    if (input->kind_case == TUTTI__V1__TENSOR_ARG__KIND_HANDLE) {
        request->input = input->handle;
        return;
    }
    request->inline_input = true;
    request->payload = tutti_rpc_call_message(call);
    if (agent_read_spec(input->inline_tensor, &request->args.spec, &err) != TUTTI_OK) {
        agent_request_refuse(request, &err);
    }
    request->args.has_spec = true;
}

void
agent_need_input(agent_request *request)
{
    tutti_error err;

    if (request->input == NULL && !request->inline_input && request->input_count == 0 &&
        !request->args.coalesced) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "NO_INPUT",
                             "no input: give a handle or an inline tensor");
        agent_request_refuse(request, &err);
    }
}

void
agent_read_options(const Tutti__V1__OpOptions *options, agent_request *request)
{
    if (options != NULL) {
        request->options.async = options->async;
        request->options.timeout_ms = options->timeout_ms;
        request->options.sequence = options->sequence;
        request->tracers = options->tracers;
        request->tracer_count = options->n_tracers;
        request->options.no_grad = options->no_grad;
        request->args.step = options->step;
        request->options.token = options->token;
        request->options.local_grad = options->local_grad;
    }
}

static void
release_tensor(void *tensor)
{
    tutti_tensor_unref(tensor);
}

void
agent_write_result(const agent_op_result *result, wire_result *ret)
{
    *ret = (wire_result){.has_output = result->handle[0] != '\0' ||
                                       (result->payload != NULL && result->output_count == 0)};
    if (result->has_spec) {
        agent_write_spec(&result->spec, &ret->spec);
    }
    agent_write_ref(result->handle, result->has_spec ? &ret->spec : NULL, &ret->output);
    tutti__v1__op_info__init(&ret->info);
    ret->info.sequence = result->sequence;
    ret->info.work = (char *)(uintptr_t)result->work;
    ret->info.elapsed_us = result->elapsed_us;
    ret->outputs = agent_write_outputs(result->outputs, result->output_count);
    ret->output_count = ret->outputs == NULL ? 0 : result->output_count;
    ret->meta.data = (uint8_t *)(uintptr_t)result->meta.data;
    ret->meta.len = result->meta.size;
    if (result->payload != NULL && result->payload_bytes > 0) {
        tutti_tensor_ref(result->payload);
        ret->has_blob = true;
        ret->blob = (tutti_rpc_blob){.data = result->payload->data,
                                     .size = (size_t)result->payload_bytes,
                                     .on_release = release_tensor,
                                     .arg = result->payload};
    }
}

const tutti_rpc_blob *
agent_result_blob(const wire_result *result)
{
    return result->has_blob ? &result->blob : NULL;
}

Tutti__V1__TensorRef *
agent_result_output(wire_result *result)
{
    return result->has_output ? &result->output : NULL;
}

void
agent_read_form(Tutti__V1__Form form, size_t dim_count, const int64_t *dims, tutti_spec *ret_flat,
                agent_request *request)
{
    tutti_error err;

    request->args.form = (tutti_form)form;
    if (form != TUTTI__V1__FORM__FORM_CONCAT && form != TUTTI__V1__FORM__FORM_STACK &&
        form != TUTTI__V1__FORM__FORM_LIST && form != TUTTI__V1__FORM__FORM_FLAT) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "BAD_FORM", "form %d is none of ours",
                             (int)form);
        agent_request_refuse(request, &err);
    } else if (dim_count > TUTTI_DIMS_MAX) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE",
                             "out_shape has %zu dimensions, at most %d", dim_count, TUTTI_DIMS_MAX);
        agent_request_refuse(request, &err);
    } else if (dim_count > 0) {
        *ret_flat = (tutti_spec){.dtype = TUTTI_DTYPE_UINT8, .dim_count = (uint32_t)dim_count};
        memcpy(ret_flat->dims, dims, dim_count * sizeof(dims[0]));
        request->args.flat = ret_flat;
    }
}

void
agent_request_root(agent_request *request, bool has_root, int32_t root, bool has_global,
                   int32_t root_global)
{
    tutti_error err;

    request->args.root = (uint32_t)(has_global ? root_global : has_root ? root : 0);
    request->options.root_global = has_global;
    if (has_root && has_global) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "BOTH_RANKS",
                             "root %" PRId32 " and root_global %" PRId32 ": give one of them", root,
                             root_global);
        agent_request_refuse(request, &err);
    }
}
