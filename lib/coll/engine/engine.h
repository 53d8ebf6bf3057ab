/* Private to lib/coll: the work of the engine, by its thread or by a poster. */
#ifndef TUTTI_COLL_ENGINE_ENGINE_H
#define TUTTI_COLL_ENGINE_ENGINE_H

#include <stdbool.h>

#include "coll/coll.h"
#include "coll/state/engine.h"

/* One look at everything. How much was done. With the progress_lock. */
unsigned tutti_coll_engine_step(tutti_coll_engine *engine);

/*
 * A poster that finds the engine asleep does its work, for a short while: to
 * wake another thread costs more than a small op. Returns false: wake it.
 */
#define TUTTI_COLL_INLINE_NS (400 * 1000ULL)
bool tutti_coll_progress_inline(tutti_coll_engine *engine);

#endif
