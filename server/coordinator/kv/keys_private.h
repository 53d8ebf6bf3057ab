/*
 * Keys, as the files of this folder see them. Private to this folder.
 *
 * A topic is a key or a prefix that somebody waits for or watches, with the list of who does: so a
 * change looks up those it concerns instead of asking all.
 */
#ifndef TUTTI_SERVER_COORDINATOR_KV_KEYS_PRIVATE_H
#define TUTTI_SERVER_COORDINATOR_KV_KEYS_PRIVATE_H

#include "server/coordinator/core/core.h"
#include "server/coordinator/core/types.h"
#include "server/coordinator/kv/keys.h"
#include "tutti/types.h"

/* `job NUL key`, as the store has it. */
struct coord_full_key {
    size_t job_size; /* with the NUL */
    size_t size;
    unsigned char data[TUTTI_NAME_MAX + 1 + TUTTI_COORDINATOR_KEY_MAX];
};

/*
 * [in] least  bytes the client's key needs: 1, or 0 for a prefix
 *
 * TUTTI_INVALID_ARGUMENT  BAD_NAME, BAD_KEY
 */
tutti_code coord_full_key_write(tutti_coordinator *self, const tutti_coordinator_key *key,
                                size_t least, coord_full_key *ret_full, tutti_error *err);

tutti_bytes coord_full_key_bytes(const coord_full_key *full);

/* An entry of the store as the client sees it: its key without the job. */
void coord_full_key_strip(const coord_full_key *full, tutti_store_entry *entry);

/* The client's part of it. */
tutti_bytes coord_full_key_client(const coord_full_key *full);

/*
 * Where queues are kept: the full key behind a letter that begins no job's name. One record with
 * where it begins and ends, and one for each value, with its number behind the key.
 */
typedef enum coord_tag {
    COORD_TAG_NONE = 0, /* no queue: the key itself */
    COORD_TAG_QUEUE = '#',
    COORD_TAG_VALUE = '*',
} coord_tag;

typedef struct coord_tagged_key {
    size_t size;
    unsigned char data[1 + sizeof(((coord_full_key *)NULL)->data) + 8];
} coord_tagged_key;

void coord_tagged_key_write(coord_tagged_key *key, coord_tag tag, const coord_full_key *full);
tutti_bytes coord_tagged_key_bytes(const coord_tagged_key *key);

void coord_keys_init(tutti_coordinator *self);
void coord_keys_fini(tutti_coordinator *self);

/* ------------------------------------------------------------------------------ keys.c */

/* TUTTI_NOT_FOUND  NO_KEY */
tutti_code coord_key_get(tutti_coordinator *self, const coord_full_key *full,
                         tutti_store_entry *ret_entry, tutti_error *err);
tutti_code coord_fail_no_key(const coord_full_key *full, tutti_error *err);

struct coord_ride; /* below */

/* [in] ride  NULL = no answer is kept with it */
tutti_code coord_key_set(tutti_coordinator *self, const coord_full_key *full, tutti_bytes value,
                         struct coord_ride *ride, uint64_t *ret_version, tutti_error *err);

/* A key has changed: who waits for it or watches it is told. */
struct coord_news {
    tutti_coordinator_change_kind kind;
    tutti_bytes full;
    size_t job_size;
    tutti_bytes value;
    uint64_t version;
};
/* Whoever waits for the key or watches it hears of the change (core/hooks.h). */
void coord_key_tell(tutti_coordinator *self, const coord_news *news);

/* ------------------------------------------------------------------------------ gc.c */

void coord_reap_init(tutti_coordinator *self);
void coord_reap_fini(tutti_coordinator *self);

/* Remove all keys of a job, in slices; who uses its keys before that is over, waits for none. */
void coord_keys_forget(tutti_coordinator *self, const char *job);

/* Who uses the keys of a job whose old ones are still going must not meet them. */
void coord_reap_finish(tutti_coordinator *self, const coord_full_key *full);

/* ------------------------------------------------------------------------------ multi.c */

/* Is there a key, or a queue, of this name? */
bool coord_key_exists(tutti_coordinator *self, const coord_full_key *full, bool queues_too);

/* TUTTI_INVALID_ARGUMENT  KEYS_LIMIT */
tutti_code coord_check_key_count(size_t count, tutti_error *err);

/* The keys of a call, one after the other: get each from `arg`. */
typedef tutti_bytes (*coord_nth_key_fn)(const void *arg, size_t index);

/*
 * The values of keys, all of which exist.
 *
 * TUTTI_NOT_FOUND           NO_KEY: one does not
 * TUTTI_RESOURCE_EXHAUSTED  MULTI_LIMIT; no memory
 */
tutti_code coord_keys_collect(tutti_coordinator *self, const char *job, coord_nth_key_fn nth,
                              const void *arg, size_t count, tutti_coordinator_page *ret_page,
                              tutti_error *err);

/* ------------------------------------------------------------------------------ retry_cache.c */

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

void coord_answers_init(tutti_coordinator *self);
void coord_answers_fini(tutti_coordinator *self);
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
tutti_code coord_answers_apply(tutti_coordinator *self, coord_ride *ride,
                               const tutti_store_change *changes, size_t count,
                               uint64_t *ret_version, tutti_error *err);

/* Those that an earlier process has left in the store. */
void coord_answers_restore(tutti_coordinator *self);

/* ------------------------------------------------------------------------------ take.c */

void coord_takes_init(tutti_coordinator *self);
void coord_takes_fini(tutti_coordinator *self);

/* There is something to take: of a key, or of a tagged one, a queue. */
void coord_takes_wake(tutti_coordinator *self, tutti_bytes key);

/* ------------------------------------------------------------------------------ queue.c */

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

/* ------------------------------------------------------------------------------ rendezvous.c */

void coord_rendezvous_init(tutti_coordinator *self);

/* ------------------------------------------------------------------------------ key_subscription.c
 */

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

/* ------------------------------------------------------------------------------ others */

/* A key is there now. */
void coord_waits_wake(tutti_coordinator *self, tutti_bytes full);

/* All who wait for a key or watch it hear of its change: hooks.h. */
void coord_kv_changed(tutti_coordinator *self, const coord_news *news);

/* A key has changed: who watches it is told. */
void coord_watches_tell(tutti_coordinator *self, const coord_news *news);

size_t coord_on_ready_work(coord_work *work, size_t budget);
size_t coord_on_due_work(coord_work *work, size_t budget);
size_t coord_on_count_work(coord_work *work, size_t budget);

#endif
