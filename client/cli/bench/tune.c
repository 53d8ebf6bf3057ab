/*
 * Measuring algorithms. For each op and size the agents are asked which algorithms are possible.
 * They are then told to take one of them, called in batches, and timed, one algorithm after the
 * other and again. The best batch of each counts: what else the machine does can only make a
 * batch slower.
 *
 * The time is a budget. Each op gets its share of what is left, and each size its share of that,
 * so a slow op cannot use up the time of those behind it.
 */
#include "client/cli/bench/tune.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/progress.h"

#define BATCHES 3
#define CALLS_MAX 200
#define STEP 4 /* from size to size */

static const tune_subject subjects[] = {
    {TUTTI_OP_ALL_REDUCE, tutti_all_reduce, "all_reduce", TUTTI_DTYPE_FP32, "float"},
    {TUTTI_OP_ALL_REDUCE, tutti_all_reduce, "all_reduce", TUTTI_DTYPE_INT32, "exact"},
    {TUTTI_OP_BROADCAST, tutti_broadcast, "broadcast", TUTTI_DTYPE_UINT8, "any"},
    {TUTTI_OP_ALL_GATHER, tutti_all_gather, "all_gather", TUTTI_DTYPE_UINT8, "any"},
    {TUTTI_OP_REDUCE_SCATTER, tutti_reduce_scatter, "reduce_scatter", TUTTI_DTYPE_FP32, "float"},
    {TUTTI_OP_REDUCE_SCATTER, tutti_reduce_scatter, "reduce_scatter", TUTTI_DTYPE_INT32, "exact"},
    {TUTTI_OP_ALL_TO_ALL, tutti_all_to_all, "all_to_all", TUTTI_DTYPE_UINT8, "any"},
    {TUTTI_OP_REDUCE_TO_ROOT, tutti_reduce_to_root, "reduce", TUTTI_DTYPE_FP32, "float"},
    {TUTTI_OP_REDUCE_TO_ROOT, tutti_reduce_to_root, "reduce", TUTTI_DTYPE_INT32, "exact"},
    {TUTTI_OP_GATHER, tutti_gather, "gather", TUTTI_DTYPE_UINT8, "any"},
    {TUTTI_OP_SCATTER, tutti_scatter, "scatter", TUTTI_DTYPE_UINT8, "any"},
};
#define SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))

static volatile sig_atomic_t interrupted;

static void
on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* ------------------------------------------------------------------------------ one batch */

typedef struct batch {
    const tune_subject *subject;
    const char *forced;
    uint32_t calls;
    tutti_handle *inputs; /* of each rank */
} batch;

/*
 * Tells an agent to take one algorithm whatever its own choice would be; NULL makes it choose
 * again.
 */
static tutti_code
tell_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const batch *self = arg;

    (void)index;
    return tutti_algorithms_set(client, NULL, self->forced, err);
}

/*
 * Ops whose result has another size than their input make a new tensor each time, which is
 * deleted at once. That is part of the time, for all algorithms alike.
 */
static tutti_code
call_once(const batch *self, uint32_t index, tutti_client *client, tutti_error *err)
{
    tutti_op_result result;
    tutti_op op;
    tutti_code code;

    tutti_op_init(&op);
    op.input = self->inputs[index].text;
    if (self->subject->kind == TUTTI_OP_ALL_REDUCE || self->subject->kind == TUTTI_OP_BROADCAST) {
        op.output = op.input;
    }
    if (index != 0 &&
        (self->subject->kind == TUTTI_OP_BROADCAST || self->subject->kind == TUTTI_OP_SCATTER)) {
        op.input = NULL;
    }
    code = self->subject->call(client, &op, &result, err);
    if (code == TUTTI_OK && op.output == NULL && result.output.text[0] != '\0') {
        code = tutti_tensor_delete(client, result.output.text, err);
    }
    return code;
}

static tutti_code
call_some(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const batch *self = arg;
    tutti_code code = TUTTI_OK;
    uint32_t i;

    for (i = 0; i < self->calls && code == TUTTI_OK; i++) {
        code = call_once(self, index, client, err);
    }
    return code;
}

static double
now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* The time is that of the slowest rank, as all threads are waited for. */
static tutti_code
time_batch(tune *self, batch *what, uint32_t calls, double *ret_us, tutti_error *err)
{
    const double began = now_us();
    tutti_code code;

    what->calls = calls;
    code = cli_all_ranks_run(&self->world, call_some, what, err);
    *ret_us = (now_us() - began) / calls;
    return code;
}

/* One batch more by the point's algorithm, after a call that warms up and says how many fit. */
static tutti_code
time_point(tune *self, batch *what, double budget_us, tune_point *point, tutti_error *err)
{
    char forced[96];
    double us = 0;
    uint32_t calls;
    tutti_code code;

    (void)snprintf(forced, sizeof(forced), "%s=%s", point->word, point->algorithm);
    what->forced = forced;
    code = cli_all_ranks_run(&self->world, tell_one, what, err);
    if (code == TUTTI_OK) {
        code = time_batch(self, what, 1, &us, err);
    }
    calls = us > 0 && budget_us > us ? (uint32_t)(budget_us / us) : 1;
    calls = calls > CALLS_MAX ? CALLS_MAX : calls;
    if (code == TUTTI_OK) {
        code = time_batch(self, what, calls, &us, err);
    }
    /* the best batch counts */
    point->us = point->calls == 0 || us < point->us ? us : point->us;
    point->calls += calls;
    return code;
}

