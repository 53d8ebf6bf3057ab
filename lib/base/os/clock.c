#include "base/os/clock.h"

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

/*
 * What is left of a call's time, less a tenth of it, but at least 20 ms and at most 500 ms. The
 * server's own timeout must come first: it can say which rank is missing, while the caller's
 * deadline says only that it has passed.
 */
static uint64_t
without_margin(uint64_t now_ns, uint64_t call_ns)
{
    const uint64_t least = 20 * TUTTI_NS_PER_MS;
    const uint64_t most = 500 * TUTTI_NS_PER_MS;
    const uint64_t left = call_ns > now_ns ? call_ns - now_ns : 0;
    uint64_t margin = left / 10;

    margin = margin > most ? most : margin;
    margin = margin < least ? least : margin;
    return left > margin ? call_ns - margin : now_ns;
}

/*
 * The earlier of the two limits counts. The fallback is only for a caller who has given neither:
 * nothing waits for ever.
 */
uint64_t
tutti_clock_deadline(uint64_t now_ns, uint32_t timeout_ms, uint64_t call_ns, uint64_t fallback_ns)
{
    uint64_t until = UINT64_MAX;

    if (call_ns != UINT64_MAX) {
        until = without_margin(now_ns, call_ns);
    }
    if (timeout_ms != 0) {
        const uint64_t wanted = tutti_clock_add(now_ns, timeout_ms * TUTTI_NS_PER_MS);

        until = wanted < until ? wanted : until;
    }
    return until == UINT64_MAX ? tutti_clock_add(now_ns, fallback_ns) : until;
}
