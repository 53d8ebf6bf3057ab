/*
 * A batch in etcd. Each transaction compares two things: the create revision of the leader's key (we
 * still lead), and the row "version", of which it leaves another text that no other one leaves. So a
 * transaction may be repeated without harm: if it was done though its answer was lost, the repeated one
 * finds the row as it would leave it. It is the text and not its revision in etcd, since an etcd that was
 * restored from a snapshot counts its revisions again; and rows of a large batch write it too, as a
 * snapshot may have some of them and not others.
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
keep_revision(void *arg, const etcd_row *row, tutti_error *err)
{
    int64_t *ret_revision = arg;

    (void)err;
    *ret_revision = row->create_revision;
    return TUTTI_OK;
}

/*
 * The comparisons did not hold: do we lead no more, was it done by an attempt whose answer was lost, or
 * has etcd lost what it had? The leader's key is looked at last: if it is ours still, the row was
 * written by nobody else who leads. Whoever leads after us begins with all that we have written.
 */
static tutti_code
judge_refused(store_etcd *self, const etcd_version *next, tutti_error *err)
{
    unsigned char key[ETCD_KEY_MAX];
    const etcd_range range = {.from = etcd_key(self->etcd, "leader", (tutti_bytes){0}, key)};
    int64_t revision = 0;
    etcd_version found;

    TUTTI_TRY(etcd_version_read(self->etcd, ETCD_WHILE_LEADING, &found, NULL, err));
    TUTTI_TRY(etcd_range_run(self->etcd, &range, ETCD_WHILE_LEADING, keep_revision, &revision, NULL,
                             NULL, err));
    if (found.version >= self->row.version && revision != atomic_load(&self->etcd->fence)) {
        return fail_fenced(err);
    }
    return strcmp(found.text, next->text) == 0 ? TUTTI_OK
                                               : etcd_version_fail(&found, self->row.version, err);
}

static tutti_code
run_compared(store_etcd *self, const etcd_op *ops, size_t count, const etcd_version *next,
             tutti_error *err)
{
    unsigned char leader[ETCD_KEY_MAX];
    const etcd_txn txn = {
        .compares = {{.key = etcd_key(self->etcd, "leader", (tutti_bytes){0}, leader),
                      .revision = atomic_load(&self->etcd->fence)},
                     {.key = ops[count - 1].key, .value = tutti_bytes_of(self->row.text)}},
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
    return done ? TUTTI_OK : judge_refused(self, next, err);
}

/*
 * [in] ops   of which the last one is the row "version", to be filled here
 * [in] next  what that row is to say
 */
static tutti_code
run_txn(store_etcd *self, etcd_op *ops, size_t count, etcd_version next, tutti_error *err)
{
    unsigned char key[ETCD_KEY_MAX];

    next.leader = self->number;
    next.step = self->row.leader == self->number ? self->row.step + 1 : 1;
    etcd_version_format(&next);
    ops[count - 1] = (etcd_op){.kind = ETCD_PUT,
                               .key = etcd_key(self->etcd, "version", (tutti_bytes){0}, key),
                               .value = tutti_bytes_of(next.text)};
    TUTTI_TRY(run_compared(self, ops, count, &next, err));
    self->row = next;
    atomic_store(&self->etcd->written, next.version);
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

/* ------------------------------------------------------------------ a batch in one */

static tutti_code
write_small(store_etcd *self, txn_buffer *txn, const tutti_store_batch *batch, tutti_error *err)
{
    const etcd_version next = {.version = batch->version};
    const tutti_store_record *one = NULL;

    while ((one = tutti_store_batch_next(batch, one)) != NULL) {
        add_row(self, txn, &one->entry, one->remove);
    }
    return run_txn(self, txn->ops, txn->count + 1, next, err);
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
    etcd_op ops[2] = {
        {.kind = ETCD_PUT, .key = log_key(self, number, key), .value = {txn->bytes, txn->used}}};

    return run_txn(self, ops, 2, self->row, err);
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
        txn->count == 0 ? TUTTI_OK : run_txn(self, txn->ops, txn->count + 1, self->row, err);

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

/* From here on the batch counts: its pieces are all there. */
static tutti_code
count_log(store_etcd *self, uint64_t version, uint64_t log_count, tutti_error *err)
{
    const etcd_version next = {.version = version, .log_count = log_count};
    etcd_op op;

    return run_txn(self, &op, 1, next, err);
}

/* ... and its rows, so no pieces are needed. */
static tutti_code
remove_log(store_etcd *self, tutti_error *err)
{
    const etcd_version next = {.version = self->row.version};
    unsigned char key[ETCD_KEY_MAX];
    etcd_op ops[2] = {
        {.kind = ETCD_DELETE_PREFIX, .key = etcd_key(self->etcd, "log/", (tutti_bytes){0}, key)}};

    return run_txn(self, ops, 2, next, err);
}

static tutti_code
write_large(store_etcd *self, txn_buffer *txn, const tutti_store_batch *batch, tutti_error *err)
{
    const tutti_store_record *one = NULL;
    uint64_t log_count = 0;

    TUTTI_TRY(write_log(self, txn, batch, &log_count, err));
    TUTTI_TRY(count_log(self, batch->version, log_count, err));
    txn->count = 0;
    txn->used = 0;
    while ((one = tutti_store_batch_next(batch, one)) != NULL) {
        TUTTI_TRY(spread_row(self, txn, &one->entry, one->remove, err));
    }
    TUTTI_TRY(flush_rows(self, txn, err));
    return remove_log(self, err);
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
spread_log(finishing *work, tutti_error *err)
{
    const uint64_t count = work->self->row.log_count;
    uint64_t i;

    for (i = 0; i < count; i++) {
        unsigned char key[ETCD_KEY_MAX];
        const etcd_range range = {.from = log_key(work->self, i, key)};

        TUTTI_TRY(etcd_range_run(work->self->etcd, &range, ETCD_WHILE_LEADING, spread_piece, work,
                                 NULL, NULL, err));
    }
    if (work->pieces != count) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "STORE_FORMAT",
                              "%llu of %llu pieces of the log are in etcd: who else writes below "
                              "the prefix?",
                              (unsigned long long)work->pieces, (unsigned long long)count);
    }
    return flush_rows(work->self, work->txn, err);
}

tutti_code
store_etcd_finish_log(store_etcd *self, tutti_error *err)
{
    finishing work = {.self = self};
    tutti_code code;

    TUTTI_TRY(new_txn(&work.txn, err));
    code = spread_log(&work, err);
    free_txn(work.txn);
    return code == TUTTI_OK ? remove_log(self, err) : code;
}
