#include "coll/shm/fault.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define SLEEP_NS_MAX 200000U

static atomic_uint one_in; /* 0 = never */
static _Thread_local uint32_t state;

void
tutti_shm_fault_init(void)
{
    const char *text = getenv("TUTTI_CHAOS");
    const unsigned long number = text == NULL ? 0 : strtoul(text, NULL, 10);

    atomic_store_explicit(&one_in, number > 1000000 ? 0 : (unsigned)number, memory_order_relaxed);
}

static uint32_t
draw_fault(void)
{
    if (state == 0) {
        state = (uint32_t)(uintptr_t)&state | 1U; /* another one in every thread */
    }
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

void
tutti_shm_fault(void)
{
    const unsigned limit = atomic_load_explicit(&one_in, memory_order_relaxed);
    struct timespec moment = {0};

    if (limit == 0 || draw_fault() % limit != 0) {
        return;
    }
    if (draw_fault() % 2 == 0) {
        (void)sched_yield();
        return;
    }
    moment.tv_nsec = (long)(draw_fault() % SLEEP_NS_MAX);
    (void)nanosleep(&moment, NULL);
}
