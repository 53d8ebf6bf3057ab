/*
 * Loading: the row "version" first, then all rows in pages of the revision in which it was read, so
 * that they belong together. We lead, so nobody writes meanwhile but a leader whose lease is over, and
 * what that one sends is refused.
 *
 * A page has so many rows that it stays below the size of a message that lib/rpc takes. How large rows
 * are is not known beforehand: the number is halved when a page was too large, and grows again.
 */
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "store/etcd/etcd_private.h"
#include "store/memory/memory.h"

#define PAGE_ROWS_FIRST 128
#define PAGE_ROWS_MAX 2048

typedef struct loading {
    store_etcd *self;
    unsigned char last[ETCD_KEY_MAX + 1]; /* of the page: the next one begins behind it */
    size_t last_size;
    uint64_t version; /* the highest of a row */
} loading;

static tutti_code
take_row(void *arg, const etcd_row *row, tutti_error *err)
{
    loading *load = arg;
    tutti_store_entry entry = {0};

    TUTTI_TRY(etcd_row_read(load->self->etcd, row, &entry, err));
    TUTTI_TRY(tutti_store_memory_restore(load->self->memory, &entry, err));
    memcpy(load->last, row->key.data, row->key.size);
    load->last[row->key.size] = 0; /* the next key there can be */
    load->last_size = row->key.size + 1;
    load->version = entry.version > load->version ? entry.version : load->version;
    return TUTTI_OK;
}

static bool
is_too_large(const tutti_error *err, int64_t rows)
{
    return err->code == TUTTI_RESOURCE_EXHAUSTED && rows > 1 &&
           strcmp(err->reason, "STORE_FULL") != 0 && strcmp(err->reason, "NO_MEMORY") != 0;
}

static tutti_code
load_rows(loading *load, int64_t revision, tutti_error *err)
{
    tutti_etcd *etcd = load->self->etcd;
    unsigned char first[ETCD_KEY_MAX];
    unsigned char end[ETCD_KEY_MAX];
    etcd_range range = {.from = etcd_key(etcd, "row/", (tutti_bytes){0}, first),
                        .limit = PAGE_ROWS_FIRST,
                        .revision = revision};
    tutti_error why = {0};
    bool more = true;

    range.end = etcd_key_end(end, range.from);
    while (more) {
        const tutti_code code =
            etcd_range_run(etcd, &range, ETCD_WHILE_LEADING, take_row, load, &more, NULL, &why);

        if (code != TUTTI_OK && !is_too_large(&why, range.limit)) {
            return tutti_error_pass(err, &why);
        }
        range.limit = code != TUTTI_OK               ? range.limit / 2
                      : range.limit >= PAGE_ROWS_MAX ? range.limit
                                                     : range.limit * 2;
        if (load->last_size > 0) {
            range.from = (tutti_bytes){load->last, load->last_size};
        }
    }
    return TUTTI_OK;
}

tutti_code
store_etcd_load(store_etcd *self, tutti_error *err)
{
    loading load = {.self = self};
    const etcd_version *row = &self->row;
    int64_t revision = 0;

    TUTTI_TRY(etcd_version_read(self->etcd, ETCD_WHILE_LEADING, &self->row, &revision, err));
    if (row->log_count > 0) {
        TUTTI_TRY(store_etcd_finish_log(self, err));
        TUTTI_TRY(etcd_version_read(self->etcd, ETCD_WHILE_LEADING, &self->row, &revision, err));
    }
    TUTTI_TRY(load_rows(&load, revision, err));
    if (load.version > row->version) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_DATA_LOSS, "STORE_FORMAT",
            "a row in etcd has version %llu, the store only %llu: who else writes "
            "below the prefix \"%.100s\"?",
            (unsigned long long)load.version, (unsigned long long)row->version, self->etcd->prefix);
    }
    atomic_store(&self->etcd->written, row->version);
    tutti_store_memory_turn(self->memory, row->version);
    return TUTTI_OK;
}
