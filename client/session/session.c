/*
 * A session's life, and its commands by their ids. One thread: answers are read when somebody waits
 * for one, or when there is no room for another command. The leader reads all that we have
 * unanswered, so writing never waits for our reading.
 */
#include "client/session/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "client/conn/client.h"
#include "client/conn/command_stream.h"
#include "client/conn/options.h"

#define IN_FLIGHT_DEFAULT 256        /* the agent's default */
#define BYTES_MAX ((size_t)16 << 20) /* less than what the agent reads of one stream */
#define NOW_NS 1                     /* a time that has passed */

void
tutti_session_options_init(tutti_session_options *options)
{
    *options = (tutti_session_options){.size = sizeof(*options)};
}

/* ------------------------------------------------------------------------------ life */

static uint32_t
choose_session_window(const tutti_client *client, uint32_t wanted)
{
    const uint32_t agent_max = client->agent.commands_max;
    const uint32_t most = agent_max != 0 ? agent_max : IN_FLIGHT_DEFAULT;

    return wanted != 0 && wanted < most ? wanted : most;
}

static void
free_command(tutti_session *session, session_command *command)
{
    tutti_map_remove(&session->by_id, &command->by_id);
    tutti_list_remove(&command->done);
    tutti_session_result_free(&command->result);
    free(command);
}

/* All but the stream, which has ended. */
static void
free_session(tutti_session *session)
{
    tutti_map_node *node;
    uint32_t i;

    while ((node = tutti_map_first(&session->by_id)) != NULL) {
        free_command(session, tutti_container_of(node, session_command, by_id));
    }
    for (i = 0; i < session->info.worker_count; i++) {
        tutti_close(session->clients[i]);
    }
    if (session->conn != NULL) {
        client_conn_give(session->client, session->conn);
    }
    session_registers_fini(&session->registers);
    free(session->clients);
    free(session->workers);
    free(session->texts);
    free(session);
}

static tutti_code
open_session(tutti_client *client, const tutti_session_options *options,
             const session_opening *opening, tutti_session **ret_session, tutti_error *err)
{
    tutti_session *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a session");
    }
    self->client = client;
    self->in_flight_max = choose_session_window(client, options->in_flight_max);
    tutti_map_init(&self->by_id);
    tutti_list_init(&self->done);
    code = client_conn_take(client, CLIENT_CONTROL, &self->conn, err);
    if (code == TUTTI_OK) {
        code = session_open_stream(self, opening, err);
    }
    if (code != TUTTI_OK) {
        free_session(self);
        return code;
    }
    *ret_session = self;
    return TUTTI_OK;
}

tutti_code
tutti_session_open(tutti_client *client, const tutti_session_options *options,
                   tutti_session **ret_session, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_session, err);

    session_opening opening = {0};
    tutti_session_options own;

    tutti_session_options_init(&own);
    if (options != NULL) {
        TUTTI_TRY(
            client_take_struct(&own, sizeof(own), options, options->size, "session options", err));
    }
    opening.group = own.group;
    opening.num_groups = own.num_groups;
    opening.linger = own.linger;
    opening.linger_ms = own.linger_ms;
    return open_session(client, &own, &opening, ret_session, err);
}

tutti_code
tutti_session_resume(tutti_client *client, const char *id, const void *secret,
                     const tutti_session_options *options, tutti_session **ret_session,
                     tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_session, err);
    TUTTI_NEED(secret, err);

    session_opening opening = {0};
    tutti_session_options own;

    tutti_session_options_init(&own);
    own.linger = true;
    if (options != NULL) {
        TUTTI_TRY(
            client_take_struct(&own, sizeof(own), options, options->size, "session options", err));
    }
    if (id == NULL || id[0] == '\0' || strlen(id) > TUTTI_SESSION_ID_MAX || secret == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_SESSION",
                              "no session has the id \"%.64s\": give the id and the secret that "
                              "its opening has told",
                              id == NULL ? "" : id);
    }
    opening.linger = own.linger;
    opening.linger_ms = own.linger_ms;
    opening.resume = id;
    opening.secret = secret;
    return open_session(client, &own, &opening, ret_session, err);
}

tutti_code
session_finish(tutti_session *session, tutti_error *err)
{
    const tutti_code code = tutti_rpc_stream_finish(session->stream, err);

    session->stream = NULL;
    client_lane_close(session->lane);
    session->lane = NULL;
    return code;
}

tutti_code
session_end(tutti_session *session, tutti_error *err)
{
    if (session->stream != NULL) {
        if (session_finish(session, &session->ended) == TUTTI_OK) {
            (void)TUTTI_FAIL_FOR(&session->ended, TUTTI_UNAVAILABLE, "CONNECTION_LOST",
                                 "the agent has ended the session's stream: open another one");
        }
    }
    return tutti_error_pass(err, &session->ended);
}

static tutti_code
end_session(tutti_session *session, tutti_error *err)
{
    TUTTI_TRY(session_write(session, NULL, err));
    return session_finish(session, err); /* reads all that comes */
}

