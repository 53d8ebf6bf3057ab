/* What the files of this backend share. Private to this folder. */
#ifndef TUTTI_STORE_ETCD_PRIVATE_H
#define TUTTI_STORE_ETCD_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/config/address.h"
#include "rpc/channel.h"
#include "store/commit/writer.h"
#include "store/etcd/etcd.h"
#include "store/store_backend.h"

#define ETCD_MEMBERS_MAX 9
#define ETCD_PREFIX_MAX 256 /* with the NUL */
#define ETCD_TOKEN_MAX 512
/* Instead of a time: as long as this process leads, by a lease that is prolonged meanwhile. */
#define ETCD_WHILE_LEADING 0

/* A key of etcd: the prefix, what kind of row it is, and a key of the store's. */
#define ETCD_KEY_MAX (ETCD_PREFIX_MAX + 32 + TUTTI_STORE_KEY_MAX)

struct tutti_etcd {
    /* Do not change once it is open. */
    tutti_rpc_channel *members[ETCD_MEMBERS_MAX]; /* [owned] */
    size_t member_count;
    char prefix[ETCD_PREFIX_MAX];
    char *user;     /* [owned] NULL = none */
    char *password; /* [owned] */
    uint64_t lease_ns;
    void (*on_lost)(void *arg, const tutti_error *why);
    void *on_lost_arg;

    atomic_size_t current; /* the member that is asked first */
    atomic_bool stopping;
    atomic_int_fast64_t fence; /* create revision of the leader's key; 0 = we do not lead */
    atomic_uint_fast64_t leads_until_ns;
    atomic_uint_fast64_t written; /* version of the store that etcd has had, by what we know */

    int64_t lease;      /* of the leader; 0 = none */
    pthread_t keeper;   /* keeps the lease */
    bool keeper_starts; /* it has to be joined */

    pthread_mutex_t lock; /* guards below */
    pthread_cond_t changed;
    char token[ETCD_TOKEN_MAX]; /* of the user; "" = not asked for yet */
};

/* ------------------------------------------------------------------ words.c */

/*
 * What etcd, or the way to it, says, in words of ours and with a reason; TUTTI_OK stays.
 *
 * TUTTI_UNAVAILABLE          ETCD_LOST: another member, or the same one later, may do it
 * TUTTI_RESOURCE_EXHAUSTED   STORE_FULL
 * TUTTI_PERMISSION_DENIED    ETCD_REFUSED
 * TUTTI_OUT_OF_RANGE         the revision is compacted
 * TUTTI_UNAUTHENTICATED      the token is over: ask for another
 */
tutti_code etcd_explain(const tutti_error *said, tutti_error *err);

/* ------------------------------------------------------------------ calls: *_pb.c */

/* One operation of a transaction, or one comparison before it. */
typedef struct etcd_op {
    enum {
        ETCD_PUT,
        ETCD_DELETE,
        ETCD_DELETE_PREFIX
    } kind;
    tutti_bytes key;
    tutti_bytes value;
    int64_t lease; /* 0 = none */
} etcd_op;

typedef struct etcd_compare {
    tutti_bytes key;
    tutti_bytes value; /* of size 0 = compare the create revision */
    int64_t revision;  /* 0 = there is no such key */
} etcd_compare;

typedef struct etcd_txn {
    etcd_compare compares[2];
    size_t compare_count;
    const etcd_op *ops;
    size_t op_count;
} etcd_txn;

/*
 * Repeated at the other members and again, until `until_ns` (or ETCD_WHILE_LEADING), while the error
 * is ETCD_LOST. So it may
 * have been done though an attempt failed: the comparisons have to make repeating harmless.
 *
 * [out] ret_done      did the comparisons hold?
 * [out] ret_revision  of etcd afterwards
 */
tutti_code etcd_txn_run(tutti_etcd *etcd, const etcd_txn *txn, uint64_t until_ns, bool *ret_done,
                        int64_t *ret_revision, tutti_error *err);

typedef struct etcd_row {
    tutti_bytes key; /* etcd's, with the prefix */
    tutti_bytes value;
    int64_t create_revision;
} etcd_row;

/* Keys from `from` to before `end`; of size 0 = only `from`. */
typedef struct etcd_range {
    tutti_bytes from;
    tutti_bytes end;
    int64_t limit;    /* rows; 0 = all */
    int64_t revision; /* 0 = the newest */
} etcd_range;

/*
 * Repeated like etcd_txn_run. `on_row` runs for each row, which is borrowed until it returns; what it
 * returns, unless it is TUTTI_OK, ends the call.
 *
 * [out] ret_more      there are further rows; NULL is fine
 * [out] ret_revision  of etcd; NULL is fine
 */
tutti_code etcd_range_run(tutti_etcd *etcd, const etcd_range *range, uint64_t until_ns,
                          tutti_code (*on_row)(void *arg, const etcd_row *row, tutti_error *err),
                          void *arg, bool *ret_more, int64_t *ret_revision, tutti_error *err);

