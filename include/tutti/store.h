/*
 * Store: the job's key-value store at the coordinator, for rendezvous, counters, queues and
 * configuration, as PyTorch's Store.
 *
 *     void *value;
 *     int64_t done;
 *
 *     code = tutti_kv_set(client, "lr", 2, "0.1", 3, &err);
 *     code = tutti_kv_add(client, "done", 4, 1, &done, &err);
 *     code = tutti_kv_take(client, "plan", 4, 0, &value, NULL, &err);    // waits for the key
 *     if (code == TUTTI_OK) {
 *         printf("%s\n", (const char *)value);
 *         tutti_free(value);
 *     }
 *
 * Keys have 1 to 1024 bytes and values 0 to 1 MiB, both any bytes. They belong to the client's job:
 * two jobs never see each other's. Who knows a job's name may use its keys, with an agent or
 * without, also before the job has ranks. Keys go with the job, --job-linger (60 s) after the last
 * rank of a world that was complete; with --store lmdb they survive a restart of the coordinator.
 * Every change raises the version of the store, a number by which entries are compared.
 *
 * Queues have names like keys, and do not meet them: get, set, delete, list, count and watch know
 * keys alone; push, pop and length know queues alone; wait and check look at both.
 *
 * Threads. Any thread may call these functions, several at once. Each blocks for at most the
 * client's timeout_ms (list: for each page), or the timeout_ms that it is given and 2 s. Callbacks
 * run on the caller's thread. Outputs are written on success only, where a function does not say
 * otherwise.
 *
 * Repeating. When the connection breaks in the middle of a call, or the coordinator shuts down,
 * calls that only read are made again until their time is over. So are calls that must not count
 * twice (add, append, push, pop, take, meet, leases): they carry a random number, by which the coordinator
 * knows them for --retry-window (30 s) and gives the first answer again. set, multi_set,
 * compare_and_set and delete are not made again: of these the caller has to know whether another
 * client has changed the key meanwhile.
 *
 * Statuses of all functions that take a client, besides the common statuses (tutti/client.h):
 *
 * TUTTI_INVALID_ARGUMENT     BAD_KEY: a key of no byte, or of more than 1024
 *                            VALUE_LIMIT: a value of more than 1 MiB: put the data into a tensor
 * TUTTI_FAILED_PRECONDITION  NO_COORDINATOR: neither the client's options, the agent nor
 *                            $TUTTI_COORDINATOR say where it is
 * TUTTI_RESOURCE_EXHAUSTED   STORE_LIMIT: a change that would pass --store-bytes-limit (256 MiB) or
 *                            --store-keys-limit (1000000): delete keys. Reading works
 *                            STORE_FULL: the disk of --store lmdb is full; nothing was changed
 *                            WAITER_LIMIT: too many calls wait at the coordinator, or watch
 *                            no memory in this process, or in the coordinator
 * TUTTI_UNAVAILABLE          CONNECTION_LOST: it is not known whether the call was done. DRAINING:
 *                            the coordinator shuts down; the call was not done
 * TUTTI_DEADLINE_EXCEEDED    the coordinator did not answer in time
 * TUTTI_DATA_LOSS            STORE_FORMAT: the file of --store lmdb was damaged while it was open;
 *                            nothing was changed. BAD_ANSWER: what answers is no coordinator
 *
 * Caveats
 *
 * - Waiting takes a place at the coordinator, not a thread, but the client's default timeout is 30
 *   s. How it looks: TIMEOUT while another rank still starts. What to do: state a timeout.
 * - The store is for small data: each value goes to one process and is kept in its memory. Tensors
 *   go between ranks by ops.
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

/* ------------------------------------------------------------------ one key */

