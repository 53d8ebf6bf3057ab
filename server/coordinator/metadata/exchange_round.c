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

#define ANSWER_BYTES (64u << 10) /* an answer of so many bytes takes the time of two small ones */

static size_t
value_room(const coord_meeting *meeting)
{
    return meeting->kind == TUTTI_COORDINATOR_BROADCAST ? 1 : meeting->count;
}

static void
drop_value(coord_meeting *meeting, tutti_bytes *value)
{
    meeting->owner->metadata_bytes -= value->size;
    meeting->bytes -= value->size;
    meeting->value_bytes -= value->size;
    free((void *)(uintptr_t)value->data);
    *value = (tutti_bytes){0};
}

static void
drop_values(coord_meeting *meeting)
{
    size_t i;

    for (i = 0; meeting->values != NULL && i < value_room(meeting); i++) {
        drop_value(meeting, &meeting->values[i]);
    }
    meeting->value_count = 0;
}

static void
meeting_free(coord_meeting *meeting)
{
    coord_channel *channel = meeting->channel;

    assert(tutti_list_empty(&meeting->waiting));
    coord_work_stop(&meeting->work);
    tutti_list_remove(&meeting->link);
    tutti_list_remove(&meeting->retired_link);
    drop_values(meeting);
    meeting->owner->metadata_bytes -= meeting->bytes;
    if (channel != NULL) {
        channel->retired_count -= meeting->retired ? 1 : 0;
        channel->live_count -= meeting->retired ? 0 : 1;
        coord_channel_settle(channel);
    }
    free(meeting->places);
    free(meeting->values);
    free(meeting);
}

/* ------------------------------------------------------------------------------ answers */

static void
deliver(coord_meeting *meeting, tutti_coordinator_meet *meet)
{
    coord_meeting_leave(meet);
    if (meeting->state == COORD_MEETING_OVER) {
        meet->on_answer(meet, NULL, 0, &meeting->failure);
    } else {
        meet->on_answer(meet, meeting->values, value_room(meeting), NULL);
    }
}

static size_t
on_work(coord_work *work, size_t budget)
{
    coord_meeting *meeting = tutti_container_of(work, coord_meeting, work);
    const size_t cost = 1 + meeting->value_bytes / ANSWER_BYTES;
    size_t done = 0;

    while (done < budget && !tutti_list_empty(&meeting->waiting)) {
        deliver(meeting, tutti_container_of(meeting->waiting.next, tutti_coordinator_meet, link));
        done += cost;
    }
    coord_meeting_settle(meeting);
    return done;
}

/* ------------------------------------------------------------------------------ begin */

static tutti_code
check_bytes(const tutti_coordinator *self, size_t more, tutti_error *err)
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
excuse_lost(coord_meeting *meeting)
{
    const coord_group *group = meeting->channel->group;
    uint32_t i;

    for (i = 0; group->job->lost_count > 0 && i < meeting->count; i++) {
        if (group->job->seats[coord_group_rank(group, i)]->state != TUTTI_COORDINATOR_ALIVE) {
            coord_meeting_excuse(meeting, i);
        }
    }
}

/*
 * More are retired than are kept: the oldest go. Only when a new meeting begins, so that nobody who
 * walks the meetings loses one under his feet.
 */
static void
trim_retired(coord_channel *channel)
{
    tutti_link *link;
    tutti_link *spare;

    tutti_list_each(link, spare, &channel->meetings)
    {
        coord_meeting *meeting = tutti_container_of(link, coord_meeting, link);

        if (channel->retired_count <= COORD_RETIRED_MAX) {
            return;
        }
        if (meeting->retired && tutti_list_empty(&meeting->waiting)) {
            meeting_free(meeting);
        }
    }
}

static void
meeting_init(coord_meeting *meeting, coord_channel *channel)
{
    meeting->channel = channel;
    meeting->owner = channel->group->job->owner;
    meeting->count = channel->group->count;
    tutti_list_init(&meeting->link);
    tutti_list_init(&meeting->retired_link);
    tutti_list_init(&meeting->waiting);
    coord_work_init(&meeting->work, on_work);
    meeting->bytes = sizeof(*meeting) + meeting->count * sizeof(coord_place) +
                     value_room(meeting) * sizeof(tutti_bytes);
}

