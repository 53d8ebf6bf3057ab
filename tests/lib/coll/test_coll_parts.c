/*
 * Goal: ops that cut tensors into parts and join parts give every rank the right elements, on every
 * transport, for every number of ranks, form and axis.
 * Method: elements are numbers that say whose they are; results are compared element by element
 * with what indices alone say.
 */
#include "support/testing.h"

#include "coll/reduce/reduce.h"
#include "support/world.h"

#define LONG_MS 15000
#define DIMS 3

static const uint32_t sizes[] = {1, 2, 3, 5, 8};

/* Of all ranks: what they give and get. */
typedef struct table {
    world w;
    run *runs[WORLD_MAX];
    int32_t *inputs[WORLD_MAX];
    int32_t *outputs[WORLD_MAX];
    tutti_spec results[WORLD_MAX];
} table;

static tutti_spec
spec_of(int64_t a, int64_t b, int64_t c)
{
    return (tutti_spec){TUTTI_DTYPE_INT32, DIMS, {a, b, c}};
}

/* Element `at` of rank i's input. */
static int32_t
value(uint32_t i, uint64_t at)
{
    return (int32_t)(i * 1000003u + (uint32_t)at * 7u + 1u);
}

static void
give(table *t, tutti_coll_kind kind, const tutti_coll_args *args, const tutti_spec *spec)
{
    const uint64_t count = tutti_spec_count(spec);
    const bool from_root = tutti_coll_is_from_root(kind);
    uint32_t i;
    uint64_t k;

    for (i = 0; i < t->w.size; i++) {
        run *one = t->runs[i] = run_new(kind);
        tutti_coll_args full = *args;
        tutti_error err;

        full.kind = kind;
        full.has_spec = true;
        full.spec = *spec;
        if (tutti_coll_infer(&full, t->w.size, i, &t->results[i], &err) != TUTTI_OK) {
            fail_msg("%s", err.text);
        }
        t->inputs[i] = malloc(count * 4 + 4);
        for (k = 0; k < count; k++) {
            t->inputs[i][k] = value(i, k);
        }
        full.has_spec = !from_root || i == args->root;
        one->op.args = full;
        one->op.input = full.has_spec ? t->inputs[i] : NULL;
        t->outputs[i] = t->results[i].dtype == TUTTI_DTYPE_NONE
                            ? NULL
                            : calloc(tutti_spec_count(&t->results[i]) + 1, 4);
        one->op.output = t->outputs[i];
    }
}

static void
run_all(table *t)
{
    uint32_t i;

    for (i = 0; i < t->w.size; i++) {
        run_post(t->runs[i], t->w.groups[i], LONG_MS);
    }
    for (i = 0; i < t->w.size; i++) {
        if (run_wait(t->runs[i]) != TUTTI_OK) {
            fail_msg("%s", t->runs[i]->err.text);
        }
    }
}

static void
take_back(table *t)
{
    uint32_t i;

    for (i = 0; i < t->w.size; i++) {
        run_free(t->runs[i]);
        free(t->inputs[i]);
        free(t->outputs[i]);
    }
}

/* ------------------------------------------------------------------------------ by indices */

static void
index_of(const tutti_spec *spec, uint64_t at, int64_t *ret_index)
{
    uint32_t d;

    for (d = spec->dim_count; d-- > 0;) {
        ret_index[d] = (int64_t)at % spec->dims[d];
        at /= (uint64_t)spec->dims[d];
    }
}

static uint64_t
place_of(const tutti_spec *spec, const int64_t *index)
{
    uint64_t at = 0;
    uint32_t d;

    for (d = 0; d < spec->dim_count; d++) {
        at = at * (uint64_t)spec->dims[d] + (uint64_t)index[d];
    }
    return at;
}

/* Where element `at` of part `i` stands in the whole. */
static uint64_t
whole_of(const tutti_coll_args *args, const tutti_spec *whole, const tutti_spec *part, uint32_t i,
         uint64_t at)
{
    int64_t index[TUTTI_DIMS_MAX];
    uint32_t d;

    if (args->form == TUTTI_FORM_FLAT) {
        return i * tutti_spec_count(part) + at;
    }
    index_of(part, at, index);
    if (args->form == TUTTI_FORM_STACK) {
        for (d = part->dim_count; d > args->axis; d--) {
            index[d] = index[d - 1];
        }
        index[args->axis] = i;
    } else {
        index[args->axis] += (int64_t)i * part->dims[args->axis];
    }
    return place_of(whole, index);
}