tutti_code etcd_lease_grant(tutti_etcd *etcd, uint64_t until_ns, int64_t *ret_lease,
                            uint64_t *ret_ttl_ns, tutti_error *err);
void etcd_lease_revoke(tutti_etcd *etcd, int64_t lease);

/* One message to and fro. [out] ret_ttl_ns  0 = there is no such lease any more */
tutti_code etcd_lease_keep(tutti_etcd *etcd, int64_t lease, uint64_t until_ns, uint64_t *ret_ttl_ns,
                           tutti_error *err);

/*
 * Wait until a key is deleted, from `revision` on, or something else happens, `until_ns` at the
 * latest. The caller looks again in any case.
 */
void etcd_watch_deleted(tutti_etcd *etcd, tutti_bytes key, int64_t revision, uint64_t until_ns);

/* ------------------------------------------------------------------ connection.c */

/* The channel to ask, and the next one from then on. */
tutti_rpc_channel *etcd_member(tutti_etcd *etcd, size_t *ret_number);
void etcd_member_failed(tutti_etcd *etcd, size_t number);

/* Copy the token; "" = the user has to be shown first. */
void etcd_token_get(tutti_etcd *etcd, char ret_token[ETCD_TOKEN_MAX]);
void etcd_token_set(tutti_etcd *etcd, const char *token);

/* Sleep, unless it is stopped meanwhile; false: it is. */
bool etcd_pause(tutti_etcd *etcd, uint64_t until_ns);

/* The key of a row; `key` has ETCD_KEY_MAX bytes. `kind`: "leader", "version", "row/", "log/". */
tutti_bytes etcd_key(const tutti_etcd *etcd, const char *kind, tutti_bytes name,
                     unsigned char *key);

/* The end of all keys that begin with `first`, which is a buffer to change: its last byte + 1. */
tutti_bytes etcd_key_end(unsigned char *key, tutti_bytes first);

/* ------------------------------------------------------------------ rows.c */

#define ETCD_VERSION_TEXT_MAX 128

/* What the row PREFIX/version says. */
typedef struct etcd_version {
    uint64_t version;
    uint64_t log_count; /* pieces of a batch that may not be in its rows yet */
    uint64_t leader;    /* a random number of who has written it; 0 = an older Tutti */
    uint64_t step;      /* how many transactions that leader had run with this one */
    char text[ETCD_VERSION_TEXT_MAX]; /* the row; "" = there is none */
} etcd_version;

/* Its `text`, from the numbers. */
void etcd_version_format(etcd_version *version);

/* TUTTI_DATA_LOSS, TUTTI_FAILED_PRECONDITION  STORE_FORMAT */
tutti_code etcd_version_parse(tutti_bytes text, etcd_version *ret_version, tutti_error *err);

/* The row as it is in etcd; all zeros if there is none. Repeated like etcd_range_run.
 * [out] ret_revision  of etcd; NULL is fine */
tutti_code etcd_version_read(tutti_etcd *etcd, uint64_t until_ns, etcd_version *ret_version,
                             int64_t *ret_revision, tutti_error *err);

/* TUTTI_DATA_LOSS STORE_WENT_BACK. [in] written  the version that was there before */
tutti_code etcd_version_fail(const etcd_version *found, uint64_t written, tutti_error *err);

/* A value in etcd is the version of the change that wrote it, 8 bytes little-endian, and the bytes. */
#define ETCD_HEAD_BYTES 8
void etcd_head_write(unsigned char head[ETCD_HEAD_BYTES], uint64_t version);

/* Of a row below "row/". TUTTI_DATA_LOSS  STORE_FORMAT */
tutti_code etcd_row_read(const tutti_etcd *etcd, const etcd_row *row, tutti_store_entry *ret_entry,
                         tutti_error *err);

/* A record as a part of a log's piece, and back: *at moves on. */
size_t etcd_record_bytes(const tutti_store_record *record);
void etcd_record_write(unsigned char *to, const tutti_store_record *record);
tutti_code etcd_record_read(tutti_bytes piece, size_t *at, tutti_store_entry *ret_entry,
                            bool *ret_remove, tutti_error *err);

/* ------------------------------------------------------------------ write.c, load.c */

typedef struct store_etcd {
    tutti_store base;
    tutti_store *memory;        /* [owned] all that is stored */
    tutti_store_writer *writer; /* [owned] its thread has all below, once the store is open */
    tutti_etcd *etcd;           /* [borrowed] */
    etcd_version row;           /* "version" as it was written or read last */
    uint64_t number;            /* random: `leader` of the rows that this one writes */
} store_etcd;

extern const tutti_store_writer_ops store_etcd_writer_ops; /* with a store_etcd as context */

/* Bring the pieces of the log that `row` counts into the rows and remove it: what a leader before has
 * begun. */
tutti_code store_etcd_finish_log(store_etcd *self, tutti_error *err);

tutti_code store_etcd_load(store_etcd *self, tutti_error *err);

#endif
