/* Memory: allocations of one process that fail (tests/support/sweep.h). */
#ifndef TUTTI_TESTS_SIM_MEMORY_H
#define TUTTI_TESTS_SIM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* From now on those of this process fail: the one behind `number` others, or all. */
void memory_starve(uint32_t process, bool once, uint64_t number);
void memory_feed(void);

/* The running task's own do not fail, until it says otherwise. */
void memory_spare(bool spared);

#endif
