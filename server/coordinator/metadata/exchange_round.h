/*
 * Meeting: the k-th calls of all members on one (group, key). Private to this folder.
 *
 *   group ── channel (key) ── meetings, the oldest first ── a place for each member
 *
 * A member's next call goes to the first meeting it has not come to, or to a new one. So nobody
 * counts: a meeting that all have come to is over, and a channel without meetings is gone.
 *
 * A meeting that was asked for with tokens outlives its channel's need for it: it is "retired", for
 * callers that did not get their answer and ask again.
 */
#ifndef TUTTI_SERVER_COORDINATOR_METADATA_EXCHANGE_ROUND_H
#define TUTTI_SERVER_COORDINATOR_METADATA_EXCHANGE_ROUND_H

#include "server/coordinator/core/core.h"
#include "server/coordinator/core/types.h"
#include "server/coordinator/metadata/metadata.h"

#define COORD_RETIRED_MAX 8 /* meetings of a channel that are kept for calls with their token */

typedef struct coord_channel {
    tutti_map_node node; /* in its group */
    coord_group *group;
    tutti_link meetings;
    uint32_t live_count;
    uint32_t retired_count;
    size_t key_size;
    unsigned char key[TUTTI_COORDINATOR_MEET_KEY_MAX];
} coord_channel;

typedef enum coord_meeting_state {
    COORD_MEETING_OPEN, /* waits for values */
    COORD_MEETING_DONE, /* the values are there */
    COORD_MEETING_OVER, /* failed: `failure` says why */
} coord_meeting_state;

/* Where one member stands. */
typedef struct coord_place {
    uint64_t token;
    tutti_coordinator_meet *meet; /* parked; NULL = not (any more) */
    bool came;                    /* it called, or is not waited for */
    bool called;
} coord_place;

typedef struct coord_meeting {
    tutti_link link;        /* in its channel */
    coord_channel *channel; /* NULL = its group is gone */
    tutti_coordinator *owner;
    tutti_coordinator_meet_kind kind;
    uint32_t root;
    uint32_t count; /* members */
    coord_meeting_state state;
    uint32_t came_count;
    uint32_t called_count; /* of them, those that called */
    uint32_t value_count;
    bool has_tokens;
    bool retired;
    tutti_link retired_link;
    uint64_t retired_ns;
    size_t value_bytes;
    size_t bytes; /* of all it holds */
    tutti_link waiting;
    coord_work work; /* answers */
    coord_place *places;
    tutti_bytes *values; /* by group rank; of a Broadcast the only one */
    tutti_error failure;
} coord_meeting;

void coord_meetings_init(tutti_coordinator *self);
void coord_meetings_fini(tutti_coordinator *self);

/* ------------------------------------------------------------------------------ exchange.c */

/* NULL = there is none: nobody has called, or all calls are over. */
coord_channel *coord_channel_find(const coord_group *group, tutti_bytes key);

/* TUTTI_RESOURCE_EXHAUSTED no memory */
tutti_code coord_channel_open(coord_group *group, tutti_bytes key, coord_channel **ret_channel,
                              tutti_error *err);

/* Without meetings it goes. */
void coord_channel_settle(coord_channel *channel);

/* The meeting this member came to with this token before; NULL = none. `channel` may be NULL. */
coord_meeting *coord_channel_find_token(const coord_channel *channel, uint32_t position,
                                        uint64_t token);

/* The first meeting it has not come to; NULL = it has come to all. `channel` may be NULL. */
coord_meeting *coord_channel_find_next(const coord_channel *channel, uint32_t position);

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
 * A new meeting at the end of a channel; members that are lost count as come.
 *
 * TUTTI_RESOURCE_EXHAUSTED  METADATA_LIMIT; no memory
 */
tutti_code coord_meeting_new(coord_channel *channel, tutti_coordinator_meet_kind kind,
                             uint32_t root, coord_meeting **ret_meeting, tutti_error *err);

/* The member comes, with what it gives. The value is taken over, also on failure: METADATA_LIMIT.
 */
tutti_code coord_meeting_come(coord_meeting *meeting, uint32_t position,
                              tutti_coordinator_meet_request *request, tutti_error *err);

/* It has not called after all. */
void coord_meeting_uncome(coord_meeting *meeting, uint32_t position);

/* The member is not waited for any more. What needs it must have failed before. */
void coord_meeting_excuse(coord_meeting *meeting, uint32_t position);

/* Over, for this reason. Who waits is answered in slices. */
void coord_meeting_fail(coord_meeting *meeting, const tutti_error *err);

/* Park a call in its place; it is answered when the meeting is done or over. */
void coord_meeting_wait(coord_meeting *meeting, tutti_coordinator_meet *meet);

/* Unpark. */
void coord_meeting_leave(tutti_coordinator_meet *meet);

/*
 * After anything changed: is it done? May it go? The meeting, and its channel, may be gone when
 * this returns.
 */
void coord_meeting_settle(coord_meeting *meeting);

#endif
