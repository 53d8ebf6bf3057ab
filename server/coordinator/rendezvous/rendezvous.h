/*
 * Rendezvous: callers that know nothing of each other but a key and how many they are, meet.
 *
 * The last one to come ends it for all, and the key can be used again. Nothing is stored: what is
 * there is the calls that wait. See coordinator.h for threads, time and what parked means.
 */
#ifndef TUTTI_SERVER_COORDINATOR_RENDEZVOUS_RENDEZVOUS_H
#define TUTTI_SERVER_COORDINATOR_RENDEZVOUS_RENDEZVOUS_H

#include "base/data/map.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/kv/keys.h"

#define TUTTI_COORDINATOR_CALLER_NAME_MAX 1024 /* bytes */

/* What a caller learns. */
typedef struct tutti_coordinator_met {
    uint32_t rank;
    uint32_t root_rank; /* TUTTI_COORDINATOR_NO_CALLER = nobody said so */
    uint64_t hash;      /* of all names and ranks */
} tutti_coordinator_met;

#define TUTTI_COORDINATOR_NO_CALLER UINT32_MAX

/* A parked Meet. Zero it and set the callback. */
typedef struct tutti_coordinator_caller tutti_coordinator_caller;
struct tutti_coordinator_caller {
    void (*on_answer)(tutti_coordinator_caller *caller, const tutti_coordinator_met *met,
                      const tutti_error *err);
    /* The coordinator's: */
    tutti_coordinator_pending_call wait;
    tutti_list_node link;           /* in its rendezvous, or among those that have an answer */
    struct coord_rendezvous *round; /* NULL = it has its answer */
    tutti_map_node node;            /* by its token, while it waits */
    void *which;                    /* the token's bytes */
    tutti_bytes name;
    uint64_t order;
    uint32_t stated; /* TUTTI_COORDINATOR_NO_CALLER = to be assigned */
    bool is_root;
    size_t bytes;
    tutti_coordinator_met met;
    const char *refused; /* the reason; NULL = it went well */
    uint32_t other;      /* the count or rank that does not fit */
    uint32_t count;
};

typedef struct tutti_coordinator_caller_request {
    tutti_coordinator_key key; /* borrowed for the call only */
    uint32_t count;
    uint32_t rank; /* TUTTI_COORDINATOR_NO_CALLER = assign one */
    bool is_root;
    tutti_bytes name; /* borrowed until the call is no longer parked */
    uint64_t token;
    uint64_t deadline_ns;
} tutti_coordinator_caller_request;

/*
 * Come, and wait for the others.
 *
 * TUTTI_OK                  parked
 * TUTTI_INVALID_ARGUMENT    BAD_NAME, BAD_KEY; GROUP_SIZE: no count, too many, or another one than
 *                           those that wait (they are told too); RANK_RANGE; NAME_LIMIT
 * TUTTI_RESOURCE_EXHAUSTED  WAITER_LIMIT: calls, or bytes of keys and names; no memory
 * TUTTI_UNAVAILABLE         DRAINING
 *
 * The answer, beside OK:
 *
 * TUTTI_INVALID_ARGUMENT    GROUP_SIZE, DUPLICATE_RANK
 * TUTTI_DEADLINE_EXCEEDED   TIMEOUT
 * TUTTI_UNAVAILABLE         DRAINING
 * TUTTI_ABORTED             SUPERSEDED: another call with its token took its place
 */
tutti_code tutti_coordinator_caller_start(tutti_coordinator *self,
                                          const tutti_coordinator_caller_request *request,
                                          tutti_coordinator_caller *caller, tutti_error *err);

/* It has not come. */
void tutti_coordinator_caller_withdraw(tutti_coordinator_caller *caller);

#endif
