/*
 * What does one small all-reduce cost, by each way of libtutti? The bytes are in the caller's memory.
 *
 *     tutti run -n 2 -- bench_queue
 *
 * Every rank is a process of its own beside its agent. The ways take turns, nine times, so what else
 * the machine does meets all. Rank 0 prints for each way the median of its turns' medians, the least
 * turn, and the ratio to a blocking call, turn by turn.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "bench_number.h"
#include "tutti/tutti.h"

#define ROUNDS 9
#define CALLS 1000 /* of a turn */

typedef enum way {
    WAY_BLOCKING,
    WAY_PIPELINE,
    WAY_POLLER,
    WAY_EVENTFD,
    WAY_CALLBACK
} way;

#define WAYS 5

static const char *const names[WAYS] = {"blocking call", "pipeline", "queue, poller",
                                        "queue, descriptor", "queue, callback"};

typedef struct bench {
    tutti_client *client;
    tutti_pipeline *pipeline;
    tutti_queue *queues[WAYS];
    float memory[2];
    double turns[WAYS][ROUNDS]; /* us */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
} bench;

static void
check_code(const char *what, tutti_code code, const tutti_error *err)
{
    if (code != TUTTI_OK) {
        (void)fprintf(stderr, "bench_queue: %s: %s\n", what, err->text);
        exit(1);
    }
}

static void
on_done(void *context, const tutti_queue_completion *done)
{
    bench *self = context;

    check_code("all_reduce", done->error.code, &done->error);
    (void)pthread_mutex_lock(&self->lock);
    self->done = true;
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

static void
wait_for_callback(bench *self)
{
    (void)pthread_mutex_lock(&self->lock);
    while (!self->done) {
        (void)pthread_cond_wait(&self->changed, &self->lock);
    }
    self->done = false;
    (void)pthread_mutex_unlock(&self->lock);
}

static void
take_one(tutti_queue *queue)
{
    tutti_queue_completion done;
    tutti_error err;

    check_code("next", tutti_queue_next(queue, TUTTI_QUEUE_FOREVER, &done, &err), &err);
    check_code("all_reduce", done.error.code, &done.error);
}

static void
call_once(bench *self, way which)
{
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {2}};
    const tutti_pipeline_data piped = {spec, self->memory, self->memory, sizeof(self->memory)};
    const tutti_queue_data data = {spec, self->memory, self->memory, sizeof(self->memory)};
    tutti_pipeline_result result;
    tutti_error err;

    if (which == WAY_BLOCKING) {
        check_code(
            "all_reduce",
            tutti_all_reduce_data(self->client, NULL, &spec, self->memory, self->memory, &err),
            &err);
    } else if (which == WAY_PIPELINE) {
        check_code("submit",
                   tutti_pipeline_submit_data(self->pipeline, TUTTI_OP_ALL_REDUCE, NULL, &piped,
                                              NULL, &err),
                   &err);
        check_code("next", tutti_pipeline_next(self->pipeline, &result, &err), &err);
        check_code("all_reduce", result.error.code, &result.error);
    } else {
        check_code("submit",
                   tutti_queue_submit_data(self->queues[which], TUTTI_OP_ALL_REDUCE, NULL, &data,
                                           NULL, NULL, &err),
                   &err);
        if (which == WAY_CALLBACK) {
            wait_for_callback(self);
        } else {
            take_one(self->queues[which]);
        }
    }
}

static double
run_turn(bench *self, way which)
{
    static double times[CALLS];
    tutti_error err;
    int i;

    check_code("barrier", tutti_barrier(self->client, NULL, NULL, &err), &err);
    for (i = 0; i < CALLS; i++) {
        const uint64_t before = tutti_clock_ns();

        call_once(self, which);
        times[i] = (double)(tutti_clock_ns() - before) / 1e3;
    }
    qsort(times, CALLS, sizeof(times[0]), bench_compare_numbers);
    return times[CALLS / 2];
}

static double
median_of_turns(const double *values)
{
    double sorted[ROUNDS];

    memcpy(sorted, values, sizeof(sorted));
    qsort(sorted, ROUNDS, sizeof(sorted[0]), bench_compare_numbers);
    return sorted[ROUNDS / 2];
}

static double
least_turn(const double *values)
{
    double least = values[0];
    int i;

    for (i = 1; i < ROUNDS; i++) {
        least = values[i] < least ? values[i] : least;
    }
    return least;
}

static void
print_report(const bench *self)
{
    double ratios[ROUNDS];
    int which;
    int i;

    (void)printf(
        "all_reduce of 8 bytes of memory, %u ranks, one at a time: p50 of %d calls, median "
        "and least of %d alternating turns, us\n",
        tutti_whoami(self->client)->world_size, CALLS, ROUNDS);
    for (which = 0; which < WAYS; which++) {
        for (i = 0; i < ROUNDS; i++) {
            ratios[i] = self->turns[which][i] / self->turns[WAY_BLOCKING][i];
        }
        (void)printf("  %-18s %8.1f %8.1f   ratio %.2f\n", names[which],
                     median_of_turns(self->turns[which]), least_turn(self->turns[which]),
                     median_of_turns(ratios));
    }
}

static void
open_all(bench *self)
{
    tutti_queue_options options;
    tutti_error err;
    int fd = -1;

    tutti_queue_options_init(&options);
    check_code("connect", tutti_connect(NULL, &self->client, &err), &err);
    check_code("open", tutti_pipeline_open(self->client, NULL, &self->pipeline, &err), &err);
    check_code("open", tutti_queue_open(self->client, NULL, &self->queues[WAY_POLLER], &err), &err);
    check_code("open", tutti_queue_open(self->client, NULL, &self->queues[WAY_EVENTFD], &err),
               &err);
    check_code("fd", tutti_queue_fd(self->queues[WAY_EVENTFD], &fd, &err), &err);
    options.on_done = on_done;
    options.context = self;
    check_code("open", tutti_queue_open(self->client, &options, &self->queues[WAY_CALLBACK], &err),
               &err);
}

int
main(void)
{
    static bench self = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    int which;
    int i;

    open_all(&self);
    for (i = -1; i < ROUNDS; i++) { /* the first one warms up */
        for (which = 0; which < WAYS; which++) {
            self.turns[which][i < 0 ? 0 : i] = run_turn(&self, (way)which);
        }
    }
    if (tutti_whoami(self.client)->rank == 0) {
        print_report(&self);
    }
    for (which = WAY_POLLER; which < WAYS; which++) {
        (void)tutti_queue_close(self.queues[which], NULL);
    }
    (void)tutti_pipeline_close(self.pipeline, NULL);
    tutti_close(self.client);
    return 0;
}
