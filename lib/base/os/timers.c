/*
 * Timers, sorted by the time at which they expire. Two of the same time expire in the order in
 * which they were started.
 */
#include "base/os/timers.h"

#include <assert.h>
#include <stddef.h>

static int
compare_timers(const tutti_timer *left, const tutti_timer *right)
{
    if (left->at_ns != right->at_ns) {
        return left->at_ns < right->at_ns ? -1 : 1;
    }
    if (left->order != right->order) {
        return left->order < right->order ? -1 : 1;
    }
    return 0;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_INTERNAL(tutti_timers_tree, tutti_timer, links, compare_timers, static)
#pragma GCC diagnostic pop

void
tutti_timers_init(tutti_timers *timers)
{
    RB_INIT(&timers->tree);
    timers->started = 0;
}

void
tutti_timers_stop(tutti_timers *timers, tutti_timer *timer)
{
    if (timer->running) {
        RB_REMOVE(tutti_timers_tree, &timers->tree, timer);
        timer->running = false;
    }
}

/* Starting a timer that runs moves it. */
void
tutti_timers_start(tutti_timers *timers, tutti_timer *timer, uint64_t at_ns)
{
    assert(timer->on_expiry != NULL);
    tutti_timers_stop(timers, timer);
    if (at_ns == TUTTI_TIMERS_NEVER) {
        return;
    }
    timer->at_ns = at_ns;
    timer->order = timers->started++;
    timer->running = true;
    (void)RB_INSERT(tutti_timers_tree, &timers->tree, timer);
}

uint64_t
tutti_timers_next(const tutti_timers *timers)
{
    const tutti_timer *first =
        RB_MIN(tutti_timers_tree, (struct tutti_timers_tree *)(uintptr_t)&timers->tree);

    return first == NULL ? TUTTI_TIMERS_NEVER : first->at_ns;
}

/*
 * A timer is stopped before its function is called, so the function may start it again or free
 * it. Each time the first one is looked up anew, as the function may also have stopped others.
 */
void
tutti_timers_run(tutti_timers *timers, uint64_t now_ns)
{
    tutti_timer *first;

    for (;;) {
        first = RB_MIN(tutti_timers_tree, &timers->tree);
        if (first == NULL || first->at_ns > now_ns) {
            return;
        }
        tutti_timers_stop(timers, first);
        first->on_expiry(first);
    }
}
