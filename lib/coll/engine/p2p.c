/*
 * Send and receive. A send's tensor waits at the sender until a receive takes it; the receiver then
 * says TAKEN, or REFUSED if the tensor is not what it wanted, so both sides learn of a mismatch.
 *
 * Send                                   Recv
 * META (if there are meta bytes)    ->   matched by the send's id
 * SEND (spec, tensor)               ->   matched by tag and source: the oldest first, as in MPI
 *                                   <-   TAKEN, when the bytes are in the output; or REFUSED
 * RETRACT, if it fails before that  ->   the Recv fails, or the parked SEND is forgotten
 *
 * A Send that was refused before it began may tell so with UNSENT: it is matched like a SEND, and
 * the Recv fails with the sender's error. There is no op behind it, and nothing is answered.
 *
 * Packets may overtake each other (over shared memory, a RETRACT takes the ring and a large SEND
 * another way). A RETRACT, and the failure of a Recv, is remembered, and drops what comes of its
 * META and SEND later.
 *
 * A pair (rank of the sender, id of its op) names a send; ids are never used twice by one process.
 * Either side ends the other by one message, and each side drops the other's message if its own op
 * is over already: a TAKEN that meets a RETRACT on the way is such a case, and then the Send has
 * failed while the Recv succeeded.
 *
 * Engine's thread. A Recv without a sender is in group->receives; a SEND without a Recv is in
 * group->sends, a META in group->metas. op->backend_state of a Recv is its `taking`, freed when it
 * ends. op->held is set while an op posts several things, so that it is not run or released in the
 * middle.
 */
#include "coll/engine/p2p.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "coll/engine/announce.h"
#include "coll/engine/device_pending.h"
#include "coll/engine/engine.h"
#include "coll/engine/group.h"
#include "coll/engine/op.h"
#include "coll/infer/signature.h"
#include "coll/net/io.h"
#include "coll/net/unexpected.h"
#include "coll/packet/packet.h"
#include "coll/state/events.h"
#include "coll/state/inbox.h"
#include "coll/state/lookup.h"

/* What a Recv works on once a send has been matched with it: kept in backend_state. send_id 0: not
 * matched, or the sender has given up: there is nobody to answer. */
typedef struct taking {
    uint64_t send_id;
    uint64_t incarnation;
    uint32_t from;  /* rank of the job */
    bool with_meta; /* a META belongs to it */
} taking;

/*
 * A ring: of many sends given up at once the oldest are forgotten first. What a member can make us
 * keep is bounded by that. Some are of sends that have come and are over, and match nothing.
 */
#define RETRACTED_MAX 256

struct coll_retracted {
    size_t count; /* that ever came */
    struct {
        uint64_t incarnation; /* the next process of a rank counts its ids from the beginning */
        uint64_t send_id;
        uint32_t from;
    } list[RETRACTED_MAX];
};

/* Without memory the SEND is parked when it comes, until the epoch ends. */
static void
remember_retract(tutti_coll_group *group, uint32_t from, uint64_t incarnation, uint64_t send_id)
{
    struct coll_retracted *all = group->retracted;
    size_t i;

    if (all == NULL) {
        all = calloc(1, sizeof(*all));
        group->retracted = all;
    }
    if (all != NULL) {
        i = all->count++ % RETRACTED_MAX;
        all->list[i].incarnation = incarnation;
        all->list[i].send_id = send_id;
        all->list[i].from = from;
    }
}

static bool
was_retracted(const tutti_coll_group *group, const tutti_packet *packet)
{
    const struct coll_retracted *all = group->retracted;
    size_t i;

    for (i = 0; all != NULL && i < all->count && i < RETRACTED_MAX; i++) {
        if (all->list[i].send_id == packet->extra && all->list[i].from == packet->from &&
            all->list[i].incarnation == packet->incarnation) {
            return true;
        }
    }
    return false;
}

/* ------------------------------ members whose program has ended */

typedef struct silent_member {
    tutti_list_node link;
    tutti_packet packet; /* the SILENT: its rank and process, and when it came */
    tutti_error why;
} silent_member;

