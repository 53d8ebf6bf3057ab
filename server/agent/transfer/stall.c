/*
 * Ends uploads and downloads whose client does nothing for --op-timeout. Such a client holds the
 * tensor's lock, and every op on the tensor would fail by its own deadline. Bulk loop.
 *
 * One timer for each stream, which is not moved with every chunk: `moved_ns` is stored, and the
 * timer looks at it when it expires and starts again for the rest.
 */
#include <inttypes.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/state/state.h"
#include "server/agent/transfer/access.h"

static void
say_stalled(const agent_access *access, tutti_error *err)
{
    const double seconds = (double)access->agent->options->op_timeout_ns / TUTTI_NS_PER_S;

    if (access->parted) {
        agent_parts_say_stalled(access, seconds, err);
        return;
    }
    (void)TUTTI_FAIL_FOR(
        err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
        "%s has not moved for %.3g s (--op-timeout), after %" PRIu64 " of %" PRIu64 " bytes: %s",
        access->reads ? "a download" : "an upload", seconds, access->offset, access->end_offset,
        access->reads ? "read, or end the call" : "send, or end the call");
}

/*
 * While the stream waits for its turn, the client can do nothing: the time counts from its turn on.
 * A part whose leader has not come at all does count, so that it cannot wait for ever.
 */
static void
on_stall(tutti_timer *timer)
{
    agent_access *access = tutti_container_of(timer, agent_access, stall);
    const uint64_t now_ns = tutti_clock_ns();
    const uint64_t limit_ns = access->agent->options->op_timeout_ns;
    tutti_error err;

    if (!agent_access_is_open(access)) {
        return;
    }
    if (access->turn == AGENT_TURN_QUEUED || agent_parts_waits(access)) {
        access->moved_ns = now_ns;
    }
    if (now_ns - access->moved_ns < limit_ns) {
        tutti_rpc_loop_timer_start(access->agent->bulk, timer, access->moved_ns + limit_ns);
        return;
    }
    say_stalled(access, &err);
    /* A download's client does not read, so the error would queue behind the message in flight and
     * never arrive: the call is cut. An upload has nothing in flight to its client. */
    if (access->reads) {
        tutti_rpc_call_cut(access->call, &err);
    } else {
        agent_stream_finish(access, &err);
    }
}

void
agent_access_watch(agent_access *access, bool reads)
{
    access->reads = reads;
    access->moved_ns = tutti_clock_ns();
    access->stall.on_expiry = on_stall;
    tutti_rpc_loop_timer_start(access->agent->bulk, &access->stall,
                               access->moved_ns + access->agent->options->op_timeout_ns);
}

/*
 * A part that moves keeps its leader alive, too: the leader's own bytes may have come long ago, and
 * its call stays open until all parts are here.
 */
void
agent_access_moved(agent_access *access)
{
    access->moved_ns = tutti_clock_ns();
    if (access->leader != NULL) {
        access->leader->moved_ns = access->moved_ns;
    }
}

void
agent_access_unwatch(agent_access *access)
{
    tutti_rpc_loop_timer_stop(access->agent->bulk, &access->stall);
}
