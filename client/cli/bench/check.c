/*
 * Is the result of an op what it must be? One call on fresh data, then all results are looked at
 * here. What must come of it is worked out by pattern.c, which shares no code with the agents.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cli/bench/bench.h"
#include "client/cli/bench/pattern.h"
#include "client/cli/connect/connect.h"
#include "client/cli/util/output.h"

#define POISON 0xa5
#define LATE_MS 20 /* how much later than the others one rank comes to a barrier */

/* One rank after the other, so that one buffer is enough whatever their number. */
typedef struct scratch {
    bench_run *run;
    bench_pattern pattern;
    void *data; /* of the row's size */
} scratch;

static uint64_t
count_of(const scratch *self, uint64_t bytes)
{
    return bytes / tutti_dtype_bytes(self->pattern.dtype);
}

static tutti_code
write_all_bench_result(const scratch *self, uint32_t index, const char *handle, uint64_t bytes,
                       tutti_error *err)
{
    const tutti_spec spec = {self->pattern.dtype, 1, {(int64_t)count_of(self, bytes)}};

    return tutti_tensor_write(self->run->world.clients[index], handle, &spec, self->data, NULL,
                              err);
}

/*
 * Results are first filled with something that no result is, so that an op which writes nothing
 * is seen. A BOOL has only two values, so there 0 must do.
 */
static int
poison_of(const scratch *self)
{
    return self->pattern.dtype == TUTTI_DTYPE_BOOL ? 0 : POISON;
}

/* In memory of ours, which may be a tensor's or a copy of one. */
static tutti_code
prepare_here(const scratch *self, uint32_t index, tutti_error *err)
{
    const bench_rank *rank = &self->run->ranks[index];

    if (rank->in_data != NULL) {
        bench_pattern_fill(&self->pattern, index, count_of(self, rank->in_bytes), rank->in_data);
    }
    if (rank->out_data != NULL) {
        memset(rank->out_data, poison_of(self), rank->out_bytes);
    }
    return rank->out_view == NULL ? TUTTI_OK : tutti_view_push(rank->out_view, err);
}

/* What comes in, and where results go something that is none. */
static tutti_code
prepare_bench_result(const scratch *self, uint32_t index, tutti_error *err)
{
    bench_rank *rank = &self->run->ranks[index];
    tutti_code code = TUTTI_OK;

    if (self->run->plan->way != BENCH_HANDLE) {
        return prepare_here(self, index, err);
    }
    if (rank->input[0] != '\0') {
        bench_pattern_fill(&self->pattern, index, count_of(self, rank->in_bytes), self->data);
        code = write_all_bench_result(self, index, rank->input, rank->in_bytes, err);
    }
    if (code == TUTTI_OK && rank->output[0] != '\0') {
        memset(self->data, poison_of(self), rank->out_bytes);
        code = write_all_bench_result(self, index, rank->output, rank->out_bytes, err);
    }
    return code;
}

/*
 * Results in the agents are read with an ordinary call, also where they are mapped: what is
 * checked is the tensor, and not our view of it.
 */
static tutti_code
look_bench_result(const scratch *self, uint32_t index, uint64_t *wrong, tutti_error *err)
{
    const bench_rank *rank = &self->run->ranks[index];
    const bool shared = self->run->in_place && rank->in_bytes > 0;
    const void *data = shared ? rank->in_data : rank->out_data;
    tutti_code code = TUTTI_OK;

    if (rank->out_bytes == 0) {
        return TUTTI_OK;
    }
    if (self->run->plan->way != BENCH_INLINE) {
        code =
            tutti_tensor_read(self->run->world.clients[index], shared ? rank->input : rank->output,
                              self->data, rank->out_bytes, NULL, err);
        data = self->data;
    }
    if (code == TUTTI_OK) {
        *wrong += bench_pattern_wrong(&self->pattern, index, count_of(self, rank->out_bytes), data);
    }
    return code;
}

static tutti_code
call_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    (void)client;
    return bench_call(arg, index, err);
}

/*
 * The call runs on all ranks at once, but data is prepared and looked at for one rank after the
 * other, since they share one buffer.
 */
static tutti_code
check_data(scratch *self, uint64_t *ret_wrong, tutti_error *err)
{
    const uint32_t ranks = self->run->world.count;
    tutti_code code = TUTTI_OK;
    uint64_t wrong = 0;
    uint32_t i;

    for (i = 0; i < ranks && code == TUTTI_OK; i++) {
        code = prepare_bench_result(self, i, err);
    }
    if (code == TUTTI_OK) {
        code = cli_all_ranks_run(&self->run->world, call_one, self->run, err);
    }
    for (i = 0; i < ranks && code == TUTTI_OK; i++) {
        code = look_bench_result(self, i, &wrong, err);
    }
    if (code == TUTTI_OK) {
        *ret_wrong = wrong;
    }
    return code;
}

/* ------------------------------------------------------------------------------ barriers */

/* Rank 0 comes late; began_ns and ended_ns say when each came and left. */
static tutti_code
pass_barrier(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const struct timespec late = {.tv_nsec = LATE_MS * 1000000L};
    const bench_run *run = arg;
    bench_rank *rank = &run->ranks[index];
    struct timespec at;
    tutti_code code;

    (void)client;
    if (index == 0) {
        (void)nanosleep(&late, NULL);
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    rank->began_ns = (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
    code = bench_call(run, index, err);
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    rank->ended_ns = (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
    return code;
}

/* Ranks that left before the last one came. */
static tutti_code
check_barrier(bench_run *run, uint64_t *ret_wrong, tutti_error *err)
{
    const tutti_code code = cli_all_ranks_run(&run->world, pass_barrier, run, err);
    uint64_t last = 0;
    uint64_t wrong = 0;
    uint32_t i;

    for (i = 0; i < run->world.count; i++) {
        last = run->ranks[i].began_ns > last ? run->ranks[i].began_ns : last;
    }
    for (i = 0; i < run->world.count; i++) {
        wrong += run->ranks[i].ended_ns < last ? 1 : 0;
    }
    if (code == TUTTI_OK) {
        *ret_wrong = wrong;
    }
    return code;
}

tutti_code
bench_check(bench_run *run, uint64_t *ret_wrong, tutti_error *err)
{
    const bench_plan *plan = run->plan;
    scratch self = {.run = run,
                    .pattern = {.kind = plan->op->kind,
                                .dtype = plan->dtype,
                                .reduce = plan->reduce,
                                .ranks = run->world.count,
                                .root = (uint32_t)plan->root,
                                .part = run->part,
                                .salt = ++run->salt}};
    tutti_code code;

    if (plan->op->kind == TUTTI_OP_BARRIER) {
        return check_barrier(run, ret_wrong, err);
    }
    self.data = malloc(run->bytes);
    if (self.data == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED,
                        "no memory for %" PRIu64 " bytes of --check: give a smaller --end",
                        run->bytes);
    }
    code = check_data(&self, ret_wrong, err);
    free(self.data);
    return code;
}
