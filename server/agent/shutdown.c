/*
 * The end of an agent, in two phases. Control loop; tutti_agent_stop may come from any thread.
 *
 * First phase (drain_shutdown), only for an agent that is joined and was not told twice: `draining`
 * refuses new ops; the members of each group and the coordinator are told; ops under way get
 * --leave-timeout. It ends when all ways of telling are through and no op lives, or by leave_timer.
 *
 * Second phase (begin_leave): the seat is given back, the server drains (on_drain in agent.c fails
 * what still runs), the engine stops, and on_end is called when nothing posts to the loops any
 * more.
 *
 * The members are told over the data plane first: there packets keep their order with ops, so each
 * member learns the number of the last op that goes on (docs/decisions/0014). A second signal, or
 * an agent that has failed, skips the first phase. Nothing here waits for an answer without a
 * limit.
 */
#include "server/agent/shutdown.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "server/agent/agent.h"
#include "server/agent/function/functions.h"
#include "server/agent/member/member.h"
#include "server/agent/op/coordinator_request.h"
#include "server/agent/op/group.h"
#include "server/agent/state/state.h"
#include "server/agent/state/trim.h"

#define FUNCTIONS_NS (2 * TUTTI_NS_PER_S) /* that they have to return */
/*
 * How long the agent waits for members to confirm that they have heard; in a world of more than
 * PROBE_MAX ranks it does not ask, and the coordinator's word has to do.
 */
#define PROBE_NS (200 * TUTTI_NS_PER_MS)
#define PROBE_MAX 256 /* in a larger world the coordinator's word has to do */

/* How often the agent looks whether it may end: no event tells it. */
#define LOOK_AGAIN_NS TUTTI_NS_PER_MS

/* ------------------------------------------------------------------------------ the second phase
 */

/* Functions that do not return cannot be ended: the process does that. */
static void
on_functions_timer(tutti_timer *timer)
{
    tutti_agent *agent = tutti_container_of(timer, tutti_agent, functions_timer);
    char words[512];
    tutti_text text = tutti_text_in(words, sizeof(words));

    if (agent_functions_live(agent) == 0) {
        tutti_rpc_loop_post(agent->control, &agent->end_task);
    } else if (tutti_clock_ns() < agent->functions_end_ns) {
        tutti_rpc_loop_timer_start(agent->control, timer, tutti_clock_ns() + LOOK_AGAIN_NS);
    } else {
        agent_functions_describe(agent, &text);
        TUTTI_LOG("agent", ERROR, "ending while functions run that do not return: %s", words);
        agent->functions_given_up = true;
        tutti_rpc_loop_post(agent->control, &agent->end_task);
    }
}

/* Do functions still run? Then the end is looked at again when they have returned. */
static bool
functions_run(tutti_agent *agent)
{
    if (agent_functions_live(agent) == 0 || agent->functions_given_up) {
        return false;
    }
    agent->functions_end_ns = tutti_clock_ns() + FUNCTIONS_NS;
    agent->functions_timer.on_expiry = on_functions_timer;
    tutti_rpc_loop_timer_start(agent->control, &agent->functions_timer, tutti_clock_ns());
    return true;
}

static void
on_end_timer(tutti_timer *timer)
{
    tutti_agent *agent = tutti_container_of(timer, tutti_agent, end_timer);

    tutti_rpc_loop_post(agent->control, &agent->end_task);
}

/*
 * Looks again until nothing is left that could still call back: questions to the coordinator, ops,
 * streams to the coordinator, transfers. All of these have been cancelled; only GPU copies take
 * long, as they end by themselves. It is a task, and not the timer, that looks: a task that is
 * posted runs behind what the engine and others have posted before, so none of their tasks finds
 * the agent gone.
 */
static void
run_shutdown_end(tutti_rpc_task *task)
{
    tutti_agent *agent = tutti_container_of(task, tutti_agent, end_task);

    if (!tutti_list_empty(&agent->coordinator_requests) || agent->ops_live > 0 ||
        !tutti_list_empty(&agent->sessions) || !agent_member_idle(agent) ||
        atomic_load(&agent->calls) > 0) {
        agent->end_timer.on_expiry = on_end_timer;
        tutti_rpc_loop_timer_start(agent->control, &agent->end_timer,
                                   tutti_clock_ns() + LOOK_AGAIN_NS);
        return;
    }
    if (functions_run(agent)) {
        return;
    }
    agent_groups_free(agent);
    agent->on_end(agent->on_end_arg, agent->failed ? &agent->why : NULL);
}

/* No call is left. engine = NULL is what other rooms look at before they post or cancel. */
static void
on_server_stopped(void *arg)
{
    tutti_agent *agent = arg;

    tutti_coll_engine_stop(agent->engine);
    agent->engine = NULL;
    agent_trim_stop(agent);
    agent_coordinator_requests_cancel(agent);
    agent->end_task.on_run = run_shutdown_end;
    tutti_rpc_loop_post(agent->control, &agent->end_task);
}

static void
on_left(tutti_agent *agent)
{
    tutti_rpc_server_stop(agent->server, on_server_stopped, agent);
}

