/* Packets that came before the op that wants them. */
#include "coll/net/unexpected.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/log.h"
#include "coll/packet/packet.h"
#include "coll/state/engine.h"

void
tutti_coll_unpark(tutti_coll_engine *engine, coll_parked *parked)
{
    tutti_list_remove(&parked->link);
    if (parked->parcel != NULL) {
        engine->wire->ops->drop(engine->wire, parked->parcel);
    }
    engine->parked_count--;
    free(parked);
}

void
tutti_coll_unpark_all(tutti_coll_engine *engine, tutti_link *where)
{
    while (!tutti_list_empty(where)) {
        tutti_coll_unpark(engine, tutti_container_of(where->next, coll_parked, link));
    }
}

/*
 * Keep a packet until somebody wants it. What a member of the job can make us keep is bounded:
 * small data by PARKED_MAX packets of TUTTI_WIRE_EAGER_MAX, large data stays with its sender.
 */
void
tutti_coll_park(tutti_coll_engine *engine, tutti_link *where, const tutti_packet *packet,
                const tutti_spec *spec, const void *data, size_t size, tutti_wire_parcel *parcel)
{
    const size_t kept = parcel == NULL ? size : 0;
    coll_parked *parked = engine->parked_count < PARKED_MAX ? malloc(sizeof(*parked) + kept) : NULL;

    if (parked == NULL) {
        TUTTI_LOG("coll", ERROR,
                  "dropped a packet of rank %" PRIu32 ": %" PRIu32
                  " are waiting for ops that were not called here",
                  packet->from, engine->parked_count);
        if (parcel != NULL) {
            engine->wire->ops->drop(engine->wire, parcel);
        }
        return;
    }
    parked->packet = *packet;
    parked->parcel = parcel;
    parked->size = size;
    parked->spec = spec == NULL ? (tutti_spec){0} : *spec;
    if (kept > 0) {
        memcpy(parked->data, data, kept);
    }
    engine->parked_count++;
    tutti_list_init(&parked->link);
    tutti_list_add(where, &parked->link);
}
