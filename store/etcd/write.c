/*
 * A batch in etcd. Each transaction compares two things: the create revision of the leader's key (we
 * still lead), and the revision in which the row "version" was written last (no earlier attempt of
 * ours has come through late). So a transaction may be repeated without harm: if it was done though
 * its answer was lost, the repeated one finds the version moved on, and the row says by which batch.
 *
 * Up to 127 rows and some bytes are one transaction with the row "version". A larger batch cannot be,
 * and a part of it must not be seen by the next leader. So it is written twice, as a log is in other
 * stores: pieces below "log/" first, then the row "version" that counts them, by which the batch is
 * durable, then the rows, and at last "version" without a log. A leader that finds a counted log
 * finishes it; pieces that are not counted are overwritten or removed. (Rows of a higher version to be
 * ignored at load would not do: what they have overwritten would be gone.)
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "store/etcd/etcd_private.h"

#define OPS_MAX 127              /* and the row "version": etcd takes 128 */
#define TXN_BYTES_MAX (1200000u) /* etcd takes 1.5 MiB with all that is around */
#define OP_BYTES 64              /* of a message around key and value, at most */
#define SLOW_NS TUTTI_NS_PER_S

/* A transaction that is being filled. Keys, and values with their heads, lie in `bytes`. */
typedef struct txn_buffer {
    etcd_op ops[OPS_MAX + 1];
    size_t count;
    size_t used;
    unsigned char *bytes; /* TXN_ROOM of them */
} txn_buffer;

#define TXN_ROOM (TXN_BYTES_MAX + TUTTI_STORE_VALUE_MAX + ETCD_KEY_MAX + 1024)

static tutti_code
fail_batch_memory(tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for a change");
}

static tutti_code
fail_fenced(tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_LEADER",
                          "another coordinator leads: the lease of this one is over");
}

/* ------------------------------------------------------------------ one transaction */

static tutti_code
keep_row(void *arg, const etcd_row *row, tutti_error *err)
{
    etcd_row *kept = arg;

    (void)err;
    kept->mod_revision = row->mod_revision;
    kept->create_revision = row->create_revision;
    return TUTTI_OK;
}

/* The comparisons did not hold: do we lead no more, or was it done by an attempt whose answer was
 * lost? Nobody but the leader writes the row "version", so a new revision of it is ours. */
static tutti_code
judge_refused(store_etcd *self, bool turns, tutti_error *err)
{
    unsigned char key[ETCD_KEY_MAX];
    etcd_row leader = {0};
    etcd_row version = {0};
    etcd_range range = {.from = etcd_key(self->etcd, "leader", (tutti_bytes){0}, key)};

    TUTTI_TRY(
        etcd_range_run(self->etcd, &range, ETCD_WHILE_LEADING, keep_row, &leader, NULL, NULL, err));
    range.from = etcd_key(self->etcd, "version", (tutti_bytes){0}, key);
    TUTTI_TRY(etcd_range_run(self->etcd, &range, ETCD_WHILE_LEADING, keep_row, &version, NULL, NULL,
                             err));
    if (leader.create_revision != atomic_load(&self->etcd->fence)) {
        return fail_fenced(err);
    }
    if (turns && version.mod_revision != self->version_revision) {
        self->version_revision = version.mod_revision;
        return TUTTI_OK;
    }
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_LEADER",
                          "the store in etcd was changed by somebody else");
}

