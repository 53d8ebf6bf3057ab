/*
 * One rank of every op on memory, small and large, checked against what it must be. Run by
 * tests/system/test_cli_parts.py: `tutti run -n N -- data_program`. Exits with 1 when it is not so.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tutti/tutti.h"

typedef struct program {
    tutti_client *client;
    uint32_t rank;
    uint32_t size;
    size_t part; /* elements of a part; of what is given: `size` times as many */
    int64_t *data;
    int64_t *result; /* room for `size` times what is given */
} program;

/* Element i of what a rank gives. */
static int64_t
element(uint32_t rank, size_t i)
{
    return (int64_t)rank * 1000003 + (int64_t)i;
}

static void
fail(const program *self, const char *op, const char *text)
{
    (void)fprintf(stderr, "rank %" PRIu32 ": %s: %s\n", self->rank, op, text);
    exit(1);
}

static void
check(const program *self, const char *op, tutti_code code, const tutti_error *err)
{
    if (code != TUTTI_OK) {
        fail(self, op, err->text);
    }
}

/* From `from` on, the result has elements of `rank`, from its number `first` on. */
static void
expect(const program *self, const char *op, size_t from, size_t count, uint32_t rank, size_t first)
{
    char text[128];
    size_t i;

    for (i = 0; i < count; i++) {
        const int64_t wanted = element(rank, first + i);

        if (self->result[from + i] != wanted) {
            (void)snprintf(text, sizeof(text), "element %zu is %" PRId64 ", not %" PRId64, from + i,
                           self->result[from + i], wanted);
            fail(self, op, text);
        }
    }
}

/* MAX takes what the last rank gives. */
static void
run_reducing(program *self, const tutti_spec *spec, tutti_op *op)
{
    const size_t count = self->part * self->size;
    const uint32_t last = self->size - 1;
    tutti_error err;

    op->reduce = TUTTI_REDUCE_MAX;
    op->root = (int32_t)last;
    check(self, "reduce",
          tutti_reduce_to_root_data(self->client, op, spec, self->data,
                                    self->rank == last ? self->result : NULL, &err),
          &err);
    if (self->rank == last) {
        expect(self, "reduce", 0, count, last, 0);
    }
    check(self, "reduce_scatter",
          tutti_reduce_scatter_data(self->client, op, spec, self->data, self->result,
                                    self->part * sizeof(int64_t), &err),
          &err);
    expect(self, "reduce_scatter", 0, self->part, last, self->rank * self->part);
}

static void
run_rooted(program *self, const tutti_spec *spec, tutti_op *op)
{
    const size_t count = self->part * self->size;
    const bool root = self->rank == (uint32_t)op->root;
    uint32_t i;
    tutti_error err;

    check(self, "gather",
          tutti_gather_data(self->client, op, spec, self->data, root ? self->result : NULL,
                            root ? self->size * count * sizeof(int64_t) : 0, &err),
          &err);
    for (i = 0; i < self->size && root; i++) {
        expect(self, "gather", i * count, count, i, 0);
    }
    check(self, "scatter",
          tutti_scatter_data(self->client, op, spec, root ? self->data : NULL, self->result,
                             self->part * sizeof(int64_t), &err),
          &err);
    expect(self, "scatter", 0, self->part, (uint32_t)op->root, self->rank * self->part);
}

static void
run_moving(program *self, const tutti_spec *spec, tutti_op *op)
{
    const size_t count = self->part * self->size;
    int32_t *to = calloc(self->size, sizeof(*to));
    uint32_t i;
    tutti_error err;

    if (to == NULL) {
        abort();
    }
    check(self, "all_to_all",
          tutti_all_to_all_data(self->client, op, spec, self->data, self->result, &err), &err);
    for (i = 0; i < self->size; i++) {
        expect(self, "all_to_all", i * self->part, self->part, i, self->rank * self->part);
        to[i] = (int32_t)((i + 1) % self->size);
    }
    op->src_dst = to;
    op->src_dst_count = self->size;
    check(self, "permute",
          tutti_permute_data(self->client, op, spec, self->data, self->result, &err), &err);
    expect(self, "permute", 0, count, (self->rank + self->size - 1) % self->size, 0);
    free(to);
}

static void
run_size(program *self, size_t part)
{
    const size_t count = part * self->size;
    const tutti_spec spec = {TUTTI_DTYPE_INT64, 1, {(int64_t)count}};
    tutti_op op;
    size_t i;

    self->part = part;
    self->data = calloc(count, sizeof(int64_t));
    self->result = calloc(count * self->size, sizeof(int64_t));
    if (self->data == NULL || self->result == NULL) {
        abort();
    }
    for (i = 0; i < count; i++) {
        self->data[i] = element(self->rank, i);
    }
    tutti_op_init(&op);
    run_reducing(self, &spec, &op);
    run_rooted(self, &spec, &op);
    run_moving(self, &spec, &op);
    free(self->result);
    free(self->data);
}

int
main(void)
{
    program self = {0};
    tutti_agent_stats stats;
    tutti_error err;

    check(&self, "connect", tutti_connect(NULL, &self.client, &err), &err);
    self.rank = tutti_whoami(self.client)->rank;
    self.size = tutti_whoami(self.client)->world_size;
    run_size(&self, 10);
    run_size(&self, (1u << 19) + 3); /* parts of 4 MiB: all of it is uploaded */
    tutti_close(self.client);        /* the tensors of its arena go with it */
    check(&self, "connect", tutti_connect(NULL, &self.client, &err), &err);
    check(&self, "stat", tutti_agent_stat(self.client, &stats, &err), &err);
    if (stats.tensor_count != 0) {
        fail(&self, "stat", "tensors were left behind");
    }
    tutti_close(self.client);
    (void)printf("well\n");
    return 0;
}
