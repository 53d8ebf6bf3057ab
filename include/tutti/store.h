/*
 * More of the key-value store: several keys at once, queues, views, and meeting at a key. Part of
 * tutti/client.h, which says what holds for all functions, and has the calls about one key.
 */
#ifndef TUTTI_STORE_H
#define TUTTI_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys: 1 to 1024 bytes; values: up to 1 MiB; both any bytes. Versions count the store's changes.
 */

/* [out, owned] ret_value  and a NUL behind it; TUTTI_NOT_FOUND  NO_KEY */
TUTTI_API tutti_code tutti_kv_get(tutti_client *client, const void *key, size_t key_size,
                                  void **ret_value, size_t *ret_size, tutti_error *err);
TUTTI_API tutti_code tutti_kv_set(tutti_client *client, const void *key, size_t key_size,
                                  const void *value, size_t value_size, tutti_error *err);

/*
 * Store `value` if what is there equals `expected` (NULL = if there is nothing).
 * [out, owned] ret_value  what is there now; NULL = not wanted
 */
TUTTI_API tutti_code tutti_kv_compare_and_set(tutti_client *client, const void *key,
                                              size_t key_size, const void *expected,
                                              size_t expected_size, const void *value,
                                              size_t value_size, bool *ret_swapped,
                                              void **ret_value, size_t *ret_size, tutti_error *err);

/* A counter of decimal text that begins at 0. TUTTI_FAILED_PRECONDITION NOT_A_NUMBER */
TUTTI_API tutti_code tutti_kv_add(tutti_client *client, const void *key, size_t key_size,
                                  int64_t delta, int64_t *ret_value, tutti_error *err);
TUTTI_API tutti_code tutti_kv_delete(tutti_client *client, const void *key, size_t key_size,
                                     bool *ret_existed, tutti_error *err);

/* A key of the store. */
typedef struct tutti_kv_entry {
    const void *key;
    size_t key_size;
    const void *value;
    size_t value_size;
    uint64_t version;
    bool deleted; /* of a watch: the key is gone */
} tutti_kv_entry;

/* Borrowed until it returns; return false to stop. */
typedef bool (*tutti_kv_fn)(void *arg, const tutti_kv_entry *entry);

/* All keys that begin with a prefix, in order; TUTTI_OK also when on_entry stopped it. */
TUTTI_API tutti_code tutti_kv_list(tutti_client *client, const void *prefix, size_t prefix_size,
                                   tutti_kv_fn on_entry, void *arg, tutti_error *err);

/*
 * Wait until all keys exist. [in] timeout_ms  0 = the client's
 * TUTTI_DEADLINE_EXCEEDED  TIMEOUT: the text lists what is missing
 */
TUTTI_API tutti_code tutti_kv_wait(tutti_client *client, const void *const *keys,
                                   const size_t *key_sizes, size_t count, uint32_t timeout_ms,
                                   tutti_error *err);

/*
 * Every change from now on, until on_entry returns false or the time is up (0 = never): both are
 * TUTTI_OK. The first call has no key: the watch stands.
 *
 * TUTTI_DEADLINE_EXCEEDED   the time was up before the watch stood
 * TUTTI_RESOURCE_EXHAUSTED  SLOW_WATCHER: on_entry was too slow; read again, then watch again
 */
TUTTI_API tutti_code tutti_kv_watch(tutti_client *client, const void *prefix, size_t prefix_size,
                                    uint32_t timeout_ms, tutti_kv_fn on_entry, void *arg,
                                    tutti_error *err);

/* Bytes of the caller's. */
typedef struct tutti_kv_bytes {
    const void *data;
    size_t size;
} tutti_kv_bytes;

/* As a timeout: do not wait at all. */
#define TUTTI_KV_AT_ONCE UINT32_MAX

/*
 * Calls that must not count twice (add, append, push, pop, take, meet) carry a token: when the
 * connection breaks in the middle they are made again until their time is over, and count once.
 * Calls that only read are made again, too. set, multi_set, compare_and_set and delete are not: of
 * those the caller has to know whether another client has changed the key meanwhile.
 */

/* Put bytes behind a value. [out] ret_size  of the whole; NULL = not wanted */
TUTTI_API tutti_code tutti_kv_append(tutti_client *client, const void *key, size_t key_size,
                                     const void *value, size_t value_size, uint64_t *ret_size,
                                     tutti_error *err);

/*
 * The values of 1 to 1024 keys at one moment, at most 3 MiB together.
 *
 * [in]         timeout_ms  to wait until all exist; 0 = the client's; TUTTI_KV_AT_ONCE
 * [out, owned] ret_values  `count` of them, each with a NUL behind it: tutti_free each
 *
 * TUTTI_NOT_FOUND           NO_KEY: at once; the text lists what is missing
 * TUTTI_DEADLINE_EXCEEDED   TIMEOUT: likewise
 * TUTTI_RESOURCE_EXHAUSTED  MULTI_LIMIT: ask for fewer
 */
