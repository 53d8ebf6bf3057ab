/*
 * Sweep: let the n-th allocation of a piece of code fail, for every n until it gets through.
 *
 *     for (n = 0; !done; n++) {
 *         sweep_fail_at(n);
 *         code = what_is_tested(...);
 *         done = !sweep_stop();       (no allocation failed: all were swept)
 *         assert(code is right);
 *     }
 *
 * Link with support/sweep.c and SWEEP_LINK of tests/CMakeLists.txt. One thread.
 */
#ifndef TUTTI_TESTS_SWEEP_H
#define TUTTI_TESTS_SWEEP_H

#include <stdbool.h>
#include <stddef.h>

/* The allocation number `number` from now on, counted from 0, and all behind it, return NULL. */
void sweep_fail_at(size_t number);

/* Only that one: what follows may try again. */
void sweep_fail_once(size_t number);

/* From now on only allocations for which this says true are counted, and fail. NULL: all. */
void sweep_only(bool (*counts)(void));

/* Let all succeed again. Did any fail? */
bool sweep_stop(void);

#endif
