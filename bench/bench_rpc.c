/*
 * What does lib/rpc cost, beside gRPC's bare C core and beside sockets alone?
 *
 *     bench_rpc [--json FILE] [--seconds S]
 *
 * Small calls (BENCH_SMALL_BYTES each way) one at a time and many at once, and streams of chunks in
 * both directions. Every peer has a server process of its own with one serving thread. In every
 * case the peers take turns, so what else the machine does meets all of them. Client and servers
 * are pinned (bench_rpc_place.c): to one CPU each, or all to one, where only the work counts and no
 * waking up.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/text.h"
#include "base/os/clock.h"
#include "base/os/process.h"
#include "bench_number.h"
#include "bench_rpc.h"
#include "rpc/loop.h"

#define PEERS 4
#define ROUNDS 9
#define CASES 7 /* calls in two places, bursts, two sizes of chunks in two directions */
#define SECONDS_DEFAULT 40
#define MIB (1U << 20)

typedef struct stream_case {
    const char *name;
    size_t chunk_bytes;
    int up;
} stream_case;

static const stream_case stream_cases[] = {
    {"upload, chunks of 1 MiB, GB/s", 1 * MIB, 1},
    {"upload, chunks of 4 MiB, GB/s", 4 * MIB, 1},
    {"download, chunks of 1 MiB, GB/s", 1 * MIB, 0},
    {"download, chunks of 4 MiB, GB/s", 4 * MIB, 0},
};

#define SERVERS 3

typedef struct bench {
    bench_child servers[SERVERS]; /* tutti, core, socket */
    bench_peer peers[PEERS];
    bench_report report;
    double turn_s; /* how long one peer's turn shall take */
} bench;

/* One turn: `count` units of work of a case, in seconds. */
typedef double (*turn_fn)(const bench_peer *peer, const void *arg, size_t count);

static double
since(uint64_t before)
{
    return (double)(tutti_clock_ns() - before) / 1e9;
}

static bench_row *
add_row(bench_report *report, const char *name, enum bench_unit unit)
{
    bench_row *row = &report->rows[report->row_count++];

    (void)snprintf(row->name, sizeof(row->name), "%s", name);
    row->unit = unit;
    return row;
}

/* How many units fill a turn: what the second of two short turns says, the first one warms up. */
static size_t
calibrate(const bench *self, const bench_peer *peer, turn_fn turn, const void *arg, size_t few)
{
    double count;

    (void)turn(peer, arg, few);
    count = self->turn_s * (double)few / turn(peer, arg, few);
    return count < 1 ? 1 : (size_t)count;
}

/* Units per second: the median of the rounds. */
static void
measure(const bench *self, turn_fn turn, const void *arg, size_t few, double *ret_rates)
{
    double rates[PEERS][ROUNDS];
    size_t counts[PEERS];
    size_t p;
    size_t r;

    for (p = 0; p < PEERS; p++) {
        counts[p] = calibrate(self, &self->peers[p], turn, arg, few);
    }
    for (r = 0; r < ROUNDS; r++) {
        for (p = 0; p < PEERS; p++) {
            rates[p][r] = (double)counts[p] / turn(&self->peers[p], arg, counts[p]);
        }
    }
    for (p = 0; p < PEERS; p++) {
        qsort(rates[p], ROUNDS, sizeof(rates[p][0]), bench_compare_numbers);
        ret_rates[p] = rates[p][ROUNDS / 2];
    }
}

/* ------------------------------------------------------------------------------ small calls */

#define SAMPLES_MAX 2000000U

/* The times of all calls of a peer. */
typedef struct samples {
    uint64_t *ns;
    size_t count;
} samples;

static samples all_samples[PEERS];

static double
turn_call(const bench_peer *peer, const void *arg, size_t count)
{
    const bench *self = arg;
    samples *mine = &all_samples[peer - self->peers];
    uint64_t before;

    if (count > SAMPLES_MAX - mine->count) {
        mine->count = 0; /* only a very fast peer in a very long run */
        count = count > SAMPLES_MAX ? SAMPLES_MAX : count;
    }
    before = tutti_clock_ns();
    peer->call(peer->self, count, mine->ns + mine->count);
    mine->count += count;
    return since(before);
}

static double
turn_burst(const bench_peer *peer, const void *arg, size_t count)
{
    const uint64_t before = tutti_clock_ns();

    (void)arg;
    peer->burst(peer->self, count, BENCH_IN_FLIGHT_MAX);
    return since(before);
}