/* ------------------------------------------------------------------------------ the ops */

static void
check_gather(world *w, const tutti_coll_args *args, tutti_spec spec)
{
    table t = {.w = *w};
    uint32_t i;
    uint64_t k;

    give(&t, TUTTI_COLL_GATHER, args, &spec);
    run_all(&t);
    for (i = 0; i < w->size; i++) {
        assert_int_equal(t.outputs[i] == NULL, i != args->root);
        for (k = 0; k < tutti_spec_count(&spec); k++) {
            assert_int_equal(
                t.outputs[args->root][whole_of(args, &t.results[args->root], &spec, i, k)],
                value(i, k));
        }
    }
    take_back(&t);
}

static void
check_scatter(world *w, const tutti_coll_args *args, tutti_spec spec)
{
    table t = {.w = *w};
    uint32_t i;
    uint64_t k;

    give(&t, TUTTI_COLL_SCATTER, args, &spec);
    run_all(&t);
    for (i = 0; i < w->size; i++) {
        assert_true(i == args->root || tutti_spec_equal(&t.runs[i]->spec, &t.results[i]));
        for (k = 0; k < tutti_spec_count(&t.results[i]); k++) {
            assert_int_equal(t.outputs[i][k],
                             value(args->root, whole_of(args, &spec, &t.results[i], i, k)));
        }
    }
    take_back(&t);
}

static void
check_reduce_scatter(world *w, const tutti_coll_args *args, tutti_spec spec)
{
    table t = {.w = *w};
    uint32_t i;
    uint32_t j;
    uint64_t k;

    give(&t, TUTTI_COLL_REDUCE_SCATTER, args, &spec);
    run_all(&t);
    for (i = 0; i < w->size; i++) {
        for (k = 0; k < tutti_spec_count(&t.results[i]); k++) {
            uint32_t sum = 0;

            for (j = 0; j < w->size; j++) {
                sum += (uint32_t)value(j, whole_of(args, &spec, &t.results[i], i, k));
            }
            assert_int_equal((uint32_t)t.outputs[i][k], sum);
        }
    }
    take_back(&t);
}

static void
check_reduce(world *w, uint32_t root, int64_t count, bool in_place)
{
    const tutti_coll_args args = {.reduce = TUTTI_REDUCE_SUM, .root = root};
    const tutti_spec spec = {TUTTI_DTYPE_INT32, 1, {count}};
    table t = {.w = *w};
    uint32_t j;
    int64_t k;

    give(&t, TUTTI_COLL_REDUCE, &args, &spec);
    if (in_place) {
        t.runs[root]->op.output = t.inputs[root];
    }
    run_all(&t);
    for (k = 0; k < count; k++) {
        uint32_t sum = 0;

        for (j = 0; j < w->size; j++) {
            sum += (uint32_t)value(j, (uint64_t)k);
        }
        assert_int_equal((uint32_t)(in_place ? t.inputs : t.outputs)[root][k], sum);
    }
    take_back(&t);
}

static void
check_all_to_all(world *w, uint32_t split, uint32_t join, tutti_spec spec, bool in_place)
{
    const tutti_coll_args args = {.axis = split, .concat_axis = join};
    const tutti_coll_args joined = {.axis = join};
    const uint32_t size = w->size;
    tutti_spec part = spec;
    table t = {.w = *w};
    uint32_t i;
    uint32_t j;
    uint64_t k;

    part.dims[split] /= size;
    give(&t, TUTTI_COLL_ALL_TO_ALL, &args, &spec);
    for (i = 0; i < size && in_place; i++) {
        t.runs[i]->op.output = t.inputs[i];
    }
    run_all(&t);
    for (i = 0; i < size; i++) {
        const int32_t *got = (in_place ? t.inputs : t.outputs)[i];

        for (j = 0; j < size; j++) {
            for (k = 0; k < tutti_spec_count(&part); k++) {
                assert_int_equal(got[whole_of(&joined, &t.results[i], &part, j, k)],
                                 value(j, whole_of(&args, &spec, &part, i, k)));
            }
        }
    }
    take_back(&t);
}

