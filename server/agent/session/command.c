/*
 * Commands of a controller and their parts. A command is answered when its last part has ended; its
 * memory is free for another one when the answer has left.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/record/metrics.h"
#include "server/agent/session/session.h"
#include "server/agent/state/state.h"

tutti_code
agent_drive_begin(agent_session *session, uint64_t id, uint32_t method, agent_drive **ret_command,
                  tutti_error *err)
{
    agent_drive *self = tutti_container_of(session->free.next, agent_drive, link);

    self->by_id.key = tutti_map_key_u64(self->key, id);
    if (tutti_map_add(&session->by_id, &self->by_id) != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DUPLICATE_ID",
                              "a second command %" PRIu64 " while the first one is not answered",
                              id);
    }
    tutti_list_remove(&self->link);
    tutti_list_add(&session->running, &self->link);
    self->id = id;
    self->method = method;
    self->left = 1;
    *ret_command = self;
    return TUTTI_OK;
}

tutti_code
agent_drive_keep(agent_drive *command, tutti_error *err)
{
    command->kept = calloc(command->session->worker_count, sizeof(command->kept[0]));
    return command->kept != NULL
               ? TUTTI_OK
               : TUTTI_FAIL_MEMORY(err, "no memory for the answers of %" PRIu32 " workers",
                                   command->session->worker_count);
}

/* What it holds besides its place among the commands. */
static void
clear_command(agent_drive *self)
{
    uint32_t i;

    while (self->failures != NULL) {
        agent_failure *failure = self->failures;

        self->failures = failure->next;
        free(failure);
    }
    for (i = 0; i < self->session->worker_count && self->kept != NULL; i++) {
        tutti_rpc_message_free(self->kept[i]);
    }
    free(self->kept);
    self->kept = NULL;
    free(self->refused);
    self->refused = NULL;
    tutti_rpc_packed_free(self->answer);
    self->answer = NULL;
}

static void
free_command(agent_drive *self)
{
    clear_command(self);
    tutti_list_remove(&self->link);
    tutti_list_add(&self->session->free, &self->link);
}

/* ------------------------------------------------------------------------------ answers */

static void
write_next(agent_session *session)
{
    tutti_list_node *link;
    agent_drive *command;
    tutti_rpc_packed *answer;

    if (session->writing != NULL || (link = tutti_list_pop(&session->answered)) == NULL) {
        return;
    }
    command = tutti_container_of(link, agent_drive, link);
    answer = command->answer;
    command->answer = NULL;
    session->writing = command;
    /* The controller may use the id again as soon as it has read this. */
    tutti_map_remove(&session->by_id, &command->by_id);
    (void)tutti_rpc_call_write_packed(session->call, answer, !tutti_list_empty(&session->answered));
}

static void
finish_when_done(agent_session *session)
{
    if (session->closed && session->state == AGENT_SESSION_OPEN &&
        tutti_list_empty(&session->running) && tutti_list_empty(&session->answered) &&
        session->writing == NULL) {
        agent_session_close(session, session->failed.code == TUTTI_OK ? NULL : &session->failed);
    }
}

void
agent_session_written(agent_session *session)
{
    agent_drive *command = session->writing;

    session->writing = NULL;
    if (command != NULL) {
        free_command(command);
    }
    if (session->state == AGENT_SESSION_CLOSING) {
        return;
    }
    write_next(session);
    agent_session_read(session);
    finish_when_done(session);
}

void
agent_session_no_more(agent_session *session, const tutti_error *err)
{
    session->closed = true;
    if (err != NULL) {
        session->failed = *err;
    }
    finish_when_done(session);
}

/* Of the answer: the leader's own refusal, or the first worker's that failed. */
static tutti_code
code_of_command(const agent_drive *self)
{
    if (self->refused != NULL) {
        return self->refused->code;
    }
    return self->failures != NULL ? self->failures->err.code : TUTTI_OK;
}

/* Its last part has ended, and all of it was sent. */
static void
answer_command(agent_drive *self)
{
    agent_session *session = self->session;
    tutti_error err;

    if (session->state == AGENT_SESSION_CLOSING) {
        return;
    }
    self->answer = agent_drive_pack(self);
    if (self->answer == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for the answer to a command");
        agent_session_close(session, &err);
        return;
    }
    tutti_list_remove(&self->link);
    tutti_list_add(&session->answered, &self->link);
    agent_note_command(session->agent, code_of_command(self));
    write_next(session);
}

static void
drop_command(agent_drive *self)
{
    if (--self->left == 0) {
        answer_command(self);
    }
}

void
agent_drive_refuse(agent_drive *command, const tutti_error *err)
{
    command->refused = malloc(sizeof(*err));
    if (command->refused != NULL) {
        *command->refused = *err;
    } else { /* a command that says nothing of its failure would be taken for a good one */
        agent_session_close(command->session, err);
    }
}

void
agent_drive_sent(agent_drive *command)
{
    drop_command(command);
}

void
agent_drives_drop(agent_session *session)
{
    const uint32_t count = (uint32_t)session->agent->options->commands_max;
    uint32_t i;

    for (i = 0; i < count; i++) {
        clear_command(&session->commands[i]);
    }
}

/* ------------------------------------------------------------------------------ parts */

/* It has ended; and so have the waits behind it, if nothing is before them any more. */
void
agent_part_end(agent_part *part)
{
    agent_worker *worker = part->worker;

    part->called = false;
    tutti_list_remove(&part->link);
    drop_command(part->command);
    while (!tutti_list_empty(&worker->parts)) {
        agent_part *next = tutti_container_of(worker->parts.next, agent_part, link);

        if (next->called) {
            return;
        }
        tutti_list_remove(&next->link);
        drop_command(next->command);
    }
}

void
agent_drive_add(agent_drive *command, agent_worker *worker, tutti_rpc_packed *packed)
{
    agent_part *part = &worker->by_slot[command->slot];

    part->called = packed != NULL;
    command->left++;
    tutti_list_add(&worker->parts, &part->link);
    if (packed != NULL) {
        agent_worker_put(worker, packed);
    } else if (worker->parts.next == &part->link) {
        agent_part_end(part);
    }
}

/* Workers stay in their order. */
void
agent_drive_fail(agent_drive *command, const agent_worker *worker, const tutti_error *err)
{
    agent_failure **at = &command->failures;
    agent_failure *self = malloc(sizeof(*self));

    if (self == NULL) { /* a command that hides a failure would be taken for a good one */
        agent_session_close(command->session, err);
        return;
    }
    while (*at != NULL && (*at)->worker < worker->number) {
        at = &(*at)->next;
    }
    *self = (agent_failure){.next = *at, .worker = worker->number, .err = *err};
    *at = self;
}

void
agent_parts_fail(agent_worker *worker, const tutti_error *err)
{
    while (!tutti_list_empty(&worker->parts) && worker->session->state != AGENT_SESSION_CLOSING) {
        agent_part *part = tutti_container_of(worker->parts.next, agent_part, link);

        agent_drive_fail(part->command, worker, err);
        part->called = false;
        tutti_list_remove(&part->link);
        drop_command(part->command);
    }
}
