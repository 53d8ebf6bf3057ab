/*
 * Subscriptions: which calls are interested in a key (key_subscription.h). A subscription exists
 * exactly as long as its list is not empty, so no map grows by keys that nobody waits for any
 * more.
 */
#include "server/coordinator/kv/key_subscription.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/core/core.h"

coord_key_subscription *
coord_key_subscription_find(const tutti_map *topics, tutti_bytes key)
{
    tutti_map_node *node = tutti_map_find(topics, key);

    return node == NULL ? NULL : tutti_container_of(node, coord_key_subscription, node);
}

static coord_key_subscription *
subscription_new(tutti_map *topics, tutti_bytes key)
{
    coord_key_subscription *subscription = calloc(1, sizeof(*subscription) + key.size);
    tutti_map_node *there;

    if (subscription != NULL) {
        memcpy(subscription->key, key.data, key.size);
        subscription->node.key = (tutti_bytes){subscription->key, key.size};
        tutti_list_init(&subscription->members);
        there = tutti_map_add(topics, &subscription->node);
        assert(there == NULL);
    }
    return subscription;
}

tutti_code
coord_key_subscription_add(tutti_map *topics, tutti_bytes key, tutti_list_node *link,
                           coord_key_subscription **ret_subscription, bool *ret_created,
                           tutti_error *err)
{
    coord_key_subscription *subscription = coord_key_subscription_find(topics, key);
    const bool created = subscription == NULL;

    if (created) {
        subscription = subscription_new(topics, key);
    }
    if (subscription == NULL) {
        return coord_fail_memory(err, "a key that is waited for");
    }
    tutti_list_add(&subscription->members, link);
    *ret_subscription = subscription;
    if (ret_created != NULL) {
        *ret_created = created;
    }
    return TUTTI_OK;
}

bool
coord_key_subscription_remove(tutti_map *topics, coord_key_subscription *subscription,
                              tutti_list_node *link)
{
    tutti_list_remove(link);
    if (!tutti_list_empty(&subscription->members)) {
        return false;
    }
    tutti_map_remove(topics, &subscription->node);
    free(subscription);
    return true;
}
