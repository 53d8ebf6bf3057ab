#include <sched.h>

#include "base/clock.h"
#include "coll/engine/engine.h"

#define HELP_MOST_NS (1000 * TUTTI_NS_PER_US) /* even of work that goes well */
#define HELP_LEAST_NS (50 * TUTTI_NS_PER_US)
#define ARM_MOST 4 /* times to try: what happened meanwhile is done first */

/* This thread holds a baton: what it posts from a callback is done when the callback has returned.
 */
static _Thread_local bool helping;

/* Until nothing runs any more; false when the time is up. */
static bool
work(tutti_coll_engine *engine)
{
    const uint64_t began = tutti_clock_ns();
    uint64_t busy_ns = began;

    do {
        if (tutti_coll_engine_step(engine) > 0) {
            busy_ns = engine->now_ns;
        } else if (engine->ops.count == 0) {
            return true;
        } else {
            (void)sched_yield();
        }
    } while (engine->now_ns - busy_ns < engine->help_ns && engine->now_ns - began < HELP_MOST_NS);
    return false;
}

/* May its own thread sleep on, as it is? */
static bool
leave_asleep(tutti_coll_engine *engine)
{
    bool calm = !engine->ending && tutti_timers_next(&engine->timers) >= engine->sleeps_to_ns;
    bool armed = false;
    unsigned i;

    for (i = 0; i < ARM_MOST && calm && !armed; i++) {
        armed = engine->wire->ops->arm(engine->wire, engine->ops.count == 0);
        if (!armed) {
            (void)tutti_coll_engine_step(engine);
        }
        calm = engine->ops.count == 0;
    }
    calm = calm && armed;
    (void)pthread_mutex_lock(&engine->lock);
    calm = calm && tutti_list_empty(&engine->inbox);
    engine->awake = !calm;
    (void)pthread_mutex_unlock(&engine->lock);
    return calm;
}

bool
tutti_coll_help(tutti_coll_engine *engine)
{
    bool calm = false;

    if (helping || pthread_mutex_trylock(&engine->baton) != 0) {
        return false;
    }
    helping = true;
    if (engine->ops.count == 0 && !engine->ending) {
        bool went_well;

        tutti_wire_disarm(engine->wire);
        went_well = work(engine);

        engine->help_ns = went_well ? TUTTI_COLL_HELP_NS : engine->help_ns / 2;
        engine->help_ns = engine->help_ns < HELP_LEAST_NS ? HELP_LEAST_NS : engine->help_ns;
        calm = went_well && leave_asleep(engine);
    }
    helping = false;
    (void)pthread_mutex_unlock(&engine->baton);
    return calm;
}
