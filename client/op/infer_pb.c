/* CollectivesService.Infer: an op's request, asked about instead of called. */
#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/types_pb.h"
#include "client/op/collectives.h"
#include "client/op/op.h"
#include "tutti/op.h"
#include "tutti/v1/collectives_service.pb-c.h"

static const tutti_rpc_stub stub_infer = {&tutti__v1__collectives_service__descriptor, "Infer"};

/* Where the request of the op goes. */
typedef struct inference {
    client_request_hook request_hook;
    tutti_client *client;
    tutti_infer_place place;
    tutti_spec result;
} inference;

static tutti_code
ask_inference(inference *self, const Tutti__V1__InferRequest *request, tutti_error *err)
{
    const client_call call = {.stub = &stub_infer,
                              .kind = CLIENT_CONTROL,
                              .deadline_ns = client_deadline(self->client, 0)};
    const Tutti__V1__InferResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_code code = client_invoke(self->client, &call, &request->base, &message, err);

    if (code != TUTTI_OK) {
        return code;
    }
    response = tutti_rpc_message_get(message);
    self->result = (tutti_spec){.dtype = TUTTI_DTYPE_NONE};
    if (response->result != NULL) {
        code = client_read_spec(response->result, &self->result, err);
    }
    tutti_rpc_message_free(message);
    return code;
}

/* Every op has a request type of its own, and with it a place in the oneof. */
static tutti_code
take_inference_request(client_request_hook *request_hook, const ProtobufCMessage *request,
                       const void *payload, size_t payload_bytes, tutti_error *err)
{
    inference *self = tutti_container_of(request_hook, inference, request_hook);
    const ProtobufCMessageDescriptor *type = &tutti__v1__infer_request__descriptor;
    Tutti__V1__InferRequest message = TUTTI__V1__INFER_REQUEST__INIT;
    unsigned i;

    (void)payload;
    (void)payload_bytes;
    message.group_size = self->place.group_size;
    message.group_rank = self->place.group_rank;
    for (i = 0; i < type->n_fields; i++) {
        if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE &&
            type->fields[i].descriptor == request->descriptor) {
            message.op_case = (Tutti__V1__InferRequest__OpCase)type->fields[i].id;
            message.all_reduce = (void *)(uintptr_t)request; /* all of it share their place */
        }
    }
    if (message.op_case == TUTTI__V1__INFER_REQUEST__OP__NOT_SET) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_OP",
                              "there is nothing to infer of this op: it makes no tensor, or the "
                              "tensor that another rank sends");
    }
    return ask_inference(self, &message, err);
}

tutti_code
tutti_infer(tutti_client *client, tutti_op_kind kind, const tutti_op *op, const tutti_spec *input,
            const tutti_infer_place *place, tutti_spec *ret_result, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_result, err);

    inference self = {.request_hook.take = take_inference_request, .client = client};
    const client_inline memory = {
        .spec = input, .gives = input != NULL, .request_hook = &self.request_hook};
    const client_op_fn fn = client_op_of(kind);
    tutti_op_result none;
    tutti_op own;

    TUTTI_TRY(client_take_op(op, &own, err));

    if (fn == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_OP", "kind of op %d is unknown",
                              (int)kind);
    }
    self.place = place == NULL ? (tutti_infer_place){0} : *place;
    own.input = input == NULL ? own.input : NULL;
    TUTTI_TRY(fn(client, &own, &memory, &none, err));
    *ret_result = self.result;
    return TUTTI_OK;
}
