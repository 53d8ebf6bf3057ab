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
 * where it may neither block nor call the store. NULL = no more, and when that returns it does not
 * run any more either.
 */
void tutti_store_on_durable(tutti_store *store, void (*on_durable)(void *arg), void *arg);

void tutti_store_stat(tutti_store *store, tutti_store_stats *ret_stats);

void tutti_store_close(tutti_store *store); /* NULL is fine */

#endif
