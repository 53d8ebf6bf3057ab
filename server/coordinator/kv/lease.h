/*
 * Leases: keys that go when their owner no longer says that it lives. A lease belongs to a job and
 * has a time; keys are set with it. When it was not kept for its time, or is revoked, its keys are
 * deleted, as by Delete. A key has at most one lease: a set without a lease takes it out of its
 * lease; Add and Append leave it in. The name of a lease is a number; what a client draws itself it
 * may grant again, so a repeated call grants nothing twice.
 *
 * Leases outlive their job's end (their keys do not) and a restart of a coordinator with a store on
 * a disk: then each has its whole time again, since nobody could keep it meanwhile.
 */
#ifndef TUTTI_SERVER_COORDINATOR_KV_LEASE_H
#define TUTTI_SERVER_COORDINATOR_KV_LEASE_H

#include "server/coordinator/core/record_codec.h"
#include "server/coordinator/core/types.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"

#define TUTTI_COORDINATOR_LEASE_PAGE 1000 /* leases of one answer */

typedef struct tutti_coordinator_lease {
    uint64_t id;
    uint64_t ttl_ns;
    uint64_t left_ns;   /* until it ends, if nobody keeps it */
    uint64_t key_count; /* that go with it */
} tutti_coordinator_lease;

/*
 * [in] job     empty or NULL = "default"
 * [in] id      0 = draw one. One that there is gets the new time and is kept
 * [in] ttl_ns  its time
 *
 * TUTTI_INVALID_ARGUMENT    BAD_NAME; LEASE_TTL: less than --lease-min, more than --lease-max
 * TUTTI_RESOURCE_EXHAUSTED  LEASE_LIMIT: --lease-limit; STORE_LIMIT; no memory
 */
tutti_code tutti_coordinator_lease_grant(tutti_coordinator *self, const char *job, uint64_t id,
                                         uint64_t ttl_ns, tutti_coordinator_lease *ret_lease,
                                         tutti_error *err);

/*
 * Its time begins again.
 *
 * TUTTI_NOT_FOUND  NO_LEASE: there is none, or its time was up
 */
tutti_code tutti_coordinator_lease_keep(tutti_coordinator *self, const char *job, uint64_t id,
                                        tutti_coordinator_lease *ret_lease, tutti_error *err);

/*
 * End it now: its keys have gone when this returns. None there is fine.
 *
 * [out] ret_existed    was there one?
 * [out] ret_key_count  keys that were deleted
 *
 * What the store says when it cannot write that the lease is over: then it is not; or when it cannot
 * delete a key or the lease's record: the lease is over, and the rest goes later
 */
tutti_code tutti_coordinator_lease_revoke(tutti_coordinator *self, const char *job, uint64_t id,
                                          bool *ret_existed, uint64_t *ret_key_count,
                                          tutti_error *err);

/*
 * Leases of a job in the order of their numbers, those behind `after`.
 *
 * [out] ret_leases  at most TUTTI_COORDINATOR_LEASE_PAGE
 * [out] ret_more    go on behind the last one
 */
tutti_code tutti_coordinator_lease_list(tutti_coordinator *self, const char *job, uint64_t after,
                                        tutti_coordinator_lease *ret_leases, size_t *ret_count,
                                        bool *ret_more, tutti_error *err);

/* ------------------------------------------------------------------------------ private */

/* What a set does to the lease of its key: begun before the store changes, ended after it. */
typedef struct coord_lease_change {
    const coord_full_key *full;
    struct coord_leased_key *made; /* [owned] until the end; NULL = the key gets no lease */
    bool recorded;                 /* `record` is to be written, or removed */
    coord_record record;
} coord_lease_change;

/*
 * [in] full   borrowed until the end
 * [in] lease  0 = the key has none from now on
 *
 * TUTTI_NOT_FOUND  NO_LEASE
 */
tutti_code coord_lease_change_begin(tutti_coordinator *self, const coord_full_key *full,
                                    uint64_t lease, coord_lease_change *ret_change,
                                    tutti_error *err);

/* What it changes in the store: 0 or 1. Borrows from `change`. */
size_t coord_lease_change_write(const coord_lease_change *change, tutti_store_change *ret_change);

/* [in] done  the store has it */
void coord_lease_change_end(tutti_coordinator *self, coord_lease_change *change, bool done);

/* A key was deleted: it is in no lease any more. */
void coord_lease_drop_key(tutti_coordinator *self, tutti_bytes full);

/* In an idle turn: what was to keep leases has been read. */
void coord_leases_judge(tutti_coordinator *self, size_t budget);

/* Those that an earlier process has left in the store, with their whole time. */
void coord_leases_restore(tutti_coordinator *self);

void coord_leases_init(tutti_coordinator *self);
void coord_leases_fini(tutti_coordinator *self);

#endif
