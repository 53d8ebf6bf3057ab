/*
 * Goal: an op on a device waits for its caller's event on the device, the caller's stream waits for
 * the op's, and no failure leaves that stream waiting. Method: engines of one process on stand-ins
 * for CUDA and NCCL; the caller's stream is held back by a function that waits.
 */
#include "support/testing.h"

#include <semaphore.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "cuda_standin.h"
#include "nccl_standin.h"
#include "support/world.h"

#define RANKS 2
#define LONG_MS 60000
#define SHORT_MS 300

/* What a caller has: a stream, memory, and the two events. */
typedef struct caller {
    cudaStream_t stream;
    cudaEvent_t after;
    cudaEvent_t done;
    tutti_coll_events events;
    atomic_bool left;
    atomic_uint launched; /* how often it was told */
    sem_t gate;
    int32_t number; /* what the op works on */
    int32_t taken;  /* what the stream saw behind the op */
    run *run;
} caller;

typedef struct rig {
    world w;
    caller callers[RANKS];
} rig;

static rig self;
static int32_t numbers[RANKS];

static void
on_gate(void *arg)
{
    while (sem_wait(arg) != 0) {
    }
}

static void
on_write(void *arg)
{
    ((caller *)arg)->number = 5;
}

static void
on_take(void *arg)
{
    ((caller *)arg)->taken = ((caller *)arg)->number;
}

static void
on_launched(tutti_coll_op *op)
{
    run *of = tutti_container_of(op, run, op);
    uint32_t i;

    assert_false(run_is_done(of)); /* before on_done */
    for (i = 0; i < RANKS; i++) {
        if (self.callers[i].run == of) {
            (void)atomic_fetch_add(&self.callers[i].launched, 1);
        }
    }
}

static void check_group_works(void);

static int
set_up_callers(void **state)
{
    uint32_t i;

    (void)state;
    memset(&self, 0, sizeof(self));
    world_nccl_deserted_ns = 20 * TUTTI_NS_PER_MS;
    world_open(&self.w, world_transport_fake, RANKS);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    for (i = 0; i < RANKS; i++) {
        caller *one = &self.callers[i];

        assert_int_equal(cudaStreamCreateWithFlags(&one->stream, cudaStreamNonBlocking), 0);
        assert_int_equal(cudaEventCreateWithFlags(&one->after, cudaEventDisableTiming), 0);
        assert_int_equal(cudaEventCreateWithFlags(&one->done, cudaEventDisableTiming), 0);
        one->events = (tutti_coll_events){one->after, one->done, &one->left};
        assert_int_equal(sem_init(&one->gate, 0, 0), 0);
    }
    return 0;
}

/* With a communicator that has connected. */
static int
set_up_connected(void **state)
{
    (void)set_up_callers(state);
    check_group_works();
    return 0;
}

/* The device may have an aborted op for a moment yet; then nothing is left behind. */
static int
tear_down_callers(void **state)
{
    int waited = 0;
    uint32_t i;

    (void)state;
    tutti_standin_nccl_set("");
    for (i = 0; i < RANKS; i++) {
        (void)sem_post(&self.callers[i].gate); /* where a test has failed */
    }
    world_close(&self.w);
    for (i = 0; i < RANKS; i++) {
        caller *one = &self.callers[i];

        (void)cudaStreamDestroy(one->stream);
        (void)cudaEventDestroy(one->after);
        (void)cudaEventDestroy(one->done);
        (void)sem_destroy(&one->gate);
    }
    while (tutti_standin_nccl_left() > 0 && waited++ < 60000) {
        (void)usleep(1000);
    }
    assert_int_equal(tutti_standin_nccl_left(), 0);
    assert_int_equal(tutti_standin_cuda_left(), 0);
    return 0;
}

/* The stream stands still until the gate is opened; then it writes and records. */
static void
write_behind_gate(caller *one)
{
    assert_int_equal(cudaLaunchHostFunc(one->stream, on_gate, &one->gate), 0);
    assert_int_equal(cudaLaunchHostFunc(one->stream, on_write, one), 0);
    assert_int_equal(cudaEventRecord(one->after, one->stream), 0);
}

static void
call_op(uint32_t rank, uint64_t timeout_ms)
{
    caller *one = &self.callers[rank];

    one->run = run_new(TUTTI_COLL_ALL_REDUCE);
    run_give(one->run, TUTTI_DTYPE_INT32, 1, &one->number, &one->number);
    one->run->op.events = &one->events;
    one->run->op.on_launched = on_launched;
    run_post(one->run, self.w.groups[rank], timeout_ms);
}

