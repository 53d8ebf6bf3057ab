/*
 * StoreService.Run: calls of the store as messages of a stream. Each is a nested call (rpc/nested.h),
 * so its handler is that of the unary call, with its rights, its metrics and its place in the gate.
 *
 * The loop's thread, all of it: the handlers of this room answer there. One command at a time: the
 * next message is asked for when the answer to the last one has left. So there is no list and no
 * limit to keep, a slow reader holds one answer, and the client's other messages wait in its
 * connection, which HTTP/2 or the ring of its lane bounds.
 *
 * A command goes through: read -> begun (nested) -> answered (leaving) -> left, and then the next is
 * read. The stream is finished in `settle_stream` alone: when it is closed and has no command.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "lane_offer/lane_offer.h"
#include "rpc/nested.h"
#include "server/coordinator/service/service_loop.h"
#include "server/coordinator/service/store_pb.h"

typedef struct store_stream {
    tutti_rpc_call *call;
    tutti_rpc_call *command; /* the nested call that was begun; NULL = none */
    uint64_t id;             /* of the last command */
    uint32_t number;         /* which call of the oneof it is */
    bool has_command;        /* it was read, and its answer has not left */
    bool leaving;            /* its answer is on its way */
    bool closed;             /* no command will be read any more */
    bool gone;               /* nobody hears answers */
    bool finished;
} store_stream;

/* ------------------------------------------------------------------------------ the end */

/* The command is over: its answer has left, or never will. */
static void
end_command(store_stream *self, bool delivered)
{
    tutti_rpc_call *command = self->command;

    self->command = NULL;
    self->has_command = false;
    self->leaving = false;
    if (command != NULL) {
        tutti_rpc_nested_end(command, delivered);
    }
}

/* A client that is gone does not hear this; one whose answer found no memory does. */
static const tutti_error *
say_why_it_ends(const store_stream *self, tutti_error *err)
{
    if (!self->gone) {
        return NULL;
    }
    if (tutti_rpc_call_cancelled(self->call)) {
        return service_loop_say_gone(self->call, err);
    }
    (void)TUTTI_FAIL_MEMORY(err, "no memory for the answer to a command");
    return err;
}

/* Behind everything that happens: the next command is read, or the stream is over. */
static void
settle_stream(store_stream *self)
{
    tutti_error err;

    if (self->has_command || self->finished) {
        return;
    }
    if (!self->closed) {
        tutti_rpc_call_read(self->call);
        return;
    }
    self->finished = true;
    tutti_rpc_call_finish(self->call, say_why_it_ends(self, &err));
}

/* ------------------------------------------------------------------------------ answers */

static void
error_to_wire(const tutti_error *err, Tutti__V1__Error *ret_wire)
{
    static const char *const scopes[] = {"", "group", "agent"};

    tutti__v1__error__init(ret_wire);
    ret_wire->code = (uint32_t)err->code;
    ret_wire->reason = text_to_wire(err->reason);
    ret_wire->text = text_to_wire(err->text);
    ret_wire->group = text_to_wire(err->group);
    ret_wire->sequence = err->sequence;
    ret_wire->rank = err->rank;
    ret_wire->scope = text_to_wire(scopes[err->scope]);
}

/* A call and its response have the same field number in the oneofs of the two messages. */
static void
response_to_wire(Tutti__V1__StoreServiceRunResponse *message, uint32_t number,
                 const ProtobufCMessage *response)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(
        &tutti__v1__store_service_run_response__descriptor, number);

    assert(field != NULL && field->descriptor == response->descriptor);
    message->result_case = (Tutti__V1__StoreServiceRunResponse__ResultCase)number;
    message->get = (void *)(uintptr_t)response; /* all of the oneof share their place */
}

/* An answer that finds no memory, or a stream that ends: the client would wait for it for ever. */
static void
write_answer(store_stream *self, const ProtobufCMessage *response, const tutti_rpc_blob *payload,
             const tutti_error *err)
{
    Tutti__V1__StoreServiceRunResponse message = TUTTI__V1__STORE_SERVICE_RUN_RESPONSE__INIT;
    tutti_rpc_packed *packed = NULL;
    Tutti__V1__Error error;

    message.id = self->id;
    if (err == NULL) {
        response_to_wire(&message, self->number, response);
    } else {
        error_to_wire(err, &error);
        message.result_case = TUTTI__V1__STORE_SERVICE_RUN_RESPONSE__RESULT_ERROR;
        message.error = &error;
    }
    self->leaving = true;
    if (tutti_rpc_pack(&message.base, payload, &packed, NULL) != TUTTI_OK ||
        !tutti_rpc_call_write_packed(self->call, packed, false)) {
        self->gone = true;
        self->closed = true;
        end_command(self, false);
    }
}

