/*
 * One worker of the demo: trains on its quarter of the digits, and averages gradients with the
 * other workers through Tutti. `tutti run -n 4 -- digits-train DATA` starts four of them.
 *
 * Rank 0 then trains once more, alone, on all four quarters, and compares. Exit code 1 when the
 * weights differ by more than 1e-5, or fewer than 95 % of the held-out digits are found.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tutti/tutti.h>

#include "digits.h"

#define WEIGHT_TOLERANCE 1e-5
#define ACCURACY_MIN 0.95

typedef struct worker {
    tutti_client *client;
    uint32_t rank;
    double seconds; /* inside all_reduce */
    unsigned calls;
} worker;

static double
now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Average numbers over all workers, in place. */
static bool
average(worker *self, float *numbers, int64_t count)
{
    const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {count}};
    const double began = now();
    tutti_error err;
    tutti_op op;

    tutti_op_init(&op);
    op.reduce = TUTTI_REDUCE_AVG;
    op.timeout_ms = 30000;
    op.step = (uint64_t)self->calls + 1; /* one that repeats a done step is refused, not summed */
    if (tutti_all_reduce_data(self->client, &op, &spec, numbers, numbers, &err) != TUTTI_OK) {
        (void)fprintf(stderr, "all_reduce: %s\n", err.text);
        return false;
    }
    self->seconds += now() - began;
    self->calls++;
    return true;
}

static bool
train_together(worker *self, const digits *shard, const digits *held_out, float *weights)
{
    float gradient[WEIGHTS + 1]; /* the loss travels behind it */
    size_t steps = digits_steps(shard);
    size_t epoch;
    size_t step;

    for (epoch = 1; epoch <= EPOCHS; epoch++) {
        float loss = 0;

        for (step = 0; step < steps; step++) {
            gradient[WEIGHTS] = digits_gradient(shard, step, weights, gradient);
            if (!average(self, gradient, WEIGHTS + 1)) {
                return false;
            }
            loss += gradient[WEIGHTS] / (float)steps;
            digits_update(weights, gradient);
        }
        if (self->rank == 0) {
            (void)printf("epoch %2zu   loss %.4f   accuracy %.2f %%\n", epoch, (double)loss,
                         100.0 * digits_accuracy(held_out, weights));
            (void)fflush(stdout);
        }
    }
    return true;
}

/* The same training without Tutti: all shards in one process, averaged in the same order. */
static void
train_alone(const digits *all, float *weights)
{
    float sum[WEIGHTS];
    float gradient[WEIGHTS];
    size_t epoch;
    size_t step;
    size_t s;
    int i;

    for (epoch = 1; epoch <= EPOCHS; epoch++) {
        const digits first = digits_shard(all, 0);

        for (step = 0; step < digits_steps(&first); step++) {
            for (s = 0; s < SHARDS; s++) {
                const digits shard = digits_shard(all, s);

                (void)digits_gradient(&shard, step, weights, gradient);
                for (i = 0; i < WEIGHTS; i++) {
                    sum[i] = s == 0 ? gradient[i] : sum[i] + gradient[i];
                }
            }
            for (i = 0; i < WEIGHTS; i++) {
                sum[i] /= SHARDS;
            }
            digits_update(weights, sum);
        }
    }
}

static int
compare(const worker *self, const digits *all, const float *weights)
{
    static float alone[WEIGHTS];
    const digits held_out = digits_held_out(all);
    const double accuracy = digits_accuracy(&held_out, weights);
    const double began = now();
    double most = 0;
    double seconds;
    int i;

    train_alone(all, alone);
    seconds = now() - began;
    for (i = 0; i < WEIGHTS; i++) {
        const double difference = fabs((double)weights[i] - (double)alone[i]);

        most = difference > most ? difference : most;
    }
    (void)printf("all-reduce  %u calls of %d floats, %.2f s inside, %.0f us each\n", self->calls,
                 WEIGHTS + 1, self->seconds, 1e6 * self->seconds / self->calls);
    (void)printf("one process %.2f s for the same training; accuracy %.2f %%\n", seconds,
                 100.0 * digits_accuracy(&held_out, alone));
    (void)printf("weights     differ by at most %.3g (limit %.0e)\n", most, WEIGHT_TOLERANCE);
    (void)printf("accuracy    %.2f %% of %zu held-out digits (limit %.0f %%)\n", 100.0 * accuracy,
                 held_out.count, 100.0 * ACCURACY_MIN);
    return most <= WEIGHT_TOLERANCE && accuracy >= ACCURACY_MIN ? 0 : 1;
}

int
main(int argc, char **argv)
{
    static float weights[WEIGHTS];
    worker self = {0};
    digits all;
    digits shard;
    digits held_out;
    tutti_error err;
    int status = 1;

    if (argc != 2 || !digits_load(argv[1], &all)) {
        (void)fprintf(stderr, "usage: digits-train DATA.csv.gz\n");
        return 2;
    }
    if (tutti_connect(NULL, &self.client, &err) != TUTTI_OK) {
        (void)fprintf(stderr, "digits-train: %s\n", err.text);
        digits_free(&all);
        return 1;
    }
    self.rank = tutti_whoami(self.client)->rank;
    if (tutti_whoami(self.client)->world_size != SHARDS) {
        (void)fprintf(stderr, "digits-train: a world of %u, need %d\n",
                      tutti_whoami(self.client)->world_size, SHARDS);
    } else {
        shard = digits_shard(&all, self.rank);
        held_out = digits_held_out(&all);
        if (train_together(&self, &shard, &held_out, weights)) {
            status = self.rank == 0 ? compare(&self, &all, weights) : 0;
        }
    }
    tutti_close(self.client);
    digits_free(&all);
    return status;
}
