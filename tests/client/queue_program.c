/*
 * Goal: a completion queue does what its header says: ops of all kinds from many threads, taken by a
 * poller, by an event loop and by a callback; cancel, backpressure, shutdown, fork.
 * Method: two ranks against real agents, run by tests/system/test_queue.py:
 * `tutti run -n 2 -- queue_program`. Both ranks run the same tests in the same order.
 */
#include "support/testing.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tutti/tutti.h"

#define COUNT 500
#define THREADS 4
#define TAGS 1500 /* receives at once: many more than --commands-max */

typedef struct rig {
    tutti_client *client;
    tutti_queue *queue;
    uint32_t rank;
} rig;

static const tutti_spec pair = {TUTTI_DTYPE_FP32, 1, {2}};

static int
set_up(void **state)
{
    static rig self;
    tutti_error err;

    self = (rig){0};
    assert_ok(tutti_connect(NULL, &self.client, &err));
    self.rank = tutti_whoami(self.client)->rank;
    assert_int_equal(tutti_whoami(self.client)->world_size, 2);
    assert_ok(tutti_barrier(self.client, NULL, NULL, &err));
    assert_ok(tutti_queue_open(self.client, NULL, &self.queue, &err));
    *state = &self;
    return 0;
}

static int
tear_down(void **state)
{
    rig *self = *state;
    tutti_agent_stats stats;
    tutti_error err;

    assert_ok(tutti_queue_close(self->queue, &err));
    tutti_close(self->client); /* the tensors of its arena go with it */
    assert_ok(tutti_connect(NULL, &self->client, &err));
    assert_ok(tutti_agent_stat(self->client, &stats, &err));
    assert_int_equal(stats.tensor_count, 0);
    tutti_close(self->client);
    return 0;
}

static tutti_queue_completion
take_next(tutti_queue *queue)
{
    tutti_queue_completion done;
    tutti_error err;

    assert_ok(tutti_queue_next(queue, TUTTI_QUEUE_FOREVER, &done, &err));
    return done;
}

static tutti_queue_completion
take_good(tutti_queue *queue)
{
    const tutti_queue_completion done = take_next(queue);

    if (done.error.code != TUTTI_OK) {
        fail_msg("op %d: %s", (int)done.id, done.error.text);
    }
    return done;
}

static tutti_queue_data
data_of(const float *given, float *result)
{
    return (tutti_queue_data){
        .spec = pair, .data = given, .result = result, .result_bytes = 2 * sizeof(float)};
}

static tutti_op
op_with(uint32_t rank, uint32_t tag)
{
    tutti_op op;

    tutti_op_init(&op);
    op.peer = rank == 0 ? 1 : 0;
    op.tag = tag;
    return op;
}

/* ------------------------------------------------------------------------------ what it does */

static void
test_queue__runs_ops_on_handles(void **state)
{
    rig *self = *state;
    const float given[2] = {1.0F + (float)self->rank, 5.0F};
    float got[2] = {0};
    tutti_queue_completion done;
    tutti_handle handle;
    uint64_t id = 0;
    tutti_error err;
    tutti_op op;

    assert_ok(tutti_tensor_put(self->client, &pair, given, NULL, NULL, &handle, &err));
    tutti_op_init(&op);
    op.input = handle.text;
    op.output = handle.text;
    assert_ok(tutti_queue_submit(self->queue, TUTTI_OP_ALL_REDUCE, &op, self, &id, &err));
    assert_int_equal(tutti_queue_count(self->queue), 1);
    done = take_good(self->queue);
    assert_int_equal(done.id, id);
    assert_ptr_equal(done.user, self);
    assert_true(done.op.sequence > 0 && done.op.output.known);
    assert_int_equal(tutti_queue_count(self->queue), 0);
    assert_ok(tutti_tensor_read(self->client, handle.text, got, sizeof(got), NULL, &err));
    assert_true(got[0] == 3.0F && got[1] == 10.0F);
    assert_ok(tutti_tensor_delete(self->client, handle.text, &err));
}

