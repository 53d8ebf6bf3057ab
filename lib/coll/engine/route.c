#include "coll/engine/route.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/log.h"
#include "coll/engine/abort.h"
#include "coll/engine/engine.h"
#include "coll/engine/group.h"
#include "coll/engine/inquiry.h"
#include "coll/engine/p2p.h"
#include "coll/net/io.h"
#include "coll/net/peer.h"
#include "coll/net/probe.h"
#include "coll/net/unexpected.h"
#include "coll/packet/packet.h"
#include "coll/state/lookup.h"

/* A receive of the op that this packet is for. */
static coll_io *
find_expected(tutti_coll_op *op, const tutti_packet *packet)
{
    tutti_list_node *link;

    for (link = op->expected.next; link != &op->expected; link = link->next) {
        coll_io *io = tutti_container_of(link, coll_io, queue);

        if (io->step == packet->step && io->from == packet->from) {
            return io;
        }
    }
    return NULL;
}

typedef struct arrival {
    tutti_packet packet;
    tutti_spec spec;
    const void *data;
    size_t size;
    tutti_transport_rndv *rndv;
} arrival;

static void
drop_arrival(tutti_coll_engine *engine, const arrival *it)
{
    if (it->rndv != NULL) {
        engine->transport->ops->drop(engine->transport, it->rndv);
    }
}

/* Signatures and data: for an op that runs, that is not called yet, or that is over. */
static void
route_to_op(tutti_coll_group *group, const arrival *it)
{
    tutti_coll_engine *engine = group->engine;
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&group->ops, tutti_map_key_u64(key, it->packet.sequence));
    tutti_coll_op *op;
    coll_io *io;

    if (node == NULL) {
        if (it->packet.sequence > group->begun) {
            tutti_coll_unexpected_add(engine, &group->unexpected, &it->packet, NULL, it->data,
                                      it->size, it->rndv);
        } else {
            drop_arrival(engine, it);
        }
        return;
    }
    op = tutti_container_of(node, tutti_coll_op, by_sequence);
    io = find_expected(op, &it->packet);
    if (io != NULL) {
        tutti_coll_io_take(io, &it->packet, it->data, it->size, it->rndv);
    } else {
        tutti_coll_unexpected_add(engine, &op->stored, &it->packet, NULL, it->data, it->size,
                                  it->rndv);
    }
}

static void
route_report(tutti_coll_group *group, const arrival *it)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&group->ops, tutti_map_key_u64(key, it->packet.sequence));

    if (node != NULL) {
        tutti_coll_recv_report(tutti_container_of(node, tutti_coll_op, by_sequence), &it->packet,
                               it->data, it->size);
    }
}

static void
route_in_group(tutti_coll_group *group, const arrival *it)
{
    tutti_coll_engine *engine = group->engine;
    tutti_error err;

    switch (it->packet.kind) {
    case TUTTI_PACKET_AGREE:
    case TUTTI_PACKET_DATA:
        route_to_op(group, it);
        return;
    case TUTTI_PACKET_SEND:
        tutti_coll_p2p_arrive(group, &it->packet, &it->spec, it->data, it->size, it->rndv);
        return;
    case TUTTI_PACKET_META:
        tutti_coll_p2p_meta_arrive(group, &it->packet, it->data, it->size, it->rndv);
        return;
    case TUTTI_PACKET_ABORT:
        tutti_packet_read_error(it->data, it->size, &err);
        tutti_coll_recv_abort(group, &it->packet, &err);
        break;
    case TUTTI_PACKET_LEAVE:
        tutti_packet_read_error(it->data, it->size, &err);
        tutti_coll_recv_leave(group, &it->packet, &err);
        break;
    case TUTTI_PACKET_RETRACT:
        tutti_coll_p2p_retract(group, &it->packet, it->data, it->size);
        break;
    case TUTTI_PACKET_REPORT:
        route_report(group, it);
        break;
    case TUTTI_PACKET_QUERY:
    case TUTTI_PACKET_TAKEN:
    case TUTTI_PACKET_REFUSED:
    case TUTTI_PACKET_RESET:
    default:
        break;
    }
    drop_arrival(engine, it);
}

