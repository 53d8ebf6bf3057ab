/*
 * What a lost rank does to exchange rounds. A round that still needs its value fails for all; in
 * any other it is not waited for any more, and what it gave stays. If the rank comes back it
 * begins with the first round that nobody had begun, because its new process does not know how
 * many calls the old one made.
 */
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
lose_in_round(coord_exchange_round *round, uint32_t position, const coord_agent *agent)
{
    coord_place *place = &round->places[position];
    const bool needed = round->kind == TUTTI_COORDINATOR_ALL_GATHER || position == round->root;
    tutti_coordinator_meet *meet = place->meet;
    tutti_error err;

    (void)coord_fail_lost(round->channel->group, agent, &err);
    if (round->state == COORD_EXCHANGE_ROUND_OPEN && needed && !place->came) {
        coord_exchange_round_fail(round, &err);
    }
    if (meet != NULL) { /* its call still waits */
        coord_exchange_round_leave(meet);
        meet->on_answer(meet, NULL, 0, &err);
    }
    coord_exchange_round_excuse(round, position);
    place->token = 0;
    coord_exchange_round_settle(round);
}

static void
lose_in_group(coord_group *group, uint32_t position, const coord_agent *agent)
{
    tutti_map_node *node = tutti_map_first(&group->channels);

    while (node != NULL) {
        coord_channel *channel = tutti_container_of(node, coord_channel, node);
        tutti_list_node *link = channel->meetings.next;

        node = tutti_map_next(node); /* the channel goes with its last exchange round */
        while (link != &channel->meetings) {
            coord_exchange_round *round = tutti_container_of(link, coord_exchange_round, link);
            const bool last = link->next == &channel->meetings;

            link = link->next;
            lose_in_round(round, position, agent);
            /* Behind the last round the channel may be gone, and the list's head with it. */
            if (last) {
                break;
            }
        }
    }
}

void
coord_meetings_lose(const coord_agent *agent)
{
    tutti_list_node *link;
    tutti_list_node *spare;
    uint32_t position;

    tutti_list_each(link, spare, &agent->job->talking)
    {
        coord_group *group = tutti_container_of(link, coord_group, talking);

        if (coord_group_position(group, agent->rank, &position)) {
            lose_in_group(group, position, agent);
        }
    }
}