/* Both phases, a second signal and leave_timer come here; the first one counts. */
static void
begin_leave(tutti_agent *agent)
{
    if (agent->state == AGENT_LEAVING) {
        return;
    }
    tutti_rpc_loop_timer_stop(agent->control, &agent->leave_timer);
    agent_member_leave(agent, on_left);
}

/* ------------------------------------------------------------------------------ the first phase */

static void
on_leave_timer(tutti_timer *timer)
{
    tutti_agent *agent = tutti_container_of(timer, tutti_agent, leave_timer);

    if (agent->ops_live > 0) {
        TUTTI_LOG("agent", WARN,
                  "%" PRIu64 " ops are still under way after %.3g s (--leave-timeout): they fail",
                  agent->ops_live, (double)agent->options->leave_timeout_ns / TUTTI_NS_PER_S);
    }
    begin_leave(agent);
}

/*
 * Called at the end of each op, from inside of it: so the second phase begins by the timer, on a
 * clean stack, and not here.
 */
void
agent_stop_look(tutti_agent *agent)
{
    if (agent->draining && agent->announcements_pending == 0 && agent->ops_live == 0 &&
        agent_functions_live(agent) == 0 &&
        agent->state != AGENT_LEAVING) { /* not from inside the end of an op */
        tutti_rpc_loop_timer_start(agent->control, &agent->leave_timer, tutti_clock_ns());
    }
}

void
agent_announced(tutti_agent *agent)
{
    agent->announcements_pending--;
    agent_stop_look(agent);
}

static void
run_announced(tutti_rpc_task *task)
{
    agent_announced(tutti_container_of(task, tutti_agent, announced_task));
}

/* The thread that runs the engine. */
static void
on_probed(void *arg, const tutti_coll_reach *reaches, size_t count)
{
    tutti_agent *agent = arg;

    (void)reaches;
    (void)count;
    tutti_rpc_loop_post(agent->control, &agent->announced_task);
}

/*
 * A probe is a packet that each member answers. Packets of a connection keep their order, so a
 * member that answers has heard before that this rank leaves. announced_task is free: this runs
 * once.
 */
static void
probe_members(tutti_agent *agent)
{
    uint32_t ranks[PROBE_MAX];
    size_t count = 0;
    uint32_t rank;

    if (!agent_groups_leave(agent) || agent->world_size > PROBE_MAX) {
        return;
    }
    for (rank = 0; rank < agent->world_size; rank++) {
        if (rank != agent->rank) {
            ranks[count++] = rank;
        }
    }
    agent->announced_task.on_run = run_announced;
    agent->announcements_pending++;
    if (count == 0 || tutti_coll_probe(agent->engine, ranks, count, PROBE_NS, on_probed, agent,
                                       NULL) != TUTTI_OK) {
        agent->announcements_pending--;
    }
}

/*
 * announcements_pending starts at 1, so that the second phase cannot begin before all ways of
 * telling have been started: each of them may be through at once.
 */
static void
drain_shutdown(tutti_agent *agent)
{
    agent->draining = true;
    agent->announcements_pending = 1; /* until all of this has begun */
    TUTTI_LOG("agent", INFO, "leaving job %s: %" PRIu64 " ops are under way", agent_job(agent),
              agent->ops_live);
    agent_say_serving(agent);
    agent->leave_timer.on_expiry = on_leave_timer;
    tutti_rpc_loop_timer_start(agent->control, &agent->leave_timer,
                               tutti_clock_ns() + agent->options->leave_timeout_ns);
    probe_members(agent);
    agent->announcements_pending++;
    agent_member_announce(agent);
    agent_announced(agent);
}

static void
run_stop(tutti_rpc_task *task)
{
    tutti_agent *agent = tutti_container_of(task, tutti_agent, stop_task);

    if (!agent->failed && agent->state == AGENT_JOINED && agent->options->leave_timeout_ns != 0) {
        drain_shutdown(agent);
        return;
    }
    if (!agent->failed) { /* else the reason is said at the end */
        TUTTI_LOG("agent", INFO, "stopping");
    }
    begin_leave(agent);
}

/* Told a second time: somebody cannot wait. */
static void
run_stop_now(tutti_rpc_task *task)
{
    begin_leave(tutti_container_of(task, tutti_agent, stop_now_task));
}

/*
 * Any thread. `stops` makes sure that each of the two tasks is posted once: a task may not be
 * posted while it is.
 */
void
tutti_agent_stop(tutti_agent *agent, const char *why)
{
    const unsigned times = atomic_fetch_add(&agent->stops, 1);

    if (times == 0) {
        (void)snprintf(agent->leave_reason, sizeof(agent->leave_reason), "%s", why);
        agent->stop_task.on_run = run_stop;
        tutti_rpc_loop_post(agent->control, &agent->stop_task);
    } else if (times == 1) {
        agent->stop_now_task.on_run = run_stop_now;
        tutti_rpc_loop_post(agent->control, &agent->stop_now_task);
    }
}

/*
 * The first reason is told at the end. A later call counts as a second stop, and so ends the first
 * phase.
 */
void
agent_give_up(tutti_agent *agent, const tutti_error *err)
{
    if (!agent->failed) {
        agent->failed = true;
        agent->why = *err;
    }
    tutti_agent_stop(agent, "stopped");
}
