/*
 * The key-value store as a whole: how it begins and ends, and the order in which a change is
 * told.
 */
#include <assert.h>

#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/gc.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"
#include "server/coordinator/kv/lease.h"
#include "server/coordinator/kv/retry_cache.h"
#include "server/coordinator/kv/take.h"
#include "server/coordinator/kv/watch_history.h"

void
coord_kv_changed(tutti_coordinator *self, const coord_news *news)
{
    if (news->kind == TUTTI_COORDINATOR_SET) {
        coord_waits_wake(self, news->full); /* readers before takers: a taker removes the value */
        coord_takes_wake(self, news->full);
    } else if (news->kind == TUTTI_COORDINATOR_DELETED) {
        coord_lease_drop_key(self, news->full);
    }
    coord_watches_tell(self, news);
}

void
coord_keys_init(tutti_coordinator *self)
{
    tutti_map_init(&self->wanted);
    tutti_list_init(&self->ready);
    tutti_list_init(&self->due);
    tutti_list_init(&self->counting);
    coord_task_init(&self->ready_task, coord_on_ready_task);
    coord_task_init(&self->due_task, coord_on_due_task);
    coord_task_init(&self->count_task, coord_on_count_task);
    coord_gc_init(self);
    coord_takes_init(self);
    coord_leases_init(self);
    coord_retry_cache_init(self);
    coord_history_init(self);
}

void
coord_keys_fini(tutti_coordinator *self)
{
    assert(self->wanted.count == 0);
    assert(self->wait_bytes == 0 && self->watch_bytes == 0);
    coord_gc_fini(self);
    coord_takes_fini(self);
    coord_leases_fini(self);
    coord_retry_cache_fini(self);
    coord_history_fini(self);
}