/* The command's handler has answered, perhaps inside of tutti_rpc_nested_start. */
static void
on_answer(void *arg, const ProtobufCMessage *response, const tutti_rpc_blob *payload,
          const tutti_error *err)
{
    store_stream *self = arg;

    if (self->gone) {
        end_command(self, false);
    } else {
        write_answer(self, response, payload, err);
    }
    settle_stream(self);
}

static void
on_stream_written(tutti_rpc_call *call, void *arg)
{
    store_stream *self = tutti_rpc_call_user(call);

    (void)arg;
    if (self->leaving) { /* else on_stream_cancel has given it up */
        end_command(self, true);
        settle_stream(self);
    }
}

/* ------------------------------------------------------------------------------ commands */

/* The pointers of a oneof share their place, so any of its names reads whichever is set. */
static tutti_code
nest_command(store_stream *self, const Tutti__V1__StoreServiceRunRequest *message,
             tutti_rpc_message *received, tutti_error *err)
{
    const tutti_rpc_nested nested = {
        .stream = self->call,
        .message = received,
        .request = (const ProtobufCMessage *)message->get,
        .on_answer = on_answer,
        .arg = self,
    };

    if (message->command_case == TUTTI__V1__STORE_SERVICE_RUN_REQUEST__COMMAND__NOT_SET) {
        tutti_rpc_message_free(received);
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_COMMAND",
                              "a command without a call, or with a call that this coordinator does "
                              "not know: compare the versions");
    }
    return tutti_rpc_nested_new(&nested, &self->command, err);
}

static void
on_stream_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    const Tutti__V1__StoreServiceRunRequest *request = tutti_rpc_message_get(message);
    store_stream *self = tutti_rpc_call_user(call);
    tutti_error err;

    (void)arg;
    assert(!self->has_command);
    self->has_command = true;
    self->id = request->id;
    self->number = (uint32_t)request->command_case;
    if (nest_command(self, request, tutti_rpc_call_take(call), &err) == TUTTI_OK) {
        tutti_rpc_nested_start(self->command);
    } else {
        on_answer(self, NULL, NULL, &err);
    }
}

/* ------------------------------------------------------------------------------ the stream */

static void
on_stream_open(tutti_rpc_call *call, void *arg)
{
    store_stream *self = calloc(1, sizeof(*self));
    tutti_error err;

    (void)arg;
    if (self == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a stream of commands");
        tutti_rpc_call_finish(call, &err);
        return;
    }
    self->call = call;
    tutti_rpc_call_set_user(call, self);
    settle_stream(self);
}

static void
on_stream_half_close(tutti_rpc_call *call, void *arg)
{
    store_stream *self = tutti_rpc_call_user(call);

    (void)arg;
    self->closed = true;
    settle_stream(self);
}

/*
 * The client has gone, the coordinator shuts down, or a message made no sense (then the stream has
 * its last word already). A command that waits is told; one whose answer leaves is left to
 * on_stream_written, unless nobody reads it.
 */
static void
on_stream_cancel(tutti_rpc_call *call, void *arg)
{
    store_stream *self = tutti_rpc_call_user(call);

    (void)arg;
    self->closed = true;
    self->gone = self->gone || tutti_rpc_call_cancelled(call);
    if (self->leaving && self->gone) {
        end_command(self, false);
    } else if (self->command != NULL && !self->leaving) {
        tutti_rpc_nested_cancel(self->command, self->gone);
    }
    settle_stream(self);
}

static void
on_stream_end(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    free(tutti_rpc_call_user(call));
}

const tutti_rpc_stream_ops coord_store_stream = {
    .on_open = on_stream_open,
    .on_message = on_stream_message,
    .on_half_close = on_stream_half_close,
    .on_written = on_stream_written,
    .on_cancel = on_stream_cancel,
    .on_end = on_stream_end,
};

/* ------------------------------------------------------------------------------ its lane */

/* A standby makes none: the stream would be refused. Nothing of the core is asked. */
void
coord_on_open_lane(tutti_rpc_call *call, void *arg)
{
    const Tutti__V1__StoreServiceOpenLaneRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__StoreServiceOpenLaneResponse response =
        TUTTI__V1__STORE_SERVICE_OPEN_LANE_RESPONSE__INIT;
    tutti_lane_offer offer;
    tutti_error err;

    if (tutti_lane_offers_make(service_loop_lanes(arg), call, request->host_id, request->bell,
                               &offer, &err) != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    response.socket = text_to_wire(offer.socket);
    response.token = (ProtobufCBinaryData){sizeof(offer.token), offer.token};
    response.byte_count = offer.bytes;
    tutti_rpc_call_reply(call, &response.base, NULL);
}
