/*
 * Bytes that go with a tensor that is sent. They leave before it, in a packet of their own, and are
 * kept beside the sends that nobody has received yet; the two may arrive in any order.
 */
#include <string.h>

#include "coll/engine/announce.h"

void
tutti_coll_p2p_post_meta(tutti_coll_op *op, uint32_t rank)
{
    if (op->args.meta.size > 0) {
        tutti_coll_post_packet(op, TUTTI_PACKET_META, 0, rank, op->args.meta.data,
                               op->args.meta.size, op->id);
    }
}

static coll_parked *
find_meta(tutti_coll_group *group, uint32_t from, uint64_t send_id)
{
    tutti_link *link;

    for (link = group->metas.next; link != &group->metas; link = link->next) {
        coll_parked *parked = tutti_container_of(link, coll_parked, link);

        if (parked->packet.from == from && parked->packet.extra == send_id) {
            return parked;
        }
    }
    return NULL;
}

void
tutti_coll_p2p_drop_meta(tutti_coll_group *group, uint32_t from, uint64_t send_id)
{
    coll_parked *parked = find_meta(group, from, send_id);

    if (parked != NULL) {
        tutti_coll_unpark(group->engine, parked);
    }
}

void
tutti_coll_p2p_expect_meta(tutti_coll_op *op, uint32_t from, uint64_t send_id)
{
    coll_parked *parked = find_meta(op->group, from, send_id);

    tutti_coll_expect(op, STEP_ANNOUNCE, from, NULL, 0, true, NULL);
    if (parked != NULL) {
        tutti_wire_parcel *parcel = parked->parcel;

        parked->parcel = NULL;
        tutti_coll_p2p_meta_arrive(op->group, &parked->packet, parked->data, parked->size, parcel);
        tutti_coll_unpark(op->group->engine, parked);
    }
}

/* What a Recv expects besides its tensor. */
static coll_io *
find_expected(tutti_coll_op *op)
{
    tutti_link *link;

    for (link = op->expected.next; link != &op->expected; link = link->next) {
        coll_io *io = tutti_container_of(link, coll_io, queue);

        if (io->step == STEP_ANNOUNCE) {
            return io;
        }
    }
    return NULL;
}

void
tutti_coll_p2p_meta_arrive(tutti_coll_group *group, const tutti_packet *packet, const void *data,
                           size_t size, tutti_wire_parcel *parcel)
{
    tutti_coll_op *op = tutti_coll_p2p_taker(group, packet->from, packet->extra);
    coll_io *io = op == NULL ? NULL : find_expected(op);

    if (io != NULL) {
        tutti_coll_io_take(io, packet, data, size, parcel);
    } else {
        tutti_coll_park(group->engine, &group->metas, packet, NULL, data, size, parcel);
    }
}

tutti_code
tutti_coll_p2p_hear_meta(tutti_coll_op *op, const void *bytes, size_t size, tutti_error *err)
{
    const tutti_code code = tutti_coll_told_new(op, size, err);

    if (code == TUTTI_OK) {
        memcpy(op->told->bytes, bytes, size);
        op->meta = (tutti_bytes){op->told->bytes, size};
    }
    return code;
}
