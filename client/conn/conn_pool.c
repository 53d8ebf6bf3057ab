/*
 * The connections of a client, and gRPC itself: each is there while it is used.
 *
 * A connection counts its users: the client (while it is in `conns`) and each call. The count is
 * behind the client's lock; the last user closes the channel outside of it, because that may take
 * a while. So a connection that is given up stays good for the calls that are on it.
 *
 * gRPC does not survive fork(): `library.owner` says which process started it. A child that uses
 * a client of its parent is refused (FORKED) before any lock is taken, since a thread of the
 * parent may have held that lock at the fork.
 */
#include "client/conn/conn_pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "client/conn/client.h"
#include "client/conn/options.h"
#include "rpc/follow.h"

/* Of several coordinators. Above the coordinator's --ping-interval-min. */
#define FOLLOW_KEEPALIVE_NS (4 * TUTTI_NS_PER_S)
#define FOLLOW_KEEPALIVE_TIMEOUT_NS (2 * TUTTI_NS_PER_S)

/* The one state of the process that the library holds. */
static struct {
    pthread_mutex_t lock; /* guards client_count; taken alone */
    size_t client_count;
    _Atomic pid_t owner; /* the process that started gRPC; 0 = none */
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

static tutti_code
fail_forked(pid_t owner, tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "FORKED",
                          "process %ld was forked off process %ld, which has connected: gRPC does "
                          "not survive that, connect in the child alone or start a program",
                          (long)getpid(), (long)owner);
}

tutti_code
client_check_owner(pid_t owner, tutti_error *err)
{
    return owner == getpid() ? TUTTI_OK : fail_forked(owner, err);
}

tutti_code
client_check_process(const tutti_client *client, tutti_error *err)
{
    return client_check_owner(client->owner, err);
}

/*
 * Log levels of the library: silent unless $TUTTI_LOG asks, but for errors and for the client's
 * warnings, which tell why a program is slow.
 */
static void
set_up_log(void)
{
    const char *levels = getenv("TUTTI_LOG");

    if (levels == NULL || tutti_log_set_levels(levels, NULL) != TUTTI_OK) {
        (void)tutti_log_set_levels("error,client=warn", NULL);
    }
}

tutti_code
client_library_enter(tutti_error *err)
{
    const pid_t owner = atomic_load(&library.owner);

    /* This comes before any lock: in a forked child the parent's threads may hold it. */
    if (owner != 0 && owner != getpid()) {
        return fail_forked(owner, err);
    }
    (void)pthread_mutex_lock(&library.lock);
    if (library.client_count++ == 0) {
        set_up_log();
        tutti_rpc_init();
        atomic_store(&library.owner, getpid());
    }
    (void)pthread_mutex_unlock(&library.lock);
    return TUTTI_OK;
}

void
client_library_leave(void)
{
    (void)pthread_mutex_lock(&library.lock);
    assert(library.client_count > 0);
    if (--library.client_count == 0) {
        tutti_rpc_fini();
        atomic_store(&library.owner, 0);
    }
    (void)pthread_mutex_unlock(&library.lock);
}

/* ------------------------------------------------------------------------------ lines */

static tutti_code
find_address(const tutti_client *client, client_conn_kind kind, const char **ret_address,
             tutti_error *err)
{
    const char *address = client->settings.agent;

    if (kind != CLIENT_COORDINATOR) {
        if (address[0] == '\0') {
            return TUTTI_FAIL_FOR(
                err, TUTTI_FAILED_PRECONDITION, "NO_AGENT",
                "this client was connected without an agent: connect to an agent");
        }
    } else {
        address = client->settings.coordinator[0] != '\0' ? client->settings.coordinator
                                                          : client->agent.coordinator;
        if (address[0] == '\0') {
            address = getenv("TUTTI_COORDINATOR");
        }
        if (address == NULL || address[0] == '\0') {
            return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_COORDINATOR",
                                  "no address of a coordinator: neither the options nor the agent "
                                  "nor $TUTTI_COORDINATOR have one");
        }
    }
    *ret_address = address;
    return TUTTI_OK;
}

static tutti_code
open_conn(const tutti_client *client, client_conn_kind kind, client_conn **ret_conn,
          tutti_error *err)
{
    const client_settings *settings = &client->settings;
    tutti_rpc_channel_options options = {.tls_ca = settings->tls_ca,
                                         .tls_cert = settings->tls_cert,
                                         .tls_key = settings->tls_key,
                                         .tls_name = settings->tls_name,
                                         .token_file = settings->token_file,
                                         .trace = settings->trace,
                                         .follow = kind == CLIENT_COORDINATOR,
                                         .bulk = kind == CLIENT_BULK || kind >= CLIENT_MORE};
    const char *address = NULL;
    bool several;
    client_conn *conn;
    tutti_code code;

    TUTTI_TRY(find_address(client, kind, &address, err));
    several = options.follow && (strchr(address, ',') != NULL || client->agent.several);
    if (several) { /* one that is silent is soon left */
        options.keepalive_ns = FOLLOW_KEEPALIVE_NS;
        options.keepalive_timeout_ns = FOLLOW_KEEPALIVE_TIMEOUT_NS;
    }
    conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a connection");
    }
    code = tutti_rpc_channel_open(address, &options, &conn->channel, err);
    if (code != TUTTI_OK) {
        free(conn);
        return code;
    }
    if (several) {
        tutti_rpc_channel_expect_others(conn->channel, "");
    }
    conn->users = 1;
    *ret_conn = conn;
    return TUTTI_OK;
}

tutti_code
client_conn_take(tutti_client *client, client_conn_kind kind, client_conn **ret_conn,
                 tutti_error *err)
{
    tutti_code code = client_check_process(client, err);

    if (code != TUTTI_OK) {
        return code;
    }
    (void)pthread_mutex_lock(&client->lock);
    if (client->conns[kind] == NULL) {
        code = open_conn(client, kind, &client->conns[kind], err);
    }
    if (code == TUTTI_OK) {
        client->conns[kind]->users++;
        *ret_conn = client->conns[kind];
    }
    (void)pthread_mutex_unlock(&client->lock);
    return code;
}

void
client_conn_give(tutti_client *client, client_conn *conn)
{
    bool last;

    (void)pthread_mutex_lock(&client->lock);
    last = --conn->users == 0;
    (void)pthread_mutex_unlock(&client->lock);
    if (last) {
        tutti_rpc_channel_close(conn->channel);
        free(conn);
    }
}

void
client_conn_break(tutti_client *client, client_conn *conn)
{
    bool ours = false;
    size_t i;

    (void)pthread_mutex_lock(&client->lock);
    for (i = 0; i < CLIENT_CONN_KINDS; i++) {
        if (client->conns[i] == conn) {
            client->conns[i] = NULL;
            ours = true;
        }
    }
    (void)pthread_mutex_unlock(&client->lock);
    if (ours) {
        client_conn_give(client, conn); /* the client's own use of it */
    }
}
