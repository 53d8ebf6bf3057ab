/*
 * The life of a group here: opened, renewed for a new epoch, closed; what happens to its ops when a
 * member is lost.
 *
 * The public functions run on the control loop of the agent (any thread may call them); each pushes
 * an item, and the run_ functions below are the engine's thread. What both sides use (sequence,
 * epoch, last) is under engine->lock; refs is atomic. Ordering by the inbox: an op that was posted
 * before a renewal or a close begins before it.
 *
 * Two epochs: group->epoch is the one in which posters number ops, live_epoch the one that the
 * engine has reached. Between tutti_coll_group_renew and run_renew they differ, and ops of the old
 * epoch that are still in the inbox fail with EPOCH_CHANGED when they begin.
 */
#include "coll/engine/group.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "coll/engine/abort.h"
#include "coll/engine/device_pending.h"
#include "coll/engine/engine.h"
#include "coll/engine/op.h"
#include "coll/engine/p2p.h"
#include "coll/net/peer.h"
#include "coll/net/unexpected.h"
#include "coll/state/events.h"
#include "coll/state/inbox.h"
#include "coll/state/lookup.h"

/* The default order (seq_cst) of the decrement makes all that other threads did with the group
 * before visible to the thread that frees it. */
void
tutti_coll_group_unref(tutti_coll_group *group)
{
    if (atomic_fetch_sub(&group->refs, 1) > 1) {
        return;
    }
    free(group->aborted);
    free(group->orphaned);
    free(group->backend_note);
    free(group->ranks);
    free(group);
}

/* An op that has not failed yet; NULL if there is none. It goes through all ops of the engine,
 * since sends and receives are in no map of the group. */
static tutti_coll_op *
find_running(tutti_coll_group *group)
{
    tutti_map_node *node;

    for (node = tutti_map_first(&group->engine->ops); node != NULL; node = tutti_map_next(node)) {
        tutti_coll_op *op = tutti_container_of(node, tutti_coll_op, by_id);

        if (op->group == group && !op->ended) {
            return op;
        }
    }
    return NULL;
}

/* One at a time, from the start: behind a failing op a barrier may go on and end, too, so a walk
 * over the map would lose its place. */
void
tutti_coll_group_fail_all(tutti_coll_group *group, const tutti_error *err, bool tell)
{
    tutti_coll_op *op;

    while ((op = find_running(group)) != NULL) {
        tutti_error mine = *err;

        tutti_error_set_op(&mine, group->name, op->sequence, err->rank);
        tutti_coll_op_fail(op, &mine, tell);
    }
}

/* A barrier that waits behind earlier ops goes on if it is the oldest now. A held one is being
 * worked on by a frame above, which looks for itself. */
void
tutti_coll_group_next(tutti_coll_group *group)
{
    tutti_map_node *node = tutti_map_first(&group->ops);
    tutti_coll_op *op;

    if (node == NULL) {
        return;
    }
    op = tutti_container_of(node, tutti_coll_op, by_sequence);
    if (op->phase == PHASE_BEHIND && !op->held && !op->ended) {
        tutti_coll_op_run(op);
    }
}

static coll_peer *
lost_member(const tutti_coll_group *group, uint32_t rank)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&group->engine->peers, tutti_map_key_u64(key, rank));
    coll_peer *peer = node == NULL ? NULL : tutti_container_of(node, coll_peer, node);

    return peer != NULL && peer->lost ? peer : NULL;
}

/*
 * LOSS_GRACE_NS after the last loss the ops that still run fail: they may have needed nothing more of
 * the lost rank, or its last messages may have been in the network. If the rank had left politely,
 * the ops up to its last one go on: it has done its part of them before it ended. Sends and
 * receives fail with each lost member, collectives with the one that is named.
 */
static void
on_loss_expiry(tutti_timer *timer)
{
    tutti_coll_group *group = tutti_container_of(timer, tutti_coll_group, loss_timer);
    const uint64_t safe = group->leaver == group->lost_rank ? group->last_op : 0;
    const coll_peer *named = lost_member(group, group->lost_rank);
    unsigned char key[8];
    coll_peer *peer;
    tutti_map_node *node;
    tutti_error err;
    uint32_t i;

    for (i = 0; i < group->size && named != NULL; i++) {
        peer = lost_member(group, group->ranks[i]);
        if (peer != NULL) {
            tutti_coll_peer_give_up(peer);
        }
    }
    while (named != NULL &&
           (node = tutti_map_from(&group->ops, tutti_map_key_u64(key, safe + 1))) != NULL) {
        tutti_coll_op *op = tutti_container_of(node, tutti_coll_op, by_sequence);

        tutti_coll_lost_words(op, named->rank, named->reason, &err);
        tutti_coll_op_fail(op, &err, true);
    }
}

