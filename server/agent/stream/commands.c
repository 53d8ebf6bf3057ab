#include "server/agent/stream/commands.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"

/* ------------------------------------------------------------------------------ the end of one */

void
agent_command_free_id(agent_stream *stream, agent_command *command)
{
    if (command->by_id.key.size > 0) {
        tutti_map_remove(&stream->by_id, &command->by_id);
        command->by_id.key.size = 0;
    }
}

void
agent_command_forget(agent_stream *stream, agent_command *command)
{
    tutti_list_remove(&command->link);
    agent_command_free_id(stream, command);
    stream->count--;
    stream->payload_bytes -= command->payload_bytes;
}

void
agent_command_free(agent_command *command, bool delivered)
{
    tutti_rpc_packed_free(command->answer);
    if (command->call != NULL) {
        tutti_rpc_nested_end(command->call, delivered);
    }
    free(command);
}

/* ------------------------------------------------------------------------------ beginning */

/* With the lock: what is to begin now on this thread; NULL: nothing, or it begins elsewhere. */
static agent_command *
next_command(agent_stream *stream)
{
    agent_command *command;

    if (tutti_list_empty(&stream->waiting) || stream->awaited != NULL) {
        stream->launching = false;
        return NULL;
    }
    command = tutti_container_of(stream->waiting.next, agent_command, link);
    if (stream->refuse.code != TUTTI_OK && command->err.code == TUTTI_OK) {
        command->err = stream->refuse;
    }
    if (command->err.code == TUTTI_OK &&
        !tutti_rpc_loop_is_current(tutti_rpc_nested_loop(command->call))) {
        tutti_rpc_loop_post(tutti_rpc_nested_loop(command->call), &stream->launch);
        return NULL;
    }
    tutti_list_remove(&command->link);
    tutti_list_add(&stream->running, &command->link);
    stream->awaited = command->stop_on_error ? command : NULL;
    return command;
}

static void
begin_command(agent_command *command)
{
    tutti_error err;

    if (command->err.code == TUTTI_OK) {
        tutti_rpc_nested_start(command->call);
        return;
    }
    err = command->err;
    agent_command_on_answer(command, NULL, NULL, &err);
}

void
agent_stream_launch(agent_stream *stream)
{
    agent_command *command;

    do {
        (void)pthread_mutex_lock(&stream->lock);
        command = next_command(stream);
        (void)pthread_mutex_unlock(&stream->lock);
        if (command != NULL) {
            begin_command(command);
        }
    } while (command != NULL);
}

void
agent_stream_on_launch(tutti_rpc_task *task)
{
    agent_stream *stream = tutti_container_of(task, agent_stream, launch);

    agent_stream_enter(stream);
    (void)pthread_mutex_unlock(&stream->lock);
    agent_stream_launch(stream);
    (void)pthread_mutex_lock(&stream->lock);
    agent_stream_leave(stream);
}

/* ------------------------------------------------------------------------------ answers */

static void
skip_others(agent_stream *stream, const agent_command *command, const tutti_error *err)
{
    if (stream->refuse.code == TUTTI_OK) {
        (void)TUTTI_FAIL_FOR(&stream->refuse, TUTTI_FAILED_PRECONDITION, "SKIPPED",
                             "not begun: command %" PRIu64 " before it failed (%s)", command->id,
                             err->reason[0] != '\0' ? err->reason : tutti_code_name(err->code));
    }
}

/* With the lock: its answer waits to be written, or nobody waits for it (false). */
static bool
take_answer(agent_stream *stream, agent_command *command, const tutti_error *err)
{
    if (stream->awaited == command) {
        stream->awaited = NULL;
        if (err != NULL) {
            skip_others(stream, command, err);
        }
    }
    if (stream->dead) {
        agent_command_forget(stream, command);
        return false;
    }
    tutti_list_remove(&command->link);
    tutti_list_add(&stream->answered, &command->link);
    return true;
}

void
agent_command_on_answer(void *arg, const struct ProtobufCMessage *response,
                        const tutti_rpc_blob *payload, const tutti_error *err)
{
    agent_command *command = arg;
    agent_stream *stream = command->stream;

    command->answer = agent_command_pack(command, response, payload, err);
    agent_stream_enter(stream);
    if (!take_answer(stream, command, err)) {
        (void)pthread_mutex_unlock(&stream->lock);
        agent_command_free(command, false);
        (void)pthread_mutex_lock(&stream->lock);
    }
    agent_stream_leave(stream);
}
