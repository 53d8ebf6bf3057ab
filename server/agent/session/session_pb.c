/* SessionService: the stream of a controller. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/session/session.h"
#include "server/agent/session/sessions.h"
#include "server/agent/state/state.h"
#include "tutti/v1/session_service.pb-c.h"

/* Sessions that have ended and count apart: with few that may be led, ending them takes no longer than opening others. */
#define ENDING_MORE 16

static tutti_code
check_session_limit(const tutti_agent *agent, tutti_error *err)
{
    TUTTI_TRY(agent_check_open(agent, err));

    if (agent->session_count >= agent->options->sessions_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SESSION_LIMIT",
                              "%" PRIu32 " sessions are led by rank %" PRIu32
                              ", the limit (--sessions-max): end some, or ask another agent of the "
                              "group",
                              agent->session_count, agent->rank);
    }
    if (agent->sessions_ending >= agent->options->sessions_max + ENDING_MORE) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SESSION_LIMIT",
                              "%" PRIu32 " sessions that have ended still run their last commands "
                              "on rank %" PRIu32
                              ", the limit (--sessions-max and 16 more): try again later, or "
                              "ask another agent of the group",
                              agent->sessions_ending, agent->rank);
    }
    return TUTTI_OK;
}

static void
on_drive_open(tutti_rpc_call *call, void *arg)
{
    tutti_agent *agent = arg;
    agent_session *session = NULL;
    tutti_error err;
    tutti_code code = check_session_limit(agent, &err);

    if (code == TUTTI_OK) {
        session = agent_session_new(agent, call);
    }
    if (code == TUTTI_OK && session == NULL) {
        code = TUTTI_FAIL_MEMORY(&err, "no memory for a session");
    }
    if (code != TUTTI_OK) {
        tutti_rpc_call_finish(call, &err);
        return;
    }
    tutti_rpc_call_set_user(call, session);
    agent_session_read(session);
}

/* What follows "Bearer "; the server has looked at its form. */
static tutti_code
keep_token(agent_session *session, tutti_error *err)
{
    const tutti_bytes shown = tutti_rpc_call_metadata(session->call, "authorization");
    const size_t scheme = strlen("Bearer ");

    if (shown.size <= scheme) {
        return TUTTI_OK;
    }
    session->token = strndup((const char *)shown.data + scheme, shown.size - scheme);
    return session->token != NULL ? TUTTI_OK : TUTTI_FAIL_MEMORY(err, "no memory for a token");
}

static tutti_code
start_session(agent_session *session, const Tutti__V1__DriveOpen *open, tutti_error *err)
{
    const agent_session_request request = {.group = open->group,
                                           .group_count = open->num_groups,
                                           .linger = open->linger != 0,
                                           .linger_ms = open->linger_ms,
                                           .resume = open->resume,
                                           .secret = {open->secret.data, open->secret.len}};

    return agent_session_start(session, &request, err);
}

static void
take_open(agent_session *session, const Tutti__V1__DriveRequest *message)
{
    const uint32_t method = (uint32_t)message->command_case;
    tutti_error err;
    tutti_code code = TUTTI_OK;

    session->began = true;
    if (message->command_case != TUTTI__V1__DRIVE_REQUEST__COMMAND_OPEN) {
        code = TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "NO_START",
                              "the first message has to open a session, or resume one");
    }
    code = code == TUTTI_OK ? keep_token(session, &err) : code;
    if (code == TUTTI_OK) {
        code = agent_drive_begin(session, message->id, method, &session->open, &err);
    }
    code = code == TUTTI_OK ? start_session(session, message->open, &err) : code;
    if (code != TUTTI_OK) {
        agent_session_close(session, &err);
    }
}

static void
take_command(agent_session *session, const Tutti__V1__DriveRequest *message)
{
    agent_drive *command = NULL;
    tutti_error err;
    tutti_code code = TUTTI_OK;

    if (message->command_case == TUTTI__V1__DRIVE_REQUEST__COMMAND_OPEN) {
        code = TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "BAD_ORDER",
                              "a second open: a stream has one session");
    } else {
        code = agent_drive_begin(session, message->id, (uint32_t)message->command_case, &command,
                                 &err);
    }
    if (code != TUTTI_OK) {
        agent_session_no_more(session, &err);
        return;
    }
    agent_session_plan(session, command, message);
}

static void
on_drive_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    agent_session *session = tutti_rpc_call_user(call);

    (void)arg;
    session->reading = false;
    if (session->state == AGENT_SESSION_CLOSING || session->closed) {
        return;
    }
    if (!session->began) {
        take_open(session, tutti_rpc_message_get(message));
    } else {
        take_command(session, tutti_rpc_message_get(message));
    }
    agent_session_read(session);
}

static void
on_drive_half_close(tutti_rpc_call *call, void *arg)
{
    agent_session *session = tutti_rpc_call_user(call);
    tutti_error err;

    (void)arg;
    session->reading = false;
    if (session->began) {
        agent_session_no_more(session, NULL);
        return;
    }
    (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "NO_START",
                         "the stream has ended before a session was opened");
    agent_session_close(session, &err);
}

static void
on_drive_written(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    agent_session_written(tutti_rpc_call_user(call));
}

/* The controller went away, or the agent stops. */
static void
on_drive_cancel(tutti_rpc_call *call, void *arg)
{
    const tutti_agent *agent = arg;
    agent_session *session = tutti_rpc_call_user(call);
    tutti_error err;

    if (session == NULL) {
        return;
    }
    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING", "rank %" PRIu32 " is stopping",
                         agent->rank);
    agent_session_close(session, &err);
}

static void
on_drive_end(tutti_rpc_call *call, void *arg)
{
    agent_session *session = tutti_rpc_call_user(call);

    (void)arg;
    if (session != NULL) {
        session->call = NULL;
        agent_session_look(session);
    }
}

void
agent_add_sessions(tutti_agent *agent)
{
    static const tutti_rpc_stream_ops ops = {
        .on_open = on_drive_open,
        .on_message = on_drive_message,
        .on_half_close = on_drive_half_close,
        .on_written = on_drive_written,
        .on_cancel = on_drive_cancel,
        .on_end = on_drive_end,
    };
    static const tutti_rpc_method methods[] = {
        TUTTI_RPC_STREAM("Drive", &ops),
    };
    const tutti_rpc_service service = {
        .descriptor = &tutti__v1__session_service__descriptor,
        .methods = methods,
        .method_count = sizeof(methods) / sizeof(methods[0]),
        .self = agent,
        .loop = agent->control,
        .open_enums = true,
    };

    tutti_rpc_server_add(agent->server, &service);
}
