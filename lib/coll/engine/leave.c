#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/log.h"
#include "coll/engine/engine.h"

/* Who is gone afterwards is said as before: it is the news that counts then. */
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

/* Of several leavers the one that has begun the fewest ops decides. */
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
tutti_coll_hear_leave(tutti_coll_group *group, const tutti_packet *packet, const tutti_error *err)
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
tell_leave(tutti_coll_group *group, const leaving *self)
{
    tutti_coll_engine *engine = group->engine;
    unsigned char bytes[TUTTI_PACKET_ERROR_BYTES];
    const size_t size = tutti_packet_write_error(&self->why, bytes);
    const tutti_packet packet = {.kind = TUTTI_PACKET_LEAVE,
                                 .from = engine->rank,
                                 .job_id = engine->job_id,
                                 .incarnation = engine->incarnation,
                                 .group = group->id,
                                 .epoch = self->epoch,
                                 .sequence = group->begun};
    uint32_t i;

    for (i = 0; i < group->size; i++) {
        if (i != group->rank) {
            tutti_coll_note(engine, group->ranks[i], &packet, bytes, size);
        }
    }
}

static void
run_leave(tutti_coll_engine *engine, tutti_coll_item *item)
{
    leaving *self = tutti_container_of(item, leaving, item);
    tutti_coll_group *group = self->group;

    if (!group->closed && self->epoch == group->live_epoch) {
        tell_leave(group, self);
        take_leave(group, engine->rank, group->begun, self->why.text);
    }
    tutti_coll_group_unref(group);
    free(self);
}

void
tutti_coll_group_leave(tutti_coll_group *group, const char *reason)
{
    tutti_coll_engine *engine = group->engine;
    leaving *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory to tell group %s that we leave", group->name);
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
