/* Who waits for a key or watches a prefix. */
#ifndef TUTTI_SERVER_COORDINATOR_KV_KEY_SUBSCRIPTION_H
#define TUTTI_SERVER_COORDINATOR_KV_KEY_SUBSCRIPTION_H

#include <stdbool.h>

#include "base/data/list.h"
#include "base/data/map.h"

typedef struct coord_topic {
    tutti_map_node node;
    tutti_link members;
    unsigned char key[];
} coord_topic;

/*
 * Put `link` to the topic of a key.
 *
 * [out] ret_created  it is the first there; NULL is fine
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code coord_topic_add(tutti_map *topics, tutti_bytes key, tutti_link *link,
                           coord_topic **ret_topic, bool *ret_created, tutti_error *err);

/* NULL = nobody cares. */
coord_topic *coord_topic_find(const tutti_map *topics, tutti_bytes key);

/* Take `link` out. Returns true when it was the last, and the topic is gone. */
bool coord_topic_remove(tutti_map *topics, coord_topic *topic, tutti_link *link);

#endif
