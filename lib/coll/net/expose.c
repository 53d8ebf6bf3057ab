/*
 * Working in each other's memory: backend.h says what it looks like to a backend. Engine's thread.
 *
 * An exposed region is an io of the op (`lent`) that is flying until the peer gives the memory back
 * or is dead, and so it counts in op->pending: the op's memory is not released before. But advance
 * goes on while regions are out: op->lent counts them, and tutti_coll_waits_for leaves them out
 * until tutti_coll_unmap says that this rank now waits for the others (op->returning).
 *
 * If the op fails, what was mapped is given back at once (`unfinished` at its owner); what was
 * exposed comes back when its borrowers do the same, however late
 * (docs/decisions/0012-shared-memory.md).
 */
#include "coll/net/expose.h"

#include <string.h>

#include "coll/agree/agree.h"
#include "coll/net/io.h"
#include "coll/net/peer.h"
#include "coll/packet/packet.h"
#include "coll/state/engine.h"
#include "coll/state/group.h"
#include "coll/state/op.h"

#define STEP_NEVER UINT32_MAX
#define SAME_HOST_MAX 64 /* ranks of a group that all meet each other for this */

/* Is there a connection over which memory can be exposed? Makes one if the address may be one of
 * this host: the handshake needs time, so the first ops of a group run without. */
static bool
is_peer_on_same_host(tutti_coll_engine *engine, uint32_t rank)
{
    const tutti_transport_ops *ops = engine->transport->ops;
    coll_peer *peer = tutti_coll_peer_of(engine, rank);

    if (peer == NULL || peer->lost) {
        return false;
    }
    if (peer->address != NULL &&
        !ops->can_map_peer(engine->transport, (tutti_bytes){peer->address, peer->address_size})) {
        return false;
    }
    tutti_coll_peer_watch(peer);
    return peer->conn != NULL && ops->same_host(peer->conn);
}

/* All pairs must meet, hence the limit of SAME_HOST_MAX ranks. "Not yet" counts as no: the next op
 * may find them all. */
static bool
is_group_on_one_host(tutti_coll_group *group)
{
    tutti_coll_engine *engine = group->engine;
    bool same_host = engine->transport->ops->same_host != NULL && group->size <= SAME_HOST_MAX;
    uint32_t i;

    for (i = 0; i < group->size && same_host; i++) {
        if (i != group->rank) {
            same_host = is_peer_on_same_host(engine, group->ranks[i]);
        }
    }
    return same_host;
}

uint64_t
tutti_coll_own_word(tutti_coll_op *op)
{
    const tutti_coll_backend *backend = op->group->engine->options.backend;
    const uint64_t votes = backend->vote != NULL ? backend->vote(op) : 0;

    return votes << 1 | (is_group_on_one_host(op->group) ? 1 : 0);
}

/* After the last round it is the AND over all ranks. same_host_known begins with all bits set, so
 * the call before the first round changes nothing. */
void
tutti_coll_set_same_host(tutti_coll_op *op)
{
    op->same_host &= op->same_host_known;
}

bool
tutti_coll_is_same_host(const tutti_coll_op *op)
{
    return (op->same_host & 1) != 0;
}

uint64_t
tutti_coll_votes(const tutti_coll_op *op)
{
    return op->same_host >> 1;
}

const unsigned char *
tutti_coll_riders(const tutti_coll_op *op, size_t *ret_size)
{
    return op->agree == NULL ? NULL : tutti_agree_riders(op->agree, ret_size);
}

void *
tutti_coll_backend_arg(const tutti_coll_op *op)
{
    return op->group->engine->options.backend_arg;
}

void **
tutti_coll_group_note(const tutti_coll_op *op)
{
    return &op->group->backend_note;
}

/* Relaxed: one number, read for display; nothing else is published with it. */
void
tutti_coll_group_tell(const tutti_coll_op *op, uint64_t facts)
{
    atomic_store_explicit(&op->group->facts, facts, memory_order_relaxed);
}

uint64_t
tutti_coll_group_facts(const tutti_coll_group *group)
{
    return atomic_load_explicit(&group->facts, memory_order_relaxed);
}

uint64_t
tutti_coll_host_number(const tutti_coll_op *op)
{
    const tutti_coll_engine *engine = op->group->engine;
    const tutti_transport_ops *ops = engine->transport->ops;
    const uint64_t number = ops->host != NULL ? ops->host(engine->transport) : 0;

    return number != 0 ? number : engine->incarnation;
}

