/*
 * Goal: a backup of anybody's does no harm, and what is read from one keeps the limits of a store.
 * Method: the input as a file; the head of half of the inputs is made right, as nothing finds its digest
 * of its own accord. All entries go into a store in memory.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/backup/format.h"
#include "store/memory/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
mend_head(uint8_t *bytes)
{
    backup_digest digest = {0};

    memcpy(bytes, BACKUP_MAGIC, sizeof(BACKUP_MAGIC));
    backup_digest_add(&digest, (tutti_bytes){bytes, BACKUP_HEAD_BYTES - 8});
    backup_put(bytes + BACKUP_HEAD_BYTES - 8, digest.state, 8);
}

static void
take_all(FILE *file)
{
    tutti_store_snapshot *snapshot = NULL;
    tutti_store *store = NULL;
    tutti_error err;

    assert(tutti_store_memory_open(NULL, &store, NULL) == TUTTI_OK);
    if (tutti_store_backup_open(file, "input", &snapshot, &err) == TUTTI_OK &&
        tutti_store_take(store, snapshot, NULL, NULL, &err) == TUTTI_OK) {
        tutti_store_stats stats;

        tutti_store_stat(store, &stats);
        assert(stats.key_count == tutti_store_snapshot_moment(snapshot)->stats.key_count);
        assert(tutti_store_version(store) == tutti_store_snapshot_moment(snapshot)->version);
    }
    tutti_store_snapshot_free(snapshot);
    tutti_store_close(store);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + 1);
    FILE *file;

    assert(bytes != NULL);
    memcpy(bytes, data, size);
    if (size >= BACKUP_HEAD_BYTES && bytes[0] % 2 == 0) {
        mend_head(bytes);
    }
    file = size == 0 ? fopen("/dev/null", "rb") : fmemopen(bytes, size, "rb");
    assert(file != NULL);
    take_all(file);
    (void)fclose(file);
    free(bytes);
    return 0;
}