static void
test_queue__runs_ops_on_memory_in_their_order(void **state)
{
    static float results[COUNT][2];
    rig *self = *state;
    uint64_t last = 0;
    tutti_error err;
    int i;

    for (i = 0; i < COUNT; i++) {
        const float given[2] = {(float)i, (float)self->rank};
        const tutti_queue_data data = data_of(given, results[i]);
        uint64_t id = 0;

        assert_ok(tutti_queue_submit_data(self->queue, TUTTI_OP_ALL_REDUCE, NULL, &data, results[i],
                                          &id, &err));
        assert_true(id > last);
        last = id;
    }
    for (i = 0; i < COUNT; i++) {
        const tutti_queue_completion done = take_good(self->queue);
        const float *result = done.user;

        assert_true(result[1] == 1.0F);
    }
    for (i = 0; i < COUNT; i++) {
        assert_true(results[i][0] == 2.0F * (float)i);
    }
}

static void
test_queue__has_many_receives_outstanding_beside_collectives(void **state)
{
    static float got[TAGS][2];
    rig *self = *state;
    const float one[2] = {1, 1};
    float sum[2] = {0};
    const tutti_queue_data all = data_of(one, sum);
    tutti_queue_completion done;
    tutti_error err;
    uint32_t i;

    for (i = 0; self->rank == 1 && i < TAGS; i++) {
        const tutti_queue_data data = data_of(NULL, got[i]);
        const tutti_op op = op_with(1, i);

        assert_ok(
            tutti_queue_submit_data(self->queue, TUTTI_OP_RECV, &op, &data, NULL, NULL, &err));
    }
    assert_ok(
        tutti_queue_submit_data(self->queue, TUTTI_OP_ALL_REDUCE, NULL, &all, sum, NULL, &err));
    done = take_good(self->queue);
    assert_ptr_equal(done.user, sum);
    assert_true(sum[0] == 2.0F);
    for (i = 0; self->rank == 0 && i < TAGS; i++) { /* the last one first */
        const float given[2] = {(float)(TAGS - 1 - i), 7};
        const tutti_queue_data data = data_of(given, NULL);
        const tutti_op op = op_with(0, TAGS - 1 - i);

        assert_ok(
            tutti_queue_submit_data(self->queue, TUTTI_OP_SEND, &op, &data, NULL, NULL, &err));
    }
    for (i = 0; i < TAGS; i++) {
        done = take_good(self->queue);
        assert_int_equal(done.op.source, 0);
    }
    for (i = 0; self->rank == 1 && i < TAGS; i++) {
        assert_true(got[i][0] == (float)i && got[i][1] == 7.0F);
    }
}

