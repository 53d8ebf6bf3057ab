/*
 * How an op ends on all ranks: aborts that we send and get, refusals of our own calls, the resync
 * of ranks that count ops differently, and a member that leaves.
 *
 * The public functions (refuse, resync, leave) run on any thread: they take a number or an epoch
 * under engine->lock, take a reference to the group, and push an item. Everything else is the
 * engine's thread. An item compares its epoch with group->live_epoch: a renewal that was pushed
 * before it makes it void, and all ranks have begun to count from 1 again.
 *
 * All messages here are notes without an answer. If one is lost (no memory, no way to the member),
 * that member's op ends by its deadline, so nothing here can hang.
 */
#include "coll/engine/abort.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/engine/engine.h"
#include "coll/engine/group.h"
#include "coll/net/io.h"
#include "coll/net/unexpected.h"
#include "coll/packet/packet.h"
#include "coll/state/events.h"
#include "coll/state/inbox.h"
#include "coll/state/lookup.h"

/* How an op that we have not called yet will end: owned by group->pending_aborts, until the op is
 * called, its number is skipped, or the epoch ends. */
typedef struct pending {
    tutti_map_node node;
    unsigned char key[8];
    uint32_t from;
    uint64_t came_ns;
    uint64_t over_ns; /* when we heard that the caller over there has gone; 0 = we have not */
    tutti_error err;
} pending;

/* A note about op `sequence` to all other members. `err`: NULL = none goes with it. */
static void
tell_members(tutti_coll_group *group, tutti_packet_kind kind, uint64_t epoch, uint64_t sequence,
             const tutti_error *err)
{
    tutti_coll_engine *engine = group->engine;
    unsigned char bytes[TUTTI_PACKET_ERROR_BYTES];
    const size_t size = err == NULL ? 0 : tutti_packet_write_error(err, bytes);
    const tutti_packet packet = {.kind = kind,
                                 .from = engine->rank,
                                 .job_id = engine->job_id,
                                 .incarnation = engine->incarnation,
                                 .group = group->id,
                                 .epoch = epoch,
                                 .sequence = sequence};
    uint32_t i;

    for (i = 0; i < group->size; i++) {
        if (i != group->rank) {
            tutti_coll_note(engine, group->ranks[i], &packet, bytes, size);
        }
    }
}

/* Send the end of an op to all other members. */
void
tutti_coll_tell(tutti_coll_group *group, uint64_t epoch, uint64_t sequence, const tutti_error *err)
{
    tell_members(group, TUTTI_PACKET_ABORT, epoch, sequence, err);
}

void
tutti_coll_count_pending_aborts(tutti_coll_group *group)
{
    atomic_store_explicit(&group->has_ends, group->pending_aborts.count > 0, memory_order_relaxed);
}

static void
remove_pending_abort(tutti_coll_group *group, pending *one)
{
    tutti_map_remove(&group->pending_aborts, &one->node);
    free(one);
    tutti_coll_count_pending_aborts(group);
}

/* Bounded: a member that aborts numbers without end must not fill our memory. An abort that is
 * dropped here costs the op's deadline, no more. */
static void
add_pending_abort(tutti_coll_group *group, const tutti_packet *packet, const tutti_error *err)
{
    pending *one =
        group->pending_aborts.count < PENDING_ABORTS_MAX ? calloc(1, sizeof(*one)) : NULL;

    if (one == NULL) {
        TUTTI_LOG_OFTEN("coll", ERROR,
                        "group %s: no room to note that op %" PRIu64 " has failed: %s", group->name,
                        packet->sequence, err->text);
        return;
    }
    one->err = *err;
    one->from = packet->from;
    one->came_ns = packet->came_ns;
    one->node.key = tutti_map_key_u64(one->key, packet->sequence);
    if (tutti_map_add(&group->pending_aborts, &one->node) != NULL) {
        free(one); /* the first word counts */
    }
    tutti_coll_count_pending_aborts(group);
}

/*
 * May ranks have made different numbers of calls when an op ended with this error? Only these two
 * come from outside of the op, from one rank's clock or caller; all other failures are found by, or
 * told to, ranks that have made the same calls.
 */
