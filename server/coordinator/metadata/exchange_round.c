/*
 * Exchange rounds: values, waiting calls, and how a round ends.
 *
 * Every change of a round is followed by coord_exchange_round_settle, which makes it DONE when
 * the values are complete, has waiting calls answered in slices, and retires or frees it when it
 * is finished: nobody waits and all members have come (or nobody ever called). So a round is
 * freed in one place, and its callers must not use it behind settle.
 *
 * `bytes` of all rounds together are bounded by --metadata-bytes-limit, counting places, too, so
 * large groups cannot pass it with empty values.
 */
#include "server/coordinator/metadata/exchange_round.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/metadata/metadata.h"

#define ANSWER_BYTES (64u << 10) /* so many bytes of an answer cost as much as one more answer */

static size_t
value_capacity(const coord_exchange_round *round)
{
    return round->kind == TUTTI_COORDINATOR_BROADCAST ? 1 : round->count;
}

static void
drop_value(coord_exchange_round *round, tutti_bytes *value)
{
    round->owner->metadata_bytes -= value->size;
    round->bytes -= value->size;
    round->value_bytes -= value->size;
    free((void *)(uintptr_t)value->data);
    *value = (tutti_bytes){0};
}

static void
drop_values(coord_exchange_round *round)
{
    size_t i;

    for (i = 0; round->values != NULL && i < value_capacity(round); i++) {
        drop_value(round, &round->values[i]);
    }
    round->value_count = 0;
}

static void
round_free(coord_exchange_round *round)
{
    coord_channel *channel = round->channel;

    assert(tutti_list_empty(&round->waiting));
    coord_task_stop(&round->work);
    tutti_list_remove(&round->link);
    tutti_list_remove(&round->retired_link);
    drop_values(round);
    round->owner->metadata_bytes -= round->bytes;
    if (channel != NULL) {
        channel->retired_count -= round->retired ? 1 : 0;
        channel->live_count -= round->retired ? 0 : 1;
        coord_channel_settle(channel);
    }
    free(round->places);
    free(round->values);
    free(round);
}

/* ------------------------------------------------------------------------------ answers */

static void
deliver_round(coord_exchange_round *round, tutti_coordinator_meet *meet)
{
    coord_exchange_round_leave(meet);
    if (round->state == COORD_EXCHANGE_ROUND_OVER) {
        meet->on_answer(meet, NULL, 0, &round->failure);
    } else {
        meet->on_answer(meet, round->values, value_capacity(round), NULL);
    }
}

static size_t
on_work(coord_task *work, size_t budget)
{
    coord_exchange_round *round = tutti_container_of(work, coord_exchange_round, work);
    const size_t cost = 1 + round->value_bytes / ANSWER_BYTES;
    size_t done = 0;

    while (done < budget && !tutti_list_empty(&round->waiting)) {
        deliver_round(round, tutti_container_of(round->waiting.next, tutti_coordinator_meet, link));
        done += cost;
    }
    coord_exchange_round_settle(round);
    return done;
}

/* ------------------------------------------------------------------------------ begin */

static tutti_code
check_round_bytes(const tutti_coordinator *self, size_t more, tutti_error *err)
{
    if (more > self->options.metadata_bytes_limit ||
        self->metadata_bytes > self->options.metadata_bytes_limit - more) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "METADATA_LIMIT",
                              "metadata calls hold %" PRIu64 " bytes, %zu more pass the limit of "
                              "%" PRIu64 " (--metadata-bytes-limit)",
                              self->metadata_bytes, more, self->options.metadata_bytes_limit);
    }
    return TUTTI_OK;
}

static void
excuse_lost(coord_exchange_round *round)
{
    const coord_group *group = round->channel->group;
    uint32_t i;

    for (i = 0; group->job->lost_count > 0 && i < round->count; i++) {
        if (group->job->seats[coord_group_rank(group, i)]->state != TUTTI_COORDINATOR_ALIVE) {
            coord_exchange_round_excuse(round, i);
        }
    }
}

