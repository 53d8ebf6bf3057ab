/*
 * DeleteGroup with a lease: the coordinator is told that a lease of this agent has ended, so that the groups which a
 * client has made under it go with the client. Control loop. Told until it has heard: a coordinator that is away
 * comes back with these groups.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/op/coordinator_request.h"
#include "server/agent/op/group_lookup.h"
#include "server/agent/state/state.h"
#include "tutti/v1/coordinator_service.pb-c.h"

#define CALL_NS (10 * TUTTI_NS_PER_S)

typedef struct group_release {
    agent_coordinator_request coord_request; /* first: what ends it frees it */
    uint64_t lease;
} group_release;

static void request_release(group_release *self);

static void
on_release_again(tutti_timer *timer)
{
    request_release(tutti_container_of(tutti_container_of(timer, agent_coordinator_request, again),
                                       group_release, coord_request));
}

/* Anything but silence is final: if this process has lost its seat, its groups went with it. */
static void
on_released(void *arg, tutti_rpc_message *response, const tutti_error *err)
{
    group_release *self = arg;

    (void)response;
    self->coord_request.request = NULL;
    if (err != NULL && self->coord_request.agent->state != AGENT_LEAVING &&
        (err->code == TUTTI_UNAVAILABLE || err->code == TUTTI_DEADLINE_EXCEEDED)) {
        agent_coordinator_request_later(&self->coord_request, on_release_again);
        return;
    }
    if (err != NULL) {
        TUTTI_LOG("agent", DEBUG, "groups of lease %" PRIu64 " are not released: %s", self->lease,
                  err->text);
    }
    agent_coordinator_request_end(&self->coord_request);
}

static void
request_release(group_release *self)
{
    static const tutti_rpc_stub stub = {&tutti__v1__coordinator_service__descriptor, "DeleteGroup"};
    Tutti__V1__DeleteGroupRequest request = TUTTI__V1__DELETE_GROUP_REQUEST__INIT;
    Tutti__V1__Member member = TUTTI__V1__MEMBER__INIT;
    tutti_agent *agent = self->coord_request.agent;
    const tutti_rpc_call_options options = {.deadline_ns = tutti_clock_ns() + CALL_NS};
    tutti_error err;

    member.job = (char *)(uintptr_t)agent_job(agent); /* packed at once, never written */
    member.rank = agent->rank;
    member.incarnation = agent->incarnation;
    request.member = &member;
    request.lease = self->lease;
    if (tutti_rpc_request_start(agent->coordinator, agent->control, &stub, &request.base, &options,
                                on_released, self, &self->coord_request.request,
                                &err) != TUTTI_OK) {
        on_released(self, NULL, &err);
    }
}

void
agent_wire_release_groups(tutti_agent *agent, uint64_t lease)
{
    group_release *self;

    if (agent->state != AGENT_JOINED) {
        return;
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        TUTTI_LOG("agent", WARN, "no memory to release the groups of lease %" PRIu64, lease);
        return;
    }
    agent_coordinator_request_begin(&self->coord_request, agent);
    self->lease = lease;
    request_release(self);
}