static bool
may_part(const tutti_error *err)
{
    return err->code == TUTTI_DEADLINE_EXCEEDED || strcmp(err->reason, "CALLER_GONE") == 0;
}

/*
 * Ranks may count a group's ops differently in two cases. After a restarted rank has returned, the
 * others learn of the new epoch at different moments: one rank may count a call as the first of the
 * new epoch that another rank made, and lost, in the old one. And in a chain of ops (a Backward)
 * one rank may have begun one op more than a rank whose time was over.
 *
 * So the group needs a resync until one of its ops has succeeded. During it, when an op times out,
 * a rank that has not called that op skips its number: its next call gets the number behind it.
 * Then all ranks count alike again. (docs/decisions/0014-survival.md)
 *
 * group->epoch is what posters count in, live_epoch what the engine has reached. If they differ, a
 * renewal is on its way in the inbox and has already set the posters' number to 0, so it must not
 * be raised. The number is only raised if no poster has taken it: else that op is in the inbox, and
 * it needs the pending abort.
 */
static bool
skip_number(tutti_coll_group *group, uint64_t sequence)
{
    tutti_coll_engine *engine = group->engine;
    bool skipped = false;

    (void)pthread_mutex_lock(&engine->lock);
    if (group->epoch == group->live_epoch && group->sequence < sequence) {
        group->sequence = sequence;
        skipped = true;
    }
    (void)pthread_mutex_unlock(&engine->lock);
    if (skipped) {
        group->begun = sequence;
        tutti_coll_unpark_until(engine, &group->unexpected, group->live_epoch, sequence);
        group->begun_args = (tutti_coll_args){0};
    }
    return skipped;
}

/* The next number alone: an op before this one may still run on other ranks, and wait for our call. */
static bool
skip_op(tutti_coll_group *group, uint64_t sequence, const tutti_error *err)
{
    return group->needs_resync && may_part(err) && sequence == group->begun + 1 &&
           skip_number(group, sequence);
}

/* ------------------------------------------------------------------------------ resync */

typedef struct resync {
    tutti_coll_item item;
    tutti_coll_group *group;
    uint64_t epoch;
} resync;

/* Aborts that came before the resync was asked for were kept for calls that now take later numbers.
 * They are skipped from begun + 1 on, as long as they follow each other without a gap. */
static void
skip_pending_aborts(tutti_coll_group *group)
{
    tutti_map_node *node;
    unsigned char key[8];

    while ((node = tutti_map_find(&group->pending_aborts,
                                  tutti_map_key_u64(key, group->begun + 1))) != NULL) {
        pending *one = tutti_container_of(node, pending, node);

        if (!skip_op(group, group->begun + 1, &one->err)) {
            return;
        }
        remove_pending_abort(group, one);
    }
}

/* resynced_by is remembered because another rank may still abort that very op: then it was no proof
 * that ranks count alike, and the resync begins again (tutti_coll_recv_abort). */
void
tutti_coll_settle(const tutti_coll_op *op)
{
    if (op->group->needs_resync && !tutti_coll_op_is_p2p(op)) {
        op->group->needs_resync = false;
        op->group->resynced_by = op->sequence;
    }
}

static void
begin_resync(tutti_coll_group *group)
{
    group->needs_resync = true;
    group->resynced_by = 0;
    skip_pending_aborts(group);
}

/*
 * `parted` is the op that succeeded here and failed elsewhere. Only the op right behind it can
 * follow from it. The rank that failed will not call it, so without this it would wait for its
 * deadline.
 */
bool
tutti_coll_is_parted(const tutti_coll_op *op, tutti_error *ret_err)
{
    const tutti_coll_group *group = op->group;

    if (!op->follows || group->parted == 0 || op->sequence != group->parted + 1) {
        return false;
    }
    *ret_err = group->parted_err;
    tutti_error_set_op(ret_err, group->name, op->sequence, ret_err->rank);
    return true;
}

/* An op has succeeded here by what another rank had given before the op failed there. The op that
 * follows from it may run by now, or be called later; so the news is kept in the group as well. */