/* Called for each change of a member. One lost rank is enough to name; the first in the group's
 * order, so most ranks name the same. One that has left politely only if no other is lost: it has done its part of ops
 * that another one may have left undone. */
void
coll_group_look(tutti_coll_group *group)
{
    uint32_t i;

    group->lost_rank = NO_RANK;
    for (i = 0;
         i < group->size && (group->lost_rank == NO_RANK || group->lost_rank == group->leaver);
         i++) {
        if (lost_member(group, group->ranks[i]) != NULL) {
            group->lost_rank = group->ranks[i];
        }
    }
    tutti_timers_start(&group->engine->timers, &group->loss_timer,
                       group->lost_rank == NO_RANK ? TUTTI_TIMERS_NEVER
                                                   : group->engine->now_ns + LOSS_GRACE_NS);
}

/* ------------------------------------------------------------------------------ opening */

static void on_close_expiry(tutti_timer *timer);

/* Packets of other members may have come before this rank heard of the group. Those are moved to a
 * list of their own first: routing may park some of them again, in the group. */
static void
run_open(tutti_coll_engine *engine, tutti_coll_item *item)
{
    tutti_coll_group *group = tutti_container_of(item, tutti_coll_group, open_item);
    tutti_list_node *link;
    tutti_list_node *spare;
    tutti_list_node mine;

    (void)tutti_map_add(&engine->groups, &group->node);
    tutti_coll_group_look(group);
    tutti_list_init(&mine);
    tutti_list_each(link, spare, &engine->unexpected)
    {
        if (tutti_container_of(link, coll_unexpected, link)->packet.group == group->id) {
            tutti_list_remove(link);
            tutti_list_add(&mine, link);
        }
    }
    tutti_coll_replay(engine, &mine);
    tutti_coll_count_pending_aborts(group);
}

static tutti_coll_group *
new_group(tutti_coll_engine *engine, const uint32_t *ranks, uint32_t count)
{
    tutti_coll_group *group = calloc(1, sizeof(*group));

    if (group == NULL) {
        return NULL;
    }
    group->ranks = malloc(count * sizeof(*ranks));
    if (group->ranks == NULL) {
        free(group);
        return NULL;
    }
    memcpy(group->ranks, ranks, count * sizeof(*ranks));
    group->engine = engine;
    group->size = count;
    group->lost_rank = NO_RANK;
    group->leaver = NO_RANK;
    atomic_init(&group->refs, 1);
    atomic_init(&group->has_ends, true);
    group->loss_timer.on_expiry = on_loss_expiry;
    group->close_timer.on_expiry = on_close_expiry;
    tutti_map_init(&group->ops);
    tutti_map_init(&group->pending_aborts);
    tutti_list_init(&group->unexpected);
    tutti_list_init(&group->sends);
    tutti_list_init(&group->metas);
    tutti_list_init(&group->receives);
    tutti_list_init(&group->silent);
    return group;
}

/* An epoch above 1 means that a member has returned: ranks may have counted ops differently, so the
 * group begins with a resync (abort.c). refs begins at 1: that of engine->groups. */
tutti_code
tutti_coll_group_open(tutti_coll_engine *engine, uint64_t id, const char *name, uint64_t epoch,
                      const uint32_t *ranks, uint32_t count, tutti_coll_group **ret_group,
                      tutti_error *err)
{
    tutti_coll_group *self = new_group(engine, ranks, count);

    assert(engine->rank != NO_RANK);
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a group of %" PRIu32, count);
    }
    self->rank = tutti_coll_group_rank_of(self, engine->rank);
    if (self->rank == NO_RANK) {
        free(self->ranks);
        free(self);
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP",
                              "rank %" PRIu32 " is not in group %s", engine->rank, name);
    }
    self->id = id;
    self->epoch = epoch;
    self->live_epoch = epoch;
    self->needs_resync = epoch > 1;
    (void)snprintf(self->name, sizeof(self->name), "%s", name);
    self->node.key = tutti_map_key_u64(self->key, id);
    self->open_item.run = run_open;
    tutti_coll_engine_push(engine, &self->open_item);
    *ret_group = self;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ meeting */

