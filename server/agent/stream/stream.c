/* What happens to a stream of commands as a whole. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/agent/state/state.h"
#include "server/agent/stream/stream.h"

#define PAYLOAD_BYTES_MAX ((size_t)64 << 20) /* of one stream: beyond, it is not read from */

/* ------------------------------------------------------------------------------ writing */

/* Many answers in one wake-up of the loop cost less than one of the engine's system calls for each;
 * who waits for a single one shall have it without a detour. */
static bool
may_write(const agent_stream *stream)
{
    return stream->writing == NULL &&
           (stream->count == 1 || tutti_rpc_loop_is_current(stream->agent->control));
}

/* With the lock: answers that this thread has left behind. */
static void
write_later(agent_stream *stream)
{
    if (stream->writing == NULL && !stream->writing_later && !tutti_list_empty(&stream->answered)) {
        stream->writing_later = true;
        tutti_rpc_loop_post(stream->agent->control, &stream->write);
    }
}

static void
on_write(tutti_rpc_task *task)
{
    agent_stream *stream = tutti_container_of(task, agent_stream, write);

    agent_stream_enter(stream);
    stream->writing_later = false;
    agent_stream_leave(stream);
}

/* With the lock: the next answer to leave; NULL: none, another is leaving, or it leaves later. */
static agent_command *
next_answer(agent_stream *stream)
{
    tutti_list_node *link = may_write(stream) ? tutti_list_pop(&stream->answered) : NULL;

    if (link == NULL) {
        return NULL;
    }
    stream->writing = tutti_container_of(link, agent_command, link);
    agent_command_free_id(
        stream, stream->writing); /* the client may use it again as soon as it has read this */
    return stream->writing;
}

/* Without the lock. An answer that found no memory is as bad as one that nobody hears. */
static void
write_answer(agent_stream *stream, tutti_rpc_packed *answer, bool more)
{
    if (answer == NULL || !tutti_rpc_call_write_packed(stream->call, answer, more)) {
        agent_stream_cancel(stream, true);
    }
}

void
agent_stream_written(agent_stream *stream)
{
    agent_command *command;

    agent_stream_enter(stream);
    command = stream->writing;
    stream->writing = NULL;
    if (command != NULL) { /* else it was given up meanwhile */
        agent_command_forget(stream, command);
        (void)pthread_mutex_unlock(&stream->lock);
        agent_command_free(command, true);
        (void)pthread_mutex_lock(&stream->lock);
    }
    agent_stream_leave(stream);
}

/* ------------------------------------------------------------------------------ the stream */

void
agent_stream_enter(agent_stream *stream)
{
    (void)pthread_mutex_lock(&stream->lock);
    stream->busy++;
}

static bool
may_launch(const agent_stream *stream)
{
    return !stream->launching && stream->awaited == NULL && !tutti_list_empty(&stream->waiting);
}

static bool
may_read(const agent_stream *stream)
{
    return !stream->reading && !stream->closed && stream->count < stream->count_max &&
           stream->payload_bytes < PAYLOAD_BYTES_MAX;
}

/* With the lock, which is let go of meanwhile: one thing that can be done. False: there is none. */
static bool
do_next(agent_stream *stream)
{
    agent_command *command = next_answer(stream);
    tutti_rpc_packed *answer = NULL;
    const bool more = !tutti_list_empty(&stream->answered);
    const bool reads = command == NULL && may_read(stream);
    const bool launches = command == NULL && !reads && may_launch(stream);

    stream->reading = stream->reading || reads;
    stream->launching = stream->launching || launches;
    if (command != NULL) {
        answer = command->answer; /* the command itself may be gone before it is written */
        command->answer = NULL;
    }
    (void)pthread_mutex_unlock(&stream->lock);
    if (command != NULL) {
        write_answer(stream, answer, more);
    } else if (reads) {
        tutti_rpc_call_read(stream->call);
    } else if (launches) {
        agent_stream_launch(stream);
    }
    (void)pthread_mutex_lock(&stream->lock);
    return command != NULL || reads || launches;
}

