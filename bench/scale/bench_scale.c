/*
 * What does one coordinator need for N agents?
 *
 *     bench_scale ADDRESS PID AGENTS DEATHS IDLE_SECONDS [AGENTS_OF_A_CONNECTION]
 *
 * PID is the coordinator's, whose CPU time and memory are read. All agents come at one instant; they
 * beat for a while; one dies; DEATHS of them die at once; these come back; all of them make a group of
 * all. It prints a line of JSON. bench/scale/scale.py starts the coordinator and makes tables.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "fleet.h"

#define PHASE_S 120 /* at most */

static fleet all;
static int coordinator;
static const char *separator = "";

/* ------------------------------------------------------------------------------ the coordinator */

/* Seconds of CPU. */
static double
cpu_s(void)
{
    char path[64];
    char text[1024];
    unsigned long user = 0;
    unsigned long kernel = 0;
    FILE *file;
    char *at;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", coordinator);
    file = fopen(path, "r");
    at = file == NULL ? NULL : fgets(text, sizeof(text), file);
    if (file != NULL) {
        (void)fclose(file);
    }
    at = at == NULL ? NULL : strrchr(text, ')');
    if (at == NULL || sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                             &kernel) != 2) {
        (void)fprintf(stderr, "bench_scale: no process %d\n", coordinator);
        exit(1);
    }
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

static double
rss_kib(void)
{
    char path[64];
    unsigned long pages = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/statm", coordinator);
    file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%*u %lu", &pages) != 1) {
        pages = 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

/* ------------------------------------------------------------------------------ phases */

typedef struct measure {
    uint64_t began_ns;
    double cpu_s;
    uint64_t sent;
    uint64_t received;
} measure;

static measure
begin(void)
{
    return (measure){tutti_clock_ns(), cpu_s(), all.net.sent_bytes, all.net.received_bytes};
}

static double
since_s(uint64_t began_ns, uint64_t now_ns)
{
    return now_ns < began_ns ? 0 : (double)(now_ns - began_ns) / 1e9;
}

static void
put(const char *name, double value)
{
    (void)printf("%s\"%s\": %.6g", separator, name, value);
    (void)fflush(stdout);
    separator = ", ";
}

static uint64_t
phase_end(void)
{
    return tutti_clock_ns() + PHASE_S * TUTTI_NS_PER_S;
}

/* A phase that does not end is the result of the bench, not its failure. */
static void
finish(bool over, const char *phase)
{
    if (over) {
        return;
    }
    (void)printf("%s\"failed\": \"%s: %u joined, %u alive, %u told, %u groups, %u lost without a "
                 "death; no heartbeat was sent for %.1f s\", \"trouble\": \"%s\"}\n",
                 separator, phase, all.joined, all.alive, all.told, all.groups, all.false_losses,
                 (double)all.latest_ns / 1e9, all.trouble);
    exit(2);
}

static bool
all_joined(const fleet *self)
{
    return self->joined == self->count && self->alive == self->count;
}

static bool
all_told(const fleet *self)
{
    return self->told >= self->alive || self->false_losses > 100;
}

static bool
all_grouped(const fleet *self)
{
    return self->groups >= self->alive;
}

static void
join_all(void)
{
    const measure from = begin();
    const double rss = rss_kib();

    fleet_start(&all);
    finish(fleet_run(&all, phase_end(), all_joined), "join");
    put("joined_s", since_s(from.began_ns, all.joined_ns));
    put("sessions_s", since_s(from.began_ns, tutti_clock_ns()));
    put("join_cpu_s", cpu_s() - from.cpu_s);
    put("retries", all.retries);
    put("rss_kib", (rss_kib() - rss) / all.count);
}

static void
idle(uint64_t seconds)
{
    measure from;
    uint64_t beats;
    double wall_s;

    (void)fleet_run(&all, tutti_clock_ns() + TUTTI_NS_PER_S, NULL);
    from = begin();
    beats = all.beats;
    (void)fleet_run(&all, tutti_clock_ns() + seconds * TUTTI_NS_PER_S, NULL);
    wall_s = since_s(from.began_ns, tutti_clock_ns());
    put("interval_s", (double)all.interval_ns / 1e9);
    put("beats_per_s", (double)(all.beats - beats) / wall_s);
    put("beat_core", (cpu_s() - from.cpu_s) / wall_s);
}

static void
put_told(const char *what, const measure *from)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "%s_s", what);
    put(name, since_s(from->began_ns, all.last_told_ns));
    (void)snprintf(name, sizeof(name), "%s_spread_s", what); /* from the first to the last agent */
    put(name, since_s(all.first_told_ns, all.last_told_ns));
    (void)snprintf(name, sizeof(name), "%s_cpu_s", what);
    put(name, cpu_s() - from->cpu_s);
    (void)snprintf(name, sizeof(name), "%s_messages", what);
    put(name, (double)all.messages);
    (void)snprintf(name, sizeof(name), "%s_mb", what);
    put(name, (double)(all.net.received_bytes - from->received) / 1e6);
    (void)snprintf(name, sizeof(name), "%s_late_s", what); /* of the simulator's heartbeats */
    put(name, (double)all.late_ns / 1e9);
}

