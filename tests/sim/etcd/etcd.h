/*
 * etcd as a state machine, by the rules of etcd 3.4, for the part of its interface that store/etcd calls: keys with revisions,
 * transactions, leases, watches, compaction. No clock, no thread, no socket: whoever serves it says what time it is.
 *
 * Requests and answers are the messages of store/etcd/proto. Errors have etcd's codes and texts. What befalls it: no leader
 * for a while, a full disk, a snapshot that is restored. What is not like etcd: it is one member; a call without a leader
 * fails at once, where etcd lets it wait for up to seconds.
 */
#ifndef TUTTI_TESTS_SIM_ETCD_ETCD_H
#define TUTTI_TESTS_SIM_ETCD_ETCD_H

#include <stdbool.h>
#include <stdint.h>

#include "etcd/rpc.pb-c.h"
#include "tutti/error.h"

typedef struct sim_etcd sim_etcd;

sim_etcd *sim_etcd_new(uint64_t now_ns);
void sim_etcd_free(sim_etcd *self);

/*
 * One call, or one message of the stream LeaseKeepAlive and the answer to it.
 *
 * [in]  method        "Range", "Txn", "LeaseGrant", "LeaseRevoke", "LeaseKeepAlive", "Authenticate"
 * [in]  request       its message
 * [in]  now_ns        never goes back
 * [out, owned] ret_response  protobuf_c_message_free_unpacked
 *
 * TUTTI_UNAVAILABLE         no leader
 * TUTTI_OUT_OF_RANGE        a revision that is compacted, or to come
 * TUTTI_NOT_FOUND           no such lease
 * TUTTI_INVALID_ARGUMENT    no key, a key twice, too many ops, too large
 * TUTTI_FAILED_PRECONDITION the lease exists; no authentication
 * TUTTI_RESOURCE_EXHAUSTED  the disk is full
 */
tutti_code sim_etcd_handle(sim_etcd *self, const char *method, const ProtobufCMessage *request,
                           uint64_t now_ns, ProtobufCMessage **ret_response, tutti_error *err);

/* End the leases whose time is over; when there is something to do next (UINT64_MAX = never). */
void sim_etcd_tick(sim_etcd *self, uint64_t now_ns);
uint64_t sim_etcd_next(const sim_etcd *self);

int64_t sim_etcd_revision(const sim_etcd *self);

/* ------------------------------------------------------------------------------ watches */

typedef struct sim_etcd_watch sim_etcd_watch;

/* [in] request  its key and range are copied */
sim_etcd_watch *sim_etcd_watch_open(sim_etcd *self,
                                    const Etcdserverpb__WatchCreateRequest *request);

/* The next message that it is told, [owned] as above. NULL = there is none now. */
Etcdserverpb__WatchResponse *sim_etcd_watch_next(sim_etcd_watch *watch);

/* Its stream breaks: a snapshot was restored. */
bool sim_etcd_watch_is_broken(const sim_etcd_watch *watch);
void sim_etcd_watch_close(sim_etcd_watch *watch);

/* ------------------------------------------------------------------------------ what befalls it */

/* Nobody leads until a time. The leases' times begin anew then, with a second more, as etcd has it. */
void sim_etcd_lose_leader(sim_etcd *self, uint64_t now_ns, uint64_t until_ns);

/* What is older than a revision that a key has had behind it cannot be read any more. */
void sim_etcd_compact(sim_etcd *self, int64_t revision);

/* Puts and grants fail. */
void sim_etcd_fill(sim_etcd *self, bool is_full);

typedef struct sim_etcd_snapshot sim_etcd_snapshot;

/* [owned] */
sim_etcd_snapshot *sim_etcd_snapshot_take(const sim_etcd *self);

/* Go back to it: all later revisions are gone, and are given again. All watches break. */
void sim_etcd_restore(sim_etcd *self, const sim_etcd_snapshot *snapshot, uint64_t now_ns);
void sim_etcd_snapshot_free(sim_etcd_snapshot *snapshot);

#endif
