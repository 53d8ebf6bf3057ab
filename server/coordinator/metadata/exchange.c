/*
 * Channels: the exchange rounds of one (group, key), the oldest first. A channel exists while it
 * has rounds, and a group with channels is in its job's list `talking`, by which a lost rank
 * finds the rounds that it is in.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/metadata/exchange_round.h"

coord_channel *
coord_channel_find(const coord_group *group, tutti_bytes key)
{
    tutti_map_node *node = tutti_map_find(&group->channels, key);

    return node == NULL ? NULL : tutti_container_of(node, coord_channel, node);
}

tutti_code
coord_channel_open(coord_group *group, tutti_bytes key, coord_channel **ret_channel,
                   tutti_error *err)
{
    coord_channel *channel = calloc(1, sizeof(*channel));
    tutti_map_node *there;

    assert(key.size <= sizeof(channel->key));
    if (channel == NULL) {
        return coord_fail_memory(err, "a key of metadata calls");
    }
    channel->group = group;
    channel->key_size = key.size;
    if (key.size > 0) {
        memcpy(channel->key, key.data, key.size);
    }
    channel->node.key = (tutti_bytes){channel->key, key.size};
    tutti_list_init(&channel->meetings);
    there = tutti_map_add(&group->channels, &channel->node);
    assert(there == NULL);
    if (group->channels.count == 1) {
        tutti_list_add(&group->job->talking, &group->talking);
    }
    *ret_channel = channel;
    return TUTTI_OK;
}

void
coord_channel_settle(coord_channel *channel)
{
    if (!tutti_list_empty(&channel->meetings)) {
        return;
    }
    tutti_map_remove(&channel->group->channels, &channel->node);
    if (channel->group->channels.count == 0) {
        tutti_list_remove(&channel->group->talking);
    }
    free(channel);
}

coord_exchange_round *
coord_channel_find_token(const coord_channel *channel, uint32_t position, uint64_t token)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    if (channel == NULL || token == 0) {
        return NULL;
    }
    tutti_list_each(link, spare, &channel->meetings)
    {
        coord_exchange_round *round = tutti_container_of(link, coord_exchange_round, link);

        if (round->places[position].token == token) {
            return round;
        }
    }
    return NULL;
}

/*
 * The first round that this member has not come to. Rounds are in order, so the k-th call of each
 * member finds the k-th round without counting.
 */
coord_exchange_round *
coord_channel_find_next(const coord_channel *channel, uint32_t position)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    if (channel == NULL) {
        return NULL;
    }
    tutti_list_each(link, spare, &channel->meetings)
    {
        coord_exchange_round *round = tutti_container_of(link, coord_exchange_round, link);

        if (!round->places[position].came) {
            return round;
        }
    }
    return NULL;
}

static void
delete_channel(coord_channel *channel, const tutti_error *err)
{
    while (!tutti_list_empty(&channel->meetings)) {
        coord_exchange_round *round =
            tutti_container_of(channel->meetings.next, coord_exchange_round, link);

        tutti_list_remove(&round->link);
        tutti_list_remove(&round->retired_link);
        /*
         * Calls that wait are answered in slices after the group is gone: the round lives on
         * without its channel until then.
         */
        round->channel = NULL;
        if (round->state == COORD_EXCHANGE_ROUND_OPEN) {
            coord_exchange_round_fail(round, err);
        }
        round->retired = false;
        coord_exchange_round_settle(round);
    }
    coord_channel_settle(channel);
}

void
coord_meetings_delete(coord_group *group)
{
    tutti_map_node *node;
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_NOT_FOUND, "NO_GROUP", "group %s was deleted", group->name);
    tutti_error_set_op(&err, group->name, 0, TUTTI_ERROR_RANK_NONE);
    while ((node = tutti_map_first(&group->channels)) != NULL) {
        delete_channel(tutti_container_of(node, coord_channel, node), &err);
    }
}
