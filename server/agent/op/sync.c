/*
 * Sync: a call that ends when all ops that came to this agent before it have ended, of one group or
 * of all. Control loop.
 *
 * Ops are numbered as they come (op->number), so "before it" is a comparison with the last number
 * at the time of the call; no list of ops is kept. `missing` counts those that still live. Each op
 * that ends is shown to every Sync (agent_sync_op_ended), so the cost is ops times waiting Syncs.
 *
 * A Sync ends exactly once: by its last op, its timer, its caller's going, or the agent's drain.
 * Each of these runs on the control loop and frees the struct, so none of them can meet another.
 */
#include "server/agent/op/sync.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"
#include "server/agent/state/state.h"

#define OPS_NAMED 8

typedef struct sync_call {
    tutti_list_node link; /* in the agent's syncs */
    tutti_agent *agent;
    tutti_rpc_call *call; /* [ref] */
    agent_sync_fn answer;
    tutti_timer timer;
    char group[TUTTI_NAME_MAX + 1]; /* "" = all */
    uint64_t last;                  /* the number of the last op it waits for */
    uint64_t missing;
    uint64_t began_ns;
    agent_sync_result result;
} sync_call;

/*
 * An op may outlive its group, which was deleted: the name was copied then. Without that, a Sync of
 * the group would count such an op as missing and never see it end. "" = an op of a Backward.
 */
static const char *
op_group_name(const agent_op *op)
{
    return op->group != NULL ? op->group->name : op->former_group;
}

static bool
is_awaited(const sync_call *sync, const agent_op *op)
{
    return op->number <= sync->last &&
           (sync->group[0] == '\0' || strcmp(sync->group, op_group_name(op)) == 0);
}

/*
 * The user pointer is cleared before the answer: on_cancel may still be delivered for this call,
 * and finds NULL then.
 */
static void
end_sync(sync_call *sync, const tutti_error *err)
{
    tutti_list_remove(&sync->link);
    tutti_rpc_loop_timer_stop(sync->agent->control, &sync->timer);
    tutti_rpc_call_set_user(sync->call, NULL);
    if (err == NULL) {
        sync->answer(sync->call, &sync->result);
    } else {
        tutti_rpc_call_fail(sync->call, err);
    }
    tutti_rpc_call_unref(sync->call);
    free(sync);
}

/* "op 7 of group world, a send or recv in group pair, and 3 more" */
static void
name_missing(const sync_call *sync, tutti_text *text)
{
    uint64_t named = 0;
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &sync->agent->ops)
    {
        const agent_op *op = tutti_container_of(link, agent_op, live);

        if (named < OPS_NAMED && is_awaited(sync, op)) {
            tutti_text_add(text, named == 0 ? "" : ", ");
            if (op_group_name(op)[0] == '\0') {
                tutti_text_add(text, "a Backward");
            } else if (agent_op_is_p2p(op)) {
                tutti_text_add(text, "a send or recv in group %s", op_group_name(op));
            } else {
                tutti_text_add(text, "op %" PRIu64 " of group %s", op->sequence, op_group_name(op));
            }
            named++;
        }
    }
    if (sync->missing > named) {
        tutti_text_add(text, ", and %" PRIu64 " more", sync->missing - named);
    }
}

static void
on_expiry(tutti_timer *timer)
{
    sync_call *sync = tutti_container_of(timer, sync_call, timer);
    char words[512];
    tutti_text text = tutti_text_in(words, sizeof(words));
    tutti_error err;

    name_missing(sync, &text);
    (void)TUTTI_FAIL_FOR(&err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                         "waited %.3g s, %" PRIu64 " of %" PRIu64 " ops are still running: %s",
                         (double)(tutti_clock_ns() - sync->began_ns) / (double)TUTTI_NS_PER_S,
                         sync->missing, sync->result.waited, words);
    end_sync(sync, &err);
}

static void
on_cancel(tutti_rpc_call *call, void *self)
{
    sync_call *sync = tutti_rpc_call_user(call);
    tutti_error err;

    (void)self;
    if (sync != NULL) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_CANCELLED, "CALLER_GONE", "the wait was given up");
        end_sync(sync, &err);
    }
}

static sync_call *
new_sync(tutti_agent *agent, tutti_rpc_call *call, const char *group, agent_sync_fn answer)
{
    sync_call *sync = calloc(1, sizeof(*sync));
    tutti_list_node *link;
    tutti_list_node *spare;

    if (sync == NULL) {
        return NULL;
    }
    sync->agent = agent;
    sync->call = call;
    sync->answer = answer;
    sync->timer.on_expiry = on_expiry;
    sync->began_ns = tutti_clock_ns();
    sync->last = agent->ops_last;
    (void)snprintf(sync->group, sizeof(sync->group), "%s", group);
    tutti_rpc_call_ref(call);
    tutti_list_init(&sync->link);
    tutti_list_add(&agent->syncs, &sync->link);
    tutti_list_each(link, spare, &agent->ops)
    {
        sync->missing += is_awaited(sync, tutti_container_of(link, agent_op, live)) ? 1 : 0;
    }
    sync->result.waited = sync->missing;
    return sync;
}

void
agent_sync(tutti_agent *agent, tutti_rpc_call *call, const char *group, uint32_t timeout_ms,
           agent_sync_fn answer)
{
    sync_call *sync = NULL;
    tutti_error err;
    tutti_code code = group[0] == '\0' ? TUTTI_OK : tutti_check_group_name(group, &err);

    if (code == TUTTI_OK) {
        sync = new_sync(agent, call, group, answer);
        if (sync == NULL) {
            (void)TUTTI_FAIL_MEMORY(&err, "no memory to wait");
        }
    }
    if (sync == NULL) {
        tutti_rpc_call_fail(call, &err);
    } else if (sync->missing == 0) {
        end_sync(sync, NULL);
    } else {
        tutti_rpc_call_set_user(call, sync);
        tutti_rpc_call_on_cancel(call, on_cancel);
        tutti_rpc_loop_timer_start(agent->control, &sync->timer,
                                   tutti_clock_deadline(sync->began_ns, timeout_ms,
                                                        tutti_rpc_call_deadline(call),
                                                        agent->options->op_timeout_ns));
    }
}

void
agent_sync_op_ended(tutti_agent *agent, const agent_op *op)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &agent->syncs)
    {
        sync_call *sync = tutti_container_of(link, sync_call, link);

        if (!is_awaited(sync, op)) {
            continue;
        }
        /* Only the first error is told; the others are counted. */
        if (op->failed && sync->result.failed++ == 0) {
            sync->result.err = op->err;
        }
        sync->missing--;
        if (sync->missing == 0) {
            end_sync(sync, NULL);
        }
    }
}

/* The agent stops: calls that wait must end before the server can. */
void
agent_sync_drain(tutti_agent *agent)
{
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "STOPPING", "rank %" PRIu32 " is stopping",
                         agent->rank);
    while (!tutti_list_empty(&agent->syncs)) {
        end_sync(tutti_container_of(agent->syncs.next, sync_call, link), &err);
    }
}
