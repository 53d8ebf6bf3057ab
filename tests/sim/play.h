/*
 * Play: one schedule from begin to end, in this process: engines, their clients, what befalls them, and the judges.
 * A promise that is broken ends the process (sim_fail).
 */
#ifndef TUTTI_TESTS_SIM_PLAY_H
#define TUTTI_TESTS_SIM_PLAY_H

#include "coll/select/select.h"
#include "plan.h"

/* What is counted, so that nothing is left out without a word: play_seen_name. */
enum {
    SEEN_OPS, /* by kind and shape, for each rank that calls it */
    SEEN_ALGORITHMS =
        SEEN_OPS + TUTTI_COLL_KIND_COUNT * SHAPE_COUNT, /* by kind, as they are picked */
    SEEN_FAULTS = SEEN_ALGORITHMS + TUTTI_COLL_KIND_COUNT * TUTTI_ALGORITHM_COUNT,
    SEEN_MADE = SEEN_FAULTS + FAULT_COUNT, /* groups, in the middle */
    SEEN_DELETED,
    SEEN_ABORTED,
    SEEN_RETURN, /* of a rank, by another process */
    SEEN_CANCEL,
    SEEN_REFUSAL,
    SEEN_PASS,   /* a new program passes over the ends of others */
    SEEN_REGION, /* of memory that a process lends another */
    SEEN_COUNT,
};

typedef struct play_counts {
    uint64_t calls; /* ops, once for each rank that called them */
    uint64_t failed;
    uint64_t faults;
    uint64_t virtual_ns;
    uint64_t hash;
    uint64_t seen[SEEN_COUNT];
} play_counts;

/* [in] ops, faults  masks: which of the plan's are played */
void play(uint64_t seed, uint64_t ops, uint64_t faults, bool print, play_counts *ret_counts);

void play_see(uint32_t what);

/* False: there is no such thing. */
bool play_seen_name(uint32_t what, char *ret_name, size_t size);

#endif
