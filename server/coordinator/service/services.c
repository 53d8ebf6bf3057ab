/* All services of a coordinator, and their health. */
#include "server/coordinator/service/service_loop.h"

static const tutti_rpc_service *const services[] = {
    &coord_coordinator_service, &coord_mesh_service,       &coord_metadata_service,
    &coord_store_service,       &coord_rendezvous_service,
};

/* All services share one loop, so no handler runs beside another. */
void
tutti_service_loop_serve(tutti_service_loop *service_loop, tutti_rpc_server *server)
{
    size_t i;

    for (i = 0; i < sizeof(services) / sizeof(services[0]); i++) {
        service_loop_add(service_loop, server, services[i]);
    }
    service_loop_drain_with(service_loop, server);
}

void
tutti_service_loop_set_health(tutti_rpc_server *server, bool serving)
{
    tutti_rpc_server_set_health(server, "", serving);
    tutti_rpc_server_set_health(server, "tutti.v1.CoordinatorService", serving);
    tutti_rpc_server_set_health(server, "tutti.v1.MeshService", serving);
    tutti_rpc_server_set_health(server, "tutti.v1.MetadataService", serving);
    tutti_rpc_server_set_health(server, "tutti.v1.StoreService", serving);
    tutti_rpc_server_set_health(server, "tutti.v1.RendezvousService", serving);
}
