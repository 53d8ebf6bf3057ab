/*
 * A unary call whose answer comes on a loop. One batch, one event: on_done runs when the status
 * has come, gives the answer to on_reply and frees the request. The loop is held from before the
 * batch until then. A cancel only makes the batch end early, with TUTTI_CANCELLED; there is one
 * way out.
 */
#include <stdlib.h>

#include "base/error/fail.h"
#include "rpc/channel.h"
#include "rpc/channel/channel_private.h"
#include "rpc/loop.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message.h"
#include "rpc/message/message.h"

struct tutti_rpc_request {
    tutti_rpc_channel *channel;
    tutti_rpc_loop *loop;
    const rpc_known *known;
    grpc_call *call;
    tutti_rpc_tag done;
    grpc_byte_buffer *received;
    rpc_outcome outcome;
    tutti_rpc_reply_fn on_reply;
    void *arg;
};

static void
on_done(tutti_rpc_tag *tag, bool ok)
{
    tutti_rpc_request *self = tutti_container_of(tag, tutti_rpc_request, done);
    tutti_rpc_message *response = NULL;
    tutti_error err;
    tutti_code code = rpc_outcome_read(&self->outcome, self->channel, self->known, &err);

    (void)ok; /* true for a batch with RECV_STATUS */
    if (code == TUTTI_OK) {
        code = rpc_response_unpack(self->known, self->received, &response, &err);
        self->received = NULL;
    }
    rpc_outcome_leave(&self->outcome);
    self->on_reply(self->arg, response, code == TUTTI_OK ? NULL : &err);
    tutti_rpc_message_free(response);
    if (self->received != NULL) {
        grpc_byte_buffer_destroy(self->received);
    }
    rpc_outcome_fini(&self->outcome);
    grpc_call_unref(self->call);
    rpc_loop_drop(self->loop);
    free(self);
}

/* [in, moved] message */
static void
start_request(tutti_rpc_request *self, const tutti_rpc_call_options *options,
              grpc_byte_buffer *message)
{
    rpc_call_metadata metadata;
    grpc_op ops[6] = {0};

    ops[0] = rpc_channel_first_op(self->channel, options, &metadata);
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = message;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3] = rpc_outcome_initial_op(&self->outcome);
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = &self->received;
    ops[5] = rpc_outcome_status_op(&self->outcome);
    rpc_batch_start(self->call, ops, 6, &self->done);
    rpc_call_metadata_fini(&metadata);
    grpc_byte_buffer_destroy(message);
}

tutti_code
tutti_rpc_request_start(tutti_rpc_channel *channel, tutti_rpc_loop *loop,
                        const tutti_rpc_stub *stub, const struct ProtobufCMessage *request,
                        const tutti_rpc_call_options *options, tutti_rpc_reply_fn on_reply,
                        void *arg, tutti_rpc_request **ret_request, tutti_error *err)
{
    tutti_rpc_request *self = calloc(1, sizeof(*self));
    grpc_byte_buffer *message = NULL;
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a call");
    }
    code = rpc_channel_find(channel, stub, &self->known, err);
    code = code == TUTTI_OK ? rpc_pack(request, NULL, &message, err) : code;
    if (code != TUTTI_OK) {
        free(self);
        return code;
    }
    self->channel = channel;
    self->loop = loop;
    self->done.on_done = on_done;
    self->on_reply = on_reply;
    self->arg = arg;
    rpc_outcome_init(&self->outcome, channel);
    self->call =
        rpc_channel_call(channel, self->known, rpc_loop_queue(loop), options, &self->outcome);
    if (ret_request != NULL) {
        *ret_request = self; /* before its events can run */
    }
    rpc_loop_hold(loop);
    start_request(self, options, message);
    return TUTTI_OK;
}

void
tutti_rpc_request_cancel(tutti_rpc_request *request)
{
    rpc_outcome_cancel(&request->outcome, request->call);
}