typedef struct meeting {
    tutti_coll_item item;
    tutti_coll_group *group;
} meeting;

static void
run_meet(tutti_coll_engine *engine, tutti_coll_item *item)
{
    meeting *self = tutti_container_of(item, meeting, item);
    tutti_coll_group *group = self->group;
    uint32_t i;

    for (i = 0; i < group->size && !group->closed; i++) {
        coll_peer *peer = i == group->rank ? NULL : tutti_coll_peer_of(engine, group->ranks[i]);

        if (peer != NULL && peer->address == NULL && !peer->lost) {
            tutti_coll_peer_ask(peer);
        }
    }
    tutti_coll_group_unref(group);
    free(self);
}

/* The caller holds the group open, so the reference need not be taken under the lock. */
void
tutti_coll_group_meet(tutti_coll_group *group)
{
    meeting *self = calloc(1, sizeof(*self));

    if (self != NULL) {
        *self = (meeting){.item.run = run_meet, .group = group};
        atomic_fetch_add(&group->refs, 1);
        tutti_coll_engine_push(group->engine, &self->item);
    }
}

/* ------------------------------------------------------------------------------ renewing, closing
 */

typedef struct renewal {
    tutti_coll_item item;
    tutti_coll_group *group;
    uint64_t epoch;
} renewal;

/*
 * A member came back. All members get the same news from the coordinator, so the failures are not
 * told. The order: first the ops fail, with the old epoch's state; then the state of the epoch is
 * cleared; then packets of the new epoch that were early go their way. `leaver` ends with the
 * epoch: a member that still leaves says so again.
 */
static void
run_renew(tutti_coll_engine *engine, tutti_coll_item *item)
{
    renewal *self = tutti_container_of(item, renewal, item);
    tutti_coll_group *group = self->group;
    tutti_list_node mine;
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "EPOCH_CHANGED",
                         "group %s: a member has come back (epoch %" PRIu64 "): call again",
                         group->name, self->epoch);
    tutti_coll_group_fail_all(group, &err, false);
    tutti_coll_forget_group(group);
    group->live_epoch = self->epoch;
    group->needs_resync = true;
    group->resynced_by = 0;
    group->parted = 0;
    group->begun = 0;
    group->leaver = NO_RANK;
    tutti_coll_free_pending_aborts(group);
    tutti_coll_unpark_all(engine, &group->sends);
    tutti_coll_unpark_all(engine, &group->metas);
    free(group->retracted);
    group->retracted = NULL;
    free(group->aborted);
    group->aborted = NULL;
    tutti_list_init(&mine);
    tutti_list_splice(&mine, &group->unexpected);
    tutti_coll_replay(engine, &mine);
    tutti_coll_group_unref(group);
    free(self);
}

/* The posters' number and epoch change here at once, under the lock; the engine follows when it
 * comes to the item. An epoch that is not newer changes nothing: news may come twice. */
void
tutti_coll_group_renew(tutti_coll_group *group, uint64_t epoch)
{
    tutti_coll_engine *engine = group->engine;
    renewal *self = malloc(sizeof(*self));
    bool asleep = false;

    if (self == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory to renew group %s: it stays at its epoch", group->name);
        return;
    }
    *self = (renewal){.item.run = run_renew, .group = group, .epoch = epoch};
    (void)pthread_mutex_lock(&engine->lock);
    if (epoch > group->epoch) {
        group->epoch = epoch;
        group->sequence = 0;
        atomic_fetch_add(&group->refs, 1);
        asleep = tutti_coll_engine_put(engine, &self->item);
        self = NULL;
    }
    (void)pthread_mutex_unlock(&engine->lock);
    if (asleep) {
        tutti_coll_engine_wake(engine);
    }
    free(self);
}

typedef struct abortion {
    tutti_coll_item item;
    tutti_coll_group *group;
    uint64_t epoch;
    bool tell;
    tutti_error *why;
} abortion;

/* What other ranks have sent for it in this epoch is dropped: nobody will ask for it. The first abort counts, so
 * all ops of the epoch end in the same words. */
