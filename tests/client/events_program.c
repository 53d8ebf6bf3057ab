/*
 * Goal: ops of libtutti take their place between the work of a stream, by calls and by a queue, and
 * no call waits for the GPU; what cannot be had is refused.
 * Method: two ranks over the stand-ins for CUDA and NCCL, run by tests/system/test_events.py: this
 * program is a rank. Its stream is held back by a function that waits.
 */
#include "support/testing.h"

#include <semaphore.h>
#include <unistd.h>

#include "cuda_standin.h"
#include "tutti/tutti.h"

#define BYTES ((size_t)1 << 20)
#define ROUNDS 4

typedef struct rig {
    tutti_client *client;
    tutti_gpu_events *events;
    cudaEvent_t after;
    cudaEvent_t done;
    cudaStream_t stream;
    tutti_handle handle; /* of the tensor that is lent */
    tutti_gpu_share *share;
    void *memory;
    sem_t gate;
    unsigned char taken; /* its last byte, as the stream saw it */
} rig;

static cudaEvent_t
import_event(const tutti_gpu_event *event)
{
    cudaIpcEventHandle_t handle;
    cudaEvent_t imported = NULL;

    memcpy(&handle, event->ipc_handle, sizeof(handle));
    assert_int_equal(cudaIpcOpenEventHandle(&imported, handle), cudaSuccess);
    return imported;
}

static void
lend_memory(rig *self)
{
    const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {(int64_t)BYTES}};
    cudaIpcMemHandle_t handle;
    tutti_error err;

    assert_ok(tutti_tensor_create(self->client, &spec, NULL, &self->handle, &err));
    assert_ok(tutti_tensor_share_gpu(self->client, self->handle.text, &self->share, &err));
    memcpy(&handle, tutti_gpu_share_describe(self->share)->ipc_handle, sizeof(handle));
    assert_int_equal(cudaIpcOpenMemHandle(&self->memory, handle, cudaIpcMemLazyEnablePeerAccess),
                     cudaSuccess);
    assert_string_equal(tutti_gpu_share_describe(self->share)->gpu_uuid,
                        tutti_gpu_events_uuid(self->events));
}

/* The first op of a group waits for its event outside of the stream: docs/gpu.md. */
static void
make_communicator(rig *self)
{
    tutti_op_result result;
    tutti_error err;
    tutti_op op;

    tutti_op_init(&op);
    op.input = self->handle.text;
    op.output = self->handle.text;
    assert_ok(tutti_all_reduce(self->client, &op, &result, &err));
}

static int
set_up(void **state)
{
    static rig self;
    tutti_error err;

    self = (rig){0};
    assert_ok(tutti_connect(NULL, &self.client, &err));
    assert_ok(tutti_gpu_events_open(self.client, NULL, 2, &self.events, &err));
    assert_int_equal(cudaSetDevice(0), cudaSuccess); /* both see the same */
    self.after = import_event(&tutti_gpu_events_list(self.events)[0]);
    self.done = import_event(&tutti_gpu_events_list(self.events)[1]);
    assert_int_equal(cudaStreamCreateWithFlags(&self.stream, cudaStreamNonBlocking), cudaSuccess);
    lend_memory(&self);
    make_communicator(&self);
    assert_int_equal(sem_init(&self.gate, 0, 0), 0);
    *state = &self;
    return 0;
}

static int
tear_down(void **state)
{
    rig *self = *state;
    tutti_error err;

    (void)cudaStreamDestroy(self->stream);
    (void)cudaEventDestroy(self->after);
    (void)cudaEventDestroy(self->done);
    (void)cudaIpcCloseMemHandle(self->memory);
    tutti_gpu_events_end(self->events);
    tutti_gpu_share_end(self->share);
    assert_ok(tutti_tensor_delete(self->client, self->handle.text, &err));
    tutti_close(self->client);
    assert_int_equal(tutti_standin_cuda_left(), 0);
    return 0;
}

/* ------------------------------------------------------------------------------ the stream */

static void
on_gate(void *arg)
{
    while (sem_wait(arg) != 0) {
    }
}

static void
on_take(void *arg)
{
    rig *self = arg;
    const unsigned char *bytes = tutti_standin_cuda_bytes(self->memory, BYTES);

    self->taken = bytes[BYTES - 1];
}

