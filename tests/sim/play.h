/*
 * Play: one schedule from begin to end, in this process: engines, their clients, what befalls them, and the judges.
 * A promise that is broken ends the process (sim_fail).
 */
#ifndef TUTTI_TESTS_SIM_PLAY_H
#define TUTTI_TESTS_SIM_PLAY_H

#include "plan.h"

typedef struct play_counts {
    uint64_t calls; /* ops, once for each rank that called them */
    uint64_t failed;
    uint64_t faults;
    uint64_t virtual_ns;
    uint64_t hash;
} play_counts;

/* [in] ops, faults  masks: which of the plan's are played */
void play(uint64_t seed, uint64_t ops, uint64_t faults, bool print, play_counts *ret_counts);

#endif
