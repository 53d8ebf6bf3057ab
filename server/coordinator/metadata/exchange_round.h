/*
 * Exchange round: the k-th calls of all members on one (group, key). Private to this folder.
 *
 *   group -- channel (key) -- exchange rounds, the oldest first -- a place for each member
 *
 * A member's next call goes to the first round that it has not come to, or to a new one. So
 * nobody counts: a round that all have come to is over, and a channel without rounds is gone.
 *
 * States: OPEN -> DONE (the values are there) or OVER (failed); no way back. A round that was
 * called with tokens is kept when it is finished ("retired"), for --retry-window, for callers
 * that did not get their answer and ask again.
 */
#ifndef TUTTI_SERVER_COORDINATOR_METADATA_EXCHANGE_ROUND_H
#define TUTTI_SERVER_COORDINATOR_METADATA_EXCHANGE_ROUND_H

#include "server/coordinator/core/core.h"
#include "server/coordinator/core/types.h"
#include "server/coordinator/metadata/metadata.h"

#define COORD_RETIRED_MAX                                                                          \
    8 /* exchange rounds of a channel that are kept for calls with their token */

typedef struct coord_channel {
    tutti_map_node node; /* in its group */
    coord_group *group;
    tutti_list_node meetings;
    uint32_t live_count;
    uint32_t retired_count;
    size_t key_size;
    unsigned char key[TUTTI_COORDINATOR_MEET_KEY_MAX];
} coord_channel;

typedef enum coord_exchange_round_state {
    COORD_EXCHANGE_ROUND_OPEN, /* waits for values */
    COORD_EXCHANGE_ROUND_DONE, /* the values are there */
    COORD_EXCHANGE_ROUND_OVER, /* failed: `failure` says why */
} coord_exchange_round_state;

/* Where one member stands. */
typedef struct coord_place {
    uint64_t token;
    tutti_coordinator_meet *meet; /* its call that waits; NULL = none */
    bool came;                    /* it called, or is lost and not waited for */
    bool called;
} coord_place;

typedef struct coord_exchange_round {
    tutti_list_node link;   /* in its channel */
    coord_channel *channel; /* NULL = its group is gone */
    tutti_coordinator *owner;
    tutti_coordinator_meet_kind kind;
    uint32_t root;
    uint32_t count; /* members */
    coord_exchange_round_state state;
    uint32_t came_count;
    uint32_t called_count; /* of them, those that called */
    uint32_t value_count;
    bool has_tokens;
    bool retired;
    tutti_list_node retired_link;
    uint64_t retired_ns;
    size_t value_bytes;
    size_t bytes; /* of all it holds */
    tutti_list_node waiting;
    coord_task work; /* answers */
    coord_place *places;
    tutti_bytes *values; /* by group rank; of a Broadcast the only one */
    tutti_error failure;
} coord_exchange_round;

void coord_meetings_init(tutti_coordinator *self);
void coord_meetings_fini(tutti_coordinator *self);

/* ------------------------------------------------------------------------------ exchange.c */

/* NULL = there is none: nobody has called, or all calls are over. */
coord_channel *coord_channel_find(const coord_group *group, tutti_bytes key);

/* TUTTI_RESOURCE_EXHAUSTED no memory */
tutti_code coord_channel_open(coord_group *group, tutti_bytes key, coord_channel **ret_channel,
                              tutti_error *err);

/* Without exchange rounds it goes. */
void coord_channel_settle(coord_channel *channel);

/* The exchange round this member came to with this token before; NULL = none. `channel` may be
 * NULL. */
coord_exchange_round *coord_channel_find_token(const coord_channel *channel, uint32_t position,
                                               uint64_t token);

/* The first exchange round it has not come to; NULL = it has come to all. `channel` may be NULL. */
coord_exchange_round *coord_channel_find_next(const coord_channel *channel, uint32_t position);

/* The group goes: who waits is told, and its channels are gone. */
void coord_meetings_delete(coord_group *group);

/* ------------------------------------------------------------------------------ metadata_lost.c */

/* The agent's rank is lost: what needs it fails, and nobody waits for it any more. */
void coord_meetings_lose(const coord_agent *agent);

/* TUTTI_UNAVAILABLE, RANK_LOST: always. */
tutti_code coord_fail_lost(const coord_group *group, const coord_agent *agent, tutti_error *err);

/* ------------------------------------------------------------------------------ exchange_round.c
 */

/*
 * A new exchange round at the end of a channel; members that are lost count as come.
 *
 * TUTTI_RESOURCE_EXHAUSTED  METADATA_LIMIT; no memory
 */
tutti_code coord_exchange_round_new(coord_channel *channel, tutti_coordinator_meet_kind kind,
                                    uint32_t root, coord_exchange_round **ret_round,
                                    tutti_error *err);

/*
 * The member comes, with what it gives. On success the value is taken over (request->value is
 * NULL then); on failure it stays the caller's.
 *
 * TUTTI_RESOURCE_EXHAUSTED METADATA_LIMIT
 */
tutti_code coord_exchange_round_join(coord_exchange_round *round, uint32_t position,
                                     tutti_coordinator_meet_request *request, tutti_error *err);

/* The member's call was withdrawn: as if it had not called. Only of an open round. */
void coord_exchange_round_unjoin(coord_exchange_round *round, uint32_t position);

/* The member is not waited for any more. What needs it must have failed before. */
void coord_exchange_round_excuse(coord_exchange_round *round, uint32_t position);

/* Over, for this reason. Who waits is answered in slices. */
void coord_exchange_round_fail(coord_exchange_round *round, const tutti_error *err);

/* Park a call in its place; it is answered when the exchange round is done or over. */
void coord_exchange_round_wait(coord_exchange_round *round, tutti_coordinator_meet *meet);

/* The call no longer waits, and is no longer in its place. */
void coord_exchange_round_leave(tutti_coordinator_meet *meet);

/*
 * After anything changed: is it done? May it go? The exchange round, and its channel, may be gone
 * when this returns.
 */
void coord_exchange_round_settle(coord_exchange_round *round);

#endif