/*
 * The value of a key, without waiting for it.
 *
 * [in]         key        key_size bytes
 * [out, owned] ret_value  not NULL; a NUL is behind the bytes; tutti_free it
 * [out]        ret_size   bytes without that NUL; NULL = not wanted
 *
 * TUTTI_NOT_FOUND  NO_KEY: there is none. To wait for it: tutti_kv_multi_get or tutti_kv_wait
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_kv_get(tutti_client *client, const void *key, size_t key_size,
                                  void **ret_value, size_t *ret_size, tutti_error *err);

/*
 * Store a value under a key, whether there is one or not.
 *
 * [in] value  value_size bytes, at most 1 MiB; NULL is fine if value_size is 0
 *
 * The statuses of all functions here. Not made again after CONNECTION_LOST.
 */
TUTTI_API tutti_code tutti_kv_set(tutti_client *client, const void *key, size_t key_size,
                                  const void *value, size_t value_size, tutti_error *err);

/*
 * Store a value under a key that goes with a lease (tutti_kv_lease_grant, below): when the lease ends,
 * the key is deleted. Without a lease (tutti_kv_set) the key stays, also if it had one.
 *
 * [in] lease  of the client's job; 0 = none
 *
 * TUTTI_NOT_FOUND  NO_LEASE: it does not exist or has ended; nothing was changed
 * and the statuses of all functions here. Not made again after CONNECTION_LOST.
 */
TUTTI_API tutti_code tutti_kv_set_with_lease(tutti_client *client, const void *key, size_t key_size,
                                             const void *value, size_t value_size, uint64_t lease,
                                             tutti_error *err);

/*
 * Store `value` if what is there equals `expected`.
 *
 * [in]         expected       expected_size bytes. NULL = there must be no key; not NULL with size
 *                             0 = there must be an empty value
 * [in]         value          value_size bytes
 * [out]        ret_swapped    `value` was stored; NULL = not wanted
 * [out, owned] ret_value      what is there now, and a NUL behind it; tutti_free it. NULL in it:
 *                             there is no key. NULL = not wanted
 * [out]        ret_size       bytes of it without that NUL; NULL = not wanted
 *
 * A value that is not as expected is no error: the function returns TUTTI_OK, and *ret_swapped is
 * false.
 *
 * The statuses of all functions here. Not made again after CONNECTION_LOST.
 */
TUTTI_API tutti_code tutti_kv_compare_and_set(tutti_client *client, const void *key,
                                              size_t key_size, const void *expected,
                                              size_t expected_size, const void *value,
                                              size_t value_size, bool *ret_swapped,
                                              void **ret_value, size_t *ret_size, tutti_error *err);

/*
 * Add to a counter, which begins at 0 and is stored as decimal text.
 *
 * [in]  delta      may be negative, or 0 to read it (which makes the key)
 * [out] ret_value  the sum; NULL = not wanted
 *
 * TUTTI_FAILED_PRECONDITION  NOT_A_NUMBER: the value is no decimal number of 64 bits
 * TUTTI_OUT_OF_RANGE         OVERFLOW: the sum does not fit into 64 bits; the value is unchanged
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_kv_add(tutti_client *client, const void *key, size_t key_size,
                                  int64_t delta, int64_t *ret_value, tutti_error *err);

/*
 * Delete a key. That there is none is no error.
 *
 * [out] ret_existed  there was one; NULL = not wanted
 *
 * The statuses of all functions here. Not made again after CONNECTION_LOST.
 */
TUTTI_API tutti_code tutti_kv_delete(tutti_client *client, const void *key, size_t key_size,
                                     bool *ret_existed, tutti_error *err);

/* ------------------------------------------------------------------ listing, waiting, watching */

/* A key of the store, for a callback. Everything is borrowed until the callback returns. */
typedef struct tutti_kv_entry {
    /* key_size bytes without a NUL behind them; NULL in the first call of tutti_kv_watch. */
    const void *key;
    /* Bytes of key: 1 to 1024; 0 in the first call of tutti_kv_watch. */
    size_t key_size;
    /* value_size bytes without a NUL behind them; may be NULL if value_size is 0. */
    const void *value;
    /* Bytes of value: 0 to 1 MiB; 0 if the key is gone. */
    size_t value_size;
    /* The store's version at which the key was last changed, or deleted. */
    uint64_t version;
    /* Of a watch: the key is gone. */
    bool deleted;
} tutti_kv_entry;

