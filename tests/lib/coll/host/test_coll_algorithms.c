/*
 * Goal: every algorithm gives every rank the right elements, and all ranks the same bits, for every
 * number of ranks, dtype, reduce op and length; whatever the ranks were told, they choose alike.
 * Method: each is forced in turn. Numbers are small and whole, so that sums and products are exact
 * in any order, and results can be compared with what the inputs alone say.
 */
#include "support/testing.h"

#include "coll/reduce/reduce.h"
#include "coll/select/select.h"
#include "support/world.h"

#define LONG_MS 60000
#define SIZE_MAX_TRIED 9

/* Long tensors are slow, and the thread sanitizer ten times as slow: it looks at threads, and what
 * three take turns in, five do. */
#if defined(__SANITIZE_THREAD__)
#define LONG_FOR 3
#else
#define LONG_FOR 5
#endif

static const tutti_algorithm reducing[] = {TUTTI_ALGORITHM_FLAT,
                                           TUTTI_ALGORITHM_DIRECT,
                                           TUTTI_ALGORITHM_BRUCK,
                                           TUTTI_ALGORITHM_CHAIN,
                                           TUTTI_ALGORITHM_RECURSIVE_DOUBLING,
                                           TUTTI_ALGORITHM_RING,
                                           TUTTI_ALGORITHM_RABENSEIFNER,
                                           TUTTI_ALGORITHM_HIERARCHICAL,
                                           TUTTI_ALGORITHM_SHARED};

static void
force(tutti_selection *selection, tutti_coll_kind kind, tutti_algorithm algorithm)
{
    tutti_selection_init(selection);
    selection->forced[kind] = algorithm;
    tutti_selection_seal(selection);
}

/* A world in which all ranks have one selection, and `per_host` of them share a host. */
static void
open_forced(world *w, const tutti_selection *selection, uint32_t size, unsigned per_host)
{
    uint32_t i;

    *w = (world){.per_host = per_host};
    for (i = 0; i < size; i++) {
        w->selector[i] = selection;
    }
    world_open_with(w, WIRE, size);
}

/* ------------------------------------------------------------------------------ elements */

/* 1 or 2, as any dtype: products of nine of them fit in 16 bits, and FP16 knows them all. */
static void
fill(tutti_dtype dtype, unsigned char *data, size_t count, uint32_t rank)
{
    static const uint16_t fp16[] = {0x3c00, 0x4000};
    static const uint16_t bf16[] = {0x3f80, 0x4000};
    const size_t bytes = tutti_dtype_bytes(dtype);
    size_t i;

    memset(data, 0, count * bytes);
    for (i = 0; i < count; i++) {
        const int which = (int)((i * 7 + rank * 3 + i / 5) % 2);
        const float single = (float)(1 + which);
        const double wide = 1 + which;

        switch (dtype) {
        case TUTTI_DTYPE_FP16:
            memcpy(data + i * 2, &fp16[which], 2);
            break;
        case TUTTI_DTYPE_BF16:
            memcpy(data + i * 2, &bf16[which], 2);
            break;
        case TUTTI_DTYPE_FP32:
        case TUTTI_DTYPE_COMPLEX64:
            memcpy(data + i * bytes, &single, sizeof(single));
            break;
        case TUTTI_DTYPE_FP64:
        case TUTTI_DTYPE_COMPLEX128:
            memcpy(data + i * bytes, &wide, sizeof(wide));
            break;
        default:
            data[i * bytes] = (unsigned char)(1 + which);
            break;
        }
    }
}

/* ------------------------------------------------------------------------------ one op */

typedef struct table {
    world *w;
    tutti_coll_kind kind;
    tutti_reduce reduce;
    tutti_dtype dtype;
    size_t count; /* elements of an input */
    bool in_place;
    unsigned char *inputs[WORLD_MAX];
    unsigned char *outputs[WORLD_MAX];
    double factors[WORLD_MAX];
    run *runs[WORLD_MAX];
} table;

static void
begin(table *t)
{
    const size_t bytes = t->count * tutti_dtype_bytes(t->dtype);
    uint32_t i;

    for (i = 0; i < t->w->size; i++) {
        t->inputs[i] = malloc(bytes + 1);
        fill(t->dtype, t->inputs[i], t->count, i);
        t->outputs[i] = t->in_place ? t->inputs[i] : calloc(1, bytes + 1);
        t->factors[i] = i % 2 == 0 ? 2 : 0.5;
        t->runs[i] = run_new(t->kind);
        run_give(t->runs[i], t->dtype, (int64_t)t->count, t->inputs[i], t->outputs[i]);
        t->runs[i]->op.args.reduce = t->reduce;
        t->runs[i]->op.args.factor = t->factors[i];
        t->runs[i]->op.args.root = t->w->size / 2;
        run_post(t->runs[i], t->w->groups[i], LONG_MS);
    }
}

