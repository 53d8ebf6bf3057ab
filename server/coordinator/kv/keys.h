/*
 * Keys: the store as clients see it: keys of a job, counters, waiting for keys, watching them.
 *
 * In the store a key is `job NUL key`; a job's name has no NUL, so two jobs never meet. Keys need
 * no members: whoever knows a job's name may use its keys, before, while and after it has ranks.
 * They are removed when a job ends that was formed.
 *
 * See coordinator.h for threads, time and what parked means. What is lent is good until the next
 * call on the coordinator.
 */
#ifndef TUTTI_SERVER_COORDINATOR_KV_KEYS_H
#define TUTTI_SERVER_COORDINATOR_KV_KEYS_H

#include "base/data/bytes.h"
#include "server/coordinator/coordinator.h"

#define TUTTI_COORDINATOR_KEY_MAX 1024          /* bytes */
#define TUTTI_COORDINATOR_WAIT_KEYS_MAX 1024    /* keys of one Wait */
#define TUTTI_COORDINATOR_PAGE_MAX 1000         /* entries of one page */
#define TUTTI_COORDINATOR_PAGE_DEFAULT 100      /* likewise, when nothing is asked */
#define TUTTI_COORDINATOR_PAGE_BYTES (2u << 20) /* keys and values of one page */

/* A job's key. `job` empty or NULL = "default". Borrowed. */
typedef struct tutti_coordinator_key {
    const char *job;
    tutti_bytes key;
} tutti_coordinator_key;

/* Codes of all: TUTTI_INVALID_ARGUMENT BAD_NAME, BAD_KEY. */

/* TUTTI_NOT_FOUND  NO_KEY */
tutti_code tutti_coordinator_key_get(tutti_coordinator *self, const tutti_coordinator_key *key,
                                     tutti_store_entry *ret_entry, tutti_error *err);

/* TUTTI_INVALID_ARGUMENT VALUE_LIMIT; TUTTI_RESOURCE_EXHAUSTED STORE_LIMIT */
tutti_code tutti_coordinator_key_set(tutti_coordinator *self, const tutti_coordinator_key *key,
                                     tutti_bytes value, uint64_t *ret_version, tutti_error *err);

/*
 * The same with a lease (lease.h), with which the key goes. 0 = without one.
 *
 * TUTTI_NOT_FOUND  NO_LEASE; and the codes of tutti_coordinator_key_set
 */
tutti_code tutti_coordinator_key_set_leased(tutti_coordinator *self,
                                            const tutti_coordinator_key *key, tutti_bytes value,
                                            uint64_t lease, uint64_t *ret_version,
                                            tutti_error *err);

typedef struct tutti_coordinator_swap_request {
    tutti_coordinator_key key;
    const tutti_bytes *expected; /* NULL = there must be no key */
    bool missing_is_empty;       /* a key that does not exist counts as one of zero bytes */
    tutti_bytes value;
    uint64_t lease; /* 0 = none */
} tutti_coordinator_swap_request;

typedef struct tutti_coordinator_swap {
    bool swapped;
    bool exists;             /* is there a key now? */
    tutti_store_entry entry; /* what is stored now */
} tutti_coordinator_swap;

/* Store `value` when what is stored equals `expected`. Codes as tutti_coordinator_key_set_leased. */
tutti_code tutti_coordinator_key_swap(tutti_coordinator *self,
                                      const tutti_coordinator_swap_request *request,
                                      tutti_coordinator_swap *ret_swap, tutti_error *err);

/*
 * A change that must not be done twice: with a token (0 = none) the answer is kept for
 * --retry-window, and given to the next call with this token, method and key.
 */
typedef struct tutti_coordinator_change {
    tutti_coordinator_key key;
    uint64_t token;
} tutti_coordinator_change;

typedef struct tutti_coordinator_changed {
    int64_t number; /* a counter's new value; a value's new bytes; a queue's new length */
    uint64_t version;
} tutti_coordinator_changed;

/*
 * Add to a counter: decimal text, absent = 0.
 *
 * TUTTI_FAILED_PRECONDITION  NOT_A_NUMBER: what is stored is not -?[0-9]+ of 64 bits
 * TUTTI_OUT_OF_RANGE         OVERFLOW; nothing changed
 * TUTTI_RESOURCE_EXHAUSTED   STORE_LIMIT
 */
