/*
 * How an op begins. On the poster's thread (any): the private fields are set, the op gets its
 * numbers and goes into the inbox. On the engine's thread: it enters the maps, and runs, or fails
 * because something has already ended it.
 *
 * Numbers and the place in the inbox are given under one lock, so ops reach the engine in the order
 * of their numbers: group->begun only grows, and a refusal or a renewal in the inbox has its exact
 * place among the ops.
 *
 * A post that fails has changed nothing, and the op's callbacks do not run. From a post that
 * succeeds on, the op belongs to the engine until on_released.
 */
#include "coll/engine/post.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "coll/agree/agree.h"
#include "coll/engine/abort.h"
#include "coll/engine/device_pending.h"
#include "coll/engine/engine.h"
#include "coll/engine/group.h"
#include "coll/engine/inquiry.h"
#include "coll/engine/op.h"
#include "coll/engine/p2p.h"
#include "coll/net/expose.h"
#include "coll/net/peer.h"
#include "coll/net/unexpected.h"
#include "coll/packet/packet.h"
#include "coll/state/events.h"
#include "coll/state/inbox.h"
#include "coll/state/lookup.h"

/*
 * The op may be over before it began: another rank refused it, or a member is gone. What all
 * members know already is not told (*ret_tell false); what this rank may be the first to find is.
 *
 * Sends and receives need one partner, not all members: they look only at the group itself.
 */
static bool
is_doomed(tutti_coll_op *op, tutti_error *ret_err, bool *ret_tell)
{
    tutti_coll_group *group = op->group;

    *ret_tell = false;
    if (group->closed) {
        (void)TUTTI_FAIL_FOR(ret_err, TUTTI_NOT_FOUND, "NO_GROUP", "group %s was deleted",
                             group->name);
        return true;
    }
    if (op->epoch != group->live_epoch) {
        (void)TUTTI_FAIL_FOR(ret_err, TUTTI_UNAVAILABLE, "EPOCH_CHANGED",
                             "group %s: a member has come back: call again", group->name);
        return true;
    }
    if (group->aborted != NULL) {
        *ret_err = *group->aborted;
        tutti_error_set_op(ret_err, group->name, op->sequence, ret_err->rank);
        return true;
    }
    if (!tutti_coll_op_is_p2p(op) && tutti_coll_take_pending_abort(group, op->sequence, ret_err)) {
        return true;
    }
    if (!tutti_coll_op_is_p2p(op) && tutti_coll_is_behind_leaver(op, ret_err)) {
        return true;
    }
    if (!tutti_coll_op_is_p2p(op) && tutti_coll_is_parted(op, ret_err)) {
        *ret_tell = true;
        return true;
    }
    if (!tutti_coll_op_is_p2p(op) && group->lost_rank != NO_RANK) {
        const coll_peer *peer = tutti_coll_peer_of(group->engine, group->lost_rank);

        tutti_coll_lost_words(op, group->lost_rank, peer == NULL ? "" : peer->reason, ret_err);
        *ret_tell = true;
        return true;
    }
    return false;
}

/* Packets that came for it before it was called. Their order is kept, though it does not matter:
 * they are found by step and sender. */
static void
collect_unexpected(tutti_coll_op *op)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &op->group->unexpected)
    {
        const tutti_packet *packet = &tutti_container_of(link, coll_unexpected, link)->packet;

        if (packet->sequence == op->sequence && packet->epoch == op->epoch) {
            tutti_list_remove(link);
            tutti_list_add(&op->stored, link);
        }
    }
}

/* Also for an op that is doomed: it has had its number. An op of an epoch that is over must not
 * raise `begun`, which counts in the live epoch. */
static void
enter_group(tutti_coll_op *op)
{
    tutti_coll_group *group = op->group;

    op->by_sequence.key = tutti_map_key_u64(op->sequence_key, op->sequence);
    (void)tutti_map_add(&group->ops, &op->by_sequence);
    if (op->epoch == group->live_epoch) {
        group->begun = op->sequence;
        group->begun_args = op->args;
    }
    collect_unexpected(op);
}