static void
part_group(tutti_coll_group *group, uint64_t sequence, const tutti_error *err)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&group->ops, tutti_map_key_u64(key, sequence + 1));
    tutti_coll_op *next =
        node == NULL ? NULL : tutti_container_of(node, tutti_coll_op, by_sequence);
    tutti_error mine;

    group->parted = sequence;
    group->parted_err = *err;
    if (next != NULL && tutti_coll_is_parted(next, &mine)) {
        tutti_coll_op_fail(next, &mine, true);
    }
}

/* Another member says that an op is over. It is told to no one: the sender has told all members. */
void
tutti_coll_recv_abort(tutti_coll_group *group, const tutti_packet *packet, const tutti_error *err)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&group->ops, tutti_map_key_u64(key, packet->sequence));
    tutti_error mine = *err;

    tutti_error_set_op(&mine, group->name, packet->sequence, err->rank);
    if (node != NULL) {
        tutti_coll_op_fail(tutti_container_of(node, tutti_coll_op, by_sequence), &mine, false);
    } else if (skip_op(group, packet->sequence, err)) {
        skip_pending_aborts(group);
    } else if (packet->sequence > group->begun) {
        add_pending_abort(group, packet, &mine);
        tutti_coll_refuse_awaited(group);
    } else if (packet->sequence <= group->begun && may_part(err)) {
        part_group(group, packet->sequence, &mine);
        if (packet->sequence == group->resynced_by) {
            /* It may have met another call of that rank's than the one meant for it. */
            begin_resync(group);
        }
    }
}

static void
run_resync(tutti_coll_engine *engine, tutti_coll_item *item)
{
    resync *self = tutti_container_of(item, resync, item);
    tutti_coll_group *group = self->group;

    (void)engine;
    if (!group->closed && self->epoch == group->live_epoch) {
        begin_resync(group);
    }
    tutti_coll_group_unref(group);
    free(self);
}

/* `stopping` is looked at under the lock: after it the engine's thread may have ended, and an item
 * would stay in the inbox with its reference. */
void
tutti_coll_group_resync(tutti_coll_group *group)
{
    tutti_coll_engine *engine = group->engine;
    resync *self = calloc(1, sizeof(*self));
    bool stopping;

    if (self == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory to let group %s count its ops from 1 again",
                  group->name);
        return;
    }
    (void)pthread_mutex_lock(&engine->lock);
    stopping = engine->stopping;
    if (!stopping) {
        atomic_fetch_add(&group->refs, 1);
        *self = (resync){.item.run = run_resync, .group = group, .epoch = group->epoch};
    }
    (void)pthread_mutex_unlock(&engine->lock);
    if (stopping) {
        free(self);
    } else {
        tutti_coll_engine_push(engine, &self->item);
    }
}

/* ------------------------------------------------------------------------------ ends of another run */

/*
 * May a caller that came behind this end go on behind the op? If the other rank's clock or caller
 * has ended it: yes, as in a resync. Of a refusal nobody else hears, so the caller over there may
 * go on with its next op while this rank's program still starts, and this end is then for that
 * program. It is of another run if the caller over there had gone before this one came; and, as not
 * every caller's end is noticed, after some seconds.
 */
#define PROGRAM_START_NS (10 * TUTTI_NS_PER_S)

static bool
is_of_another_run(const pending *one, uint64_t caller_ns)
{
    return (one->over_ns != 0 && one->over_ns < caller_ns) ||
           one->came_ns + (may_part(&one->err) ? 0 : PROGRAM_START_NS) < caller_ns;
}

/* The first word counts: who was there between two callers of that rank belongs to the first. */
void
tutti_coll_recv_over(tutti_coll_group *group, const tutti_packet *packet)
{
    tutti_map_node *node;

    for (node = tutti_map_first(&group->pending_aborts); node != NULL;
         node = tutti_map_next(node)) {
        pending *one = tutti_container_of(node, pending, node);

        if (one->from == packet->from && one->over_ns == 0 &&
            one->err.sequence <= packet->sequence) {
            one->over_ns = packet->came_ns;
        }
    }
}