/* [in] turns  it writes the row "version" */
static tutti_code
run_txn(store_etcd *self, const etcd_op *ops, size_t count, bool turns, tutti_error *err)
{
    unsigned char leader[ETCD_KEY_MAX];
    unsigned char version[ETCD_KEY_MAX];
    const etcd_txn txn = {
        .compares = {{.key = etcd_key(self->etcd, "leader", (tutti_bytes){0}, leader),
                      .created = true,
                      .revision = atomic_load(&self->etcd->fence)},
                     {.key = etcd_key(self->etcd, "version", (tutti_bytes){0}, version),
                      .revision = self->version_revision}},
        .compare_count = 2,
        .ops = ops,
        .op_count = count};
    const uint64_t begun_ns = tutti_clock_ns();
    int64_t revision = 0;
    bool done = false;

    TUTTI_TRY(etcd_txn_run(self->etcd, &txn, ETCD_WHILE_LEADING, &done, &revision, err));
    if (tutti_clock_ns() - begun_ns > SLOW_NS) {
        TUTTI_LOG("store", WARN, "etcd took %llu ms for %zu changes: its disk or network is slow",
                  (unsigned long long)((tutti_clock_ns() - begun_ns) / TUTTI_NS_PER_MS), count);
    }
    if (!done) {
        return judge_refused(self, turns, err);
    }
    if (turns) {
        self->version_revision = revision;
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------ filling it */

static unsigned char *
claim_bytes(txn_buffer *txn, size_t size)
{
    unsigned char *bytes = txn->bytes + txn->used;

    assert(txn->used + size <= TXN_ROOM);
    txn->used += size;
    return bytes;
}

static bool
has_room(const txn_buffer *txn, const tutti_store_entry *entry)
{
    const size_t more = entry->key.size + entry->value.size + ETCD_PREFIX_MAX + OP_BYTES;

    return txn->count == 0 ||
           (txn->count < OPS_MAX && txn->used + txn->count * OP_BYTES + more <= TXN_BYTES_MAX);
}

static void
add_row(store_etcd *self, txn_buffer *txn, const tutti_store_entry *entry, bool remove)
{
    etcd_op *op = &txn->ops[txn->count++];
    unsigned char *key = txn->bytes + txn->used;
    unsigned char *value;

    *op = (etcd_op){.kind = remove ? ETCD_DELETE : ETCD_PUT,
                    .key = etcd_key(self->etcd, "row/", entry->key, key)};
    (void)claim_bytes(txn, op->key.size);
    if (remove) {
        return;
    }
    value = claim_bytes(txn, ETCD_HEAD_BYTES + entry->value.size);
    etcd_head_write(value, entry->version);
    if (entry->value.size > 0) {
        memcpy(value + ETCD_HEAD_BYTES, entry->value.data, entry->value.size);
    }
    op->value = (tutti_bytes){value, ETCD_HEAD_BYTES + entry->value.size};
}

/* `key` and `text` have to live until it is run. */
static etcd_op
version_op(store_etcd *self, const etcd_version *version, unsigned char *key, char *text)
{
    return (etcd_op){.kind = ETCD_PUT,
                     .key = etcd_key(self->etcd, "version", (tutti_bytes){0}, key),
                     .value = etcd_version_format(version, text)};
}

/* ------------------------------------------------------------------ a batch in one */

static tutti_code
write_small(store_etcd *self, txn_buffer *txn, const tutti_store_batch *batch, tutti_error *err)
{
    const etcd_version version = {.version = batch->version};
    const tutti_store_record *one = NULL;
    unsigned char key[ETCD_KEY_MAX];
    char text[ETCD_VERSION_TEXT_MAX];

    while ((one = tutti_store_batch_next(batch, one)) != NULL) {
        add_row(self, txn, &one->entry, one->remove);
    }
    txn->ops[txn->count++] = version_op(self, &version, key, text);
    return run_txn(self, txn->ops, txn->count, true, err);
}

static bool
fits_one(const tutti_store_batch *batch)
{
    const size_t around = batch->records.count * (ETCD_PREFIX_MAX + OP_BYTES);

    return batch->records.count <= OPS_MAX &&
           (batch->records.count <= 1 || batch->bytes + around <= TXN_BYTES_MAX);
}

/* ------------------------------------------------------------------ a batch in several */

static tutti_bytes
log_key(store_etcd *self, uint64_t number, unsigned char *key)
{
    char digits[24];

    (void)snprintf(digits, sizeof(digits), "%020llu", (unsigned long long)number);
    return etcd_key(self->etcd, "log/", tutti_bytes_of(digits), key);
}

static tutti_code
write_piece(store_etcd *self, uint64_t number, const txn_buffer *txn, tutti_error *err)
{
    unsigned char key[ETCD_KEY_MAX];
    const etcd_op op = {
        .kind = ETCD_PUT, .key = log_key(self, number, key), .value = {txn->bytes, txn->used}};

    return run_txn(self, &op, 1, false, err);
}

static tutti_code
write_log(store_etcd *self, txn_buffer *txn, const tutti_store_batch *batch, uint64_t *ret_count,
          tutti_error *err)
{
    const tutti_store_record *one = NULL;
    uint64_t count = 0;

    txn->used = 0;
    while ((one = tutti_store_batch_next(batch, one)) != NULL) {
        const size_t size = etcd_record_bytes(one);

        if (txn->used > 0 && txn->used + size > TXN_BYTES_MAX) {
            TUTTI_TRY(write_piece(self, count++, txn, err));
            txn->used = 0;
        }
        etcd_record_write(claim_bytes(txn, size), one);
    }
    TUTTI_TRY(write_piece(self, count++, txn, err));
    *ret_count = count;
    return TUTTI_OK;
}

static tutti_code
flush_rows(store_etcd *self, txn_buffer *txn, tutti_error *err)
{
    const tutti_code code =
        txn->count == 0 ? TUTTI_OK : run_txn(self, txn->ops, txn->count, false, err);

    txn->count = 0;
    txn->used = 0;
    return code;
}

static tutti_code
spread_row(store_etcd *self, txn_buffer *txn, const tutti_store_entry *entry, bool remove,
           tutti_error *err)
{
    if (!has_room(txn, entry)) {
        TUTTI_TRY(flush_rows(self, txn, err));
    }
    add_row(self, txn, entry, remove);
    return TUTTI_OK;
}

/* The row "version" says how many pieces count; 0 removes them. */
static tutti_code
turn_version(store_etcd *self, const etcd_version *version, tutti_error *err)
{
    unsigned char key[ETCD_KEY_MAX];
    unsigned char log[ETCD_KEY_MAX];
    char text[ETCD_VERSION_TEXT_MAX];
    const etcd_op ops[2] = {
        version_op(self, version, key, text),
        {.kind = ETCD_DELETE_PREFIX, .key = etcd_key(self->etcd, "log/", (tutti_bytes){0}, log)}};

    return run_txn(self, ops, version->log_count == 0 ? 2 : 1, true, err);
}

static tutti_code
write_large(store_etcd *self, txn_buffer *txn, const tutti_store_batch *batch, tutti_error *err)
{
    etcd_version version = {.version = batch->version};
    const tutti_store_record *one = NULL;

    TUTTI_TRY(write_log(self, txn, batch, &version.log_count, err));
    TUTTI_TRY(turn_version(self, &version, err));
    txn->count = 0;
    txn->used = 0;
    while ((one = tutti_store_batch_next(batch, one)) != NULL) {
        TUTTI_TRY(spread_row(self, txn, &one->entry, one->remove, err));
    }
    TUTTI_TRY(flush_rows(self, txn, err));
    version.log_count = 0;
    return turn_version(self, &version, err);
}

static tutti_code
new_txn(txn_buffer **ret_txn, tutti_error *err)
{
    txn_buffer *txn = calloc(1, sizeof(*txn));

    if (txn != NULL) {
        txn->bytes = malloc(TXN_ROOM);
    }
    if (txn == NULL || txn->bytes == NULL) {
        free(txn);
        return fail_batch_memory(err);
    }
    *ret_txn = txn;
    return TUTTI_OK;
}

static void
free_txn(txn_buffer *txn)
{
    free(txn->bytes);
    free(txn);
}

static tutti_code
write_batch(void *context, const tutti_store_batch *batch, tutti_error *err)
{
    store_etcd *self = context;
    txn_buffer *txn = NULL;
    tutti_code code;

    TUTTI_TRY(new_txn(&txn, err));
    code =
        fits_one(batch) ? write_small(self, txn, batch, err) : write_large(self, txn, batch, err);
    free_txn(txn);
    return code;
}

const tutti_store_writer_ops store_etcd_writer_ops = {.write = write_batch};

/* ------------------------------------------------------------------ what another has begun */

typedef struct finishing {
    store_etcd *self;
    txn_buffer *txn;
    uint64_t pieces;
} finishing;

static tutti_code
spread_piece(void *arg, const etcd_row *row, tutti_error *err)
{
    finishing *work = arg;
    size_t at = 0;

    work->pieces++;
    while (at < row->value.size) {
        tutti_store_entry entry = {0};
        bool remove = false;

        TUTTI_TRY(etcd_record_read(row->value, &at, &entry, &remove, err));
        TUTTI_TRY(spread_row(work->self, work->txn, &entry, remove, err));
    }
    /* The row is lent: what is to be written of it is copied, so the next one may come. */
    return TUTTI_OK;
}

static tutti_code
spread_log(finishing *work, const etcd_version *version, tutti_error *err)
{
    uint64_t i;

    for (i = 0; i < version->log_count; i++) {
        unsigned char key[ETCD_KEY_MAX];
        const etcd_range range = {.from = log_key(work->self, i, key)};

        TUTTI_TRY(etcd_range_run(work->self->etcd, &range, ETCD_WHILE_LEADING, spread_piece, work,
                                 NULL, NULL, err));
    }
    if (work->pieces != version->log_count) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "STORE_FORMAT",
                              "%llu of %llu pieces of the log are in etcd: who else writes below "
                              "the prefix?",
                              (unsigned long long)work->pieces,
                              (unsigned long long)version->log_count);
    }
    return flush_rows(work->self, work->txn, err);
}

tutti_code
store_etcd_finish_log(store_etcd *self, const etcd_version *version, tutti_error *err)
{
    const etcd_version finished = {.version = version->version};
    finishing work = {.self = self};
    tutti_code code;

    TUTTI_TRY(new_txn(&work.txn, err));
    code = spread_log(&work, version, err);
    free_txn(work.txn);
    return code == TUTTI_OK ? turn_version(self, &finished, err) : code;
}