static void
check_permute(world *w, const uint32_t *to, int64_t count, bool in_place)
{
    const tutti_coll_args args = {.to = to, .to_count = w->size};
    const tutti_spec spec = {TUTTI_DTYPE_INT32, 1, {count}};
    table t = {.w = *w};
    uint32_t i;
    int64_t k;

    give(&t, TUTTI_COLL_PERMUTE, &args, &spec);
    for (i = 0; i < w->size && in_place; i++) {
        t.runs[i]->op.output = t.inputs[i];
    }
    run_all(&t);
    for (i = 0; i < w->size; i++) {
        for (k = 0; k < count; k++) {
            assert_int_equal((in_place ? t.inputs : t.outputs)[to[i]][k], value(i, (uint64_t)k));
        }
    }
    take_back(&t);
}

/* ------------------------------------------------------------------------------ sentences */

static void
test_gather_and_scatter__go_to_and_from_any_root_in_any_form(void **state)
{
    world w;
    size_t s;
    uint32_t axis;

    (void)state;
    for (s = 0; s < COUNT_OF(sizes); s++) {
        const int64_t n = sizes[s];

        world_open(&w, WIRE, sizes[s]);
        for (axis = 0; axis < DIMS; axis++) {
            tutti_coll_args args = {.axis = axis, .root = axis % sizes[s]};
            tutti_spec whole = spec_of(3, 4, 5);
            tutti_spec stacked = spec_of(3, 4, 5);

            whole.dims[axis] *= n;
            stacked.dims[axis] = n;
            check_gather(&w, &args, spec_of(2, 3, 4));
            check_scatter(&w, &args, whole);
            check_scatter(&w, &args, (tutti_spec){TUTTI_DTYPE_INT32, 3, {0, 0, 0}});
            args.form = TUTTI_FORM_STACK;
            check_gather(&w, &args, spec_of(2, 3, 4));
            check_scatter(&w, &args, stacked);
            args.form = TUTTI_FORM_FLAT;
            check_gather(&w, &args, spec_of(2, 3, 4));
            check_scatter(&w, &args, spec_of(2, 3, 5 * n));
        }
        check_gather(&w, &(tutti_coll_args){.axis = 1}, spec_of(3, 100001, 1));
        check_scatter(&w, &(tutti_coll_args){.axis = 1}, spec_of(3, 100001 * n, 1));
        if (n == 3) { /* where a root and the others share the copying: from there on, and huge */
            check_gather(&w, &(tutti_coll_args){.root = 2}, spec_of(4, 1024, 4));
            check_scatter(&w, &(tutti_coll_args){.root = 2}, spec_of(12, 1024, 4));
            check_gather(&w, &(tutti_coll_args){.axis = 1}, spec_of(3, 500001, 1));
            check_scatter(&w, &(tutti_coll_args){.axis = 1}, spec_of(3, 500001 * n, 1));
        }
        world_close(&w);
    }
}

static void
test_scatter__keeps_the_shape_of_a_flat_tensor(void **state)
{
    tutti_coll_args args = {.form = TUTTI_FORM_FLAT, .keep_shape = true, .root = 1};
    world w;
    table t;

    (void)state;
    world_open(&w, WIRE, 3);
    check_scatter(&w, &args, spec_of(6, 4, 5));
    check_scatter(&w, &args, spec_of(3, 4, 5));
    t = (table){.w = w};
    give(&t, TUTTI_COLL_SCATTER, &args, &(tutti_spec){TUTTI_DTYPE_INT32, 2, {6, 4}});
    run_all(&t);
    assert_true(tutti_spec_equal(&t.results[0], &(tutti_spec){TUTTI_DTYPE_INT32, 2, {2, 4}}));
    take_back(&t);
    t = (table){.w = w};
    give(&t, TUTTI_COLL_SCATTER, &args, &(tutti_spec){TUTTI_DTYPE_INT32, 2, {3, 4}});
    run_all(&t);
    assert_true(tutti_spec_equal(&t.results[2], &(tutti_spec){TUTTI_DTYPE_INT32, 1, {4}}));
    take_back(&t);
    world_close(&w);
}

static void
test_reduce__gives_the_root_alone_the_result(void **state)
{
    static const int64_t counts[] = {0, 1, 77, 300001};
    world w;
    size_t s;
    size_t c;

    (void)state;
    for (s = 0; s < COUNT_OF(sizes); s++) {
        world_open(&w, WIRE, sizes[s]);
        for (c = 0; c < COUNT_OF(counts); c++) {
            check_reduce(&w, (uint32_t)c % sizes[s], counts[c], c % 2 == 1);
        }
        world_close(&w);
    }
}

