/*
 * A stream of commands: when commands begin, when answers leave, and how the stream ends.
 *
 * Threads. Messages, on_written and the end come on the control loop. Commands begin on the loops
 * of their services. Answers come from any thread: the engine's, the bulk loop's. One mutex guards
 * all lists and flags. It is let go of around every call to lib/rpc except posts, because such a
 * call may come back here on the same thread: an answer inside of tutti_rpc_nested_start, say.
 *
 * Everything that happens is put between agent_stream_enter and agent_stream_leave. Leave is the
 * only place that acts, in a loop (do_next): it writes one answer, or reads one message, or begins
 * commands, each claimed by a flag under the lock (writing, reading, launching), so two threads in
 * here never do the same thing. `busy` counts threads inside; the stream finishes when no more
 * commands come, none is left, and nobody is inside.
 *
 * A command is in exactly one list (waiting, running, answered) or is `writing`. It is freed when
 * its answer has left, or when nobody will hear of it. After tutti_rpc_call_finish the control loop
 * may free the stream at any moment.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "coll/group.h"
#include "server/agent/state/state.h"
#include "server/agent/stream/stream.h"

/*
 * Payload of all commands of one stream that are not over: beyond, it is not read from, and
 * HTTP/2's flow control slows the client.
 */
#define PAYLOAD_BYTES_MAX ((size_t)64 << 20) /* of one stream: beyond, it is not read from */

/* ------------------------------------------------------------------------------ writing */

/*
 * May this thread write the next answer? The control loop always. Another thread only when its
 * answer is the stream's one command: a caller that waits for a single answer shall have it without
 * a task's detour. Of several, the loop writes all that have come in one wake-up, with fewer system
 * calls.
 */
static bool
may_write(const agent_stream *stream)
{
    return stream->writing == NULL &&
           (stream->count == 1 || tutti_rpc_loop_is_current(stream->agent->control));
}

/*
 * With the lock: answers that this thread may not write are left to a task on the stream's loop.
 * While an answer is leaving, on_written goes on with the next, and no task is needed.
 */
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

/*
 * With the lock: the next answer to leave; NULL: none, another one is leaving, or it leaves later.
 * The id is free before the write: the client may use it again as soon as it has read this answer.
 */
static agent_command *
next_answer(agent_stream *stream)
{
    tutti_list_node *link = may_write(stream) ? tutti_list_pop(&stream->answered) : NULL;

    if (link == NULL) {
        return NULL;
    }
    stream->writing = tutti_container_of(link, agent_command, link);
    agent_command_free_id(stream, stream->writing);
    return stream->writing;
}

/*
 * Without the lock. An answer that could not be packed, or cannot leave, is the end of the stream:
 * the client would wait for it for ever.
 */
static void
write_answer(agent_stream *stream, tutti_rpc_packed *answer, bool more)
{
    if (answer == NULL || !tutti_rpc_call_write_packed(stream->call, answer, more)) {
        agent_stream_cancel(stream, true);
    }
}

