/*
 * What an op does next, and how it ends. Engine's thread.
 *
 * posted -> [BEHIND] -> AGREE -> [ANNOUNCE] -> [CONFIRM] -> START -> DATA -> done -> released
 *                         |           |             |           |       |
 *                         +-----------+-------------+-----------+-------+-> failed -> released
 *
 * The phases are those of state/op.h; those in brackets are left out by ops that do not need them.
 * A coalesced op goes back from DATA to START for each of its tensors.
 *
 * Two counters decide what may happen. op->pending counts everything in flight: messages, exposed
 * regions, work of a device, a turn in engine->turns. The op goes on when nothing that it waits for
 * is pending, and is released when it has ended and pending is 0. op->held is set by a frame that
 * works on the op: functions that it calls may end messages or fail the op, but must neither run
 * nor release it; that frame does so when it returns.
 *
 * Failing: the first failure ends the op, tells the caller and (unless all ranks know) the other
 * members. Messages in flight still read and write the op's memory, so its release waits for their
 * tickets; if a peer does not let go within ZOMBIE_NS, the connection to it is torn down.
 */
#include "coll/engine/op.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/agree/agree.h"
#include "coll/engine/abort.h"
#include "coll/engine/announce.h"
#include "coll/engine/device_pending.h"
#include "coll/engine/engine.h"
#include "coll/engine/group.h"
#include "coll/engine/inquiry.h"
#include "coll/engine/p2p.h"
#include "coll/fault_inject/fault_inject.h"
#include "coll/infer/infer.h"
#include "coll/net/expose.h"
#include "coll/net/io.h"
#include "coll/net/peer.h"
#include "coll/net/unexpected.h"
#include "coll/packet/packet.h"
#include "coll/state/events.h"
#include "coll/state/lookup.h"

/* ------------------------------------------------------------------------------ the end */

/* An op of an aborted group has ended, and its caller has not heard of it yet. `held`: by whom. */
static void
report_late(tutti_coll_op *op, const coll_peer *holder)
{
    tutti_error *err = op->late;

    if (err == NULL) {
        return;
    }
    op->late = NULL;
    if (holder != NULL) {
        const tutti_error said = *err;

        (void)TUTTI_FAIL_FOR(err, said.code, said.reason,
                             "%.800s (rank %" PRIu32 " still holds memory of this op, which the "
                             "agent keeps)",
                             said.text, holder->rank);
        tutti_error_set_op(err, op->group->name, op->sequence, said.rank);
    }
    op->on_done(op, err);
    free(err);
}

/*
 * The callers of an aborted group use its memory again at once, and may have divided it themselves,
 * so locks of the agent do not protect them. Therefore such an op is reported when nothing reads or
 * writes its memory any more.
 */
static bool
is_reported_late(tutti_coll_op *op, const tutti_error *err)
{
    if (op->pending == 0 || strcmp(err->reason, TUTTI_COLL_ABORTED) != 0) {
        return false;
    }
    op->late = malloc(sizeof(*op->late));
    if (op->late != NULL) {
        *op->late = *err;
    }
    return op->late != NULL;
}

/*
 * Nothing of the transport or of ours points to it any more. After on_released the op is the
 * caller's again and may be freed, so nothing below it looks at the op. The group is kept by the
 * op's reference until the last line.
 */
void
coll_op_release(tutti_coll_op *op)
{
    tutti_coll_group *group = op->group;
    tutti_coll_engine *engine = group->engine;

    assert(op->pending == 0 && op->ended && tutti_list_empty(&op->ios));
    tutti_timers_stop(&engine->timers, &op->timer);
    tutti_map_remove(&engine->ops, &op->by_id);
    tutti_coll_unpark_all(engine, &op->stored); /* what a rank sent twice, or for nothing */
    report_late(op, NULL);
    if (op->phase == PHASE_DATA) {
        tutti_coll_backend_of(op)->finish(op);
    }
    if (op->device_stage != NULL) {
        tutti_coll_device_of(op)->unstage(op);
    }
    tutti_agree_free(op->agree);
    op->agree = NULL;
    tutti_coll_free_announced(op);
    /* Before on_released: its callback may post, and at the limit of ops needs this place. */
    (void)pthread_mutex_lock(&engine->lock);
    engine->op_count--;
    (void)pthread_mutex_unlock(&engine->lock);
    op->on_released(op);
    tutti_coll_group_next(group); /* after it: what ends later is heard of later */
    tutti_coll_group_end_if_closing(group);
    tutti_coll_group_unref(group);
}

/* Take it off the lists by which others find it: packets that still come for it find no op with its
 * number and are dropped; its number counts as begun. It stays in engine->ops until its release. */
