/* Packets that came before the op that wants them. */
#include "coll/net/unexpected.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/log.h"
#include "coll/packet/packet.h"
#include "coll/state/engine.h"

void
tutti_coll_unpark(tutti_coll_engine *engine, coll_unexpected *stored)
{
    tutti_list_remove(&stored->link);
    if (stored->rndv != NULL) {
        engine->transport->ops->drop(engine->transport, stored->rndv);
    }
    engine->unexpected_count--;
    free(stored);
}

tutti_transport_rndv *
tutti_coll_take_parked(coll_unexpected *stored)
{
    tutti_transport_rndv *rndv = stored->rndv;

    tutti_list_remove(&stored->link);
    stored->rndv = NULL;
    return rndv;
}

void
tutti_coll_unpark_all(tutti_coll_engine *engine, tutti_list_node *where)
{
    while (!tutti_list_empty(where)) {
        tutti_coll_unpark(engine, tutti_container_of(where->next, coll_unexpected, link));
    }
}

/*
 * Keep a packet until somebody wants it. What a member of the job can make us keep is bounded:
 * small data by UNEXPECTED_MAX packets of TUTTI_TRANSPORT_EAGER_MAX, large data stays with its
 * sender.
 */
void
tutti_coll_unexpected_add(tutti_coll_engine *engine, tutti_list_node *where,
                          const tutti_packet *packet, const tutti_spec *spec, const void *data,
                          size_t size, tutti_transport_rndv *rndv)
{
    const size_t kept = rndv == NULL ? size : 0;
    coll_unexpected *stored =
        engine->unexpected_count < UNEXPECTED_MAX ? malloc(sizeof(*stored) + kept) : NULL;

    if (stored == NULL) {
        TUTTI_LOG("coll", ERROR,
                  "dropped a packet of rank %" PRIu32 ": no room, %" PRIu32
                  " packets wait already for ops that this rank has not called",
                  packet->from, engine->unexpected_count);
        if (rndv != NULL) {
            engine->transport->ops->drop(engine->transport, rndv);
        }
        return;
    }
    stored->packet = *packet;
    stored->rndv = rndv;
    stored->size = size;
    stored->spec = spec == NULL ? (tutti_spec){0} : *spec;
    if (kept > 0) {
        memcpy(stored->data, data, kept);
    }
    engine->unexpected_count++;
    tutti_list_init(&stored->link);
    tutti_list_add(where, &stored->link);
}
