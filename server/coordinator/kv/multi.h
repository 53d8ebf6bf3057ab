/*
 * Many keys in one call: read together, stored together, looked for. Keys that are waited for until
 * they can be read are keys.h's (tutti_coordinator_key_wait with values).
 *
 * See keys.h for what a key is. None of these waits.
 */
#ifndef TUTTI_SERVER_COORDINATOR_KV_MULTI_H
#define TUTTI_SERVER_COORDINATOR_KV_MULTI_H

#include "server/coordinator/core/types.h"
#include "server/coordinator/kv/keys.h"

#define TUTTI_COORDINATOR_MULTI_BYTES (3u << 20) /* keys and values of one call */

typedef struct tutti_coordinator_keys {
    const char *job;
    const tutti_bytes *keys; /* borrowed; 1 to TUTTI_COORDINATOR_WAIT_KEYS_MAX */
    size_t count;
} tutti_coordinator_keys;

/*
 * The values of all, in their order: entries have no keys. Zero the page before, fini it after.
 *
 * TUTTI_INVALID_ARGUMENT    KEYS_LIMIT, BAD_KEY
 * TUTTI_NOT_FOUND           NO_KEY: the text lists the missing ones
 * TUTTI_RESOURCE_EXHAUSTED  MULTI_LIMIT: the values are too large for one answer; no memory
 */
tutti_code tutti_coordinator_keys_get(tutti_coordinator *self, const tutti_coordinator_keys *keys,
                                      tutti_coordinator_page *ret_page, tutti_error *err);

/*
 * Are they there? A queue that is not empty counts.
 *
 * [out] ret_exist  as many as keys, of the caller's
 *
 * TUTTI_INVALID_ARGUMENT  KEYS_LIMIT, BAD_KEY
 */
tutti_code tutti_coordinator_keys_check(tutti_coordinator *self, const tutti_coordinator_keys *keys,
                                        bool *ret_exist, bool *ret_all, tutti_error *err);

/*
 * Store all or none; of a key that comes twice the last value counts.
 *
 * [in]  values  as many as keys
 *
 * TUTTI_INVALID_ARGUMENT    KEYS_LIMIT, BAD_KEY, VALUE_LIMIT; MULTI_LIMIT: too much for one call
 * TUTTI_RESOURCE_EXHAUSTED  STORE_LIMIT; no memory
 */
tutti_code tutti_coordinator_keys_set(tutti_coordinator *self, const tutti_coordinator_keys *keys,
                                      const tutti_bytes *values, uint64_t *ret_version,
                                      tutti_error *err);

/*
 * The same with a lease (lease.h), with which all of them go. 0 = without one.
 *
 * TUTTI_NOT_FOUND  NO_LEASE; and the codes of tutti_coordinator_keys_set
 */
tutti_code tutti_coordinator_keys_set_leased(tutti_coordinator *self,
                                             const tutti_coordinator_keys *keys,
                                             const tutti_bytes *values, uint64_t lease,
                                             uint64_t *ret_version, tutti_error *err);

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

#endif
