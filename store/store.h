/*
 * Store: the coordinator's records. Keys and values are bytes; every change has a version.
 *
 * One thread. What the store lends is good until the next call on it that changes it, or lends
 * again; handing it back as an argument of that call is fine.
 */
#ifndef TUTTI_STORE_STORE_H
#define TUTTI_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/data/bytes.h"
#include "tutti/error.h"

#define TUTTI_STORE_KEY_MAX 2048 /* bytes; the coordinator puts the job before a client's key */
#define TUTTI_STORE_VALUE_MAX (1u << 20) /* bytes */

typedef struct tutti_store tutti_store;

/* What is stored under a key. Borrowed until the next call on the store. */
typedef struct tutti_store_entry {
    tutti_bytes key;
    tutti_bytes value;
    uint64_t version; /* of the change that wrote it */
} tutti_store_entry;

typedef struct tutti_store_stats {
    uint64_t key_count;
    uint64_t used_bytes; /* keys and values */
} tutti_store_stats;

/*
 * TUTTI_NOT_FOUND         NO_KEY: nothing is stored under `key`; ret_entry is untouched
 * TUTTI_INVALID_ARGUMENT  BAD_KEY: 0 bytes or more than TUTTI_STORE_KEY_MAX
 */
tutti_code tutti_store_get(tutti_store *store, tutti_bytes key, tutti_store_entry *ret_entry,
                           tutti_error *err);

/*
 * Overwrites.
 *
 * [out] ret_version  of this change; NULL is fine
 *
 * TUTTI_INVALID_ARGUMENT    BAD_KEY; VALUE_LIMIT
 * TUTTI_RESOURCE_EXHAUSTED  STORE_LIMIT: bytes or keys; nothing changed
 */
tutti_code tutti_store_set(tutti_store *store, tutti_bytes key, tutti_bytes value,
                           uint64_t *ret_version, tutti_error *err);

/*
 * Remove a key; none there is fine.
 *
 * [out] ret_existed  was there one? NULL is fine
 */
tutti_code tutti_store_delete(tutti_store *store, tutti_bytes key, bool *ret_existed,
                              uint64_t *ret_version, tutti_error *err);

/* One change of several. */
typedef struct tutti_store_change {
    tutti_bytes key;
    tutti_bytes value;
    bool remove; /* the key goes; none there is fine, and `value` is not looked at */
    bool exempt; /* the store's limits do not hold for the changes that it is one of: the
                    coordinator's own records must not fail because clients have filled the store */
} tutti_store_change;

/*
 * Change several keys, in order: all of it, or on failure nothing. Nobody sees a part.
 *
 * [in]  count        0 is fine
 * [out] ret_version  of all these changes, one for all; NULL is fine
 *
 * Codes as tutti_store_set: STORE_LIMIT is about what would be there in the end.
 */
tutti_code tutti_store_apply(tutti_store *store, const tutti_store_change *changes, size_t count,
                             uint64_t *ret_version, tutti_error *err);

/*
 * The first entry whose key begins with `prefix` and comes after `after` (size 0 = from the start).
 *
 * TUTTI_NOT_FOUND  there is none
 */
tutti_code tutti_store_next(tutti_store *store, tutti_bytes prefix, tutti_bytes after,
                            tutti_store_entry *ret_entry, tutti_error *err);

/* Of the last change; 0 = none yet. */
uint64_t tutti_store_version(tutti_store *store);

/*
 * Up to which version the store is durable: what it has then survives as the backend promises. A
 * backend may be behind its changes; the others give tutti_store_version.
 */
uint64_t tutti_store_durable(tutti_store *store);

/*
 * Begin to make durable what has changed, in one transaction for all changes since the last one;
 * does not wait. While such a transaction is under way nothing begins: call again when it is over
 * (tutti_store_on_durable). What has changed when the store is closed is made durable then.
 *
 * What the backend says of its place, when a transaction has failed: some of what has changed is
 * not durable and never will be. Each further call says the same
 */
tutti_code tutti_store_flush(tutti_store *store, tutti_error *err);

/*
 * Call `on_durable` whenever such a transaction is over, well or not: on a thread of the backend,
 * where it may not block, and may call the store only if it keeps the store's own thread out
 * meanwhile. NULL = no more, and when that returns it does not run any more either: not from
 * `on_durable` itself.
 */
void tutti_store_on_durable(tutti_store *store, void (*on_durable)(void *arg), void *arg);

/*
 * Make durable all that has changed, and wait for it. It takes tutti_store_on_durable for itself and leaves
 * it at NULL. Codes as tutti_store_flush.
 */
tutti_code tutti_store_settle(tutti_store *store, tutti_error *err);

void tutti_store_stat(tutti_store *store, tutti_store_stats *ret_stats);

/* ------------------------------------------------------------------------------ as a whole */

/*
 * Snapshot: what a store had at one moment, in the order of the keys. The store may change while a
 * snapshot is read. What the snapshot has not given out yet is then kept for it: at most as much
 * memory as the store had at that moment.
 */
typedef struct tutti_store_snapshot tutti_store_snapshot;

/* The moment. */
typedef struct tutti_store_moment {
    uint64_t version;
    tutti_store_stats stats;
} tutti_store_moment;

/*
 * [out, owned] ret_snapshot  of what the store has now; to be freed before the store is closed
 *
 * TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY
 */
tutti_code tutti_store_snapshot_new(tutti_store *store, tutti_store_snapshot **ret_snapshot,
                                    tutti_error *err);

/* Borrowed as long as the snapshot. */
const tutti_store_moment *tutti_store_snapshot_moment(const tutti_store_snapshot *snapshot);

/*
 * [out] ret_entry  borrowed until the next call on the snapshot or on its store
 *
 * TUTTI_NOT_FOUND           NO_KEY: that was the last one
 * TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY: what had to be kept could not be; it says so from then on
 * and what the source of the snapshot says (store/backup/backup.h)
 */
tutti_code tutti_store_snapshot_next(tutti_store_snapshot *snapshot, tutti_store_entry *ret_entry,
                                     tutti_error *err);

void tutti_store_snapshot_free(tutti_store_snapshot *snapshot); /* NULL is fine */

/* Told of each entry that was taken: bytes of keys and values so far. */
typedef void (*tutti_store_on_taken)(void *arg, uint64_t bytes);

/*
 * Take over what a snapshot has, with its versions: all of it, or nothing becomes durable. Limits
 * are not looked at. After a failure the store can only be closed; after success, what a backend
 * that is behind its changes has to make durable is tutti_store_flush's.
 *
 * [in] on_taken  NULL is fine
 *
 * TUTTI_FAILED_PRECONDITION  STORE_NOT_EMPTY: it has keys, or had some
 * TUTTI_RESOURCE_EXHAUSTED   NO_MEMORY
 * and what tutti_store_snapshot_next says, and the backend of its place
 */
tutti_code tutti_store_take(tutti_store *store, tutti_store_snapshot *from,
                            tutti_store_on_taken on_taken, void *arg, tutti_error *err);

void tutti_store_close(tutti_store *store); /* NULL is fine */

#endif
