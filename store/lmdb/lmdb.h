/*
 * The store in memory with a copy in a folder: what a process that is killed leaves there, the next
 * one finds. Reading costs what memory costs; a change is in the folder before it is answered, or,
 * with `deferred`, when tutti_store_durable says so.
 *
 * "In the folder" means in the hands of the system: changes survive the death of the process. What
 * the death of the machine costs is what `sync` says.
 */
#ifndef TUTTI_STORE_LMDB_H
#define TUTTI_STORE_LMDB_H

#include "store/store.h"

/* What is waited for before a change is answered. */
typedef enum tutti_store_lmdb_sync {
    TUTTI_STORE_LMDB_NONE,  /* nothing: a dead machine may leave a store that cannot be read */
    TUTTI_STORE_LMDB_ORDER, /* the disk has the change, but not that it counts: a dead machine may
                               cost the last change; what is left is whole */
    TUTTI_STORE_LMDB_FULL,  /* the disk has it; with `deferred` that is one wait, else two */
} tutti_store_lmdb_sync;

typedef struct tutti_store_lmdb_options {
    const char *path; /* of the folder; made when it is not there */
    tutti_store_lmdb_sync sync;
    uint64_t bytes_max; /* of keys and values together; 0 = 256 MiB */
    uint64_t keys_max;  /* 0 = 1 000 000 */

    /* A change is not in the folder when it returns, but when tutti_store_durable says so: the
     * owner calls tutti_store_flush. One wait for the disk is then for many changes, and on a
     * thread of its own. If such a write fails, nothing is taken back: the owner has to end.
     * `on_write` is not called. */
    bool deferred;

    /* May be NULL. A change could not be written though the limits allow it, and changes before it
     * could; with `why` NULL: they can be written again. Called from inside the change. */
    void (*on_write)(void *context, const tutti_error *why);
    void *context;
} tutti_store_lmdb_options;

/*
 * TUTTI_FAILED_PRECONDITION  STORE_BUSY: another process has the folder open;
 *                            STORE_FORMAT: it is not ours, or of a newer version
 * TUTTI_DATA_LOSS            STORE_FORMAT: data.mdb is damaged or gone. Every page is looked at
 *                            before it is used, and what rows contain is compared with a digest:
 *                            what was stored is there, or it is refused
 * TUTTI_RESOURCE_EXHAUSTED   STORE_LIMIT; no memory
 * and what the system says of the folder
 * Later changes, beside what store.h says: TUTTI_RESOURCE_EXHAUSTED STORE_FULL when the disk is,
 * TUTTI_DATA_LOSS STORE_FORMAT when somebody has cut or spoilt data.mdb meanwhile, STORE_WENT_BACK when
 * another file or an older one is in its place, TUTTI_UNAVAILABLE STORE_STOPPED when a write has failed
 * before, or what the system says; nothing changed then, and reading goes on.
 */
tutti_code tutti_store_lmdb_open(const tutti_store_lmdb_options *options, tutti_store **ret_store,
                                 tutti_error *err);

/* Was the folder left without being closed, with TUTTI_STORE_LMDB_NONE, by a machine that has been
 * started anew since, or by another one? Then its last changes may be missing. */
bool tutti_store_lmdb_was_cut(tutti_store *store);

/* Was the last change of a process that died, with TUTTI_STORE_LMDB_FULL and `deferred`, only in part in the
 * folder, so that the store was opened as it was before that change? It had not become durable. */
bool tutti_store_lmdb_went_back(tutti_store *store);

#endif
