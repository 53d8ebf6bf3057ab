/*
 * What does it cost to drive all agents from one program? Rank 0 drives a session; beside it the same
 * small all-reduce by libtutti, called by every rank at its own agent: through a lane (shared memory), and by a client
 * that has none (TUTTI_NO_LANE).
 *
 *     tutti run -n 2 -- bench_drive [--bytes N] [--only W]
 *
 * --only runs the way of that number alone, for a profiler. The ways take turns, nine times, so what else the machine does meets all of them. Printed are medians:
 * one call of libtutti and one command at a time, and commands that are sent without waiting.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "bench_number.h"
#include "rpc/channel.h"
#include "tutti/tutti.h"
#include "tutti/v1/session_service.pb-c.h"

#define ROUNDS 9
#define CALLS 2000     /* of a turn, one at a time */
#define COMMANDS 20000 /* of a turn, without waiting */
#define TOGETHER 64    /* commands that are written in one go */
#define AHEAD 192      /* commands without an answer */
#define REGISTERS 32   /* taken in turn: an op in place waits for the one before it on its tensor */
#define BYTES_DEFAULT 8

typedef enum way {
    WAY_CALLS,
    WAY_GRPC,
    WAY_ONE,
    WAY_SESSION,
    WAY_SYNC,
    WAY_COPY,
    WAY_REDUCE,
    WAYS
} way;

static const char *const way_names[WAYS] = {
    "all_reduce by libtutti", "the same without a lane",
    "a command by gRPC",      "a command by libtutti's session",
    "sync, pipelined",        "copy, pipelined",
    "all_reduce, pipelined"};

typedef struct bench {
    tutti_client *client;
    tutti_client *plain;    /* has no lane */
    tutti_session *session; /* of rank 0 */
    tutti_rpc_channel *channel;
    tutti_rpc_stream *stream;
    uint64_t bytes;
    uint64_t only; /* WAYS = all */
    uint64_t id;
    tutti_handle tensor;
    double rates[WAYS][ROUNDS]; /* per second */
} bench;

static void
end_with_error(const char *what, const tutti_error *err)
{
    (void)fprintf(stderr, "bench_drive: %s: %s\n", what, err->text);
    exit(1);
}

/* ------------------------------------------------------------------ the session */

static void
send_command(bench *self, Tutti__V1__DriveRequest *request, bool more)
{
    tutti_rpc_packed *packed = NULL;
    tutti_error err;

    request->id = ++self->id;
    if (tutti_rpc_pack(&request->base, NULL, &packed, &err) != TUTTI_OK ||
        tutti_rpc_stream_write_packed(self->stream, packed, more, &err) != TUTTI_OK) {
        end_with_error("write", &err);
    }
}

static void
read_answer(const bench *self)
{
    tutti_rpc_message *message = NULL;
    const Tutti__V1__DriveResponse *response;
    tutti_error err;

    if (tutti_rpc_stream_read(self->stream, &message, &err) != TUTTI_OK || message == NULL) {
        (void)tutti_rpc_stream_finish(self->stream, &err);
        end_with_error("the session", &err);
    }
    response = tutti_rpc_message_get(message);
    if (response->error != NULL) {
        (void)fprintf(stderr, "bench_drive: %s\n", response->error->text);
        exit(1);
    }
    tutti_rpc_message_free(message);
}

static void
open_session(bench *self)
{
    static const tutti_rpc_stub stub = {&tutti__v1__session_service__descriptor, "Drive"};
    Tutti__V1__DriveRequest request = TUTTI__V1__DRIVE_REQUEST__INIT;
    Tutti__V1__DriveOpen open = TUTTI__V1__DRIVE_OPEN__INIT;
    const char *agent = getenv("TUTTI_AGENT");
    tutti_error err;

    if (tutti_rpc_channel_open(agent == NULL ? "" : agent, NULL, &self->channel, &err) !=
            TUTTI_OK ||
        tutti_rpc_stream_open(self->channel, &stub, NULL, &self->stream, &err) != TUTTI_OK) {
        end_with_error("open", &err);
    }
    request.command_case = TUTTI__V1__DRIVE_REQUEST__COMMAND_OPEN;
    request.open = &open;
    send_command(self, &request, false);
    read_answer(self);
}

static void
make_registers(bench *self)
{
    Tutti__V1__DriveRequest request = TUTTI__V1__DRIVE_REQUEST__INIT;
    Tutti__V1__DriveEmpty empty = TUTTI__V1__DRIVE_EMPTY__INIT;
    Tutti__V1__TensorSpec spec = TUTTI__V1__TENSOR_SPEC__INIT;
    int64_t shape[1] = {(int64_t)(self->bytes / sizeof(float))};
    uint32_t i;

    spec.dtype = TUTTI__V1__DTYPE__DTYPE_FP32;
    spec.shape = shape;
    spec.n_shape = 1;
    empty.spec = &spec;
    request.command_case = TUTTI__V1__DRIVE_REQUEST__COMMAND_EMPTY;
    request.empty = &empty;
    for (i = 1; i <= REGISTERS; i++) {
        empty.into = i;
        send_command(self, &request, false);
        read_answer(self);
    }
}