static void
call_all(uint64_t timeout_ms)
{
    uint32_t i;

    for (i = 0; i < RANKS; i++) {
        call_op(i, timeout_ms);
    }
}

static void
wait_launched(uint32_t rank)
{
    int waited = 0;

    while (atomic_load(&self.callers[rank].launched) == 0 && waited++ < 60000) {
        (void)usleep(1000);
    }
    assert_int_equal(atomic_load(&self.callers[rank].launched), 1);
}

static void
take_behind(caller *one)
{
    assert_int_equal(cudaStreamWaitEvent(one->stream, one->done, 0), 0);
    assert_int_equal(cudaLaunchHostFunc(one->stream, on_take, one), 0);
}

/* Without events. */
static void
call_plain(run **runs, uint64_t timeout_ms)
{
    uint32_t i;

    for (i = 0; i < RANKS; i++) {
        numbers[i] = 1;
        runs[i] = run_new(TUTTI_COLL_ALL_REDUCE);
        run_give(runs[i], TUTTI_DTYPE_INT32, 1, &numbers[i], &numbers[i]);
        run_post(runs[i], self.w.groups[i], timeout_ms);
    }
}

static void
check_group_works(void)
{
    run *runs[RANKS];
    uint32_t i;

    call_plain(runs, LONG_MS);
    for (i = 0; i < RANKS; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_OK);
        assert_int_equal(numbers[i], RANKS);
        run_free(runs[i]);
    }
}

static void
test_op__is_launched_behind_an_event_that_has_not_come(void **state)
{
    uint32_t i;

    (void)state;
    for (i = 0; i < RANKS; i++) {
        write_behind_gate(&self.callers[i]);
    }
    call_all(LONG_MS);
    for (i = 0; i < RANKS; i++) {
        wait_launched(i); /* though the device has not begun */
        take_behind(&self.callers[i]);
        assert_false(run_is_done(self.callers[i].run));
        assert_int_equal(cudaEventQuery(self.callers[i].done), cudaErrorNotReady);
    }
    for (i = 0; i < RANKS; i++) {
        (void)sem_post(&self.callers[i].gate);
    }
    for (i = 0; i < RANKS; i++) {
        assert_int_equal(run_wait(self.callers[i].run), TUTTI_OK);
        assert_int_equal(cudaStreamSynchronize(self.callers[i].stream), 0);
        assert_int_equal(self.callers[i].taken, 10);
        run_free(self.callers[i].run);
    }
}

static void
test_op__that_is_refused_is_not_told_as_launched(void **state)
{
    run *other = run_new(TUTTI_COLL_ALL_REDUCE);
    static int32_t two[2];

    (void)state;
    call_op(0, LONG_MS);
    run_give(other, TUTTI_DTYPE_INT32, 2, two, two);
    run_post(other, self.w.groups[1], LONG_MS);
    assert_int_equal(run_wait(self.callers[0].run), TUTTI_INVALID_ARGUMENT);
    assert_int_equal(run_wait(other), TUTTI_INVALID_ARGUMENT);
    assert_int_equal(atomic_load(&self.callers[0].launched), 0);
    run_free(self.callers[0].run);
    run_free(other);
}

static void
test_failure__behind_the_launch_lets_the_callers_stream_go_on(void **state)
{
    uint32_t i;

    (void)state;
    tutti_standin_nccl_set("hang:1");
    call_all(SHORT_MS);
    for (i = 0; i < RANKS; i++) {
        wait_launched(i);
        take_behind(&self.callers[i]);
    }
    for (i = 0; i < RANKS; i++) {
        assert_int_equal(run_wait(self.callers[i].run), TUTTI_DEADLINE_EXCEEDED);
        assert_int_equal(cudaStreamSynchronize(self.callers[i].stream), 0);
        run_free(self.callers[i].run);
    }
    tutti_standin_nccl_set("");
    check_group_works();
}

/* On a communicator that has to connect first: nothing is in the stream before the event. */
static void
test_op__that_is_the_first_is_launched_when_the_event_has_come(void **state)
{
    uint32_t i;

    (void)state;
    for (i = 0; i < RANKS; i++) {
        write_behind_gate(&self.callers[i]);
    }
    call_all(LONG_MS);
    (void)usleep(20000);
    for (i = 0; i < RANKS; i++) {
        assert_int_equal(atomic_load(&self.callers[i].launched), 0);
        (void)sem_post(&self.callers[i].gate);
    }
    for (i = 0; i < RANKS; i++) {
        assert_int_equal(run_wait(self.callers[i].run), TUTTI_OK);
        assert_int_equal(self.callers[i].number, 10);
        run_free(self.callers[i].run);
    }
}

