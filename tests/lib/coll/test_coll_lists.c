/*
 * Goal: lists of tensors in one op, shapes that only their owner knows, and what a root tells
 * arrive as they were given, or are refused on all ranks. Method: worlds of one to four engines,
 * every value computed apart.
 */
#include "support/testing.h"

#include <unistd.h>

#include "support/world.h"

#define LONG_MS 15000
#define RANKS 4
#define LIST 6

/* One rank's part in an op: all tensors are INT32 unless a test says otherwise. */
typedef struct part {
    run *run;
    tutti_coll_tensor in[LIST];
    tutti_coll_tensor out[LIST * RANKS];
    uint32_t out_count;
    tutti_code refuse; /* what on_list shall answer */
} part;

typedef struct table {
    world w;
    part parts[RANKS];
} table;

static int32_t
value(uint32_t rank, uint32_t tensor, uint64_t k)
{
    return (int32_t)(rank * 100000 + tensor * 1000 + k);
}

static part *
part_of(tutti_coll_op *op)
{
    run *self = tutti_container_of(op, run, op);

    return self->made;
}

static void
place(part *self, const tutti_spec *specs, uint32_t count)
{
    uint32_t i;

    for (i = 0; i < count; i++) {
        self->out[i] = (tutti_coll_tensor){.spec = specs[i]};
        self->out[i].data = calloc(tutti_spec_bytes(&specs[i]) + 4, 1);
    }
    self->out_count = count;
    self->run->op.outputs = self->out;
}

static tutti_code
on_list(tutti_coll_op *op, const tutti_spec *specs, uint32_t count, tutti_error *err)
{
    part *self = part_of(op);

    if (self->refuse != TUTTI_OK) {
        (void)TUTTI_FAIL(err, self->refuse, "no room for %u tensors", (unsigned)count);
        return self->refuse;
    }
    place(self, specs, count);
    return TUTTI_OK;
}

static tutti_code
on_spec(tutti_coll_op *op, const tutti_spec *spec, tutti_error *err)
{
    (void)err;
    place(part_of(op), spec, 1);
    op->output = part_of(op)->out[0].data;
    return TUTTI_OK;
}

static void
open_table(table *t, uint32_t size)
{
    uint32_t i;

    *t = (table){0};
    world_open(&t->w, WIRE, size);
    for (i = 0; i < size; i++) {
        t->parts[i].run = run_new(TUTTI_COLL_BARRIER);
        t->parts[i].run->made = &t->parts[i];
        t->parts[i].run->op.on_spec = NULL;
    }
}

static void
close_table(table *t)
{
    uint32_t i;
    uint32_t k;

    for (i = 0; i < t->w.size; i++) {
        part *one = &t->parts[i];

        for (k = 0; k < LIST; k++) {
            free(one->in[k].data);
        }
        for (k = 0; k < one->out_count; k++) {
            free(one->out[k].data);
        }
        one->run->made = NULL;
        run_free(one->run);
    }
    world_close(&t->w);
}

/* Rank i gives `count` tensors of these shapes. */
static void
give(table *t, uint32_t i, const tutti_coll_args *args, const tutti_spec *specs,
     const uint32_t *axes, uint32_t count)
{
    part *one = &t->parts[i];
    uint32_t k;
    uint64_t at;

    one->run->op.args = *args;
    for (k = 0; k < count; k++) {
        int32_t *data = malloc(tutti_spec_bytes(&specs[k]) + 4);

        for (at = 0; at < tutti_spec_count(&specs[k]); at++) {
            data[at] = value(i, k, at);
        }
        one->in[k] =
            (tutti_coll_tensor){.spec = specs[k], .data = data, .axis = axes == NULL ? 0 : axes[k]};
    }
    one->run->op.args.has_spec = count > 0;
    one->run->op.args.spec = specs[0];
    if (args->coalesced || args->form == TUTTI_FORM_LIST) {
        one->run->op.args.list = one->in;
        one->run->op.args.list_count = count;
    }
    one->run->op.input = one->in[0].data;
}

/* One tensor that is no list, though the result may be. */
static void
give_one(table *t, uint32_t i, const tutti_coll_args *args, tutti_spec spec)
{
    give(t, i, args, &spec, NULL, 1);
    t->parts[i].run->op.args.list = NULL;
    t->parts[i].run->op.args.list_count = 0;
}