_Static_assert(TUTTI_COLL_PIGGYBACK_MAX == TUTTI_AGREE_PIGGYBACK_MAX &&
                   TUTTI_COLL_PIGGYBACK_RANKS_MAX == TUTTI_AGREE_RIDING_RANKS_MAX,
               "a backend boards what the agreement takes");

/* What is small enough travels with the signature. After own_word: the backend's vote comes before
 * its piggyback (backend.h). */
static void
attach_piggyback(tutti_coll_op *op)
{
    const tutti_coll_backend *backend = tutti_coll_backend_of(op);
    unsigned char bytes[TUTTI_COLL_PIGGYBACK_MAX];
    const size_t size = backend->piggyback != NULL ? backend->piggyback(op, bytes) : 0;

    if (size > 0) {
        tutti_agree_piggyback(op->agree, bytes, size);
    }
}

/*
 * A barrier waits behind earlier ops of its group on this rank before it says anything to others.
 * same_host_known begins with all bits set, since the first round ANDs it before anything is heard.
 */
static tutti_code
begin_collective(tutti_coll_op *op, tutti_error *err)
{
    const tutti_coll_group *group = op->group;

    op->phase = op->args.kind == TUTTI_COLL_BARRIER ? PHASE_BEHIND : PHASE_AGREE;
    if (group->size > 1) {
        op->same_host = tutti_coll_own_word(op);
        op->same_host_known = UINT64_MAX;
        op->agree = tutti_agree_new(group->size, group->rank, &op->args);
        if (op->agree == NULL) {
            return TUTTI_FAIL_MEMORY(err, "rank %" PRIu32 " has no memory for signatures",
                                     group->engine->rank);
        }
        attach_piggyback(op);
    }
    return TUTTI_OK;
}

/*
 * The timer starts before anything can wait. It runs for a doomed op, too: the failing op stops it.
 */
void
tutti_coll_op_begin(tutti_coll_engine *engine, tutti_coll_item *item)
{
    tutti_coll_op *op = tutti_container_of(item, tutti_coll_op, item);
    tutti_error err;
    bool tell = true;
    bool doomed;

    op->by_id.key = tutti_map_key_u64(op->id_key, op->id);
    (void)tutti_map_add(&engine->ops, &op->by_id);
    op->started_ns = engine->now_ns;
    op->timer.on_expiry = tutti_coll_on_deadline;
    tutti_timers_start(&engine->timers, &op->timer, op->deadline_ns);
    if (!tutti_coll_op_is_p2p(op)) {
        enter_group(op);
    }
    doomed = is_doomed(op, &err, &tell);
    if (!doomed && !tutti_coll_op_is_p2p(op)) {
        tell = true;
        doomed = begin_collective(op, &err) != TUTTI_OK;
    }
    if (doomed) {
        tutti_coll_op_fail(op, &err, tell);
    } else if (tutti_coll_op_is_p2p(op)) {
        tutti_coll_p2p_begin(op);
    } else {
        tutti_coll_op_run(op);
    }
}

/* ------------------------------------------------------------------------------ any thread */

/* The caller zeroes an op once, but may post the same struct again after on_released: every private
 * field that begin and release read is set here. */
static void
init_op(tutti_coll_group *group, tutti_coll_op *op)
{
    op->group = group;
    op->phase = PHASE_NEW;
    op->timer = (tutti_timer){0};
    op->agree = NULL;
    op->inquiry = NULL;
    op->counts = NULL;
    op->shapes = NULL;
    op->announced = NULL;
    op->announces = 0;
    op->part = 0;
    op->meta = op->args.meta;
    op->pending = 0;
    op->same_host = 0;
    op->backend_pin = NULL;
    op->lent = 0;
    op->returning = false;
    op->launched = false;
    op->device_stage = NULL;
    op->late = NULL;
    tutti_list_init(&op->views);
    tutti_list_init(&op->turn);
    op->round = 0;
    op->held = false;
    op->failed = false;
    op->ended = false;
    op->sequence = 0;
    tutti_list_init(&op->ios);
    tutti_list_init(&op->expected);
    tutti_list_init(&op->stored);
    tutti_list_init(&op->item.link);
    op->item.run = tutti_coll_op_begin;
}

