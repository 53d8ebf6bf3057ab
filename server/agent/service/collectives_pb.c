/*
 * CollectivesService: requests become agent_requests, results become responses. Control loop;
 * answers are written on the thread that runs the engine. What all ops have in common is in
 * op_pb.c. The service takes open enums, as an unknown number must reach the group as a refused op
 * (docs/decisions/0002).
 */
#include <inttypes.h>

#include "base/error/fail.h"
#include "server/agent/op/op.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/op_pb.h"
#include "server/agent/service/services.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/request.h"
#include "server/agent/state/state.h"
#include "tutti/v1/collectives_service.pb-c.h"

/* ------------------------------------------------------------------------------ AllReduce */

void
agent_read_all_reduce(const Tutti__V1__AllReduceRequest *message, tutti_rpc_call *call,
                      agent_request *request, tutti_spec *flat)
{
    (void)flat;
    request->group = message->group;
    request->output = message->output;
    request->args.kind = TUTTI_COLL_ALL_REDUCE;
    request->args.reduce = (tutti_reduce)message->reduce_op;
    request->args.factor = message->factor;
    agent_read_input(message->input, call, request);
    AGENT_READ_LIST(message, call, request);
    agent_read_coalesced(message->coalesced, request);
    agent_need_input(request);
    agent_read_options(message->options, request);
}

AGENT_OP_METHOD(all_reduce, AllReduce, ALL_REDUCE)

/* ------------------------------------------------------------------------------ Broadcast */

void
agent_read_broadcast(const Tutti__V1__BroadcastRequest *message, tutti_rpc_call *call,
                     agent_request *request, tutti_spec *flat)
{
    (void)flat;
    request->group = message->group;
    request->output = message->output;
    request->options.inline_result = message->inline_result;
    request->device = message->device;
    request->args.kind = TUTTI_COLL_BROADCAST;
    AGENT_READ_ROOT(message, BROADCAST, request);
    agent_read_input(message->input, call, request);
    AGENT_READ_LIST(message, call, request);
    agent_read_coalesced(message->coalesced, request);
    agent_read_meta(message->user_meta, request);
    agent_read_options(message->options, request);
}

AGENT_OP_METHOD_AND(broadcast, Broadcast, BROADCAST, response.user_meta = parts.meta)

/* ------------------------------------------------------------------------------ AllGather */

void
agent_read_all_gather(const Tutti__V1__AllGatherRequest *message, tutti_rpc_call *call,
                      agent_request *request, tutti_spec *flat)
{
    request->group = message->group;
    request->output = message->output;
    request->options.axis = message->axis;
    request->args.kind = TUTTI_COLL_ALL_GATHER;
    agent_read_form(message->form, message->n_out_shape, message->out_shape, flat, request);
    agent_read_input(message->input, call, request);
    AGENT_READ_LIST(message, call, request);
    AGENT_READ_AXES(message, request);
    agent_read_coalesced(message->coalesced, request);
    agent_need_input(request);
    agent_read_options(message->options, request);
}

AGENT_OP_METHOD(all_gather, AllGather, ALL_GATHER)

/* ------------------------------------------------------------------------------ Barrier */

static void
answer_barrier(tutti_rpc_call *call, const agent_op_result *result)
{
    Tutti__V1__BarrierResponse response = TUTTI__V1__BARRIER_RESPONSE__INIT;
    wire_result parts;

    agent_write_result(result, &parts);
    response.info = &parts.info;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_barrier(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__BarrierRequest *message = tutti_rpc_call_request(call);
    agent_request request = {.group = message->group, .output = ""};

    request.args.kind = TUTTI_COLL_BARRIER;
    request.args.monitored = message->monitored;
    agent_read_options(message->options, &request);
    agent_op_start(self, call, &request, answer_barrier);
    agent_request_fini(&request);
}

/* ------------------------------------------------------------------------------ Send, Recv */

/* The upper half of the tags is for the messages of gradients (autograd/grad_op.c). */
static void
read_tag(uint32_t tag, agent_request *request)
{
    tutti_error err;

    request->args.tag = tag;
    if (tag > INT32_MAX) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "BAD_TAG",
                             "tag %" PRIu32 ", at most %d: those above are for gradients", tag,
                             INT32_MAX);
        agent_request_refuse(request, &err);
    }
}

