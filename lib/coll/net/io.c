/*
 * Sends and receives of ops, and notes. io.h lists the states of an io. Engine's thread.
 *
 * Failing inside a post: fail_io fails the op, which ends its other ios; the io in hand is still
 * counted in op->pending, so the op is not released before this io ends itself. So each path here
 * calls fail_io first and tutti_coll_io_end last, and does not touch the op after it.
 */
#include "coll/net/io.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "coll/agree/agree.h"
#include "coll/net/expose.h"
#include "coll/net/peer.h"
#include "coll/net/unexpected.h"
#include "coll/packet/packet.h"
#include "coll/state/engine.h"
#include "coll/state/events.h"
#include "coll/state/group.h"
#include "coll/state/lookup.h"
#include "coll/state/op.h"

static void on_flown(tutti_transport_ticket *ticket, bool ok);

/* From the engine's spares, or the heap. NULL: no memory. */
coll_io *
tutti_coll_io_new(tutti_coll_op *op, tutti_coll_engine *engine, uint32_t rank)
{
    tutti_list_node *spare = tutti_list_pop(&engine->spare_ios);
    coll_io *io = spare != NULL ? tutti_container_of(spare, coll_io, queue) : malloc(sizeof(*io));

    if (io == NULL) {
        return NULL;
    }
    *io = (coll_io){.engine = engine, .op = op, .ticket.on_done = on_flown, .from = rank};
    tutti_list_init(&io->in_op);
    tutti_list_init(&io->in_peer);
    tutti_list_init(&io->queue);
    if (rank != NO_RANK) {
        io->peer = tutti_coll_peer_of(engine, rank);
        if (io->peer == NULL) {
            tutti_list_add(&engine->spare_ios, &io->queue);
            return NULL;
        }
        tutti_list_add(&io->peer->ios, &io->in_peer);
    }
    if (op != NULL) {
        tutti_list_add(&op->ios, &io->in_op);
        op->pending++;
    } else {
        engine->notes++;
    }
    return io;
}

uint32_t
tutti_coll_waits_for(const tutti_coll_op *op)
{
    return op->pending - (op->returning ? 0 : op->lent);
}

/* The op goes on (or is let go) when its last message is over; not while it is posting more. */
void
tutti_coll_lose_one(tutti_coll_op *op)
{
    assert(op->pending > 0);
    op->pending--;
    if (op->held) {
        return;
    }
    if (op->ended && op->pending == 0) {
        tutti_coll_op_release(op);
    } else if (!op->ended && tutti_coll_waits_for(op) == 0) {
        tutti_coll_op_run(op);
    }
}

/*
 * The data that it owned is freed here, since the transport no longer has it. io->op is not touched
 * after lose_one: the op may be released by then. The io itself goes to the spares before that, as
 * the op may take it for its next message.
 */
void
tutti_coll_io_end(coll_io *io)
{
    tutti_coll_op *op = io->op;

    assert(!io->flying);
    tutti_list_remove(&io->in_op);
    tutti_list_remove(&io->in_peer);
    tutti_list_remove(&io->queue);
    free(io->owned);
    io->owned = NULL;
    if (io->lent) {
        op->lent--;
    }
    tutti_list_add(&io->engine->spare_ios, &io->queue);
    if (op != NULL) {
        tutti_coll_lose_one(op);
    } else {
        io->engine->notes--;
    }
}

void
tutti_coll_ios_free(tutti_coll_engine *engine)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&engine->spare_ios)) != NULL) {
        free(tutti_container_of(link, coll_io, queue));
    }
}

/* A packet that came as a whole is read where it lies: signatures, and what was told. */
static void
read_whole(coll_io *io)
{
    tutti_coll_op *op = io->op;
    tutti_code code = TUTTI_OK;
    tutti_error err;

    if (!op->failed && io->step == STEP_ANNOUNCE) {
        code = tutti_coll_announce_recv(op, tutti_coll_group_rank_of(op->group, io->from), io->data,
                                        io->size, &err);
    } else if (!op->failed) {
        code = tutti_agree_read(op->agree, io->data, io->size, &err);
    }
    if (code != TUTTI_OK) {
        tutti_coll_op_fail(op, &err, true);
    }
}

/* A note has no op to fail, and an op fails once. */
static void
fail_io(coll_io *io, const char *what)
{
    tutti_coll_op *op = io->op;
    tutti_error err;

    if (op == NULL || op->failed) {
        return;
    }
    tutti_coll_lost_words(op, io->from, what, &err);
    tutti_coll_op_fail(op, &err, true); /* the op stays: this message is still counted */
}

/* A fetch or a send did not end well. */
static void
fail_flown(coll_io *io)
{
    tutti_coll_op *op = io->op;
    tutti_error err;

    if (!io->ticket.forged || op == NULL || op->failed) {
        fail_io(io, "the connection to it broke");
        return;
    }
    (void)TUTTI_FAIL_FOR(&err, TUTTI_INTERNAL, "BAD_PACKET",
                         "group %s: what rank %" PRIu32 " said was changed on the way",
                         op->group->name, io->from);
    tutti_error_set_op(&err, op->group->name, op->sequence, TUTTI_ERROR_RANK_NONE);
    tutti_coll_op_fail(op, &err, true);
}