static void
test_reduce_scatter__gives_each_its_part_in_any_form(void **state)
{
    world w;
    size_t s;
    uint32_t axis;

    (void)state;
    for (s = 0; s < COUNT_OF(sizes); s++) {
        const int64_t n = sizes[s];

        world_open(&w, WIRE, sizes[s]);
        for (axis = 0; axis < DIMS; axis++) {
            tutti_coll_args args = {.axis = axis, .reduce = TUTTI_REDUCE_SUM};
            tutti_spec whole = spec_of(2, 3, 4);
            tutti_spec stacked = spec_of(2, 3, 4);

            whole.dims[axis] *= n;
            stacked.dims[axis] = n;
            check_reduce_scatter(&w, &args, whole);
            args.form = TUTTI_FORM_STACK;
            check_reduce_scatter(&w, &args, stacked);
        }
        check_reduce_scatter(&w, &(tutti_coll_args){.axis = 1, .reduce = TUTTI_REDUCE_SUM},
                             spec_of(2, 90001 * n, 2));
        world_close(&w);
    }
}

static void
test_all_to_all__cuts_and_joins_along_any_axes(void **state)
{
    world w;
    size_t s;
    uint32_t split;
    uint32_t join;

    (void)state;
    for (s = 0; s < COUNT_OF(sizes); s++) {
        const int64_t n = sizes[s];

        world_open(&w, WIRE, sizes[s]);
        for (split = 0; split < DIMS; split++) {
            for (join = 0; join < DIMS; join++) {
                tutti_spec spec = spec_of(2, 3, 4);

                spec.dims[split] *= n;
                check_all_to_all(&w, split, join, spec, false);
                check_all_to_all(&w, split, join, spec, true);
            }
        }
        check_all_to_all(&w, 0, 1, spec_of(n, 3, 90001), false);
        check_all_to_all(&w, 1, 1, spec_of(2, n, 90001), true);
        world_close(&w);
    }
}

/* Rows from rank i to rank j, `most` at most; `none` neither sends nor gets any. */
static int64_t
rows_between(uint32_t i, uint32_t j, int64_t most, uint32_t none)
{
    return i == none || j == none ? 0 : most * (i + 2 * j + 1) / (3 * WORLD_MAX);
}

static void
check_rows(const run *one, uint32_t j, int64_t most, uint32_t none, uint32_t size)
{
    const int32_t *at = one->op.output;
    int64_t k;
    uint32_t i;

    for (i = 0; i < size; i++) {
        for (k = 0; k < rows_between(i, j, most, none); k++) {
            assert_int_equal(*at++, (int32_t)(i * 100 + j));
        }
    }
}

/* Each rank's memory holds what it sends, to whom and from whom. */
static void
check_splits(const world *w, int64_t most, uint32_t none)
{
    int64_t splits[2][WORLD_MAX][WORLD_MAX];
    run *runs[WORLD_MAX];
    uint32_t i;
    uint32_t j;

    for (i = 0; i < w->size; i++) {
        const size_t bytes = (size_t)(most + 1) * w->size * 4;
        int64_t count = 0;
        int32_t *input = malloc(bytes);

        for (j = 0; j < w->size; j++) {
            int64_t k;

            splits[0][i][j] = rows_between(i, j, most, none);
            splits[1][i][j] = rows_between(j, i, most, none);
            for (k = 0; k < splits[0][i][j]; k++) {
                input[count++] = (int32_t)(i * 100 + j);
            }
        }
        runs[i] = run_new(TUTTI_COLL_ALL_TO_ALL);
        run_give(runs[i], TUTTI_DTYPE_INT32, count, input, malloc(bytes));
        runs[i]->op.args.has_splits = true;
        runs[i]->op.args.send_splits = splits[0][i];
        runs[i]->op.args.recv_splits = splits[1][i];
        runs[i]->op.args.split_count = w->size;
        run_post(runs[i], w->groups[i], LONG_MS);
    }
    for (i = 0; i < w->size; i++) {
        if (run_wait(runs[i]) != TUTTI_OK) {
            fail_msg("%s", runs[i]->err.text);
        }
        check_rows(runs[i], i, most, none, w->size);
        free((void *)(uintptr_t)runs[i]->op.input);
        free(runs[i]->op.output);
        run_free(runs[i]);
    }
}

/* Also as the first op of its group, in which more is told than the tensors. */
static void
test_all_to_all__with_splits_waits_for_nobody_who_has_nothing(void **state)
{
    static const int64_t rows[] = {1, WORLD_MAX * 3, 3000, 90001};
    size_t s;
    size_t r;

    (void)state;
    for (s = 0; s < COUNT_OF(sizes); s++) {
        for (r = 0; r < COUNT_OF(rows); r++) {
            world w;

            world_open(&w, WIRE, sizes[s]);
            check_splits(&w, rows[r], (uint32_t)r % sizes[s]);
            check_splits(&w, rows[r], WORLD_MAX);
            world_close(&w);
        }
    }
}

