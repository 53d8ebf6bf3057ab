/* What other threads have the engine do, and how they wake it. */
#include "coll/state/inbox.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/os/log.h"
#include "coll/state/engine.h"

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