tutti_code
tutti_session_close(tutti_session *session, tutti_error *err)
{
    tutti_code code;

    if (session == NULL) {
        return TUTTI_OK;
    }
    code = session->stream == NULL ? tutti_error_pass(err, &session->ended)
                                   : end_session(session, err);
    free_session(session);
    return code;
}

void
tutti_session_cancel(tutti_session *session)
{
    if (session->stream != NULL) {
        tutti_rpc_stream_cancel(session->stream);
    }
}

const tutti_session_info *
tutti_session_describe(const tutti_session *session)
{
    return &session->info;
}

/* ------------------------------------------------------------------------------ registers */

tutti_code
tutti_session_register(tutti_session *session, uint32_t *ret_register, tutti_error *err)
{
    TUTTI_NEED(session, err);
    TUTTI_NEED(ret_register, err);

    return session_registers_take(&session->registers, ret_register, err);
}

const char *
tutti_session_name(const tutti_session *session, uint32_t reg, char *ret_name)
{
    (void)snprintf(ret_name, TUTTI_REGISTER_NAME_MAX, "reg:%s/%" PRIu32, session->info.id, reg);
    return ret_name;
}

/* ------------------------------------------------------------------------------ writing */

tutti_code
session_write(tutti_session *session, tutti_rpc_packed *packed, tutti_error *err)
{
    tutti_rpc_packed *held = session->held;

    session->held = packed;
    if (held == NULL) {
        return TUTTI_OK;
    }
    if (tutti_rpc_stream_write_packed(session->stream, held, packed != NULL, NULL) == TUTTI_OK) {
        return TUTTI_OK;
    }
    tutti_rpc_packed_free(packed);
    session->held = NULL;
    return session_end(session, err);
}

/* What was given leaves this process. */
static tutti_code
send_held(tutti_session *session, tutti_error *err)
{
    return session->stream == NULL ? tutti_error_pass(err, &session->ended)
                                   : session_write(session, NULL, err);
}

void
session_given(tutti_session *session, session_command *command)
{
    command->by_id.key = tutti_map_key_u64(command->key, command->id);
    (void)tutti_map_add(&session->by_id, &command->by_id);
    session->unanswered++;
    session->bytes += command->bytes;
    session->tickets += command->quiet ? 0 : 1;
}

/* ------------------------------------------------------------------------------ reading */

session_command *
session_find(const tutti_session *session, uint64_t id)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&session->by_id, tutti_map_key_u64(key, id));

    return node == NULL ? NULL : tutti_container_of(node, session_command, by_id);
}

/* Nobody asks for it: the first one that fails is told by the next sync. */
static void
end_quiet(tutti_session *session, session_command *command)
{
    if (command->result.error.code != TUTTI_OK &&
        (session->blamed == 0 || command->id < session->blamed)) {
        session->blamed = command->id;
        session->blame = command->result.error;
    }
    free_command(session, command);
}

void
session_answered(tutti_session *session, session_command *command)
{
    command->answered = true;
    session->unanswered--;
    session->bytes -= command->bytes;
    if (command->quiet) {
        end_quiet(session, command);
    } else {
        tutti_list_add(&session->done, &command->done);
    }
}

/* One answer; what is held goes out first. */
static tutti_code
read_one_answer(tutti_session *session, tutti_error *err)
{
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(send_held(session, err));
    if (tutti_rpc_stream_read(session->stream, &message, NULL) != TUTTI_OK || message == NULL) {
        return session_end(session, err);
    }
    code = session_read_answer(session, message, &session->ended);
    if (code != TUTTI_OK) { /* whatever answers there is no agent */
        tutti_rpc_stream_cancel(session->stream);
        (void)session_finish(session, NULL);
        return tutti_error_pass(err, &session->ended);
    }
    return TUTTI_OK;
}

static tutti_code
make_session_room(tutti_session *session, size_t bytes, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    while (code == TUTTI_OK && session->unanswered > 0 && session->bytes + bytes > BYTES_MAX) {
        code = read_one_answer(session, err);
    }
    return code;
}

tutti_code
session_make_room(tutti_session *session, size_t bytes, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (session->stream == NULL) {
        return tutti_error_pass(err, &session->ended);
    }
    if (session->unanswered < session->in_flight_max) {
        return make_session_room(session, bytes, err);
    }
    /* Half of it at once, so that the next commands travel together. */
    while (code == TUTTI_OK && session->unanswered > session->in_flight_max / 2) {
        code = read_one_answer(session, err);
    }
    return code == TUTTI_OK ? make_session_room(session, bytes, err) : code;
}

/* ------------------------------------------------------------------------------ results */

void
tutti_session_result_free(tutti_session_result *result)
{
    size_t i;

    if (result == NULL) {
        return;
    }
    for (i = 0; i < result->value_count; i++) {
        tutti_value_free(&result->values[i].value);
    }
    free(result->values);
    free(result->failed);
    free(result->functions);
    *result = (tutti_session_result){0};
}

