#include <inttypes.h>

#include "base/error/fail.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/metadata/exchange_round.h"
#include "server/coordinator/metadata/metadata.h"

tutti_code
coord_fail_lost(const coord_group *group, const coord_agent *agent, tutti_error *err)
{
    (void)TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "RANK_LOST",
                         "rank %" PRIu32 " of group %s is lost: %s", agent->rank, group->name,
                         agent->reason);
    tutti_error_set_op(err, group->name, 0, (int32_t)agent->rank);
    return TUTTI_UNAVAILABLE;
}

static void
lose_in_meeting(coord_meeting *meeting, uint32_t position, const coord_agent *agent)
{
    coord_place *place = &meeting->places[position];
    const bool needed = meeting->kind == TUTTI_COORDINATOR_ALL_GATHER || position == meeting->root;
    tutti_coordinator_meet *meet = place->meet;
    tutti_error err;

    (void)coord_fail_lost(meeting->channel->group, agent, &err);
    if (meeting->state == COORD_MEETING_OPEN && needed && !place->came) {
        coord_meeting_fail(meeting, &err);
    }
    if (meet != NULL) { /* somebody called in its name */
        coord_meeting_leave(meet);
        meet->on_answer(meet, NULL, 0, &err);
    }
    coord_meeting_excuse(meeting, position);
    place->token = 0;
    coord_meeting_settle(meeting);
}

static void
lose_in_group(coord_group *group, uint32_t position, const coord_agent *agent)
{
    tutti_map_node *node = tutti_map_first(&group->channels);

    while (node != NULL) {
        coord_channel *channel = tutti_container_of(node, coord_channel, node);
        tutti_link *link = channel->meetings.next;

        node = tutti_map_next(node); /* the channel goes with its last meeting */
        while (link != &channel->meetings) {
            coord_meeting *meeting = tutti_container_of(link, coord_meeting, link);
            const bool last = link->next == &channel->meetings;

            link = link->next;
            lose_in_meeting(meeting, position, agent);
            if (last) {
                break;
            }
        }
    }
}

void
coord_meetings_lose(const coord_agent *agent)
{
    tutti_link *link;
    tutti_link *spare;
    uint32_t position;

    tutti_list_each(link, spare, &agent->job->talking)
    {
        coord_group *group = tutti_container_of(link, coord_group, talking);

        if (coord_group_position(group, agent->rank, &position)) {
            lose_in_group(group, position, agent);
        }
    }
}