static void
run_pass(tutti_coll_engine *engine, tutti_coll_item *item)
{
    tutti_coll_pass *self = tutti_container_of(item, tutti_coll_pass, item);
    tutti_coll_group *group = self->group;
    const bool live = !group->closed && self->epoch == group->live_epoch;
    tutti_map_node *node;
    unsigned char key[8];

    (void)engine;
    while (live && (node = tutti_map_find(&group->pending_aborts,
                                          tutti_map_key_u64(key, group->begun + 1))) != NULL) {
        pending *one = tutti_container_of(node, pending, node);

        if (!is_of_another_run(one, self->caller_ns) || !skip_number(group, group->begun + 1)) {
            break;
        }
        TUTTI_LOG("coll", INFO, "a new caller passes over the end of another run: %s",
                  one->err.text);
        remove_pending_abort(group, one);
    }
    tutti_coll_group_unref(group);
    self->on_passed(self);
}

bool
tutti_coll_group_has_ends(const tutti_coll_group *group)
{
    return atomic_load_explicit(&group->has_ends, memory_order_relaxed);
}

/* `stopping` is looked at under the lock, as in tutti_coll_group_resync. */
bool
tutti_coll_group_pass(tutti_coll_group *group, tutti_coll_pass *pass)
{
    tutti_coll_engine *engine = group->engine;
    bool stopping;

    (void)pthread_mutex_lock(&engine->lock);
    stopping = engine->stopping;
    if (!stopping) {
        atomic_fetch_add(&group->refs, 1);
        pass->item.run = run_pass;
        pass->group = group;
        pass->epoch = group->epoch;
    }
    (void)pthread_mutex_unlock(&engine->lock);
    if (!stopping) {
        tutti_coll_engine_push(engine, &pass->item);
    }
    return !stopping;
}

/* News of this rank's callers, for all members. */
typedef struct caller_news {
    tutti_coll_item item;
    tutti_coll_group *group;
    uint64_t epoch;
    tutti_packet_kind kind;
    bool has_why;
    tutti_error why;
} caller_news;

static void
run_caller_news(tutti_coll_engine *engine, tutti_coll_item *item)
{
    caller_news *self = tutti_container_of(item, caller_news, item);
    tutti_coll_group *group = self->group;
    const bool live = self->epoch == group->live_epoch || self->kind == TUTTI_PACKET_SILENT;

    (void)engine;
    if (!group->closed && live) {
        tell_members(group, self->kind, group->live_epoch, group->begun,
                     self->has_why ? &self->why : NULL);
    }
    tutti_coll_group_unref(group);
    free(self);
}

/* `stopping` is looked at under the lock, as in tutti_coll_group_resync. Without memory the others'
 * next callers wait some seconds, and their sends and receives until their deadlines. */
static void
push_caller_news(tutti_coll_group *group, tutti_packet_kind kind, const tutti_error *why)
{
    tutti_coll_engine *engine = group->engine;
    caller_news *self = calloc(1, sizeof(*self));
    bool stopping;

    if (self == NULL) {
        return;
    }
    *self = (caller_news){.item.run = run_caller_news, .group = group, .kind = kind};
    if (why != NULL) {
        self->has_why = true;
        self->why = *why;
        tutti_error_set_op(&self->why, group->name, 0, (int32_t)engine->rank);
    }
    (void)pthread_mutex_lock(&engine->lock);
    stopping = engine->stopping;
    if (!stopping) {
        atomic_fetch_add(&group->refs, 1);
        self->epoch = group->epoch;
    }
    (void)pthread_mutex_unlock(&engine->lock);
    if (stopping) {
        free(self);
    } else {
        tutti_coll_engine_push(engine, &self->item);
    }
}

void
tutti_coll_group_over(tutti_coll_group *group)
{
    push_caller_news(group, TUTTI_PACKET_OVER, NULL);
}

void
tutti_coll_group_silence(tutti_coll_group *group, const tutti_error *why)
{
    push_caller_news(group, TUTTI_PACKET_SILENT, why);
}

bool
tutti_coll_take_pending_abort(tutti_coll_group *group, uint64_t sequence, tutti_error *ret_err)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&group->pending_aborts, tutti_map_key_u64(key, sequence));
    pending *one;

    if (node == NULL) {
        return false;
    }
    one = tutti_container_of(node, pending, node);
    *ret_err = one->err;
    remove_pending_abort(group, one);
    return true;
}

