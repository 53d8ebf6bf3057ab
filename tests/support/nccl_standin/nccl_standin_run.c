/* What the stream's thread does for a group: messages between ranks, and reductions. */
#include "nccl_standin.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "coll/reduce/reduce.h"

#define LOOK_MS 5

typedef struct header {
    uint64_t size;
    double factor;
} header;

/* The messages of one direction between us and a rank, one after the other. */
typedef struct lane {
    standin_message **messages;
    size_t count;
    size_t at;
    size_t done; /* bytes of this one, with its header */
    header head;
} lane;

size_t
standin_type_bytes(ncclDataType_t type)
{
    static const size_t bytes[] = {
        [ncclInt8] = 1,    [ncclUint8] = 1,    [ncclInt32] = 4,   [ncclUint32] = 4,
        [ncclInt64] = 8,   [ncclUint64] = 8,   [ncclFloat16] = 2, [ncclFloat32] = 4,
        [ncclFloat64] = 8, [ncclBfloat16] = 2,
    };

    return (size_t)type < sizeof(bytes) / sizeof(bytes[0]) ? bytes[type] : 0;
}

/* ------------------------------------------------------------------------------ messages */

static ssize_t
move_some(int socket, bool incoming, void *data, size_t size)
{
    return incoming ? recv(socket, data, size, MSG_DONTWAIT)
                    : send(socket, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* As much as the socket takes. False: it is broken, or the other says something else. */
static bool
push(lane *self, int socket)
{
    while (self->at < self->count) {
        standin_message *message = self->messages[self->at];
        const bool in_head = self->done < sizeof(header);
        unsigned char *from = in_head
                                  ? (unsigned char *)&self->head + self->done
                                  : (unsigned char *)message->data + self->done - sizeof(header);
        const size_t left = (in_head ? 0 : message->size) + sizeof(header) - self->done;
        ssize_t got;

        if (self->done == 0 && !message->incoming) {
            self->head = (header){message->size, message->factor};
        }
        got = left > 0 ? move_some(socket, message->incoming, from, left) : 0;
        if (left > 0 && got <= 0) {
            return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
        }
        self->done += (size_t)got;
        if (self->done == sizeof(header) && message->incoming) {
            if (self->head.size != message->size) {
                return false;
            }
            message->factor = self->head.factor;
        }
        if (self->done == sizeof(header) + message->size) {
            self->at++;
            self->done = 0;
        }
    }
    return true;
}

/* [2 * rank] out, [2 * rank + 1] in */
static lane *
sort(ncclComm_t comm, standin_message *messages, size_t count)
{
    lane *lanes = calloc(2 * (size_t)comm->size, sizeof(*lanes));
    size_t i;

    for (i = 0; i < 2 * (size_t)comm->size; i++) {
        lanes[i].messages = calloc(count + 1, sizeof(standin_message *));
    }
    for (i = 0; i < count; i++) {
        lane *one = &lanes[2 * messages[i].peer + (messages[i].incoming ? 1 : 0)];

        one->messages[one->count++] = &messages[i];
    }
    return lanes;
}

/* Returns how many messages are left; -1 when a rank is gone. */
static int
push_all(ncclComm_t comm, lane *lanes, struct pollfd *polls)
{
    int left = 0;
    int i;

    for (i = 0; i < comm->size; i++) {
        lane *out = &lanes[2 * i];
        lane *in = &lanes[2 * i + 1];

        polls[i] = (struct pollfd){.fd = -1};
        if (i == comm->rank) {
            continue;
        }
        if (!push(out, comm->sockets[i]) || !push(in, comm->sockets[i])) {
            return -1;
        }
        if (out->at < out->count || in->at < in->count) {
            polls[i].fd = comm->sockets[i];
            polls[i].events =
                (short)((out->at < out->count ? POLLOUT : 0) | (in->at < in->count ? POLLIN : 0));
            left++;
        }
    }
    return left;
}

bool
standin_exchange(ncclComm_t comm, standin_message *messages, size_t count)
{
    lane *lanes = sort(comm, messages, count);
    struct pollfd *polls = calloc((size_t)comm->size, sizeof(*polls));
    int left;
    size_t i;

    while ((left = push_all(comm, lanes, polls)) > 0 && !atomic_load(&comm->aborted)) {
        (void)poll(polls, (nfds_t)comm->size, LOOK_MS);
    }
    if (left < 0) {
        atomic_store(&comm->state, ncclRemoteError);
    }
    for (i = 0; i < 2 * (size_t)comm->size; i++) {
        free(lanes[i].messages);
    }
    free(lanes);
    free(polls);
    return left == 0;
}

/* ------------------------------------------------------------------------------ collectives */

typedef struct work {
    ncclComm_t comm;
    const standin_call *call;
    size_t bytes;              /* of one part */
    unsigned char *staged;     /* [size] parts, of all ranks */
    standin_message *messages; /* at most two for each rank */
    size_t count;
} work;

static void
add(work *self, int peer, bool incoming, const void *data)
{
    if (peer != self->comm->rank) {
        self->messages[self->count++] = (standin_message){.peer = peer,
                                                          .incoming = incoming,
                                                          .data = (void *)(uintptr_t)data,
                                                          .size = self->bytes,
                                                          .factor = self->call->factor};
    }
}

static tutti_dtype
dtype_of(ncclDataType_t type)
{
    static const tutti_dtype ours[] = {
        [ncclInt8] = TUTTI_DTYPE_INT8,    [ncclUint8] = TUTTI_DTYPE_UINT8,
        [ncclInt32] = TUTTI_DTYPE_INT32,  [ncclUint32] = TUTTI_DTYPE_UINT32,
        [ncclInt64] = TUTTI_DTYPE_INT64,  [ncclUint64] = TUTTI_DTYPE_UINT64,
        [ncclFloat16] = TUTTI_DTYPE_FP16, [ncclFloat32] = TUTTI_DTYPE_FP32,
        [ncclFloat64] = TUTTI_DTYPE_FP64, [ncclBfloat16] = TUTTI_DTYPE_BF16,
    };

    return ours[type];
}

/* In the order of ranks; `own` is our part. */
static void
reduce(work *self, const void *own)
{
    const size_t size = (size_t)self->comm->size;
    const void **inputs = calloc(size, sizeof(*inputs));
    double *factors = calloc(size, sizeof(*factors));
    size_t i;

    for (i = 0; i < size; i++) {
        inputs[i] = (int)i == self->comm->rank ? own : self->staged + i * self->bytes;
        factors[i] = self->call->factor;
    }
    for (i = 0; i < self->count; i++) {
        if (self->messages[i].incoming) {
            factors[self->messages[i].peer] = self->messages[i].factor;
        }
    }
    tutti_reduce_run((tutti_reduce)self->call->reduce, dtype_of(self->call->type), inputs, size,
                     self->call->reduce == TUTTI_REDUCE_PREMUL_SUM ? factors : NULL,
                     self->call->count, self->call->output);
    free(factors);
    free(inputs);
}

static bool
run_reduction(work *self)
{
    const standin_call *call = self->call;
    const bool scatters = call->kind == STANDIN_REDUCE_SCATTER;
    const bool gets = call->kind != STANDIN_REDUCE || call->peer == self->comm->rank;
    const unsigned char *input = call->input;
    int i;

    for (i = 0; i < self->comm->size; i++) {
        if (call->kind != STANDIN_REDUCE || i == call->peer) {
            add(self, i, false, input + (scatters ? (size_t)i * self->bytes : 0));
        }
        if (gets) {
            add(self, i, true, self->staged + (size_t)i * self->bytes);
        }
    }
    if (!standin_exchange(self->comm, self->messages, self->count)) {
        return false;
    }
    if (gets) {
        reduce(self, input + (scatters ? (size_t)self->comm->rank * self->bytes : 0));
    }
    return true;
}

static bool
run_copy(work *self)
{
    const standin_call *call = self->call;
    const bool root = call->peer == self->comm->rank;
    unsigned char *output = call->output;
    int i;

    for (i = 0; i < self->comm->size; i++) {
        if (call->kind == STANDIN_ALL_GATHER) {
            add(self, i, false, call->input);
            add(self, i, true, output + (size_t)i * self->bytes);
        } else if (root) {
            add(self, i, false, call->input);
        }
    }
    if (call->kind == STANDIN_ALL_GATHER) {
        memmove(output + (size_t)self->comm->rank * self->bytes, call->input, self->bytes);
    } else if (root) {
        memmove(output, call->input, self->bytes);
    } else {
        add(self, call->peer, true, output);
    }
    return standin_exchange(self->comm, self->messages, self->count);
}

static bool
run_collective(ncclComm_t comm, const standin_call *call)
{
    work self = {.comm = comm, .call = call};
    bool well;

    self.bytes = call->count * standin_type_bytes(call->type);
    self.staged = malloc((size_t)comm->size * self.bytes + 1);
    self.messages = calloc(2 * (size_t)comm->size, sizeof(standin_message));
    well = call->kind == STANDIN_BROADCAST || call->kind == STANDIN_ALL_GATHER
               ? run_copy(&self)
               : run_reduction(&self);
    free(self.messages);
    free(self.staged);
    return well;
}

static bool
is_pair(const standin_call *call)
{
    return call->kind == STANDIN_SEND || call->kind == STANDIN_RECV;
}

/* Sends and receives go on together, collectives one after the other. */
bool
standin_run(ncclComm_t comm, const standin_call *calls, size_t count)
{
    standin_message *pairs = calloc(count + 1, sizeof(*pairs));
    size_t pair_count = 0;
    bool well = true;
    size_t i;

    for (i = 0; i < count; i++) {
        const standin_call *call = &calls[i];

        if (is_pair(call)) {
            pairs[pair_count++] = (standin_message){
                .peer = call->peer,
                .incoming = call->kind == STANDIN_RECV,
                .data = call->kind == STANDIN_RECV ? call->output : (void *)(uintptr_t)call->input,
                .size = call->count * standin_type_bytes(call->type)};
        }
    }
    well = standin_exchange(comm, pairs, pair_count);
    for (i = 0; i < count && well; i++) {
        well = is_pair(&calls[i]) || run_collective(comm, &calls[i]);
    }
    free(pairs);
    return well;
}