void
tutti_coll_p2p_forget_silent(tutti_coll_group *group, uint32_t from)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &group->silent)
    {
        silent_member *one = tutti_container_of(link, silent_member, link);

        if (from == NO_RANK || one->packet.from == from) {
            tutti_list_remove(link);
            free(one);
        }
    }
}

/* The last who could meet this op, if none is left; NULL: somebody may. A program that came behind the end
 * of another one is of the next run, and waits for its partner there, which may start a moment later. */
static const silent_member *
find_silent(const tutti_coll_op *op)
{
    const tutti_coll_group *group = op->group;
    const bool any = op->args.peer == TUTTI_COLL_ANY_SOURCE;
    const silent_member *found = NULL;
    const tutti_list_node *link;
    uint32_t left = any ? group->size - 1 : 1;

    for (link = group->silent.next; link != &group->silent; link = link->next) {
        const silent_member *one = tutti_container_of(link, silent_member, link);

        if ((any || group->ranks[op->args.peer] == one->packet.from) && op->caller_ns != 0 &&
            op->caller_ns < one->packet.came_ns &&
            !tutti_coll_is_stale(group->engine, &one->packet)) {
            found = one;
            left--;
        }
    }
    return left == 0 ? found : NULL;
}

/* Returns whether it has failed. */
static bool
fail_if_silent(tutti_coll_op *op)
{
    const silent_member *found = find_silent(op);
    const tutti_coll_group *group = op->group;
    tutti_error err;

    if (found != NULL) {
        (void)TUTTI_FAIL_FOR(&err, found->why.code, found->why.reason,
                             "group %s tag %" PRIu32 ": %.700s", group->name, op->args.tag,
                             found->why.text);
        tutti_error_set_op(&err, group->name, 0, (int32_t)found->packet.from);
        tutti_coll_op_fail(op, &err, true);
    }
    return found != NULL;
}

/* A receive that nothing has come for; a send that was not taken. */
static bool
is_unmet(const tutti_coll_op *op)
{
    return op->phase == PHASE_P2P && !op->ended &&
           (op->args.kind == TUTTI_COLL_SEND || !tutti_list_empty(&op->item.link));
}

static void
fail_silent(tutti_coll_group *group)
{
    tutti_coll_engine *engine = group->engine;
    unsigned char key[8];
    uint64_t id = 0;
    tutti_map_node *node;

    while ((node = tutti_map_from(&engine->ops, tutti_map_key_u64(key, id))) != NULL) {
        tutti_coll_op *op = tutti_container_of(node, tutti_coll_op, by_id);

        id = op->id + 1; /* others may end with it */
        if (op->group == group && is_unmet(op)) {
            (void)fail_if_silent(op);
        }
    }
}

/* Without memory, who waits for that member waits until the deadline. */
void
tutti_coll_p2p_silent(tutti_coll_group *group, const tutti_packet *packet, const void *data,
                      size_t size)
{
    silent_member *one;

    tutti_coll_p2p_forget_silent(group, packet->from);
    one = size == 0 ? NULL : calloc(1, sizeof(*one));
    if (one != NULL) {
        one->packet = *packet;
        tutti_packet_read_error(data, size, &one->why);
        tutti_list_init(&one->link);
        tutti_list_add(&group->silent, &one->link);
        fail_silent(group);
    }
}

/* ------------------------------ a message that comes */

static void
drop_late(tutti_coll_engine *engine, tutti_transport_rndv *rndv)
{
    if (rndv != NULL) {
        engine->transport->ops->drop(engine->transport, rndv);
    }
}

static void
answer_send(tutti_coll_op *op, const tutti_error *err)
{
    tutti_coll_engine *engine = op->group->engine;
    const taking *it = op->backend_state;
    tutti_packet packet = {.kind = err == NULL ? TUTTI_PACKET_TAKEN : TUTTI_PACKET_REFUSED,
                           .from = engine->rank,
                           .job_id = engine->job_id,
                           .incarnation = engine->incarnation,
                           .group = op->group->id,
                           .epoch = op->epoch,
                           .extra = it->send_id};
    unsigned char bytes[TUTTI_PACKET_ERROR_BYTES];

    tutti_coll_note(engine, it->from, &packet, bytes,
                    err == NULL ? 0 : tutti_packet_write_error(err, bytes));
}