/*
 * Free the oldest retired rounds beyond COORD_RETIRED_MAX. Only when a new round begins:
 * elsewhere a caller may be walking the list.
 */
static void
trim_retired(coord_channel *channel)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &channel->meetings)
    {
        coord_exchange_round *round = tutti_container_of(link, coord_exchange_round, link);

        if (channel->retired_count <= COORD_RETIRED_MAX) {
            return;
        }
        if (round->retired && tutti_list_empty(&round->waiting)) {
            round_free(round);
        }
    }
}

static void
round_init(coord_exchange_round *round, coord_channel *channel)
{
    round->channel = channel;
    round->owner = channel->group->job->owner;
    round->count = channel->group->count;
    tutti_list_init(&round->link);
    tutti_list_init(&round->retired_link);
    tutti_list_init(&round->waiting);
    coord_task_init(&round->work, on_work);
    round->bytes = sizeof(*round) + round->count * sizeof(coord_place) +
                   value_capacity(round) * sizeof(tutti_bytes);
}

tutti_code
coord_exchange_round_new(coord_channel *channel, tutti_coordinator_meet_kind kind, uint32_t root,
                         coord_exchange_round **ret_round, tutti_error *err)
{
    coord_exchange_round *round = calloc(1, sizeof(*round));
    tutti_code code;

    if (round == NULL) {
        return coord_fail_memory(err, "a meeting");
    }
    round->kind = kind;
    round->root = root;
    round_init(round, channel);
    code = check_round_bytes(round->owner, round->bytes, err);
    if (code == TUTTI_OK) {
        round->places = calloc(round->count, sizeof(coord_place));
        round->values = calloc(value_capacity(round), sizeof(tutti_bytes));
        if (round->places == NULL || round->values == NULL) {
            code = coord_fail_memory(err, "a meeting's members");
        }
    }
    if (code != TUTTI_OK) {
        free(round->places);
        free(round->values);
        free(round);
        return code;
    }
    round->owner->metadata_bytes += round->bytes;
    tutti_list_add(&channel->meetings, &round->link);
    channel->live_count++;
    excuse_lost(round);
    trim_retired(channel);
    *ret_round = round;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ come and go */

/* Where the value that this member gives belongs; NULL = nowhere. */
static tutti_bytes *
find_room(coord_exchange_round *round, uint32_t position)
{
    if (round->state != COORD_EXCHANGE_ROUND_OPEN) {
        return NULL;
    }
    if (round->kind == TUTTI_COORDINATOR_ALL_GATHER) {
        return &round->values[position];
    }
    return position == round->root ? &round->values[0] : NULL;
}

tutti_code
coord_exchange_round_join(coord_exchange_round *round, uint32_t position,
                          tutti_coordinator_meet_request *request, tutti_error *err)
{
    coord_place *place = &round->places[position];
    tutti_bytes *capacity = find_room(round, position);
    tutti_code code = TUTTI_OK;

    assert(!place->came);
    if (capacity == NULL) {
        free(request->value);
    } else {
        code = check_round_bytes(round->owner, request->value_size, err);
        if (code != TUTTI_OK) {
            return code;
        }
        *capacity = (tutti_bytes){request->value, request->value_size};
        round->value_count++;
        round->value_bytes += request->value_size;
        round->bytes += request->value_size;
        round->owner->metadata_bytes += request->value_size;
    }
    request->value = NULL;
    place->came = true;
    place->called = true;
    place->token = request->token;
    round->has_tokens = round->has_tokens || request->token != 0;
    round->came_count++;
    round->called_count++;
    return TUTTI_OK;
}

void
coord_exchange_round_unjoin(coord_exchange_round *round, uint32_t position)
{
    coord_place *place = &round->places[position];

    assert(round->state == COORD_EXCHANGE_ROUND_OPEN && place->called);
    /* An open Broadcast has no value: the root's call makes it DONE. */
    if (round->kind == TUTTI_COORDINATOR_ALL_GATHER) {
        drop_value(round, &round->values[position]);
        round->value_count--;
    }
    *place = (coord_place){.meet = place->meet};
    round->came_count--;
    round->called_count--;
}

void
coord_exchange_round_excuse(coord_exchange_round *round, uint32_t position)
{
    if (!round->places[position].came) {
        round->places[position].came = true;
        round->came_count++;
    }
}

void
coord_exchange_round_fail(coord_exchange_round *round, const tutti_error *err)
{
    round->state = COORD_EXCHANGE_ROUND_OVER;
    round->failure = *err;
    drop_values(round);
}

void
coord_exchange_round_wait(coord_exchange_round *round, tutti_coordinator_meet *meet)
{
    meet->round = round;
    tutti_list_add(&round->waiting, &meet->link);
    round->places[meet->position].meet = meet;
}

void
coord_exchange_round_leave(tutti_coordinator_meet *meet)
{
    coord_wait_stop(&meet->wait);
    tutti_list_remove(&meet->link);
    meet->round->places[meet->position].meet = NULL;
    meet->round = NULL;
}

/* ------------------------------------------------------------------------------ end */

static void
on_retire(tutti_timer *timer)
{
    tutti_coordinator *self = tutti_container_of(timer, tutti_coordinator, retire);
    const uint64_t window = self->options.retry_window_ns;

    while (!tutti_list_empty(&self->retired)) {
        coord_exchange_round *oldest =
            tutti_container_of(self->retired.next, coord_exchange_round, retired_link);
        const uint64_t until = tutti_clock_add(oldest->retired_ns, window);

        if (until > self->now_ns) {
            tutti_timers_start(&self->timers, timer, until);
            return;
        }
        tutti_list_remove(&oldest->retired_link);
        if (tutti_list_empty(&oldest->waiting)) {
            round_free(oldest);
        } /* else settle frees it with the last answer */
    }
}

static void
retire_round(coord_exchange_round *round)
{
    tutti_coordinator *self = round->owner;

    round->retired = true;
    round->retired_ns = self->now_ns;
    round->channel->live_count--;
    round->channel->retired_count++;
    tutti_list_add(&self->retired, &round->retired_link);
    if (!self->retire.running) {
        tutti_timers_start(&self->timers, &self->retire,
                           tutti_clock_add(self->now_ns, self->options.retry_window_ns));
    }
}

/*
 * May the round go? Nobody waits, and all members have come to it; or it is open and nobody has
 * called (it began for nothing); or its group is gone.
 */
static bool
is_finished(const coord_exchange_round *round)
{
    if (!tutti_list_empty(&round->waiting)) {
        return false;
    }
    if (round->state == COORD_EXCHANGE_ROUND_OPEN) {
        return round->called_count == 0 || round->channel == NULL;
    }
    return round->came_count == round->count || round->channel == NULL;
}

void
coord_exchange_round_settle(coord_exchange_round *round)
{
    const bool complete = round->value_count == value_capacity(round);

    if (round->state == COORD_EXCHANGE_ROUND_OPEN && complete) {
        round->state = COORD_EXCHANGE_ROUND_DONE;
    }
    if (round->state != COORD_EXCHANGE_ROUND_OPEN && !tutti_list_empty(&round->waiting)) {
        coord_defer(round->owner, &round->work);
    }
    if (!is_finished(round)) {
        return;
    }
    if (round->retired) {
        if (tutti_list_empty(&round->retired_link)) {
            round_free(round); /* its time had come while a call still waited */
        }
    } else if (round->has_tokens && round->called_count > 0 && round->channel != NULL) {
        retire_round(round);
    } else {
        round_free(round);
    }
}

void
coord_meetings_init(tutti_coordinator *self)
{
    tutti_list_init(&self->retired);
    self->retire.on_expiry = on_retire;
}

void
coord_meetings_fini(tutti_coordinator *self)
{
    assert(tutti_list_empty(&self->retired) && self->metadata_bytes == 0);
    tutti_timers_stop(&self->timers, &self->retire);
}
