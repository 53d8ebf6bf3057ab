/*
 * What a watch needs to go on where an earlier one has ended, also at the next leader: which
 * prefixes are watched, and the last changes of their keys. Both are in memory, and in the store
 * if that outlives the process. Private to this folder.
 *
 * Invariant: each change of a key under a prefix, from the prefix's `since` on, is in the history.
 */
#ifndef TUTTI_SERVER_COORDINATOR_KV_WATCH_HISTORY_H
#define TUTTI_SERVER_COORDINATOR_KV_WATCH_HISTORY_H

#include "server/coordinator/core/core.h"
#include "server/coordinator/core/types.h"

#define COORD_HISTORY_CHANGES 4096       /* that are kept, of all prefixes together */
#define COORD_HISTORY_BYTES (8ull << 20) /* of them */

/* A prefix that is watched, or was within the retry window. */
typedef struct coord_prefix {
    tutti_map_node node;
    tutti_list_node members; /* its watches */
    tutti_list_node idle;    /* among those that nobody watches now, the oldest first */
    uint64_t idle_until_ns;
    uint64_t since; /* changes from this version on are in the history */
    size_t job_size;
    unsigned char key[]; /* job NUL prefix */
} coord_prefix;

/* ------------------------------------------------------------------------------ prefixes */

/* NULL = nobody watches it, or did a short time ago. */
coord_prefix *coord_prefix_find(const tutti_coordinator *self, tutti_bytes full);

/*
 * Put a watch to its prefix.
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code coord_prefix_add(tutti_coordinator *self, const coord_full_key *full,
                            tutti_list_node *link, coord_prefix **ret_prefix, tutti_error *err);

/* Take it out. The prefix stays for the retry window, and goes with it. */
void coord_prefix_remove(tutti_coordinator *self, coord_prefix *prefix, tutti_list_node *link);

/* Call `each` with all prefixes of a key, the key's own among them. */
void coord_prefixes_match(tutti_coordinator *self, tutti_bytes full,
                          void (*each)(tutti_coordinator *self, coord_prefix *prefix, void *arg),
                          void *arg);

/* Write again from where on its changes are known. */
void coord_prefix_record(tutti_coordinator *self, const coord_prefix *prefix);

/* ------------------------------------------------------------------------------ history */

/*
 * A number drawn at random, for as long as versions of this store are comparable: who asks for
 * changes from a version on has to know it.
 */
uint64_t coord_history_id(tutti_coordinator *self);

/* Keep a change of a key that somebody watches. What has no room is no more known: `since` of its
 * prefixes passes it. */
void coord_history_add(tutti_coordinator *self, const coord_news *news);

/*
 * Give out what is kept of a prefix from a version on, but for the first `skip` changes of that
 * version.
 */
void coord_history_replay(tutti_coordinator *self, const coord_prefix *prefix, uint64_t from,
                          uint32_t skip, void (*each)(void *arg, const coord_news *news),
                          void *arg);

/* What the process before left in the store. */
void coord_history_restore(tutti_coordinator *self);

void coord_history_init(tutti_coordinator *self);
/* Nobody watches any more. What is recorded stays for the next process. */
void coord_history_fini(tutti_coordinator *self);

void coord_prefixes_init(tutti_coordinator *self);
void coord_prefixes_restore(tutti_coordinator *self);
void coord_prefixes_fini(tutti_coordinator *self);

#endif