/* The transport is done with the message. A borrower of our memory that did not do its part is not
 * an error of the connection: its op's failure, which is on its way, has the better words. */
static void
on_flown(tutti_transport_ticket *ticket, bool ok)
{
    coll_io *io = tutti_container_of(ticket, coll_io, ticket);

    io->flying = false;
    if (io->lent && ok && ticket->unfinished) {
        tutti_coll_region_released(io);
        return;
    }
    if (!ok) {
        fail_flown(io);
    } else if (io->whole) {
        read_whole(io);
    }
    tutti_coll_io_end(io);
}

void
tutti_coll_io_write(coll_io *io, const tutti_packet *packet, const tutti_spec *spec)
{
    tutti_packet_write(packet, io->header);
    io->header_size = TUTTI_PACKET_BYTES;
    if (spec != NULL) {
        io->header_size += tutti_packet_write_spec(spec, io->header + TUTTI_PACKET_BYTES);
    }
}

static tutti_transport_result
send_io(coll_io *io)
{
    const tutti_transport_ops *ops = io->engine->transport->ops;

    if (io->lent) {
        return ops->expose(io->peer->conn, io->header, io->header_size, &io->region, &io->ticket);
    }
    return ops->send(io->peer->conn, io->header, io->header_size, io->data, io->size, &io->ticket);
}

/*
 * A lost peer without an address fails here at once instead of waiting for an address that will not
 * come. flying is set before send: on_flown may run inside of later calls only, but the op may look
 * at it.
 */
void
tutti_coll_io_submit(coll_io *io)
{
    coll_peer *peer = io->peer;
    const char *why = "the connection to it broke";
    tutti_transport_result result = TUTTI_TRANSPORT_FAILED;

    if (!peer->lost && peer->address == NULL) {
        tutti_list_add(&peer->waiting, &io->queue);
        tutti_coll_peer_ask(peer);
        return;
    }
    if (tutti_coll_peer_connect(peer, &why)) {
        io->flying = true;
        result = send_io(io);
    }
    if (result == TUTTI_TRANSPORT_LATER) {
        return;
    }
    io->flying = false;
    if (result == TUTTI_TRANSPORT_FAILED) {
        fail_io(io, why);
    }
    tutti_coll_io_end(io);
}

/*
 * Incoming bytes for a receive that was waiting for them. Two ranks that agreed on an op must have
 * the same sizes, so another size is a fault of the peer or of a backend, and its bytes are not
 * written anywhere. Messages of any size go into memory of our own, bounded by WHOLE_MAX.
 */
void
tutti_coll_io_take(coll_io *io, const tutti_packet *packet, const void *data, size_t size,
                   tutti_transport_rndv *rndv)
{
    tutti_transport *transport = io->engine->transport;
    tutti_transport_result result = TUTTI_TRANSPORT_DONE;
    bool good = io->whole || size == io->size;

    tutti_list_remove(&io->queue);
    if (io->ret_extra != NULL) {
        *io->ret_extra = packet->extra;
    }
    if (io->view != NULL) {
        tutti_coll_take_mapping(io, rndv);
        return;
    }
    if (io->whole) {
        io->owned = size > WHOLE_MAX ? NULL : malloc(size == 0 ? 1 : size);
        io->data = io->owned;
        io->size = size;
        good = io->owned != NULL;
    }
    if (!good) {
        if (rndv != NULL) {
            transport->ops->drop(transport, rndv);
        }
        fail_io(io, "it sent a message of another size than expected");
    } else if (rndv != NULL) {
        io->flying = true;
        result = transport->ops->fetch(transport, rndv, io->data, size, &io->ticket);
    } else if (size > 0) {
        memcpy(io->data, data, size);
    }
    if (result == TUTTI_TRANSPORT_LATER) {
        return;
    }
    io->flying = false;
    if (result == TUTTI_TRANSPORT_FAILED) {
        fail_flown(io);
    } else if (good && io->whole) {
        read_whole(io);
    }
    tutti_coll_io_end(io);
}

static void
fail_for_memory(tutti_coll_op *op)
{
    tutti_error err;

    (void)TUTTI_FAIL_MEMORY(&err, "rank %u has no memory for messages", op->group->engine->rank);
    tutti_coll_op_fail(op, &err, true);
}

/* NULL: the op has failed, maybe just now. */
coll_io *
tutti_coll_io_for(tutti_coll_op *op, uint32_t rank)
{
    coll_io *io = op->failed ? NULL : tutti_coll_io_new(op, op->group->engine, rank);

    if (io == NULL && !op->failed) {
        fail_for_memory(op);
    }
    return io;
}

