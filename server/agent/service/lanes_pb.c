/* CommandsService.OpenLane: memory for the messages of a stream. Control loop. */
#include "lane_offer/lane_offer.h"
#include "server/agent/service/methods_pb.h"
#include "server/agent/state/state.h"
#include "tutti/v1/commands_service.pb-c.h"

void
agent_on_open_lane(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__OpenLaneRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__OpenLaneResponse response = TUTTI__V1__OPEN_LANE_RESPONSE__INIT;
    tutti_agent *agent = self;
    tutti_lane_offer offer;
    tutti_error err;

    agent_clients_note(&agent->clients, call);
    if (tutti_lane_offers_make(agent->lanes, call, request->host_id, request->bell, &offer, &err) !=
        TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    response.socket = (char *)(uintptr_t)offer.socket;
    response.token = (ProtobufCBinaryData){sizeof(offer.token), offer.token};
    response.byte_count = offer.bytes;
    tutti_rpc_call_reply(call, &response.base, NULL);
}
