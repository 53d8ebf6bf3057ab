/* SessionService: the opening of a session, and what it tells. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/address_pick.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/command_stream.h"
#include "client/conn/types_pb.h"
#include "client/session/session.h"
#include "tutti/v1/session_service.pb-c.h"

#define OPEN_ID 1

static const tutti_rpc_stub stub_drive = {&tutti__v1__session_service__descriptor, "Drive"};

/* ------------------------------------------------------------------------------ what it tells */

static tutti_code
fail_opened(const char *what, tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER", "the agent answered a session %s",
                          what);
}

static tutti_code
check_opened(const Tutti__V1__DriveOpened *opened, tutti_error *err)
{
    size_t i;

    if (opened == NULL || opened->session[0] == '\0' ||
        strlen(opened->session) > TUTTI_SESSION_ID_MAX) {
        return fail_opened("without an id, or one that is too long", err);
    }
    if (opened->n_workers == 0 || opened->n_workers > TUTTI_RANKS_MAX ||
        opened->leader >= opened->n_workers) {
        return fail_opened("without workers, or with a leader that is none of them", err);
    }
    for (i = 0; i < opened->n_workers; i++) {
        if (opened->workers[i]->worker != i) {
            return fail_opened("whose workers are not in their order", err);
        }
    }
    if (opened->secret.len != 0 && opened->secret.len != TUTTI_SESSION_SECRET_BYTES) {
        return fail_opened("whose secret is not of 16 bytes", err);
    }
    return TUTTI_OK;
}

/* Sockets of files are for those on the worker's machine: that of a leader that we reach so. */
static const char *
pick_worker_address(const tutti_client *client, const Tutti__V1__DriveWorker *worker)
{
    const bool near =
        client_is_unix(client->settings.agent) && strcmp(worker->host, client->agent.host) == 0;

    return client_pick_address_near(worker->addresses, worker->n_addresses, near);
}

static char *
keep_text(char **place, const char *text)
{
    char *kept = *place;

    *place = stpcpy(kept, text) + 1;
    return kept;
}

static size_t
text_bytes(const tutti_client *client, const Tutti__V1__DriveOpened *opened)
{
    size_t bytes = 0;
    size_t i;

    for (i = 0; i < opened->n_workers; i++) {
        const Tutti__V1__DriveWorker *worker = opened->workers[i];

        bytes += strlen(worker->host) + strlen(worker->device) +
                 strlen(pick_worker_address(client, worker)) + 3;
    }
    return bytes;
}

static tutti_code
read_workers(tutti_session *session, const Tutti__V1__DriveOpened *opened, tutti_error *err)
{
    char *place = malloc(text_bytes(session->client, opened));
    size_t i;

    session->texts = place;
    session->workers = calloc(opened->n_workers, sizeof(*session->workers));
    session->clients = calloc(opened->n_workers, sizeof(tutti_client *));
    if (session->texts == NULL || session->workers == NULL || session->clients == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu workers", opened->n_workers);
    }
    for (i = 0; i < opened->n_workers; i++) {
        const Tutti__V1__DriveWorker *worker = opened->workers[i];

        session->workers[i] = (tutti_worker_info){
            .worker = worker->worker,
            .rank = worker->rank,
            .host = keep_text(&place, worker->host),
            .device = keep_text(&place, worker->device),
            .address = keep_text(&place, pick_worker_address(session->client, worker))};
    }
    return TUTTI_OK;
}

static tutti_code
read_opened(tutti_session *session, const Tutti__V1__DriveOpened *opened, tutti_error *err)
{
    tutti_session_info *info = &session->info;
    size_t i;

    TUTTI_TRY(check_opened(opened, err));
    TUTTI_TRY(read_workers(session, opened, err));
    client_read_text(opened->session, info->id, sizeof(info->id));
    info->secret_bytes = opened->secret.len;
    if (opened->secret.len > 0) {
        memcpy(info->secret, opened->secret.data, opened->secret.len);
    }
    info->worker_count = (uint32_t)opened->n_workers;
    info->workers = session->workers;
    info->num_groups = opened->num_groups == 0 ? 1 : opened->num_groups;
    info->leader = opened->leader;
    info->registers_max = opened->registers_max;
    session_registers_init(&session->registers, opened->registers_max);
    for (i = 0; i < opened->n_registers; i++) {
        session_registers_mark(&session->registers, opened->registers[i]);
    }
    session_registers_sort(&session->registers);
    return TUTTI_OK;
}

