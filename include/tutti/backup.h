/*
 * Backup: a copy of all that a coordinator's store holds, of all jobs, while it runs.
 *
 * The bytes are a file. `tutti restore` makes a store of it, whatever that is on; see
 * docs/high-availability.md. They hold the secrets of all jobs.
 *
 * Threads: any thread, several at once.
 */
#ifndef TUTTI_BACKUP_H
#define TUTTI_BACKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"

#ifdef __cplusplus
extern "C" {
#endif

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