/* A receiver that knows nothing. */
static void
give_nothing(table *t, uint32_t i, const tutti_coll_args *args)
{
    t->parts[i].run->op.args = *args;
    t->parts[i].run->op.on_spec = on_spec;
    t->parts[i].run->op.on_list = on_list;
}

/* What can be known before: outputs of coalesced ops, or of a part. */
static void
expect_known(table *t)
{
    uint32_t i;

    for (i = 0; i < t->w.size; i++) {
        part *one = &t->parts[i];
        tutti_spec *specs = NULL;
        tutti_spec spec;
        uint32_t count = 0;
        tutti_error err;

        if (tutti_coll_makes_list(&one->run->op.args)) {
            assert_ok(
                tutti_coll_infer_list(&one->run->op.args, t->w.size, i, &specs, &count, &err));
            place(one, specs, count);
            free(specs);
        } else {
            assert_ok(tutti_coll_infer(&one->run->op.args, t->w.size, i, &spec, &err));
            place(one, &spec, 1);
            one->run->op.output = one->out[0].data;
        }
    }
}

static void
post_all(table *t)
{
    uint32_t i;

    for (i = 0; i < t->w.size; i++) {
        run_post(t->parts[i].run, t->w.groups[i], LONG_MS);
    }
}

static void
all_succeed(table *t)
{
    uint32_t i;

    post_all(t);
    for (i = 0; i < t->w.size; i++) {
        if (run_wait(t->parts[i].run) != TUTTI_OK) {
            fail_msg("rank %u: %s", (unsigned)i, t->parts[i].run->err.text);
        }
    }
}

/* Every rank gets this error. */
static void
all_fail(table *t, const char *reason, const char *words)
{
    uint32_t i;

    post_all(t);
    for (i = 0; i < t->w.size; i++) {
        assert_int_not_equal(run_wait(t->parts[i].run), TUTTI_OK);
        assert_string_equal(t->parts[i].run->err.reason, reason);
        assert_non_null(strstr(t->parts[i].run->err.text, words));
    }
}

static tutti_spec
row(int64_t count)
{
    return (tutti_spec){.dtype = TUTTI_DTYPE_INT32, .dim_count = 1, .dims = {count}};
}

static tutti_spec
grid(int64_t rows, int64_t columns)
{
    return (tutti_spec){.dtype = TUTTI_DTYPE_INT32, .dim_count = 2, .dims = {rows, columns}};
}

static int32_t
result(const table *t, uint32_t rank, uint32_t tensor, uint64_t k)
{
    return ((const int32_t *)t->parts[rank].out[tensor].data)[k];
}

/* The k-th tensor of `from`, whole. */
static void
assert_is(const table *t, uint32_t rank, uint32_t at, uint32_t from, uint32_t k,
          const tutti_spec *spec)
{
    uint64_t i;

    assert_true(tutti_spec_equal(&t->parts[rank].out[at].spec, spec));
    for (i = 0; i < tutti_spec_count(spec); i++) {
        assert_int_equal(result(t, rank, at, i), value(from, k, i));
    }
}

/* ------------------------------------------------------------------------------ coalesced */

static void
test_coalesced_all_reduce__takes_any_shapes_in_one_op(void **state)
{
    const tutti_spec specs[] = {
        row(2), {.dtype = TUTTI_DTYPE_INT32}, row(0), grid(2, 3), row(5000)};
    const tutti_coll_args args = {
        .kind = TUTTI_COLL_ALL_REDUCE, .reduce = TUTTI_REDUCE_SUM, .coalesced = true};
    uint32_t size;
    uint32_t i;
    uint32_t k;

    (void)state;
    for (size = 1; size <= RANKS; size++) {
        table t;

        open_table(&t, size);
        for (i = 0; i < size; i++) {
            give(&t, i, &args, specs, NULL, 5);
        }
        expect_known(&t);
        all_succeed(&t);
        for (k = 0; k < 5; k++) {
            const uint64_t last = tutti_spec_count(&specs[k]);
            int32_t sum = 0;

            for (i = 0; i < size && last > 0; i++) {
                sum += value(i, k, last - 1);
            }
            for (i = 0; i < size && last > 0; i++) {
                assert_int_equal(result(&t, i, k, last - 1), sum);
            }
        }
        assert_int_equal(t.parts[0].run->op.sequence, 1);
        close_table(&t);
    }
}

