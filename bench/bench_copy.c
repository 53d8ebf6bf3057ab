/*
 * How fast are copies that go past the caches, beside memcpy?
 *
 *     bench_copy [--json]
 *
 * Each thread copies an array of its own, in memory that processes share, as tensors are. Both ways
 * take turns; a row is the median of the turns, and a turn takes as long as its slowest thread.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "bench_number.h"
#include "coll/host/strided_copy.h"

#define BYTES_MAX ((size_t)64 << 20)
#define TURNS 21
#define TURN_BYTES ((size_t)64 << 20)
#define THREADS_MAX 16
#define WAYS 2

typedef struct worker {
    pthread_t thread;
    unsigned char *to;
    unsigned char *from;
} worker;

typedef struct bench {
    worker workers[THREADS_MAX];
    unsigned threads;
    size_t bytes; /* of a copy; 0 = the end */
    int way;
    pthread_barrier_t gate;
} bench;

static bench all;

static void
copy(const worker *self)
{
    const size_t rounds = TURN_BYTES / all.bytes;
    size_t i;

    for (i = 0; i < rounds; i++) {
        if (all.way == 0) {
            tutti_host_copy_past_cache(self->to, self->from, all.bytes);
        } else {
            memcpy(self->to, self->from, all.bytes);
        }
    }
}

static void *
work(void *arg)
{
    const worker *self = arg;

    for (;;) {
        (void)pthread_barrier_wait(&all.gate);
        if (all.bytes == 0) {
            return NULL;
        }
        copy(self);
        (void)pthread_barrier_wait(&all.gate);
    }
}

static double
time_turn(int way)
{
    uint64_t start;

    all.way = way;
    start = tutti_clock_ns();
    (void)pthread_barrier_wait(&all.gate);
    (void)pthread_barrier_wait(&all.gate);
    return (double)(tutti_clock_ns() - start) * (double)all.bytes / TURN_BYTES / 1e3;
}

/* Microseconds of one copy, both ways. */
static void
measure(size_t bytes, double ret_us[WAYS])
{
    double took[WAYS][TURNS];
    int turn;
    int way;

    all.bytes = bytes;
    for (turn = 0; turn < TURNS; turn++) {
        for (way = 0; way < WAYS; way++) {
            took[way][turn] = time_turn(way);
        }
    }
    for (way = 0; way < WAYS; way++) {
        qsort(took[way], TURNS, sizeof(double), bench_compare_numbers);
        ret_us[way] = took[way][TURNS / 2];
    }
}

static void
print_row(size_t bytes, const double us[WAYS], bool json, bool first)
{
    const double to_gb_per_s = (double)bytes / 1e3;

    if (json) {
        printf(
            "%s\n  {\"threads\": %u, \"bytes\": %zu, \"past_cache_us\": %.1f, \"memcpy_us\": %.1f}",
            first ? "" : ",", all.threads, bytes, us[0], us[1]);
    } else {
        printf("%7u %8zu KiB %9.1f us %8.1f GB/s %9.1f us %8.1f GB/s %7.2fx\n", all.threads,
               bytes >> 10, us[0], to_gb_per_s / us[0], us[1], to_gb_per_s / us[1], us[1] / us[0]);
    }
}

static void
run_sizes(bool json, bool first)
{
    static const size_t sizes[] = {(size_t)512 << 10, (size_t)4 << 20, BYTES_MAX};
    double us[WAYS];
    unsigned i;

    (void)pthread_barrier_init(&all.gate, NULL, all.threads + 1);
    for (i = 0; i < all.threads; i++) {
        if (pthread_create(&all.workers[i].thread, NULL, work, &all.workers[i]) != 0) {
            (void)fprintf(stderr, "bench_copy: no thread\n");
            exit(1);
        }
    }
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        measure(sizes[i], us);
        print_row(sizes[i], us, json, first && i == 0);
    }
    all.bytes = 0;
    (void)pthread_barrier_wait(&all.gate);
    for (i = 0; i < all.threads; i++) {
        (void)pthread_join(all.workers[i].thread, NULL);
    }
    (void)pthread_barrier_destroy(&all.gate);
}

static bool
open_workers(unsigned count)
{
    unsigned i;

    for (i = 0; i < count; i++) {
        void *memory =
            mmap(NULL, 2 * BYTES_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        if (memory == MAP_FAILED) {
            return false;
        }
        memset(memory, 1, 2 * BYTES_MAX);
        all.workers[i].from = memory;
        all.workers[i].to = all.workers[i].from + BYTES_MAX;
    }
    return true;
}

int
main(int argc, char **argv)
{
    const bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned most = processors > THREADS_MAX ? THREADS_MAX : (unsigned)processors;

    if (argc > 1 && !json) {
        (void)fprintf(stderr, "usage: bench_copy [--json]\n");
        return 2;
    }
    if (!open_workers(most)) {
        (void)fprintf(stderr, "bench_copy: no memory for %u pairs of 64 MiB\n", most);
        return 1;
    }
    printf(json ? "["
                : "threads  each copies     past the caches                 memcpy        ratio\n");
    all.threads = 1;
    run_sizes(json, true);
    all.threads = most;
    if (most > 1) {
        run_sizes(json, false);
    }
    printf(json ? "\n]\n" : "medians of %d alternating turns\n", TURNS);
    return 0;
}