static void
unlink_op(tutti_coll_op *op)
{
    tutti_coll_group *group = op->group;

    op->ended = true;
    tutti_timers_stop(&group->engine->timers, &op->timer);
    tutti_coll_inquiry_free(op);
    tutti_list_remove(&op->item.link);
    if (!tutti_coll_op_is_p2p(op)) {
        tutti_map_remove(&group->ops, &op->by_sequence);
    }
}

/* on_done may post the next op; that goes through the inbox, so nothing of it runs in here. If a
 * frame above holds the op, that frame releases it. */
void
coll_op_succeed(tutti_coll_op *op)
{
    tutti_coll_group *group = op->group;

    assert(op->pending == 0 && !op->ended);
    tutti_fault_at(TUTTI_FAULT_BEFORE_DONE);
    unlink_op(op);
    tutti_coll_settle(op);
    atomic_fetch_add(&group->engine->done, 1);
    TUTTI_LOG("coll", DEBUG, "group %s op %" PRIu64 " done", group->name, op->sequence);
    op->on_done(op, NULL);
    if (!op->held) {
        tutti_coll_op_release(op);
    }
}

/*
 * A failed op's memory is still in the hands of a transport that does not move: take it back by
 * tearing the connection down. Its sends and pulls come back as failed, inside drop_conn, and the
 * last one releases the op; so the op is looked for by its id again.
 *
 * An io without a connection is a region that the peer has mapped: no disconnect brings that back,
 * the process may write as long as it lives (docs/decisions/0012-shared-memory.md). Then this waits
 * on.
 */
static void
on_zombie(tutti_timer *timer)
{
    tutti_coll_op *op = tutti_container_of(timer, tutti_coll_op, timer);
    tutti_coll_engine *engine = op->group->engine;
    const uint64_t id = op->id;
    coll_peer *peer;

    while (op != NULL && !tutti_list_empty(&op->ios)) {
        peer = tutti_container_of(op->ios.next, coll_io, in_op)->peer;
        if (peer == NULL || peer->conn == NULL) {
            report_late(op, peer);
            tutti_timers_start(&engine->timers, &op->timer, engine->now_ns + ZOMBIE_NS);
            return;
        }
        TUTTI_LOG("coll", DEBUG, "rank %" PRIu32 " holds memory of a failed op: way torn down",
                  peer->rank);
        tutti_coll_peer_drop_conn(peer);
        op = tutti_coll_op_by_id(engine, id);
    }
    if (op != NULL) {
        report_late(op, NULL); /* a device works on it */
    }
}

/* End the receives for which nothing has come, give back what was borrowed, and drop what nobody
 * will receive. What the transport has (flying) must come back by itself. */
static void
abandon_op(tutti_coll_op *op)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    while ((link = tutti_list_pop(&op->expected)) != NULL) {
        tutti_coll_io_end(tutti_container_of(link, coll_io, queue));
    }
    tutti_coll_unmap_all(op, false);
    tutti_coll_unpark_all(op->group->engine, &op->stored);
    tutti_list_each(link, spare, &op->ios)
    {
        coll_io *io = tutti_container_of(link, coll_io, in_op);

        if (!io->flying && !tutti_list_empty(&io->queue)) { /* waits for an address */
            tutti_coll_io_end(io);
        }
    }
}

/*
 * The order: first mark it failed, so that nothing below posts more for it; then tell the others,
 * so that they hear of it before anything else that this rank does; then the caller; then the
 * backend, whose device may have work; then the messages. `held` is set meanwhile: each message
 * that ends here would else release the op under our hands.
 */
void
coll_op_fail(tutti_coll_op *op, const tutti_error *err, bool tell)
{
    tutti_coll_group *group = op->group;
    tutti_coll_engine *engine = group->engine;
    const bool held = op->held;

    if (op->ended) {
        return;
    }
    op->held = true;
    op->failed = true;
    unlink_op(op);
    atomic_fetch_add(&engine->failed, 1);
    TUTTI_LOG("coll", DEBUG, "group %s op %" PRIu64 " failed: %s", group->name, op->sequence,
              err->text);
    if (tutti_coll_op_is_p2p(op)) {
        tutti_coll_p2p_failed(op, err);
    } else if (tell) {
        tutti_coll_tell(group, op->epoch, op->sequence, err);
    }
    if (!is_reported_late(op, err)) {
        op->on_done(op, err);
    }
    if (op->phase == PHASE_DATA && tutti_coll_backend_of(op)->abandon != NULL) {
        tutti_coll_backend_of(op)->abandon(op);
    }
    abandon_op(op);
    op->held = held;
    if (op->pending == 0 && !held) {
        tutti_coll_op_release(op);
    } else {
        /* The timer was the deadline's; that is over. The barrier behind this op need not wait for
         * its memory. */
        op->timer.on_expiry = on_zombie;
        tutti_timers_start(&engine->timers, &op->timer, engine->now_ns + ZOMBIE_NS);
        tutti_coll_group_next(group);
    }
}