static void
test_coalesced_reduce_scatter__cuts_each_tensor_along_its_own_axis(void **state)
{
    const tutti_spec specs[] = {row(4), grid(2, 2)};
    const uint32_t axes[] = {0, 1};
    const tutti_coll_args args = {
        .kind = TUTTI_COLL_REDUCE_SCATTER, .reduce = TUTTI_REDUCE_SUM, .coalesced = true};
    table t;
    uint32_t i;

    (void)state;
    open_table(&t, 2);
    for (i = 0; i < 2; i++) {
        give(&t, i, &args, specs, axes, 2);
    }
    expect_known(&t);
    all_succeed(&t);
    for (i = 0; i < 2; i++) {
        assert_true(tutti_spec_equal(
            &t.parts[i].out[1].spec,
            &(tutti_spec){.dtype = TUTTI_DTYPE_INT32, .dim_count = 2, .dims = {2, 1}}));
        assert_int_equal(result(&t, i, 0, 1), value(0, 0, 2 * i + 1) + value(1, 0, 2 * i + 1));
        assert_int_equal(result(&t, i, 1, 1), value(0, 1, 2 + i) + value(1, 1, 2 + i));
    }
    close_table(&t);
}

static void
test_coalesced_broadcast__tells_receivers_the_list(void **state)
{
    const tutti_spec specs[] = {row(3), grid(2, 2), row(0)};
    const tutti_coll_args args = {.kind = TUTTI_COLL_BROADCAST, .root = 1, .coalesced = true};
    table t;
    uint32_t i;
    uint32_t k;

    (void)state;
    open_table(&t, 3);
    give_nothing(&t, 0, &args);
    give(&t, 1, &args, specs, NULL, 3);
    give_nothing(&t, 2, &args);
    place(&t.parts[1], specs, 3);
    all_succeed(&t);
    for (i = 0; i < 3; i++) {
        assert_int_equal(t.parts[i].out_count, 3);
        for (k = 0; k < 3; k++) {
            assert_is(&t, i, k, 1, k, &specs[k]);
        }
    }
    close_table(&t);
}

static void
test_coalesced_gather__as_lists_counts_tensor_by_tensor(void **state)
{
    const tutti_coll_args args = {
        .kind = TUTTI_COLL_GATHER, .root = 1, .coalesced = true, .form = TUTTI_FORM_LIST};
    table t;
    uint32_t i;
    uint32_t k;

    (void)state;
    open_table(&t, 3);
    for (i = 0; i < 3; i++) {
        const tutti_spec specs[] = {row(i), row(2 * i + 1)};

        give(&t, i, &args, specs, NULL, 2);
        t.parts[i].run->op.on_list = on_list;
    }
    all_succeed(&t);
    assert_int_equal(t.parts[0].out_count, 0);
    assert_int_equal(t.parts[1].out_count, 6);
    for (k = 0; k < 2; k++) {
        for (i = 0; i < 3; i++) {
            const tutti_spec spec = row(k == 0 ? i : 2 * i + 1);

            assert_is(&t, 1, k * 3 + i, i, k, &spec);
        }
    }
    close_table(&t);
}

static void
test_coalesced_calls__that_differ_are_refused_everywhere(void **state)
{
    const tutti_coll_args args = {
        .kind = TUTTI_COLL_ALL_REDUCE, .reduce = TUTTI_REDUCE_SUM, .coalesced = true};
    const tutti_spec same[] = {row(4), row(2), row(2)};
    const tutti_spec other[] = {row(4), row(3), row(2)};
    const tutti_spec typed[] = {row(4), {TUTTI_DTYPE_FP32, 1, {2}}, row(2)};
    const struct {
        const tutti_spec *specs;
        uint32_t count;
        const char *reason;
        const char *words;
    } cases[] = {{same, 2, "LIST_SIZE", "list's length differs"},
                 {other, 3, "SHAPE_MISMATCH", "shape differs"},
                 {typed, 3, "DTYPE_MISMATCH", "dtype differs"}};
    size_t c;
    uint32_t i;

    (void)state;
    for (c = 0; c < 3; c++) {
        table t;

        open_table(&t, 3);
        for (i = 0; i < 3; i++) {
            give(&t, i, &args, i == 1 ? cases[c].specs : same, NULL, i == 1 ? cases[c].count : 3);
        }
        expect_known(&t);
        all_fail(&t, cases[c].reason, cases[c].words);
        assert_int_equal(t.parts[0].run->err.rank, 1);
        close_table(&t);
    }
}

