/*
 * What the memory allows: processes that share all ranks' tensors, each reduces a slice of all of
 * them and writes it to all. No calls, no agreement, no engine: a loop and a counter to wait at.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/peers/peers_worker.h"
#include "coll/reduce/reduce.h"

#define TENSOR_MAX ((size_t)256 << 20)
#define RANKS_MAX 16
#define BLOCK ((size_t)8 << 10)
#define HEAD 4096

typedef struct probe_side {
    unsigned rank;
    unsigned ranks;
    unsigned char *memory;
    unsigned turn;
} probe_side;

static unsigned char *
tensor_of(const probe_side *self, unsigned rank)
{
    return self->memory + HEAD + rank * TENSOR_MAX;
}

static void
barrier(void *side)
{
    probe_side *self = side;
    atomic_uint *arrived = (atomic_uint *)(void *)self->memory;

    self->turn += self->ranks;
    (void)atomic_fetch_add(arrived, 1);
    while ((int)(atomic_load(arrived) - self->turn) < 0) {
        if (self->ranks > 2) {
            (void)sched_yield();
        }
    }
}

static bool
once(void *side, const peers_burst *burst)
{
    probe_side *self = side;
    const size_t slice = burst->bytes / self->ranks / 64 * 64;
    const size_t first = slice * self->rank;
    const size_t end = self->rank + 1 == self->ranks ? burst->bytes : first + slice;
    const void *inputs[RANKS_MAX];
    size_t at;
    unsigned i;

    barrier(self);
    for (at = first; at < end; at += BLOCK) {
        const size_t bytes = end - at < BLOCK ? end - at : BLOCK;

        for (i = 0; i < self->ranks; i++) {
            inputs[i] = tensor_of(self, i) + at;
        }
        tutti_reduce_run_far(TUTTI_REDUCE_SUM, TUTTI_DTYPE_FP32, inputs, self->ranks, NULL,
                             bytes / 4, tensor_of(self, self->rank) + at);
        for (i = 1; i < self->ranks; i++) {
            (void)memcpy(tensor_of(self, (self->rank + i) % self->ranks) + at,
                         tensor_of(self, self->rank) + at, bytes);
        }
    }
    barrier(self);
    return true;
}

static bool
prepare(void *side, const peers_burst *burst)
{
    return burst->bytes <= TENSOR_MAX && strcmp(burst->op, "all_reduce") == 0 &&
           once(side, burst) && once(side, burst);
}

int
main(int argc, char **argv)
{
    static const peers_side side = {prepare, barrier, once};
    probe_side self = {0};
    size_t bytes;
    int fd;

    if (argc != 5) {
        (void)fprintf(stderr, "usage: bench_peers_probe FOLDER RANK RANKS MEMORY-FILE\n");
        return 2;
    }
    self.rank = (unsigned)strtoul(argv[2], NULL, 10);
    self.ranks = (unsigned)strtoul(argv[3], NULL, 10);
    bytes = HEAD + self.ranks * TENSOR_MAX;
    fd = open(argv[4], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (self.ranks == 0 || self.ranks > RANKS_MAX || fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        perror(argv[4]);
        return 1;
    }
    self.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (self.memory == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    return peers_serve(argv[1], self.rank, &side, &self);
}