static void
run_abort(tutti_coll_engine *engine, tutti_coll_item *item)
{
    abortion *self = tutti_container_of(item, abortion, item);
    tutti_coll_group *group = self->group;

    if (!group->closed && self->epoch == group->live_epoch && group->aborted == NULL) {
        group->aborted = self->why;
        self->why = NULL;
        tutti_coll_group_fail_all(group, group->aborted, self->tell);
        tutti_coll_free_pending_aborts(group);
        tutti_coll_unpark_until(engine, &group->unexpected, self->epoch, UINT64_MAX);
        tutti_coll_unpark_all(engine, &group->sends);
        tutti_coll_unpark_all(engine, &group->metas);
    }
    tutti_coll_group_unref(group);
    free(self->why);
    free(self);
}

/* `stopping` is looked at under the lock, as in tutti_coll_group_resync. */
void
tutti_coll_group_abort(tutti_coll_group *group, const tutti_error *why, bool tell)
{
    tutti_coll_engine *engine = group->engine;
    abortion *self = malloc(sizeof(*self));
    tutti_error *copy = malloc(sizeof(*copy));
    bool stopping;

    if (self == NULL || copy == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory to abort group %s: its ops go on", group->name);
        free(self);
        free(copy);
        return;
    }
    *copy = *why;
    (void)pthread_mutex_lock(&engine->lock);
    stopping = engine->stopping;
    if (!stopping) {
        atomic_fetch_add(&group->refs, 1);
        *self = (abortion){.item.run = run_abort,
                           .group = group,
                           .epoch = group->epoch,
                           .tell = tell,
                           .why = copy};
    }
    (void)pthread_mutex_unlock(&engine->lock);
    if (stopping) {
        free(copy);
        free(self);
    } else {
        tutti_coll_engine_push(engine, &self->item);
    }
}

bool
tutti_coll_group_is_gone(const tutti_coll_engine *engine, uint64_t id)
{
    uint64_t i;

    for (i = 0; i < engine->gone_count && i < GONE_MAX; i++) {
        if (engine->gone[i].group == id && engine->gone[i].job_id == engine->job_id) {
            return true;
        }
    }
    return false;
}

static void
note_gone(tutti_coll_engine *engine, uint64_t id)
{
    if (!tutti_coll_group_is_gone(engine, id)) {
        engine->gone[engine->gone_count++ % GONE_MAX] =
            (struct coll_gone){.job_id = engine->job_id, .group = id};
    }
    (void)tutti_coll_unpark_group(engine, id, NULL);
}

/*
 * group->closed stays readable: items of the group in the inbox, and ops not released yet, hold
 * references and look at it.
 *
 * What is parked goes at once, and not with the last reference: an op that is not released yet may
 * wait for memory that is parked at another rank, whose op waits for what is parked here.
 */
void
tutti_coll_group_drop(tutti_coll_group *group)
{
    tutti_coll_engine *engine = group->engine;

    tutti_coll_forget_group(group);
    tutti_coll_group_adopt(group);
    group->closed = true;
    tutti_coll_free_pending_aborts(group);
    tutti_coll_unpark_all(engine, &group->unexpected);
    tutti_coll_unpark_all(engine, &group->sends);
    tutti_coll_unpark_all(engine, &group->metas);
    free(group->retracted);
    group->retracted = NULL;
    tutti_coll_p2p_forget_silent(group, NO_RANK);
    note_gone(engine, group->id);
    tutti_timers_stop(&engine->timers, &group->loss_timer);
    tutti_timers_stop(&engine->timers, &group->close_timer);
    tutti_map_remove(&engine->groups, &group->node);
    tutti_coll_group_unref(group);
}

/* Does it need a rank that may never call it any more? Ops that are past the agreement do not: all
 * ranks have called them. */
static bool
waits_for_a_caller(const tutti_coll_op *op)
{
    if (op->phase == PHASE_P2P) {
        /* A receive that nothing has come for; a send whose bytes are out, and not taken. */
        return op->args.kind == TUTTI_COLL_SEND ? op->pending <= 1
                                                : !tutti_list_empty(&op->item.link);
    }
    return op->phase == PHASE_NEW || op->phase == PHASE_AGREE;
}

/*
 * The news of the deletion has reached every rank by now, so what not all have called will not be
 * called any more. Ops that move data end by themselves, or at their deadline; this looks again
 * after each CLOSE_GRACE_NS.
 *
 * The own reference keeps the group while ops that are released inside may drop the last of theirs.
 */
