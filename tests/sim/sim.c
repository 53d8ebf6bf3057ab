/*
 * tutti-sim: plays schedules, each in virtual time and decided by its seed.
 *
 *   tutti-sim [--kind engine|cluster|store] [--break OP] [--failures N] [--seed S] [--schedules N] [--seconds N] [--jobs N] [--kinds] [--shrink SECONDS] [--replay SEED[:OPS:FAULTS]]
 *
 * A schedule that fails is cut down to the ops and faults that it needs, and its history is printed. --replay plays
 * one and prints its history; --break has the model of an op wrong, to see a judge at work. --kinds prints how often each op, algorithm, fault
 * and event of a group has occurred. The last line is "N schedules, N failed"; the exit status is 1 if one failed.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/os/log.h"
#include "model.h"
#include "play.h"
#include "sim/cluster/cluster.h"
#include "sim/store/stores.h"

#define BATCH 100 /* schedules of one process */
#define JOBS_MAX 64
#define STUCK_S 30 /* a schedule that takes longer is stuck */

typedef struct progress {
    uint64_t played;
    play_counts sum;
} progress;

static progress *slots;  /* of each job */
static progress *shared; /* of this one */
static unsigned jobs = 1;
static bool prints_seen;
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
add_sums(play_counts *sum, const play_counts *more)
{
    uint32_t k;

    sum->calls += more->calls;
    sum->failed += more->failed;
    sum->faults += more->faults;
    sum->virtual_ns += more->virtual_ns;
    sum->hash ^= more->hash;
    for (k = 0; k < SEEN_COUNT; k++) {
        sum->seen[k] += more->seen[k];
    }
}

static void
play_batch(uint64_t seed, uint64_t count)
{
    uint64_t i;

    for (i = 0; i < count; i++) {
        play_counts counts = {0};

        (void)alarm(STUCK_S);
        play_one(seed + i, UINT64_MAX, UINT64_MAX, false, &counts);
        shared->played++;
        add_sums(&shared->sum, &counts);
    }
}

static pid_t
start_child(void (*run)(uint64_t, uint64_t, uint64_t), uint64_t a, uint64_t b, uint64_t c)
{
    pid_t child;

    (void)fflush(stdout);
    child = fork();
    if (child == 0) {
        run(a, b, c);
        exit(0); /* NOLINT: with LeakSanitizer's look, if it is there */
    }
    return child;
}

static bool
is_well(int status)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Returns true if the process ended well: all that it was to play was well. */
static bool
in_child(void (*run)(uint64_t, uint64_t, uint64_t), uint64_t a, uint64_t b, uint64_t c)
{
    int status = 0;

    (void)waitpid(start_child(run, a, b, c), &status, 0);
    return is_well(status);
}