/* `writing` is NULL here when the stream failed meanwhile (fail_stream took the command). */
void
agent_stream_written(agent_stream *stream)
{
    agent_command *command;

    agent_stream_enter(stream);
    command = stream->writing;
    stream->writing = NULL;
    if (command != NULL) {
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

/* One read at a time, and none beyond the limits of commands and payload. */
static bool
may_read(const agent_stream *stream)
{
    return !stream->reading && !stream->closed && stream->count < stream->count_max &&
           stream->payload_bytes < PAYLOAD_BYTES_MAX;
}

/*
 * With the lock, which is let go of meanwhile: one thing that can be done. False: there is none.
 * Answers come first, as they make room for commands; then a read, which only asks for a message;
 * then beginning commands, which may take long.
 *
 * The answer is taken out of the command under the lock: a cancel on another thread may free the
 * command before it is written.
 */
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
        answer = command->answer;
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

/*
 * Does what can be done, then lets go of the lock and, as the last one inside, finishes the call.
 * The call's pointer is read first: from busy-- and the unlock on, another thread may finish the
 * stream and the control loop free it.
 */
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

/*
 * On failure by_id is marked as not in the map (key.size 0), so that freeing the command is fine.
 */
tutti_code
agent_stream_add(agent_stream *stream, agent_command *command, tutti_error *err)
{
    command->by_id.key = tutti_map_key_u64(command->key, command->id);
    if (tutti_map_add(&stream->by_id, &command->by_id) != NULL) {
        command->by_id.key.size = 0;
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DUPLICATE_ID",
                              "command %" PRIu64
                              " is in flight already: give the new command another id",
                              command->id);
    }
    tutti_list_add(&stream->waiting, &command->link);
    stream->count++;
    stream->payload_bytes += command->payload_bytes;
    return TUTTI_OK;
}

/*
 * The first error is what the stream ends with. Commands that were added still run and are
 * answered, unless agent_stream_cancel took them.
 */
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

/*
 * With the lock: move to `gone` what nobody will hear of. They are freed later, without the lock.
 */
static void
forget_all(agent_stream *stream, tutti_list_node *commands, tutti_list_node *gone)
{
    while (!tutti_list_empty(commands)) {
        agent_command *command = tutti_container_of(commands->next, agent_command, link);

        agent_command_forget(stream, command);
        tutti_list_add(gone, &command->link);
    }
}

/*
 * With the lock, and while the command has its id: its call is not over then. A call is told once;
 * tutti_rpc_nested_cancel only posts.
 */
static void
tell_command(agent_command *command, bool gone)
{
    if (command->call != NULL && !command->told) {
        command->told = true;
        tutti_rpc_nested_cancel(command->call, gone);
    }
}

/*
 * What waits is told when it begins (next_command): a command that was dropped would leave the
 * other ranks waiting for this one.
 */
void
agent_stream_cancel_one(agent_stream *stream, uint64_t id)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&stream->by_id, tutti_map_key_u64(key, id));
    agent_command *command = node == NULL ? NULL : tutti_container_of(node, agent_command, by_id);

    if (command == NULL) {
        return;
    }
    command->cancelled = true;
    if (command->begun) {
        tell_command(command, true);
    }
}

/*
 * With the lock: tell what runs that its caller is gone or the agent stops, once.
 * tutti_rpc_nested_cancel only posts, so it may be called with the lock held.
 */
static void
cancel_running(agent_stream *stream, bool gone)
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

        tell_command(command, gone);
    }
}

/*
 * With the lock: nobody hears answers any more. Commands that run are left alone: each comes back
 * with its answer and is freed in take_answer.
 */
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

/*
 * Two cases. The client is gone: waiting and answered commands are dropped, running ones cancelled.
 * The agent stops: what waits is refused with STOPPING, and all answers still leave.
 */
void
agent_stream_cancel(agent_stream *stream, bool gone)
{
    tutti_list_node lost;
    tutti_error err;

    tutti_list_init(&lost);
    /* A client that is gone does not hear this error; one whose answer found no memory does. */
    if (gone) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for the answer to a command");
    } else {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING", "rank %" PRIu32 " is stopping",
                             stream->agent->rank);
    }
    agent_stream_enter(stream);
    cancel_running(stream, gone);
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

/*
 * With the lock: what is to begin now on this thread; NULL: nothing, or it begins elsewhere.
 * Commands begin in their order, so when the next one belongs to another loop, `launching` moves
 * there with the posted task, and nobody else begins anything meanwhile. A command that only has an
 * error to give needs no loop.
 */
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
    command->begun = true;
    if (command->cancelled) { /* a task of this loop: it runs when the call has been started */
        tell_command(command, true);
    }
    stream->awaited = command->stop_on_error ? command : NULL;
    command->alone = stream->count == 1;
    return command;
}

/* Of several commands none is waited for on this thread, which reads and begins the others. */
static void
begin_command(agent_command *command)
{
    tutti_error err;

    if (command->err.code == TUTTI_OK) {
        tutti_coll_hurry(!command->alone);
        tutti_rpc_nested_start(command->call);
        tutti_coll_hurry(false);
        return;
    }
    err = command->err;
    agent_command_on_answer(command, NULL, NULL, &err);
}

/*
 * Called by the thread that has set `launching`, without the lock; next_command clears it, or hands
 * it to another loop. The stream cannot end meanwhile, as `launching` keeps it.
 */
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

/*
 * stop_on_error: the first failed command refuses all that have not begun. None has begun behind
 * it, as `awaited` held them back.
 */
static void
skip_others(agent_stream *stream, const agent_command *command, const tutti_error *err)
{
    if (stream->refuse.code == TUTTI_OK) {
        (void)TUTTI_FAIL_FOR(
            &stream->refuse, TUTTI_FAILED_PRECONDITION, "SKIPPED",
            "this command was not begun, because command %" PRIu64 " before it failed (%s)",
            command->id, err->reason[0] != '\0' ? err->reason : tutti_code_name(err->code));
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

/*
 * Any thread, once for a command. Packing is the large part of the work and needs no lock: the
 * command is in no other thread's hands while it runs.
 */
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
