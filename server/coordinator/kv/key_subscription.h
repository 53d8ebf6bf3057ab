/*
 * A subscription: a key that calls wait for, with the list of these calls.
 * It is made by the first and freed with the last of them. The map belongs to the caller: one for
 * waits, one for takes.
 */
#ifndef TUTTI_SERVER_COORDINATOR_KV_KEY_SUBSCRIPTION_H
#define TUTTI_SERVER_COORDINATOR_KV_KEY_SUBSCRIPTION_H

#include <stdbool.h>

#include "base/data/list.h"
#include "base/data/map.h"

typedef struct coord_key_subscription {
    tutti_map_node node;
    tutti_list_node members;
    unsigned char key[];
} coord_key_subscription;

/*
 * Put `link` to the subscription of a key.
 *
 * [out] ret_created  it is the first there; NULL is fine
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code coord_key_subscription_add(tutti_map *topics, tutti_bytes key, tutti_list_node *link,
                                      coord_key_subscription **ret_subscription, bool *ret_created,
                                      tutti_error *err);

/* NULL = no call has subscribed to this key. */
coord_key_subscription *coord_key_subscription_find(const tutti_map *topics, tutti_bytes key);

/* Take `link` out. Returns true when it was the last, and the subscription is gone. */
bool coord_key_subscription_remove(tutti_map *topics, coord_key_subscription *subscription,
                                   tutti_list_node *link);

#endif