tutti_code tutti_coordinator_key_add(tutti_coordinator *self,
                                     const tutti_coordinator_change *change, int64_t delta,
                                     tutti_coordinator_changed *ret_changed, tutti_error *err);

/*
 * Put bytes behind a value; absent = empty.
 *
 * TUTTI_INVALID_ARGUMENT    VALUE_LIMIT: of the whole
 * TUTTI_RESOURCE_EXHAUSTED  STORE_LIMIT; no memory
 */
tutti_code tutti_coordinator_key_append(tutti_coordinator *self,
                                        const tutti_coordinator_change *change, tutti_bytes value,
                                        tutti_coordinator_changed *ret_changed, tutti_error *err);

tutti_code tutti_coordinator_key_delete(tutti_coordinator *self, const tutti_coordinator_key *key,
                                        bool *ret_existed, tutti_error *err);

/* ------------------------------------------------------------------------------ list, count */

/* A page of entries, with the bytes they point to. Zero it before, fini it after. */
typedef struct tutti_coordinator_page {
    tutti_store_entry *entries; /* keys without the job */
    size_t count;
    bool more; /* go on behind the last key */
    tutti_buf bytes;
} tutti_coordinator_page;

typedef struct tutti_coordinator_list_request {
    tutti_coordinator_key prefix; /* zero bytes = all */
    tutti_bytes after;            /* the last page's last key; zero bytes = from the start */
    uint32_t page_size;           /* 0 = TUTTI_COORDINATOR_PAGE_DEFAULT */
    bool keys_only;
} tutti_coordinator_list_request;

/* TUTTI_INVALID_ARGUMENT PAGE_LIMIT; TUTTI_RESOURCE_EXHAUSTED no memory */
tutti_code tutti_coordinator_key_list(tutti_coordinator *self,
                                      const tutti_coordinator_list_request *request,
                                      tutti_coordinator_page *ret_page, tutti_error *err);

void tutti_coordinator_page_fini(tutti_coordinator_page *page);

/* A parked Count: many keys are counted in slices, so what changes meanwhile may count or not. */
typedef struct tutti_coordinator_count tutti_coordinator_count;
struct tutti_coordinator_count {
    void (*on_answer)(tutti_coordinator_count *count, uint64_t number, const tutti_error *err);
    /* The coordinator's: */
    tutti_coordinator_pending_call wait;
    tutti_list_node link;
    uint64_t number;
    size_t prefix_size;
    size_t after_size;
    unsigned char prefix[TUTTI_COORDINATOR_KEY_MAX + 160];
    unsigned char after[TUTTI_STORE_KEY_MAX];
};

/* Parks. TUTTI_RESOURCE_EXHAUSTED WAITER_LIMIT; TUTTI_UNAVAILABLE DRAINING. */
tutti_code tutti_coordinator_count_start(tutti_coordinator *self,
                                         const tutti_coordinator_key *prefix,
                                         tutti_coordinator_count *count, tutti_error *err);

void tutti_coordinator_count_withdraw(tutti_coordinator_count *count);

/* ------------------------------------------------------------------------------ wait */

/* A parked Wait, or MultiGet. Zero it and set the callback. */
typedef struct tutti_coordinator_key_wait tutti_coordinator_key_wait;
struct tutti_coordinator_key_wait {
    /* `version` of the store when all keys were there; `values` lends theirs if they are wanted. */
    void (*on_answer)(tutti_coordinator_key_wait *wait, uint64_t version, const tutti_error *err);
    const tutti_coordinator_page *values; /* lent while on_answer runs; entries have no keys */
    /* The coordinator's: */
    tutti_coordinator_pending_call wait;
    tutti_list_node link; /* among those that are ready */
    const char *job;
    bool with_values;
    struct coord_wanted_key *wants;
    size_t count;
    size_t missing;
    size_t bytes;
};

typedef struct tutti_coordinator_wait_request {
    const char *job;
    const tutti_bytes *keys; /* what they point to is borrowed until the call is no longer parked */
    size_t count;
    bool with_values; /* of keys alone; without it queues count as keys */
    uint64_t deadline_ns;
} tutti_coordinator_wait_request;