static void
on_close_expiry(tutti_timer *timer)
{
    tutti_coll_group *group = tutti_container_of(timer, tutti_coll_group, close_timer);
    tutti_coll_engine *engine = group->engine;
    unsigned char key[8];
    uint64_t id = 0;
    tutti_map_node *node;
    tutti_error err;

    atomic_fetch_add(&group->refs, 1);
    while ((node = tutti_map_from(&engine->ops, tutti_map_key_u64(key, id))) != NULL) {
        tutti_coll_op *op = tutti_container_of(node, tutti_coll_op, by_id);

        id = op->id + 1; /* others may end with it */
        if (op->group == group && !op->ended && waits_for_a_caller(op)) {
            (void)TUTTI_FAIL_FOR(&err, TUTTI_NOT_FOUND, "NO_GROUP",
                                 "group %s was deleted before every rank had called this op",
                                 group->name);
            tutti_error_set_op(&err, group->name, op->sequence, err.rank);
            tutti_coll_op_fail(op, &err, false);
        }
    }
    if (find_running(group) == NULL) {
        tutti_coll_group_drop(group);
    } else {
        tutti_timers_start(&engine->timers, &group->close_timer, engine->now_ns + CLOSE_GRACE_NS);
    }
    tutti_coll_group_unref(group);
}

/* By the timer: the caller ends ops of the group and goes on with it afterwards. */
void
tutti_coll_group_end_if_closing(tutti_coll_group *group)
{
    if (group->closing && !group->closed && find_running(group) == NULL) {
        tutti_timers_start(&group->engine->timers, &group->close_timer, group->engine->now_ns);
    }
}

static void
run_close(tutti_coll_engine *engine, tutti_coll_item *item)
{
    tutti_coll_group *group = tutti_container_of(item, tutti_coll_group, close_item);

    if (group->closed) {
        return;
    }
    if (find_running(group) == NULL) {
        tutti_coll_group_drop(group); /* at once: the next epoch of the world may open behind it */
        return;
    }
    group->closing = true;
    tutti_timers_start(&engine->timers, &group->close_timer, engine->now_ns + CLOSE_GRACE_NS);
}

void
tutti_coll_group_close(tutti_coll_group *group)
{
    group->close_item.run = run_close;
    tutti_coll_engine_push(group->engine, &group->close_item);
}

typedef struct farewell {
    tutti_coll_item item;
    uint64_t id;
} farewell;

static void
run_gone(tutti_coll_engine *engine, tutti_coll_item *item)
{
    farewell *self = tutti_container_of(item, farewell, item);

    if (tutti_coll_group_by_id(engine, self->id) == NULL) { /* else its close does it */
        note_gone(engine, self->id);
    }
    free(self);
}

void
tutti_coll_group_gone(tutti_coll_engine *engine, uint64_t id)
{
    farewell *self = malloc(sizeof(*self));
    bool stopping;

    if (self == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory to note that a group is over");
        return;
    }
    *self = (farewell){.item.run = run_gone, .id = id};
    (void)pthread_mutex_lock(&engine->lock);
    stopping = engine->stopping;
    (void)pthread_mutex_unlock(&engine->lock);
    if (stopping) {
        free(self);
    } else {
        tutti_coll_engine_push(engine, &self->item);
    }
}

/* ------------------------------------------------------------------------------ asking */

uint32_t
tutti_coll_group_size(const tutti_coll_group *group)
{
    return group->size;
}

uint32_t
tutti_coll_group_rank(const tutti_coll_group *group)
{
    return group->rank;
}

const uint32_t *
tutti_coll_group_ranks(const tutti_coll_group *group)
{
    return group->ranks;
}

const char *
tutti_coll_group_name(const tutti_coll_group *group)
{
    return group->name;
}

uint64_t
tutti_coll_group_id(const tutti_coll_group *group)
{
    return group->id;
}

/* Only the kind and plain members of `last` are described: pointers in it belong to an op that may
 * be over. Described outside of the lock, which posters wait for. */
uint64_t
tutti_coll_group_last(tutti_coll_group *group, char *ret_text, size_t size)
{
    tutti_text text = tutti_text_in(ret_text, size);
    tutti_coll_args last;
    uint64_t sequence;

    (void)pthread_mutex_lock(&group->engine->lock);
    sequence = group->sequence;
    last = group->last;
    (void)pthread_mutex_unlock(&group->engine->lock);
    if (last.kind != 0) {
        tutti_coll_describe(&last, &text);
    } else if (sequence != 0) {
        tutti_text_add(&text, "a call that was refused");
    }
    return sequence;
}