static unsigned char *
wanted_of(const table *t)
{
    const size_t bytes = t->count * tutti_dtype_bytes(t->dtype);
    unsigned char *wanted = malloc(bytes + 1);
    unsigned char *copies[WORLD_MAX];
    uint32_t i;

    for (i = 0; i < t->w->size; i++) {
        copies[i] = malloc(bytes + 1);
        fill(t->dtype, copies[i], t->count, i);
    }
    tutti_reduce_run(t->reduce, t->dtype, (const void *const *)copies, t->w->size,
                     t->reduce == TUTTI_REDUCE_PREMUL_SUM ? t->factors : NULL, t->count, wanted);
    for (i = 0; i < t->w->size; i++) {
        free(copies[i]);
    }
    return wanted;
}

/* What of the whole a rank must have. */
static void
compare(const table *t, uint32_t i, const unsigned char *wanted)
{
    const size_t whole = t->count * tutti_dtype_bytes(t->dtype);
    const bool cuts = t->kind == TUTTI_COLL_REDUCE_SCATTER;
    const size_t bytes = cuts ? whole / t->w->size : whole;
    const tutti_selection *selection = t->w->selector[i];

    if (t->kind == TUTTI_COLL_REDUCE && i != t->w->size / 2) {
        return;
    }
    if (memcmp(t->outputs[i], wanted + (cuts ? bytes * i : 0), bytes) != 0) {
        fail_msg("%s by %s of %zu %s, %s, is wrong on rank %u of %u", tutti_coll_kind_name(t->kind),
                 selection == NULL ? "any" : tutti_algorithm_name(selection->forced[t->kind]),
                 t->count, tutti_dtype_name(t->dtype), tutti_reduce_name(t->reduce), i, t->w->size);
    }
}

static void
check(world *w, tutti_coll_kind kind, tutti_reduce reduce, tutti_dtype dtype, size_t count)
{
    table t = {.w = w,
               .kind = kind,
               .reduce = reduce,
               .dtype = dtype,
               .count = count,
               .in_place = kind == TUTTI_COLL_ALL_REDUCE && count % 2 == 1};
    unsigned char *wanted;
    uint32_t i;

    begin(&t);
    wanted = wanted_of(&t);
    for (i = 0; i < w->size; i++) {
        if (run_wait(t.runs[i]) != TUTTI_OK) {
            fail_msg("%s", t.runs[i]->err.text);
        }
        compare(&t, i, wanted);
        run_free(t.runs[i]);
    }
    for (i = 0; i < w->size; i++) {
        free(t.inputs[i]);
        if (!t.in_place) {
            free(t.outputs[i]);
        }
    }
    free(wanted);
}

/* ------------------------------------------------------------------------------ all of them */

static void
check_lengths(tutti_coll_kind kind, tutti_algorithm algorithm, uint32_t size, unsigned per_host)
{
    static const size_t counts[] = {0, 1, 3, 17, 1000, 16384, 65537, 262144, 600001};
    const size_t step = kind == TUTTI_COLL_REDUCE_SCATTER ? size : 1;
    tutti_selection selection;
    world w;
    size_t c;

    force(&selection, kind, algorithm);
    open_forced(&w, &selection, size, per_host);
    for (c = 0; c < COUNT_OF(counts) - (size > LONG_FOR ? 2 : 0); c++) {
        const size_t count = counts[c] / step * step;

        check(&w, kind, TUTTI_REDUCE_SUM, TUTTI_DTYPE_INT32, count);
        if (c < 5) {
            check(&w, kind, TUTTI_REDUCE_AVG, TUTTI_DTYPE_FP32, count);
            check(&w, kind, TUTTI_REDUCE_PREMUL_SUM, TUTTI_DTYPE_FP64, count);
        }
    }
    world_close(&w);
}

static void
test_all_reduce__by_any_algorithm_is_right_for_any_length_and_world(void **state)
{
    uint32_t size;
    size_t a;

    (void)state;
    for (size = 1; size <= SIZE_MAX_TRIED; size++) {
        for (a = 0; a < COUNT_OF(reducing); a++) {
            check_lengths(TUTTI_COLL_ALL_REDUCE, reducing[a], size, 0);
        }
    }
}

