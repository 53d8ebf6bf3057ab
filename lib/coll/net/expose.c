/* Working in each other's memory: backend.h says what it looks like. */
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
#define NEAR_MAX 64 /* ranks of a group that all meet each other for this */

/* Has it a way over which memory can be lent? Makes one where there may be. */
static bool
is_peer_near(tutti_coll_engine *engine, uint32_t rank)
{
    const tutti_wire_ops *ops = engine->wire->ops;
    coll_peer *peer = tutti_coll_peer_of(engine, rank);

    if (peer == NULL || peer->lost) {
        return false;
    }
    if (peer->address != NULL &&
        !ops->maybe_near(engine->wire, (tutti_bytes){peer->address, peer->address_size})) {
        return false;
    }
    tutti_coll_peer_watch(peer);
    return peer->way != NULL && ops->near(peer->way);
}

/* Not yet is no: the next op may find them all. */
static bool
is_group_near(tutti_coll_group *group)
{
    tutti_coll_engine *engine = group->engine;
    bool near = engine->wire->ops->near != NULL && group->size <= NEAR_MAX;
    uint32_t i;

    for (i = 0; i < group->size && near; i++) {
        if (i != group->rank) {
            near = is_peer_near(engine, group->ranks[i]);
        }
    }
    return near;
}

uint64_t
tutti_coll_own_word(tutti_coll_op *op)
{
    const tutti_coll_backend *backend = op->group->engine->options.backend;
    const uint64_t votes = backend->vote != NULL ? backend->vote(op) : 0;

    return votes << 1 | (is_group_near(op->group) ? 1 : 0);
}

/* Disseminated with the signatures: after the last round it is the AND over all ranks. */
void
tutti_coll_hear_near(tutti_coll_op *op)
{
    op->near &= op->heard_near;
}

bool
tutti_coll_is_near(const tutti_coll_op *op)
{
    return (op->near & 1) != 0;
}

uint64_t
tutti_coll_votes(const tutti_coll_op *op)
{
    return op->near >> 1;
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
    const tutti_wire_ops *ops = engine->wire->ops;
    const uint64_t number = ops->host != NULL ? ops->host(engine->wire) : 0;

    return number != 0 ? number : engine->incarnation;
}

bool
tutti_coll_can_lend(const tutti_coll_op *op, const tutti_wire_loan *loan)
{
    tutti_wire *wire = op->group->engine->wire;

    return (loan->input_size == 0 || wire->ops->holds(wire, loan->input, loan->input_size)) &&
           (loan->output_size == 0 || wire->ops->holds(wire, loan->output, loan->output_size));
}

/* ------------------------------------------------------------------------------ lending */

static uint32_t
step_of(const tutti_coll_op *op, uint32_t step)
{
    return STEP_DATA + op->part * STEP_PART + step;
}

void
tutti_coll_lend(tutti_coll_op *op, uint32_t step, uint32_t to, const tutti_wire_loan *loan,
                uint64_t extra)
{
    const uint32_t rank = op->group->ranks[to];
    tutti_packet packet;
    coll_io *io;

    if (loan->input_size == 0 && loan->output_size == 0) {
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
    io->loan = *loan;
    op->lent++;
    tutti_coll_io_submit(io);
}

/* It came back too early: the op waits for whoever says why. */
void
tutti_coll_loan_over(coll_io *io)
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
tutti_coll_borrow(tutti_coll_op *op, uint32_t step, uint32_t from, tutti_coll_view *view)
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

void
tutti_coll_take_view(coll_io *io, tutti_wire_parcel *parcel)
{
    tutti_wire *wire = io->engine->wire;
    tutti_coll_view *view = io->view;

    if (parcel != NULL && !io->op->failed && wire->ops->view(wire, parcel, &view->memory)) {
        view->parcel = parcel;
        tutti_list_add(&io->op->views, &view->link);
    } else if (parcel != NULL) {
        wire->ops->drop(wire, parcel);
    }
    tutti_coll_io_end(io);
}

void
tutti_coll_return_views(tutti_coll_op *op, bool done)
{
    tutti_wire *wire = op->group->engine->wire;
    tutti_link *link;

    while ((link = tutti_list_pop(&op->views)) != NULL) {
        tutti_coll_view *view = tutti_container_of(link, tutti_coll_view, link);

        memset(&view->memory, 0, sizeof(view->memory));
        wire->ops->give_back(wire, view->parcel, done);
    }
}

void
tutti_coll_return(tutti_coll_op *op)
{
    op->returning = true;
    tutti_coll_return_views(op, true);
}

/* ------------------------------------------------------------------------------ turns */

void
tutti_coll_again(tutti_coll_op *op)
{
    op->pending++;
    tutti_list_add(&op->group->engine->turns, &op->turn);
}

unsigned
tutti_coll_run_turns(tutti_coll_engine *engine)
{
    tutti_link mine;
    tutti_link *link;
    unsigned did = 0;

    tutti_list_init(&mine);
    tutti_list_splice(&mine, &engine->turns);
    while ((link = tutti_list_pop(&mine)) != NULL) {
        tutti_coll_lose_one(tutti_container_of(link, tutti_coll_op, turn));
        did++;
    }
    return did;
}
