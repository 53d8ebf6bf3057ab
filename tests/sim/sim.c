/*
 * tutti-sim: plays schedules, each in virtual time and decided by its seed.
 *
 *   tutti-sim [--kind engine|cluster|store] [--break OP] [--failures N] [--seed S] [--schedules N] [--seconds N] [--replay SEED[:OPS:FAULTS]]
 *
 * A schedule that fails is cut down to the ops and faults that it needs, and its history is printed. --replay plays
 * one and prints its history; --break has the model of an op wrong, to see a judge at work. The last line is "N schedules, N failed"; the exit status is 1 if one failed.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "model.h"
#include "play.h"
#include "sim/cluster/cluster.h"
#include "sim/store/stores.h"

#define BATCH 100  /* schedules of one process */
#define STUCK_S 30 /* a schedule that takes longer is stuck */

typedef struct progress {
    uint64_t played;
    play_counts sum;
} progress;

static progress *shared;
static void (*play_one)(uint64_t, uint64_t, uint64_t, bool, play_counts *) = play;

int __real_clock_gettime(clockid_t, struct timespec *);

static double
real_seconds(void)
{
    struct timespec now;

    (void)__real_clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void
play_batch(uint64_t seed, uint64_t count)
{
    uint64_t i;

    for (i = 0; i < count; i++) {
        play_counts counts;

        (void)alarm(STUCK_S);
        play_one(seed + i, UINT64_MAX, UINT64_MAX, false, &counts);
        shared->played++;
        shared->sum.calls += counts.calls;
        shared->sum.failed += counts.failed;
        shared->sum.faults += counts.faults;
        shared->sum.virtual_ns += counts.virtual_ns;
        shared->sum.hash ^= counts.hash;
    }
}

/* Returns true if the process ended well: all that it was to play was well. */
static bool
in_child(void (*run)(uint64_t, uint64_t, uint64_t), uint64_t a, uint64_t b, uint64_t c)
{
    pid_t child;
    int status = 0;

    (void)fflush(stdout);
    child = fork();
    if (child == 0) {
        run(a, b, c);
        exit(0); /* NOLINT: with LeakSanitizer's look, if it is there */
    }
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void
run_batch(uint64_t seed, uint64_t count, uint64_t unused)
{
    (void)unused;
    play_batch(seed, count);
}

static void
run_quietly(uint64_t seed, uint64_t ops, uint64_t faults)
{
    play_counts counts;

    if (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL) {
        exit(2);
    }
    (void)alarm(STUCK_S);
    play_one(seed, ops, faults, false, &counts);
}

static void
run_aloud(uint64_t seed, uint64_t ops, uint64_t faults)
{
    play_counts counts;

    (void)alarm(STUCK_S);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    play_one(seed, ops, faults, true, &counts);
    (void)printf("hash %016" PRIx64 "\n", counts.hash);
}

/* Without one part after the other, the last first, while it fails; and while there is time. */
#define SHRINK_S 30

static void
shrink(uint64_t seed, uint64_t *ops, uint64_t *faults)
{
    const double until = real_seconds() + SHRINK_S;
    unsigned width;
    unsigned at;

    for (at = 0; at < FAULTS_MAX && real_seconds() < until; at++) {
        const uint64_t less = *faults & ~(1ULL << at);

        *faults = in_child(run_quietly, seed, *ops, less) ? *faults : less;
    }
    for (width = OPS_MAX / 2; width > 0; width /= 2) {
        for (at = OPS_MAX; at >= width && real_seconds() < until; at -= width) {
            const uint64_t part = ((1ULL << width) - 1) << (at - width);
            const uint64_t less = *ops & ~part;

            *ops = less == *ops || in_child(run_quietly, seed, less, *faults) ? *ops : less;
        }
    }
}

static void
report(uint64_t seed)
{
    uint64_t ops = UINT64_MAX;
    uint64_t faults = (1ULL << FAULTS_MAX) - 1;

    (void)printf("seed %" PRIu64 " fails\n", seed);
    if (!in_child(run_quietly, seed, ops, faults)) {
        shrink(seed, &ops, &faults);
    }
    (void)printf("its least part, --replay %" PRIu64 ":%" PRIx64 ":%" PRIx64 "\n", seed, ops,
                 faults);
    (void)in_child(run_aloud, seed, ops, faults);
}

static uint64_t
number_of(const char *text)
{
    return strtoull(text, NULL, 10);
}

static int
replay(const char *text)
{
    uint64_t seed = 0;
    uint64_t ops = UINT64_MAX;
    uint64_t faults = UINT64_MAX;

    if (sscanf(text, "%" SCNu64 ":%" SCNx64 ":%" SCNx64, &seed, &ops, &faults) < 1) {
        (void)fprintf(stderr, "tutti-sim: --replay %s: give SEED or SEED:OPS:FAULTS\n", text);
        return 2;
    }
    return in_child(run_aloud, seed, ops, faults) ? 0 : 1;
}

static void
print_sums(double seconds, uint64_t failed)
{
    const double played = shared->played > 0 ? (double)shared->played : 1;

    (void)printf(
        "%.1f calls, %.1f of them failed, %.1f faults and %.1f s of virtual time a schedule; "
        "%.0f schedules a minute; hash %016" PRIx64 "\n",
        (double)shared->sum.calls / played, (double)shared->sum.failed / played,
        (double)shared->sum.faults / played, (double)shared->sum.virtual_ns / 1e9 / played,
        60 * played / seconds, shared->sum.hash);
    (void)printf("%" PRIu64 " schedules, %" PRIu64 " failed\n", shared->played + failed, failed);
}

/* Until so many have failed, of which each is played some dozen times. */
static uint64_t
play_all(uint64_t seed, uint64_t schedules, double seconds, uint64_t failures)
{
    const double began = real_seconds();
    uint64_t next = 0;
    uint64_t failed = 0;

    while (next < schedules && real_seconds() - began < seconds && failed < failures) {
        const uint64_t count = schedules - next < BATCH ? schedules - next : BATCH;
        const uint64_t before = shared->played;
        const bool well = in_child(run_batch, seed + next, count, 0);

        next += shared->played - before;
        if (!well) {
            report(seed + next++);
            failed++;
        }
    }
    print_sums(real_seconds() - began, failed);
    return failed;
}

static int
usage(void)
{
    (void)fprintf(stderr, "usage: tutti-sim [--kind engine|cluster|store] [--break OP] [--seed S] "
                          "[--schedules N] [--seconds N] "
                          "[--replay SEED[:OPS:FAULTS]]\n");
    return 2;
}

int
main(int argc, char **argv)
{
    uint64_t seed = 1;
    uint64_t schedules = UINT64_MAX;
    double seconds = 30;
    uint64_t failures = 5;
    int i;

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || argc % 2 == 0) {
        return usage();
    }
    for (i = 1; i < argc; i += 2) {
        if (strcmp(argv[i], "--replay") == 0) {
            return replay(argv[i + 1]);
        } else if (strcmp(argv[i], "--kind") == 0) {
            play_one = strcmp(argv[i + 1], "cluster") == 0 ? cluster_play
                       : strcmp(argv[i + 1], "store") == 0 ? stores_play
                                                           : play;
        } else if (strcmp(argv[i], "--break") == 0) {
            model_break((uint32_t)number_of(argv[i + 1]));
        } else if (strcmp(argv[i], "--seed") == 0) {
            seed = number_of(argv[i + 1]);
        } else if (strcmp(argv[i], "--schedules") == 0) {
            schedules = number_of(argv[i + 1]);
        } else if (strcmp(argv[i], "--seconds") == 0) {
            seconds = (double)number_of(argv[i + 1]);
        } else if (strcmp(argv[i], "--failures") == 0) {
            failures = number_of(argv[i + 1]);
        } else {
            return usage();
        }
    }
    (void)printf("seed %" PRIu64 "\n", seed);
    return play_all(seed, schedules, seconds, failures) == 0 ? 0 : 1;
}
