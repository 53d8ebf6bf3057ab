/* A snapshot as the pieces of a file. */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "store/backup/format.h"

#define PIECE_BYTES ((size_t)256 << 10)
#define ENTRY_MAX (BACKUP_ENTRY_BYTES + TUTTI_STORE_KEY_MAX + TUTTI_STORE_VALUE_MAX)

struct tutti_store_backup {
    tutti_store_snapshot *snapshot; /* [owned] */
    backup_digest digest;
    bool begun;
    bool ended;
    size_t used;
    unsigned char bytes[BACKUP_HEAD_BYTES + PIECE_BYTES + ENTRY_MAX];
};

tutti_code
tutti_store_backup_new(tutti_store *store, tutti_store_backup **ret_backup, tutti_error *err)
{
    tutti_store_backup *self = malloc(sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for a backup");
    }
    self->digest = (backup_digest){0};
    self->begun = false;
    self->ended = false;
    code = tutti_store_snapshot_new(store, &self->snapshot, err);
    if (code != TUTTI_OK) {
        free(self);
        return code;
    }
    *ret_backup = self;
    return TUTTI_OK;
}

const tutti_store_moment *
tutti_store_backup_moment(const tutti_store_backup *backup)
{
    return tutti_store_snapshot_moment(backup->snapshot);
}

uint64_t
tutti_store_backup_bytes(const tutti_store_moment *moment)
{
    return BACKUP_HEAD_BYTES + moment->stats.used_bytes +
           (moment->stats.key_count + 1) * BACKUP_ENTRY_BYTES;
}

static void
put_number_behind(tutti_store_backup *self, uint64_t number, size_t bytes)
{
    backup_put(self->bytes + self->used, number, bytes);
    self->used += bytes;
}

static void
put_bytes_behind(tutti_store_backup *self, tutti_bytes bytes)
{
    if (bytes.size > 0) {
        memcpy(self->bytes + self->used, bytes.data, bytes.size);
    }
    self->used += bytes.size;
}

/* The digest so far is a part of the file, and of what comes behind it. */
static void
put_digest(tutti_store_backup *self, size_t from)
{
    backup_digest_add(&self->digest, (tutti_bytes){self->bytes + from, self->used - from});
    put_number_behind(self, self->digest.state, 8);
}

static void
put_head(tutti_store_backup *self)
{
    const tutti_store_moment *moment = tutti_store_backup_moment(self);

    put_bytes_behind(self, (tutti_bytes){BACKUP_MAGIC, sizeof(BACKUP_MAGIC)});
    put_number_behind(self, moment->version, 8);
    put_number_behind(self, moment->stats.key_count, 8);
    put_number_behind(self, moment->stats.used_bytes, 8);
    put_digest(self, 0);
    self->begun = true;
}

static void
put_entry_behind(tutti_store_backup *self, const tutti_store_entry *entry)
{
    const size_t from = self->used;

    put_number_behind(self, entry->key.size, 4);
    put_number_behind(self, entry->value.size, 4);
    put_number_behind(self, entry->version, 8);
    put_bytes_behind(self, entry->key);
    put_bytes_behind(self, entry->value);
    backup_digest_add(&self->digest, (tutti_bytes){self->bytes + from, self->used - from});
}

static void
put_file_end(tutti_store_backup *self)
{
    const size_t from = self->used;

    put_number_behind(self, 0, 8);
    put_digest(self, from);
    self->ended = true;
}

tutti_code
tutti_store_backup_next(tutti_store_backup *self, tutti_bytes *ret_piece, tutti_error *err)
{
    tutti_store_entry entry = {0};
    tutti_error why = {0};

    self->used = 0;
    if (!self->begun) {
        put_head(self);
    }
    while (!self->ended && self->used < PIECE_BYTES) {
        const tutti_code code = tutti_store_snapshot_next(self->snapshot, &entry, &why);

        if (code == TUTTI_OK) {
            put_entry_behind(self, &entry);
        } else if (code == TUTTI_NOT_FOUND) {
            put_file_end(self);
        } else {
            return tutti_error_pass(err, &why);
        }
    }
    *ret_piece = (tutti_bytes){self->bytes, self->used};
    return TUTTI_OK;
}

void
tutti_store_backup_free(tutti_store_backup *self)
{
    if (self != NULL) {
        tutti_store_snapshot_free(self->snapshot);
        free(self);
    }
}
