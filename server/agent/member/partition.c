/*
 * How long the coordinator has been silent, and what follows. Control loop. The argument is
 * docs/decisions/0014 ("Who is cut off stops"), the rule in member_private.h.
 *
 * A tick runs at a sixteenth of the limit and adds up silence. Time does not count in two cases:
 * the coordinator's host says that nobody is there (`away`), or this process stood still itself,
 * which shows as a tick that comes much too late.
 */
#include "server/agent/member/partition.h"

#include <inttypes.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "rpc/follow.h"
#include "server/agent/autograd/backward_private.h"
#include "server/agent/member/member_private.h"
#include "server/agent/op/deadline.h"
#include "server/agent/state/state.h"

#define TICKS 16 /* of the time that silence may last */
/* Of the ticks. The coordinator acknowledges one heartbeat in a quarter of the time, and the next
 * one comes up to a fifth of it later: half of the time may pass in silence when all is well. */
#define MOVES_AFTER 10
#define TRIED_FOR 4

static uint64_t
tick_of(const struct agent_member *self)
{
    const uint64_t tick = self->partition_timeout_ns / TICKS;

    return tick < TUTTI_NS_PER_MS ? TUTTI_NS_PER_MS : tick;
}

static void
isolated_words(const struct agent_member *self, tutti_error *ret_err)
{
    const tutti_agent *agent = self->agent;

    (void)TUTTI_FAIL_FOR(
        ret_err, TUTTI_UNAVAILABLE, "CUT_OFF",
        "rank %" PRIu32
        " has heard nothing from the coordinator at %s for %.3g s: the coordinator may have "
        "declared it lost, so its ops fail until the coordinator answers (--silence-timeout)",
        agent->rank, agent->options->coordinator, (double)self->partition_ns / TUTTI_NS_PER_S);
    tutti_error_set_op(ret_err, NULL, 0, (int32_t)agent->rank);
}

tutti_code
agent_check_begin(const tutti_agent *agent, tutti_error *err)
{
    const tutti_code code = agent_check_open(agent, err);

    if (code != TUTTI_OK || !agent->member->isolated) {
        return code;
    }
    isolated_words(agent->member, err);
    return TUTTI_UNAVAILABLE;
}

/*
 * Ops under way are failed, too: the other side of the cut refuses to begin them, so they could
 * only wait for their deadlines. Backwards first, or each would begin its next op.
 */
static void
cut_off(struct agent_member *self)
{
    tutti_agent *agent = self->agent;
    tutti_list_node *link;
    tutti_error err;

    self->isolated = true;
    isolated_words(self, &err);
    TUTTI_LOG("agent", WARN, "%s", err.text);
    for (link = agent->backwards.next; link != &agent->backwards; link = link->next) {
        agent_backward_fail(tutti_container_of(link, agent_backward_pass, link), &err, NULL);
    }
    agent_ops_give_up(agent, &err);
}

/*
 * Of several coordinators this one may be stopped, or cut off, and another one lead. It is left long
 * before the silence counts as a cut, so that there is time to find the other. A session that was only
 * just asked for is not to blame for the silence before it: a new leader may be slow to accept it.
 */
static void
leave_silent(struct agent_member *self, uint64_t now)
{
    const tutti_agent *agent = self->agent;

    if (now - self->session_ns < self->partition_timeout_ns / TICKS * TRIED_FOR) {
        return;
    }
    if (self->flow != NULL && !self->moving && agent->state == AGENT_JOINED &&
        self->partition_ns >= self->partition_timeout_ns / TICKS * MOVES_AFTER &&
        tutti_rpc_channel_has_others(agent->coordinator)) {
        self->moving = true;
        tutti_rpc_channel_move_on(agent->coordinator);
        tutti_rpc_flow_cancel(self->flow);
    }
}

/*
 * A process that stood still (a stopped container, a suspended machine) has not listened: a tick
 * that comes late counts as one tick at most.
 */
static void
on_tick(tutti_timer *timer)
{
    struct agent_member *self = tutti_container_of(timer, struct agent_member, partition);
    const uint64_t tick = tick_of(self);
    const uint64_t now = tutti_clock_ns();
    const uint64_t passed = now - self->ticked_ns;

    if (passed >= self->patience_ns) {
        self->still_ns = passed;
        self->woke_ns = now;
    }
    self->ticked_ns = now;
    self->partition_ns += self->away ? 0 : passed < 2 * tick ? passed : tick;
    leave_silent(self, now);
    if (self->partition_ns >= self->partition_timeout_ns && !self->isolated &&
        self->agent->state == AGENT_JOINED) {
        cut_off(self);
    }
    tutti_rpc_loop_timer_start(self->agent->control, timer, now + tick);
}

/*
 * A timeout of 0 comes from a coordinator that does not answer heartbeats: its silence says
 * nothing.
 */
void
agent_partition_watch(struct agent_member *self, uint64_t timeout_ns)
{
    const uint64_t wanted = self->agent->options->partition_timeout_ns;

    agent_partition_end(self);
    tutti_rpc_loop_timer_stop(self->agent->control, &self->partition);
    if (timeout_ns == 0) {
        self->patience_ns = 0;
        return; /* a coordinator that does not answer heartbeats */
    }
    self->partition_timeout_ns = wanted != 0 ? wanted : timeout_ns;
    self->ticked_ns = tutti_clock_ns();
    self->patience_ns = timeout_ns / 4 * 3; /* a heartbeat that was due has not left either */
    self->partition.on_expiry = on_tick;
    tutti_rpc_loop_timer_start(self->agent->control, &self->partition,
                               self->ticked_ns + tick_of(self));
}

#define BLAMED_FOR_NS (5 * TUTTI_NS_PER_S) /* for what the others had done meanwhile */

/* The engine may wake before the control loop, or later. */
uint64_t
agent_stood_still_ns(const tutti_agent *agent)
{
    struct agent_member *self = agent->member;
    const uint64_t now = tutti_clock_ns();
    const uint64_t patience = self == NULL ? 0 : self->patience_ns;
    const uint64_t ticked = self == NULL ? 0 : self->ticked_ns;

    if (patience == 0) {
        return 0;
    }
    if (now >= ticked + patience) {
        return now - ticked;
    }
    return now < self->woke_ns + BLAMED_FOR_NS ? self->still_ns : 0;
}

void
agent_partition_end(struct agent_member *self)
{
    self->partition_ns = 0;
    self->away = false;
    if (self->isolated) {
        self->isolated = false;
        TUTTI_LOG("agent", INFO, "the coordinator is not silent any more: ops may begin");
    }
}

/*
 * A session ended. If nobody listens where the coordinator was, it has been stopped or killed, and
 * no other side has it: ops go on for as long as that lasts.
 */
void
agent_partition_check(struct agent_member *self, const tutti_error *err)
{
    const bool nobody = err != NULL && tutti_rpc_nobody_there(err);

    if (nobody) {
        agent_partition_end(self);
    }
    self->away = nobody;
}
