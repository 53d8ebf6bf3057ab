/* Private to lib/coll: how an op begins. */
#ifndef TUTTI_COLL_ENGINE_POST_H
#define TUTTI_COLL_ENGINE_POST_H

#include "coll/coll.h"

/* The `run` of op->item: the first thing that happens to a posted op on the engine's thread. The op
 * enters the maps, gets its timer, and runs or fails. It may be released when this returns. */
void tutti_coll_op_begin(tutti_coll_engine *engine, tutti_coll_item *item);

#endif