void
tutti_coll_free_pending_aborts(tutti_coll_group *group)
{
    tutti_map_node *node;

    while ((node = tutti_map_first(&group->pending_aborts)) != NULL) {
        remove_pending_abort(group, tutti_container_of(node, pending, node));
    }
}

/* ------------------------------------------------------------------------------ refusing */

typedef struct refusal {
    tutti_coll_item item;
    tutti_coll_group *group;
    uint64_t sequence;
    uint64_t epoch;
    tutti_error why;
} refusal;

/* "group world op 3: rank 1: shape [-1]: ..." is what the others read. */
static void
word_refusal(const tutti_coll_group *group, uint64_t sequence, tutti_error *why)
{
    tutti_error said = *why;
    char subject[48] = "";

    if (strcmp(said.reason, "CALLER_GONE") != 0) { /* else the text says whose */
        (void)snprintf(subject, sizeof(subject),
                       "rank %" PRIu32 " was refused: ", group->engine->rank);
    }
    (void)TUTTI_FAIL_FOR(why, said.code, said.reason, "group %s op %" PRIu64 ": %s%.700s",
                         group->name, sequence, subject, said.text);
    tutti_error_set_op(why, group->name, sequence, (int32_t)group->engine->rank);
}

/* The refusal counts as begun, so packets that other ranks send for it are dropped, not parked. If
 * an abort for it is here already, all members know that this op is over, and nobody needs ours. */
static void
enter_refusal(tutti_coll_group *group, uint64_t epoch, uint64_t sequence, const tutti_error *why)
{
    tutti_error unused;

    group->begun = sequence;
    tutti_coll_unpark_until(group->engine, &group->unexpected, epoch, sequence);
    group->begun_args = (tutti_coll_args){0}; /* else the number stands beside the op before */
    if (!tutti_coll_take_pending_abort(group, sequence, &unused)) {
        tutti_coll_tell(group, epoch, sequence, why);
    }
}

static void
run_refuse(tutti_coll_engine *engine, tutti_coll_item *item)
{
    refusal *self = tutti_container_of(item, refusal, item);
    tutti_coll_group *group = self->group;

    (void)engine;
    if (!group->closed && self->epoch == group->live_epoch) {
        enter_refusal(group, self->epoch, self->sequence, &self->why);
        tutti_coll_refuse_awaited(group);
    }
    tutti_coll_group_unref(group);
    free(self);
}

/* The number is taken under the lock, as that of an op is, so the refusal has its place in the
 * order of the group's calls (docs/decisions/0002-refused-calls-count.md). */
uint64_t
tutti_coll_refuse(tutti_coll_group *group, uint64_t expect, const tutti_error *why)
{
    tutti_coll_engine *engine = group->engine;
    refusal *self = calloc(1, sizeof(*self));
    uint64_t sequence = 0;

    if (self == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory to tell group %s of a refused call", group->name);
        return 0;
    }
    (void)pthread_mutex_lock(&engine->lock);
    if (!engine->stopping && (expect == 0 || expect == group->sequence + 1)) {
        sequence = ++group->sequence;
        group->last = (tutti_coll_args){0}; /* else the number would stand beside the op before */
        atomic_fetch_add(&group->refs, 1);
        *self = (refusal){.item.run = run_refuse,
                          .group = group,
                          .sequence = sequence,
                          .epoch = group->epoch,
                          .why = *why};
    }
    (void)pthread_mutex_unlock(&engine->lock);
    if (sequence == 0) {
        free(self);
        return 0;
    }
    word_refusal(group, sequence, &self->why);
    tutti_coll_engine_push(engine, &self->item);
    return sequence;
}

/* ------------------------------------------------------------------------------ a rank without callers */

typedef struct orphaning {
    tutti_coll_item item;
    tutti_coll_group *group;
} orphaning;

/*
 * Was the program that calls it there when ours ended? One that came later belongs to another run:
 * its op is for the next program here, which may start later than it.
 */
static bool
is_of_the_same_run(const tutti_packet *packet, uint64_t orphaned_ns)
{
    const uint64_t age_ns = (packet->tag - 1ULL) * TUTTI_NS_PER_MS;

    return packet->kind == TUTTI_PACKET_AGREE && packet->tag != 0 &&
           packet->came_ns < orphaned_ns + age_ns;
}