/* ------------------------------------------------------------------------------ one size */

typedef struct sizing {
    batch *what;
    uint64_t bytes;
} sizing;

static tutti_code
create_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const sizing *self = arg;
    const uint64_t element = self->what->subject->dtype == TUTTI_DTYPE_UINT8 ? 1 : 4;
    const tutti_spec spec = {.dtype = self->what->subject->dtype,
                             .dim_count = 1,
                             .dims = {(int64_t)(self->bytes / element)}};

    return tutti_tensor_create(client, &spec, NULL, &self->what->inputs[index], err);
}

static tutti_code
delete_one(void *arg, uint32_t index, tutti_client *client, tutti_error *err)
{
    const sizing *self = arg;
    const char *handle = self->what->inputs[index].text;

    return handle[0] != '\0' ? tutti_tensor_delete(client, handle, err) : TUTTI_OK;
}

/* A multiple of what all ranks can share. */
static uint64_t
fit_bytes(const tune *self, uint64_t bytes)
{
    const uint64_t unit = 4 * (uint64_t)self->world.count;

    return bytes < unit ? unit : bytes / unit * unit;
}

/* Remembers that something was left out, so that the table can say so. */
static bool
is_tuning_run_over(tune *self)
{
    const bool over = interrupted || cli_now_ms() >= self->subject_ends_ms;

    self->cut = self->cut || over;
    return over;
}

/* What is left of this op's time, for one batch of one of the points that are left. */
static double
budget_us(const tune *self, size_t points)
{
    const uint64_t now = cli_now_ms();
    const double rest = self->subject_ends_ms > now ? (double)(self->subject_ends_ms - now) : 0;

    return rest * 1000 / (double)(points > 0 ? points * BATCHES : 1);
}

static void
say_where(const tune *self, const tune_point *point)
{
    const uint64_t all = self->ends_ms > self->began_ms ? self->ends_ms - self->began_ms : 1;

    cli_status_line(self->self, "%3.0f %%  %s of %" PRIu64 " bytes by %s",
                    100.0 * (double)(cli_now_ms() - self->began_ms) / (double)all, point->word,
                    point->bytes, point->algorithm);
}

/* The algorithms in turn, a batch each, and again: what else the machine does hits all of them. */
static tutti_code
take_turns(tune *self, batch *what, size_t count, size_t sizes_left, tutti_error *err)
{
    tune_point *points = &self->points[self->count];
    tutti_code code = TUTTI_OK;
    size_t i;
    int turn;

    for (turn = 0; turn < BATCHES; turn++) {
        for (i = 0; i < count && code == TUTTI_OK && !is_tuning_run_over(self); i++) {
            say_where(self, &points[i]);
            code = time_point(self, what, budget_us(self, count * sizes_left), &points[i], err);
        }
    }
    return code;
}

/* Only what every algorithm was measured for counts: else the one that was is the fastest. */
static bool
is_complete(const tune_point *points, size_t count)
{
    size_t i = 0;

    while (i < count && points[i].calls > 0) {
        i++;
    }
    return i == count;
}

/*
 * Only for exact elements may an algorithm change the order of adding; elsewhere only those that
 * keep it are compared. Points are kept only when all algorithms were measured.
 */
static tutti_code
measure_size(tune *self, batch *what, const tutti_explanation *why, uint64_t bytes,
             size_t sizes_left, tutti_error *err)
{
    const bool exact = strcmp(what->subject->class_name, "exact") == 0;
    sizing size = {what, bytes};
    tutti_error ignored;
    tutti_code code;
    size_t count = 0;
    size_t i;

    for (i = 0; i < why->alternative_count; i++) {
        const tutti_alternative *one = &why->alternatives[i];
        tune_point *point = &self->points[self->count + count];

        if (one->possible && (exact || one->keeps_order)) {
            *point = (tune_point){.word = what->subject->word,
                                  .class_name = what->subject->class_name,
                                  .bytes = bytes};
            (void)snprintf(point->algorithm, sizeof(point->algorithm), "%s", one->algorithm);
            count++;
        }
    }
    memset(what->inputs, 0, self->world.count * sizeof(what->inputs[0]));
    code = cli_all_ranks_run(&self->world, create_one, &size, err);
    if (code == TUTTI_OK) {
        code = take_turns(self, what, count, sizes_left, err);
    }
    self->count += code == TUTTI_OK && is_complete(&self->points[self->count], count) ? count : 0;
    (void)cli_all_ranks_run(&self->world, delete_one, &size, &ignored);
    return code;
}

/* ------------------------------------------------------------------------------ all of them */

