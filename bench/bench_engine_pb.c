/*
 * What does the engine add to a call? One client, two agents: both are called at once, and an
 * answer is there when both have answered. An empty call (Health.Check) and an all-reduce in place
 * take turns in blocks, on the same connections.
 *
 *     tutti run -n 2 -- bench_engine [--bytes N]
 *
 * Beside it: how long the later of the two agents had the op, from the call's coming to its answer.
 * The other one waits meanwhile for a call that is still on its way to its neighbour, which no
 * engine can help; and the client, which handles the first of two empty answers while the second is
 * made, has nothing to do while an op runs. So that is less than what an op adds.
 *
 * Rank 0 calls both agents; rank 1 has nothing to do. With a client for each rank, as bench peers
 * has it, an op also waits for the slower of two calls, and four programs share the machine.
 */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "grpc/health/v1/health.pb-c.h"
#include "rpc/channel.h"
#include "tutti/v1/collectives_service.pb-c.h"
#include "tutti/v1/tensors_service.pb-c.h"

#define AGENTS 2
#define BLOCK 500
#define BLOCKS 40 /* of each kind */
#define WARM 2    /* that do not count */
#define BYTES_DEFAULT 8
#define ADDRESS_MAX 200

static const tutti_rpc_stub stub_check = {&grpc__health__v1__health__descriptor, "Check"};
static const tutti_rpc_stub stub_create = {&tutti__v1__tensors_service__descriptor, "Create"};
static const tutti_rpc_stub stub_reduce = {&tutti__v1__collectives_service__descriptor,
                                           "AllReduce"};

typedef enum kind {
    KIND_EMPTY,
    KIND_OP,
    KINDS
} kind;

typedef struct bench {
    tutti_rpc_loop *loop;
    tutti_rpc_channel *channels[AGENTS];
    char *tensors[AGENTS];
    tutti_rpc_task first;
    sem_t over;
    /* on the loop's thread */
    size_t number; /* of the call that runs, from 0 */
    unsigned answers;
    uint64_t inside_us; /* the shorter of what the agents say */
    uint64_t began_ns;
    uint64_t times[KINDS][BLOCKS * BLOCK];
    uint64_t inside_ns[BLOCKS * BLOCK];
} bench;

static void
die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_engine: %s: %s\n", what, why);
    exit(1);
}

/* ------------------------------------------------------------------------------ calling */

static kind
kind_of(size_t number)
{
    return number / BLOCK % KINDS == 0 ? KIND_EMPTY : KIND_OP;
}

static void on_answer(void *arg, tutti_rpc_message *response, const tutti_error *err);

static tutti_code
call(bench *self, unsigned agent, tutti_error *err)
{
    static const tutti_rpc_call_options options = {0};
    Grpc__Health__V1__HealthCheckRequest check = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    Tutti__V1__AllReduceRequest reduce = TUTTI__V1__ALL_REDUCE_REQUEST__INIT;
    Tutti__V1__TensorArg input = TUTTI__V1__TENSOR_ARG__INIT;
    const bool empty = kind_of(self->number) == KIND_EMPTY;

    input.kind_case = TUTTI__V1__TENSOR_ARG__KIND_HANDLE;
    input.handle = self->tensors[agent];
    reduce.input = &input;
    reduce.output = self->tensors[agent];
    reduce.reduce_op = TUTTI__V1__REDUCE_OP__REDUCE_OP_SUM;
    return tutti_rpc_request_start(
        self->channels[agent], self->loop, empty ? &stub_check : &stub_reduce,
        empty ? &check.base : &reduce.base, &options, on_answer, self, NULL, err);
}

static void
call_all(bench *self)
{
    tutti_error err;
    unsigned i;

    self->answers = 0;
    self->inside_us = UINT64_MAX;
    self->began_ns = tutti_clock_ns();
    for (i = 0; i < AGENTS; i++) { /* not the same one first all the time */
        if (call(self, (unsigned)(self->number + i) % AGENTS, &err) != TUTTI_OK) {
            die("call", err.text);
        }
    }
}

static void
note(bench *self)
{
    const size_t block = self->number / BLOCK / KINDS;
    const size_t slot = (block - WARM) * BLOCK + self->number % BLOCK;

    if (block >= WARM) {
        self->times[kind_of(self->number)][slot] = tutti_clock_ns() - self->began_ns;
    }
    if (block >= WARM && kind_of(self->number) == KIND_OP) {
        self->inside_ns[slot] = self->inside_us * TUTTI_NS_PER_US;
    }
}

static void
on_answer(void *arg, tutti_rpc_message *response, const tutti_error *err)
{
    bench *self = arg;

    if (err != NULL) {
        die("answer", err->text);
    }
    if (kind_of(self->number) == KIND_OP) {
        const Tutti__V1__AllReduceResponse *said = tutti_rpc_message_get(response);
        const uint64_t inside_us = said->info->elapsed_us;

        self->inside_us = inside_us < self->inside_us ? inside_us : self->inside_us;
    }
    if (++self->answers < AGENTS) {
        return;
    }
    note(self);
    self->number++;
    if (self->number == (size_t)(WARM + BLOCKS) * BLOCK * KINDS) {
        (void)sem_post(&self->over);
    } else {
        call_all(self);
    }
}

