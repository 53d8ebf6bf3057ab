/*
 * Cluster: one schedule of whole programs: a coordinator, agents and their clients, all of it the real code but for gRPC's
 * core (core.h), the transport between agents (wire.h) and what the kernel stands for. What befalls them, and the
 * judges. A promise that is broken ends the process (sim_fail).
 */
#ifndef TUTTI_TESTS_SIM_CLUSTER_H
#define TUTTI_TESTS_SIM_CLUSTER_H

#include "sim/play.h"

/* As play(). */
void cluster_play(uint64_t seed, uint64_t ops, uint64_t faults, bool print,
                  play_counts *ret_counts);

#endif
