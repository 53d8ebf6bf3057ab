/* Clock: nanoseconds. Rooms take "now" as an argument; only loops and mains ask. Any thread. */
#ifndef TUTTI_BASE_CLOCK_H
#define TUTTI_BASE_CLOCK_H

#include <stdint.h>

#define TUTTI_NS_PER_US 1000ULL
#define TUTTI_NS_PER_MS 1000000ULL
#define TUTTI_NS_PER_S 1000000000ULL

uint64_t tutti_clock_ns(void);      /* monotonic, for waiting */
uint64_t tutti_clock_wall_ns(void); /* since 1970, for people */

/* a + b, NEVER (UINT64_MAX) when that overflows. */
uint64_t tutti_clock_add(uint64_t at_ns, uint64_t wait_ns);

#endif