/* ------------------------------------------------------------------------------ a stream that stands */

static void
hold_device(void)
{
    uint32_t i;

    for (i = 0; i < RANKS; i++) {
        write_behind_gate(&self.callers[i]);
    }
    call_all(LONG_MS);
    for (i = 0; i < RANKS; i++) {
        wait_launched(i);
    }
}

/* Deadlines are seen while the device stands; then it goes on, and whatever failed is released. */
static void
check_engines_live_and_go_on(void)
{
    run *late[RANKS];
    int waited = 0;
    uint32_t i;

    call_plain(late, SHORT_MS);
    while (!run_is_done(late[0]) && waited++ < 10000) {
        (void)usleep(1000);
    }
    assert_true(run_is_done(late[0]));
    for (i = 0; i < RANKS; i++) {
        (void)sem_post(&self.callers[i].gate);
    }
    for (i = 0; i < RANKS; i++) {
        assert_int_not_equal(run_wait(late[i]), TUTTI_OK);
        run_free(late[i]);
        (void)run_wait(self.callers[i].run);
        run_free(self.callers[i].run);
    }
}

/* A stream takes about a thousand entries; the call after that waits. */
static void
test_stream__that_stands_takes_more_ops_than_fit_into_it(void **state)
{
    enum {
        OPS = 600
    };
    static run *runs[OPS][RANKS];
    size_t i;

    (void)state;
    hold_device();
    for (i = 0; i < OPS; i++) {
        call_plain(runs[i], LONG_MS);
    }
    check_engines_live_and_go_on();
    for (i = 0; i < OPS; i++) {
        (void)run_wait(runs[i][0]);
        (void)run_wait(runs[i][1]);
        run_free(runs[i][0]);
        run_free(runs[i][1]);
    }
    check_group_works();
}

/* The first launch of a kernel waits for all that the device holds. */
static void
test_stream__that_stands_does_not_keep_a_kernel_from_being_launched(void **state)
{
    static int32_t bits[RANKS];
    run *runs[RANKS];
    uint32_t i;

    (void)state;
    hold_device();
    for (i = 0; i < RANKS; i++) {
        runs[i] = run_new(TUTTI_COLL_ALL_REDUCE);
        run_give(runs[i], TUTTI_DTYPE_INT32, 1, &bits[i], &bits[i]);
        runs[i]->op.args.reduce = TUTTI_REDUCE_BAND;
        run_post(runs[i], self.w.groups[i], LONG_MS);
    }
    check_engines_live_and_go_on();
    for (i = 0; i < RANKS; i++) {
        (void)run_wait(runs[i]);
        run_free(runs[i]);
    }
    check_group_works();
}

/* Pinned memory beyond what is kept for the next message: cudaFreeHost waits for the device. */
static void
test_stream__that_stands_does_not_stop_large_messages(void **state)
{
    enum {
        COUNT = 20 << 20 /* 80 MiB */
    };
    int32_t *from = calloc(COUNT, sizeof(*from));
    int32_t *to = calloc(COUNT, sizeof(*to));
    run *send = run_new(TUTTI_COLL_SEND);
    run *recv = run_new(TUTTI_COLL_RECV);

    (void)state;
    from[COUNT - 1] = 41;
    hold_device();
    run_give(send, TUTTI_DTYPE_INT32, COUNT, from, NULL);
    send->op.args.peer = 1;
    run_give(recv, TUTTI_DTYPE_INT32, COUNT, NULL, to);
    recv->op.args.peer = 0;
    run_post(recv, self.w.groups[1], LONG_MS);
    run_post(send, self.w.groups[0], LONG_MS);
    assert_int_equal(run_wait(send), TUTTI_OK);
    assert_int_equal(run_wait(recv), TUTTI_OK);
    assert_int_equal(to[COUNT - 1], 41);
    run_free(send);
    run_free(recv);
    check_engines_live_and_go_on();
    check_group_works();
    free(from);
    free(to);
}

/* ------------------------------------------------------------------------------ callers that go */

