/*
 * Metadata: small values between the members of a group, matched by the order of their calls.
 *
 * The k-th calls of all members on one (group, key) are one exchange round. What a call does to it:
 *
 *   Broadcast   the root's call leaves its value and is answered; the others wait for the value.
 *   AllGather   each call leaves a value and waits for all of them.
 *
 * A call that is refused at once does not count. An exchange round that fails, by the deadline of
 * one of its calls, by a lost rank, by calls that do not fit together, is over for everybody: who
 * waits is told now, who comes later once. A caller that goes away before the end has not called,
 * unless its request carries a token: then its place (and its value) is kept for a call with that
 * token, also for a while after the end. A rank that is lost is not waited for any more, what it
 * gave stays; when it comes back, it begins with the first exchange round nobody had begun.
 *
 * See coordinator.h for threads, time and what parked means.
 */
#ifndef TUTTI_SERVER_COORDINATOR_METADATA_METADATA_H
#define TUTTI_SERVER_COORDINATOR_METADATA_METADATA_H

#include "server/coordinator/coordinator.h"
#include "server/coordinator/member/members.h"

#define TUTTI_COORDINATOR_MEET_KEY_MAX 127          /* bytes */
#define TUTTI_COORDINATOR_MEET_VALUE_MAX (1u << 20) /* bytes of one value */
#define TUTTI_COORDINATOR_MEET_TOGETHER_MAX                                                        \
    (3u << 20) /* bytes of all values of an exchange round */

typedef enum tutti_coordinator_meet_kind {
    TUTTI_COORDINATOR_BROADCAST,
    TUTTI_COORDINATOR_ALL_GATHER,
} tutti_coordinator_meet_kind;

typedef struct tutti_coordinator_meet_request {
    tutti_coordinator_meet_kind kind;
    tutti_coordinator_member member;
    const char *group; /* empty or NULL = "world" */
    tutti_bytes key;
    uint32_t root;  /* Broadcast: a group rank */
    uint64_t token; /* 0 = none */
    uint64_t deadline_ns;
    void *value; /* [in, moved] malloc()ed, also on failure; NULL when there are no bytes */
    size_t value_size;
} tutti_coordinator_meet_request;

/* A parked Broadcast or AllGather. Zero it and set the callback. */
typedef struct tutti_coordinator_meet tutti_coordinator_meet;
struct tutti_coordinator_meet {
    /*
     * The answer: the root's value (count 1) or all values by group rank; or `err` when that is
     * not NULL. Borrowed until it returns.
     */
    void (*on_answer)(tutti_coordinator_meet *meet, const tutti_bytes *values, size_t count,
                      const tutti_error *err);
    /* The coordinator's: */
    tutti_coordinator_pending_call wait;
    tutti_list_node link; /* in its exchange round's list */
    struct coord_exchange_round *round;
    uint32_t position; /* group rank */
};

/*
 * TUTTI_OK                   parked
 * TUTTI_INVALID_ARGUMENT     BAD_NAME, BAD_KEY, BAD_ROOT, VALUE_LIMIT
 * TUTTI_NOT_FOUND            NO_JOB, NO_RANK, NO_GROUP
 * TUTTI_FAILED_PRECONDITION  STALE_INCARNATION, NOT_IN_GROUP
 * TUTTI_UNAVAILABLE          RANK_LOST: a rank whose value is needed is gone; DRAINING
 * TUTTI_RESOURCE_EXHAUSTED   WAITER_LIMIT; MEETING_LIMIT: the caller is that many exchange rounds
 *                            ahead of another member; METADATA_LIMIT: bytes; no memory
 *
 * The answer, beside values:
 *
 * TUTTI_DEADLINE_EXCEEDED    MISSING_RANKS
 * TUTTI_UNAVAILABLE          RANK_LOST, DRAINING
 * TUTTI_NOT_FOUND            NO_GROUP: it was deleted
 * TUTTI_FAILED_PRECONDITION  ROOT_MISMATCH; METHOD_MISMATCH: one called Broadcast, another AllGather
 * TUTTI_INVALID_ARGUMENT     VALUE_LIMIT
 * TUTTI_ABORTED              SUPERSEDED: another call with its token took its place
 */
tutti_code tutti_coordinator_meet_start(tutti_coordinator *self,
                                        tutti_coordinator_meet_request *request,
                                        tutti_coordinator_meet *meet, tutti_error *err);

/* The caller went away. Not parked is fine. */
void tutti_coordinator_meet_withdraw(tutti_coordinator_meet *meet);

#endif