static tutti_code
read_open_answer(tutti_session *session, const Tutti__V1__DriveResponse *answer, tutti_error *err)
{
    tutti_error said;

    if (answer->id != OPEN_ID) {
        return fail_opened("under another id than was asked for", err);
    }
    client_read_error(answer->error, &said);
    return said.code != TUTTI_OK ? tutti_error_pass(err, &said)
                                 : read_opened(session, answer->opened, err);
}

/* ------------------------------------------------------------------------------ opening */

/* [out, owned] ret_message  of the first answer */
static tutti_code
receive_opened(tutti_session *session, tutti_rpc_message **ret_message, tutti_error *err)
{
    const uint32_t timeout_ms = session->client->settings.timeout_ms;

    if (!tutti_rpc_stream_wait(session->stream, client_deadline(session->client, 0))) {
        return TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                              "the agent at %s has not opened the session in %" PRIu32
                              " ms: a worker may be slow or silent, tutti status shows the ranks",
                              session->client->settings.agent, timeout_ms);
    }
    if (tutti_rpc_stream_read(session->stream, ret_message, NULL) != TUTTI_OK ||
        *ret_message == NULL) {
        return session_end(session, err);
    }
    return TUTTI_OK;
}

static tutti_code
write_opening(tutti_session *session, const session_opening *opening, tutti_error *err)
{
    Tutti__V1__DriveRequest request = TUTTI__V1__DRIVE_REQUEST__INIT;
    Tutti__V1__DriveOpen open = TUTTI__V1__DRIVE_OPEN__INIT;

    open.group = client_write_text(opening->group);
    open.num_groups = opening->num_groups;
    open.linger = opening->linger;
    open.linger_ms = opening->linger_ms;
    if (opening->resume != NULL) {
        open.resume = client_write_text(opening->resume);
        open.secret = client_write_bytes(opening->secret, TUTTI_SESSION_SECRET_BYTES);
    }
    request.id = OPEN_ID;
    request.command_case = TUTTI__V1__DRIVE_REQUEST__COMMAND_OPEN;
    request.open = &open;
    if (tutti_rpc_stream_write(session->stream, &request.base, NULL, NULL) != TUTTI_OK) {
        return session_end(session, err);
    }
    return TUTTI_OK;
}

static tutti_code
exchange_open(tutti_session *session, const session_opening *opening, tutti_error *err)
{
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(write_opening(session, opening, err));
    TUTTI_TRY(receive_opened(session, &message, err));
    code = read_open_answer(session, tutti_rpc_message_get(message), err);
    tutti_rpc_message_free(message);
    session->last_id = OPEN_ID;
    return code;
}

/* A command stream's lane serves a session, too: its calls and answers are as small. */
static tutti_code
open_drive(tutti_session *session, tutti_error *err)
{
    tutti_rpc_call_options options = {0};
    tutti_code code;

    session->lane = client_lane_open(session->client, &client_commands);
    options.lane = session->lane == NULL ? NULL : &session->lane->end;
    code =
        tutti_rpc_stream_open(session->conn->channel, &stub_drive, &options, &session->stream, err);
    if (code != TUTTI_OK) {
        client_lane_close(session->lane);
        session->lane = NULL;
    }
    return code;
}

tutti_code
session_open_stream(tutti_session *session, const session_opening *opening, tutti_error *err)
{
    tutti_code code;

    TUTTI_TRY(open_drive(session, err));
    code = exchange_open(session, opening, err);
    if (code != TUTTI_OK && session->stream != NULL) {
        tutti_rpc_stream_cancel(session->stream);
        (void)session_finish(session, NULL);
    }
    return code;
}
