/*
 * CommandsService.Run: messages become commands, answers become messages. Control loop, but for
 * agent_command_pack, which runs on the thread that answers. stream.c has the rules.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/agent/op/group.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/services.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/state.h"
#include "server/agent/stream/stream.h"
#include "tutti/v1/commands_service.pb-c.h"

/* ------------------------------------------------------------------------------ answers */

/*
 * A call and its response have the same field number in the oneofs of the two messages, so the
 * command remembers one number and needs no table of types.
 */
static void
set_response(Tutti__V1__RunResponse *message, uint32_t number, const ProtobufCMessage *response)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(&tutti__v1__run_response__descriptor, number);

    assert(field != NULL && field->descriptor == response->descriptor);
    message->result_case = (Tutti__V1__RunResponse__ResultCase)number;
    message->all_reduce = (void *)(uintptr_t)response; /* all of the oneof share their place */
}

tutti_rpc_packed *
agent_command_pack(const agent_command *command, const ProtobufCMessage *response,
                   const tutti_rpc_blob *payload, const tutti_error *err)
{
    Tutti__V1__RunResponse message = TUTTI__V1__RUN_RESPONSE__INIT;
    tutti_rpc_packed *packed = NULL;
    Tutti__V1__Error error;

    message.id = command->id;
    if (response != NULL) {
        set_response(&message, command->number, response);
    } else {
        agent_write_error(err, &error);
        message.result_case = TUTTI__V1__RUN_RESPONSE__RESULT_ERROR;
        message.error = &error;
    }
    return tutti_rpc_pack(&message.base, payload, &packed, NULL) == TUTTI_OK ? packed : NULL;
}

/* ------------------------------------------------------------------------------ commands */

/* A client may lower the number of commands in flight, not raise it. */
static tutti_code
take_command_options(agent_stream *stream, const Tutti__V1__RunRequest *message, tutti_error *err)
{
    const Tutti__V1__RunOptions *options = message->options;
    const bool first = !stream->began;

    stream->began = true;
    if (options == NULL) {
        return TUTTI_OK;
    }
    if (!first) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_ORDER",
            "options in a later message of the stream: send them in the first one");
    }
    stream->stop_on_error = options->stop_on_error;
    if (options->queue) {
        stream->count_max = agent_queue_commands_max(stream->agent);
    }
    if (options->in_flight_max != 0 && options->in_flight_max < stream->count_max) {
        stream->count_max = options->in_flight_max;
    }
    return TUTTI_OK;
}

/* The pointers of a oneof share their place, so any of its names reads whichever is set. */
static tutti_code
nest_command(agent_command *command, const Tutti__V1__RunRequest *message,
             tutti_rpc_message *received, tutti_error *err)
{
    const tutti_rpc_nested nested = {
        .stream = command->stream->call,
        .message = received,
        .request = (const ProtobufCMessage *)message->all_reduce, /* whichever it is */
        .on_answer = agent_command_on_answer,
        .arg = command,
    };

    if (message->command_case == TUTTI__V1__RUN_REQUEST__COMMAND__NOT_SET) {
        tutti_rpc_message_free(received);
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_COMMAND",
                              "a command without a call, or with a call that this agent does not "
                              "know: compare the versions");
    }
    return tutti_rpc_nested_new(&nested, &command->call, err);
}

/*
 * What is wrong with a command is its answer, in its turn: the order of answers to failed and good
 * commands must not differ. The received message is taken in every case.
 */
static agent_command *
new_command(agent_stream *stream, tutti_rpc_message *received)
{
    const Tutti__V1__RunRequest *message = tutti_rpc_message_get(received);
    agent_command *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        tutti_rpc_message_free(received);
        return NULL;
    }
    tutti_list_init(&self->link);
    self->stream = stream;
    self->id = message->id;
    self->number = (uint32_t)message->command_case;
    self->payload_bytes = tutti_rpc_message_payload_bytes(received);
    code = take_command_options(stream, message, &self->err);
    self->stop_on_error = stream->stop_on_error || message->stop_on_error;
    if (code == TUTTI_OK) {
        (void)nest_command(self, message, received, &self->err);
    } else {
        tutti_rpc_message_free(received);
    }
    return self;
}

/* ------------------------------------------------------------------------------ the stream */

