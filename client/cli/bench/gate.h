/*
 * How the threads of tutti bench begin together, and all end after the same call.
 *
 * A collective that one rank calls and another does not leaves the first one waiting. So when a
 * signal comes or a call fails, ranks go on up to the last call that any of them has begun. Any
 * thread.
 */
#ifndef TUTTI_CLIENT_CLI_BENCH_GATE_H
#define TUTTI_CLIENT_CLI_BENCH_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/code.h"

typedef struct bench_gate bench_gate;

/* [in] ranks  threads that meet. Never NULL. */
bench_gate *bench_gate_new(uint32_t ranks);
void bench_gate_free(bench_gate *gate); /* NULL is fine */

/* Before the threads of a row start. */
void bench_gate_reset(bench_gate *gate);

/* May this rank begin call `number`, counted from 0? False: it is over. */
bool bench_gate_pass(bench_gate *gate, uint64_t number);

/* Wait until all ranks are here. False: it is over. */
bool bench_gate_meet(bench_gate *gate);

/* A call failed: no new ones. */
void bench_gate_stop(bench_gate *gate);

/*
 * SIGINT and SIGTERM end it from now on, until release; the same signal once more ends the program.
 * As programs_catch_signals, of which there is one in a program.
 */
void bench_signals_catch(void);
void bench_signals_release(void);

/* The signal that came; 0 = none. */
int bench_signal(void);

#endif
