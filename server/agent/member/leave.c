/*
 * Giving the seat back. Control loop.
 *
 * Two calls to the coordinator, in this order: an announcement (the agent is about to leave, no op
 * begins any more), which begins a new epoch, and later the leave itself, which frees the seat.
 * Neither is waited for beyond 2 s (LEAVE_NS in coordinator_pb.c), and an error of either is only
 * logged: the agent ends in any case, and the coordinator then finds its session broken.
 */
#include "base/error/fail.h"
#include "base/os/log.h"
#include "server/agent/member/member.h"
#include "server/agent/member/member_private.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/state.h"

/*
 * The session ends behind the Leave: a coordinator that saw the stream break first would call this
 * rank lost.
 */
static void
finish_leave(struct agent_member *self)
{
    self->state = MEMBER_LEFT;
    if (self->flow != NULL) {
        tutti_rpc_flow_cancel(self->flow);
    }
    tutti_rpc_loop_timer_stop(self->agent->control, &self->beat);
    tutti_rpc_loop_timer_stop(self->agent->control, &self->partition);
    self->on_left(self->agent);
}

static void
on_leave_reply(void *arg, tutti_rpc_message *response, const tutti_error *err)
{
    tutti_agent *agent = arg;

    (void)response;
    if (err != NULL) {
        TUTTI_LOG("agent", DEBUG, "could not tell the coordinator that this rank has left: %s",
                  err->text);
    }
    finish_leave(agent->member);
}

static void
on_announce_reply(void *arg, tutti_rpc_message *response, const tutti_error *err)
{
    tutti_agent *agent = arg;

    if (err != NULL) {
        TUTTI_LOG("agent", DEBUG, "could not tell the coordinator that this rank is leaving: %s",
                  err->text);
    } else {
        agent_wire_leave_answer(agent, response);
    }
    agent->hooks->announced(agent);
}

/*
 * Is there a seat, and a coordinator that is not known to be away? The session may not be accepted
 * yet: without a word the coordinator would take the end of this process for a lost rank.
 */
static bool
may_tell(const tutti_agent *agent)
{
    return agent->state == AGENT_JOINED && agent->member->state != MEMBER_IDLE;
}

/*
 * hooks->announced follows in any case, perhaps before this returns. The data plane tells the
 * members too (shutdown.c), so nothing waits for a coordinator that is away.
 */
void
agent_member_announce(tutti_agent *agent)
{
    tutti_error err;

    if (!may_tell(agent) || agent_wire_leave(agent, true, on_announce_reply, &err) != TUTTI_OK) {
        agent->hooks->announced(agent);
    }
}

/* State LEAVING first: everything that ends from here on must not begin anew. */
void
agent_member_leave(tutti_agent *agent, void (*on_left)(tutti_agent *agent))
{
    struct agent_member *self = agent->member;
    const bool told = may_tell(agent);
    tutti_error err;

    agent->state = AGENT_LEAVING;
    self->on_left = on_left;
    tutti_rpc_loop_timer_stop(agent->control, &self->retry);
    tutti_rpc_loop_timer_stop(agent->control, &self->limit);
    if (!told || agent_wire_leave(agent, false, on_leave_reply, &err) != TUTTI_OK) {
        finish_leave(self);
    }
}