static void
test_caller__that_left_and_has_recorded_is_no_failure(void **state)
{
    uint32_t i;

    (void)state;
    for (i = 0; i < RANKS; i++) {
        caller *one = &self.callers[i];

        (void)sem_post(&one->gate);
        write_behind_gate(one);
        assert_int_equal(cudaStreamSynchronize(one->stream), 0);
        atomic_store(&one->left, true);
    }
    call_all(LONG_MS);
    for (i = 0; i < RANKS; i++) {
        assert_int_equal(run_wait(self.callers[i].run), TUTTI_OK);
        assert_int_equal(self.callers[i].number, 10);
        run_free(self.callers[i].run);
    }
}

static void
check_caller_gone(uint32_t rank)
{
    run *of = self.callers[rank].run;

    assert_int_equal(run_wait(of), TUTTI_CANCELLED);
    assert_string_equal(of->err.reason, "CALLER_GONE");
    assert_text_has(of->err.text, "the client of rank 0 went away");
    run_free(of);
}

static void
test_caller__that_left_before_the_launch_fails_the_op_and_the_device_waits_for_nothing(void **state)
{
    (void)state;
    write_behind_gate(&self.callers[0]);
    atomic_store(&self.callers[0].left, true);
    call_all(LONG_MS);
    check_caller_gone(0);
    check_caller_gone(1);
    assert_int_equal(atomic_load(&self.callers[0].launched), 0);
    check_group_works();
    (void)sem_post(&self.callers[0].gate);
}

static void
test_caller__that_left_before_the_first_op_fails_the_op_and_the_device_waits_for_nothing(
    void **state)
{
    (void)state;
    write_behind_gate(&self.callers[0]);
    call_all(LONG_MS);
    (void)usleep(20000);
    atomic_store(&self.callers[0].left, true);
    check_caller_gone(0);
    check_caller_gone(1);
    check_group_works();
    (void)sem_post(&self.callers[0].gate);
}

/* If the device never passes the event, ops are refused, instead of one deadline after the other;
 * if it passes it late, all is as before. */
static void
test_caller__that_left_behind_the_launch_fails_the_op_and_those_that_the_device_cannot_run(
    void **state)
{
    enum {
        TRIES = 50
    };
    run *runs[TRIES][RANKS];
    size_t count = 0;
    size_t i;

    (void)state;
    write_behind_gate(&self.callers[0]);
    call_all(LONG_MS);
    wait_launched(0);
    wait_launched(1);
    atomic_store(&self.callers[0].left, true);
    check_caller_gone(1);
    do {
        call_plain(runs[count], SHORT_MS);
        while (!run_is_done(runs[count][0])) {
            (void)usleep(1000);
        }
    } while (runs[count++][0]->code != TUTTI_INTERNAL && count < TRIES);
    assert_string_equal(runs[count - 1][0]->err.reason, "DEVICE_FAILED");
    assert_text_has(runs[count - 1][0]->err.text,
                    "cuda:0 waits for an event of a client that is gone");
    (void)sem_post(&self.callers[0].gate);
    check_caller_gone(0);
    for (i = 0; i < count; i++) {
        (void)run_wait(runs[i][0]); /* those that the device had already */
        (void)run_wait(runs[i][1]);
        run_free(runs[i][0]);
        run_free(runs[i][1]);
    }
    check_group_works();
}

int
main(void)
{
#define PAIR(name) cmocka_unit_test_setup_teardown(name, set_up_connected, tear_down_callers)
#define COLD(name) cmocka_unit_test_setup_teardown(name, set_up_callers, tear_down_callers)
    const struct CMUnitTest tests[] = {
        PAIR(test_op__is_launched_behind_an_event_that_has_not_come),
        COLD(test_op__that_is_the_first_is_launched_when_the_event_has_come),
        PAIR(test_op__that_is_refused_is_not_told_as_launched),
        PAIR(test_failure__behind_the_launch_lets_the_callers_stream_go_on),
        PAIR(test_stream__that_stands_takes_more_ops_than_fit_into_it),
        PAIR(test_stream__that_stands_does_not_keep_a_kernel_from_being_launched),
        PAIR(test_stream__that_stands_does_not_stop_large_messages),
        PAIR(test_caller__that_left_and_has_recorded_is_no_failure),
        PAIR(
            test_caller__that_left_before_the_launch_fails_the_op_and_the_device_waits_for_nothing),
        COLD(
            test_caller__that_left_before_the_first_op_fails_the_op_and_the_device_waits_for_nothing),
        PAIR(
            test_caller__that_left_behind_the_launch_fails_the_op_and_those_that_the_device_cannot_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
