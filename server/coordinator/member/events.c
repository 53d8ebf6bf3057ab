/*
 * The events of a job: one for each rank whose state has changed, and for each group that was
 * aborted or deleted, in a map by number. An event is embedded in the agent or group that it is about, so publishing
 * allocates nothing and cannot fail. A rank that changes again takes a new number and leaves its
 * old one: readers hear the last change only.
 *
 * Sessions and watches hold a number, not a pointer, so events may go at any time. Agents are
 * bounded by the world; deleted groups are kept up to COORD_DELETED_MAX, and `trimmed` tells a
 * session that it has missed one (session.c ends it, so that the agent asks anew).
 */
#include "server/coordinator/member/events.h"

#include <assert.h>
#include <string.h>

#include "server/coordinator/core/hooks.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"

void
coord_events_init(coord_job *job)
{
    tutti_map_init(&job->events);
    tutti_list_init(&job->deleted);
}

/* The memory of a deleted group is its event: when the event is forgotten, so is the group. */
static void
forget_deleted(coord_job *job, coord_event *event)
{
    tutti_list_remove(&event->deleted);
    job->deleted_count--;
    coord_event_remove(job, event);
    job->owner->hooks->drop_deleted(event);
}

void
coord_events_fini(coord_job *job)
{
    while (!tutti_list_empty(&job->deleted)) {
        forget_deleted(job, tutti_container_of(job->deleted.next, coord_event, deleted));
    }
}

static void
trim_events(coord_job *job)
{
    if (job->deleted_count > COORD_DELETED_MAX) {
        coord_event *oldest = tutti_container_of(job->deleted.next, coord_event, deleted);

        job->trimmed = oldest->number;
        forget_deleted(job, oldest);
    }
}

void
coord_event_publish(coord_job *job, coord_event *event)
{
    tutti_map_node *there;

    /* Out of its old place first: the number is the map's key. */
    coord_event_remove(job, event);
    event->number = ++job->event_count;
    job->event_moves++;
    event->node.key = tutti_map_key_u64(event->key, event->number);
    there = tutti_map_add(&job->events, &event->node);
    assert(there == NULL);
    if (event->of_group && event->abort == NULL) {
        tutti_list_add(&job->deleted, &event->deleted);
        job->deleted_count++;
        trim_events(job);
    }
    job->owner->hooks->wake_sessions(job);
    if (!event->of_group) {
        job->owner->hooks->wake_member_watches(job);
    }
}

void
coord_event_remove(coord_job *job, coord_event *event)
{
    if (event->number != 0) {
        tutti_map_remove(&job->events, &event->node);
        event->number = 0;
        job->event_moves++;
    }
}

coord_event *
coord_event_after(const coord_job *job, uint64_t number)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_from(&job->events, tutti_map_key_u64(key, number + 1));

    return node == NULL ? NULL : tutti_container_of(node, coord_event, node);
}

static tutti_coordinator_event_kind
kind_of_events(const coord_agent *agent)
{
    if (agent->state == TUTTI_COORDINATOR_LOST) {
        return TUTTI_COORDINATOR_RANK_LOST;
    }
    return agent->reason[0] == '\0' ? TUTTI_COORDINATOR_RANK_JOINED
                                    : TUTTI_COORDINATOR_RANK_LEAVING;
}

void
coord_event_describe(const coord_event *event, tutti_coordinator_event *ret_event)
{
    const coord_agent *agent;

    if (event->of_group) {
        *ret_event = (tutti_coordinator_event){.kind = event->abort == NULL
                                                           ? TUTTI_COORDINATOR_GROUP_DELETED
                                                           : TUTTI_COORDINATOR_GROUP_ABORTED,
                                               .group_id = event->group_id,
                                               .group_name = event->group_name,
                                               .abort = event->abort};
        return;
    }
    agent = tutti_container_of(event, coord_agent, event);
    *ret_event = (tutti_coordinator_event){
        .kind = kind_of_events(agent),
        .rank = agent->rank,
        .incarnation = agent->incarnation,
        .epoch = agent->changed_epoch,
        .reason = agent->reason,
        .left = strncmp(agent->reason, COORD_LEFT, strlen(COORD_LEFT)) == 0,
    };
}