TUTTI_API tutti_code tutti_kv_multi_get(tutti_client *client, const tutti_kv_bytes *keys,
                                        size_t count, uint32_t timeout_ms, void **ret_values,
                                        size_t *ret_sizes, tutti_error *err);

/* Store 1 to 1024 keys, all or none; at most 3 MiB together. */
TUTTI_API tutti_code tutti_kv_multi_set(tutti_client *client, const tutti_kv_bytes *keys,
                                        const tutti_kv_bytes *values, size_t count,
                                        tutti_error *err);

/* Do they exist? A queue that is not empty does. [out] ret_exist  of each; NULL = not wanted */
TUTTI_API tutti_code tutti_kv_check(tutti_client *client, const tutti_kv_bytes *keys, size_t count,
                                    bool *ret_exist, bool *ret_all, tutti_error *err);

/* How many keys begin with a prefix. */
TUTTI_API tutti_code tutti_kv_count(tutti_client *client, const void *prefix, size_t prefix_size,
                                    uint64_t *ret_count, tutti_error *err);

/*
 * Get and delete, waiting until the key exists: one caller gets the value, and no other one.
 *
 * [in]         timeout_ms  0 = the client's; TUTTI_KV_AT_ONCE
 * [out, owned] ret_value   and a NUL behind it
 *
 * TUTTI_NOT_FOUND          NO_KEY: at once
 * TUTTI_DEADLINE_EXCEEDED  TIMEOUT
 */
TUTTI_API tutti_code tutti_kv_take(tutti_client *client, const void *key, size_t key_size,
                                   uint32_t timeout_ms, void **ret_value, size_t *ret_size,
                                   tutti_error *err);

/* Queues: first in, first out; an empty one is no more. [out] ret_length  NULL = not wanted */
TUTTI_API tutti_code tutti_kv_push(tutti_client *client, const void *key, size_t key_size,
                                   const void *value, size_t value_size, uint64_t *ret_length,
                                   tutti_error *err);

/* As tutti_kv_take; TUTTI_NOT_FOUND QUEUE_EMPTY */
TUTTI_API tutti_code tutti_kv_pop(tutti_client *client, const void *key, size_t key_size,
                                  uint32_t timeout_ms, void **ret_value, size_t *ret_size,
                                  tutti_error *err);
TUTTI_API tutti_code tutti_kv_length(tutti_client *client, const void *key, size_t key_size,
                                     uint64_t *ret_length, tutti_error *err);

/*
 * A view of the store for a library or a phase: its key "k" is "prefix/k" of the store, as
 * PyTorch's PrefixStore has it. Views nest. A plain value: nothing to free.
 */
#define TUTTI_KV_KEY_MAX 1024 /* bytes */
typedef struct tutti_kv_view {
    size_t size;
    char bytes[TUTTI_KV_KEY_MAX];
} tutti_kv_view;

/* [in] outer  NULL = the store itself. TUTTI_INVALID_ARGUMENT BAD_KEY: too long, or no prefix */
TUTTI_API tutti_code tutti_kv_view_init(tutti_kv_view *view, const tutti_kv_view *outer,
                                        const char *prefix, tutti_error *err);

/*
 * The store's key for a view's: what the tutti_kv functions take.
 * [out] ret_key  TUTTI_KV_KEY_MAX bytes of the caller's. TUTTI_INVALID_ARGUMENT BAD_KEY: too long
 */
TUTTI_API tutti_code tutti_kv_view_key(const tutti_kv_view *view, const void *key, size_t key_size,
                                       void *ret_key, size_t *ret_size, tutti_error *err);

/* Begin with tutti_meeting_init. */
typedef struct tutti_meeting {
    size_t size;         /* of this struct: set by init */
    uint32_t count;      /* how many meet */
    int64_t rank;        /* -1 = assign one, in the order of names */
    bool is_root;        /* all are told the rank of the one that says so */
    const char *name;    /* a device or a host; "" = none */
    uint32_t timeout_ms; /* 0 = the client's */
    /* What is answered: */
    uint32_t group_rank;
    int64_t root_rank;   /* -1 = nobody said so */
    uint64_t group_hash; /* of all names and ranks: alike for all */
} tutti_meeting;

TUTTI_API void tutti_meeting_init(tutti_meeting *meeting);

/*
 * Wait at a key until as many callers have come as all of them state.
 *
 * TUTTI_INVALID_ARGUMENT   GROUP_SIZE, DUPLICATE_RANK: told to all; RANK_RANGE
 * TUTTI_DEADLINE_EXCEEDED  TIMEOUT: how many are missing, and who is here
 */
TUTTI_API tutti_code tutti_meet(tutti_client *client, const void *key, size_t key_size,
                                tutti_meeting *meeting, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