/* Wait for a packet of `step` from a rank; one that is parked in op->stored is taken at once. */
void
tutti_coll_expect(tutti_coll_op *op, uint32_t step, uint32_t rank, void *dest, size_t size,
                  bool whole, uint64_t *ret_extra)
{
    coll_io *io = tutti_coll_io_for(op, rank);

    if (io == NULL) {
        return;
    }
    io->incoming = true;
    io->step = step;
    io->data = dest;
    io->size = size;
    io->whole = whole;
    io->ret_extra = ret_extra;
    tutti_coll_submit_expected(io);
}

/*
 * The packet that is here is taken even if its sender is lost by now: it has done its part. Without
 * it, a lost peer fails the op, and a peer without a connection gets one, so that its death is
 * noticed (tutti_coll_peer_watch).
 */
void
tutti_coll_submit_expected(coll_io *io)
{
    tutti_coll_op *op = io->op;
    tutti_list_node *link;

    for (link = op->stored.next; link != &op->stored; link = link->next) {
        coll_unexpected *stored = tutti_container_of(link, coll_unexpected, link);

        if (stored->packet.step == io->step && stored->packet.from == io->from) {
            tutti_transport_rndv *rndv = tutti_coll_take_parked(stored);

            tutti_coll_io_take(io, &stored->packet, stored->data, stored->size, rndv);
            tutti_coll_unpark(op->group->engine, stored);
            return;
        }
    }
    if (io->peer != NULL && io->peer->lost) {
        fail_io(io, io->peer->reason);
        tutti_coll_io_end(io);
        return;
    }
    tutti_list_add(&op->expected, &io->queue);
    if (io->peer != NULL) {
        tutti_coll_peer_watch(io->peer);
    }
}

void
tutti_coll_fill_packet(const tutti_coll_op *op, tutti_packet_kind kind, tutti_packet *packet)
{
    const tutti_coll_engine *engine = op->group->engine;

    *packet = (tutti_packet){.kind = kind,
                             .from = engine->rank,
                             .job_id = engine->job_id,
                             .incarnation = engine->incarnation,
                             .group = op->group->id,
                             .epoch = op->epoch,
                             .sequence = op->sequence,
                             .tag = op->args.tag};
}

/* For tutti_coll_group_orphan over there. */
static uint32_t
caller_age(const tutti_coll_op *op)
{
    const uint64_t now_ns = op->group->engine->now_ns;
    const uint64_t ms = op->caller_ns < now_ns ? (now_ns - op->caller_ns) / TUTTI_NS_PER_MS : 0;

    return op->caller_ns == 0 ? 0 : 1 + (uint32_t)(ms < UINT32_MAX ? ms : UINT32_MAX - 1);
}

void
tutti_coll_post_packet(tutti_coll_op *op, tutti_packet_kind kind, uint32_t step, uint32_t rank,
                       const void *data, size_t size, uint64_t extra)
{
    coll_io *io = tutti_coll_io_for(op, rank);
    tutti_packet packet;

    if (io == NULL) {
        return;
    }
    tutti_coll_fill_packet(op, kind, &packet);
    packet.step = step;
    packet.extra = extra;
    if (kind == TUTTI_PACKET_AGREE) {
        packet.tag = caller_age(op);
    }
    tutti_coll_io_write(io, &packet, kind == TUTTI_PACKET_SEND ? &op->args.spec : NULL);
    /* A signature is of no use to a rank that has not called the op: it need not wake an idle
     * engine (docs/decisions/0012-shared-memory.md). */
    io->ticket.patient = kind == TUTTI_PACKET_AGREE;
    io->ticket.words = kind != TUTTI_PACKET_SEND && (kind != TUTTI_PACKET_DATA || step < STEP_DATA);
    io->data = (void *)(uintptr_t)data;
    io->size = size;
    tutti_coll_io_submit(io);
}

/*
 * The copy is owned by the io: the caller's bytes are on its stack, and the send may be over later.
 */
void
tutti_coll_note(tutti_coll_engine *engine, uint32_t rank, const tutti_packet *packet,
                const void *data, size_t size)
{
    coll_io *io = tutti_coll_io_new(NULL, engine, rank);

    if (io == NULL) {
        return;
    }
    if (size > 0) {
        io->owned = malloc(size);
        if (io->owned == NULL) {
            tutti_coll_io_end(io);
            return;
        }
        memcpy(io->owned, data, size);
    }
    tutti_coll_io_write(io, packet, NULL);
    io->ticket.words = true;
    io->data = io->owned;
    io->size = size;
    tutti_coll_io_submit(io);
}

void
tutti_coll_send(tutti_coll_op *op, uint32_t step, uint32_t to, const void *data, size_t size,
                uint64_t extra)
{
    tutti_coll_post_packet(op, TUTTI_PACKET_DATA, STEP_DATA + op->part * STEP_PART + step,
                           op->group->ranks[to], data, size, extra);
}

void
tutti_coll_recv(tutti_coll_op *op, uint32_t step, uint32_t from, void *dest, size_t size,
                uint64_t *ret_extra)
{
    tutti_coll_expect(op, STEP_DATA + op->part * STEP_PART + step, op->group->ranks[from], dest,
                      size, false, ret_extra);
}
