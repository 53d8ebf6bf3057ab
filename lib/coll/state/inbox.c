/*
 * What other threads have the engine do, and how they wake it.
 *
 * `awake` and the inbox change under one lock. Of many posters only the one that finds `awake`
 * false writes to the eventfd, so a burst of posts costs one system call. The thread clears `awake`
 * under the same lock, when it has seen that the inbox is empty.
 */
#include "coll/state/inbox.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/os/log.h"
#include "coll/state/engine.h"

/* A counter of an eventfd that is full would also wake; other errors leave the engine to its next
 * timer, half a second at most. */
void
tutti_coll_engine_wake(tutti_coll_engine *engine)
{
    const uint64_t one = 1;

    if (write(engine->wake, &one, sizeof(one)) != sizeof(one)) {
        TUTTI_LOG("coll", ERROR, "could not wake the engine: %s", strerror(errno));
    }
}

bool
tutti_coll_engine_put(tutti_coll_engine *engine, tutti_coll_item *item)
{
    const bool asleep = !engine->awake;

    tutti_list_add(&engine->inbox, &item->link);
    engine->awake = true;
    return asleep;
}

/* Outside of the lock: the woken thread would only wait for it. */
void
tutti_coll_engine_push(tutti_coll_engine *engine, tutti_coll_item *item)
{
    bool asleep;

    (void)pthread_mutex_lock(&engine->lock);
    asleep = tutti_coll_engine_put(engine, item);
    (void)pthread_mutex_unlock(&engine->lock);
    if (asleep) {
        tutti_coll_engine_wake(engine);
    }
}
