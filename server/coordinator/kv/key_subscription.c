#include "server/coordinator/kv/key_subscription.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/core/core.h"

coord_topic *
coord_topic_find(const tutti_map *topics, tutti_bytes key)
{
    tutti_map_node *node = tutti_map_find(topics, key);

    return node == NULL ? NULL : tutti_container_of(node, coord_topic, node);
}

static coord_topic *
topic_new(tutti_map *topics, tutti_bytes key)
{
    coord_topic *topic = calloc(1, sizeof(*topic) + key.size);
    tutti_map_node *there;

    if (topic != NULL) {
        memcpy(topic->key, key.data, key.size);
        topic->node.key = (tutti_bytes){topic->key, key.size};
        tutti_list_init(&topic->members);
        there = tutti_map_add(topics, &topic->node);
        assert(there == NULL);
    }
    return topic;
}

tutti_code
coord_topic_add(tutti_map *topics, tutti_bytes key, tutti_link *link, coord_topic **ret_topic,
                bool *ret_created, tutti_error *err)
{
    coord_topic *topic = coord_topic_find(topics, key);
    const bool created = topic == NULL;

    if (created) {
        topic = topic_new(topics, key);
    }
    if (topic == NULL) {
        return coord_fail_memory(err, "a key that is waited for");
    }
    tutti_list_add(&topic->members, link);
    *ret_topic = topic;
    if (ret_created != NULL) {
        *ret_created = created;
    }
    return TUTTI_OK;
}

bool
coord_topic_remove(tutti_map *topics, coord_topic *topic, tutti_link *link)
{
    tutti_list_remove(link);
    if (!tutti_list_empty(&topic->members)) {
        return false;
    }
    tutti_map_remove(topics, &topic->node);
    free(topic);
    return true;
}
