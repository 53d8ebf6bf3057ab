/* CommandsService.OpenLane: memory for the messages of a stream. Control loop. */
#include <string.h>

#include "base/error/fail.h"
#include "lane/lane.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/state/lanes.h"
#include "server/agent/state/state.h"
#include "tutti/v1/commands_service.pb-c.h"

static tutti_code
check_lane(const tutti_agent *agent, const Tutti__V1__OpenLaneRequest *request, tutti_error *err)
{
    if (agent->lanes == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "LANES_OFF",
                              "this agent makes no lanes%s: calls go by gRPC",
                              agent->options->no_lane    ? " (--no-lane)"
                              : agent->options->no_share ? " (--no-share)"
                                                         : ", see its log");
    }
    return agent_share_check_host(agent, request->host_id, err);
}

void
agent_on_open_lane(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__OpenLaneRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__OpenLaneResponse response = TUTTI__V1__OPEN_LANE_RESPONSE__INIT;
    tutti_agent *agent = self;
    agent_shared shared;
    tutti_error err;
    tutti_code code = check_lane(agent, request, &err);

    if (code == TUTTI_OK) {
        code =
            agent_lanes_offer(agent, tutti_rpc_call_identity(call), request->bell, &shared, &err);
    }
    if (code != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    response.socket = (char *)(uintptr_t)shared.socket;
    response.token = (ProtobufCBinaryData){sizeof(shared.token), shared.token};
    response.byte_count = tutti_lane_bytes();
    tutti_rpc_call_reply(call, &response.base, NULL);
}