static void
send_way(bench *self, way which, uint32_t number, bool more)
{
    Tutti__V1__DriveRequest request = TUTTI__V1__DRIVE_REQUEST__INIT;
    Tutti__V1__DriveReduce reduce = TUTTI__V1__DRIVE_REDUCE__INIT;
    Tutti__V1__DriveCopy copy = TUTTI__V1__DRIVE_COPY__INIT;
    Tutti__V1__DriveSync sync = TUTTI__V1__DRIVE_SYNC__INIT;

    if (which == WAY_SYNC) {
        request.command_case = TUTTI__V1__DRIVE_REQUEST__COMMAND_SYNC;
        request.sync = &sync;
    } else if (which == WAY_COPY) {
        request.command_case = TUTTI__V1__DRIVE_REQUEST__COMMAND_COPY;
        request.copy = &copy;
        copy.src = 1;
        copy.dst = 2 + number % (REGISTERS - 1);
    } else {
        request.command_case = TUTTI__V1__DRIVE_REQUEST__COMMAND_ALL_REDUCE;
        request.all_reduce = &reduce;
        reduce.src = reduce.dst = 1 + number % REGISTERS;
        reduce.reduce_op = TUTTI__V1__REDUCE_OP__REDUCE_OP_SUM;
    }
    send_command(self, &request, more);
}

/* ------------------------------------------------------------------ turns */

static double
turn_calls(const bench *self, tutti_client *client)
{
    const uint64_t before = tutti_clock_ns();
    tutti_error err;
    tutti_op op;
    int i;

    tutti_op_init(&op);
    op.input = self->tensor.text;
    op.output = self->tensor.text;
    for (i = 0; i < CALLS; i++) {
        if (tutti_all_reduce(client, &op, NULL, &err) != TUTTI_OK) {
            end_with_error("all_reduce", &err);
        }
    }
    return CALLS / ((double)(tutti_clock_ns() - before) / 1e9);
}

static double
turn_one(bench *self)
{
    const uint64_t before = tutti_clock_ns();
    uint32_t i;

    for (i = 0; i < CALLS; i++) {
        send_way(self, WAY_ONE, i, false);
        read_answer(self);
    }
    return CALLS / ((double)(tutti_clock_ns() - before) / 1e9);
}

static double
turn_session(const bench *self)
{
    const uint64_t before = tutti_clock_ns();
    tutti_session_move move;
    uint64_t ticket = 0;
    tutti_error err;
    int i;

    tutti_session_move_init(&move);
    move.src = 1;
    move.dst = 1;
    for (i = 0; i < CALLS; i++) {
        if (tutti_session_all_reduce(self->session, &move, TUTTI_REDUCE_SUM, &ticket, &err) !=
                TUTTI_OK ||
            tutti_session_wait(self->session, ticket, NULL, &err) != TUTTI_OK) {
            end_with_error("session", &err);
        }
    }
    return CALLS / ((double)(tutti_clock_ns() - before) / 1e9);
}

static double
turn_pipelined(bench *self, way which)
{
    const uint64_t before = tutti_clock_ns();
    uint32_t sent = 0;
    uint32_t read = 0;

    while (read < COMMANDS) {
        const uint32_t end = sent + TOGETHER < COMMANDS ? sent + TOGETHER : COMMANDS;

        for (; sent < end; sent++) {
            send_way(self, which, sent, sent + 1 < end);
        }
        for (; read < sent && (sent - read > AHEAD - TOGETHER || sent == COMMANDS); read++) {
            read_answer(self);
        }
    }
    return COMMANDS / ((double)(tutti_clock_ns() - before) / 1e9);
}

/* All ranks call libtutti; rank 0 alone drives, and the others wait for it. */
static void
pass_barrier(const bench *self)
{
    tutti_error err;

    if (tutti_barrier(self->client, NULL, NULL, &err) != TUTTI_OK) {
        end_with_error("barrier", &err);
    }
}

static double
take_turn(bench *self, way which)
{
    double rate = 0;

    pass_barrier(self);
    if (which == WAY_CALLS || which == WAY_GRPC) {
        rate = turn_calls(self, which == WAY_CALLS ? self->client : self->plain);
    } else if (tutti_whoami(self->client)->rank == 0) {
        rate = which == WAY_ONE       ? turn_one(self)
               : which == WAY_SESSION ? turn_session(self)
                                      : turn_pipelined(self, which);
    }
    pass_barrier(self);
    return rate;
}