/* Nothing of it happens before the gate is opened. */
static void
write_behind_gate(rig *self, int value)
{
    assert_int_equal(cudaLaunchHostFunc(self->stream, on_gate, &self->gate), cudaSuccess);
    assert_int_equal(cudaMemsetAsync(self->memory, value, BYTES, self->stream), cudaSuccess);
    assert_int_equal(cudaEventRecord(self->after, self->stream), cudaSuccess);
}

static void
take_behind_op(rig *self)
{
    assert_int_equal(cudaStreamWaitEvent(self->stream, self->done, 0), cudaSuccess);
    assert_int_equal(cudaLaunchHostFunc(self->stream, on_take, self), cudaSuccess);
    assert_int_equal(cudaEventQuery(self->after), cudaErrorNotReady);
    assert_int_equal(cudaEventQuery(self->done), cudaErrorNotReady);
}

static void
open_gate(rig *self)
{
    (void)sem_post(&self->gate);
    assert_int_equal(cudaStreamSynchronize(self->stream), cudaSuccess);
}

static tutti_op
op_between(const rig *self)
{
    tutti_op op;

    tutti_op_init(&op);
    op.input = self->handle.text;
    op.output = self->handle.text;
    op.async = true;
    op.after_event = tutti_gpu_events_list(self->events)[0].id;
    op.done_event = tutti_gpu_events_list(self->events)[1].id;
    return op;
}

static void
check_work(rig *self, const char *work)
{
    tutti_error err;

    assert_ok(tutti_wait(self->client, &work, 1, 0, NULL, &err));
}

/* ------------------------------------------------------------------------------ tests */

static void
test_call__returns_before_the_stream_has_come_and_the_op_takes_its_place(void **state)
{
    rig *self = *state;
    const tutti_op op = op_between(self);
    tutti_op_result result;
    tutti_error err;
    int round;

    for (round = 1; round <= ROUNDS; round++) {
        write_behind_gate(self, round);
        assert_ok(tutti_all_reduce(self->client, &op, &result, &err));
        take_behind_op(self);
        open_gate(self);
        assert_int_equal(self->taken, 2 * round);
        check_work(self, result.work);
    }
}

static void
test_queue__completes_before_the_stream_has_come_and_the_op_takes_its_place(void **state)
{
    rig *self = *state;
    const tutti_op op = op_between(self);
    tutti_queue_completion done;
    tutti_queue *queue;
    tutti_error err;
    int round;

    assert_ok(tutti_queue_open(self->client, NULL, &queue, &err));
    for (round = 1; round <= ROUNDS; round++) {
        write_behind_gate(self, round);
        assert_ok(tutti_queue_submit(queue, TUTTI_OP_ALL_REDUCE, &op, NULL, NULL, &err));
        assert_ok(tutti_queue_next(queue, TUTTI_QUEUE_FOREVER, &done, &err));
        err = done.error;
        assert_ok(done.error.code);
        take_behind_op(self);
        open_gate(self);
        assert_int_equal(self->taken, 2 * round);
        check_work(self, done.op.work);
    }
    assert_ok(tutti_queue_close(queue, &err));
}

static void
test_call__that_is_refused_leaves_the_stream_alone(void **state)
{
    rig *self = *state;
    tutti_op op = op_between(self);
    tutti_error err;

    op.async = false;
    assert_fails(tutti_all_reduce(self->client, &op, NULL, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_EVENT");
    op.async = true;
    op.after_event++;
    assert_fails(tutti_all_reduce(self->client, &op, NULL, &err), TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_EVENT");
    assert_int_equal(cudaEventQuery(self->done), cudaSuccess);
}

static void
test_open__of_what_is_not_there_is_refused(void **state)
{
    rig *self = *state;
    tutti_gpu_events *events = NULL;
    tutti_error err;

    assert_fails(tutti_gpu_events_open(self->client, NULL, 0, &events, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_EVENT");
    assert_fails(tutti_gpu_events_open(self->client, NULL, 257, &events, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_gpu_events_open(self->client, "cuda:9", 1, &events, &err),
                 TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NO_DEVICE");
    assert_null(events);
    tutti_gpu_events_end(NULL);
}

int
main(void)
{
#define PAIR(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        PAIR(test_call__returns_before_the_stream_has_come_and_the_op_takes_its_place),
        PAIR(test_queue__completes_before_the_stream_has_come_and_the_op_takes_its_place),
        PAIR(test_call__that_is_refused_leaves_the_stream_alone),
        PAIR(test_open__of_what_is_not_there_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
