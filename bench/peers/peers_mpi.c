/* Open MPI's side: one of its processes. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/peers_worker.h"

typedef struct mpi_side {
    int ranks;
    size_t bytes;
    float *input;
    float *output;
} mpi_side;

static bool
once(void *side, const peers_burst *burst)
{
    const mpi_side *self = side;
    const int count = (int)(burst->bytes / sizeof(float));
    const int share = count / self->ranks;

    if (strcmp(burst->op, "all_reduce") == 0) {
        return MPI_Allreduce(MPI_IN_PLACE, self->input, count, MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD) == MPI_SUCCESS;
    }
    if (strcmp(burst->op, "broadcast") == 0) {
        return MPI_Bcast(self->input, count, MPI_FLOAT, 0, MPI_COMM_WORLD) == MPI_SUCCESS;
    }
    if (strcmp(burst->op, "all_gather") == 0) {
        return MPI_Allgather(self->input, share, MPI_FLOAT, self->output, share, MPI_FLOAT,
                             MPI_COMM_WORLD) == MPI_SUCCESS;
    }
    if (strcmp(burst->op, "reduce_scatter") == 0) {
        return MPI_Reduce_scatter_block(self->input, self->output, share, MPI_FLOAT, MPI_SUM,
                                        MPI_COMM_WORLD) == MPI_SUCCESS;
    }
    return strcmp(burst->op, "all_to_all") == 0 &&
           MPI_Alltoall(self->input, share, MPI_FLOAT, self->output, share, MPI_FLOAT,
                        MPI_COMM_WORLD) == MPI_SUCCESS;
}

/*
 * Memory with something in it, as tensors have. Pages that were never written to are all the same
 * one to read, which is always in the cache.
 */
static float *
new_array(size_t bytes)
{
    float *array = malloc(bytes);

    if (array != NULL) {
        memset(array, 0x3c, bytes);
    }
    return array;
}

static bool
prepare(void *side, const peers_burst *burst)
{
    mpi_side *self = side;

    if (self->bytes != burst->bytes) {
        free(self->input);
        free(self->output);
        self->bytes = burst->bytes;
        self->input = new_array(burst->bytes);
        self->output = new_array(burst->bytes);
    }
    return self->input != NULL && self->output != NULL && once(self, burst) && once(self, burst);
}

static void
barrier(void *side)
{
    (void)side;
    (void)MPI_Barrier(MPI_COMM_WORLD);
}

int
main(int argc, char **argv)
{
    static const peers_side side = {prepare, barrier, once};
    mpi_side self = {0};
    int rank = 0;
    int code;

    if (argc != 2 || MPI_Init(&argc, &argv) != MPI_SUCCESS) {
        (void)fprintf(stderr, "usage: mpirun bench_peers_mpi FOLDER\n");
        return 2;
    }
    (void)MPI_Comm_size(MPI_COMM_WORLD, &self.ranks);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    code = peers_serve(argv[1], (unsigned)rank, &side, &self);
    (void)MPI_Finalize();
    free(self.input);
    free(self.output);
    return code;
}