bool
tutti_coll_can_expose(const tutti_coll_op *op, const tutti_transport_region *region)
{
    tutti_transport *transport = op->group->engine->transport;

    return (region->input_size == 0 ||
            transport->ops->holds(transport, region->input, region->input_size)) &&
           (region->output_size == 0 ||
            transport->ops->holds(transport, region->output, region->output_size));
}

/* ------------------------------------------------------------------------------ lending */

static uint32_t
step_of(const tutti_coll_op *op, uint32_t step)
{
    return STEP_DATA + op->part * STEP_PART + step;
}

/* An empty region is an ordinary packet without data: the borrower's view stays all 0. */
void
tutti_coll_expose(tutti_coll_op *op, uint32_t step, uint32_t to,
                  const tutti_transport_region *region, uint64_t extra)
{
    const uint32_t rank = op->group->ranks[to];
    tutti_packet packet;
    coll_io *io;

    if (region->input_size == 0 && region->output_size == 0) {
        tutti_coll_post_packet(op, TUTTI_PACKET_DATA, step_of(op, step), rank, NULL, 0, extra);
        return;
    }
    io = tutti_coll_io_for(op, rank);
    if (io == NULL) {
        return;
    }
    tutti_coll_fill_packet(op, TUTTI_PACKET_DATA, &packet);
    packet.step = step_of(op, step);
    packet.extra = extra;
    tutti_coll_io_write(io, &packet, NULL);
    io->lent = true;
    io->region = *region;
    op->lent++;
    tutti_coll_io_submit(io);
}

/*
 * The borrower's op has failed, so ours cannot end well either, but its abort, with the words, may
 * not be here yet. The io becomes a receive for a step that nobody sends: it holds the op until the
 * abort or the deadline comes.
 */
void
tutti_coll_region_released(coll_io *io)
{
    tutti_coll_op *op = io->op;

    if (op->failed) {
        tutti_coll_io_end(io);
        return;
    }
    io->lent = false;
    op->lent--;
    io->incoming = true;
    io->step = STEP_NEVER;
    tutti_list_add(&op->expected, &io->queue);
}

/* ------------------------------------------------------------------------------ borrowing */

void
tutti_coll_map(tutti_coll_op *op, uint32_t step, uint32_t from, tutti_coll_mapping *view)
{
    coll_io *io = tutti_coll_io_for(op, op->group->ranks[from]);

    tutti_list_init(&view->link);
    if (io == NULL) {
        return;
    }
    io->incoming = true;
    io->step = step_of(op, step);
    io->view = view;
    io->ret_extra = &view->extra;
    tutti_coll_submit_expected(io);
}

/* A packet without a region leaves view->memory at 0. An op that has failed meanwhile maps nothing:
 * dropping the rndv gives the region back. */
void
tutti_coll_take_mapping(coll_io *io, tutti_transport_rndv *rndv)
{
    tutti_transport *transport = io->engine->transport;
    tutti_coll_mapping *view = io->view;

    if (rndv != NULL && !io->op->failed && transport->ops->view(transport, rndv, &view->memory)) {
        view->rndv = rndv;
        tutti_list_add(&io->op->views, &view->link);
    } else if (rndv != NULL) {
        transport->ops->drop(transport, rndv);
    }
    tutti_coll_io_end(io);
}

void
tutti_coll_unmap_all(tutti_coll_op *op, bool done)
{
    tutti_transport *transport = op->group->engine->transport;
    tutti_list_node *link;

    while ((link = tutti_list_pop(&op->views)) != NULL) {
        tutti_coll_mapping *view = tutti_container_of(link, tutti_coll_mapping, link);

        memset(&view->memory, 0, sizeof(view->memory));
        transport->ops->give_back(transport, view->rndv, done);
    }
}

void
tutti_coll_unmap(tutti_coll_op *op)
{
    op->returning = true;
    tutti_coll_unmap_all(op, true);
}

/* ------------------------------------------------------------------------------ turns */

void
tutti_coll_again(tutti_coll_op *op)
{
    op->pending++;
    tutti_list_add(&op->group->engine->turns, &op->turn);
}

/* The list is taken whole, so an op that asks for another turn waits for the next step of the
 * engine: packets, timers and other ops come in between. */
unsigned
tutti_coll_run_turns(tutti_coll_engine *engine)
{
    tutti_list_node mine;
    tutti_list_node *link;
    unsigned did = 0;

    tutti_list_init(&mine);
    tutti_list_splice(&mine, &engine->turns);
    while ((link = tutti_list_pop(&mine)) != NULL) {
        tutti_coll_lose_one(tutti_container_of(link, tutti_coll_op, turn));
        did++;
    }
    return did;
}
