/* The keys of a job that has ended go, a slice at a time. */
#ifndef TUTTI_SERVER_COORDINATOR_KV_GC_H
#define TUTTI_SERVER_COORDINATOR_KV_GC_H

#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/types.h"

void coord_gc_init(tutti_coordinator *self);
void coord_gc_fini(tutti_coordinator *self);

/* Remove all keys of a job, in slices; who uses its keys before that is over, waits for none. */
void coord_keys_forget(tutti_coordinator *self, const char *job);

/* Who uses the keys of a job whose old ones are still going must not meet them. */
void coord_gc_finish(tutti_coordinator *self, const coord_full_key *full);

#endif