static void
test_all_reduce__by_hosts_is_right_however_ranks_are_spread(void **state)
{
    static const struct {
        uint32_t size;
        unsigned per_host;
    } spreads[] = {{3, 2}, {4, 2}, {5, 2}, {6, 3}, {7, 3}, {8, 4}, {9, 3}, {9, 4}};
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(spreads); i++) {
        check_lengths(TUTTI_COLL_ALL_REDUCE, TUTTI_ALGORITHM_HIERARCHICAL, spreads[i].size,
                      spreads[i].per_host);
    }
}

static void
test_reduce__by_any_algorithm_is_right_for_any_length_and_world(void **state)
{
    static const tutti_algorithm trees[] = {TUTTI_ALGORITHM_DIRECT, TUTTI_ALGORITHM_BINOMIAL,
                                            TUTTI_ALGORITHM_CHAIN};
    static const tutti_algorithm cuts[] = {TUTTI_ALGORITHM_DIRECT, TUTTI_ALGORITHM_PAIRWISE,
                                           TUTTI_ALGORITHM_RING, TUTTI_ALGORITHM_RECURSIVE_HALVING};
    uint32_t size;
    size_t a;

    (void)state;
    for (size = 1; size <= SIZE_MAX_TRIED; size++) {
        for (a = 0; a < COUNT_OF(trees); a++) {
            check_lengths(TUTTI_COLL_REDUCE, trees[a], size, 0);
        }
        for (a = 0; a < COUNT_OF(cuts); a++) {
            check_lengths(TUTTI_COLL_REDUCE_SCATTER, cuts[a], size, 0);
        }
    }
}

static void
test_all_reduce__by_any_algorithm_knows_every_reduce_op_and_dtype(void **state)
{
    size_t a;
    int reduce;
    int dtype;

    (void)state;
    for (a = 0; a < COUNT_OF(reducing); a++) {
        tutti_selection selection;
        world w;

        force(&selection, TUTTI_COLL_ALL_REDUCE, reducing[a]);
        open_forced(&w, &selection, 5, 2);
        for (reduce = 1; reduce <= TUTTI_REDUCE_PREMUL_SUM; reduce++) {
            for (dtype = 1; dtype <= TUTTI_DTYPE_FP8_E5M2; dtype++) {
                if (tutti_reduce_check((tutti_reduce)reduce, (tutti_dtype)dtype, NULL) ==
                    TUTTI_OK) {
                    check(&w, TUTTI_COLL_ALL_REDUCE, (tutti_reduce)reduce, (tutti_dtype)dtype, 33);
                    check(&w, TUTTI_COLL_ALL_REDUCE, (tutti_reduce)reduce, (tutti_dtype)dtype,
                          9002);
                }
            }
        }
        world_close(&w);
    }
}

/* ------------------------------------------------------------------------------ agreement */

/* Ranks that were told different things: nobody waits for a message that does not come. */
static void
test_all_reduce__of_ranks_with_different_choices_is_right_all_the_same(void **state)
{
    tutti_selection selector[COUNT_OF(reducing)];
    world w = {.per_host = 2};
    size_t a;
    int k;

    (void)state;
    for (a = 0; a < COUNT_OF(reducing); a++) {
        force(&selector[a], TUTTI_COLL_ALL_REDUCE, reducing[a]);
        w.selector[a] = a == 0 ? NULL : &selector[a];
    }
    world_open_with(&w, WIRE, COUNT_OF(reducing));
    for (k = 0; k < 3; k++) {
        check(&w, TUTTI_COLL_ALL_REDUCE, TUTTI_REDUCE_SUM, TUTTI_DTYPE_FP32, 5);
        check(&w, TUTTI_COLL_ALL_REDUCE, TUTTI_REDUCE_SUM, TUTTI_DTYPE_INT64, 70001);
    }
    world_close(&w);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce__by_any_algorithm_is_right_for_any_length_and_world),
        cmocka_unit_test(test_all_reduce__by_hosts_is_right_however_ranks_are_spread),
        cmocka_unit_test(test_reduce__by_any_algorithm_is_right_for_any_length_and_world),
        cmocka_unit_test(test_all_reduce__by_any_algorithm_knows_every_reduce_op_and_dtype),
        cmocka_unit_test(test_all_reduce__of_ranks_with_different_choices_is_right_all_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