static void
run_batch(uint64_t seed, uint64_t count, uint64_t slot)
{
    shared = &slots[slot];
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
static uint64_t shrink_seconds = 30;

static void
shrink(uint64_t seed, uint64_t *ops, uint64_t *faults)
{
    const double until = real_seconds() + (double)shrink_seconds;
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
    if (shrink_seconds == 0) {
        return;
    }
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

static progress
sum_all(void)
{
    progress all = {0};
    unsigned i;

    for (i = 0; i < jobs; i++) {
        all.played += slots[i].played;
        add_sums(&all.sum, &slots[i].sum);
    }
    return all;
}

static void
print_seen(const play_counts *sum)
{
    char name[80];
    uint32_t i;

    for (i = 0; i < SEEN_COUNT; i++) {
        if (play_seen_name(i, name, sizeof(name))) {
            (void)printf("%10" PRIu64 "  %s\n", sum->seen[i], name);
        }
    }
}

static void
print_sums(double seconds, uint64_t failed)
{
    const progress all = sum_all();
    const double played = all.played > 0 ? (double)all.played : 1;

    if (prints_seen) {
        print_seen(&all.sum);
    }
    (void)printf(
        "%.1f calls, %.1f of them failed, %.1f faults and %.1f s of virtual time a schedule; "
        "%.0f schedules a minute; hash %016" PRIx64 "\n",
        (double)all.sum.calls / played, (double)all.sum.failed / played,
        (double)all.sum.faults / played, (double)all.sum.virtual_ns / 1e9 / played,
        60 * played / seconds, all.sum.hash);
    (void)printf("%" PRIu64 " schedules, %" PRIu64 " failed\n", all.played + failed, failed);
}

/* ------------------------------------------------------------------------------ jobs */

typedef struct batch {
    pid_t child; /* 0 = none */
    uint64_t next;
    uint64_t count;
    uint64_t before; /* played in its slot */
} batch;

typedef struct campaign {
    uint64_t seed;
    uint64_t next;
    uint64_t schedules;
    double until;
    uint64_t failures; /* wanted at most */
    uint64_t failed;
    batch batches[JOBS_MAX];
} campaign;

static void
start_batch(campaign *self, unsigned slot, uint64_t next, uint64_t count)
{
    self->batches[slot] = (batch){.next = next, .count = count, .before = slots[slot].played};
    self->batches[slot].child = start_child(run_batch, self->seed + next, count, slot);
}

static void
start_next(campaign *self, unsigned slot)
{
    const uint64_t left = self->schedules - self->next;
    const uint64_t count = left < BATCH ? left : BATCH;

    if (count > 0 && real_seconds() < self->until && self->failed < self->failures) {
        start_batch(self, slot, self->next, count);
        self->next += count;
    }
}

/* Behind one that fails the rest of its batch goes on. */
static void
end_batch(campaign *self, unsigned slot, bool well)
{
    const batch one = self->batches[slot];
    const uint64_t played = slots[slot].played - one.before;

    self->batches[slot].child = 0;
    if (!well) {
        report(self->seed + one.next + played);
        self->failed++;
        if (played + 1 < one.count && self->failed < self->failures) {
            start_batch(self, slot, one.next + played + 1, one.count - played - 1);
            return;
        }
    }
    start_next(self, slot);
}

static unsigned
slot_of(const campaign *self, pid_t child)
{
    unsigned slot = 0;

    while (slot < jobs && self->batches[slot].child != child) {
        slot++;
    }
    return slot;
}

/* Until so many have failed, of which each is played some dozen times. */
static uint64_t
play_all(campaign *self)
{
    const double began = real_seconds();
    unsigned slot;
    pid_t child;
    int status;

    for (slot = 0; slot < jobs; slot++) {
        start_next(self, slot);
    }
    while ((child = wait(&status)) > 0) {
        slot = slot_of(self, child);
        if (slot < jobs) {
            end_batch(self, slot, is_well(status));
        }
    }
    print_sums(real_seconds() - began, self->failed);
    return self->failed;
}

static int
usage(void)
{
    (void)fprintf(stderr, "usage: tutti-sim [--kind engine|cluster|store] [--break OP] [--seed S] "
                          "[--schedules N] [--seconds N] [--jobs N] [--kinds] [--shrink SECONDS] "
                          "[--replay SEED[:OPS:FAULTS]]\n");
    return 2;
}

typedef struct option {
    const char *name;
    uint64_t *value;
} option;

static bool
take_number(const option *options, size_t count, const char *name, const char *text)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (strcmp(options[i].name, name) == 0) {
            *options[i].value = number_of(text);
            return true;
        }
    }
    return false;
}

int
main(int argc, char **argv)
{
    uint64_t seconds = 30;
    uint64_t processes = 1;
    uint64_t broken = UINT32_MAX;
    campaign all = {.seed = 1, .schedules = UINT64_MAX, .failures = 5};
    const option options[] = {{"--seed", &all.seed},   {"--schedules", &all.schedules},
                              {"--seconds", &seconds}, {"--failures", &all.failures},
                              {"--jobs", &processes},  {"--shrink", &shrink_seconds},
                              {"--break", &broken}};
    const char *replayed = NULL;
    int i;

    tutti_log_set_output(TUTTI_LOG_PEOPLE, open("/dev/null", O_WRONLY)); /* the history says more */
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--kinds") == 0) {
            prints_seen = true;
        } else if (i + 1 == argc) {
            return usage();
        } else if (strcmp(argv[i], "--replay") == 0) {
            replayed = argv[++i];
        } else if (strcmp(argv[i], "--kind") == 0) {
            play_one = strcmp(argv[i + 1], "cluster") == 0 ? cluster_play
                       : strcmp(argv[i + 1], "store") == 0 ? stores_play
                                                           : play;
            i++;
        } else if (take_number(options, sizeof(options) / sizeof(options[0]), argv[i],
                               argv[i + 1])) {
            i++;
        } else {
            return usage();
        }
    }
    jobs = processes < 1 ? 1 : processes > JOBS_MAX ? JOBS_MAX : (unsigned)processes;
    slots = mmap(NULL, sizeof(*slots) * JOBS_MAX, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED) {
        return 2;
    }
    shared = slots;
    model_break((uint32_t)broken);
    if (replayed != NULL) {
        return replay(replayed);
    }
    (void)printf("seed %" PRIu64 "\n", all.seed);
    all.until = real_seconds() + (double)seconds;
    return play_all(&all) == 0 ? 0 : 1;
}