void
agent_stream_leave(agent_stream *stream)
{
    tutti_rpc_call *call = stream->call;
    tutti_error last;
    bool finish;

    while (do_next(stream)) {
    }
    write_later(stream);
    stream->busy--;
    finish = stream->closed && !stream->finished && stream->count == 0 && stream->busy == 0 &&
             !stream->launching && !stream->writing_later;
    if (finish) {
        stream->finished = true;
        last = stream->last;
    }
    (void)pthread_mutex_unlock(&stream->lock);
    if (finish) {
        tutti_rpc_call_finish(call, last.code == TUTTI_OK ? NULL : &last);
    }
}

tutti_code
agent_stream_add(agent_stream *stream, agent_command *command, tutti_error *err)
{
    command->by_id.key = tutti_map_key_u64(command->key, command->id);
    if (tutti_map_add(&stream->by_id, &command->by_id) != NULL) {
        command->by_id.key.size = 0;
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DUPLICATE_ID",
                              "a second command %" PRIu64 " while the first one is not answered",
                              command->id);
    }
    tutti_list_add(&stream->waiting, &command->link);
    stream->count++;
    stream->payload_bytes += command->payload_bytes;
    return TUTTI_OK;
}

void
agent_stream_close(agent_stream *stream, const tutti_error *err)
{
    if (!stream->closed && err != NULL) {
        stream->last = *err;
    }
    stream->closed = true;
}

/* ------------------------------------------------------------------------------ the end */

static void
free_all(tutti_list_node *commands)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(commands)) != NULL) {
        agent_command_free(tutti_container_of(link, agent_command, link), false);
    }
}

/* With the lock: move to `gone` what nobody will hear of. */
static void
forget_all(agent_stream *stream, tutti_list_node *commands, tutti_list_node *gone)
{
    while (!tutti_list_empty(commands)) {
        agent_command *command = tutti_container_of(commands->next, agent_command, link);

        agent_command_forget(stream, command);
        tutti_list_add(gone, &command->link);
    }
}

/* With the lock: whoever runs is told, once. */
static void
send_stream_status(agent_stream *stream, bool gone)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    if (stream->told) {
        return;
    }
    stream->told = true;
    tutti_list_each(link, spare, &stream->running)
    {
        agent_command *command = tutti_container_of(link, agent_command, link);

        if (command->call != NULL) {
            tutti_rpc_nested_cancel(command->call, gone);
        }
    }
}

/* With the lock: what nobody will hear of goes to `gone`. */
static void
fail_stream(agent_stream *stream, tutti_list_node *gone)
{
    stream->dead = true;
    forget_all(stream, &stream->waiting, gone);
    forget_all(stream, &stream->answered, gone);
    if (stream->writing != NULL) {
        agent_command *command = stream->writing;

        stream->writing = NULL;
        agent_command_forget(stream, command);
        tutti_list_add(gone, &command->link);
    }
}

void
agent_stream_cancel(agent_stream *stream, bool gone)
{
    tutti_list_node lost;
    tutti_error err;

    tutti_list_init(&lost);
    if (gone) { /* heard only by those who did not go: their answer found no memory */
        (void)TUTTI_FAIL(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory for the answer to a command");
    } else {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING", "rank %" PRIu32 " is stopping",
                             stream->agent->rank);
    }
    agent_stream_enter(stream);
    send_stream_status(stream, gone);
    if (gone) {
        fail_stream(stream, &lost);
    } else {
        stream->refuse = err;
    }
    agent_stream_close(stream, &err);
    (void)pthread_mutex_unlock(&stream->lock);
    free_all(&lost);
    (void)pthread_mutex_lock(&stream->lock);
    agent_stream_leave(stream);
}

agent_stream *
agent_stream_new(tutti_agent *agent, tutti_rpc_call *call)
{
    agent_stream *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    self->agent = agent;
    self->call = call;
    self->count_max = (uint32_t)agent->options->commands_max;
    self->launch.on_run = agent_stream_on_launch;
    self->write.on_run = on_write;
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_map_init(&self->by_id);
    tutti_list_init(&self->waiting);
    tutti_list_init(&self->running);
    tutti_list_init(&self->answered);
    return self;
}

void
agent_stream_free(agent_stream *stream)
{
    if (stream != NULL) {
        assert(stream->count == 0);
        (void)pthread_mutex_destroy(&stream->lock);
        free(stream);
    }
}

/* ------------------------------------------------------------------------------ commands */

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
