/* CollectivesService: ops become requests, responses become results. */
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/types_pb.h"
#include "client/op/collectives.h"
#include "client/op/op_pb.h"

#define SERVICE (&tutti__v1__collectives_service__descriptor)

static const tutti_rpc_stub stub_barrier = {SERVICE, "Barrier"};
static const tutti_rpc_stub stub_send = {SERVICE, "Send"};
static const tutti_rpc_stub stub_recv = {SERVICE, "Recv"};

/* ------------------------------------------------------------------------------ with a result */

static void
write_all_reduce(const tutti_op *op, const client_inline *memory,
                 Tutti__V1__AllReduceRequest *request)
{
    (void)memory;
    request->reduce_op = (Tutti__V1__ReduceOp)op->reduce;
    request->factor = op->factor;
    request->coalesced = op->coalesced;
}

CLIENT_OP_METHOD(all_reduce, AllReduce, ALL_REDUCE)

static void
write_broadcast(const tutti_op *op, const client_inline *memory,
                Tutti__V1__BroadcastRequest *request)
{
    request->inline_result = memory != NULL && memory->takes;
    request->coalesced = op->coalesced;
    request->user_meta = client_write_bytes(op->user_meta, op->user_meta_size);
    request->device = client_write_text(op->device);
    CLIENT_WRITE_ROOT(request, BROADCAST, op);
}

CLIENT_OP_METHOD_AND(broadcast, Broadcast, BROADCAST, response->user_meta)

static void
write_all_gather(const tutti_op *op, const client_inline *memory,
                 Tutti__V1__AllGatherRequest *request)
{
    (void)memory;
    request->axis = op->axis;
    request->form = (Tutti__V1__Form)op->form;
    request->out_shape =
        (int64_t *)(uintptr_t)op->out_shape; /* protobuf-c's pointers are not const */
    request->n_out_shape = op->out_shape_count;
    CLIENT_WRITE_AXES(request, op);
}

CLIENT_OP_METHOD(all_gather, AllGather, ALL_GATHER)

/* ------------------------------------------------------------------------------ without */

tutti_code
client_wire_barrier(tutti_client *client, const tutti_op *op, const client_inline *memory,
                    tutti_op_result *ret_result, tutti_error *err)
{
    Tutti__V1__BarrierRequest request = TUTTI__V1__BARRIER_REQUEST__INIT;
    const client_call call = client_op_call(client, op, memory, &stub_barrier);
    const Tutti__V1__BarrierResponse *response;
    tutti_rpc_message *message = NULL;
    wire_op wire;
    tutti_code code;

    client_write_op(op, NULL, &wire);
    request.group = wire.group;
    request.options = &wire.options;
    request.monitored = op->monitored;
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK && message != NULL) {
        response = tutti_rpc_message_get(message);
        code = client_read_op(message, NULL, response->info, NULL, ret_result, err);
    }
    tutti_rpc_message_free(message);
    return code;
}

tutti_code
client_wire_send(tutti_client *client, const tutti_op *op, const client_inline *memory,
                 tutti_op_result *ret_result, tutti_error *err)
{
    Tutti__V1__SendRequest request = TUTTI__V1__SEND_REQUEST__INIT;
    const client_call call = client_op_call(client, op, memory, &stub_send);
    const Tutti__V1__SendResponse *response;
    tutti_rpc_message *message = NULL;
    wire_op wire;
    tutti_code code;

    client_write_op(op, memory, &wire);
    request.group = wire.group;
    request.input = client_op_input(&wire);
    request.options = &wire.options;
    request.tag = op->tag;
    request.user_meta = client_write_bytes(op->user_meta, op->user_meta_size);
    if (op->group_count != 0) {
        request.opt_destination_case = TUTTI__V1__SEND_REQUEST__OPT_DESTINATION_GROUP_OFFSET;
        request.group_offset = op->group_offset;
        request.group_count = op->group_count;
    } else if (op->global) {
        request.opt_destination_case = TUTTI__V1__SEND_REQUEST__OPT_DESTINATION_DESTINATION_GLOBAL;
        request.destination_global = op->peer;
    } else if (op->peer != TUTTI_ANY_SOURCE) {
        request.opt_destination_case = TUTTI__V1__SEND_REQUEST__OPT_DESTINATION_DESTINATION;
        request.destination = op->peer;
    }
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK && message != NULL) {
        response = tutti_rpc_message_get(message);
        code = client_read_op(message, NULL, response->info, NULL, ret_result, err);
    }
    tutti_rpc_message_free(message);
    return code;
}

tutti_code
client_wire_recv(tutti_client *client, const tutti_op *op, const client_inline *memory,
                 tutti_op_result *ret_result, tutti_error *err)
{
    Tutti__V1__RecvRequest request = TUTTI__V1__RECV_REQUEST__INIT;
    const client_call call = client_op_call(client, op, memory, &stub_recv);
    const Tutti__V1__RecvResponse *response;
    tutti_rpc_message *message = NULL;
    wire_spec expect;
    wire_op wire;
    tutti_code code;

    client_write_op(op, memory, &wire);
    request.group = wire.group;
    request.output = wire.output;
    request.options = &wire.options;
    request.tag = op->tag;
    request.device = client_write_text(op->device);
    request.inline_result = memory != NULL && memory->takes;
    if (op->expect != NULL) {
        client_write_spec(op->expect, &expect);
        request.expect = &expect.message;
    }
    if (op->group_count != 0) {
        request.opt_source_case = TUTTI__V1__RECV_REQUEST__OPT_SOURCE_GROUP_OFFSET;
        request.group_offset = op->group_offset;
        request.group_count = op->group_count;
    } else if (op->peer != TUTTI_ANY_SOURCE && op->global) {
        request.opt_source_case = TUTTI__V1__RECV_REQUEST__OPT_SOURCE_SOURCE_GLOBAL;
        request.source_global = op->peer;
    } else if (op->peer != TUTTI_ANY_SOURCE) {
        request.opt_source_case = TUTTI__V1__RECV_REQUEST__OPT_SOURCE_SOURCE;
        request.source = op->peer;
    }
    code = client_invoke(client, &call, &request.base, &message, err);
    if (code == TUTTI_OK && message != NULL) {
        response = tutti_rpc_message_get(message);
        code = client_read_op(message, response->output, response->info, memory, ret_result, err);
        ret_result->source = code == TUTTI_OK ? response->source : 0;
        ret_result->source_global = code == TUTTI_OK ? response->source_global : 0;
        if (code == TUTTI_OK) {
            code = client_read_more(NULL, 0, response->user_meta, op->more, err);
        }
    }
    tutti_rpc_message_free(message);
    return code;
}