/* Entering and leaving asks for the first message, as there is nothing else to do. */
static void
on_open(tutti_rpc_call *call, void *self)
{
    tutti_agent *agent = self;
    agent_stream *stream = agent_stream_new(agent, call);
    tutti_error err;

    if (stream == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a stream of commands");
        tutti_rpc_call_finish(call, &err);
        return;
    }
    stream->client = agent_clients_hold(&agent->clients, call);
    tutti_rpc_call_set_user(call, stream);
    agent_stream_enter(stream);
    agent_stream_leave(stream);
}

/*
 * With the lock. A command that cannot be added ends the stream with the reason: the client counts
 * on an answer for each command. False: the command is not the stream's.
 */
static bool
add_command(agent_stream *stream, agent_command *command)
{
    tutti_error err;

    if (stream->closed) {
        return false;
    }
    if (command == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a command");
    } else if (agent_stream_add(stream, command, &err) == TUTTI_OK) {
        return true;
    }
    agent_stream_close(stream, &err);
    return false;
}

/* A message that cancels a command is none itself; as the first one, it may bring the options. */
static void
take_cancel(agent_stream *stream, const Tutti__V1__RunRequest *message)
{
    tutti_error err;
    const tutti_code code = take_command_options(stream, message, &err);

    agent_stream_enter(stream);
    stream->reading = false;
    if (code == TUTTI_OK) {
        agent_stream_cancel_one(stream, message->id);
    } else {
        agent_stream_close(stream, &err); /* there is no command whose answer could tell it */
    }
    agent_stream_leave(stream);
}

static void
on_message(tutti_rpc_call *call, void *self, tutti_rpc_message *message)
{
    const Tutti__V1__RunRequest *request = tutti_rpc_message_get(message);
    agent_stream *stream = tutti_rpc_call_user(call);
    agent_command *command;
    bool added;

    (void)self;
    if (request->cancel) {
        take_cancel(stream, request);
        return;
    }
    command = new_command(stream, tutti_rpc_call_take(call));
    agent_stream_enter(stream);
    stream->reading = false;
    added = add_command(stream, command);
    agent_stream_leave(stream);
    if (!added && command != NULL) {
        agent_command_free(command, false);
    }
}

static void
on_half_close(tutti_rpc_call *call, void *self)
{
    agent_stream *stream = tutti_rpc_call_user(call);

    (void)self;
    agent_stream_enter(stream);
    agent_stream_close(stream, NULL);
    agent_stream_leave(stream);
}

static void
on_written(tutti_rpc_call *call, void *self)
{
    (void)self;
    agent_stream_written(tutti_rpc_call_user(call));
}

/*
 * A draining agent (LEAVING) lets answers leave; in all other cases, malformed messages included,
 * the client hears no answers any more.
 */
static void
on_cancel(tutti_rpc_call *call, void *self)
{
    const tutti_agent *agent = self;

    agent_stream_cancel(tutti_rpc_call_user(call),
                        tutti_rpc_call_cancelled(call) || agent->state != AGENT_LEAVING);
}

static void
on_end(tutti_rpc_call *call, void *self)
{
    tutti_agent *agent = self;
    agent_stream *stream = tutti_rpc_call_user(call);

    if (stream != NULL) {
        agent_groups_note_gone(agent, agent_client_release(&agent->clients, stream->client));
    }
    agent_stream_free(stream);
}

void
agent_add_commands(tutti_agent *agent)
{
    static const tutti_rpc_stream_ops ops = {
        .on_open = on_open,
        .on_message = on_message,
        .on_half_close = on_half_close,
        .on_written = on_written,
        .on_cancel = on_cancel,
        .on_end = on_end,
    };
    static const tutti_rpc_method methods[] = {
        TUTTI_RPC_STREAM("Run", &ops),
        TUTTI_RPC_UNARY("OpenLane", agent_on_open_lane),
    };
    const tutti_rpc_service service = {
        .descriptor = &tutti__v1__commands_service__descriptor,
        .methods = methods,
        .method_count = sizeof(methods) / sizeof(methods[0]),
        .self = agent,
        .loop = agent->control,
        .open_enums = true,
    };

    tutti_rpc_server_add(agent->server, &service);
}
