/*
 * One worker, as the leader of a session has it. Its address is that which its own host prefers;
 * what it is shown is the caller's token, and the certificate that the agent shows its coordinator.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "server/agent/session/local.h"
#include "server/agent/session/session.h"
#include "server/agent/state/coordinator_channel.h"
#include "server/agent/state/state.h"

/* ------------------------------------------------------------------------------ the queue */

static uint32_t
queue_room(const agent_worker *self)
{
    return (uint32_t)self->session->agent->options->commands_max;
}

void
agent_worker_put(agent_worker *worker, tutti_rpc_packed *packed)
{
    const uint32_t room = queue_room(worker);

    assert(worker->queue_count < room); /* no more commands than places */
    worker->session->queued_bytes += tutti_rpc_packed_bytes(packed);
    worker->queue[(worker->queue_first + worker->queue_count++) % room] = packed;
}

static tutti_rpc_packed *
take_queued(agent_worker *self)
{
    tutti_rpc_packed *packed = self->queue[self->queue_first];

    self->queue_first = (self->queue_first + 1) % queue_room(self);
    self->queue_count--;
    self->session->queued_bytes -= tutti_rpc_packed_bytes(packed);
    return packed;
}

void
agent_worker_pump(agent_worker *worker)
{
    while (worker->queue_count > 0 && worker->local != NULL) {
        agent_local_put(worker->local, take_queued(worker));
    }
    if (worker->queue_count > 0 && worker->run_flow != NULL &&
        tutti_rpc_flow_writable(worker->run_flow)) {
        tutti_rpc_packed *packed = take_queued(worker);

        tutti_rpc_flow_write_packed(worker->run_flow, packed, worker->queue_count > 0);
    }
}

static void
drop_queue(agent_worker *self)
{
    while (self->queue_count > 0) {
        tutti_rpc_packed_free(take_queued(self));
    }
}

/* ------------------------------------------------------------------------------ the connection */

static bool
is_socket_here(const char *address)
{
    struct stat about;

    return strncmp(address, "unix:", 5) == 0 && stat(address + 5, &about) == 0 &&
           S_ISSOCK(about.st_mode) && access(address + 5, R_OK | W_OK) == 0;
}

/* A Unix socket if it is on this host and can be used; otherwise the first other address. */
void
agent_worker_pick(agent_worker *worker, bool same_host)
{
    const char *picked = NULL;
    uint32_t i;

    for (i = 0; i < worker->address_count && same_host && picked == NULL; i++) {
        picked = is_socket_here(worker->addresses[i]) ? worker->addresses[i] : NULL;
    }
    for (i = 0; i < worker->address_count && picked == NULL; i++) {
        picked = strncmp(worker->addresses[i], "unix:", 5) != 0 ? worker->addresses[i] : NULL;
    }
    (void)snprintf(worker->address, sizeof(worker->address), "%s", picked == NULL ? "" : picked);
}

void
agent_worker_connect(agent_worker *worker)
{
    tutti_error err;
    tutti_code code = TUTTI_OK;

    if (worker->address[0] == '\0') {
        code = TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "UNREACHABLE",
                              "rank %" PRIu32 " has no address that this host can reach",
                              worker->rank);
    }
    if (code == TUTTI_OK) {
        code = agent_open_peer_channel(worker->session->agent, worker->address,
                                       worker->session->token, &worker->channel, &err);
    }
    code = code == TUTTI_OK ? agent_wire_lease(worker, worker->session->resumes, &err) : code;
    if (code != TUTTI_OK) {
        agent_worker_lose(worker, &err);
    }
}

/* "rank 3 is gone: ...", unless its own words name it: "rank 3 is stopping". */
static void
explain_loss(agent_worker *self, const tutti_error *err)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "rank %" PRIu32, self->rank);
    if (strncmp(err->text, name, strlen(name)) == 0) {
        (void)TUTTI_FAIL_FOR(&self->gone, TUTTI_UNAVAILABLE, "RANK_LOST", "%s", err->text);
    } else {
        (void)TUTTI_FAIL_FOR(&self->gone, TUTTI_UNAVAILABLE, "RANK_LOST", "%s is gone: %.900s",
                             name, err->text);
    }
    tutti_error_set_op(&self->gone, "", 0, (int32_t)self->rank);
    self->gone.scope = TUTTI_SCOPE_GROUP;
}

/* While it opens a session needs all its workers, and is told why it has not got this one. */
static void
fail_opening(agent_worker *self, const tutti_error *err)
{
    tutti_error named = *err;

    (void)snprintf(named.text, sizeof(named.text), "rank %" PRIu32 " (%s): %.700s", self->rank,
                   self->address, err->text);
    named.rank = (int32_t)self->rank;
    agent_session_close(self->session, &named);
}

void
agent_worker_lose(agent_worker *worker, const tutti_error *err)
{
    agent_session *session = worker->session;

    if (worker->lost || session->state == AGENT_SESSION_CLOSING) {
        return;
    }
    worker->lost = true;
    explain_loss(worker, err);
    agent_worker_cancel(worker);
    drop_queue(worker);
    if (session->state == AGENT_SESSION_OPENING) {
        fail_opening(worker, err);
        return;
    }
    TUTTI_LOG("agent", WARN, "session %s: %s", session->id, worker->gone.text);
    agent_parts_fail(worker, &worker->gone);
    agent_session_read(session);
}

void
agent_worker_unlinger(agent_worker *worker)
{
    tutti_error err;

    worker->first_flow = worker->lease_flow;
    worker->lease_flow = NULL;
    worker->unlingering = true;
    if (!worker->lost && agent_wire_lease(worker, false, &err) != TUTTI_OK) {
        agent_worker_lose(worker, &err);
    }
}

void
agent_worker_cancel(agent_worker *worker)
{
    if (worker->first_flow != NULL) {
        tutti_rpc_flow_cancel(worker->first_flow);
    }
    if (worker->run_flow != NULL) {
        tutti_rpc_flow_cancel(worker->run_flow);
    }
    if (worker->local != NULL) {
        agent_local_cancel(worker->local);
    }
    if (worker->lease_flow != NULL) {
        tutti_rpc_flow_cancel(worker->lease_flow);
    }
}

bool
agent_worker_is_idle(const agent_worker *worker)
{
    return worker->run_flow == NULL && worker->lease_flow == NULL && worker->first_flow == NULL &&
           agent_local_is_idle(worker->local);
}

void
agent_worker_free(agent_worker *worker)
{
    if (worker->queue != NULL) {
        drop_queue(worker);
    }
    free(worker->queue);
    free(worker->by_slot);
    agent_local_free(worker->local);
    tutti_rpc_channel_close(worker->channel);
}
