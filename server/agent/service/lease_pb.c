/*
 * Lease of TensorsService: a stream that says nothing more than that its client lives.
 *
 * All of it runs on the control loop, so the list of leases needs no lock. On the bulk loop, like the
 * rest of the service, a lease would keep that thread looking at all sockets of the process, and it
 * would take the messages of others, which then need one more wake-up each. A lease with linger_ms outlives its stream: its `held` stays in the list, without a call, until
 * somebody resumes it by its secret or the timer ends it. A resume may come while the old stream is
 * still open, because the client's connection broke and the agent has not heard of it: then the old
 * stream ends with LEASE_TAKEN, and its end does not end the lease.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/utf8.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/op/caller.h"
#include "server/agent/op/group.h"
#include "server/agent/op/group_lookup.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/service/services.h"
#include "server/agent/state/clients.h"
#include "server/agent/state/group.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"
#include "tutti/v1/tensors_service.pb-c.h"

#define SECRET_MIN 16
#define SECRET_MAX 64
#define IDENTITY_SIZE 256

typedef struct held {
    tutti_list_node link; /* in the agent's leases */
    tutti_agent *agent;
    agent_client *holder; /* while it has a stream */
    tutti_rpc_call *call; /* its stream; NULL = it lingers */
    bool finished;        /* the stream is: its end follows */
    uint64_t lease;       /* 0 = another stream has it */
    uint64_t linger_ns;
    unsigned char secret[SECRET_MAX];
    size_t secret_size;
    char identity[IDENTITY_SIZE];
    uint64_t client;                  /* its number */
    char program[AGENT_PROGRAM_SIZE]; /* "" = the end of the stream means nothing else */
    bool closed;                      /* by CloseLease */
    tutti_timer timer;                /* while it lingers */
} held;

static void
end_lease(held *self)
{
    const size_t ended = tutti_table_close_lease(self->agent->table, self->lease);

    if (ended > 0) {
        TUTTI_LOG("agent", DEBUG, "lease %" PRIu64 " is over: %zu tensors are deleted", self->lease,
                  ended);
    }
    agent_wire_release_groups(self->agent, self->lease);
    tutti_list_remove(&self->link);
    free(self);
}

static void
on_linger_over(tutti_timer *timer)
{
    end_lease(tutti_container_of(timer, held, timer));
}

/* ------------------------------------------------------------------------------ a new one */

static held *
find_secret(const tutti_agent *agent, const ProtobufCBinaryData *secret)
{
    tutti_list_node *link;

    for (link = agent->leases.next; link != &agent->leases && secret->len > 0; link = link->next) {
        held *one = tutti_container_of(link, held, link);

        if (one->lease != 0 && one->secret_size == secret->len &&
            memcmp(one->secret, secret->data, secret->len) == 0) {
            return one;
        }
    }
    return NULL;
}

static tutti_code
check_lease_request(const tutti_agent *agent, const Tutti__V1__LeaseRequest *request,
                    const held *found, tutti_error *err)
{
    const size_t size = request->secret.len;
    const uint64_t linger_ms = agent->options->session_linger_ns / TUTTI_NS_PER_MS;

    if (size == 0 ? request->resume || request->linger_ms > 0
                  : size < SECRET_MIN || size > SECRET_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SECRET",
                              "a secret of %zu bytes, need %d to %d", size, SECRET_MIN, SECRET_MAX);
    }
    if (request->linger_ms > linger_ms) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LINGER_LIMIT",
                              "linger_ms is %" PRIu32 ", at most %" PRIu64 " (--session-linger)",
                              request->linger_ms, linger_ms);
    }
    if (request->resume && found == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_LEASE",
                              "no lease has this secret: it was never opened, or its time is over");
    }
    if (!request->resume && found != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_ALREADY_EXISTS, "SECRET_TAKEN",
                              "another lease has this secret: draw another one, or resume");
    }
    return TUTTI_OK;
}

/* The lease moves from the stream that had it, or from nobody. */
static void
take_lease(held *self, held *from)
{
    tutti_error err;

    self->lease = from->lease;
    from->lease = 0;
    if (from->call == NULL) {
        tutti_rpc_loop_timer_stop(self->agent->control, &from->timer);
        tutti_list_remove(&from->link);
        free(from);
        return;
    }
    if (!from->finished) {
        from->finished = true;
        (void)TUTTI_FAIL_FOR(&err, TUTTI_ABORTED, "LEASE_TAKEN",
                             "another stream has resumed the lease");
        tutti_rpc_call_finish(from->call, &err);
    }
}

