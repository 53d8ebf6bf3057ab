#include "digits.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 10000

static bool
parse_row(char *line, digit *ret)
{
    char *at = line;
    int i;

    for (i = 0; i <= PIXELS; i++) {
        char *end = NULL;
        const long number = strtol(at, &end, 10);

        if (end == at || number < 0 || number > 16 || (i < PIXELS && *end != ',')) {
            return false;
        }
        if (i < PIXELS) {
            ret->pixels[i] = (float)number / 16.0f;
        } else {
            ret->label = (int)number;
        }
        at = end + 1;
    }
    return ret->label < CLASSES;
}

/* Fisher and Yates, with a generator of our own so that every language shuffles alike. */
static void
shuffle(digits *all)
{
    uint32_t state = 1;
    size_t i;

    for (i = all->count - 1; i > 0; i--) {
        digit spare;
        size_t k;

        state = state * 1664525u + 1013904223u;
        k = (state >> 8) % (i + 1);
        spare = all->rows[i];
        all->rows[i] = all->rows[k];
        all->rows[k] = spare;
    }
}

bool
digits_load(const char *path, digits *ret_all)
{
    char command[1024];
    char line[1024];
    digits all = {.rows = malloc(ROWS_MAX * sizeof(digit))};
    FILE *file;
    int status;

    (void)snprintf(command, sizeof(command), "gzip -dc -- '%s'", path);
    file = strchr(path, '\'') == NULL ? popen(command, "r") : NULL;
    if (file == NULL || all.rows == NULL) {
        (void)fprintf(stderr, "could not read %s\n", path);
        free(all.rows);
        return false;
    }
    while (all.count < ROWS_MAX && fgets(line, sizeof(line), file) != NULL) {
        if (!parse_row(line, &all.rows[all.count])) {
            (void)fprintf(stderr, "%s: row %zu is no digit\n", path, all.count + 1);
            break;
        }
        all.count++;
    }
    status = pclose(file);
    if (status != 0 || all.count < 10 * SHARDS) {
        (void)fprintf(stderr, "%s: %zu rows could be read\n", path, all.count);
        free(all.rows);
        return false;
    }
    shuffle(&all);
    *ret_all = all;
    return true;
}

void
digits_free(digits *all)
{
    free(all->rows);
    *all = (digits){0};
}

digits
digits_held_out(const digits *all)
{
    return (digits){all->rows, all->count / 5};
}

digits
digits_shard(const digits *all, size_t shard)
{
    const size_t held_out = all->count / 5;
    const size_t length = (all->count - held_out) / SHARDS;

    return (digits){all->rows + held_out + shard * length, length};
}

size_t
digits_steps(const digits *shard)
{
    return shard->count / BATCH;
}

static void
score(const digit *row, const float *weights, float *ret_scores)
{
    int c;
    int i;

    for (c = 0; c < CLASSES; c++) {
        const float *own = weights + c * (PIXELS + 1);
        float sum = own[PIXELS];

        for (i = 0; i < PIXELS; i++) {
            sum += own[i] * row->pixels[i];
        }
        ret_scores[c] = sum;
    }
}

/* Scores become probabilities; returns the loss of the right one. */
static float
softmax(float *scores, int label)
{
    float most = scores[0];
    float sum = 0;
    int c;

    for (c = 1; c < CLASSES; c++) {
        most = scores[c] > most ? scores[c] : most;
    }
    for (c = 0; c < CLASSES; c++) {
        scores[c] = expf(scores[c] - most);
        sum += scores[c];
    }
    for (c = 0; c < CLASSES; c++) {
        scores[c] /= sum;
    }
    return -logf(scores[label] + 1e-12f);
}

float
digits_gradient(const digits *shard, size_t step, const float *weights, float *ret_gradient)
{
    float scores[CLASSES];
    float loss = 0;
    size_t r;
    int c;
    int i;

    memset(ret_gradient, 0, WEIGHTS * sizeof(*ret_gradient));
    for (r = step * BATCH; r < (step + 1) * BATCH; r++) {
        const digit *row = &shard->rows[r];

        score(row, weights, scores);
        loss += softmax(scores, row->label);
        scores[row->label] -= 1.0f;
        for (c = 0; c < CLASSES; c++) {
            float *own = ret_gradient + c * (PIXELS + 1);

            for (i = 0; i < PIXELS; i++) {
                own[i] += scores[c] * row->pixels[i] / BATCH;
            }
            own[PIXELS] += scores[c] / BATCH;
        }
    }
    return loss / BATCH;
}

void
digits_update(float *weights, const float *gradient)
{
    int i;

    for (i = 0; i < WEIGHTS; i++) {
        weights[i] -= RATE * gradient[i];
    }
}

double
digits_accuracy(const digits *rows, const float *weights)
{
    size_t right = 0;
    size_t r;
    int c;

    for (r = 0; r < rows->count; r++) {
        float scores[CLASSES];
        int best = 0;

        score(&rows->rows[r], weights, scores);
        for (c = 1; c < CLASSES; c++) {
            best = scores[c] > scores[best] ? c : best;
        }
        right += best == rows->rows[r].label ? 1 : 0;
    }
    return (double)right / (double)rows->count;
}