/*
 * Under the lock: its numbers, or why it gets none. `stopping` is looked at here, so an op is
 * either in the inbox before the refusal that fails all, or gets STOPPING. Sends and receives have
 * no sequence: they are matched by tag, and two ranks need not make the same number of them.
 */
static tutti_code
number_op(tutti_coll_group *group, tutti_coll_op *op, uint64_t expect, tutti_error *err)
{
    tutti_coll_engine *engine = group->engine;

    if (engine->stopping) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "STOPPING", "rank %" PRIu32 " is stopping",
                              engine->rank);
    }
    if (engine->op_count >= TUTTI_COLL_OPS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "OP_LIMIT",
                              "%d ops are in flight, the limit", TUTTI_COLL_OPS_MAX);
    }
    if (!tutti_coll_op_is_p2p(op)) {
        if (expect != 0 && expect != group->sequence + 1) {
            return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "OUT_OF_SEQUENCE",
                                  "the call asks for op %" PRIu64
                                  " of group %s, but the next op is %" PRIu64,
                                  expect, group->name, group->sequence + 1);
        }
        op->sequence = ++group->sequence;
        group->last = op->args;
    }
    op->epoch = group->epoch;
    op->id = ++engine->next_id;
    engine->op_count++;
    atomic_fetch_add(&group->refs, 1);
    return TUTTI_OK;
}

/* Only the poster that finds the engine asleep acts: it runs the engine itself, or wakes it. The
 * lock is released before, since progress takes progress_lock first and then lock. */
tutti_code
tutti_coll_post(tutti_coll_group *group, tutti_coll_op *op, uint64_t expect, tutti_error *err)
{
    tutti_coll_engine *engine = group->engine;
    bool asleep = false;
    tutti_code code;

    init_op(group, op);
    (void)pthread_mutex_lock(&engine->lock);
    code = number_op(group, op, expect, err);
    if (code == TUTTI_OK) {
        asleep = tutti_coll_engine_put(engine, &op->item);
    }
    (void)pthread_mutex_unlock(&engine->lock);
    if (asleep && !tutti_coll_progress_inline(engine)) {
        tutti_coll_engine_wake(engine);
    }
    return code;
}

typedef struct cancellation {
    tutti_coll_item item;
    uint64_t id;
    tutti_error why;
} cancellation;

/* "group world op 3: the caller of rank 0 went away" */
static void
word_cancel(const tutti_coll_op *op, tutti_error *why)
{
    char number[32] = "";
    char words[TUTTI_ERROR_TEXT_MAX];

    if (op->sequence != 0) {
        (void)snprintf(number, sizeof(number), " op %" PRIu64, op->sequence);
    }
    (void)snprintf(words, sizeof(words), "group %s%s: %.800s", op->group->name, number, why->text);
    (void)snprintf(why->text, sizeof(why->text), "%s", words);
    tutti_error_set_op(why, op->group->name, op->sequence, why->rank);
}

/* By id, since the op may be released by now, and its memory be another op. */
static void
run_cancel(tutti_coll_engine *engine, tutti_coll_item *item)
{
    cancellation *self = tutti_container_of(item, cancellation, item);
    tutti_coll_op *op = tutti_coll_op_by_id(engine, self->id);

    if (op != NULL && !op->ended) {
        word_cancel(op, &self->why);
        tutti_coll_op_fail(op, &self->why, true);
    }
    free(self);
}

void
tutti_coll_cancel(tutti_coll_engine *engine, uint64_t id, const tutti_error *why)
{
    cancellation *self = malloc(sizeof(*self));

    if (self == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory to cancel an op: it ends by its deadline");
        return;
    }
    *self = (cancellation){.item.run = run_cancel, .id = id, .why = *why};
    tutti_coll_engine_push(engine, &self->item);
}