static void
test_queue__tells_what_went_wrong(void **state)
{
    rig *self = *state;
    const float given[2] = {1, 2};
    float got[4] = {0};
    tutti_queue_data data = data_of(given, got);
    tutti_queue_completion done;
    tutti_error err;
    tutti_op op;

    tutti_op_init(&op);
    op.input = "no.such.tensor";
    assert_ok(tutti_queue_submit(self->queue, TUTTI_OP_ALL_REDUCE, &op, NULL, NULL, &err));
    done = take_next(self->queue);
    assert_int_equal(done.error.code, TUTTI_NOT_FOUND);
    assert_string_equal(done.error.reason, "NO_TENSOR");
    data.result_bytes = sizeof(got);
    assert_ok(
        tutti_queue_submit_data(self->queue, TUTTI_OP_ALL_REDUCE, NULL, &data, NULL, NULL, &err));
    done = take_next(self->queue);
    assert_string_equal(done.error.reason, "OUT_SHAPE");
    assert_true(got[0] == 0);
    assert_fails(tutti_queue_submit(self->queue, (tutti_op_kind)99, NULL, NULL, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "NO_OP");
    assert_fails(tutti_queue_next(self->queue, 0, &done, &err), TUTTI_DEADLINE_EXCEEDED);
    assert_string_equal(err.reason, "NOTHING_DONE");
}

#define LARGE (1024 * 1024) /* floats: 4 MiB, more than a message has */

static void
submit_large(rig *self, tutti_op_kind kind, const tutti_op *op, const float *given, float *result,
             size_t count)
{
    const tutti_queue_data data = {.spec = {TUTTI_DTYPE_FP32, 1, {LARGE}},
                                   .data = given,
                                   .result = result,
                                   .result_bytes = count * sizeof(float)};
    tutti_error err;

    assert_ok(tutti_queue_submit_data(self->queue, kind, op, &data, NULL, NULL, &err));
}

/* Large and small ones of one group, and a message both ways: all are in order. */
static void
test_queue__takes_data_that_is_too_large_for_messages(void **state)
{
    static float given[LARGE];
    static float sum[LARGE];
    static float all[2 * LARGE];
    static float came[LARGE];
    rig *self = *state;
    const tutti_op op = op_with(self->rank, 6);
    float small[2] = {1, 2};
    const tutti_queue_data data = data_of(small, small);
    tutti_error err;
    int i;

    for (i = 0; i < LARGE; i++) {
        given[i] = (float)(i % 100 + (int)self->rank);
    }
    submit_large(self, TUTTI_OP_RECV, &op, NULL, came, LARGE);
    submit_large(self, TUTTI_OP_ALL_REDUCE, NULL, given, sum, LARGE);
    assert_ok(
        tutti_queue_submit_data(self->queue, TUTTI_OP_ALL_REDUCE, NULL, &data, NULL, NULL, &err));
    submit_large(self, TUTTI_OP_ALL_GATHER, NULL, given, all, (size_t)2 * LARGE);
    submit_large(self, TUTTI_OP_SEND, &op, given, NULL, 0);
    for (i = 0; i < 5; i++) {
        (void)take_good(self->queue);
    }
    assert_true(small[0] == 2.0F);
    for (i = 0; i < LARGE; i++) {
        assert_true(sum[i] == (float)(2 * (i % 100) + 1));
        assert_true(all[i] == (float)(i % 100) && all[LARGE + i] == (float)(i % 100 + 1));
        assert_true(came[i] == (float)(i % 100 + (self->rank == 0 ? 1 : 0)));
    }
}

/* What is uploading, waiting and running then: each is completed, and no tensor stays. */
static void
test_queue__completes_large_ones_when_it_is_shut_down(void **state)
{
    static float came[4][LARGE];
    rig *self = *state;
    tutti_queue_completion done;
    tutti_sync_result synced;
    tutti_error err;
    uint32_t i;

    for (i = 0; i < 4; i++) {
        const tutti_op op = op_with(self->rank, 600 + i);

        submit_large(self, TUTTI_OP_RECV, &op, NULL, came[i], LARGE);
    }
    tutti_queue_shutdown(self->queue);
    for (i = 0; i < 4; i++) {
        done = take_next(self->queue);
        assert_int_equal(done.error.code, TUTTI_CANCELLED);
    }
    assert_fails(tutti_queue_next(self->queue, TUTTI_QUEUE_FOREVER, &done, &err),
                 TUTTI_FAILED_PRECONDITION);
    (void)tutti_sync(self->client, NULL, 0, &synced, &err); /* what ran is over */
}

/* ------------------------------------------------------------------------------ who hears of it */

static void *
submit_many(void *arg)
{
    rig *self = arg;
    static const float given[2] = {3, 4};
    const tutti_queue_data data = data_of(given, NULL);
    const tutti_op op = op_with(self->rank, 5);
    tutti_error err;
    int i;

    for (i = 0; i < COUNT; i++) {
        assert_ok(
            tutti_queue_submit_data(self->queue, TUTTI_OP_SEND, &op, &data, NULL, NULL, &err));
    }
    return NULL;
}

static void
receive_all(tutti_queue *queue, uint32_t rank, float got[][2])
{
    const tutti_op op = op_with(rank, 5);
    tutti_error err;
    int i;

    for (i = 0; i < COUNT * THREADS; i++) {
        const tutti_queue_data data = data_of(NULL, got[i]);

        assert_ok(tutti_queue_submit_data(queue, TUTTI_OP_RECV, &op, &data, NULL, NULL, &err));
    }
}

static void
test_queue__takes_submissions_of_many_threads(void **state)
{
    static float got[COUNT * THREADS][2];
    rig *self = *state;
    pthread_t threads[THREADS];
    int i;

    receive_all(self->queue, self->rank, got);
    for (i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, submit_many, self), 0);
    }
    for (i = 0; i < 2 * COUNT * THREADS; i++) {
        (void)take_good(self->queue);
    }
    for (i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    for (i = 0; i < COUNT * THREADS; i++) {
        assert_true(got[i][0] == 3.0F && got[i][1] == 4.0F);
    }
}