static void
die(const char *what, uint32_t first, uint32_t count)
{
    const measure from = begin();
    uint32_t i;

    fleet_forget_told(&all, count);
    for (i = 0; i < count; i++) {
        fleet_kill(&all, first + i);
    }
    finish(fleet_run(&all, phase_end(), all_told), what);
    put_told(what, &from);
}

/* Those that came back are told only of those that come after them. */
static bool
all_back(const fleet *self)
{
    return self->alive == self->count && self->told >= self->count - self->expected;
}

static void
come_back(const char *what, uint32_t first, uint32_t count)
{
    const measure from = begin();
    uint32_t i;

    fleet_forget_told(&all, count);
    for (i = 0; i < count; i++) {
        fleet_revive(&all, first + i);
    }
    finish(fleet_run(&all, phase_end(), all_back), what);
    put_told(what, &from);
}

static void
group_all(void)
{
    const measure from = begin();
    uint32_t i;

    all.groups = 0;
    for (i = 0; i < all.count; i++) {
        fleet_group(&all, i, "everyone");
    }
    finish(fleet_run(&all, phase_end(), all_grouped), "group");
    put("group_s", since_s(from.began_ns, tutti_clock_ns()));
    put("group_cpu_s", cpu_s() - from.cpu_s);
    put("group_mb",
        (double)(all.net.sent_bytes - from.sent + all.net.received_bytes - from.received) / 1e6);
}

int
main(int argc, char **argv)
{
    const uint32_t agents = argc >= 6 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    const uint32_t deaths = argc >= 6 ? (uint32_t)strtoul(argv[4], NULL, 10) : 0;
    const uint32_t share = argc == 7 ? (uint32_t)strtoul(argv[6], NULL, 10) : 1;

    if (agents < 4 || deaths + 2 > agents || share < 1 || share > FLEET_SHARE_MAX) {
        (void)fprintf(stderr,
                      "bench_scale ADDRESS PID AGENTS DEATHS IDLE_SECONDS [1 or 2 agents of "
                      "a connection]; at least 4 agents, and two more than die\n");
        return 2;
    }
    coordinator = atoi(argv[2]);
    fleet_init(&all, argv[1], agents, share);
    (void)printf("{");
    put("agents", agents);
    put("deaths", deaths);
    put("share", share);
    join_all();
    idle(strtoul(argv[5], NULL, 10));
    die("event", 0, 1);
    come_back("event_return", 0, 1);
    die("deaths", 1, deaths);
    come_back("return", 1, deaths);
    group_all();
    put("false_losses", all.false_losses);
    put("late_s", (double)all.latest_ns / 1e9);
    put("rss_end_kib", rss_kib() / agents);
    (void)printf(", \"trouble\": \"%s\"}\n", all.trouble);
    return 0;
}
