/* Clock: nanoseconds. Rooms take "now" as an argument; only loops and mains ask. Any thread. */
#ifndef TUTTI_BASE_OS_CLOCK_H
#define TUTTI_BASE_OS_CLOCK_H

#include <stdint.h>

#define TUTTI_NS_PER_US 1000ULL
#define TUTTI_NS_PER_MS 1000000ULL
#define TUTTI_NS_PER_S 1000000000ULL

uint64_t tutti_clock_ns(void);      /* monotonic, for waiting */
uint64_t tutti_clock_wall_ns(void); /* since 1970, for people */

/* a + b, NEVER (UINT64_MAX) when that overflows. */
uint64_t tutti_clock_add(uint64_t at_ns, uint64_t wait_ns);

/*
 * When a call's work has to be over so that its answer, with words, still reaches a caller who
 * stops waiting at `call_ns`: a little earlier (10 % of the time left, 20 to 500 ms). A stated
 * `timeout_ms` (0 = none) counts when it is sooner; `fallback_ns` from now when neither says
 * anything.
 */
uint64_t tutti_clock_deadline(uint64_t now_ns, uint32_t timeout_ms, uint64_t call_ns,
                              uint64_t fallback_ns);

#endif
