/*
 * Where clients get their lanes: a socket as that of tensors, with a limit of its own. A client
 * that dies ends its connection, and so its lane's offer; its stream ends by gRPC.
 */
#include "server/agent/state/lanes.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "lane/lane.h"
#include "rpc/lane.h"
#include "server/agent/state/state.h"
#include "share/share.h"

/* A client takes its lane at once, or never: it waits for 1 s. Until then the offer counts towards --lanes-max, also
 * where the client runs as another user, or in another network namespace, and cannot take it. */
#define OFFER_NS (5 * TUTTI_NS_PER_S)

static void
on_over(void *owner)
{
    tutti_rpc_lane_drop(owner);
}

void
agent_lanes_open(tutti_agent *agent)
{
    const tutti_agent_options *options = agent->options;
    const tutti_share_options share = {.shares_max = UINT32_MAX,
                                       .any_user = options->share_any_user,
                                       .patience_ns = OFFER_NS,
                                       .on_over = on_over};
    tutti_error err;
    tutti_code code;

    if (options->no_lane || options->no_share) {
        return;
    }
    code = tutti_share_open(&share, &agent->lane_share, &err);
    if (code == TUTTI_OK) {
        code = tutti_rpc_lanes_open(agent->control, options->busy_poll_ns, &agent->lanes, &err);
    }
    if (code != TUTTI_OK) {
        TUTTI_LOG("agent", WARN, "clients have no lanes: %s", err.text);
        agent_lanes_close(agent);
        return;
    }
    tutti_rpc_server_lanes(agent->server, agent->lanes);
}

/* The share first: it holds the lanes that no stream has. */
void
agent_lanes_close(tutti_agent *agent)
{
    tutti_share_close(agent->lane_share);
    agent->lane_share = NULL;
    tutti_rpc_lanes_close(agent->lanes);
    agent->lanes = NULL;
}

/* [in] item  with the lane's memory and bell */
static tutti_code
offer_lane(tutti_agent *agent, tutti_rpc_lane *lane, tutti_share_item *item, bool polls,
           agent_shared *ret_shared, tutti_error *err)
{
    item->bytes = tutti_lane_bytes();
    item->writable = true;
    item->owner = lane;
    if (polls) {
        TUTTI_TRY(tutti_rpc_lane_add_client_bell(lane, &item->third, err));
    }
    TUTTI_TRY(tutti_share_offer(agent->lane_share, item, ret_shared->token, err));
    tutti_rpc_lane_name(lane, ret_shared->token);
    ret_shared->socket = tutti_share_socket(agent->lane_share);
    return TUTTI_OK;
}

tutti_code
agent_lanes_offer(tutti_agent *agent, const char *identity, bool polls, agent_shared *ret_shared,
                  tutti_error *err)
{
    tutti_rpc_lane *lane = NULL;
    tutti_share_item item = {.fd = -1};
    tutti_code code;

    if (tutti_rpc_lanes_count(agent->lanes) >= agent->options->lanes_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "LANE_LIMIT",
                              "%" PRIu64 " lanes exist, the limit: raise --lanes-max; the client's "
                              "calls go by gRPC meanwhile",
                              agent->options->lanes_max);
    }
    TUTTI_TRY(tutti_rpc_lane_new(agent->lanes, identity, &item.fd, &item.second, &lane, err));
    code = offer_lane(agent, lane, &item, polls, ret_shared, err);
    (void)close(item.fd);
    if (code != TUTTI_OK) {
        tutti_rpc_lane_drop(lane);
    }
    return code;
}
