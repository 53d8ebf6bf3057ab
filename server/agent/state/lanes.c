#include "server/agent/state/lanes.h"

#include "lane_offer/lane_offer.h"
#include "server/agent/state/state.h"

void
agent_lanes_open(tutti_agent *agent)
{
    const tutti_agent_options *options = agent->options;
    const tutti_lane_offers_options offers = {.server = "agent",
                                              .host_id = agent->host_id,
                                              .off = options->no_lane    ? "--no-lane"
                                                     : options->no_share ? "--no-share"
                                                                         : NULL,
                                              .lanes_max = options->lanes_max,
                                              .busy_poll_ns = options->busy_poll_ns,
                                              .any_user = options->share_any_user};

    agent->lanes = tutti_lane_offers_open(&offers, agent->control, agent->server);
}