static tutti_code
open_lease(held *self, const Tutti__V1__LeaseRequest *request, tutti_error *err)
{
    tutti_agent *agent = self->agent;
    held *found = find_secret(agent, &request->secret);

    TUTTI_TRY(check_lease_request(agent, request, found, err));
    if (found != NULL) {
        take_lease(self, found);
    } else {
        TUTTI_TRY(
            tutti_table_open_lease(agent->table, agent->options->leases_max, &self->lease, err));
    }
    self->linger_ns = request->linger_ms * TUTTI_NS_PER_MS;
    self->secret_size = request->secret.len;
    if (self->secret_size > 0) {
        memcpy(self->secret, request->secret.data, self->secret_size);
    }
    (void)snprintf(self->identity, sizeof(self->identity), "%s",
                   tutti_rpc_call_identity(self->call));
    (void)snprintf(self->program, sizeof(self->program), "%s", request->program);
    (void)tutti_utf8_clean(self->program);
    tutti_list_add(&agent->leases, &self->link);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the stream */

static void
on_open(tutti_rpc_call *call, void *arg)
{
    tutti_agent *agent = arg;
    held *self = calloc(1, sizeof(*self));
    Tutti__V1__LeaseResponse response = TUTTI__V1__LEASE_RESPONSE__INIT;
    tutti_error err;

    if (self == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a lease");
        tutti_rpc_call_finish(call, &err);
        return;
    }
    *self = (held){.agent = agent, .call = call, .timer.on_expiry = on_linger_over};
    self->client = agent_clients_note(&agent->clients, call);
    tutti_list_init(&self->link);
    if (open_lease(self, tutti_rpc_call_request(call), &err) != TUTTI_OK) {
        free(self);
        tutti_rpc_call_finish(call, &err);
        return;
    }
    self->holder = agent_clients_hold(&agent->clients, call);
    tutti_rpc_call_set_user(call, self);
    response.lease = self->lease;
    tutti_rpc_call_write(call, &response.base, NULL);
}

/* Its client has gone or wants no more, or the agent stops. */
static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    held *self = tutti_rpc_call_user(call);

    (void)arg;
    if (self != NULL && !self->finished) { /* NULL: it was refused, and is finished */
        self->finished = true;
        tutti_rpc_call_finish(call, NULL);
    }
}

/* Without CloseLease: the program has died, or its connection, which comes to the same here. */
static void
note_death(const held *self)
{
    tutti_agent *agent = self->agent;

    if (self->program[0] != '\0' && !self->closed && self->lease != 0 &&
        agent->state != AGENT_LEAVING) {
        agent_caller_lose(agent, self->client, self->program);
    }
}

/* An agent that stops keeps nothing: its tensors end with it. */
static void
on_end(tutti_rpc_call *call, void *arg)
{
    tutti_agent *agent = arg;
    held *self = tutti_rpc_call_user(call);

    if (self == NULL) {
        return;
    }
    agent_groups_note_gone(agent, agent_client_release(&agent->clients, self->holder));
    self->call = NULL;
    note_death(self);
    if (self->lease == 0) {
        tutti_list_remove(&self->link);
        free(self);
    } else if (self->linger_ns > 0 && !self->closed && agent->state != AGENT_LEAVING) {
        tutti_rpc_loop_timer_start(agent->control, &self->timer,
                                   tutti_clock_ns() + self->linger_ns);
    } else {
        end_lease(self);
    }
}

const tutti_rpc_stream_ops agent_lease_ops = {
    .on_open = on_open,
    .on_cancel = on_cancel,
    .on_end = on_end,
};

/* ------------------------------------------------------------------------------ CloseLease */

static held *
find_closing(const tutti_agent *agent, uint64_t lease, const char *identity)
{
    tutti_list_node *link;

    for (link = agent->leases.next; link != &agent->leases && lease != 0; link = link->next) {
        held *one = tutti_container_of(link, held, link);

        if (one->lease == lease && strcmp(one->identity, identity) == 0) {
            return one;
        }
    }
    return NULL;
}

/* A call of the bulk loop, as all of the service. */
typedef struct closing {
    tutti_rpc_task task; /* bulk loop -> control loop */
    tutti_agent *agent;
    tutti_rpc_call *call; /* [ref] */
} closing;

static void
close_lease(held *self)
{
    self->closed = true;
    if (self->call == NULL) {
        tutti_rpc_loop_timer_stop(self->agent->control, &self->timer);
        end_lease(self);
    } else if (!self->finished) {
        self->finished = true;
        tutti_rpc_call_finish(self->call, NULL);
    }
}

static void
on_close(tutti_rpc_task *task)
{
    closing *self = tutti_container_of(task, closing, task);
    const Tutti__V1__CloseLeaseRequest *request = tutti_rpc_call_request(self->call);
    held *found = find_closing(self->agent, request->lease, tutti_rpc_call_identity(self->call));
    Tutti__V1__CloseLeaseResponse response = TUTTI__V1__CLOSE_LEASE_RESPONSE__INIT;
    tutti_error err;

    if (found != NULL) {
        close_lease(found);
        tutti_rpc_call_reply(self->call, &response.base, NULL);
    } else {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_NOT_FOUND, "NO_LEASE",
                             "no lease of this caller has number %" PRIu64, request->lease);
        tutti_rpc_call_fail(self->call, &err);
    }
    tutti_rpc_call_unref(self->call);
    free(self);
}

void
agent_on_close_lease(tutti_rpc_call *call, void *agent)
{
    closing *self = calloc(1, sizeof(*self));
    tutti_error err;

    if (self == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory to close a lease");
        tutti_rpc_call_fail(call, &err);
        return;
    }
    *self = (closing){.task.on_run = on_close, .agent = agent, .call = call};
    tutti_rpc_call_ref(call);
    tutti_rpc_loop_post(self->agent->control, &self->task);
}

void
agent_leases_close(tutti_agent *agent)
{
    while (!tutti_list_empty(&agent->leases)) {
        end_lease(tutti_container_of(agent->leases.next, held, link));
    }
}