/*
 * The caller's function for entries. It runs on the thread that called, and may use the client.
 *
 * [in] arg    as it was given to tutti_kv_list or tutti_kv_watch
 * [in] entry  borrowed until it returns
 *
 * Returns true to go on, false to stop.
 */
typedef bool (*tutti_kv_fn)(void *arg, const tutti_kv_entry *entry);

/*
 * All keys that begin with a prefix, in the order of their bytes, with their values. It asks for a
 * page of up to 1000 keys or 2 MiB at a time: keys that are changed meanwhile are told as they were
 * or as they are.
 *
 * [in] prefix    prefix_size bytes; size 0 = all keys
 * [in] on_entry  not NULL
 *
 * Returns TUTTI_OK also when on_entry stopped it. If it fails, on_entry may have run for some keys.
 * The statuses of all functions here.
 */
TUTTI_API tutti_code tutti_kv_list(tutti_client *client, const void *prefix, size_t prefix_size,
                                   tutti_kv_fn on_entry, void *arg, tutti_error *err);

/*
 * Wait until all keys exist at one moment. A queue that is not empty counts as a key. Nothing is
 * taken, and the keys may be gone when it returns.
 *
 * [in] keys        `count` pointers
 * [in] key_sizes   bytes of each
 * [in] count       1 to 1024
 * [in] timeout_ms  0 = the client's. TUTTI_KV_AT_ONCE is no special value here: see tutti_kv_check
 *
 * TUTTI_INVALID_ARGUMENT   WAIT_LIMIT: no key, or more than 1024
 * TUTTI_DEADLINE_EXCEEDED  TIMEOUT: the text lists the missing keys, the first 16
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_kv_wait(tutti_client *client, const void *const *keys,
                                   const size_t *key_sizes, size_t count, uint32_t timeout_ms,
                                   tutti_error *err);

/*
 * Tell every change of keys that begin with a prefix, in order, from now on, until on_entry returns
 * false or the time is up: both are TUTTI_OK. The first call has no key: the watch stands, at the
 * version that the entry states; read keys of interest then, and no change is missed. When the
 * coordinator is started again on its store, or another one leads, the watch goes on where it was:
 * for up to 30 s it looks for one that answers.
 *
 * [in] prefix      prefix_size bytes; size 0 = all keys
 * [in] timeout_ms  0 = never: then only on_entry, or an error, ends it
 * [in] on_entry    not NULL
 *
 * TUTTI_DEADLINE_EXCEEDED   the time was up before the watch stood
 * TUTTI_UNAVAILABLE         the coordinator went away, and did not come back: watch again, and read
 *                           again when it stands
 * TUTTI_FAILED_PRECONDITION  WATCH_GAP: it came back, and does not know all changes since then
 *                           (--retry-window 30 s; the last 4096 changes): likewise
 * TUTTI_RESOURCE_EXHAUSTED  SLOW_WATCHER: on_entry was too slow, and more changes wait than are
 *                           kept (--watch-changes-limit 1024, --watch-backlog-limit 4 MiB): watch
 *                           again, and read again when it stands
 *                           WAITER_LIMIT: --watcher-limit (16384)
 * and the statuses of all functions here.
 */
TUTTI_API tutti_code tutti_kv_watch(tutti_client *client, const void *prefix, size_t prefix_size,
                                    uint32_t timeout_ms, tutti_kv_fn on_entry, void *arg,
                                    tutti_error *err);

/* ------------------------------------------------------------------ several keys */

/* A key or a value of the caller's: borrowed until the function returns. */
typedef struct tutti_kv_bytes {
    /* NULL is fine if size is 0. */
    const void *data;
    /* Bytes of data. */
    size_t size;
} tutti_kv_bytes;

/* As the timeout of multi_get, take and pop: do not wait at all. */
#define TUTTI_KV_AT_ONCE UINT32_MAX