static void
test_permute__is_a_bijection_in_place_or_not(void **state)
{
    uint32_t to[WORLD_MAX];
    world w;
    size_t s;
    uint32_t i;

    (void)state;
    for (s = 0; s < COUNT_OF(sizes); s++) {
        world_open(&w, WIRE, sizes[s]);
        for (i = 0; i < sizes[s]; i++) {
            to[i] = (i + 1) % sizes[s];
        }
        check_permute(&w, to, 17, false);
        check_permute(&w, to, 300001, true);
        for (i = 0; i < sizes[s]; i++) {
            to[i] = sizes[s] - 1 - i;
        }
        check_permute(&w, to, 300001, false);
        check_permute(&w, to, 5, true);
        world_close(&w);
    }
}

/* ------------------------------------------------------------------------------ what cannot be */

static void
refused(tutti_coll_args args, tutti_spec spec, const char *reason)
{
    tutti_spec result;
    tutti_error err;

    args.has_spec = true;
    args.spec = spec;
    if (args.kind == TUTTI_COLL_REDUCE_SCATTER || args.kind == TUTTI_COLL_REDUCE) {
        args.reduce = TUTTI_REDUCE_SUM;
    }
    assert_fails(tutti_coll_infer(&args, 2, 0, &result, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, reason);
}

static void
test_infer__names_what_cannot_be(void **state)
{
    static const uint32_t twice[] = {1, 1};
    static const uint32_t far[] = {0, 2};
    static const tutti_coll_kind cuts[] = {TUTTI_COLL_SCATTER, TUTTI_COLL_REDUCE_SCATTER,
                                           TUTTI_COLL_ALL_TO_ALL};
    const tutti_spec scalar = {.dtype = TUTTI_DTYPE_INT32};
    const tutti_spec shape = {TUTTI_DTYPE_INT32, 1, {5}};
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cuts); i++) {
        refused((tutti_coll_args){.kind = cuts[i]}, spec_of(3, 2, 2), "INDIVISIBLE");
        refused((tutti_coll_args){.kind = cuts[i]}, scalar, "SCALAR_INPUT");
        refused((tutti_coll_args){.kind = cuts[i], .axis = 3}, spec_of(2, 2, 2), "BAD_AXIS");
    }
    refused((tutti_coll_args){.kind = TUTTI_COLL_SCATTER, .form = TUTTI_FORM_STACK},
            spec_of(4, 2, 2), "INDIVISIBLE");
    refused((tutti_coll_args){.kind = TUTTI_COLL_GATHER, .axis = 3}, spec_of(2, 2, 2), "BAD_AXIS");
    refused((tutti_coll_args){.kind = TUTTI_COLL_GATHER, .form = TUTTI_FORM_FLAT, .flat = &shape},
            spec_of(2, 1, 1), "OUT_SHAPE");
    refused((tutti_coll_args){.kind = TUTTI_COLL_REDUCE, .root = 2}, spec_of(2, 1, 1), "BAD_ROOT");
    refused((tutti_coll_args){.kind = TUTTI_COLL_PERMUTE, .to = twice, .to_count = 2},
            spec_of(2, 1, 1), "BAD_PERMUTATION");
    refused((tutti_coll_args){.kind = TUTTI_COLL_PERMUTE, .to = far, .to_count = 2},
            spec_of(2, 1, 1), "BAD_PERMUTATION");
    refused((tutti_coll_args){.kind = TUTTI_COLL_PERMUTE, .to = far, .to_count = 1},
            spec_of(2, 1, 1), "BAD_PERMUTATION");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather_and_scatter__go_to_and_from_any_root_in_any_form),
        cmocka_unit_test(test_scatter__keeps_the_shape_of_a_flat_tensor),
        cmocka_unit_test(test_reduce__gives_the_root_alone_the_result),
        cmocka_unit_test(test_reduce_scatter__gives_each_its_part_in_any_form),
        cmocka_unit_test(test_all_to_all__cuts_and_joins_along_any_axes),
        cmocka_unit_test(test_all_to_all__with_splits_waits_for_nobody_who_has_nothing),
        cmocka_unit_test(test_permute__is_a_bijection_in_place_or_not),
        cmocka_unit_test(test_infer__names_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
