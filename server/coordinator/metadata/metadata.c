/*
 * MetadataService's calls: checking a call, finding its exchange round, failing rounds whose
 * calls do not fit together.
 *
 * A call that is refused at once does not count. A call that comes to a round counts, even if it
 * makes the round fail: all members must come to the same end of the same round, or their next
 * calls would go to different ones.
 */
#include "server/coordinator/metadata/metadata.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/metadata/exchange_round.h"

#define MISSING_MAX 1024 /* ranks that a text is made of */
#define KEY_TEXT_MAX 200

/* What one call is about, once it has been checked. */
typedef struct caller {
    coord_agent *agent;
    coord_group *group;
    uint32_t position;
} caller;

static tutti_code
check_sizes(const tutti_coordinator_meet_request *request, tutti_error *err)
{
    if (request->key.size > TUTTI_COORDINATOR_MEET_KEY_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_KEY",
                              "key of %zu bytes, at most %d", request->key.size,
                              TUTTI_COORDINATOR_MEET_KEY_MAX);
    }
    if (request->value_size > TUTTI_COORDINATOR_MEET_VALUE_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "VALUE_LIMIT",
                              "value of %zu bytes, at most %u", request->value_size,
                              TUTTI_COORDINATOR_MEET_VALUE_MAX);
    }
    return TUTTI_OK;
}

