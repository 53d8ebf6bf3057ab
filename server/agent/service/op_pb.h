/* Private to server/agent: what requests and responses of all ops have in common. */
#ifndef TUTTI_SERVER_AGENT_SERVICE_OP_PB_H
#define TUTTI_SERVER_AGENT_SERVICE_OP_PB_H

#include "server/agent/op/op.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/request.h"
#include "tutti/v1/collectives_service.pb-c.h"

/* The call will be refused, with the first of these errors; its group hears of it. */
void agent_request_refuse(agent_request *request, const tutti_error *err);

/*
 * Fields that several requests share. What is wrong goes to request->refused. The request borrows
 * from the message and the call.
 */
void agent_read_input(const Tutti__V1__TensorArg *input, tutti_rpc_call *call,
                      agent_request *request);
/* This op has an input on every rank. NO_INPUT */
void agent_need_input(agent_request *request);
void agent_read_options(const Tutti__V1__OpOptions *options, agent_request *request);

/* [out] ret_flat  memory for the shape of a flat result; the request points to it */
void agent_read_form(Tutti__V1__Form form, size_t dim_count, const int64_t *dims,
                     tutti_spec *ret_flat, agent_request *request);

/*
 * The ops that Infer knows too: X(op, Name, NAME), as the proto's <Name>Request. A new op is a row
 * here, and in parts_pb.c its agent_read_<op> and an AGENT_OP_METHOD.
 */
#define AGENT_OP_MAP(X)                                                                            \
    X(all_reduce, AllReduce, ALL_REDUCE)                                                           \
    X(broadcast, Broadcast, BROADCAST)                                                             \
    X(all_gather, AllGather, ALL_GATHER)                                                           \
    X(reduce, Reduce, REDUCE)                                                                      \
    X(reduce_scatter, ReduceScatter, REDUCE_SCATTER)                                               \
    X(gather, Gather, GATHER)                                                                      \
    X(scatter, Scatter, SCATTER)                                                                   \
    X(all_to_all, AllToAll, ALL_TO_ALL)                                                            \
    X(permute, Permute, PERMUTE)

/*
 * Requests of the ops. [in] call  for the bytes of an inline input; [out] flat  memory for a shape
 * that the request points to. Then the handler of its method.
 */
#define AGENT_OP_DECLARE(op, Name, NAME)                                                           \
    void agent_read_##op(const Tutti__V1__##Name##Request *message, tutti_rpc_call *call,          \
                         agent_request *request, tutti_spec *flat);                                \
    void agent_on_##op(tutti_rpc_call *call, void *self);
AGENT_OP_MAP(AGENT_OP_DECLARE)
#undef AGENT_OP_DECLARE

/* A list of tensors: in their own arrays, freed by agent_request_fini. */
void agent_read_list(size_t input_count, Tutti__V1__TensorArg *const *inputs, size_t output_count,
                     char *const *outputs, tutti_rpc_call *call, agent_request *request);
#define AGENT_READ_LIST(message, call, request)                                                    \
    agent_read_list((message)->n_inputs, (message)->inputs, (message)->n_outputs,                  \
                    (message)->outputs, call, request)
#define AGENT_READ_AXES(message, request)                                                          \
    ((request)->axis_count = (message)->n_axes, (request)->axes = (message)->axes)
void agent_read_coalesced(bool said, agent_request *request);
void agent_read_meta(ProtobufCBinaryData meta, agent_request *request);
void agent_request_fini(agent_request *request);

/* A response's common parts, with the memory they point to. */
typedef struct wire_result {
    Tutti__V1__TensorRef **outputs; /* [owned] of a list */
    size_t output_count;
    ProtobufCBinaryData meta;
    Tutti__V1__TensorRef output;
    Tutti__V1__OpInfo info;
    wire_spec spec;
    tutti_rpc_blob blob;
    bool has_output;
    bool has_blob;
} wire_result;

/*
 * `ret` borrows from `result`; a payload gets a reference that the blob's release gives back, so a
 * blob that was written must be sent. agent_result_fini frees the rest. Any thread.
 */
void agent_write_result(const agent_op_result *result, wire_result *ret);
void agent_result_fini(wire_result *result);

/* A list of results as messages, in one piece of memory; NULL: none, or no memory. */
Tutti__V1__TensorRef **agent_write_outputs(const agent_output *outputs, uint32_t count);
Tutti__V1__TensorRef *agent_result_output(wire_result *result);     /* NULL = none */
const tutti_rpc_blob *agent_result_blob(const wire_result *result); /* NULL = none */

/*
 * The handler of an op, agent_on_<op>: its request read by agent_read_<op>, its result written as
 * its response. All responses of ops have the same four fields; some have user_meta, which TAIL
 * takes from `parts`.
 */
#define AGENT_OP_METHOD(op, Name, NAME) AGENT_OP_METHOD_AND(op, Name, NAME, (void)0)
#define AGENT_OP_METHOD_AND(op, Name, NAME, TAIL)                                                  \
    static void answer_##op(tutti_rpc_call *call, const agent_op_result *result)                   \
    {                                                                                              \
        Tutti__V1__##Name##Response response = TUTTI__V1__##NAME##_RESPONSE__INIT;                 \
        wire_result parts;                                                                         \
                                                                                                   \
        agent_write_result(result, &parts);                                                        \
        response.output = agent_result_output(&parts);                                             \
        response.info = &parts.info;                                                               \
        response.outputs = parts.outputs;                                                          \
        response.n_outputs = parts.output_count;                                                   \
        TAIL;                                                                                      \
        tutti_rpc_call_reply(call, &response.base, agent_result_blob(&parts));                     \
        agent_result_fini(&parts);                                                                 \
    }                                                                                              \
                                                                                                   \
    void agent_on_##op(tutti_rpc_call *call, void *self)                                           \
    {                                                                                              \
        agent_request request = {0};                                                               \
        tutti_spec flat;                                                                           \
                                                                                                   \
        agent_read_##op(tutti_rpc_call_request(call), call, &request, &flat);                      \
        agent_op_start(self, call, &request, answer_##op);                                         \
        agent_request_fini(&request);                                                              \
    }

/* The root of a request, as a group rank or a rank of the job. */
#define AGENT_READ_ROOT(message, NAME, request)                                                    \
    agent_request_root(request,                                                                    \
                       (message)->opt_root_case == TUTTI__V1__##NAME##_REQUEST__OPT_ROOT_ROOT,     \
                       (message)->root,                                                            \
                       (message)->opt_root_global_case ==                                          \
                           TUTTI__V1__##NAME##_REQUEST__OPT_ROOT_GLOBAL_ROOT_GLOBAL,               \
                       (message)->root_global)
void agent_request_root(agent_request *request, bool has_root, int32_t root, bool has_global,
                        int32_t root_global);

#endif