/* The next number whose op has not ended elsewhere. */
static uint64_t
next_open(const tutti_coll_group *group)
{
    uint64_t sequence = group->begun + 1;
    unsigned char key[8];

    while (tutti_map_find(&group->pending_aborts, tutti_map_key_u64(key, sequence)) != NULL) {
        sequence++;
    }
    return sequence;
}

/*
 * Does a member wait in the next op? Each member that calls an op sends its first packet to the rank
 * behind it (docs/decisions/0001), so a rank without callers hears of the op from the rank before it.
 */
static bool
is_awaited(const tutti_coll_group *group)
{
    const uint64_t orphaned_ns = atomic_load_explicit(&group->orphaned_ns, memory_order_relaxed);
    const uint64_t next = next_open(group);
    const tutti_list_node *link;

    for (link = group->unexpected.next; link != &group->unexpected && orphaned_ns != 0;
         link = link->next) {
        const tutti_packet *packet = &tutti_container_of(link, coll_unexpected, link)->packet;

        if (packet->epoch == group->live_epoch && packet->sequence == next &&
            is_of_the_same_run(packet, orphaned_ns)) {
            return true;
        }
    }
    return false;
}

/* Takes the next number, as a refused call does. 0: somebody calls again, or a post that was before
 * is on its way: its op, or another packet, looks again. */
static uint64_t
take_orphan_number(tutti_coll_group *group, tutti_error *ret_why)
{
    tutti_coll_engine *engine = group->engine;
    uint64_t sequence = 0;

    (void)pthread_mutex_lock(&engine->lock);
    if (group->orphaned != NULL && group->epoch == group->live_epoch &&
        group->sequence == group->begun) {
        sequence = ++group->sequence;
        group->last = (tutti_coll_args){0};
        *ret_why = *group->orphaned;
    }
    (void)pthread_mutex_unlock(&engine->lock);
    return sequence;
}

/* Behind ops that have ended elsewhere, too: their numbers are taken first, and nobody needs a word for them. */
void
tutti_coll_refuse_awaited(tutti_coll_group *group)
{
    tutti_error why;
    uint64_t sequence;

    while (is_awaited(group) && (sequence = take_orphan_number(group, &why)) != 0) {
        word_refusal(group, sequence, &why);
        enter_refusal(group, group->live_epoch, sequence, &why);
    }
}

static void
run_orphan(tutti_coll_engine *engine, tutti_coll_item *item)
{
    orphaning *self = tutti_container_of(item, orphaning, item);

    (void)engine;
    if (self->group->closed) {
        tutti_coll_group_adopt(self->group);
    } else {
        tutti_coll_refuse_awaited(self->group);
    }
    tutti_coll_group_unref(self->group);
    free(self);
}

/* Under the lock: NULL = somebody calls. */
static void
set_orphaned(tutti_coll_group *group, tutti_error *why)
{
    if (group->orphaned == NULL && why != NULL) {
        atomic_fetch_add(&group->engine->orphans, 1);
    } else if (group->orphaned != NULL && why == NULL) {
        atomic_fetch_sub(&group->engine->orphans, 1);
    }
    free(group->orphaned);
    group->orphaned = why;
    atomic_store_explicit(&group->orphaned_ns, why == NULL ? 0 : tutti_clock_ns(),
                          memory_order_relaxed);
}

void
tutti_coll_group_orphan(tutti_coll_group *group, const tutti_error *why)
{
    tutti_coll_engine *engine = group->engine;
    orphaning *self = calloc(1, sizeof(*self));
    tutti_error *kept = malloc(sizeof(*kept));
    bool stopping = true;

    if (self == NULL || kept == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory to tell group %s that nobody calls its ops here",
                  group->name);
        free(self);
        free(kept);
        return;
    }
    *kept = *why;
    *self = (orphaning){.item.run = run_orphan, .group = group};
    (void)pthread_mutex_lock(&engine->lock);
    stopping = engine->stopping;
    set_orphaned(group, kept);
    if (!stopping) {
        atomic_fetch_add(&group->refs, 1);
    }
    (void)pthread_mutex_unlock(&engine->lock);
    if (stopping) {
        free(self);
    } else {
        tutti_coll_engine_push(engine, &self->item);
    }
}