static void
answer_send(tutti_rpc_call *call, const agent_op_result *result)
{
    Tutti__V1__SendResponse response = TUTTI__V1__SEND_RESPONSE__INIT;
    wire_result parts;

    agent_write_result(result, &parts);
    response.info = &parts.info;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* The peer is found when the group is known (find_in_block in op/post.c). */
static void
take_block(agent_request *request, int32_t offset, uint32_t count)
{
    request->args.peer = 0;
    request->options.has_block = true;
    request->options.block_offset = offset;
    request->options.block_count = count;
}

static void
on_send(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__SendRequest *message = tutti_rpc_call_request(call);
    agent_request request = {.group = message->group, .output = ""};
    tutti_error err;

    request.args.kind = TUTTI_COLL_SEND;
    read_tag(message->tag, &request);
    if (message->opt_destination_case == TUTTI__V1__SEND_REQUEST__OPT_DESTINATION_DESTINATION) {
        request.args.peer = (uint32_t)message->destination;
    } else if (message->opt_destination_case ==
               TUTTI__V1__SEND_REQUEST__OPT_DESTINATION_DESTINATION_GLOBAL) {
        request.args.peer = (uint32_t)message->destination_global;
        request.options.root_global = true;
    } else if (message->opt_destination_case ==
               TUTTI__V1__SEND_REQUEST__OPT_DESTINATION_GROUP_OFFSET) {
        take_block(&request, message->group_offset, message->group_count);
    } else {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "RANK_NOT_IN_GROUP",
                             "no destination: say destination, destination_global or "
                             "group_offset");
        agent_request_refuse(&request, &err);
    }
    agent_read_input(message->input, call, &request);
    agent_need_input(&request);
    agent_read_meta(message->user_meta, &request);
    agent_read_options(message->options, &request);
    request.options.tell_refusal = message->tell_refusal != 0;
    agent_op_start(self, call, &request, answer_send);
    agent_request_fini(&request);
}

static void
answer_recv(tutti_rpc_call *call, const agent_op_result *result)
{
    Tutti__V1__RecvResponse response = TUTTI__V1__RECV_RESPONSE__INIT;
    wire_result parts;

    agent_write_result(result, &parts);
    response.output = agent_result_output(&parts);
    response.info = &parts.info;
    response.source = result->source;
    response.source_global = result->source_global;
    response.user_meta = parts.meta;
    tutti_rpc_call_reply(call, &response.base, agent_result_blob(&parts));
}

/* Of half an expectation a receiver would not know which half was meant. */
static tutti_code
read_expected(const Tutti__V1__TensorSpec *expect, tutti_spec *ret_spec, tutti_error *err)
{
    if (expect->dtype == TUTTI__V1__DTYPE__DTYPE_UNSPECIFIED && expect->n_shape > 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_META",
                              "a shape of %zu dimensions and no dtype is expected: give both, or "
                              "neither to take whatever comes",
                              expect->n_shape);
    }
    return agent_read_spec(expect, ret_spec, err);
}

static void
on_recv(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__RecvRequest *message = tutti_rpc_call_request(call);
    agent_request request = {.group = message->group,
                             .output = message->output,
                             .device = message->device,
                             .options.inline_result = message->inline_result};
    tutti_error err;

    request.args.kind = TUTTI_COLL_RECV;
    read_tag(message->tag, &request);
    request.args.peer = TUTTI_COLL_ANY_SOURCE;
    if (message->opt_source_case == TUTTI__V1__RECV_REQUEST__OPT_SOURCE_SOURCE) {
        request.args.peer = (uint32_t)message->source;
    } else if (message->opt_source_case == TUTTI__V1__RECV_REQUEST__OPT_SOURCE_SOURCE_GLOBAL) {
        request.args.peer = (uint32_t)message->source_global;
        request.options.root_global = true;
    } else if (message->opt_source_case == TUTTI__V1__RECV_REQUEST__OPT_SOURCE_GROUP_OFFSET) {
        take_block(&request, message->group_offset, message->group_count);
    }
    if (request.args.peer == TUTTI_COLL_ANY_SOURCE &&
        message->opt_source_case != TUTTI__V1__RECV_REQUEST__OPT_SOURCE__NOT_SET) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "RANK_NOT_IN_GROUP",
                             "source -1: leave it out to receive from any rank");
        agent_request_refuse(&request, &err);
    }
    if (message->expect != NULL) {
        request.args.has_spec = true;
        if (read_expected(message->expect, &request.args.spec, &err) != TUTTI_OK) {
            agent_request_refuse(&request, &err);
        }
    }
    agent_read_options(message->options, &request);
    request.options.tell_refusal = message->tell_refusal != 0;
    agent_op_start(self, call, &request, answer_recv);
    agent_request_fini(&request);
}

/* ------------------------------------------------------------------------------ the service */

#define METHOD(op, Name, NAME) TUTTI_RPC_UNARY(#Name, agent_on_##op),

void
agent_add_collectives(tutti_agent *agent)
{
    static const tutti_rpc_method methods[] = {
        AGENT_OP_MAP(METHOD) /* those with an AGENT_OP_METHOD */
        TUTTI_RPC_UNARY("Infer", agent_on_infer),
        TUTTI_RPC_UNARY("Barrier", on_barrier),
        TUTTI_RPC_UNARY("Send", on_send),
        TUTTI_RPC_UNARY("Recv", on_recv),
        TUTTI_RPC_UNARY("Wait", agent_on_wait),
        TUTTI_RPC_UNARY("Test", agent_on_test),
        TUTTI_RPC_UNARY("Cancel", agent_on_cancel),
        TUTTI_RPC_UNARY("Sync", agent_on_sync),
    };
    const tutti_rpc_service service = {
        .descriptor = &tutti__v1__collectives_service__descriptor,
        .methods = methods,
        .method_count = sizeof(methods) / sizeof(methods[0]),
        .self = agent,
        .loop = agent->control,
        .open_enums = true,
    };

    tutti_rpc_server_add(agent->server, &service);
}
