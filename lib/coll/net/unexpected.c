/* Packets that came before the op that wants them. */
#include "coll/net/unexpected.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
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

/* A RETRACT and the SEND and META that it ends; or anything else of the group. */
static bool
is_about(const tutti_packet *packet, uint64_t group, const tutti_packet *retract)
{
    if (packet->group != group || retract == NULL) {
        return packet->group == group;
    }
    return (packet->kind == TUTTI_PACKET_SEND || packet->kind == TUTTI_PACKET_META) &&
           packet->from == retract->from && packet->incarnation == retract->incarnation &&
           packet->extra == retract->extra;
}

bool
tutti_coll_unpark_group(tutti_coll_engine *engine, uint64_t group, const tutti_packet *retract)
{
    tutti_list_node *link;
    tutti_list_node *spare;
    bool sent = false;

    tutti_list_each(link, spare, &engine->unexpected)
    {
        coll_unexpected *stored = tutti_container_of(link, coll_unexpected, link);

        if (is_about(&stored->packet, group, retract)) {
            sent = sent || stored->packet.kind == TUTTI_PACKET_SEND;
            tutti_coll_unpark(engine, stored);
        }
    }
    return sent;
}

void
tutti_coll_unpark_stale(tutti_coll_engine *engine, uint32_t rank, uint64_t incarnation)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &engine->unexpected)
    {
        coll_unexpected *stored = tutti_container_of(link, coll_unexpected, link);

        if (stored->packet.from == rank && stored->packet.incarnation != incarnation) {
            tutti_coll_unpark(engine, stored);
        }
    }
}

void
tutti_coll_unpark_until(tutti_coll_engine *engine, tutti_list_node *where, uint64_t epoch,
                        uint64_t sequence)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, where)
    {
        coll_unexpected *stored = tutti_container_of(link, coll_unexpected, link);

        if (stored->packet.epoch == epoch && stored->packet.sequence <= sequence) {
            tutti_coll_unpark(engine, stored);
        }
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
        TUTTI_LOG_OFTEN("coll", ERROR,
                        "dropped a packet of rank %" PRIu32 ": no room, %" PRIu32
                        " packets wait already for ops that this rank has not called",
                        packet->from, (uint32_t)engine->unexpected_count);
        if (rndv != NULL) {
            engine->transport->ops->drop(engine->transport, rndv);
        }
        return;
    }
    stored->packet = *packet;
    if (packet->kind == TUTTI_PACKET_AGREE && packet->came_ns == 0) {
        stored->packet.came_ns = tutti_clock_ns();
    }
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