void
tutti_coll_group_adopt(tutti_coll_group *group)
{
    (void)pthread_mutex_lock(&group->engine->lock);
    set_orphaned(group, NULL);
    (void)pthread_mutex_unlock(&group->engine->lock);
}

/* ------------------------------ a member that begins no more ops */

static void
word_leave(const tutti_coll_group *group, uint64_t sequence, tutti_error *err)
{
    (void)TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "RANK_LEAVING",
                         "group %s op %" PRIu64 ": rank %" PRIu32 " is leaving: %s", group->name,
                         sequence, group->leaver, group->leave_reason);
    err->scope = TUTTI_SCOPE_GROUP;
    tutti_error_set_op(err, group->name, sequence, (int32_t)group->leaver);
}

bool
tutti_coll_is_behind_leaver(const tutti_coll_op *op, tutti_error *ret_err)
{
    const tutti_coll_group *group = op->group;

    if (group->leaver == NO_RANK || group->leaver == group->lost_rank ||
        op->sequence <= group->last_op) {
        return false;
    }
    word_leave(group, op->sequence, ret_err);
    return true;
}

/*
 * Of several leavers the one that has begun the fewest ops decides: no op behind that one can be
 * complete. tutti_map_from is asked anew for each op, since a failing op may take others with it.
 */
static void
take_leave(tutti_coll_group *group, uint32_t rank, uint64_t last, const char *reason)
{
    unsigned char key[8];
    tutti_map_node *node;
    tutti_error err;

    if (group->leaver != NO_RANK && group->last_op <= last) {
        return;
    }
    group->leaver = rank;
    group->last_op = last;
    (void)snprintf(group->leave_reason, sizeof(group->leave_reason), "%.*s", LEAVE_REASON_MAX - 1,
                   reason);
    while ((node = tutti_map_from(&group->ops, tutti_map_key_u64(key, last + 1))) != NULL) {
        tutti_coll_op *op = tutti_container_of(node, tutti_coll_op, by_sequence);

        word_leave(group, op->sequence, &err);
        tutti_coll_op_fail(op, &err, false); /* the others hear of the leave, too */
    }
}

void
tutti_coll_recv_leave(tutti_coll_group *group, const tutti_packet *packet, const tutti_error *err)
{
    take_leave(group, packet->from, packet->sequence, err->text);
}

/* ------------------------------------------------------------------------------ saying it */

typedef struct leaving {
    tutti_coll_item item;
    tutti_coll_group *group;
    uint64_t epoch;
    tutti_error why;
} leaving;

static void
run_leave(tutti_coll_engine *engine, tutti_coll_item *item)
{
    leaving *self = tutti_container_of(item, leaving, item);
    tutti_coll_group *group = self->group;

    if (!group->closed && self->epoch == group->live_epoch) {
        /* group->begun is the line: the posts before tutti_coll_group_leave are before this item in
         * the inbox, so all of them have begun. */
        tell_members(group, TUTTI_PACKET_LEAVE, self->epoch, group->begun, &self->why);
        take_leave(group, engine->rank, group->begun, self->why.text);
    }
    tutti_coll_group_unref(group);
    free(self);
}

/* The caller holds the group open, so the reference need not be taken under the lock. */
void
tutti_coll_group_leave(tutti_coll_group *group, const char *reason)
{
    tutti_coll_engine *engine = group->engine;
    leaving *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory to tell group %s that this rank is leaving",
                  group->name);
        return;
    }
    (void)TUTTI_FAIL_FOR(&self->why, TUTTI_UNAVAILABLE, "RANK_LEAVING", "%.*s",
                         LEAVE_REASON_MAX - 1, reason);
    self->item.run = run_leave;
    self->group = group;
    (void)pthread_mutex_lock(&engine->lock);
    self->epoch = group->epoch;
    (void)pthread_mutex_unlock(&engine->lock);
    atomic_fetch_add(&group->refs, 1);
    tutti_coll_engine_push(engine, &self->item);
}
