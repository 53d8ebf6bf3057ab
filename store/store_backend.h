/*
 * What a backend of the store must offer. The front (store.c) checks keys and values and that
 * versions grow; a backend keeps entries. Arguments that arrive here are valid.
 */
#ifndef TUTTI_STORE_BACKEND_H
#define TUTTI_STORE_BACKEND_H

#include "store/store.h"

typedef struct tutti_store_ops {
    tutti_code (*get)(tutti_store *store, tutti_bytes key, tutti_store_entry *ret_entry,
                      tutti_error *err);
    tutti_code (*set)(tutti_store *store, tutti_bytes key, tutti_bytes value, uint64_t *ret_version,
                      tutti_error *err);
    tutti_code (*remove)(tutti_store *store, tutti_bytes key, bool *ret_existed,
                         uint64_t *ret_version, tutti_error *err);
    tutti_code (*apply)(tutti_store *store, const tutti_store_change *changes, size_t count,
                        uint64_t *ret_version, tutti_error *err);
    tutti_code (*next)(tutti_store *store, tutti_bytes prefix, tutti_bytes after,
                       tutti_store_entry *ret_entry, tutti_error *err);
    uint64_t (*version)(tutti_store *store);
    void (*stat)(tutti_store *store, tutti_store_stats *ret_stats);
    void (*close)(tutti_store *store);

    /* Of a backend that is behind its changes; NULL, all three = it never is. */
    uint64_t (*durable)(tutti_store *store);
    tutti_code (*flush)(tutti_store *store, tutti_error *err);
    void (*on_durable)(tutti_store *store, void (*on_durable)(void *arg), void *arg);

    tutti_code (*snapshot)(tutti_store *store, tutti_store_snapshot **ret_snapshot,
                           tutti_error *err);
    /* Of an empty store: put an entry back as it was, nothing of it lent by this store; then
     * begin with this version. What was put back before it counts only from then on. */
    tutti_code (*put_back)(tutti_store *store, const tutti_store_entry *entry, tutti_error *err);
    tutti_code (*begin_at)(tutti_store *store, uint64_t version, tutti_error *err);
} tutti_store_ops;

struct tutti_store {
    const tutti_store_ops *ops;
};

/* What snapshots are made of. The key that `next` gives out is behind the one before. */
typedef struct tutti_store_snapshot_ops {
    tutti_code (*next)(tutti_store_snapshot *snapshot, tutti_store_entry *ret_entry,
                       tutti_error *err);
    void (*free)(tutti_store_snapshot *snapshot);
} tutti_store_snapshot_ops;

struct tutti_store_snapshot {
    const tutti_store_snapshot_ops *ops;
    tutti_store_moment moment;
};

#endif
