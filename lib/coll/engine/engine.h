/* Private to lib/coll: the work of the engine, by its thread or by a poster. */
#ifndef TUTTI_COLL_ENGINE_ENGINE_H
#define TUTTI_COLL_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

#include "coll/coll.h"
#include "coll/state/engine.h"
#include "coll/transport.h"

/* One look at everything. How much was done. With the progress_lock. */
unsigned tutti_coll_engine_step(tutti_coll_engine *engine);

/*
 * A poster that finds the engine asleep does its work, for a short while: to
 * wake another thread costs more than a small op. Returns false: wake it.
 */
#define TUTTI_COLL_INLINE_NS (400 * 1000ULL)
bool tutti_coll_progress_inline(tutti_coll_engine *engine);

/* ------------------------------------------------------------------------------ route */

/* Where a packet goes. */

void tutti_coll_arrive(void *engine, const void *header, size_t header_size, const void *data,
                       size_t size, tutti_transport_rndv *rndv);

/* Route packets that waited once more: the event of events.h. */
void coll_route_replay(tutti_coll_engine *engine, tutti_list_node *where);

#endif