/* The rules of a broadcast are those of a message: the sender says the shape, and the receiver may
 * insist on one, or on its element count. */
static tutti_code
check_spec(tutti_coll_op *op, uint32_t from, const tutti_spec *sent, tutti_error *err)
{
    tutti_coll_args given = {.kind = TUTTI_COLL_BROADCAST, .has_spec = true, .spec = *sent};
    tutti_coll_args wanted = {.kind = TUTTI_COLL_BROADCAST,
                              .has_spec = op->args.has_spec,
                              .count_only = op->args.count_only,
                              .spec = op->args.spec};
    const tutti_signature_field field = tutti_signature_compare(&given, &wanted);
    char words[256];
    tutti_text text = tutti_text_in(words, sizeof(words));
    const char *reason;
    tutti_code code;

    if (field == TUTTI_FIELD_NONE) {
        return TUTTI_OK;
    }
    reason = tutti_signature_reason(field, &code);
    tutti_text_add(&text, "rank %" PRIu32 " sent ", from);
    tutti_spec_describe(sent, &text);
    tutti_text_add(&text, ", rank %" PRIu32 " expects ", op->group->engine->rank);
    tutti_text_add(&text, op->args.count_only ? "the count of " : "");
    tutti_spec_describe(&op->args.spec, &text);
    (void)TUTTI_FAIL_FOR(err, code, reason, "group %s tag %" PRIu32 ": %s differs: %s",
                         op->group->name, op->args.tag, tutti_signature_field_name(field), words);
    tutti_error_set_op(err, op->group->name, 0, TUTTI_ERROR_RANK_NONE);
    return code;
}

/* What was sent is an error. */
static void
take_refusal(tutti_coll_op *op, const void *data, size_t size)
{
    tutti_error err;

    tutti_list_remove(&op->item.link);
    tutti_packet_read_error(data, size, &err);
    tutti_error_set_op(&err, op->group->name, 0, err.rank);
    tutti_coll_op_fail(op, &err, false);
}

/*
 * A send has met its receive. The caller has set op->held. If the Recv fails here (the tensor does
 * not fit, no memory), coll_op_fail answers REFUSED by tutti_coll_p2p_failed, and the bytes are
 * dropped: the sender's transport has then done its part.
 */
