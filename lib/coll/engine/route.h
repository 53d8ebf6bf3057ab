/* Private to lib/coll: where a packet goes. */
#ifndef TUTTI_COLL_ENGINE_ROUTE_H
#define TUTTI_COLL_ENGINE_ROUTE_H

#include <stddef.h>

#include "coll/coll.h"
#include "coll/transport.h"

void tutti_coll_arrive(void *engine, const void *header, size_t header_size, const void *data,
                       size_t size, tutti_transport_rndv *rndv);

/* Route packets that waited once more: the event of events.h. */
void coll_route_replay(tutti_coll_engine *engine, tutti_list_node *where);

#endif
