/*
 * Private to lib/coll: what other threads have the engine do.
 *
 * Items run on the engine's thread in the order in which they were added, each once; `run` owns the
 * item from then on. An item that is added after the thread has ended never runs.
 */
#ifndef TUTTI_COLL_STATE_INBOX_H
#define TUTTI_COLL_STATE_INBOX_H

#include <stdbool.h>

#include "coll/coll.h"

/* Have the engine run it. Any thread. */
void tutti_coll_engine_push(tutti_coll_engine *engine, tutti_coll_item *item);

/*
 * The same with the engine's lock held. True: tutti_coll_engine_wake (coll.h) is to be called after
 * the lock is released.
 */
bool tutti_coll_engine_put(tutti_coll_engine *engine, tutti_coll_item *item);

#endif