/* ------------------------------------------------------------------------------ the middle */

/* The outcome of one call of advance_op. */
typedef struct outcome {
    bool done;
    bool known; /* every member has found this failure by itself: it is not told */
} outcome;

/* A shape that comes from the root becomes memory here (on_spec). Coalesced ops do that for their
 * whole list, in announce.c. */
static tutti_code
learn_result(tutti_coll_op *op, tutti_error *err)
{
    tutti_spec spec;

    if (op->on_spec == NULL || op->args.coalesced || !tutti_coll_is_from_root(op->args.kind)) {
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti_coll_infer(&op->args, op->group->size, op->group->rank, &spec, err));
    return op->on_spec(op, &spec, err);
}

/* What this rank alone has found: all are told whose it is. */
static tutti_code
word_own(const tutti_coll_op *op, tutti_code code, tutti_error *err)
{
    tutti_error said;

    if (code != TUTTI_OK && err->group[0] == '\0') {
        said = *err;
        (void)TUTTI_FAIL_FOR(err, said.code, said.reason,
                             "group %s op %" PRIu64 ": rank %" PRIu32 ": %.800s", op->group->name,
                             op->sequence, op->group->engine->rank, said.text);
        tutti_error_set_op(err, op->group->name, op->sequence, (int32_t)op->group->engine->rank);
    }
    return code;
}

/*
 * All signatures are here. The calls fit, or every rank finds the same error. From now on args.spec
 * is the root's where the op is from a root.
 *
 * CONFIRM is needed if a rank learnt the shape only now (`open`): it may find no memory, and then
 * nobody must have begun to send. If all stated their destination, that cannot happen, and the
 * rounds are saved. Every rank computes `open` and `announces` from the same signatures, so all
 * take the same path.
 */
static tutti_code
finish_round(tutti_coll_op *op, outcome *ret, tutti_error *err)
{
    tutti_coll_group *group = op->group;
    tutti_coll_args reference = op->args;
    bool open = false;
    tutti_code code = TUTTI_OK;

    if (op->agree != NULL) {
        code = tutti_agree_verdict(op->agree, group->name, op->sequence, group->ranks, &reference,
                                   &open, err);
        ret->known = code != TUTTI_OK;
    }
    if (code != TUTTI_OK) {
        return code;
    }
    tutti_coll_tell_what(op, &reference);
    if (tutti_coll_is_from_root(op->args.kind)) {
        op->args.spec = reference.spec;
        op->args.has_spec = reference.has_spec;
        op->args.count_only = false;
    }
    op->round = 0;
    op->phase = op->announces != 0 ? PHASE_ANNOUNCE : open ? PHASE_CONFIRM : PHASE_START;
    return op->announces != 0 ? TUTTI_OK : word_own(op, learn_result(op, err), err);
}

/*
 * PHASE_ANNOUNCE: what signatures do not hold is told, and used; then all confirm that they could.
 * op->round is 0 before the messages are posted. Returns with the phase unchanged while messages
 * are on their way.
 */
static tutti_code
announce_failure(tutti_coll_op *op, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (op->round == 0) {
        op->round = 1;
        code = tutti_coll_announce(op, err);
        if (code != TUTTI_OK || op->pending > 0 || op->failed) {
            return code;
        }
    }
    code = tutti_coll_use_announced(op, err);
    if (code == TUTTI_OK) {
        code = learn_result(op, err);
    }
    op->phase = PHASE_CONFIRM;
    op->round = 0;
    return word_own(op, code, err);
}

/*
 * One round of the exchange of signatures. The AND of the yes-words travels in the packet's
 * `extra`: each round combines what was heard in the one before, so after the last round it covers
 * all ranks.
 *
 * The bytes of tutti_agree_write are borrowed from op->agree until the next write. They are not
 * written again before this round's send is over, since the op waits for it.
 */
static tutti_code
agree_round(tutti_coll_op *op, uint32_t step, tutti_error *err)
{
    const tutti_coll_group *group = op->group;
    const uint32_t round = op->round++;
    const uint32_t to = tutti_agree_to(group->size, group->rank, round);
    const uint32_t from = tutti_agree_from(group->size, group->rank, round);
    tutti_bytes known;

    TUTTI_TRY(tutti_agree_write(op->agree, &known, err));

    tutti_coll_set_same_host(op);
    tutti_coll_post_packet(op, TUTTI_PACKET_AGREE, step + round, group->ranks[to], known.data,
                           known.size, op->same_host);
    tutti_coll_expect(op, step + round, group->ranks[from], NULL, 0, true, &op->same_host_known);
    return TUTTI_OK;
}

/*
 * The rounds before any data moves; *ret_through if there are no more of them. Each call does one
 * step: it posts a round and returns, or falls through to the next phase. In a group of one there
 * are no rounds at all.
 */