static void *
take_some(void *arg)
{
    rig *self = arg;
    int i;

    for (i = 0; i < COUNT; i++) {
        (void)take_good(self->queue);
    }
    return NULL;
}

static void
test_queue__gives_completions_to_many_threads(void **state)
{
    static float got[COUNT * THREADS][2];
    rig *self = *state;
    pthread_t threads[2 * THREADS];
    int i;

    for (i = 0; i < 2 * THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_some, self), 0);
    }
    receive_all(self->queue, self->rank, got);
    for (i = 0; i < THREADS; i++) {
        (void)submit_many(self);
    }
    for (i = 0; i < 2 * THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    assert_int_equal(tutti_queue_count(self->queue), 0);
}

static void
test_queue__wakes_an_event_loop(void **state)
{
    rig *self = *state;
    const float given[2] = {1, 2};
    struct pollfd waits = {.events = POLLIN};
    float got[2] = {0};
    const tutti_queue_data data = data_of(given, got);
    tutti_queue_completion done;
    tutti_error err;
    int fd = -1;
    int i;

    assert_ok(tutti_queue_fd(self->queue, &waits.fd, &err));
    assert_ok(tutti_queue_fd(self->queue, &fd, &err));
    assert_int_equal(fd, waits.fd);
    assert_int_equal(poll(&waits, 1, 0), 0);
    for (i = 0; i < COUNT; i++) {
        assert_ok(tutti_queue_submit_data(self->queue, TUTTI_OP_ALL_REDUCE, NULL, &data, NULL, NULL,
                                          &err));
        assert_int_equal(poll(&waits, 1, 60000), 1);
        assert_ok(tutti_queue_next(self->queue, 0, &done, &err));
        assert_int_equal(done.error.code, TUTTI_OK);
        assert_int_equal(poll(&waits, 1, 0), 0);
    }
    tutti_queue_shutdown(self->queue);
    assert_int_equal(poll(&waits, 1, 60000), 1);
    assert_fails(tutti_queue_next(self->queue, 0, &done, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "QUEUE_SHUT");
}

/* A callback that goes on by itself, and the thread that waits for its end. */
typedef struct chain {
    tutti_queue *queue;
    tutti_queue_data data;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int left;
    int failed;
} chain;

static void
on_done(void *context, const tutti_queue_completion *done)
{
    chain *self = context;
    int left;

    (void)pthread_mutex_lock(&self->lock);
    left = --self->left;
    self->failed += done->error.code != TUTTI_OK ? 1 : 0;
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
    if (left > 0) {
        (void)tutti_queue_submit_data(self->queue, TUTTI_OP_ALL_REDUCE, NULL, &self->data, NULL,
                                      NULL, NULL);
    }
}

static void
test_queue__calls_back(void **state)
{
    rig *self = *state;
    const float given[2] = {1, 2};
    float got[2] = {0};
    chain chained = {.data = data_of(given, got),
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .changed = PTHREAD_COND_INITIALIZER,
                     .left = COUNT};
    tutti_queue_options options;
    tutti_queue_completion done;
    tutti_error err;
    int fd = -1;

    tutti_queue_options_init(&options);
    options.on_done = on_done;
    options.context = &chained;
    assert_ok(tutti_queue_open(self->client, &options, &chained.queue, &err));
    assert_fails(tutti_queue_next(chained.queue, 0, &done, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "QUEUE_CALLBACK");
    assert_fails(tutti_queue_fd(chained.queue, &fd, &err), TUTTI_FAILED_PRECONDITION);
    assert_ok(tutti_queue_submit_data(chained.queue, TUTTI_OP_ALL_REDUCE, NULL, &chained.data, NULL,
                                      NULL, &err));
    (void)pthread_mutex_lock(&chained.lock);
    while (chained.left > 0) {
        (void)pthread_cond_wait(&chained.changed, &chained.lock);
    }
    (void)pthread_mutex_unlock(&chained.lock);
    assert_int_equal(chained.failed, 0);
    assert_true(got[0] == 2.0F && got[1] == 4.0F);
    assert_ok(tutti_queue_close(chained.queue, &err));
}

/* ------------------------------------------------------------------------------ and blocking */

static void
exchange(rig *self, const tutti_spec *spec, const float *given, float *came)
{
    const tutti_op op = op_with(self->rank, 9);
    tutti_op_result result;
    tutti_error err;

    if (self->rank == 0) {
        assert_ok(tutti_send_data(self->client, &op, spec, given, &err));
    } else {
        assert_ok(tutti_recv_data(self->client, &op, spec, came, &result, &err));
        assert_int_equal(result.source, 0);
        assert_string_equal(result.output.text, "");
    }
}

static void
test_data__goes_from_rank_to_rank(void **state)
{
    static const tutti_spec large = {TUTTI_DTYPE_FP32, 1, {LARGE}};
    static float given[LARGE];
    static float came[LARGE];
    rig *self = *state;
    const tutti_op op = op_with(self->rank, 9);
    tutti_error err;
    int i;

    for (i = 0; i < LARGE; i++) {
        given[i] = (float)i;
    }
    exchange(self, &pair, given, came);
    exchange(self, &large, given, came);
    for (i = 0; self->rank == 1 && i < LARGE; i++) {
        assert_true(came[i] == (float)i);
    }
    if (self->rank == 0) { /* more than the other one has room for */
        assert_fails(tutti_send_data(self->client, &op, &pair, given, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "OUT_SHAPE");
    } else {
        const tutti_spec one = {TUTTI_DTYPE_FP32, 1, {1}};

        assert_fails(tutti_recv_data(self->client, &op, &one, came, NULL, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "OUT_SHAPE");
    }
}

/* Rank 0 gives 1 row to itself and 3 to rank 1, which gives 2 and 0: totals of 3 and 3, 4 and 2. */
static void
all_to_allv(rig *self, int64_t width)
{
    static float given[4 * LARGE];
    static float came[3 * LARGE];
    const int64_t rows[2][2] = {{1, 3}, {2, 0}};
    const int64_t outs[2][2] = {{1, 2}, {3, 0}};
    tutti_spec spec = {TUTTI_DTYPE_FP32, 2, {0, width}};
    tutti_error err;
    tutti_op op;
    int64_t i;

    tutti_op_init(&op);
    op.input_splits = rows[self->rank];
    op.output_splits = outs[self->rank];
    op.input_split_count = op.output_split_count = 2;
    spec.dims[0] = self->rank == 0 ? 4 : 2;
    for (i = 0; i < spec.dims[0] * width; i++) {
        given[i] = (float)(10 * (int)self->rank + (int)(i / width));
    }
    assert_ok(tutti_all_to_allv_data(self->client, &op, &spec, given, came,
                                     3 * (uint64_t)width * sizeof(float), &err));
    assert_true(came[0] == (self->rank == 0 ? 0.0F : 1.0F));
    assert_true(came[width] == (self->rank == 0 ? 10.0F : 2.0F));
    assert_true(came[3 * width - 1] == (self->rank == 0 ? 11.0F : 3.0F));
}

static void
test_data__goes_all_to_all_with_other_totals(void **state)
{
    all_to_allv(*state, 2);
    all_to_allv(*state, LARGE);
}

/* ------------------------------------------------------------------------------ giving up */

static void
test_queue__cancels_one_recv(void **state)
{
    rig *self = *state;
    float got[2] = {0};
    const float given[2] = {8, 9};
    const tutti_queue_data takes = data_of(NULL, got);
    const tutti_queue_data gives = data_of(given, NULL);
    const tutti_op op = op_with(self->rank, 77);
    tutti_queue_completion done;
    uint64_t id = 0;
    tutti_error err;

    assert_ok(tutti_queue_submit_data(self->queue, TUTTI_OP_RECV, &op, &takes, NULL, &id, &err));
    assert_ok(tutti_queue_cancel(self->queue, id, &err));
    done = take_next(self->queue);
    assert_int_equal(done.id, id);
    assert_int_equal(done.error.code, TUTTI_CANCELLED);
    assert_string_equal(done.error.reason, "CALLER_GONE");
    assert_fails(tutti_queue_cancel(self->queue, id, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NOTHING_SUBMITTED");
    assert_ok(tutti_barrier(self->client, NULL, NULL, &err)); /* both have given up */
    /* It takes no message: the next recv of the tag gets what is sent. */
    assert_ok(tutti_queue_submit_data(self->queue, TUTTI_OP_RECV, &op, &takes, NULL, NULL, &err));
    assert_ok(tutti_queue_submit_data(self->queue, TUTTI_OP_SEND, &op, &gives, NULL, NULL, &err));
    (void)take_good(self->queue);
    (void)take_good(self->queue);
    assert_true(got[0] == 8.0F && got[1] == 9.0F);
}

static void
test_queue__cancels_a_collective_on_all_ranks(void **state)
{
    rig *self = *state;
    const float given[2] = {1, 2};
    float got[2] = {0};
    const tutti_queue_data data = data_of(given, got);
    const tutti_queue_data takes = data_of(NULL, got);
    const tutti_queue_data gives = data_of(given, NULL);
    const tutti_op op = op_with(self->rank, 78);
    tutti_queue_completion done;
    uint64_t id = 0;
    tutti_error err;

    if (self->rank == 0) { /* calls when rank 1 has given up */
        assert_ok(
            tutti_queue_submit_data(self->queue, TUTTI_OP_RECV, &op, &takes, NULL, NULL, &err));
        (void)take_good(self->queue);
    }
    assert_ok(
        tutti_queue_submit_data(self->queue, TUTTI_OP_ALL_REDUCE, NULL, &data, NULL, &id, &err));
    if (self->rank == 1) {
        assert_ok(tutti_queue_cancel(self->queue, id, &err));
    }
    done = take_next(self->queue);
    assert_int_equal(done.error.code, TUTTI_CANCELLED);
    assert_string_equal(done.error.reason, "CALLER_GONE");
    assert_int_equal(done.error.rank, 1);
    if (self->rank == 1) {
        assert_ok(
            tutti_queue_submit_data(self->queue, TUTTI_OP_SEND, &op, &gives, NULL, NULL, &err));
        (void)take_good(self->queue);
    }
    assert_ok(
        tutti_queue_submit_data(self->queue, TUTTI_OP_ALL_REDUCE, NULL, &data, NULL, NULL, &err));
    (void)take_good(self->queue);
    assert_true(got[0] == 2.0F);
}

/* Nobody receives, so it ends by the cancel alone, which is sent while it uploads. */
static void
test_queue__cancels_a_send_that_uploads(void **state)
{
    static float given[LARGE];
    rig *self = *state;
    const float small[2] = {6, 7};
    float got[2] = {0};
    const tutti_op op = op_with(self->rank, 79);
    const tutti_queue_data gives = data_of(small, NULL);
    const tutti_queue_data takes = data_of(NULL, got);
    const tutti_queue_data large = {.spec = {TUTTI_DTYPE_FP32, 1, {LARGE}}, .data = given};
    tutti_queue_completion done;
    uint64_t id = 0;
    tutti_error err;

    assert_ok(tutti_queue_submit_data(self->queue, TUTTI_OP_SEND, &op, &large, NULL, &id, &err));
    assert_ok(tutti_queue_cancel(self->queue, id, &err));
    done = take_next(self->queue);
    assert_int_equal(done.id, id);
    assert_int_equal(done.error.code, TUTTI_CANCELLED);
    assert_string_equal(done.error.reason, "CALLER_GONE");
    assert_ok(tutti_barrier(self->client, NULL, NULL, &err)); /* both have given up */
    /* It leaves no message behind: the next recv of the tag gets what is sent next. */
    assert_ok(tutti_queue_submit_data(self->queue, TUTTI_OP_RECV, &op, &takes, NULL, NULL, &err));
    assert_ok(tutti_queue_submit_data(self->queue, TUTTI_OP_SEND, &op, &gives, NULL, NULL, &err));
    (void)take_good(self->queue);
    (void)take_good(self->queue);
    assert_true(got[0] == 6.0F && got[1] == 7.0F);
}

static void
test_queue__is_full_at_its_limit(void **state)
{
    rig *self = *state;
    float got[3][2];
    tutti_queue_options options;
    tutti_queue_completion done;
    tutti_queue *small;
    uint64_t ids[2];
    tutti_error err;
    int i;

    tutti_queue_options_init(&options);
    options.outstanding_max = 2;
    assert_ok(tutti_queue_open(self->client, &options, &small, &err));
    for (i = 0; i < 3; i++) {
        const tutti_queue_data data = data_of(NULL, got[i]);
        const tutti_op op = op_with(self->rank, 88);
        tutti_error full;
        const tutti_code code =
            tutti_queue_submit_data(small, TUTTI_OP_RECV, &op, &data, NULL, &ids[i % 2], &full);

        assert_int_equal(code, i < 2 ? TUTTI_OK : TUTTI_RESOURCE_EXHAUSTED);
        if (i == 2) {
            assert_string_equal(full.reason, "QUEUE_FULL");
        }
    }
    assert_ok(tutti_queue_cancel(small, ids[0], &err));
    done = take_next(small);
    assert_int_equal(done.id, ids[0]);
    assert_int_equal(tutti_queue_count(small), 1);
    assert_ok(tutti_queue_close(small, &err)); /* with one outstanding */
}

static void *
wait_for_shutdown(void *arg)
{
    rig *self = arg;
    tutti_queue_completion done;
    tutti_error err;
    int cancelled = 0;

    while (tutti_queue_next(self->queue, TUTTI_QUEUE_FOREVER, &done, &err) == TUTTI_OK) {
        assert_string_equal(done.error.reason, "QUEUE_SHUT");
        assert_int_equal(done.error.code, TUTTI_CANCELLED);
        cancelled++;
    }
    assert_string_equal(err.reason, "QUEUE_SHUT");
    assert_int_equal(cancelled, COUNT);
    return NULL;
}

static void
test_queue__completes_all_when_it_is_shut_down(void **state)
{
    static float got[COUNT][2];
    rig *self = *state;
    const tutti_op op = op_with(self->rank, 99);
    pthread_t thread;
    tutti_error err;
    int i;

    for (i = 0; i < COUNT; i++) {
        const tutti_queue_data data = data_of(NULL, got[i]);

        assert_ok(
            tutti_queue_submit_data(self->queue, TUTTI_OP_RECV, &op, &data, NULL, NULL, &err));
    }
    assert_int_equal(pthread_create(&thread, NULL, wait_for_shutdown, self), 0);
    tutti_queue_shutdown(self->queue);
    (void)pthread_join(thread, NULL);
    assert_fails(tutti_queue_submit(self->queue, TUTTI_OP_BARRIER, NULL, NULL, NULL, &err),
                 TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "QUEUE_SHUT");
}

static void
test_queue__refuses_a_forked_child(void **state)
{
    rig *self = *state;
    const pid_t child = fork();
    tutti_queue_completion done;
    tutti_error err;
    int status = 0;

    if (child == 0) {
        const bool refused =
            tutti_queue_submit(self->queue, TUTTI_OP_BARRIER, NULL, NULL, NULL, &err) ==
                TUTTI_FAILED_PRECONDITION &&
            strcmp(err.reason, "FORKED") == 0 &&
            tutti_queue_next(self->queue, 0, &done, &err) == TUTTI_FAILED_PRECONDITION &&
            tutti_queue_cancel(self->queue, 1, &err) == TUTTI_FAILED_PRECONDITION &&
            tutti_queue_close(self->queue, &err) == TUTTI_FAILED_PRECONDITION;

        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_ok(tutti_queue_submit(self->queue, TUTTI_OP_BARRIER, NULL, NULL, NULL, &err));
    (void)take_good(self->queue);
}

/* Alone, with an agent that it may kill: all that is outstanding is completed. */
static int
outlive_agent(void)
{
    static float came[LARGE];
    rig self = {0};
    const tutti_op op = op_with(0, 1);
    tutti_queue_completion done;
    tutti_error err;
    int i;

    assert_ok(tutti_connect(NULL, &self.client, &err));
    assert_ok(tutti_queue_open(self.client, NULL, &self.queue, &err));
    for (i = 0; i < COUNT; i++) {
        const tutti_queue_data data = data_of(NULL, came);

        assert_ok(tutti_queue_submit_data(self.queue, TUTTI_OP_RECV, &op, &data, NULL, NULL, &err));
    }
    submit_large(&self, TUTTI_OP_RECV, &op, NULL, came, LARGE);
    assert_int_equal(kill((pid_t)tutti_whoami(self.client)->pid, SIGKILL), 0);
    for (i = 0; i < COUNT + 1; i++) {
        done = take_next(self.queue);
        assert_int_equal(done.error.code, TUTTI_UNAVAILABLE);
    }
    assert_fails(tutti_queue_next(self.queue, TUTTI_QUEUE_FOREVER, &done, &err), TUTTI_UNAVAILABLE);
    assert_fails(tutti_queue_submit(self.queue, TUTTI_OP_BARRIER, NULL, NULL, NULL, &err),
                 TUTTI_UNAVAILABLE);
    assert_ok(tutti_queue_close(self.queue, &err));
    tutti_close(self.client);
    return 0;
}

/*
 * Alone, with an agent that it may stop: nothing is completed meanwhile, also where an op's time is
 * over, since the agent counts that; but shutting down and closing do not wait for the agent.
 */
static int
shut_down_beside_stopped_agent(void)
{
    static float came[COUNT][2];
    rig self = {0};
    tutti_op op = op_with(0, 1);
    tutti_queue_completion done;
    tutti_error err;
    pid_t agent;
    int i;

    assert_ok(tutti_connect(NULL, &self.client, &err));
    assert_ok(tutti_queue_open(self.client, NULL, &self.queue, &err));
    agent = (pid_t)tutti_whoami(self.client)->pid;
    assert_ok(tutti_queue_submit(self.queue, TUTTI_OP_BARRIER, NULL, NULL, NULL, &err));
    assert_int_equal(kill(agent, SIGSTOP), 0);
    op.timeout_ms = 1000; /* threads of the agent stop a moment after the signal */
    for (i = 0; i < COUNT; i++) {
        const tutti_queue_data data = data_of(NULL, came[i]);

        assert_ok(tutti_queue_submit_data(self.queue, TUTTI_OP_RECV, &op, &data, NULL, NULL, &err));
    }
    assert_fails(tutti_queue_next(self.queue, 100, &done, &err), TUTTI_DEADLINE_EXCEEDED);
    tutti_queue_shutdown(self.queue);
    for (i = 0; i < COUNT + 1; i++) {
        done = take_next(self.queue);
        assert_string_equal(done.error.reason, "QUEUE_SHUT");
    }
    assert_ok(tutti_queue_close(self.queue, &err));
    assert_int_equal(kill(agent, SIGCONT), 0);
    tutti_close(self.client);
    return 0;
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_queue__runs_ops_on_handles, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_queue__runs_ops_on_memory_in_their_order, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            test_queue__has_many_receives_outstanding_beside_collectives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_queue__tells_what_went_wrong, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_queue__takes_data_that_is_too_large_for_messages,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_queue__completes_large_ones_when_it_is_shut_down,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_queue__takes_submissions_of_many_threads, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_queue__gives_completions_to_many_threads, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_queue__wakes_an_event_loop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_queue__calls_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_data__goes_from_rank_to_rank, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_data__goes_all_to_all_with_other_totals, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_queue__cancels_one_recv, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_queue__cancels_a_collective_on_all_ranks, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_queue__cancels_a_send_that_uploads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_queue__is_full_at_its_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_queue__completes_all_when_it_is_shut_down, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_queue__refuses_a_forked_child, set_up, tear_down),
    };

    if (argc == 2 && strcmp(argv[1], "outlive") == 0) {
        return outlive_agent();
    }
    if (argc == 2 && strcmp(argv[1], "stopped") == 0) {
        return shut_down_beside_stopped_agent();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
