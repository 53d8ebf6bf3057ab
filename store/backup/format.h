/* What writing and reading a backup share. Private to this folder. */
#ifndef TUTTI_STORE_BACKUP_FORMAT_H
#define TUTTI_STORE_BACKUP_FORMAT_H

#include "store/backup/backup.h"

#define BACKUP_MAGIC "tutti backup 1\n" /* and its NUL */
#define BACKUP_MAGIC_KIND 13            /* bytes of it that all versions share */
#define BACKUP_HEAD_BYTES (sizeof(BACKUP_MAGIC) + 32)
#define BACKUP_ENTRY_BYTES 16 /* before the key; also of the end */

/* A digest of bytes that come in pieces. It finds accidents, not forgers. */
typedef struct backup_digest {
    uint64_t state;
} backup_digest;

void backup_digest_add(backup_digest *digest, tutti_bytes bytes);

void backup_put(unsigned char *to, uint64_t number, size_t bytes);
uint64_t backup_get(const unsigned char *from, size_t bytes);

#endif
