#include "base/clock.h"

#include <time.h>

static uint64_t
read_clock(clockid_t id)
{
    struct timespec now = {0};

    (void)clock_gettime(id, &now); /* cannot fail for the two ids below */
    return (uint64_t)now.tv_sec * TUTTI_NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t
tutti_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t
tutti_clock_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

uint64_t
tutti_clock_add(uint64_t at_ns, uint64_t wait_ns)
{
    return wait_ns > UINT64_MAX - at_ns ? UINT64_MAX : at_ns + wait_ns;
}