/* ------------------------------------------------------------------------------ lists by rank */

static void
test_all_gather_as_list__takes_a_shape_of_each(void **state)
{
    const tutti_coll_args args = {.kind = TUTTI_COLL_ALL_GATHER, .form = TUTTI_FORM_LIST};
    uint32_t size;
    uint32_t i;
    uint32_t from;

    (void)state;
    for (size = 1; size <= RANKS; size++) {
        table t;

        open_table(&t, size);
        for (i = 0; i < size; i++) {
            give_one(&t, i, &args, i % 2 == 0 ? row(i) : grid(i, 3000));
            t.parts[i].run->op.on_list = on_list;
        }
        all_succeed(&t);
        for (i = 0; i < size; i++) {
            assert_int_equal(t.parts[i].out_count, size);
            for (from = 0; from < size; from++) {
                const tutti_spec spec = from % 2 == 0 ? row(from) : grid(from, 3000);

                assert_is(&t, i, from, from, 0, &spec);
            }
        }
        close_table(&t);
    }
}

static void
test_all_to_all_as_list__swaps_tensors_of_any_shape(void **state)
{
    const tutti_coll_args args = {.kind = TUTTI_COLL_ALL_TO_ALL, .form = TUTTI_FORM_LIST};
    table t;
    uint32_t i;
    uint32_t k;

    (void)state;
    open_table(&t, RANKS);
    for (i = 0; i < RANKS; i++) {
        const tutti_spec specs[] = {row(i), row(i + 10), row(i * 7), grid(i, 2)};

        give(&t, i, &args, specs, NULL, RANKS);
        t.parts[i].run->op.on_list = on_list;
    }
    all_succeed(&t);
    for (i = 0; i < RANKS; i++) {
        for (k = 0; k < RANKS; k++) {
            const tutti_spec of_k[] = {row(k), row(k + 10), row(k * 7), grid(k, 2)};

            assert_is(&t, i, k, k, i, &of_k[i]);
        }
    }
    close_table(&t);
}

static void
test_reduce_scatter_of_list__reduces_the_tensor_of_each_rank(void **state)
{
    const tutti_coll_args args = {
        .kind = TUTTI_COLL_REDUCE_SCATTER, .reduce = TUTTI_REDUCE_MAX, .form = TUTTI_FORM_LIST};
    const tutti_spec specs[] = {row(3), row(0), grid(2, 5)};
    table t;
    uint32_t i;

    (void)state;
    open_table(&t, 3);
    for (i = 0; i < 3; i++) {
        give(&t, i, &args, specs, NULL, 3);
    }
    expect_known(&t);
    all_succeed(&t);
    for (i = 0; i < 3; i++) {
        assert_is(&t, i, 0, 2, i, &specs[i]);
    }
    close_table(&t);
}

static void
test_scatter_of_list__gives_each_rank_its_tensor(void **state)
{
    const tutti_coll_args args = {.kind = TUTTI_COLL_SCATTER, .root = 1, .form = TUTTI_FORM_LIST};
    const tutti_spec specs[] = {grid(2, 2), grid(2, 2), grid(2, 2)};
    table t;
    uint32_t i;

    (void)state;
    open_table(&t, 3);
    for (i = 0; i < 3; i++) {
        if (i == 1) {
            give(&t, i, &args, specs, NULL, 3);
            place(&t.parts[i], specs, 1);
            t.parts[i].run->op.output = t.parts[i].out[0].data;
        } else {
            give_nothing(&t, i, &args);
        }
    }
    all_succeed(&t);
    for (i = 0; i < 3; i++) {
        assert_is(&t, i, 0, 1, i, &specs[i]);
    }
    close_table(&t);
}

