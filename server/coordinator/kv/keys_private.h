/*
 * Keys, as the files of this folder see them. Private to this folder.
 *
 * A subscription (key_subscription.h) is a key with the calls that wait for it: so a change looks
 * up those that it concerns instead of asking all. watch_history.h has those that watch a prefix.
 *
 * What the store lends (an entry) is good until the next change of the store: copy it before
 * changing anything.
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

/*
 * The key stays in its lease, if it has one.
 *
 * [in] ride  NULL = no answer is kept with it
 */
tutti_code coord_key_set(tutti_coordinator *self, const coord_full_key *full, tutti_bytes value,
                         struct coord_ride *ride, uint64_t *ret_version, tutti_error *err);

/* A key has changed. The bytes are borrowed for the call. */
struct coord_news {
    tutti_coordinator_change_kind kind;
    tutti_bytes full;
    size_t job_size;
    tutti_bytes value;
    uint64_t version;
};
/* Tell of a change, by core/hooks.h: key_changed. */
void coord_key_tell(tutti_coordinator *self, const coord_news *news);

/* ------------------------------------------------------------------------------ others */

/*
 * A key (or a queue of that name) is there now: Wait and MultiGet calls that lacked only this key
 * become ready.
 */
void coord_waits_wake(tutti_coordinator *self, tutti_bytes full);

/* key_changed of core/hooks.h: waits, takes and watches are told. */
void coord_kv_changed(tutti_coordinator *self, const coord_news *news);

/*
 * A key has changed: put the change into the backlog of each watch whose prefix fits. Cannot
 * fail: a watch without room is ended with its next turn.
 */
void coord_watches_tell(tutti_coordinator *self, const coord_news *news);

size_t coord_on_ready_task(coord_task *work, size_t budget);
size_t coord_on_due_task(coord_task *work, size_t budget);
size_t coord_on_count_task(coord_task *work, size_t budget);

#endif
