/* The keys of a job that has ended go, a slice at a time. */
#ifndef TUTTI_SERVER_COORDINATOR_KV_GC_H
#define TUTTI_SERVER_COORDINATOR_KV_GC_H

#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/types.h"

void coord_gc_init(tutti_coordinator *self);
void coord_gc_fini(tutti_coordinator *self);

/*
 * Remove all keys and queues of a job, in slices. A call that uses a key of the job before that
 * is over makes the rest go first (coord_gc_finish), so it never meets an old key.
 */
void coord_keys_forget(tutti_coordinator *self, const char *job);

/*
 * A key of this job is about to be used: if the job's old keys are still going, remove the rest
 * now.
 */
void coord_gc_finish(tutti_coordinator *self, const coord_full_key *full);

#endif
