/* Private to server/agent: what an agent counts for its metrics. */
#ifndef TUTTI_SERVER_AGENT_STATE_COUNTERS_H
#define TUTTI_SERVER_AGENT_STATE_COUNTERS_H

#include "base/os/meter.h"

#define AGENT_KINDS 32 /* of ops, 0 for one that is none */
#define AGENT_CODES 17

/*
 * What is counted for the metrics. Any thread: each number by itself is right, and two of them may
 * be of different moments.
 */
typedef struct agent_numbers {
    _Atomic uint64_t ops[AGENT_KINDS][AGENT_CODES]; /* that ended, by their end */
    _Atomic uint64_t op_bytes[AGENT_KINDS];         /* that this rank gave */
    tutti_meter op_durations[AGENT_KINDS];
    _Atomic uint64_t bytes_in; /* by Put and Upload */
    _Atomic uint64_t bytes_out;
    _Atomic uint64_t sessions;                    /* that the coordinator accepted */
    _Atomic uint64_t function_calls[AGENT_CODES]; /* that were answered, by their end */
    tutti_meter function_durations;
    _Atomic uint64_t hosts;                 /* of functions, that were taken */
    _Atomic uint64_t drives;                /* sessions of controllers that were opened here */
    _Atomic uint64_t commands[AGENT_CODES]; /* of these, that were answered */
} agent_numbers;

#endif