static void
run_first(tutti_rpc_task *task)
{
    call_all(tutti_container_of(task, bench, first));
}

/* ------------------------------------------------------------------------------ the agents */

/* `tutti run` names its sockets agent-0.sock, agent-1.sock. */
static void
address_of(unsigned agent, char *ret)
{
    const char *own = getenv("TUTTI_AGENT");
    char *digit;

    if (own == NULL || strlen(own) >= ADDRESS_MAX || strncmp(own, "unix:", 5) != 0) {
        die("usage", "tutti run -n 2 -- bench_engine [--bytes N]");
    }
    (void)strcpy(ret, own);
    digit = strstr(ret, "-0.sock");
    if (digit == NULL) {
        die(own, "not the socket of rank 0 of a tutti run");
    }
    digit[1] = (char)('0' + agent);
}

static void
create_tensor(bench *self, unsigned agent, uint64_t bytes)
{
    const tutti_rpc_call_options options = {.deadline_ns = tutti_clock_ns() + 10 * TUTTI_NS_PER_S,
                                            .wait_for_ready = true};
    Tutti__V1__CreateRequest request = TUTTI__V1__CREATE_REQUEST__INIT;
    Tutti__V1__TensorSpec spec = TUTTI__V1__TENSOR_SPEC__INIT;
    int64_t count = (int64_t)(bytes / sizeof(float));
    const Tutti__V1__CreateResponse *response;
    tutti_rpc_message *message = NULL;
    tutti_error err;

    spec.dtype = TUTTI__V1__DTYPE__DTYPE_FP32;
    spec.n_shape = 1;
    spec.shape = &count;
    request.spec = &spec;
    if (tutti_rpc_invoke(self->channels[agent], &stub_create, &request.base, NULL, &options,
                         &message, &err) != TUTTI_OK) {
        die("create", err.text);
    }
    response = tutti_rpc_message_get(message);
    self->tensors[agent] = strdup(response->tensor->handle);
    tutti_rpc_message_free(message);
}

static void
open_all(bench *self, uint64_t bytes)
{
    char address[ADDRESS_MAX];
    tutti_error err;
    unsigned i;

    if (tutti_rpc_loop_new("bench", &self->loop, &err) != TUTTI_OK ||
        tutti_rpc_loop_start(self->loop, &err) != TUTTI_OK) {
        die("loop", err.text);
    }
    for (i = 0; i < AGENTS; i++) {
        address_of(i, address);
        if (tutti_rpc_channel_open(address, NULL, &self->channels[i], &err) != TUTTI_OK) {
            die(address, err.text);
        }
        create_tensor(self, i, bytes);
    }
}

static void
close_all(bench *self)
{
    unsigned i;

    tutti_rpc_loop_stop(self->loop);
    for (i = 0; i < AGENTS; i++) {
        tutti_rpc_channel_close(self->channels[i]);
        free(self->tensors[i]);
    }
    tutti_rpc_loop_free(self->loop);
}

/* ------------------------------------------------------------------------------ telling */

static int
compare_times(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

static double
percentile_us(uint64_t *times, double share)
{
    const size_t count = (size_t)BLOCKS * BLOCK;

    qsort(times, count, sizeof(times[0]), compare_times);
    return (double)times[(size_t)((double)(count - 1) * share)] / 1e3;
}

static void
report(bench *self, uint64_t bytes)
{
    static const double shares[] = {0.1, 0.5, 0.9};
    size_t i;

    (void)printf(
        "two agents called at once, %d calls of each kind in blocks of %d that take turns\n",
        BLOCKS * BLOCK, BLOCK);
    (void)printf(
        "        empty call us  all_reduce %llu B us  the op adds us  the later agent us\n",
        (unsigned long long)bytes);
    for (i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        const double empty = percentile_us(self->times[KIND_EMPTY], shares[i]);
        const double op = percentile_us(self->times[KIND_OP], shares[i]);

        (void)printf("  p%.0f %15.1f %20.1f %15.1f %19.1f\n", shares[i] * 100, empty, op,
                     op - empty, percentile_us(self->inside_ns, shares[i]));
    }
}

int
main(int argc, char **argv)
{
    const char *rank = getenv("RANK");
    uint64_t bytes = BYTES_DEFAULT;
    static bench self;

    if (argc == 3 && strcmp(argv[1], "--bytes") == 0) {
        bytes = strtoull(argv[2], NULL, 10);
    }
    if ((argc != 1 && argc != 3) || bytes == 0 || bytes % sizeof(float) != 0) {
        die("usage", "tutti run -n 2 -- bench_engine [--bytes N]; N is a multiple of 4");
    }
    if (rank != NULL && strcmp(rank, "0") != 0) {
        return 0;
    }
    tutti_rpc_init();
    open_all(&self, bytes);
    (void)sem_init(&self.over, 0, 0);
    self.first.on_run = run_first;
    tutti_rpc_loop_post(self.loop, &self.first);
    while (sem_wait(&self.over) != 0) {
    }
    close_all(&self);
    report(&self, bytes);
    tutti_rpc_fini();
    return 0;
}