/* The caller has it now. */
static void
hand_over_command(tutti_session *session, session_command *command,
                  tutti_session_result *ret_result)
{
    *ret_result = command->result;
    command->result = (tutti_session_result){0};
    session->tickets--;
    free_command(session, command);
}

static tutti_code
find_ticket(const tutti_session *session, uint64_t ticket, session_command **ret_command,
            tutti_error *err)
{
    session_command *command = session_find(session, ticket);

    if (command == NULL || command->quiet) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NOTHING_SUBMITTED",
                              "no command of the session has the ticket %" PRIu64
                              ", or its result was taken",
                              ticket);
    }
    *ret_command = command;
    return TUTTI_OK;
}

tutti_code
tutti_session_wait(tutti_session *session, uint64_t ticket, tutti_session_result *ret_result,
                   tutti_error *err)
{
    TUTTI_NEED(session, err);

    session_command *command = NULL;
    tutti_session_result own;
    tutti_code code;

    TUTTI_TRY(find_ticket(session, ticket, &command, err));
    while (!command->answered) {
        TUTTI_TRY(read_one_answer(session, err));
    }
    hand_over_command(session, command, ret_result != NULL ? ret_result : &own);
    if (ret_result != NULL) {
        return TUTTI_OK;
    }
    code = own.error.code == TUTTI_OK ? TUTTI_OK : tutti_error_pass(err, &own.error);
    tutti_session_result_free(&own);
    return code;
}

tutti_code
tutti_session_poll(tutti_session *session, uint64_t ticket, uint32_t timeout_ms, bool *ret_ended,
                   tutti_error *err)
{
    TUTTI_NEED(session, err);
    TUTTI_NEED(ret_ended, err);

    const uint64_t wait_ns = (uint64_t)timeout_ms * TUTTI_NS_PER_MS;
    const uint64_t until_ns = wait_ns == 0 ? NOW_NS : tutti_clock_add(tutti_clock_ns(), wait_ns);
    session_command *command = NULL;

    TUTTI_TRY(find_ticket(session, ticket, &command, err));
    while (!command->answered) {
        TUTTI_TRY(send_held(session, err));
        if (!tutti_rpc_stream_wait(session->stream, until_ns)) {
            break;
        }
        TUTTI_TRY(read_one_answer(session, err));
    }
    *ret_ended = command->answered;
    return TUTTI_OK;
}

tutti_code
tutti_session_next(tutti_session *session, tutti_session_result *ret_result, tutti_error *err)
{
    TUTTI_NEED(session, err);
    TUTTI_NEED(ret_result, err);

    if (session->tickets == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NOTHING_SUBMITTED",
                              "all results of the session have been taken");
    }
    while (tutti_list_empty(&session->done)) {
        TUTTI_TRY(read_one_answer(session, err));
    }
    hand_over_command(session, tutti_container_of(session->done.next, session_command, done),
                      ret_result);
    return TUTTI_OK;
}

size_t
tutti_session_count(const tutti_session *session)
{
    return session->tickets;
}

/* ------------------------------------------------------------------------------ all before */

/* Those before `id` have ended: their answers are about to come. */
static tutti_code
read_before(tutti_session *session, uint64_t id, tutti_error *err)
{
    tutti_map_node *node = tutti_map_first(&session->by_id);

    while (node != NULL) {
        const session_command *command = tutti_container_of(node, session_command, by_id);

        if (command->id >= id) {
            return TUTTI_OK;
        }
        if (command->answered) {
            node = tutti_map_next(node);
        } else {
            TUTTI_TRY(read_one_answer(session, err));
            node = tutti_map_first(&session->by_id); /* answers free what nobody asks for */
        }
    }
    return TUTTI_OK;
}

static tutti_code
tell_blame(tutti_session *session, tutti_error *err)
{
    if (session->blamed == 0) {
        return TUTTI_OK;
    }
    session->blamed = 0;
    return tutti_error_pass(err, &session->blame);
}

static bool
is_all(const tutti_workers *on)
{
    return on == NULL || on->workers == NULL || on->count == 0;
}

tutti_code
tutti_session_sync(tutti_session *session, const tutti_workers *on, tutti_error *err)
{
    TUTTI_NEED(session, err);

    uint64_t id = 0;

    TUTTI_TRY(session_give_sync(session, on, &id, err));
    TUTTI_TRY(tutti_session_wait(session, id, NULL, err));
    if (is_all(on)) {
        TUTTI_TRY(read_before(session, id, err));
    }
    return tell_blame(session, err);
}

tutti_code
tutti_session_flush(tutti_session *session, const tutti_workers *on, tutti_error *err)
{
    TUTTI_NEED(session, err);

    uint64_t id = 0;

    TUTTI_TRY(session_give_flush(session, on, &id, err));
    return tutti_session_wait(session, id, NULL, err);
}