/*
 * Put bytes behind a value; without a key that is tutti_kv_set.
 *
 * [in]  value     value_size bytes
 * [out] ret_size  bytes of the whole value; NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT  VALUE_LIMIT: the whole would be larger than 1 MiB; the value is unchanged
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_kv_append(tutti_client *client, const void *key, size_t key_size,
                                     const void *value, size_t value_size, uint64_t *ret_size,
                                     tutti_error *err);

/*
 * The values of several keys at one moment.
 *
 * [in]         keys        `count` of them
 * [in]         count       1 to 1024
 * [in]         timeout_ms  how long to wait until all exist; 0 = the client's; TUTTI_KV_AT_ONCE
 * [out, owned] ret_values  `count` of them, each with a NUL behind it: tutti_free each
 * [out]        ret_sizes   bytes of each, without that NUL; NULL = not wanted
 *
 * TUTTI_NOT_FOUND           NO_KEY: at once; the text lists the missing keys
 * TUTTI_DEADLINE_EXCEEDED   TIMEOUT: likewise
 * TUTTI_INVALID_ARGUMENT    KEYS_LIMIT: no key, or more than 1024
 * TUTTI_RESOURCE_EXHAUSTED  MULTI_LIMIT: the values hold more than 3 MiB: ask for fewer
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_kv_multi_get(tutti_client *client, const tutti_kv_bytes *keys,
                                        size_t count, uint32_t timeout_ms, void **ret_values,
                                        size_t *ret_sizes, tutti_error *err);

/*
 * Store several keys, all or none. If a key is there twice, its last value counts.
 *
 * [in] keys    `count` of them
 * [in] values  one for each
 * [in] count   1 to 1024; keys and values together at most 3 MiB
 *
 * TUTTI_INVALID_ARGUMENT  KEYS_LIMIT: no key, or more than 1024; MULTI_LIMIT: more than 3 MiB
 * and the statuses of all functions here. Not made again after CONNECTION_LOST.
 */
TUTTI_API tutti_code tutti_kv_multi_set(tutti_client *client, const tutti_kv_bytes *keys,
                                        const tutti_kv_bytes *values, size_t count,
                                        tutti_error *err);

/*
 * Do keys exist? A queue that is not empty counts as a key. Never waits.
 *
 * [in]  count      1 to 1024
 * [out] ret_exist  `count` answers; NULL = not wanted
 * [out] ret_all    all of them do; NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT  KEYS_LIMIT: no key, or more than 1024
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_kv_check(tutti_client *client, const tutti_kv_bytes *keys, size_t count,
                                    bool *ret_exist, bool *ret_all, tutti_error *err);

/*
 * How many keys begin with a prefix. Very many are counted in slices: what changes meanwhile may be
 * counted or not.
 *
 * [in]  prefix     prefix_size bytes; size 0 = all keys
 * [out] ret_count  NULL = not wanted
 *
 * The statuses of all functions here.
 */
TUTTI_API tutti_code tutti_kv_count(tutti_client *client, const void *prefix, size_t prefix_size,
                                    uint64_t *ret_count, tutti_error *err);

/* ------------------------------------------------------------------ taking, queues */

/*
 * Wait until a key exists, get its value and delete it: one caller gets it, and no other one.
 * Callers of the same key are served in the order in which they came, after those that wait to read
 * it.
 *
 * [in]         timeout_ms  0 = the client's; TUTTI_KV_AT_ONCE
 * [out, owned] ret_value   not NULL; a NUL is behind the bytes; tutti_free it
 * [out]        ret_size    bytes without that NUL; NULL = not wanted
 *
 * TUTTI_NOT_FOUND          NO_KEY: at once, there is none
 * TUTTI_DEADLINE_EXCEEDED  TIMEOUT: none came
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_kv_take(tutti_client *client, const void *key, size_t key_size,
                                   uint32_t timeout_ms, void **ret_value, size_t *ret_size,
                                   tutti_error *err);

/*
 * Put a value at the end of a queue. The first value begins the queue, which is gone with its last
 * one.
 *
 * [in]  key         the queue's name, 1 to 1024 bytes
 * [in]  value       value_size bytes, at most 1 MiB
 * [out] ret_length  values in the queue with this one; NULL = not wanted
 *
 * The statuses of all functions here.
 */