static tutti_code
check_caller(tutti_coordinator *self, const tutti_coordinator_meet_request *request,
             caller *ret_caller, tutti_error *err)
{
    tutti_code code = coord_member_check(self, &request->member, &ret_caller->agent, err);

    if (code == TUTTI_OK) {
        code = coord_group_find(ret_caller->agent->job, request->group, ret_caller->agent->rank,
                                &ret_caller->group, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    if (!coord_group_position(ret_caller->group, request->member.rank, &ret_caller->position)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP",
                              "rank %" PRIu32 " is not in group %s", request->member.rank,
                              ret_caller->group->name);
    }
    if (request->kind == TUTTI_COORDINATOR_BROADCAST && request->root >= ret_caller->group->count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ROOT",
                              "root %" PRIu32 " in group %s of %" PRIu32
                              " ranks, need a group rank below that number",
                              request->root, ret_caller->group->name, ret_caller->group->count);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ failures */

/* `group world, key "shape": ` */
static tutti_text
begin_text(const coord_channel *channel, char *buffer, size_t size)
{
    tutti_text text = tutti_text_in(buffer, size);
    char key[KEY_TEXT_MAX];

    tutti_text_add(&text, "group %s", channel->group->name);
    if (channel->key_size > 0) {
        coord_quote((tutti_bytes){channel->key, channel->key_size}, 48, key, sizeof(key));
        tutti_text_add(&text, ", key \"%s\"", key);
    }
    tutti_text_add(&text, ": ");
    return text;
}

static void
finish_metadata(const coord_channel *channel, const tutti_text *text, tutti_code code,
                const char *reason, int32_t rank, tutti_error *err)
{
    (void)TUTTI_FAIL_FOR(err, code, reason, "%s", text->start);
    tutti_error_set_op(err, channel->group->name, 0, rank);
}

static const char *
kind_name(tutti_coordinator_meet_kind kind)
{
    return kind == TUTTI_COORDINATOR_BROADCAST ? "Broadcast" : "AllGather";
}

static void
say_metadata_missing(const coord_exchange_round *round, tutti_error *err)
{
    const coord_group *group = round->channel->group;
    char buffer[512];
    tutti_text text = begin_text(round->channel, buffer, sizeof(buffer));
    uint32_t ranks[MISSING_MAX];
    uint32_t count = 0;
    uint32_t i;

    if (round->kind == TUTTI_COORDINATOR_BROADCAST) {
        ranks[count++] = coord_group_rank(group, round->root);
        tutti_text_add(&text, "the root, rank %" PRIu32 ", did not come in time", ranks[0]);
    } else {
        for (i = 0; i < round->count && count < MISSING_MAX; i++) {
            if (!round->places[i].came) {
                ranks[count++] = coord_group_rank(group, i);
            }
        }
        tutti_text_add(&text, "%" PRIu32 " of %" PRIu32 " members came in time, missing rank%s ",
                       round->came_count, round->count, count == 1 ? "" : "s");
        tutti_text_add_ranks(&text, ranks, count, 16);
    }
    finish_metadata(round->channel, &text, TUTTI_DEADLINE_EXCEEDED, "MISSING_RANKS",
                    count > 0 ? (int32_t)ranks[0] : TUTTI_ERROR_RANK_NONE, err);
}

/*
 * Do this call and the round that it comes to fit together? If not, the round is over for all,
 * this call included: it joins the round and is told with the others.
 */
static void
check_fit(coord_exchange_round *round, const caller *who,
          const tutti_coordinator_meet_request *request)
{
    char buffer[512];
    tutti_text text = begin_text(round->channel, buffer, sizeof(buffer));
    const char *reason = NULL;
    tutti_code code = TUTTI_FAILED_PRECONDITION;
    tutti_error err;

    if (round->state == COORD_EXCHANGE_ROUND_OVER) {
        return;
    }
    if (request->kind != round->kind) {
        reason = "METHOD_MISMATCH";
        tutti_text_add(&text, "rank %" PRIu32 " called %s, others %s", who->agent->rank,
                       kind_name(request->kind), kind_name(round->kind));
    } else if (request->kind == TUTTI_COORDINATOR_BROADCAST && request->root != round->root) {
        reason = "ROOT_MISMATCH";
        tutti_text_add(&text, "rank %" PRIu32 " named the root %" PRIu32 ", others %" PRIu32,
                       who->agent->rank, request->root, round->root);
    } else if (request->kind == TUTTI_COORDINATOR_ALL_GATHER &&
               round->value_bytes + request->value_size > TUTTI_COORDINATOR_MEET_TOGETHER_MAX) {
        reason = "VALUE_LIMIT";
        code = TUTTI_INVALID_ARGUMENT;
        tutti_text_add(&text, "values of %zu bytes together, at most %u",
                       round->value_bytes + request->value_size,
                       TUTTI_COORDINATOR_MEET_TOGETHER_MAX);
    } else {
        return;
    }
    finish_metadata(round->channel, &text, code, reason, (int32_t)who->agent->rank, &err);
    coord_exchange_round_fail(round, &err);
}

/* ------------------------------------------------------------------------------ begin */

/* May a new exchange round begin? Not when a rank whose value it needs is gone. */
static tutti_code
check_metadata_new(const caller *who, const coord_channel *channel,
                   const tutti_coordinator_meet_request *request, tutti_error *err)
{
    const coord_group *group = who->group;
    const uint64_t limit = group->job->owner->options.exchange_round_limit;
    const coord_agent *needed;

    if (request->kind == TUTTI_COORDINATOR_ALL_GATHER) {
        needed = coord_group_find_lost(group);
    } else {
        needed = group->job->seats[coord_group_rank(group, request->root)];
    }
    if (needed != NULL && needed->state != TUTTI_COORDINATOR_ALIVE) {
        return coord_fail_lost(group, needed, err);
    }
    if (channel != NULL && channel->live_count >= limit) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "MEETING_LIMIT",
                              "group %s: rank %" PRIu32 " is %" PRIu32
                              " calls ahead of another member, the limit (--meeting-limit)",
                              group->name, who->agent->rank, channel->live_count);
    }
    return TUTTI_OK;
}

