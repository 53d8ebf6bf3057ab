/* The digits and a softmax classifier for them: what the workers and the single process share. */
#ifndef TUTTI_EXAMPLE_DIGITS_H
#define TUTTI_EXAMPLE_DIGITS_H

#include <stdbool.h>
#include <stddef.h>

#define PIXELS 64
#define CLASSES 10
#define WEIGHTS ((PIXELS + 1) * CLASSES) /* with a bias for each class */
#define SHARDS 4
#define BATCH 32 /* rows of one shard in one step */
#define EPOCHS 40
#define RATE 0.5f

typedef struct digit {
    float pixels[PIXELS]; /* 0 to 1 */
    int label;
} digit;

typedef struct digits {
    digit *rows;
    size_t count;
} digits;

/* Reads a gzipped CSV and shuffles it, always alike. False: the reason is on stderr. */
bool digits_load(const char *path, digits *ret_all);
void digits_free(digits *all);

/* The held-out fifth, and one of SHARDS equal parts of the rest. They borrow from `all`. */
digits digits_held_out(const digits *all);
digits digits_shard(const digits *all, size_t shard);

/* Steps that one pass over a shard takes; all shards are equally long. */
size_t digits_steps(const digits *shard);

/* Mean gradient and mean loss over one step's rows of a shard. */
float digits_gradient(const digits *shard, size_t step, const float *weights, float *ret_gradient);

void digits_update(float *weights, const float *gradient);

/* Share of rows whose digit is found. */
double digits_accuracy(const digits *rows, const float *weights);

#endif