static int
compare_ns(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

static void
measure_calls(bench *self, int apart)
{
    bench_report *report = &self->report;
    bench_row *half =
        add_row(report, apart ? "call, p50, us" : "call on one CPU, p50, us", BENCH_US);
    bench_row *most =
        add_row(report, apart ? "call, p99, us" : "call on one CPU, p99, us", BENCH_US);
    bench_row *rate = add_row(
        report, apart ? "calls/s, 1 in flight" : "calls/s on one CPU, 1 in flight", BENCH_CALLS);
    size_t p;

    bench_place(self->servers, SERVERS, apart);
    for (p = 0; p < PEERS; p++) {
        all_samples[p] = (samples){.ns = calloc(SAMPLES_MAX, sizeof(uint64_t))};
        if (all_samples[p].ns == NULL) {
            bench_die("samples", "no memory");
        }
    }
    measure(self, turn_call, self, 300, rate->values);
    for (p = 0; p < PEERS; p++) {
        const samples *mine = &all_samples[p];

        qsort(mine->ns, mine->count, sizeof(uint64_t), compare_ns);
        half->values[p] = (double)mine->ns[mine->count / 2] / 1e3;
        most->values[p] = (double)mine->ns[mine->count * 99 / 100] / 1e3;
        free(mine->ns);
    }
}

static void
measure_bursts(bench *self)
{
    bench_row *row = add_row(&self->report, "calls/s, 64 in flight", BENCH_CALLS);

    measure(self, turn_burst, NULL, 2000, row->values);
}

/* ------------------------------------------------------------------------------ streams */

static double
turn_stream(const bench_peer *peer, const void *arg, size_t count)
{
    const stream_case *one = arg;
    const uint64_t before = tutti_clock_ns();

    (one->up ? peer->upload : peer->download)(peer->self, one->chunk_bytes, count);
    return since(before);
}

static void
measure_streams(bench *self)
{
    size_t i;
    size_t p;

    for (i = 0; i < sizeof(stream_cases) / sizeof(stream_cases[0]); i++) {
        const stream_case *one = &stream_cases[i];
        bench_row *row = add_row(&self->report, one->name, BENCH_GBS);

        measure(self, turn_stream, one, 32 * MIB / one->chunk_bytes, row->values);
        for (p = 0; p < PEERS; p++) {
            row->values[p] *= (double)one->chunk_bytes / 1e9;
        }
    }
}

/* ------------------------------------------------------------------------------ running */

typedef struct bench_options {
    const char *json;
    double seconds;
    char command[256];
} bench_options;

static void
usage(void)
{
    (void)fprintf(stderr, "usage: bench_rpc [--json FILE] [--seconds S]   S: 1 to 3600, %d\n",
                  SECONDS_DEFAULT);
    exit(2);
}

static void
read_options(int argc, char **argv, bench_options *ret)
{
    size_t used = (size_t)snprintf(ret->command, sizeof(ret->command), "%s", argv[0]);
    int i;

    ret->json = NULL;
    ret->seconds = SECONDS_DEFAULT;
    for (i = 1; i < argc; i += 2) {
        uint64_t seconds = 0;

        if (i + 1 == argc) {
            usage();
        }
        if (strcmp(argv[i], "--json") == 0) {
            ret->json = argv[i + 1];
        } else if (strcmp(argv[i], "--seconds") == 0 &&
                   tutti_parse_uint(argv[i + 1], 3600, &seconds, NULL) == TUTTI_OK && seconds > 0) {
            ret->seconds = (double)seconds;
        } else {
            usage();
        }
        if (used < sizeof(ret->command)) {
            used += (size_t)snprintf(ret->command + used, sizeof(ret->command) - used, " %s %s",
                                     argv[i], argv[i + 1]);
        }
    }
}

static void
open_peers(bench *self)
{
    size_t p;

    self->peers[0] = bench_tutti_open("tutti", self->servers[0].address[0]);
    self->peers[1] = bench_core_open("gRPC core", self->servers[1].address[0]);
    self->peers[2] = bench_raw_open("socket", self->servers[2].address[0]);
    self->peers[3] = bench_tutti_open("tutti unix", self->servers[0].address[1]);
    for (p = 0; p < PEERS; p++) {
        self->report.peers[p] = self->peers[p].name;
    }
    self->report.peer_count = PEERS;
}

static void
measure_all(bench *self)
{
    size_t p;

    tutti_rpc_init();
    open_peers(self);
    measure_calls(self, 0);
    measure_calls(self, 1);
    measure_bursts(self);
    measure_streams(self);
    for (p = 0; p < PEERS; p++) {
        self->peers[p].close(self->peers[p].self);
    }
    tutti_rpc_fini();
}

int
main(int argc, char **argv)
{
    char folder[] = "/tmp/tutti-bench-XXXXXX";
    static bench self;
    bench_options options;
    const uint64_t before = tutti_clock_ns();
    size_t i;

    read_options(argc, argv, &options);
    self.turn_s = options.seconds / (CASES * PEERS * (ROUNDS + 1));
    if (mkdtemp(folder) == NULL) {
        bench_die(folder, "could not be made");
    }
    (void)signal(SIGPIPE, SIG_IGN); /* a server that has ended already need not be told */
    tutti_process_tune_malloc();
    memset(bench_source, 7, BENCH_CHUNK_BYTES_MAX);
    bench_child_start(&self.servers[0], bench_tutti_serve, folder);
    bench_child_start(&self.servers[1], bench_core_serve, folder);
    bench_child_start(&self.servers[2], bench_raw_serve, folder);
    measure_all(&self);
    for (i = 0; i < SERVERS; i++) {
        bench_child_end(&self.servers[i]);
    }
    (void)rmdir(folder);
    self.report.command = options.command;
    self.report.seconds = since(before);
    bench_report_print(&self.report, stdout);
    if (options.json != NULL) {
        bench_report_write_json(&self.report, options.json);
    }
    return 0;
}
