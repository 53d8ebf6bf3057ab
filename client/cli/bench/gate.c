/*
 * The gate of bench's threads. All ranks must make the same number of calls, since a collective
 * that one rank leaves out makes the others wait. So a rank asks before each call: what another
 * rank has already begun it must make too, and nothing new is begun after a stop.
 *
 * A signal handler may do next to nothing, so it only sets a flag, and each rank looks at it on
 * its way through the gate.
 */
#include "client/cli/bench/gate.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_MS 100 /* how often those who wait for others look for a signal */

struct bench_gate {
    uint32_t ranks;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    uint32_t here;
    uint64_t begun; /* calls that some rank has begun */
    bool stopped;
};

static volatile sig_atomic_t signalled;
static struct sigaction before[2];
static const int caught[2] = {SIGINT, SIGTERM};

static void
on_signal(int number)
{
    signalled = number;
}

/*
 * SA_RESETHAND makes the second signal end the program in the usual way, in case the first is not
 * heard.
 */
void
bench_signals_catch(void)
{
    const struct sigaction action = {.sa_handler = on_signal,
                                     .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    int i;

    signalled = 0;
    for (i = 0; i < 2; i++) {
        (void)sigaction(caught[i], &action, &before[i]);
    }
}

void
bench_signals_release(void)
{
    int i;

    for (i = 0; i < 2; i++) {
        (void)sigaction(caught[i], &before[i], NULL);
    }
}

int
bench_signal(void)
{
    return (int)signalled;
}

bench_gate *
bench_gate_new(uint32_t ranks)
{
    bench_gate *gate = calloc(1, sizeof(*gate));
    pthread_condattr_t monotonic;

    if (gate == NULL) {
        abort();
    }
    gate->ranks = ranks;
    (void)pthread_mutex_init(&gate->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&gate->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    return gate;
}

void
bench_gate_free(bench_gate *gate)
{
    if (gate != NULL) {
        (void)pthread_cond_destroy(&gate->changed);
        (void)pthread_mutex_destroy(&gate->lock);
        free(gate);
    }
}

void
bench_gate_reset(bench_gate *gate)
{
    gate->here = 0;
    gate->begun = 0;
    gate->stopped = false;
}

bool
bench_gate_pass(bench_gate *gate, uint64_t number)
{
    bool passes;

    (void)pthread_mutex_lock(&gate->lock);
    if (signalled != 0) {
        gate->stopped = true;
    }
    /* a call that some rank has begun is made by all */
    passes = number < gate->begun || !gate->stopped;
    if (passes && number >= gate->begun) {
        gate->begun = number + 1;
    }
    (void)pthread_mutex_unlock(&gate->lock);
    return passes;
}

/*
 * The signal handler cannot wake the waiting threads, so they look for the signal from time to
 * time.
 */
static void
wait_a_while(bench_gate *gate)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    (void)pthread_cond_timedwait(&gate->changed, &gate->lock, &until);
}

bool
bench_gate_meet(bench_gate *gate)
{
    bool all;

    (void)pthread_mutex_lock(&gate->lock);
    gate->here++;
    (void)pthread_cond_broadcast(&gate->changed);
    while (gate->here < gate->ranks && !gate->stopped && signalled == 0) {
        wait_a_while(gate);
    }
    all = gate->here >= gate->ranks;
    (void)pthread_mutex_unlock(&gate->lock);
    return all;
}

void
bench_gate_stop(bench_gate *gate)
{
    (void)pthread_mutex_lock(&gate->lock);
    gate->stopped = true;
    (void)pthread_cond_broadcast(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
}