TUTTI_API tutti_code tutti_kv_push(tutti_client *client, const void *key, size_t key_size,
                                   const void *value, size_t value_size, uint64_t *ret_length,
                                   tutti_error *err);

/*
 * Take the first value of a queue, waiting while there is none. Who came first is served first.
 *
 * [in]         key         the queue's name
 * [in]         timeout_ms  0 = the client's; TUTTI_KV_AT_ONCE
 * [out, owned] ret_value   not NULL; a NUL is behind the bytes; tutti_free it
 * [out]        ret_size    bytes without that NUL; NULL = not wanted
 *
 * TUTTI_NOT_FOUND          QUEUE_EMPTY: at once, there is none
 * TUTTI_DEADLINE_EXCEEDED  TIMEOUT: none came
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_kv_pop(tutti_client *client, const void *key, size_t key_size,
                                  uint32_t timeout_ms, void **ret_value, size_t *ret_size,
                                  tutti_error *err);

/*
 * How many values a queue holds.
 *
 * [out] ret_length  0 = there is no such queue; NULL = not wanted
 *
 * The statuses of all functions here.
 */
TUTTI_API tutti_code tutti_kv_length(tutti_client *client, const void *key, size_t key_size,
                                     uint64_t *ret_length, tutti_error *err);

/* ------------------------------------------------------------------ views */

/* Bytes of a key, prefixes of views included. */
#define TUTTI_KV_KEY_MAX 1024

/*
 * A view of the store for a library or a phase: its key "k" is "prefix/k" of the store, as with
 * PyTorch's PrefixStore. Views nest. A plain value that may be copied; there is nothing to free,
 * and the coordinator does not know of it.
 *
 *     tutti_kv_view view;
 *     char key[TUTTI_KV_KEY_MAX];
 *     size_t size;
 *
 *     tutti_kv_view_init(&view, NULL, "phase1", &err);
 *     tutti_kv_view_key(&view, "loss", 4, key, &size, &err);      // "phase1/loss"
 *     tutti_kv_set(client, key, size, "0.5", 3, &err);
 */
typedef struct tutti_kv_view {
    /* Bytes of the whole prefix, with the final "/". Set by tutti_kv_view_init. */
    size_t size;
    /* That prefix, without a NUL behind it. Also fit for tutti_kv_list, count and watch. */
    char bytes[TUTTI_KV_KEY_MAX];
} tutti_kv_view;

/*
 * Begin a view. Asks nobody; any thread.
 *
 * [out] view    unchanged if the function fails; may be `outer`
 * [in]  outer   the view that this one lies in; NULL = the store itself
 * [in]  prefix  a text; "/" is put behind it
 *
 * TUTTI_INVALID_ARGUMENT  BAD_KEY: no prefix, or all prefixes have more than TUTTI_KV_KEY_MAX bytes
 */
TUTTI_API tutti_code tutti_kv_view_init(tutti_kv_view *view, const tutti_kv_view *outer,
                                        const char *prefix, tutti_error *err);

/*
 * The store's key for a key of the view: what the tutti_kv functions take. Asks nobody; any thread.
 *
 * [in]  view      as tutti_kv_view_init made it
 * [in]  key       key_size bytes
 * [out] ret_key   memory for TUTTI_KV_KEY_MAX bytes; no NUL is written behind it
 * [out] ret_size  bytes of ret_key; not NULL
 *
 * TUTTI_INVALID_ARGUMENT  BAD_KEY: more than TUTTI_KV_KEY_MAX bytes together
 */
TUTTI_API tutti_code tutti_kv_view_key(const tutti_kv_view *view, const void *key, size_t key_size,
                                       void *ret_key, size_t *ret_size, tutti_error *err);

/* ------------------------------------------------------------------ leases */