static tutti_code
begin_round(const caller *who, coord_channel *channel,
            const tutti_coordinator_meet_request *request, coord_exchange_round **ret_round,
            tutti_error *err)
{
    tutti_code code = check_metadata_new(who, channel, request, err);

    if (code == TUTTI_OK && channel == NULL) {
        code = coord_channel_open(who->group, request->key, &channel, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    code = coord_exchange_round_new(channel, request->kind, request->root, ret_round, err);
    if (code != TUTTI_OK) {
        coord_channel_settle(channel);
    }
    return code;
}

/* ------------------------------------------------------------------------------ parked */

static void
answer_metadata(tutti_coordinator_meet *meet, const tutti_error *err)
{
    coord_exchange_round *round = meet->round;

    coord_exchange_round_leave(meet);
    meet->on_answer(meet, NULL, 0, err);
    coord_exchange_round_settle(round);
}

/*
 * The call's time is up, or the coordinator drains. If the answer is on its way already, it is
 * given. A deadline fails the round for all: the others would wait for a member that has given
 * up.
 */
static void
on_end(tutti_coordinator_pending_call *wait, const tutti_error *err)
{
    tutti_coordinator_meet *meet = tutti_container_of(wait, tutti_coordinator_meet, wait);
    coord_exchange_round *round = meet->round;
    tutti_error missing;

    if (err == NULL && round->state != COORD_EXCHANGE_ROUND_OPEN) {
        coord_defer(round->owner, &round->work);
        return;
    }
    if (err == NULL) {
        say_metadata_missing(round, &missing);
        coord_exchange_round_fail(round, &missing);
        err = &missing;
    }
    answer_metadata(meet, err);
}

static void
wait_for_round(tutti_coordinator *self, coord_exchange_round *round, tutti_coordinator_meet *meet,
               uint64_t deadline_ns)
{
    meet->wait.on_end = on_end;
    coord_wait_start(self, &meet->wait, true, deadline_ns);
    coord_exchange_round_wait(round, meet);
    coord_exchange_round_settle(round);
}

/*
 * A call with the token of an earlier call of this member: it takes that call's place in the
 * round, whether that still waits, has gone, or was answered.
 */
static tutti_code
resume_metadata(tutti_coordinator *self, coord_exchange_round *round,
                const tutti_coordinator_meet_request *request, tutti_coordinator_meet *meet,
                tutti_error *err)
{
    tutti_coordinator_meet *old = round->places[meet->position].meet;
    tutti_error superseded;

    if (round->kind != request->kind) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "METHOD_MISMATCH",
                              "the token belongs to a call of %s", kind_name(round->kind));
    }
    if (old != NULL) {
        coord_exchange_round_leave(old);
        (void)TUTTI_FAIL_FOR(&superseded, TUTTI_ABORTED, "SUPERSEDED",
                             "another call with the same token took this one's place");
        old->on_answer(old, NULL, 0, &superseded);
    }
    wait_for_round(self, round, meet, request->deadline_ns);
    return TUTTI_OK;
}

static tutti_code
enter_round(tutti_coordinator *self, const caller *who, tutti_coordinator_meet_request *request,
            tutti_coordinator_meet *meet, tutti_error *err)
{
    coord_channel *channel = coord_channel_find(who->group, request->key);
    coord_exchange_round *round = coord_channel_find_token(channel, who->position, request->token);
    tutti_code code = TUTTI_OK;

    meet->position = who->position;
    if (round != NULL) {
        return resume_metadata(self, round, request, meet, err);
    }
    round = coord_channel_find_next(channel, who->position);
    if (round == NULL) {
        code = begin_round(who, channel, request, &round, err);
    } else {
        check_fit(round, who, request);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    code = coord_exchange_round_join(round, who->position, request, err);
    if (code != TUTTI_OK) {
        coord_exchange_round_settle(round); /* it may have begun for nothing */
        return code;
    }
    wait_for_round(self, round, meet, request->deadline_ns);
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_meet_start(tutti_coordinator *self, tutti_coordinator_meet_request *request,
                             tutti_coordinator_meet *meet, tutti_error *err)
{
    caller who = {0};
    tutti_code code = coord_wait_check(self, err);

    if (code == TUTTI_OK) {
        code = check_sizes(request, err);
    }
    if (code == TUTTI_OK) {
        code = check_caller(self, request, &who, err);
    }
    if (code == TUTTI_OK) {
        code = enter_round(self, &who, request, meet, err);
    }
    free(request->value); /* what nobody took over */
    request->value = NULL;
    return code;
}

void
tutti_coordinator_meet_withdraw(tutti_coordinator_meet *meet)
{
    coord_exchange_round *round = meet->round;

    if (meet->wait.owner == NULL) {
        return;
    }
    /* Without a token nobody can come back to this place: as if it had not called. */
    if (round->state == COORD_EXCHANGE_ROUND_OPEN && round->places[meet->position].token == 0) {
        coord_exchange_round_unjoin(round, meet->position);
    }
    coord_exchange_round_leave(meet);
    coord_exchange_round_settle(round);
}
