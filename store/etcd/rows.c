/*
 * How the store lies in etcd, below the prefix:
 *
 *     leader    the address of the coordinator that leads; it goes with the lease
 *     version   "tutti store 1, version 17, log 0, by 70af41c2d98be305.4": written by each
 *               transaction, so that no two leave the same; the end is the leader's number, and how
 *               many transactions it has run. Older versions wrote no end, and pass over it.
 *     row/KEY   the version of the change that wrote it, 8 bytes, and the value
 *     log/N     a piece of a batch that is too large for one transaction
 */
#include <stdio.h>
#include <string.h>

#include "base/error/fail.h"
#include "store/etcd/etcd_private.h"

#define FORMAT "tutti store 1, version %llu, log %llu"
#define FORMAT_BY ", by %016llx.%llu"
#define RECORD_HEAD 16 /* sizes of key and value, version; little-endian */
#define VALUE_NONE UINT32_MAX

void
etcd_version_format(etcd_version *version)
{
    (void)snprintf(version->text, sizeof(version->text), FORMAT FORMAT_BY,
                   (unsigned long long)version->version, (unsigned long long)version->log_count,
                   (unsigned long long)version->leader, (unsigned long long)version->step);
}

tutti_code
etcd_version_parse(tutti_bytes text, etcd_version *ret_version, tutti_error *err)
{
    const size_t size = text.size < ETCD_VERSION_TEXT_MAX ? text.size : ETCD_VERSION_TEXT_MAX - 1;
    char copy[ETCD_VERSION_TEXT_MAX] = "";
    unsigned long long numbers[4] = {0};

    memcpy(copy, text.data, size);
    if (size == text.size &&
        sscanf(copy, FORMAT FORMAT_BY, &numbers[0], &numbers[1], &numbers[2], &numbers[3]) >= 2) {
        *ret_version = (etcd_version){numbers[0], numbers[1], numbers[2], numbers[3], ""};
        memcpy(ret_version->text, copy, sizeof(copy));
        return TUTTI_OK;
    }
    if (strncmp(copy, "tutti store ", strlen("tutti store ")) == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "STORE_FORMAT",
                              "the store in etcd is of a newer version (\"%.60s\"): use that "
                              "version of Tutti, or another prefix",
                              copy);
    }
    return TUTTI_FAIL_FOR(
        err, TUTTI_DATA_LOSS, "STORE_FORMAT",
        "the key \"version\" below the prefix in etcd is not ours: use another prefix");
}

static tutti_code
take_version(void *arg, const etcd_row *row, tutti_error *err)
{
    return etcd_version_parse(row->value, arg, err);
}

tutti_code
etcd_version_read(tutti_etcd *etcd, uint64_t until_ns, etcd_version *ret_version,
                  int64_t *ret_revision, tutti_error *err)
{
    unsigned char key[ETCD_KEY_MAX];
    const etcd_range range = {.from = etcd_key(etcd, "version", (tutti_bytes){0}, key)};

    *ret_version = (etcd_version){0};
    return etcd_range_run(etcd, &range, until_ns, take_version, ret_version, NULL, ret_revision,
                          err);
}

tutti_code
etcd_version_fail(const etcd_version *found, uint64_t written, tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "STORE_WENT_BACK",
                          "the store in etcd is not the one that it was: it "
                          "has version %llu, and had %llu: was it restored from a snapshot, or is "
                          "this another etcd?",
                          (unsigned long long)found->version, (unsigned long long)written);
}

static void
put_number(unsigned char *to, uint64_t number, size_t bytes)
{
    size_t i;

    for (i = 0; i < bytes; i++) {
        to[i] = (unsigned char)(number >> (8 * i));
    }
}

static uint64_t
get_number(const unsigned char *from, size_t bytes)
{
    uint64_t number = 0;

    while (bytes-- > 0) {
        number = number << 8 | from[bytes];
    }
    return number;
}

void
etcd_head_write(unsigned char head[ETCD_HEAD_BYTES], uint64_t version)
{
    put_number(head, version, ETCD_HEAD_BYTES);
}

tutti_code
etcd_row_read(const tutti_etcd *etcd, const etcd_row *row, tutti_store_entry *ret_entry,
              tutti_error *err)
{
    const size_t head = strlen(etcd->prefix) + strlen("/row/");
    const size_t key_size = row->key.size < head ? 0 : row->key.size - head;

    if (key_size == 0 || key_size > TUTTI_STORE_KEY_MAX || row->value.size < ETCD_HEAD_BYTES ||
        row->value.size - ETCD_HEAD_BYTES > TUTTI_STORE_VALUE_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "STORE_FORMAT",
                              "a row in etcd with a key of %zu and a value of %zu bytes is not "
                              "ours: who else writes below the prefix \"%.100s\"?",
                              row->key.size, row->value.size, etcd->prefix);
    }
    ret_entry->key = (tutti_bytes){(const unsigned char *)row->key.data + head, key_size};
    ret_entry->value = (tutti_bytes){(const unsigned char *)row->value.data + ETCD_HEAD_BYTES,
                                     row->value.size - ETCD_HEAD_BYTES};
    ret_entry->version = get_number(row->value.data, ETCD_HEAD_BYTES);
    return TUTTI_OK;
}

size_t
etcd_record_bytes(const tutti_store_record *record)
{
    return RECORD_HEAD + record->entry.key.size + record->entry.value.size;
}

void
etcd_record_write(unsigned char *to, const tutti_store_record *record)
{
    const tutti_store_entry *entry = &record->entry;

    put_number(to, entry->key.size, 4);
    put_number(to + 4, record->remove ? VALUE_NONE : entry->value.size, 4);
    put_number(to + 8, entry->version, 8);
    memcpy(to + RECORD_HEAD, entry->key.data, entry->key.size);
    if (entry->value.size > 0) {
        memcpy(to + RECORD_HEAD + entry->key.size, entry->value.data, entry->value.size);
    }
}

tutti_code
etcd_record_read(tutti_bytes piece, size_t *at, tutti_store_entry *ret_entry, bool *ret_remove,
                 tutti_error *err)
{
    const unsigned char *from = (const unsigned char *)piece.data + *at;
    const size_t left = piece.size - *at;
    uint64_t key_size = 0;
    uint64_t value_size = 0;

    if (left >= RECORD_HEAD) {
        key_size = get_number(from, 4);
        value_size = get_number(from + 4, 4);
        *ret_remove = value_size == VALUE_NONE;
        value_size = *ret_remove ? 0 : value_size;
    }
    if (key_size == 0 || key_size > TUTTI_STORE_KEY_MAX || value_size > TUTTI_STORE_VALUE_MAX ||
        RECORD_HEAD + key_size + value_size > left) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "STORE_FORMAT",
                              "a piece of the log in etcd is damaged");
    }
    ret_entry->version = get_number(from + 8, 8);
    ret_entry->key = (tutti_bytes){from + RECORD_HEAD, key_size};
    ret_entry->value = (tutti_bytes){from + RECORD_HEAD + key_size, value_size};
    *at += RECORD_HEAD + key_size + value_size;
    return TUTTI_OK;
}