/* Was it sent by a process that has been replaced? */
static bool
is_stale(tutti_coll_engine *engine, const tutti_packet *packet)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&engine->peers, tutti_map_key_u64(key, packet->from));
    const coll_peer *peer = node == NULL ? NULL : tutti_container_of(node, coll_peer, node);

    return peer != NULL && peer->incarnation != 0 && peer->incarnation != packet->incarnation;
}

static void
route_packet(tutti_coll_engine *engine, const arrival *it)
{
    tutti_coll_group *group;

    if (it->packet.kind == TUTTI_PACKET_QUERY) {
        tutti_coll_answer_query(engine, &it->packet);
    } else if (it->packet.kind == TUTTI_PACKET_RESET) {
        tutti_coll_recv_reset(engine, &it->packet);
    } else if (it->packet.kind == TUTTI_PACKET_REPORT && it->packet.group == NO_GROUP) {
        tutti_coll_probe_heard(engine, &it->packet);
    } else if (it->packet.kind == TUTTI_PACKET_TAKEN || it->packet.kind == TUTTI_PACKET_REFUSED) {
        tutti_coll_p2p_answer(engine, &it->packet, it->data, it->size);
    } else {
        group = tutti_coll_group_by_id(engine, it->packet.group);
        if (group == NULL) {
            tutti_coll_unexpected_add(engine, &engine->unexpected, &it->packet, &it->spec, it->data,
                                      it->size, it->rndv);
            return;
        }
        if (it->packet.epoch > group->live_epoch) {
            tutti_coll_unexpected_add(engine, &group->unexpected, &it->packet, &it->spec, it->data,
                                      it->size, it->rndv);
            return;
        }
        if (it->packet.epoch == group->live_epoch && !is_stale(engine, &it->packet) &&
            tutti_coll_group_rank_of(group, it->packet.from) != NO_RANK) {
            route_in_group(group, it);
            return;
        }
    }
    drop_arrival(engine, it);
}

void
tutti_coll_arrive(void *arg, const void *header, size_t header_size, const void *data, size_t size,
                  tutti_transport_rndv *rndv)
{
    tutti_coll_engine *engine = arg;
    arrival it = {.data = data, .size = size, .rndv = rndv};
    bool good = tutti_packet_read(header, header_size, &it.packet);

    if (good && it.packet.kind == TUTTI_PACKET_SEND) {
        good = tutti_packet_read_spec((const unsigned char *)header + TUTTI_PACKET_BYTES,
                                      header_size - TUTTI_PACKET_BYTES, &it.spec) > 0 &&
               tutti_spec_bytes(&it.spec) == size;
    }
    if (good && rndv != NULL && it.packet.kind > TUTTI_PACKET_DATA &&
        it.packet.kind != TUTTI_PACKET_SEND && it.packet.kind != TUTTI_PACKET_META) {
        good = false; /* words are small and come at once */
    }
    if (!good || it.packet.job_id != engine->job_id) {
        TUTTI_LOG("coll", DEBUG, "dropped a packet that is none of ours");
        drop_arrival(engine, &it);
        return;
    }
    route_packet(engine, &it);
}

void
coll_route_replay(tutti_coll_engine *engine, tutti_list_node *where)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(where)) != NULL) {
        coll_unexpected *stored = tutti_container_of(link, coll_unexpected, link);
        const arrival it = {.packet = stored->packet,
                            .spec = stored->spec,
                            .data = stored->data,
                            .size = stored->size,
                            .rndv = stored->rndv};

        stored->rndv = NULL;
        route_packet(engine, &it);
        tutti_coll_unpark(engine, stored);
    }
}