tutti_code
coord_meeting_new(coord_channel *channel, tutti_coordinator_meet_kind kind, uint32_t root,
                  coord_meeting **ret_meeting, tutti_error *err)
{
    coord_meeting *meeting = calloc(1, sizeof(*meeting));
    tutti_code code;

    if (meeting == NULL) {
        return coord_fail_memory(err, "a meeting");
    }
    meeting->kind = kind;
    meeting->root = root;
    meeting_init(meeting, channel);
    code = check_bytes(meeting->owner, meeting->bytes, err);
    if (code == TUTTI_OK) {
        meeting->places = calloc(meeting->count, sizeof(coord_place));
        meeting->values = calloc(value_room(meeting), sizeof(tutti_bytes));
        if (meeting->places == NULL || meeting->values == NULL) {
            code = coord_fail_memory(err, "a meeting's members");
        }
    }
    if (code != TUTTI_OK) {
        free(meeting->places);
        free(meeting->values);
        free(meeting);
        return code;
    }
    meeting->owner->metadata_bytes += meeting->bytes;
    tutti_list_add(&channel->meetings, &meeting->link);
    channel->live_count++;
    excuse_lost(meeting);
    trim_retired(channel);
    *ret_meeting = meeting;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ come and go */

/* Where the value that this member gives belongs; NULL = nowhere. */
static tutti_bytes *
find_room(coord_meeting *meeting, uint32_t position)
{
    if (meeting->state != COORD_MEETING_OPEN) {
        return NULL;
    }
    if (meeting->kind == TUTTI_COORDINATOR_ALL_GATHER) {
        return &meeting->values[position];
    }
    return position == meeting->root ? &meeting->values[0] : NULL;
}

tutti_code
coord_meeting_come(coord_meeting *meeting, uint32_t position,
                   tutti_coordinator_meet_request *request, tutti_error *err)
{
    coord_place *place = &meeting->places[position];
    tutti_bytes *room = find_room(meeting, position);
    tutti_code code = TUTTI_OK;

    assert(!place->came);
    if (room == NULL) {
        free(request->value);
    } else {
        code = check_bytes(meeting->owner, request->value_size, err);
        if (code != TUTTI_OK) {
            return code;
        }
        *room = (tutti_bytes){request->value, request->value_size};
        meeting->value_count++;
        meeting->value_bytes += request->value_size;
        meeting->bytes += request->value_size;
        meeting->owner->metadata_bytes += request->value_size;
    }
    request->value = NULL;
    place->came = true;
    place->called = true;
    place->token = request->token;
    meeting->has_tokens = meeting->has_tokens || request->token != 0;
    meeting->came_count++;
    meeting->called_count++;
    return TUTTI_OK;
}

void
coord_meeting_uncome(coord_meeting *meeting, uint32_t position)
{
    coord_place *place = &meeting->places[position];

    assert(meeting->state == COORD_MEETING_OPEN && place->called);
    if (meeting->kind == TUTTI_COORDINATOR_ALL_GATHER) {
        drop_value(meeting, &meeting->values[position]);
        meeting->value_count--;
    }
    *place = (coord_place){.meet = place->meet};
    meeting->came_count--;
    meeting->called_count--;
}

void
coord_meeting_excuse(coord_meeting *meeting, uint32_t position)
{
    if (!meeting->places[position].came) {
        meeting->places[position].came = true;
        meeting->came_count++;
    }
}

void
coord_meeting_fail(coord_meeting *meeting, const tutti_error *err)
{
    meeting->state = COORD_MEETING_OVER;
    meeting->failure = *err;
    drop_values(meeting);
}

void
coord_meeting_wait(coord_meeting *meeting, tutti_coordinator_meet *meet)
{
    meet->meeting = meeting;
    tutti_list_add(&meeting->waiting, &meet->link);
    meeting->places[meet->position].meet = meet;
}

void
coord_meeting_leave(tutti_coordinator_meet *meet)
{
    coord_wait_stop(&meet->wait);
    tutti_list_remove(&meet->link);
    meet->meeting->places[meet->position].meet = NULL;
    meet->meeting = NULL;
}

/* ------------------------------------------------------------------------------ end */

static void
on_retire(tutti_timer *timer)
{
    tutti_coordinator *self = tutti_container_of(timer, tutti_coordinator, retire);
    const uint64_t window = self->options.retry_window_ns;

    while (!tutti_list_empty(&self->retired)) {
        coord_meeting *oldest = tutti_container_of(self->retired.next, coord_meeting, retired_link);
        const uint64_t until = tutti_clock_add(oldest->retired_ns, window);

        if (until > self->now_ns) {
            tutti_timers_start(&self->timers, timer, until);
            return;
        }
        tutti_list_remove(&oldest->retired_link);
        if (tutti_list_empty(&oldest->waiting)) {
            meeting_free(oldest);
        } /* else the last answer frees it */
    }
}

static void
retire(coord_meeting *meeting)
{
    tutti_coordinator *self = meeting->owner;

    meeting->retired = true;
    meeting->retired_ns = self->now_ns;
    meeting->channel->live_count--;
    meeting->channel->retired_count++;
    tutti_list_add(&self->retired, &meeting->retired_link);
    if (!self->retire.running) {
        tutti_timers_start(&self->timers, &self->retire,
                           tutti_clock_add(self->now_ns, self->options.retry_window_ns));
    }
}

/* Nobody needs it, or nobody ever came. */
static bool
is_finished(const coord_meeting *meeting)
{
    if (!tutti_list_empty(&meeting->waiting)) {
        return false;
    }
    if (meeting->state == COORD_MEETING_OPEN) {
        return meeting->called_count == 0 || meeting->channel == NULL;
    }
    return meeting->came_count == meeting->count || meeting->channel == NULL;
}

void
coord_meeting_settle(coord_meeting *meeting)
{
    const bool complete = meeting->value_count == value_room(meeting);

    if (meeting->state == COORD_MEETING_OPEN && complete) {
        meeting->state = COORD_MEETING_DONE;
    }
    if (meeting->state != COORD_MEETING_OPEN && !tutti_list_empty(&meeting->waiting)) {
        coord_later(meeting->owner, &meeting->work);
    }
    if (!is_finished(meeting)) {
        return;
    }
    if (meeting->retired) {
        if (tutti_list_empty(&meeting->retired_link)) {
            meeting_free(meeting); /* its time had come while a call still waited */
        }
    } else if (meeting->has_tokens && meeting->called_count > 0 && meeting->channel != NULL) {
        retire(meeting);
    } else {
        meeting_free(meeting);
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
