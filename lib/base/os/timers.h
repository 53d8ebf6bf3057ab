/*
 * Timers: callbacks ordered by time, for whoever owns a loop. No thread and no clock of its own:
 * the owner passes "now", so tests need no waiting. One thread.
 */
#ifndef TUTTI_BASE_OS_TIMERS_H
#define TUTTI_BASE_OS_TIMERS_H

#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tutti_timer tutti_timer;
typedef void (*tutti_timer_fn)(tutti_timer *timer);

/* Embed one; zero it, set on_expiry. It runs once per start and may start itself again. */
struct tutti_timer {
    RB_ENTRY(tutti_timer) links;
    uint64_t at_ns;
    uint64_t order; /* equal times run in the order they were started */
    tutti_timer_fn on_expiry;
    bool running;
};

typedef struct tutti_timers {
    RB_HEAD(tutti_timers_tree, tutti_timer) tree;
    uint64_t started;
} tutti_timers;

#define TUTTI_TIMERS_NEVER UINT64_MAX

void tutti_timers_init(tutti_timers *timers);

/* Run `timer` at `at_ns`, or move it there when it runs already. NEVER stops it. */
void tutti_timers_start(tutti_timers *timers, tutti_timer *timer, uint64_t at_ns);

/* Stopped is fine. */
void tutti_timers_stop(tutti_timers *timers, tutti_timer *timer);

/* When the first one is due; TUTTI_TIMERS_NEVER when there is none. */
uint64_t tutti_timers_next(const tutti_timers *timers);

/* Run all that is due at `now_ns`, in order. What they start for now or before runs too. */
void tutti_timers_run(tutti_timers *timers, uint64_t now_ns);

#endif
