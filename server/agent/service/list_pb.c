/* Lists of tensors in requests and responses, and bytes that travel with a tensor. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/agent/service/op_pb.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/request.h"

static void
read_one_list(const Tutti__V1__TensorArg *message, agent_input *input, agent_request *request)
{
    tutti_error err;

    if (message->kind_case == TUTTI__V1__TENSOR_ARG__KIND_HANDLE) {
        input->handle = message->handle;
        return;
    }
    request->inline_input = true;
    if (message->kind_case == TUTTI__V1__TENSOR_ARG__KIND__NOT_SET) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "NO_INPUT",
                             "a tensor of the list is neither a handle nor inline");
        agent_request_refuse(request, &err);
    } else if (agent_read_spec(message->inline_tensor, &input->spec, &err) != TUTTI_OK) {
        agent_request_refuse(request, &err);
    }
}

static bool
is_by_rank(const tutti_coll_args *args)
{
    return args->form == TUTTI_FORM_LIST &&
           (args->kind == TUTTI_COLL_SCATTER || args->kind == TUTTI_COLL_REDUCE_SCATTER ||
            args->kind == TUTTI_COLL_ALL_TO_ALL);
}

static void
check_list(const agent_request *request, bool has_list, agent_request *ret_request)
{
    const bool has_one = request->input != NULL || request->args.has_spec;
    tutti_error err;

    if (has_list && has_one) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "UNEXPECTED_INPUT",
                             "both input and inputs: give one of them");
        agent_request_refuse(ret_request, &err);
    }
}

void
agent_read_list(size_t input_count, Tutti__V1__TensorArg *const *inputs, size_t output_count,
                char *const *outputs, tutti_rpc_call *call, agent_request *request)
{
    tutti_error err;
    size_t i;

    check_list(request, input_count > 0, request);
    request->outputs = outputs;
    request->output_count = output_count;
    if (input_count > 0) {
        request->inputs = calloc(input_count, sizeof(*request->inputs));
        request->input_count = request->inputs == NULL ? 0 : input_count;
        request->payload = tutti_rpc_call_message(call);
        request->args.coalesced = !is_by_rank(&request->args);
    }
    if (input_count > 0 && request->inputs == NULL) {
        (void)TUTTI_FAIL(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a list of %zu tensors",
                         input_count);
        agent_request_refuse(request, &err);
    }
    for (i = 0; i < request->input_count; i++) {
        read_one_list(inputs[i], &request->inputs[i], request);
    }
    if (output_count > 0 && input_count == 0 && tutti_coll_is_from_root(request->args.kind) &&
        request->args.form != TUTTI_FORM_LIST) {
        request->args.coalesced = true; /* a receiver's destinations */
    }
    request->is_list = request->input_count > 0 || request->args.coalesced;
}

void
agent_read_coalesced(bool said, agent_request *request)
{
    request->args.coalesced = request->args.coalesced || said;
    request->is_list = request->is_list || said;
    check_list(request, said, request);
}

void
agent_read_meta(ProtobufCBinaryData meta, agent_request *request)
{
    tutti_error err;

    request->args.meta = (tutti_bytes){meta.data, meta.len};
    if (meta.len > AGENT_META_MAX) {
        request->args.meta.size = 0;
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "META_LIMIT",
                             "user_meta of %zu bytes, at most %d: send them as a tensor", meta.len,
                             AGENT_META_MAX);
        agent_request_refuse(request, &err);
    }
}

void
agent_request_fini(agent_request *request)
{
    free(request->inputs);
    request->inputs = NULL;
}

/* One result out, with the memory it points to. */
typedef struct wire_output {
    Tutti__V1__TensorRef message;
    wire_spec spec;
} wire_output;

Tutti__V1__TensorRef **
agent_write_outputs(const agent_output *outputs, uint32_t count)
{
    const size_t bytes = count * (sizeof(Tutti__V1__TensorRef *) + sizeof(wire_output));
    Tutti__V1__TensorRef **messages = count == 0 ? NULL : malloc(bytes);
    wire_output *memory = (wire_output *)(void *)(messages + count);
    uint32_t i;

    for (i = 0; i < count && messages != NULL; i++) {
        if (outputs[i].has_spec) {
            agent_write_spec(&outputs[i].spec, &memory[i].spec);
        }
        agent_write_ref(outputs[i].handle, outputs[i].has_spec ? &memory[i].spec : NULL,
                        &memory[i].message);
        messages[i] = &memory[i].message;
    }
    return messages;
}

void
agent_result_fini(wire_result *result)
{
    free(result->outputs);
    result->outputs = NULL;
}