static tutti_code
prepare_op(tutti_coll_op *op, outcome *ret, bool *ret_through, tutti_error *err)
{
    const uint32_t rounds = tutti_agree_rounds(op->group->size);
    tutti_code code = TUTTI_OK;

    *ret_through = false;
    if (op->phase == PHASE_AGREE) {
        if (op->round < rounds) {
            return agree_round(op, 0, err);
        }
        code = finish_round(op, ret, err);
    }
    if (code == TUTTI_OK && op->phase == PHASE_ANNOUNCE) {
        code = announce_failure(op, err);
        if (code != TUTTI_OK || op->phase == PHASE_ANNOUNCE) {
            return code;
        }
    }
    if (code == TUTTI_OK && op->phase == PHASE_CONFIRM) {
        if (op->round < rounds) {
            return agree_round(op, STEP_CONFIRM, err);
        }
        op->phase = PHASE_START;
    }
    *ret_through = code == TUTTI_OK;
    return code;
}

/* A coalesced op is one op of the backend for each of its tensors, one after the other; or all at
 * once, where the backend takes them itself. */
void
tutti_coll_take_part(tutti_coll_op *op, uint32_t k)
{
    const tutti_coll_tensor *part;

    op->part = k;
    if (!op->args.coalesced) {
        return;
    }
    part = &op->args.list[op->part];
    op->args.spec = part->spec;
    op->args.axis = part->axis;
    op->input = part->data;
    if (op->outputs != NULL && op->args.form != TUTTI_FORM_LIST) {
        op->output = op->outputs[op->part].data;
    }
}

/* From a start that succeeded on, finish is owed (PHASE_DATA). set_same_host takes in what the last
 * round of the agreement has brought. */
static tutti_code
start_part(tutti_coll_op *op, tutti_error *err)
{
    tutti_fault_at(TUTTI_FAULT_AFTER_AGREE);
    tutti_coll_take_part(op, op->part);
    tutti_coll_set_same_host(op);
    op->returning = false;
    TUTTI_TRY(tutti_coll_backend_of(op)->start(op, err));
    op->phase = PHASE_DATA;
    op->round = 0;
    return TUTTI_OK;
}

/* The next tensor of a coalesced op. A backend that took all of them in start has set op->part to
 * the last. */
static void
end_part(tutti_coll_op *op, bool *done)
{
    if (op->part + 1 < tutti_coll_parts(&op->args)) {
        tutti_coll_backend_of(op)->finish(op);
        op->part++;
        op->phase = PHASE_START;
        *done = false;
    }
}

/* Everything in flight is over: what next? A barrier goes on when it is the oldest op of its group
 * here: then all that this rank had posted before it has ended, on which callers rely. */
static tutti_code
advance_op(tutti_coll_op *op, outcome *ret, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    bool through = true;

    if (op->phase == PHASE_BEHIND) {
        if (tutti_map_first(&op->group->ops) != &op->by_sequence) {
            return TUTTI_OK;
        }
        op->phase = PHASE_AGREE;
    }
    if (op->phase < PHASE_DATA) {
        code = prepare_op(op, ret, &through, err);
        if (code == TUTTI_OK && through) {
            code = start_part(op, err);
        }
        if (code != TUTTI_OK || !through) {
            return code;
        }
    }
    tutti_fault_at(op->round == 0 ? TUTTI_FAULT_BEFORE_DATA : TUTTI_FAULT_MID_DATA);
    code = tutti_coll_backend_of(op)->advance(op, &ret->done, err);
    op->round++;
    if (code == TUTTI_OK && ret->done) {
        end_part(op, &ret->done);
    }
    return code;
}

/*
 * Go on until something is in flight, or the end. A loop, not a recursion: messages that are here
 * already end inside the call that posts them, and an op of many rounds would else grow the stack.
 * held is set for that: tutti_coll_lose_one then leaves it to the loop to go on.
 *
 * result.done with the op ended: it has failed in the last advance, and done means nothing.
 */
void
coll_op_run(tutti_coll_op *op)
{
    outcome result = {0};
    tutti_error err;

    assert(!op->held && !op->ended);
    op->held = true;
    while (!op->ended && !result.done && tutti_coll_waits_for(op) == 0) {
        if (op->phase == PHASE_P2P) {
            tutti_coll_p2p_step(op);
            break;
        }
        if (advance_op(op, &result, &err) != TUTTI_OK) {
            tutti_coll_op_fail(op, &err, !result.known);
        }
        if (op->phase == PHASE_BEHIND) {
            break;
        }
    }
    if (result.done && !op->ended && op->pending == 0) {
        tutti_coll_op_succeed(op);
    }
    op->held = false;
    if (op->ended && op->pending == 0) {
        tutti_coll_op_release(op);
    }
}