static void
take_message(tutti_coll_op *op, const tutti_packet *packet, const tutti_spec *spec,
             const void *data, size_t size, tutti_transport_rndv *rndv)
{
    tutti_coll_engine *engine = op->group->engine;
    taking *it = op->backend_state;
    void *place = NULL;
    tutti_error err;
    tutti_code code;
    coll_io *io;

    tutti_list_remove(&op->item.link);
    it->send_id = packet->extra;
    it->incarnation = packet->incarnation;
    it->from = packet->from;
    it->with_meta = packet->step > 0;
    op->source = tutti_coll_group_rank_of(op->group, packet->from);
    code = check_spec(op, packet->from, spec, &err);
    if (code == TUTTI_OK && op->on_spec != NULL) {
        code = op->on_spec(op, spec, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_coll_place(op, size, &place, &err);
    }
    io = code == TUTTI_OK ? tutti_coll_io_new(op, engine, packet->from) : NULL;
    if (io == NULL) {
        if (code == TUTTI_OK) {
            (void)TUTTI_FAIL_MEMORY(&err, "rank %" PRIu32 " has no memory", engine->rank);
        }
        if (rndv != NULL) {
            engine->transport->ops->drop(engine->transport, rndv);
        }
        tutti_coll_p2p_drop_meta(op->group, packet->from, packet->extra);
        tutti_coll_op_fail(op, &err, true);
        return;
    }
    if (packet->step > 0) {
        /*
         * Before the tensor is taken: with both expected, the Recv cannot end on the tensor alone.
         */
        tutti_coll_p2p_expect_meta(op, packet->from, packet->extra);
    }
    io->incoming = true;
    io->data = place;
    io->size = size;
    tutti_coll_io_take(io, packet, data, size, rndv);
}

/* A Recv that waits has one io in op->expected: it keeps op->pending above 0, and makes the loss of
 * the sender fail the op. The SEND that has come is taken by an io of its own, so this one ends. */
static void
stop_waiting(tutti_coll_op *op)
{
    tutti_list_node *link = tutti_list_pop(&op->expected);

    if (link != NULL) {
        tutti_coll_io_end(tutti_container_of(link, coll_io, queue));
    }
}

static bool
check_message_fits(const tutti_coll_op *op, const tutti_packet *packet)
{
    const tutti_coll_group *group = op->group;

    return op->args.tag == packet->tag &&
           (op->args.peer == TUTTI_COLL_ANY_SOURCE || group->ranks[op->args.peer] == packet->from);
}

/* Take a message with op->held set: else stop_waiting, which takes the last pending io away, would
 * run or release the op before the message is taken. */
static void
take_held(tutti_coll_op *op, const tutti_packet *packet, const tutti_spec *spec, const void *data,
          size_t size, tutti_transport_rndv *rndv)
{
    op->held = true;
    stop_waiting(op);
    if (packet->kind == TUTTI_PACKET_UNSENT) {
        take_refusal(op, data, size);
    } else {
        take_message(op, packet, spec, data, size, rndv);
    }
    op->held = false;
    if (op->ended && op->pending == 0) {
        tutti_coll_op_release(op);
    } else if (op->pending == 0) {
        tutti_coll_op_run(op);
    }
}

void
tutti_coll_p2p_arrive(tutti_coll_group *group, const tutti_packet *packet, const tutti_spec *spec,
                      const void *data, size_t size, tutti_transport_rndv *rndv)
{
    tutti_list_node *link;

    if (was_retracted(group, packet)) {
        drop_late(group->engine, rndv);
        return;
    }
    for (link = group->receives.next; link != &group->receives; link = link->next) {
        tutti_coll_item *item = tutti_container_of(link, tutti_coll_item, link);
        tutti_coll_op *op = tutti_container_of(item, tutti_coll_op, item);

        if (check_message_fits(op, packet)) {
            take_held(op, packet, spec, data, size, rndv);
            return;
        }
    }
    tutti_coll_unexpected_add(group->engine, &group->sends, packet, spec, data, size, rndv);
}

/* The oldest send that is waiting for this receive. */
static coll_unexpected *
find_send(tutti_coll_op *op)
{
    tutti_list_node *link;

    for (link = op->group->sends.next; link != &op->group->sends; link = link->next) {
        coll_unexpected *stored = tutti_container_of(link, coll_unexpected, link);

        if (check_message_fits(op, &stored->packet)) {
            return stored;
        }
    }
    return NULL;
}

/* The SEND may be here already. backend_state is made first: a Recv in group->receives must be able
 * to take what comes without asking for memory. */
static void
begin_recv(tutti_coll_op *op)
{
    tutti_coll_group *group = op->group;
    coll_unexpected *stored = find_send(op);
    tutti_transport_rndv *rndv;

    op->backend_state = calloc(1, sizeof(taking));
    if (op->backend_state == NULL) {
        tutti_error err;

        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a receive");
        tutti_coll_op_fail(op, &err, true);
        return;
    }
    if (stored == NULL && fail_if_silent(op)) {
        return;
    }
    if (stored == NULL) {
        tutti_list_add(&group->receives, &op->item.link);
        op->held = true;
        tutti_coll_expect(
            op, 0, op->args.peer == TUTTI_COLL_ANY_SOURCE ? NO_RANK : group->ranks[op->args.peer],
            NULL, 0, false, NULL);
        op->held = false;
        if (op->ended && op->pending == 0) {
            tutti_coll_op_release(op);
        }
        return;
    }
    rndv = tutti_coll_take_parked(stored);
    take_held(op, &stored->packet, &stored->spec, stored->data, stored->size, rndv);
    tutti_coll_unpark(group->engine, stored);
}

/* Called with op->held set. A tensor in a device's memory is fetched first, and this runs again
 * when it is there. Returns whether something is under way; false: the receiver has taken all. */
static bool
post_send(tutti_coll_op *op)
{
    const uint32_t rank = op->group->ranks[op->args.peer];
    const bool posted = op->round > 1;
    bool fetching = false;
    tutti_error err;

    if (posted) {
        return false;
    }
    if (tutti_coll_fetch(op, &fetching, &err) != TUTTI_OK) {
        tutti_coll_op_fail(op, &err, true);
    } else if (!fetching) {
        op->round = 2;
        tutti_coll_p2p_post_meta(op, rank);
        tutti_coll_post_packet(op, TUTTI_PACKET_SEND, (uint32_t)op->args.meta.size, rank,
                               tutti_coll_stage_or(op, op->input),
                               (size_t)tutti_spec_bytes(&op->args.spec), op->id);
        /* Keeps the Send pending until TAKEN; nothing is ever received into it. If the receiver is
         * lost, it is this io that fails the op. */
        tutti_coll_expect(op, STEP_TAKEN, rank, NULL, 0, false, NULL);
    }
    return true;
}

static void
begin_send(tutti_coll_op *op)
{
    op->held = true;
    (void)post_send(op);
    op->held = false;
    if (op->ended && op->pending == 0) {
        tutti_coll_op_release(op);
    }
}

void
tutti_coll_p2p_begin(tutti_coll_op *op)
{
    const bool sends = op->args.kind == TUTTI_COLL_SEND;

    op->backend_state = NULL;
    if (sends && fail_if_silent(op)) {
        return;
    }
    op->phase = PHASE_P2P;
    if (sends) {
        begin_send(op);
    } else {
        begin_recv(op);
    }
}

/* Copy what came from the stage to the device. Returns whether the copy runs. */
static bool
store_received(tutti_coll_op *op)
{
    bool storing = false;
    tutti_error err;

    if (tutti_coll_store(op, &storing, &err) != TUTTI_OK) {
        tutti_coll_op_fail(op, &err, true);
        return true;
    }
    return storing;
}

/* Nothing is in flight any more: the tensor is here, or was taken there. A Recv answers TAKEN only
 * now: the sender's success means that the receiver has the bytes in its output. */
void
tutti_coll_p2p_step(tutti_coll_op *op)
{
    if (op->args.kind == TUTTI_COLL_SEND ? post_send(op) : store_received(op)) {
        return;
    }
    if (op->args.kind == TUTTI_COLL_RECV) {
        answer_send(op, NULL);
        free(op->backend_state);
        op->backend_state = NULL;
    }
    tutti_coll_op_succeed(op);
}

static void
keep_retract(const tutti_coll_op *op, const tutti_packet *packet)
{
    coll_peer *peer = tutti_coll_peer_of(op->group->engine, op->group->ranks[op->args.peer]);

    if (peer != NULL) {
        tutti_coll_peer_keep_retract(peer, packet);
    }
}

/* A Send that has not begun (PHASE_NEW) has told nobody of itself. A Recv answers only the send
 * that it has matched; the error is then the sender's, too. */
void
tutti_coll_p2p_failed(tutti_coll_op *op, const tutti_error *err)
{
    const taking *it = op->backend_state;
    tutti_packet packet = {.kind = TUTTI_PACKET_RETRACT,
                           .from = op->group->engine->rank,
                           .job_id = op->group->engine->job_id,
                           .incarnation = op->group->engine->incarnation,
                           .group = op->group->id,
                           .epoch = op->epoch,
                           .extra = op->id};
    unsigned char bytes[TUTTI_PACKET_ERROR_BYTES];

    if (op->args.kind == TUTTI_COLL_SEND && op->phase == PHASE_P2P) {
        tutti_coll_note(op->group->engine, op->group->ranks[op->args.peer], &packet, bytes,
                        tutti_packet_write_error(err, bytes));
        keep_retract(op, &packet);
    } else if (it != NULL && it->send_id != 0) {
        answer_send(op, err);
        if (it->with_meta) {
            remember_retract(op->group, it->from, it->incarnation, it->send_id);
        }
    }
    free(op->backend_state);
    op->backend_state = NULL;
}

/* TAKEN or REFUSED has come for one of our sends. The packet must come from the rank that was sent
 * to: an id alone could be guessed by another member. */
void
tutti_coll_p2p_answer(tutti_coll_engine *engine, const tutti_packet *packet, const void *data,
                      size_t size)
{
    tutti_coll_op *op = tutti_coll_op_by_id(engine, packet->extra);
    tutti_list_node *link;
    tutti_error err;

    if (op == NULL || op->ended || op->args.kind != TUTTI_COLL_SEND ||
        op->group->ranks[op->args.peer] != packet->from) {
        return;
    }
    if (packet->kind == TUTTI_PACKET_REFUSED) {
        tutti_packet_read_error(data, size, &err);
        tutti_error_set_op(&err, op->group->name, 0, err.rank);
        tutti_coll_op_fail(op, &err, false);
        return;
    }
    link = tutti_list_pop(&op->expected);
    if (link != NULL) {
        tutti_coll_io_end(tutti_container_of(link, coll_io, queue));
    }
}

tutti_coll_op *
tutti_coll_p2p_taker(tutti_coll_group *group, uint32_t from, uint64_t send_id)
{
    tutti_map_node *node;

    for (node = tutti_map_first(&group->engine->ops); node != NULL; node = tutti_map_next(node)) {
        tutti_coll_op *op = tutti_container_of(node, tutti_coll_op, by_id);
        const taking *it = op->group == group && op->args.kind == TUTTI_COLL_RECV && !op->ended
                               ? op->backend_state
                               : NULL;

        if (it != NULL && it->from == from && it->send_id == send_id) {
            return op;
        }
    }
    return NULL;
}

/* A sender has given up. Its SEND is parked here, or a Recv has matched it and pulls its bytes; if
 * neither, it is over, or has not come yet. Its META may come later in any case. */
void
tutti_coll_p2p_retract(tutti_coll_group *group, const tutti_packet *packet, const void *data,
                       size_t size)
{
    tutti_coll_op *op = tutti_coll_p2p_taker(group, packet->from, packet->extra);
    tutti_list_node *link;
    tutti_list_node *spare;
    tutti_error err;

    tutti_coll_p2p_drop_meta(group, packet->from, packet->extra);
    remember_retract(group, packet->from, packet->incarnation, packet->extra);
    tutti_list_each(link, spare, &group->sends)
    {
        coll_unexpected *stored = tutti_container_of(link, coll_unexpected, link);

        if (stored->packet.from == packet->from && stored->packet.extra == packet->extra) {
            tutti_coll_unpark(group->engine, stored);
            return;
        }
    }
    if (op != NULL) {
        ((taking *)op->backend_state)->send_id = 0; /* no answer: the sender has ended its op */
        tutti_packet_read_error(data, size, &err);
        tutti_error_set_op(&err, group->name, 0, err.rank);
        tutti_coll_op_fail(op, &err, false);
    }
}

/* ------------------------------ a send that was refused */

typedef struct send_refusal {
    tutti_coll_item item;
    tutti_coll_group *group;
    uint64_t epoch;
    uint32_t peer;
    uint32_t tag;
    tutti_error why;
} send_refusal;

static void
run_refuse_send(tutti_coll_engine *engine, tutti_coll_item *item)
{
    send_refusal *self = tutti_container_of(item, send_refusal, item);
    tutti_coll_group *group = self->group;
    tutti_packet packet = {.kind = TUTTI_PACKET_UNSENT,
                           .from = engine->rank,
                           .tag = self->tag,
                           .job_id = engine->job_id,
                           .incarnation = engine->incarnation,
                           .group = group->id,
                           .epoch = self->epoch};
    unsigned char bytes[TUTTI_PACKET_ERROR_BYTES];

    if (!group->closed && self->epoch == group->live_epoch) {
        tutti_coll_note(engine, group->ranks[self->peer], &packet, bytes,
                        tutti_packet_write_error(&self->why, bytes));
    }
    tutti_coll_group_unref(group);
    free(self);
}

/* Through the inbox, as posts go: what was sent before is matched before. */
void
tutti_coll_refuse_send(tutti_coll_group *group, uint32_t peer, uint32_t tag, const tutti_error *why)
{
    tutti_coll_engine *engine = group->engine;
    send_refusal *self = calloc(1, sizeof(*self));
    bool stopping;

    if (self == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory to tell group rank %" PRIu32 " of a refused send",
                  peer);
        return;
    }
    *self = (send_refusal){.item.run = run_refuse_send, .group = group, .peer = peer, .tag = tag};
    (void)TUTTI_FAIL_FOR(&self->why, why->code, why->reason,
                         "group %s tag %" PRIu32 ": rank %" PRIu32 " could not send: %.700s",
                         group->name, tag, engine->rank, why->text);
    tutti_error_set_op(&self->why, group->name, 0, (int32_t)engine->rank);
    (void)pthread_mutex_lock(&engine->lock);
    stopping = engine->stopping;
    if (!stopping) {
        self->epoch = group->epoch;
        atomic_fetch_add(&group->refs, 1);
    }
    (void)pthread_mutex_unlock(&engine->lock);
    if (stopping) {
        free(self);
    } else {
        tutti_coll_engine_push(engine, &self->item);
    }
}