static void
test_list__whose_shapes_a_rank_cannot_take_fails_on_all(void **state)
{
    const tutti_coll_args args = {.kind = TUTTI_COLL_ALL_GATHER, .form = TUTTI_FORM_LIST};
    table t;
    uint32_t i;

    (void)state;
    open_table(&t, 3);
    for (i = 0; i < 3; i++) {
        give_one(&t, i, &args, row(4));
        t.parts[i].run->op.on_list = on_list;
    }
    t.parts[2].refuse = TUTTI_RESOURCE_EXHAUSTED;
    all_fail(&t, "", "no room for 3 tensors");
    close_table(&t);
}

static void
test_lists__that_are_none_are_refused(void **state)
{
    tutti_coll_tensor list[] = {{.spec = row(1)}, {.spec = row(2)}};
    tutti_coll_args args = {.kind = TUTTI_COLL_SCATTER,
                            .form = TUTTI_FORM_LIST,
                            .has_spec = true,
                            .spec = row(1),
                            .list = list,
                            .list_count = 2};
    tutti_spec *specs = NULL;
    tutti_spec spec;
    uint32_t count;
    tutti_error err;

    (void)state;
    assert_fails(tutti_coll_infer(&args, 2, 0, &spec, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "SHAPE_MISMATCH");
    assert_fails(tutti_coll_infer(&args, 3, 0, &spec, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "LIST_SIZE");
    args = (tutti_coll_args){.kind = TUTTI_COLL_ALL_GATHER, .coalesced = true};
    assert_fails(tutti_coll_infer_list(&args, 2, 0, &specs, &count, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "EMPTY_LIST");
    list[1].spec = (tutti_spec){TUTTI_DTYPE_FP32, 1, {1}};
    args = (tutti_coll_args){.kind = TUTTI_COLL_ALL_TO_ALL,
                             .form = TUTTI_FORM_LIST,
                             .has_spec = true,
                             .spec = row(1),
                             .list = list,
                             .list_count = 2};
    assert_fails(tutti_coll_infer_list(&args, 2, 0, &specs, &count, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "DTYPE_MISMATCH");
}

/* ------------------------------------------------------------------------------ what a root tells
 */

static void
test_scatter_in_splits__gives_each_rank_its_rows(void **state)
{
    static const int64_t splits[] = {1, 0, 3};
    const tutti_coll_args args = {.kind = TUTTI_COLL_SCATTER, .root = 2};
    table t;
    uint32_t at = 0;
    uint32_t i;
    int64_t k;

    (void)state;
    open_table(&t, 3);
    for (i = 0; i < 3; i++) {
        if (i == 2) {
            give_one(&t, i, &args, grid(4, 2));
            t.parts[i].run->op.args.root_splits = splits;
            t.parts[i].run->op.args.split_count = 3;
        } else {
            give_nothing(&t, i, &args);
        }
        t.parts[i].run->op.on_spec = on_spec;
    }
    all_succeed(&t);
    for (i = 0; i < 3; i++) {
        assert_int_equal(t.parts[i].out[0].spec.dims[0], splits[i]);
        for (k = 0; k < splits[i] * 2; k++, at++) {
            assert_int_equal(result(&t, i, 0, (uint64_t)k), value(2, 0, at));
        }
    }
    close_table(&t);
}

static void
test_splits__that_do_not_fit_are_refused(void **state)
{
    static const int64_t splits[] = {1, 2, -1};
    tutti_coll_args args = {.kind = TUTTI_COLL_SCATTER,
                            .has_spec = true,
                            .spec = row(3),
                            .root_splits = splits,
                            .split_count = 2};
    tutti_spec spec;
    tutti_error err;

    (void)state;
    assert_ok(tutti_coll_infer(&args, 2, 0, &spec, &err));
    assert_fails(tutti_coll_infer(&args, 3, 0, &spec, &err), TUTTI_INVALID_ARGUMENT);
    args.split_count = 3;
    assert_fails(tutti_coll_infer(&args, 3, 0, &spec, &err), TUTTI_INVALID_ARGUMENT);
    args.split_count = 2;
    args.spec = row(4);
    assert_fails(tutti_coll_infer(&args, 2, 0, &spec, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "SPLITS_MISMATCH");
}

static void
copy_meta(tutti_coll_op *op, const tutti_error *err)
{
    run *self = tutti_container_of(op, run, op);

    (void)pthread_mutex_lock(&self->lock);
    self->done = true;
    self->code = err == NULL ? TUTTI_OK : err->code;
    (void)snprintf(self->err.text, sizeof(self->err.text), "%.*s", (int)op->meta.size,
                   (const char *)op->meta.data);
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

static void
test_meta__travels_with_the_roots_tensor(void **state)
{
    static const tutti_coll_kind kinds[] = {TUTTI_COLL_BROADCAST, TUTTI_COLL_SCATTER};
    size_t c;
    uint32_t i;

    (void)state;
    for (c = 0; c < 2; c++) {
        const tutti_coll_args args = {.kind = kinds[c], .root = 1};
        table t;

        open_table(&t, 2);
        give_nothing(&t, 0, &args);
        give_one(&t, 1, &args, row(2));
        t.parts[1].run->op.args.meta = tutti_bytes_of("tape a, tape b");
        t.parts[1].run->op.on_spec = on_spec;
        for (i = 0; i < 2; i++) {
            t.parts[i].run->op.on_done = copy_meta;
        }
        all_succeed(&t);
        for (i = 0; i < 2; i++) {
            assert_string_equal(t.parts[i].run->err.text, "tape a, tape b");
        }
        close_table(&t);
    }
}

static void
test_meta__travels_with_a_tensor_that_is_sent(void **state)
{
    char large[TUTTI_COLL_META_MAX];
    const tutti_bytes metas[] = {tutti_bytes_of("FP8 scale 0.5"), {large, sizeof(large)}};
    size_t c;

    (void)state;
    memset(large, 'x', sizeof(large));
    for (c = 0; c < 4; c++) { /* who is first: the sender, the receiver */
        const tutti_coll_args out = {.kind = TUTTI_COLL_SEND, .peer = 1, .tag = 3};
        const tutti_coll_args in = {
            .kind = TUTTI_COLL_RECV, .peer = TUTTI_COLL_ANY_SOURCE, .tag = 3};
        table t;
        uint32_t i;

        open_table(&t, 2);
        give_one(&t, 0, &out, row(c < 2 ? 2 : 50000));
        t.parts[0].run->op.args.meta = metas[c % 2];
        give_nothing(&t, 1, &in);
        t.parts[1].run->op.on_done = copy_meta;
        for (i = 0; i < 2; i++) {
            const uint32_t first = (i + (uint32_t)c / 2) % 2;

            run_post(t.parts[first].run, t.w.groups[first], LONG_MS);
            (void)usleep(20000);
        }
        assert_int_equal(run_wait(t.parts[0].run), TUTTI_OK);
        assert_int_equal(run_wait(t.parts[1].run), TUTTI_OK);
        assert_memory_equal(t.parts[1].run->err.text, metas[c % 2].data, 13);
        assert_int_equal(result(&t, 1, 0, 1), value(0, 0, 1));
        close_table(&t);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coalesced_all_reduce__takes_any_shapes_in_one_op),
        cmocka_unit_test(test_coalesced_reduce_scatter__cuts_each_tensor_along_its_own_axis),
        cmocka_unit_test(test_coalesced_broadcast__tells_receivers_the_list),
        cmocka_unit_test(test_coalesced_gather__as_lists_counts_tensor_by_tensor),
        cmocka_unit_test(test_coalesced_calls__that_differ_are_refused_everywhere),
        cmocka_unit_test(test_all_gather_as_list__takes_a_shape_of_each),
        cmocka_unit_test(test_all_to_all_as_list__swaps_tensors_of_any_shape),
        cmocka_unit_test(test_reduce_scatter_of_list__reduces_the_tensor_of_each_rank),
        cmocka_unit_test(test_scatter_of_list__gives_each_rank_its_tensor),
        cmocka_unit_test(test_list__whose_shapes_a_rank_cannot_take_fails_on_all),
        cmocka_unit_test(test_lists__that_are_none_are_refused),
        cmocka_unit_test(test_scatter_in_splits__gives_each_rank_its_rows),
        cmocka_unit_test(test_splits__that_do_not_fit_are_refused),
        cmocka_unit_test(test_meta__travels_with_the_roots_tensor),
        cmocka_unit_test(test_meta__travels_with_a_tensor_that_is_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