/* Is the word in the list "a,b,c"? No list means all. */
static bool
is_wanted(const tune *self, const char *word)
{
    const size_t size = strlen(word);
    const char *at = self->ops;

    while (at != NULL && (strncmp(at, word, size) != 0 || (at[size] != ',' && at[size] != '\0'))) {
        at = strchr(at, ',');
        at = at == NULL ? NULL : at + 1;
    }
    return self->ops == NULL || at != NULL;
}

bool
tune_check_ops(const tune *self)
{
    const char *at = self->ops;

    while (at != NULL && *at != '\0') {
        const size_t size = strcspn(at, ",");
        size_t i = 0;

        while (i < SUBJECTS &&
               (strlen(subjects[i].word) != size || strncmp(subjects[i].word, at, size) != 0)) {
            i++;
        }
        if (i == SUBJECTS) {
            (void)cli_usage(self->self,
                            "--ops: \"%.*s\", need some of all_reduce, broadcast, all_gather, "
                            "reduce_scatter, all_to_all, reduce, gather, scatter",
                            (int)(size < 64 ? size : 64), at);
            return false;
        }
        at += size + (at[size] == ',' ? 1 : 0);
    }
    return true;
}

/* The size behind this one. False: it was the last. */
static bool
next_size(const tune *self, uint64_t *bytes)
{
    const bool more = *bytes <= self->end_bytes / STEP; /* and so nothing overflows */

    *bytes *= more ? STEP : 1;
    return more;
}

static size_t
sizes_of(const tune *self)
{
    uint64_t bytes = self->begin_bytes;
    size_t count = 1;

    while (next_size(self, &bytes)) {
        count++;
    }
    return count;
}

/* Remembers that sizes were left out for want of room, so that the table can say so. */
static bool
is_full(tune *self)
{
    const bool full = self->count + TUTTI_ALGORITHMS_MAX > TUNE_POINTS_MAX;

    self->full = self->full || full;
    return full;
}

/* Sizes that are rounded to the same one are measured once. */
static tutti_code
measure_subject(tune *self, batch *what, size_t subjects_left, tutti_error *err)
{
    tutti_explain_question question = {.op = what->subject->word, .dtype = what->subject->dtype};
    const uint64_t now = cli_now_ms();
    size_t sizes = sizes_of(self);
    uint64_t bytes = self->begin_bytes;
    uint64_t before = 0;
    bool more = true;
    tutti_code code = TUTTI_OK;

    self->subject_ends_ms = now + (self->ends_ms > now ? (self->ends_ms - now) / subjects_left : 0);
    while (more && code == TUTTI_OK && !is_tuning_run_over(self) && !is_full(self)) {
        tutti_explanation why;

        question.bytes = fit_bytes(self, bytes);
        code = tutti_explain(self->world.clients[0], &question, &why, err);
        self->host_count = code == TUTTI_OK ? why.host_count : self->host_count;
        if (code == TUTTI_OK && question.bytes != before) {
            code = measure_size(self, what, &why, question.bytes, sizes, err);
        }
        before = question.bytes;
        sizes -= sizes > 1 ? 1 : 0;
        more = next_size(self, &bytes);
    }
    return code;
}

/*
 * Makes some calls before anything is measured: ranks connect, and learn which of them share a
 * host and memory, beside their first ops.
 */
static tutti_code
settle_tuning_run(tune *self, batch *what, tutti_error *err)
{
    tutti_error ignored;
    sizing size = {what, fit_bytes(self, 8)};
    double us;
    tutti_code code;

    what->subject = &subjects[0];
    memset(what->inputs, 0, self->world.count * sizeof(what->inputs[0]));
    code = cli_all_ranks_run(&self->world, create_one, &size, err);
    if (code == TUTTI_OK) {
        code = time_batch(self, what, 5, &us, err);
    }
    (void)cli_all_ranks_run(&self->world, delete_one, &size, &ignored);
    return code;
}

/*
 * Whatever happens, the agents are told to choose for themselves again at the end. Ctrl-C ends
 * the measuring between two batches, as a rank alone in an op would wait.
 */
tutti_code
tune_measure(tune *self, tutti_error *err)
{
    struct sigaction before;
    const struct sigaction stop = {.sa_handler = on_interrupt};
    batch *what = calloc(1, sizeof(*what) + self->world.count * sizeof(what->inputs[0]));
    tutti_error ignored;
    tutti_code code;
    size_t left = 0;
    size_t i;

    if (what == NULL) {
        abort();
    }
    what->inputs = (tutti_handle *)(what + 1);
    for (i = 0; i < SUBJECTS; i++) {
        left += is_wanted(self, subjects[i].word) ? 1 : 0;
    }
    (void)sigaction(SIGINT, &stop, &before);
    code = settle_tuning_run(self, what, err);
    for (i = 0; i < SUBJECTS && code == TUTTI_OK; i++) {
        if (is_wanted(self, subjects[i].word)) {
            what->subject = &subjects[i];
            code = measure_subject(self, what, left--, err);
        }
    }
    what->forced = NULL; /* as they were told at their start */
    (void)cli_all_ranks_run(&self->world, tell_one, what, code == TUTTI_OK ? err : &ignored);
    (void)sigaction(SIGINT, &before, NULL);
    cli_status_clear(self->self);
    free(what);
    return code;
}