/*
 * A lease: a time after which the keys that were set with it are deleted, unless the lease is kept
 * before. So what a process has set goes when the process dies:
 *
 *     tutti_kv_lease lease = {0};
 *
 *     code = tutti_kv_lease_grant(client, 10000, &lease, &err);
 *     code = tutti_kv_set_with_lease(client, "alive/7", 7, "", 0, lease.id, &err);
 *     // every 3 s:
 *     code = tutti_kv_lease_keep(client, lease.id, &lease, &err);
 *     // at the end; without it, when 10 s are over:
 *     code = tutti_kv_lease_revoke(client, lease.id, NULL, NULL, &err);
 *
 * A lease belongs to its job, and may be kept by any client that knows its number. With --store lmdb
 * it survives a restart of the coordinator, and its whole time begins again then.
 */
typedef struct tutti_kv_lease {
    /* Its number, other than 0. */
    uint64_t id;
    /* Its time, in milliseconds. */
    uint32_t ttl_ms;
    /* After so many milliseconds it ends, unless it is kept. */
    uint32_t left_ms;
    /* Keys that are deleted when it ends. */
    uint64_t key_count;
} tutti_kv_lease;

/*
 * Begin a lease. Its number is drawn at random.
 *
 * [in]  ttl_ms     --lease-min (1 s) to --lease-max (24 h) of the coordinator
 * [out] ret_lease  not NULL
 *
 * TUTTI_INVALID_ARGUMENT    LEASE_TTL: a time that the coordinator does not allow
 * TUTTI_RESOURCE_EXHAUSTED  LEASE_LIMIT: there are as many leases as --lease-limit allows
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_kv_lease_grant(tutti_client *client, uint32_t ttl_ms,
                                          tutti_kv_lease *ret_lease, tutti_error *err);

/*
 * Begin the time of a lease again. Nothing keeps a lease by itself: call this two or three times in
 * its time.
 *
 * [out] ret_lease  NULL = not wanted
 *
 * TUTTI_NOT_FOUND  NO_LEASE: it does not exist or has ended: grant one, and set its keys again
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_kv_lease_keep(tutti_client *client, uint64_t lease,
                                         tutti_kv_lease *ret_lease, tutti_error *err);

/*
 * End a lease now: its keys are deleted when this returns. That there is none is no error.
 *
 * [out] ret_existed    NULL = not wanted
 * [out] ret_key_count  keys that were deleted; NULL = not wanted
 *
 * The statuses of all functions here.
 */
TUTTI_API tutti_code tutti_kv_lease_revoke(tutti_client *client, uint64_t lease, bool *ret_existed,
                                           uint64_t *ret_key_count, tutti_error *err);

/* Called for one lease of a list; borrowed until it returns. False = no more. */
typedef bool (*tutti_kv_lease_fn)(void *arg, const tutti_kv_lease *lease);

/*
 * List the leases of the job, in the order of their numbers. What changes meanwhile may be seen or
 * not.
 *
 * [in] on_lease  runs on the caller's thread, and may call the library
 *
 * The statuses of all functions here.
 */
TUTTI_API tutti_code tutti_kv_lease_list(tutti_client *client, tutti_kv_lease_fn on_lease,
                                         void *arg, tutti_error *err);

/* ------------------------------------------------------------------ meeting */

/*
 * What a caller of tutti_meet states, and what it is answered. Begin with tutti_meeting_init.
 * Unlike other structs of libtutti this one must have exactly the library's size: a program has to
 * be compiled with the headers of the library that it runs with.
 */
typedef struct tutti_meeting {
    /* Bytes of this struct. Set by init; do not change it. */
    size_t size;
    /* [in] How many callers meet, alike for all: 1 to TUTTI_RANKS_MAX. Default: 0, which fails. */
    uint32_t count;
    /*
     * [in] The number that this caller wants: 0 to count - 1, or -1, the default. If all callers
     * state one, they get these; else all are numbered in the order of their names, those of one
     * name in the order in which they came.
     */
    int64_t rank;
    /*
     * [in] All callers are told this one's number as the root's. If several say so, the one with
     * the first name is the root. Default: false.
     */
    bool is_root;
    /*
     * [in] A device or a host, by which callers are put in order: at most 1024 bytes; borrowed
     * until the function returns. Default: "", and so is NULL.
     */
    const char *name;
    /* [in] Milliseconds to wait for the others. 0, the default, = the client's timeout_ms. */
    uint32_t timeout_ms;
    /* [out] This caller's number: 0 to count - 1. */
    uint32_t group_rank;
    /* [out] The root's number; -1 = no caller said that it is the root. */
    int64_t root_rank;
    /*
     * [out] A checksum of all names and numbers (FNV-1a): the same for all callers, and for callers
     * of another key who have the same names and numbers.
     */
    uint64_t group_hash;
} tutti_meeting;

