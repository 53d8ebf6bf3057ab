/*
 * How much does pipelining bring? The same small all-reduce, called one at a time and through a
 * stream of commands.
 *
 *     tutti run -n 2 -- bench_commands [--json FILE] [--bytes N]
 *
 * Every rank is a process of its own beside its agent. The two ways take turns, nine times, so what
 * else the machine does meets both. Rank 0 prints medians and their ratio.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "bench_number.h"
#include "tutti/tutti.h"

#define ROUNDS 9
#define CALLS 3000     /* of a turn, one at a time */
#define COMMANDS 20000 /* of a turn, through the stream */
#define BYTES_DEFAULT 8
#define TENSORS 64 /* taken in turn: an op in place waits for the one before it on its tensor */

typedef struct bench {
    tutti_client *client;
    const char *json;
    uint64_t bytes;
    tutti_handle tensors[TENSORS];
    double rates[2][ROUNDS]; /* per second: calls, commands */
} bench;

static void
end_with_error(const char *what, const tutti_error *err)
{
    (void)fprintf(stderr, "bench_commands: %s: %s\n", what, err->text);
    exit(1);
}

static void
op_of(const bench *self, int number, tutti_op *op)
{
    const char *tensor = self->tensors[number % TENSORS].text;

    tutti_op_init(op);
    op->input = tensor;
    op->output = tensor;
}

/* Both ranks begin together, so that nobody's clock counts another's start. */
static uint64_t
begin_turn(const bench *self)
{
    tutti_error err;

    if (tutti_barrier(self->client, NULL, NULL, &err) != TUTTI_OK) {
        end_with_error("barrier", &err);
    }
    return tutti_clock_ns();
}

static double
turn_calls(const bench *self)
{
    const uint64_t before = begin_turn(self);
    tutti_error err;
    tutti_op op;
    int i;

    for (i = 0; i < CALLS; i++) {
        op_of(self, i, &op);
        if (tutti_all_reduce(self->client, &op, NULL, &err) != TUTTI_OK) {
            end_with_error("all_reduce", &err);
        }
    }
    return CALLS / ((double)(tutti_clock_ns() - before) / 1e9);
}

static void
take_all(tutti_pipeline *pipeline)
{
    tutti_pipeline_result result;
    tutti_error err;

    while (tutti_pipeline_next(pipeline, &result, &err) == TUTTI_OK) {
        if (result.error.code != TUTTI_OK) {
            end_with_error("a command", &result.error);
        }
    }
    if (err.code != TUTTI_NOT_FOUND) {
        end_with_error("the stream", &err);
    }
}

static double
turn_commands(const bench *self)
{
    const uint64_t before = begin_turn(self);
    tutti_pipeline *pipeline = NULL;
    tutti_error err;
    tutti_op op;
    int i;

    if (tutti_pipeline_open(self->client, NULL, &pipeline, &err) != TUTTI_OK) {
        end_with_error("open", &err);
    }
    for (i = 0; i < COMMANDS; i++) {
        op_of(self, i, &op);
        if (tutti_pipeline_submit(pipeline, TUTTI_OP_ALL_REDUCE, &op, NULL, &err) != TUTTI_OK) {
            end_with_error("submit", &err);
        }
    }
    take_all(pipeline);
    if (tutti_pipeline_close(pipeline, &err) != TUTTI_OK) {
        end_with_error("close", &err);
    }
    return COMMANDS / ((double)(tutti_clock_ns() - before) / 1e9);
}

/* Of each pair of turns, which ran one after the other. */
static double
median_ratio(const bench *self)
{
    double ratios[ROUNDS];
    int i;

    for (i = 0; i < ROUNDS; i++) {
        ratios[i] = self->rates[1][i] / self->rates[0][i];
    }
    return bench_find_median(ratios, ROUNDS);
}

static void
print_report(const bench *self)
{
    const double calls = bench_find_median(self->rates[0], ROUNDS);
    const double commands = bench_find_median(self->rates[1], ROUNDS);
    const double ratio = median_ratio(self);
    json_t *row;

    (void)printf("all_reduce of %llu bytes, in place, %u ranks: median of %d alternating turns\n",
                 (unsigned long long)self->bytes, tutti_whoami(self->client)->world_size, ROUNDS);
    (void)printf("  calls, 1 in flight        %9.0f /s  %7.1f us each\n", calls, 1e6 / calls);
    (void)printf("  commands of one stream    %9.0f /s  %7.1f us each\n", commands, 1e6 / commands);
    (void)printf("  ratio                     %9.2f\n", ratio);
    if (self->json == NULL) {
        return;
    }
    row = json_pack("{s:s, s:I, s:f, s:f, s:f, s:i}", "name", "commands all_reduce", "bytes",
                    (json_int_t)self->bytes, "calls_per_s", calls, "commands_per_s", commands,
                    "ratio", ratio, "pairs", ROUNDS);
    if (row == NULL || json_dump_file(row, self->json, JSON_INDENT(1)) != 0) {
        (void)fprintf(stderr, "bench_commands: %s was not written\n", self->json);
        exit(1);
    }
    json_decref(row);
}

static void
read_words(bench *self, int argc, char **argv)
{
    int i;

    for (i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--json") == 0) {
            self->json = argv[i + 1];
        } else if (strcmp(argv[i], "--bytes") == 0) {
            self->bytes = strtoull(argv[i + 1], NULL, 10);
        } else {
            break;
        }
    }
    if (i != argc || self->bytes == 0 || self->bytes % sizeof(float) != 0) {
        (void)fprintf(stderr, "usage: tutti run -n 2 -- bench_commands [--json FILE] [--bytes N]\n"
                              "N is a multiple of 4\n");
        exit(2);
    }
}

static void
make_tensors(bench *self)
{
    tutti_spec spec = {.dtype = TUTTI_DTYPE_FP32, .dim_count = 1};
    tutti_error err;
    int i;

    spec.dims[0] = (int64_t)(self->bytes / sizeof(float));
    for (i = 0; i < TENSORS; i++) {
        if (tutti_tensor_create(self->client, &spec, NULL, &self->tensors[i], &err) != TUTTI_OK) {
            end_with_error("create", &err);
        }
    }
}

int
main(int argc, char **argv)
{
    bench self = {.bytes = BYTES_DEFAULT};
    tutti_error err;
    int i;

    read_words(&self, argc, argv);
    if (tutti_connect(NULL, &self.client, &err) != TUTTI_OK) {
        end_with_error("connect", &err);
    }
    make_tensors(&self);
    (void)turn_calls(&self);
    (void)turn_commands(&self);
    for (i = 0; i < ROUNDS; i++) {
        self.rates[0][i] = turn_calls(&self);
        self.rates[1][i] = turn_commands(&self);
    }
    if (tutti_whoami(self.client)->rank == 0) {
        print_report(&self);
    }
    tutti_close(self.client);
    return 0;
}
