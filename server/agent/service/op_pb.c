/*
 * What requests and responses of all ops have in common. Requests are read on the control loop;
 * results are written on the thread that runs the engine.
 *
 * Nothing is refused here: what is wrong with a request is kept in request->refused, and the call
 * takes its number in the group with that error (docs/decisions/0002). So readers go on behind an
 * error, and whatever they leave must be safe to look at.
 */
#include "server/agent/service/op_pb.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/request.h"

/* The first error counts: later ones often follow from it. */
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

#define REFUSAL_MAX 255

static void
read_expected_results(const Tutti__V1__OpOptions *options, agent_request *request)
{
    tutti_error err;
    size_t i;

    if (options->n_expect == 0) {
        return;
    }
    request->expects = calloc(options->n_expect, sizeof(*request->expects));
    if (request->expects == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for %zu specs", options->n_expect);
        agent_request_refuse(request, &err);
        return;
    }
    request->expect_count = options->n_expect;
    for (i = 0; i < options->n_expect; i++) {
        if (agent_read_spec(options->expect[i], &request->expects[i], &err) != TUTTI_OK) {
            agent_request_refuse(request, &err);
        }
    }
}

/* The caller's own word comes before what is found here: a call that it gives up need not be whole. */
static void
read_refusal(const char *why, agent_request *request)
{
    if (why[0] != '\0') {
        (void)TUTTI_FAIL_FOR(&request->refused, TUTTI_INVALID_ARGUMENT, "BAD_OUT", "%.*s",
                             REFUSAL_MAX, why);
    }
}

void
agent_read_options(const Tutti__V1__OpOptions *options, agent_request *request)
{
    if (options != NULL) {
        read_refusal(options->refusal, request);
        read_expected_results(options, request);
        request->options.async = options->async;
        request->options.timeout_ms = options->timeout_ms;
        request->options.sequence = options->sequence;
        request->tracers = options->tracers;
        request->tracer_count = options->n_tracers;
        request->options.no_grad = options->no_grad;
        request->args.step = options->step;
        request->options.token = options->token;
        request->options.after_event = options->after_event;
        request->options.done_event = options->done_event;
        request->options.local_grad = options->local_grad;
        request->result = options->result[0] != '\0' ? options->result : NULL;
    }
}

/* gRPC has sent the bytes. Any thread. */
static void
release_tensor(void *tensor)
{
    tutti_tensor_unref(tensor);
}

/*
 * The payload gets a reference of its own for gRPC, since the op may be freed before the answer has
 * left.
 */
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
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "BAD_FORM", "form %d is unknown",
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

/* ------------------------------------------------------------------------------ lists */

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

/*
 * A list with one tensor for each rank is one op; other lists are coalesced, as many ops as
 * tensors.
 */
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
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a list of %zu tensors", input_count);
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

/* A user_meta that is too large is not kept: the op copies what args.meta says. */
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
    free(request->expects);
    request->expects = NULL;
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
    wire_output *memory;
    uint32_t i;

    if (messages == NULL) {
        return NULL;
    }
    memory = (wire_output *)(void *)(messages + count);
    for (i = 0; i < count; i++) {
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
