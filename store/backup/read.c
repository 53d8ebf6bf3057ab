/*
 * A file as a snapshot. It may be anything: each size is compared with its limit before a byte is
 * read into memory, so a file that lies costs no more than the largest entry.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "store/backup/format.h"
#include "store/store_backend.h"

typedef struct backup_file {
    tutti_store_snapshot base;
    FILE *file;
    const char *name;
    backup_digest digest;
    uint64_t at; /* bytes that were read */
    tutti_store_stats seen;
    size_t last_size; /* of the key before, which is in `last` */
    unsigned char last[TUTTI_STORE_KEY_MAX];
    unsigned char bytes[BACKUP_ENTRY_BYTES + TUTTI_STORE_KEY_MAX + TUTTI_STORE_VALUE_MAX];
} backup_file;

static tutti_code
fail_damaged(const backup_file *self, const char *what, tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BACKUP_FORMAT",
                          "the backup %s is damaged: %s, before its byte %llu: take another one",
                          self->name, what, (unsigned long long)self->at);
}

static tutti_code
read_exactly(backup_file *self, unsigned char *to, size_t size, tutti_error *err)
{
    const size_t got = fread(to, 1, size, self->file);

    self->at += got;
    if (got == size) {
        return TUTTI_OK;
    }
    if (ferror(self->file) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not read the backup %s", self->name);
    }
    return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BACKUP_FORMAT",
                          "the backup %s is cut: it ends at byte %llu without an end: copy it "
                          "again, or take another one",
                          self->name, (unsigned long long)self->at);
}

static tutti_code
take_head(backup_file *self, const unsigned char *head, tutti_error *err)
{
    backup_digest_add(&self->digest, (tutti_bytes){head, BACKUP_HEAD_BYTES - 8});
    if (backup_get(head + BACKUP_HEAD_BYTES - 8, 8) != self->digest.state) {
        return fail_damaged(self, "its head does not match its digest", err);
    }
    self->base.moment.version = backup_get(head + sizeof(BACKUP_MAGIC), 8);
    self->base.moment.stats.key_count = backup_get(head + sizeof(BACKUP_MAGIC) + 8, 8);
    self->base.moment.stats.used_bytes = backup_get(head + sizeof(BACKUP_MAGIC) + 16, 8);
    return TUTTI_OK;
}

static tutti_code
read_head(backup_file *self, tutti_error *err)
{
    unsigned char *head = self->bytes;

    TUTTI_TRY(read_exactly(self, head, sizeof(BACKUP_MAGIC), err));
    if (memcmp(head, BACKUP_MAGIC, BACKUP_MAGIC_KIND) != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BACKUP_FORMAT",
                              "%s is not a backup: need a file that tutti backup has written",
                              self->name);
    }
    if (memcmp(head, BACKUP_MAGIC, sizeof(BACKUP_MAGIC)) != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BACKUP_FORMAT",
                              "the backup %s is of another format than 1: restore it with the "
                              "version of Tutti that it was taken with",
                              self->name);
    }
    TUTTI_TRY(read_exactly(self, head + sizeof(BACKUP_MAGIC),
                           BACKUP_HEAD_BYTES - sizeof(BACKUP_MAGIC), err));
    return take_head(self, head, err);
}

/* The digest has 8 bytes where an entry has its version. */
static tutti_code
check_end(backup_file *self, tutti_error *err)
{
    const tutti_store_stats *said = &self->base.moment.stats;

    backup_digest_add(&self->digest, (tutti_bytes){self->bytes, 8});
    if (backup_get(self->bytes + 8, 8) != self->digest.state) {
        return fail_damaged(self, "its entries do not match their digest", err);
    }
    if (self->seen.key_count != said->key_count || self->seen.used_bytes != said->used_bytes) {
        return fail_damaged(self, "it has not as many entries as its head says", err);
    }
    if (fgetc(self->file) != EOF) {
        return fail_damaged(self, "something stands behind its end", err);
    }
    return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_KEY", "there is no further key");
}

/* [in] entry  its sizes and version; its bytes are read now */
static tutti_code
read_entry(backup_file *self, tutti_store_entry *entry, tutti_error *err)
{
    unsigned char *key = self->bytes + BACKUP_ENTRY_BYTES;
    const tutti_bytes last = {self->last, self->last_size};
    const size_t size = entry->key.size + entry->value.size;

    TUTTI_TRY(read_exactly(self, key, size, err));
    backup_digest_add(&self->digest, (tutti_bytes){self->bytes, BACKUP_ENTRY_BYTES + size});
    entry->key.data = key;
    entry->value.data = key + entry->key.size;
    if (tutti_bytes_compare(entry->key, last) <= 0) {
        return fail_damaged(self, "its keys are out of order", err);
    }
    memcpy(self->last, key, entry->key.size);
    self->last_size = entry->key.size;
    self->seen.key_count++;
    self->seen.used_bytes += size;
    return TUTTI_OK;
}

static tutti_code
next_of_file(tutti_store_snapshot *snapshot, tutti_store_entry *ret_entry, tutti_error *err)
{
    backup_file *self = tutti_container_of(snapshot, backup_file, base);

    TUTTI_TRY(read_exactly(self, self->bytes, BACKUP_ENTRY_BYTES, err));
    ret_entry->key.size = backup_get(self->bytes, 4);
    ret_entry->value.size = backup_get(self->bytes + 4, 4);
    ret_entry->version = backup_get(self->bytes + 8, 8);
    if (ret_entry->key.size == 0 && ret_entry->value.size == 0) {
        return check_end(self, err);
    }
    if (ret_entry->key.size == 0 || ret_entry->key.size > TUTTI_STORE_KEY_MAX ||
        ret_entry->value.size > TUTTI_STORE_VALUE_MAX || ret_entry->version == 0 ||
        ret_entry->version > self->base.moment.version) {
        return fail_damaged(self, "an entry has an impossible size or version", err);
    }
    return read_entry(self, ret_entry, err);
}

static void
free_file(tutti_store_snapshot *snapshot)
{
    free(tutti_container_of(snapshot, backup_file, base));
}

static const tutti_store_snapshot_ops file_ops = {.next = next_of_file, .free = free_file};

tutti_code
tutti_store_backup_open(FILE *file, const char *name, tutti_store_snapshot **ret_snapshot,
                        tutti_error *err)
{
    backup_file *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for a backup");
    }
    self->base.ops = &file_ops;
    self->file = file;
    self->name = name;
    code = read_head(self, err);
    if (code != TUTTI_OK) {
        free(self);
        return code;
    }
    *ret_snapshot = &self->base;
    return TUTTI_OK;
}
