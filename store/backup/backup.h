/*
 * Backup: a snapshot of a store as a file, whatever its backend is, and back.
 *
 * The file, numbers little-endian:
 *
 *     head   "tutti backup 1\n", NUL; version of the store, count of keys, bytes of keys and
 *            values: 8 bytes each; digest of all of these: 8
 *     entry  size of key, size of value: 4 each; version: 8; key; value. In the order of the keys
 *     end    0: 8; digest of all before it: 8
 *
 * It has the keys by which agents show each other who they are, and all that clients have stored:
 * whoever can read it can speak for them.
 */
#ifndef TUTTI_STORE_BACKUP_BACKUP_H
#define TUTTI_STORE_BACKUP_BACKUP_H

#include <stdio.h>

#include "store/store.h"

typedef struct tutti_store_backup tutti_store_backup;

/*
 * Begin a backup of what the store has now.
 *
 * [out, owned] ret_backup  to be freed before the store is closed
 *
 * TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY
 */
tutti_code tutti_store_backup_new(tutti_store *store, tutti_store_backup **ret_backup,
                                  tutti_error *err);

/*
 * The next piece of the file: at least 256 KiB, at most that and the largest entry.
 *
 * [out] ret_piece  borrowed until the next call on the backup; size 0 = the file is complete
 *
 * TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY
 */
tutti_code tutti_store_backup_next(tutti_store_backup *backup, tutti_bytes *ret_piece,
                                   tutti_error *err);

const tutti_store_moment *tutti_store_backup_moment(const tutti_store_backup *backup);

/* Of the whole file. */
uint64_t tutti_store_backup_bytes(const tutti_store_moment *moment);

void tutti_store_backup_free(tutti_store_backup *backup); /* NULL is fine */

/*
 * Read such a file as a snapshot, for tutti_store_take. Each entry is checked before it is given
 * out, and behind the last one the digest of all.
 *
 * [in] file  borrowed as long as the snapshot; need not be seekable
 * [in] name  for errors; likewise
 *
 * TUTTI_INVALID_ARGUMENT    BACKUP_FORMAT: it is no backup, or of a newer version
 * TUTTI_DATA_LOSS           BACKUP_FORMAT: it is cut or damaged; of tutti_store_snapshot_next too
 * TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY
 * and what the system says of the file
 */
tutti_code tutti_store_backup_open(FILE *file, const char *name,
                                   tutti_store_snapshot **ret_snapshot, tutti_error *err);

#endif