/* [out] meeting  every field as its comment calls default; what is answered is 0 or -1 */
TUTTI_API void tutti_meeting_init(tutti_meeting *meeting);

/*
 * Wait at a key until as many callers have come as all of them state, and get a number among them:
 * for processes that know nothing of each other but the key. Nothing is stored, and the key can be
 * used again at once. No agent and no rank are needed. A caller that goes away has not come.
 *
 * [in]      key      1 to 1024 bytes; keys of meetings do not meet those of the store
 * [in, out] meeting  not NULL; what is answered is written on success only
 *
 * TUTTI_INVALID_ARGUMENT   GROUP_SIZE: callers state different counts: told to all that wait; or a
 *                          count of 0, or of more than TUTTI_RANKS_MAX
 *                          DUPLICATE_RANK: two callers state the same number: told to all
 *                          RANK_RANGE: a number that is not below the count, or below -1
 *                          NAME_LIMIT: a name of more than 1024 bytes
 *                          BAD_STRUCT: a meeting of another size than the library's
 * TUTTI_DEADLINE_EXCEEDED  TIMEOUT: the text says how many are missing, and who is here
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_meet(tutti_client *client, const void *key, size_t key_size,
                                tutti_meeting *meeting, tutti_error *err);

/* ------------------------------------------------------------------ backups
 *
 * A backup is a copy of all that a coordinator's store holds, of all jobs, while it runs. The bytes are a file.
 * `tutti restore` makes a store of it, whatever that is on; see docs/high-availability.md. They hold the secrets of all
 * jobs. Any thread, several at once.
 */

/* What a backup has. */
typedef struct tutti_backup_info {
    /* Of the store, at the moment of which the backup is: it counts all changes. */
    uint64_t version;
    /* How many keys, of all jobs, with the coordinator's own. */
    uint64_t key_count;
    /* Bytes of keys and values together. */
    uint64_t bytes;
    /* Bytes of the whole file. */
    uint64_t file_bytes;
} tutti_backup_info;

/*
 * Gets the file, a piece at a time, in order. On the thread that called tutti_backup.
 *
 * [in] arg   as it was given to tutti_backup
 * [in] info  the same for each piece; borrowed
 * [in] data  borrowed until it returns
 * [in] size  bytes; at least 1
 *
 * Return false to give up.
 */
typedef bool (*tutti_backup_fn)(void *arg, const tutti_backup_info *info, const void *data,
                                size_t size);

/*
 * Copy the store of the coordinator, as it is at one moment. Other calls go on meanwhile. The pieces
 * are a complete file only if this returns TUTTI_OK.
 *
 * [in]  timeout_ms  0 = as long as it takes
 * [in]  on_data     gets the pieces
 * [in]  arg         is passed to on_data
 * [out] ret_info    may be NULL
 *
 * TUTTI_CANCELLED            on_data has returned false
 * TUTTI_RESOURCE_EXHAUSTED   BACKUP_LIMIT: the coordinator makes 4 others; NO_MEMORY: it has no
 *                            memory for what changes meanwhile
 * TUTTI_PERMISSION_DENIED    it needs the role admin, for all jobs
 * TUTTI_FAILED_PRECONDITION  NO_COORDINATOR
 * TUTTI_DATA_LOSS            BACKUP_FORMAT: fewer bytes have come than were announced
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_backup(tutti_client *client, uint32_t timeout_ms,
                                  tutti_backup_fn on_data, void *arg, tutti_backup_info *ret_info,
                                  tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
