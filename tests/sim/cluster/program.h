/*
 * Programs: coordinators and agents of the simulation, each a process of the kernel whose main is
 * that of the programs in server/ without signals, files and pages: the rooms behind them are the real ones.
 */
#ifndef TUTTI_TESTS_SIM_PROGRAM_H
#define TUTTI_TESTS_SIM_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/error.h"

typedef struct program program;

#define COORDINATOR_ADDRESS "127.0.0.1:7000"

/* The number of a new process. Those of a schedule are never used again. */
int program_number(void);
void program_open(void); /* count from the beginning */

/* They begin as tasks of their process. */
program *program_coordinator(void);
program *program_agent(uint32_t rank, uint32_t size);

/* Where an agent serves: "127.0.0.1:7101", as its next life does. */
const char *program_address(const program *self);
int program_process(const program *self);

/* It takes part: a coordinator serves, an agent has joined; and it has not ended. */
bool program_runs(const program *self);
/* It has ended by itself; why. */
bool program_failed(const program *self, tutti_error *ret_why);

/* Packets and ops that an agent's engine keeps. */
void program_engine_counts(const program *self, uint64_t *ret_parked, uint64_t *ret_running);

/* Stop as by SIGTERM. */
void program_stop(program *self);
/* As by SIGKILL, or as a host that loses its power. */
void program_kill(program *self, bool silent);

/*
 * Free it, from a task: wait until it has stopped. What was killed runs again for this, alone: so
 * its memory is given back, and nobody hears of it.
 */
void program_free(program *self);

#endif
