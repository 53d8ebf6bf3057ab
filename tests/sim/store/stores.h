/*
 * Stores: a schedule of another kind than play.h's: a coordinator's real core over store/memory or a durable store with a
 * simulated disk, clients that call its store, hold leases and watch, and what befalls the process, the machine and the disk.
 */
#ifndef TUTTI_TESTS_SIM_STORE_STORES_H
#define TUTTI_TESTS_SIM_STORE_STORES_H

#include "sim/play.h"

/* As play(). */
void stores_play(uint64_t seed, uint64_t ops, uint64_t faults, bool print, play_counts *ret_counts);

#endif