/* ------------------------------------------------------------------ the report */

static void
print_ratio(const bench *self, const char *text, way calls, way commands)
{
    double ratios[ROUNDS];
    int i;

    for (i = 0; i < ROUNDS; i++) {
        ratios[i] = self->rates[calls][i] / self->rates[commands][i];
    }
    (void)printf("  %-38s %9.2f\n", text, bench_find_median(ratios, ROUNDS));
}

static void
print_report(const bench *self)
{
    int i;

    (void)printf("%llu bytes, in place, %u ranks: medians of %d alternating turns\n",
                 (unsigned long long)self->bytes, tutti_whoami(self->client)->world_size, ROUNDS);
    for (i = 0; i < WAYS; i++) {
        const double rate = bench_find_median(self->rates[i], ROUNDS);

        (void)printf("  %-38s %9.0f /s  %7.1f us each\n", way_names[i], rate, 1e6 / rate);
    }
    print_ratio(self, "a command by gRPC, in calls by gRPC", WAY_GRPC, WAY_ONE);
    print_ratio(self, "one of libtutti, in calls by gRPC", WAY_GRPC, WAY_SESSION);
    print_ratio(self, "one of libtutti, in calls by a lane", WAY_CALLS, WAY_SESSION);
}

static void
read_words(bench *self, int argc, char **argv)
{
    int i;

    for (i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--bytes") == 0) {
            self->bytes = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--only") == 0) {
            self->only = strtoull(argv[i + 1], NULL, 10);
        } else {
            break;
        }
    }
    if (i != argc || self->bytes == 0 || self->bytes % sizeof(float) != 0) {
        (void)fprintf(stderr, "usage: tutti run -n 2 -- bench_drive [--bytes N] [--only W]\n"
                              "N is a multiple of 4\n");
        exit(2);
    }
}

static void
run_turns(bench *self)
{
    int i;
    int which;

    for (i = -1; i < ROUNDS; i++) { /* the first ones warm up */
        for (which = 0; which < WAYS; which++) {
            if (self->only == WAYS || self->only == (uint64_t)which) {
                self->rates[which][i < 0 ? 0 : i] = take_turn(self, (way)which);
            }
        }
    }
}

/* A client decides whether it has a lane when it opens its stream, with its third call. */
static void
connect_plain(bench *self)
{
    tutti_tensor_info info;
    tutti_error err;
    int i;

    (void)setenv("TUTTI_NO_LANE", "1", 1);
    if (tutti_connect(NULL, &self->plain, &err) != TUTTI_OK) {
        end_with_error("connect", &err);
    }
    for (i = 0; i < 4; i++) {
        if (tutti_tensor_stat(self->plain, self->tensor.text, &info, &err) != TUTTI_OK) {
            end_with_error("stat", &err);
        }
    }
    (void)unsetenv("TUTTI_NO_LANE");
}

static void
open_libtutti_session(bench *self, const tutti_spec *spec)
{
    tutti_error err;

    if (tutti_session_open(self->client, NULL, &self->session, &err) != TUTTI_OK ||
        tutti_session_empty(self->session, 1, spec, NULL, NULL, &err) != TUTTI_OK ||
        tutti_session_sync(self->session, NULL, &err) != TUTTI_OK) {
        end_with_error("session", &err);
    }
}

int
main(int argc, char **argv)
{
    bench self = {.bytes = BYTES_DEFAULT, .only = WAYS};
    tutti_spec spec = {.dtype = TUTTI_DTYPE_FP32, .dim_count = 1};
    tutti_error err;

    read_words(&self, argc, argv);
    spec.dims[0] = (int64_t)(self.bytes / sizeof(float));
    tutti_rpc_init();
    if (tutti_connect(NULL, &self.client, &err) != TUTTI_OK ||
        tutti_tensor_create(self.client, &spec, NULL, &self.tensor, &err) != TUTTI_OK) {
        end_with_error("connect", &err);
    }
    connect_plain(&self);
    if (tutti_whoami(self.client)->rank == 0) {
        open_libtutti_session(&self, &spec);
        open_session(&self);
        make_registers(&self);
    }
    run_turns(&self);
    if (tutti_whoami(self.client)->rank == 0) {
        print_report(&self);
        (void)tutti_session_close(self.session, NULL);
        tutti_rpc_stream_cancel(self.stream);
        (void)tutti_rpc_stream_finish(self.stream, NULL);
        tutti_rpc_channel_close(self.channel);
    }
    tutti_close(self.plain);
    tutti_close(self.client);
    tutti_rpc_fini();
    return 0;
}
