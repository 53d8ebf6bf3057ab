/*
 * The holders of a group are a list: a group has few leases, one for each member that called with one. A member that
 * calls again with the same lease is there once. The coordinator does not know which leases are open, so what a
 * caller says is limited: of more than MEMBER_LEASES_MAX of one member the oldest gives way.
 */
#include "server/coordinator/group/hold.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/agent.h"
#include "server/coordinator/member/seats.h"

tutti_code
coord_hold_begin(coord_hold *hold, const coord_agent *agent, tutti_error *err)
{
    hold->agent = agent;
    if (hold->lease == 0) {
        return TUTTI_OK;
    }
    hold->holder = calloc(1, sizeof(*hold->holder));
    if (hold->holder == NULL) {
        return coord_fail_memory(err, "a lease of a group");
    }
    tutti_list_init(&hold->holder->link);
    hold->holder->rank = agent->rank;
    hold->holder->incarnation = agent->incarnation;
    hold->holder->lease = hold->lease;
    return TUTTI_OK;
}

#define MEMBER_LEASES_MAX 16

static bool
is_of_agent(const coord_holder *self, uint32_t rank, uint64_t incarnation)
{
    return self->rank == rank && self->incarnation == incarnation;
}

/* Room for one more of the same agent. */
static void
forget_oldest(coord_group *group, const coord_holder *more)
{
    tutti_list_node *link;
    coord_holder *oldest = NULL;
    unsigned count = 0;

    for (link = group->holders.next; link != &group->holders; link = link->next) {
        coord_holder *one = tutti_container_of(link, coord_holder, link);

        if (is_of_agent(one, more->rank, more->incarnation)) {
            oldest = oldest == NULL ? one : oldest;
            count++;
        }
    }
    if (count >= MEMBER_LEASES_MAX) {
        tutti_list_remove(&oldest->link);
        free(oldest);
    }
}

static bool
is_held_by(const coord_group *group, const coord_holder *who)
{
    const tutti_list_node *link;

    for (link = group->holders.next; link != &group->holders; link = link->next) {
        const coord_holder *one = tutti_container_of(link, coord_holder, link);

        if (is_of_agent(one, who->rank, who->incarnation) && one->lease == who->lease) {
            return true;
        }
    }
    return false;
}

void
coord_hold_end(coord_hold *hold, coord_group *group, bool created)
{
    const bool leased =
        group != NULL && hold->holder != NULL && (created || !tutti_list_empty(&group->holders));

    if (group != NULL && created && (hold->ephemeral || hold->lease != 0)) {
        group->made_epoch = hold->agent->job->epoch;
    }
    if (leased && !is_held_by(group, hold->holder)) {
        forget_oldest(group, hold->holder);
        tutti_list_add(&group->holders, &hold->holder->link);
        hold->holder = NULL;
    }
    free(hold->holder);
    hold->holder = NULL;
}

/* Take holders out. [in] lease  0 = all of this agent. True: it had some, and has none now. */
static bool
let_go(coord_group *group, const coord_agent *agent, uint64_t lease)
{
    tutti_list_node *link;
    tutti_list_node *spare;
    bool any = false;

    tutti_list_each(link, spare, &group->holders)
    {
        coord_holder *one = tutti_container_of(link, coord_holder, link);

        if (is_of_agent(one, agent->rank, agent->incarnation) &&
            (lease == 0 || one->lease == lease)) {
            tutti_list_remove(&one->link);
            free(one);
            any = true;
        }
    }
    return any && tutti_list_empty(&group->holders);
}

/* Is an agent there that was a member when the group was made? */
static bool
is_kept_alive(const coord_group *group)
{
    uint32_t i;

    for (i = 0; i < group->count; i++) {
        const coord_agent *agent = group->job->seats[coord_group_rank(group, i)];

        if (agent != NULL && agent->state == TUTTI_COORDINATOR_ALIVE &&
            agent->joined_epoch <= group->made_epoch) {
            return true;
        }
    }
    return false;
}

static void
end_with(coord_group *group, const char *what)
{
    coord_note(group->job->owner, "job %s: group %s goes with its last %s", group->job->name,
               group->name, what);
    coord_group_delete(group);
}

void
coord_groups_lose(const coord_agent *agent)
{
    coord_job *job = agent->job;
    tutti_map_node *node;
    tutti_map_node *next;
    uint32_t position;

    for (node = tutti_map_first(&job->groups); node != NULL; node = next) {
        coord_group *group = coord_group_from(node);

        next = tutti_map_next(node);
        if (group->made_epoch == 0 || !coord_group_position(group, agent->rank, &position)) {
            continue;
        }
        if (let_go(group, agent, 0)) {
            end_with(group, "lease");
        } else if (!is_kept_alive(group)) {
            end_with(group, "agent");
        }
    }
}

tutti_code
tutti_coordinator_group_release(tutti_coordinator *self, const tutti_coordinator_member *member,
                                uint64_t lease, bool *ret_deleted, tutti_error *err)
{
    coord_agent *agent = NULL;
    tutti_map_node *node;
    tutti_map_node *next;

    TUTTI_TRY(coord_member_check(self, member, &agent, err));
    *ret_deleted = false;
    for (node = tutti_map_first(&agent->job->groups); node != NULL; node = next) {
        coord_group *group = coord_group_from(node);

        next = tutti_map_next(node);
        if (let_go(group, agent, lease)) {
            end_with(group, "lease");
            *ret_deleted = true;
        }
    }
    return TUTTI_OK;
}
