/* Answers that are kept for calls that come again, by their tokens. */
#ifndef TUTTI_SERVER_COORDINATOR_KV_RETRY_CACHE_H
#define TUTTI_SERVER_COORDINATOR_KV_RETRY_CACHE_H

#include "server/coordinator/core/types.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"

/* What was answered to calls with tokens, for those that call again. */
typedef enum coord_answer_kind {
    COORD_ANSWER_ADD = 1,
    COORD_ANSWER_APPEND,
    COORD_ANSWER_PUSH,
    COORD_ANSWER_TAKE,
    COORD_ANSWER_POP,
    COORD_ANSWER_MEET,
} coord_answer_kind;

typedef struct coord_answer_key {
    size_t size; /* 0 = there was no token */
    unsigned char data[sizeof(((coord_full_key *)NULL)->data) + 9];
} coord_answer_key;

typedef struct coord_answer {
    int64_t number;
    uint64_t version;
    tutti_bytes value; /* borrowed until the next call on answers */
} coord_answer;

void coord_retry_cache_init(tutti_coordinator *self);
void coord_retry_cache_fini(tutti_coordinator *self);
void coord_answer_key_write(coord_answer_key *key, coord_answer_kind kind,
                            const coord_full_key *full, uint64_t token);

/* False: there is none. */
bool coord_answer_find(tutti_coordinator *self, const coord_answer_key *key,
                       coord_answer *ret_answer);

/* Keep one that changes nothing itself, as long as there is room: without memory a call that comes
 * again counts again. */
void coord_answer_keep(tutti_coordinator *self, const coord_answer_key *key,
                       const coord_answer *answer);
bool coord_answer_find_changed(tutti_coordinator *self, const coord_answer_key *key,
                               tutti_coordinator_changed *ret_changed);

/* An answer that is kept together with the change that it is about. */
typedef struct coord_ride {
    const coord_answer_key *key;
    coord_answer answer; /* version 0 = that of the change */
} coord_ride;

#define COORD_RIDE_CHANGES_MAX 2

/*
 * tutti_store_apply, and the answer is kept: in the store by the same change, when it is durable.
 *
 * [in] ride   NULL = nothing to keep
 * [in] count  at most COORD_RIDE_CHANGES_MAX
 */
tutti_code coord_retry_cache_apply(tutti_coordinator *self, coord_ride *ride,
                                   const tutti_store_change *changes, size_t count,
                                   uint64_t *ret_version, tutti_error *err);

/* Those that an earlier process has left in the store. */
void coord_retry_cache_restore(tutti_coordinator *self);

#endif