/* ------------------------------ bytes that go with a tensor */

/* The memory of args.meta stays until the op is released, as all that the caller gives. */
void
tutti_coll_p2p_post_meta(tutti_coll_op *op, uint32_t rank)
{
    if (op->args.meta.size > 0) {
        tutti_coll_post_packet(op, TUTTI_PACKET_META, 0, rank, op->args.meta.data,
                               op->args.meta.size, op->id);
    }
}

static coll_unexpected *
find_meta(tutti_coll_group *group, uint32_t from, uint64_t send_id)
{
    tutti_list_node *link;

    for (link = group->metas.next; link != &group->metas; link = link->next) {
        coll_unexpected *stored = tutti_container_of(link, coll_unexpected, link);

        if (stored->packet.from == from && stored->packet.extra == send_id) {
            return stored;
        }
    }
    return NULL;
}

void
tutti_coll_p2p_drop_meta(tutti_coll_group *group, uint32_t from, uint64_t send_id)
{
    coll_unexpected *stored = find_meta(group, from, send_id);

    if (stored != NULL) {
        tutti_coll_unpark(group->engine, stored);
    }
}

/* The META may have come before its SEND. It is taken through tutti_coll_p2p_meta_arrive, which
 * finds the expectation that was just made. */
void
tutti_coll_p2p_expect_meta(tutti_coll_op *op, uint32_t from, uint64_t send_id)
{
    coll_unexpected *stored;

    tutti_coll_expect(op, STEP_ANNOUNCE, from, NULL, 0, true, NULL);
    stored = find_meta(op->group, from, send_id);
    if (stored != NULL) {
        tutti_transport_rndv *rndv = tutti_coll_take_parked(stored);

        tutti_coll_p2p_meta_arrive(op->group, &stored->packet, stored->data, stored->size, rndv);
        tutti_coll_unpark(op->group->engine, stored);
    }
}

/* The io of a Recv that waits for its META. */
static coll_io *
find_expected(tutti_coll_op *op)
{
    tutti_list_node *link;

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
                           size_t size, tutti_transport_rndv *rndv)
{
    tutti_coll_op *op = tutti_coll_p2p_taker(group, packet->from, packet->extra);
    coll_io *io = op == NULL ? NULL : find_expected(op);

    if (was_retracted(group, packet)) {
        drop_late(group->engine, rndv);
    } else if (io != NULL) {
        tutti_coll_io_take(io, packet, data, size, rndv);
    } else {
        tutti_coll_unexpected_add(group->engine, &group->metas, packet, NULL, data, size, rndv);
    }
}

tutti_code
tutti_coll_p2p_recv_meta(tutti_coll_op *op, const void *bytes, size_t size, tutti_error *err)
{
    TUTTI_TRY(tutti_coll_announced_new(op, size, err));

    memcpy(op->announced->bytes, bytes, size);
    op->meta = (tutti_bytes){op->announced->bytes, size};
    return TUTTI_OK;
}
