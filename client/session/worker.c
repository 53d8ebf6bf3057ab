/* The agents of a session's workers: connected when their tensors are written or read. */
#include <inttypes.h>

#include "base/error/fail.h"
#include "client/conn/client.h"
#include "client/session/session.h"

/* As the session's own client: what it has read from the environment is not read again. */
static tutti_client_options
worker_options(const tutti_session *session, const tutti_worker_info *worker)
{
    const client_settings *settings = &session->client->settings;
    tutti_client_options options;

    tutti_client_options_init(&options);
    options.agent = worker->address;
    options.coordinator = settings->coordinator;
    options.job = settings->job;
    options.tls_ca = settings->tls_ca;
    options.tls_cert = settings->tls_cert;
    options.tls_key = settings->tls_key;
    options.tls_name = settings->tls_name;
    options.token_file = settings->token_file;
    options.timeout_ms = settings->timeout_ms;
    options.traceparent = settings->trace;
    return options;
}

static tutti_code
check_rank(const tutti_worker_info *worker, const tutti_client *client, tutti_error *err)
{
    const tutti_agent_info *info = tutti_whoami(client);

    if (info->rank != worker->rank) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "CONNECTION_LOST",
                              "worker %" PRIu32 " is rank %" PRIu32 ", but the agent at %s is rank "
                              "%" PRIu32 ": it was started anew, open another session",
                              worker->worker, worker->rank, worker->address, info->rank);
    }
    return TUTTI_OK;
}

static tutti_code
connect_worker(tutti_session *session, const tutti_worker_info *worker, tutti_client **ret_client,
               tutti_error *err)
{
    const tutti_client_options options = worker_options(session, worker);
    tutti_client *client = NULL;
    tutti_code code;

    TUTTI_TRY(tutti_connect_with(&options, &client, err));
    code = check_rank(worker, client, err);
    if (code != TUTTI_OK) {
        tutti_close(client);
        return code;
    }
    *ret_client = client;
    return TUTTI_OK;
}

tutti_code
tutti_session_client(tutti_session *session, uint32_t worker, tutti_client **ret_client,
                     tutti_error *err)
{
    TUTTI_NEED(session, err);
    TUTTI_NEED(ret_client, err);

    if (worker >= session->info.worker_count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_WORKER",
                              "no worker %" PRIu32 ": the session has %" PRIu32 ", from 0", worker,
                              session->info.worker_count);
    }
    if (worker == session->info.leader) {
        *ret_client = session->client;
        return TUTTI_OK;
    }
    if (session->clients[worker] == NULL) {
        TUTTI_TRY(
            connect_worker(session, &session->workers[worker], &session->clients[worker], err));
    }
    *ret_client = session->clients[worker];
    return TUTTI_OK;
}

/* A client whose calls come behind all commands so far. */
static tutti_code
reach_worker(tutti_session *session, uint32_t worker, tutti_client **ret_client, tutti_error *err)
{
    const tutti_workers on = {.workers = &worker, .count = 1};

    TUTTI_TRY(tutti_session_client(session, worker, ret_client, err));
    return tutti_session_flush(session, &on, err);
}

static tutti_code
make_room_on(tutti_session *session, uint32_t worker, uint32_t into, const tutti_spec *spec,
             tutti_error *err)
{
    tutti_session_empty_options options;
    uint64_t ticket = 0;

    tutti_session_empty_init(&options);
    options.on = (tutti_workers){.workers = &worker, .count = 1};
    TUTTI_TRY(tutti_session_empty(session, into, spec, &options, &ticket, err));
    return tutti_session_wait(session, ticket, NULL, err);
}

/* The leader makes the tensor, so that it ends with the session; its end says that all commands
 * before have begun. */
tutti_code
tutti_session_put(tutti_session *session, uint32_t worker, uint32_t into, const tutti_spec *spec,
                  const void *data, const tutti_transfer *transfer, tutti_error *err)
{
    TUTTI_NEED(session, err);
    TUTTI_NEED(spec, err);

    char name[TUTTI_REGISTER_NAME_MAX];
    tutti_client *client = NULL;

    TUTTI_TRY(tutti_session_client(session, worker, &client, err));
    TUTTI_TRY(make_room_on(session, worker, into, spec, err));
    return tutti_tensor_write(client, tutti_session_name(session, into, name), spec, data, transfer,
                              err);
}

tutti_code
tutti_session_write(tutti_session *session, uint32_t worker, uint32_t dst, const tutti_spec *spec,
                    const void *data, const tutti_transfer *transfer, tutti_error *err)
{
    TUTTI_NEED(session, err);
    TUTTI_NEED(spec, err);

    char name[TUTTI_REGISTER_NAME_MAX];
    tutti_client *client = NULL;

    TUTTI_TRY(reach_worker(session, worker, &client, err));
    return tutti_tensor_write(client, tutti_session_name(session, dst, name), spec, data, transfer,
                              err);
}

tutti_code
tutti_session_read(tutti_session *session, uint32_t worker, uint32_t src, void *data,
                   uint64_t bytes, const tutti_transfer *transfer, tutti_error *err)
{
    TUTTI_NEED(session, err);

    char name[TUTTI_REGISTER_NAME_MAX];
    tutti_client *client = NULL;

    TUTTI_TRY(reach_worker(session, worker, &client, err));
    return tutti_tensor_read(client, tutti_session_name(session, src, name), data, bytes, transfer,
                             err);
}
