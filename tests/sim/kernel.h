/*
 * Kernel: what the simulation has in the place of threads and of time. One seed decides all of it.
 *
 * A task is a fibre that runs until it waits; then the scheduler draws the next one of those that
 * can go on. Virtual time passes a little with each turn, and jumps when nobody can go on. Code of
 * the product that is linked here starts threads, locks, waits and asks for the time as ever:
 * threads.c answers (ld's --wrap), so no line of it knows of the simulation.
 *
 * Everything here is one thread. Tasks belong to processes, which can be frozen.
 */
#ifndef TUTTI_TESTS_SIM_KERNEL_H
#define TUTTI_TESTS_SIM_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/os/clock.h"

#define SIM_NEVER UINT64_MAX
#define SIM_DRIVER (-1) /* the process of the one who plays: never frozen */
#define SIM_PROCESSES_MAX 128

typedef struct sim_task sim_task;

void sim_open(uint64_t seed, bool print);
void sim_close(void); /* all tasks have ended */

uint64_t sim_now_ns(void);
uint64_t
sim_look_at_clock(void); /* the same, and takes a moment: who spins until a time gets there */
uint64_t sim_draw(uint64_t below); /* 0 to below - 1; below 1: 0 */
bool sim_chance(unsigned one_in);  /* 0 = never */

/* A line of the history, which the hash counts. Printed if sim_open was told so. */
void sim_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t sim_hash(void);

/* A promise is broken: prints the words and the end of the history, and ends the process with 1. */
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ------------------------------------------------------------------------------ tasks */

sim_task *sim_task_new(int process, void *(*run)(void *arg), void *arg);
void sim_task_join(sim_task *task);   /* by a task; frees it */
void sim_task_detach(sim_task *task); /* it is freed when it has ended */

/* Tasks that the running task, or an event, starts from now on are of this process. */
void sim_enter(int process);
int sim_process(void); /* of the running task; outside of one: SIM_DRIVER, or what was entered */

/* Run tasks until this one has ended; it is freed. Not from a task. */
void sim_run(sim_task *task);

/*
 * The running task waits until `is_ready` says so or the time has come. is_ready is asked just before
 * the task goes on, so it may take what it finds. NULL: until the time alone.
 *
 * Returns false: the time has come.
 */
bool sim_wait(bool (*is_ready)(void *arg), void *arg, uint64_t until_ns);
void sim_sleep(uint64_t ns);
void sim_yield(void);
bool sim_in_task(void);

/* No task of the process runs until it is thawed. */
void sim_freeze(int process, bool frozen);
bool sim_frozen(int process);

/* Its clock, from now on, is so much ahead of all others, or more than it was: it does not go back. */
void sim_skew(int process, uint64_t ahead_ns);
uint64_t sim_clock(int process); /* what its clock says */

/* Memory of the simulation: it does not fail, where that of the product does (sim_is_own). */
void *sim_new(size_t count, size_t size); /* zeroed; free() */
bool sim_is_own(void);

/* ------------------------------------------------------------------------------ events */

/* Run at a time, on the scheduler's stack: must not wait. In the order of times, then of calls. */
void sim_at(uint64_t at_ns, void (*run)(void *arg, uint64_t number), void *arg, uint64_t number);

#endif
