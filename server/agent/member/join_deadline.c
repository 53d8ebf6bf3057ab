/* Joining ends in time, whatever it waits for: the coordinator, the seat, or the other ranks. */
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/member/member_private.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/state.h"

static void
on_limit(tutti_timer *timer)
{
    struct agent_member *self = tutti_container_of(timer, struct agent_member, limit);
    tutti_error late;

    if (self->agent->state != AGENT_JOINING) {
        return;
    }
    (void)TUTTI_FAIL_FOR(&late, TUTTI_DEADLINE_EXCEEDED, "JOIN_TIMEOUT",
                         "not joined within %.3g s (--join-timeout): %s",
                         (double)self->agent->options->join_timeout_ns / TUTTI_NS_PER_S,
                         self->waits[0] != '\0' ? self->waits : "the coordinator has not answered");
    self->agent->hooks->give_up(self->agent, &late);
}

void
agent_join_limit(struct agent_member *self)
{
    const uint64_t limit = self->agent->options->join_timeout_ns;

    self->limit.on_expiry = on_limit;
    tutti_rpc_loop_timer_start(self->agent->control, &self->limit,
                               limit == 0 ? TUTTI_TIMERS_NEVER : tutti_clock_ns() + limit);
}