/*
 * Wait until all keys exist at one moment.
 *
 * TUTTI_OK                  parked
 * TUTTI_INVALID_ARGUMENT    BAD_NAME, BAD_KEY; no key or too many: WAIT_LIMIT, with values
 *                           KEYS_LIMIT
 * TUTTI_RESOURCE_EXHAUSTED  WAITER_LIMIT: calls, or bytes of keys; no memory
 * TUTTI_UNAVAILABLE         DRAINING
 *
 * The answer, beside OK:
 *
 * TUTTI_DEADLINE_EXCEEDED   TIMEOUT
 * TUTTI_UNAVAILABLE         DRAINING
 * TUTTI_RESOURCE_EXHAUSTED  MULTI_LIMIT: the values are too large for one answer
 */
tutti_code tutti_coordinator_key_wait_start(tutti_coordinator *self,
                                            const tutti_coordinator_wait_request *request,
                                            tutti_coordinator_key_wait *wait, tutti_error *err);

void tutti_coordinator_key_wait_withdraw(tutti_coordinator_key_wait *wait);

/* ------------------------------------------------------------------------------ watch */

/* The numbers of tutti.v1.WatchKind. */
typedef enum tutti_coordinator_change_kind {
    TUTTI_COORDINATOR_BEGUN = 1,
    TUTTI_COORDINATOR_SET = 2,
    TUTTI_COORDINATOR_DELETED = 3,
} tutti_coordinator_change_kind;

/* A watch. Zero it and set the callbacks. */
typedef struct tutti_coordinator_watch tutti_coordinator_watch;
struct tutti_coordinator_watch {
    /*
     * One message; the next comes only after tutti_coordinator_watch_written. The first is BEGUN
     * with the version only.
     */
    void (*on_change)(tutti_coordinator_watch *watch, tutti_coordinator_change_kind kind,
                      const tutti_store_entry *entry);
    /* End the stream: RESOURCE_EXHAUSTED SLOW_WATCHER, UNAVAILABLE DRAINING. */
    void (*on_end)(tutti_coordinator_watch *watch, const tutti_error *err);
    /* The coordinator's: */
    tutti_coordinator_pending_call wait;
    tutti_list_node link; /* among those that watch the same prefix */
    tutti_list_node due;  /* among those that have something to send */
    struct coord_prefix *prefix;
    struct coord_change **changes; /* a ring */
    size_t capacity;
    size_t first;
    size_t count;
    size_t bytes;
    size_t missed; /* changes it began with, since it goes on where another one ended */
    size_t missed_bytes;
    uint64_t begun; /* the version; 0 = told already */
    bool begin;
    bool writing;
    const char *slow; /* why it ends with its turn: its backlog has run over; NULL = it has not */
};

/* Where an earlier watch of the same prefix has ended. */
typedef struct tutti_coordinator_watch_place {
    uint64_t history; /* as tutti_coordinator_watch_history gave it; 0 = there was none */
    uint64_t from;    /* changes of this version and later ones are to be told ... */
    uint32_t skip;    /* ... but for so many, the first of this version */
} tutti_coordinator_watch_place;

/*
 * [in] place  NULL = every change from now on is told
 *
 * TUTTI_OK                   parked
 * TUTTI_RESOURCE_EXHAUSTED   WAITER_LIMIT: --watcher-limit; no memory
 * TUTTI_FAILED_PRECONDITION  WATCH_GAP: not all changes from there on are known
 * TUTTI_UNAVAILABLE          DRAINING
 */
tutti_code tutti_coordinator_watch_start(tutti_coordinator *self,
                                         const tutti_coordinator_key *prefix,
                                         const tutti_coordinator_watch_place *place,
                                         tutti_coordinator_watch *watch, tutti_error *err);

/* For `place` of a watch that goes on. */
uint64_t tutti_coordinator_watch_history(tutti_coordinator *self);

/* The message in flight has left. Not parked is fine. */
void tutti_coordinator_watch_written(tutti_coordinator_watch *watch);

void tutti_coordinator_watch_withdraw(tutti_coordinator_watch *watch);

#endif
