/*
 * Queues, and taking: what one caller gets and no other one.
 *
 * A queue is begun by its first value and gone with its last. In the store it is a record with the
 * numbers of its first and next value, and a record for each value, so pushing and taking cost the
 * same however long it is.
 *
 * See keys.h for keys, and coordinator.h for threads, time and what parked means.
 */
#ifndef TUTTI_SERVER_COORDINATOR_KV_QUEUE_H
#define TUTTI_SERVER_COORDINATOR_KV_QUEUE_H

#include "base/data/map.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/retry_cache.h"

/*
 * Put a value at the end. `ret_changed` has the new length.
 *
 * TUTTI_INVALID_ARGUMENT    BAD_KEY, VALUE_LIMIT
 * TUTTI_RESOURCE_EXHAUSTED  STORE_LIMIT
 */
tutti_code tutti_coordinator_queue_push(tutti_coordinator *self,
                                        const tutti_coordinator_change *change, tutti_bytes value,
                                        tutti_coordinator_changed *ret_changed, tutti_error *err);

/* 0 = there is none. */
tutti_code tutti_coordinator_queue_length(tutti_coordinator *self, const tutti_coordinator_key *key,
                                          uint64_t *ret_length, tutti_error *err);

/* A parked Take or QueuePop. Zero it and set the callback. */
typedef struct tutti_coordinator_take tutti_coordinator_take;
struct tutti_coordinator_take {
    /* The value and its version, lent while it runs. */
    void (*on_answer)(tutti_coordinator_take *take, const tutti_store_entry *entry,
                      const tutti_error *err);
    /* The coordinator's: */
    tutti_coordinator_pending_call wait;
    tutti_list_node link;  /* in its subscription */
    tutti_list_node ready; /* among those that may find something */
    struct coord_key_subscription *subscription;
    struct coord_take_place *place;
};

typedef struct tutti_coordinator_take_request {
    tutti_coordinator_key key; /* borrowed for the call only */
    bool from_queue;           /* else the value of the key */
    bool at_once;
    uint64_t token;
    uint64_t deadline_ns;
} tutti_coordinator_take_request;

/*
 * Take a value: wait until there is one, in the order in which callers came.
 *
 * TUTTI_OK                  parked
 * TUTTI_INVALID_ARGUMENT    BAD_NAME, BAD_KEY
 * TUTTI_NOT_FOUND           at once: NO_KEY, QUEUE_EMPTY
 * TUTTI_RESOURCE_EXHAUSTED  WAITER_LIMIT: calls, or bytes of keys; no memory
 * TUTTI_UNAVAILABLE         DRAINING
 *
 * The answer, beside OK:
 *
 * TUTTI_DEADLINE_EXCEEDED   TIMEOUT
 * TUTTI_UNAVAILABLE         DRAINING
 * TUTTI_ABORTED             SUPERSEDED: another call with its token took its place
 * TUTTI_RESOURCE_EXHAUSTED  no memory: the value stays
 */
tutti_code tutti_coordinator_take_start(tutti_coordinator *self,
                                        const tutti_coordinator_take_request *request,
                                        tutti_coordinator_take *take, tutti_error *err);

void tutti_coordinator_take_withdraw(tutti_coordinator_take *take);

/*
 * The first value of a queue. Lent by the store.
 *
 * TUTTI_NOT_FOUND  QUEUE_EMPTY
 */
tutti_code coord_queue_first(tutti_coordinator *self, const coord_full_key *full,
                             tutti_store_entry *ret_entry, tutti_error *err);

/* Remove it. */
tutti_code coord_queue_drop(tutti_coordinator *self, const coord_full_key *full, coord_ride *ride,
                            tutti_error *err);

bool coord_queue_exists(tutti_coordinator *self, const coord_full_key *full);

#endif
