/*
 * Goal: ops fit together: what one takes apart, another one joins.
 * Method: identities on random shapes, dtypes, axes and groups, from a seed that is printed
 * and can be given, TUTTI_TEST_SEED.
 */
#include "support/testing.h"

#include <inttypes.h>

#include "coll/reduce/reduce.h"
#include "support/world.h"

#define LONG_MS 15000
#define ROUNDS 60
#define MEMBERS_MAX 8

static uint64_t first_seed;
static uint64_t seed;

/* SplitMix64: Steele, Lea, Flood 2014. */
static uint64_t
draw(void)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t
below(uint32_t limit)
{
    return (uint32_t)(draw() % limit);
}

/* A group in some order, and a tensor for each member. */
typedef struct trial {
    world w;
    uint32_t size;
    tutti_coll_group *groups[MEMBERS_MAX];
    tutti_spec spec; /* dimension `axis` can be cut into parts for all */
    uint32_t axis;
    unsigned char *data[MEMBERS_MAX];
} trial;

static void
draw_group(trial *t)
{
    uint32_t ranks[MEMBERS_MAX];
    uint32_t i;

    world_open(&t->w, WIRE, MEMBERS_MAX);
    for (i = 0; i < MEMBERS_MAX; i++) {
        ranks[i] = i;
    }
    for (i = MEMBERS_MAX - 1; i > 0; i--) {
        const uint32_t other = below(i + 1);
        const uint32_t kept = ranks[i];

        ranks[i] = ranks[other];
        ranks[other] = kept;
    }
    t->size = 1 + below(MEMBERS_MAX);
    world_group(&t->w, "some", ranks, t->size, t->groups);
}

static void
draw_tensors(trial *t)
{
    uint64_t bytes;
    uint64_t k;
    uint32_t i;

    t->spec = (tutti_spec){.dtype = (tutti_dtype)(1 + below(TUTTI_DTYPE_FP8_E5M2)),
                           .dim_count = 1 + below(4)};
    for (i = 0; i < t->spec.dim_count; i++) {
        t->spec.dims[i] = below(12) == 0 ? 0 : 1 + below(9);
    }
    t->axis = below(t->spec.dim_count);
    t->spec.dims[t->axis] *= t->size;
    bytes = tutti_spec_bytes(&t->spec);
    for (i = 0; i < t->size; i++) {
        t->data[i] = malloc(bytes + 1);
        for (k = 0; k < bytes; k++) {
            t->data[i][k] = (unsigned char)draw();
        }
    }
}

static void
end_trial(trial *t)
{
    uint32_t i;

    for (i = 0; i < t->size; i++) {
        free(t->data[i]);
    }
    world_close(&t->w);
}

/* Run an op on all members; what they get. [out, owned] ret_outputs, NULL where there is none */
static void
run_op(trial *t, tutti_coll_args args, const tutti_spec *spec, unsigned char *const *inputs,
       unsigned char **ret_outputs, tutti_spec *ret_spec)
{
    run *runs[MEMBERS_MAX];
    tutti_error err;
    uint32_t i;

    args.spec = *spec;
    for (i = 0; i < t->size; i++) {
        tutti_spec result;

        args.has_spec = true;
        if (tutti_coll_infer(&args, t->size, i, &result, &err) != TUTTI_OK) {
            fail_msg("%s", err.text);
        }
        ret_outputs[i] =
            result.dtype == TUTTI_DTYPE_NONE ? NULL : malloc(tutti_spec_bytes(&result) + 1);
        if (result.dtype != TUTTI_DTYPE_NONE) {
            *ret_spec = result;
        }
        args.has_spec = !tutti_coll_is_from_root(args.kind) || i == args.root;
        runs[i] = run_new(args.kind);
        runs[i]->op.args = args;
        runs[i]->op.input = args.has_spec ? inputs[i] : NULL;
        runs[i]->op.output = ret_outputs[i];
        run_post(runs[i], t->groups[i], LONG_MS);
    }
    for (i = 0; i < t->size; i++) {
        if (run_wait(runs[i]) != TUTTI_OK) {
            fail_msg("%s", runs[i]->err.text);
        }
        run_free(runs[i]);
    }
}

static void
free_all(const trial *t, unsigned char **outputs)
{
    uint32_t i;

    for (i = 0; i < t->size; i++) {
        free(outputs[i]);
    }
}

static void
assert_same(const trial *t, const tutti_spec *left_spec, unsigned char *const *left,
            const tutti_spec *right_spec, unsigned char *const *right)
{
    uint32_t i;

    assert_true(tutti_spec_equal(left_spec, right_spec));
    for (i = 0; i < t->size; i++) {
        assert_memory_equal(left[i], right[i], tutti_spec_bytes(left_spec));
    }
}

/* ------------------------------------------------------------------------------ identities */

static void
check_gather_of_reduce_scatter(trial *t)
{
    const tutti_coll_args cut = {
        .kind = TUTTI_COLL_REDUCE_SCATTER, .axis = t->axis, .reduce = TUTTI_REDUCE_SUM};
    const tutti_coll_args join = {.kind = TUTTI_COLL_ALL_GATHER, .axis = t->axis};
    const tutti_coll_args all = {.kind = TUTTI_COLL_ALL_REDUCE, .reduce = TUTTI_REDUCE_SUM};
    unsigned char *parts[MEMBERS_MAX];
    unsigned char *joined[MEMBERS_MAX];
    unsigned char *sums[MEMBERS_MAX];
    tutti_spec part;
    tutti_spec whole;
    tutti_spec sum;

    if (tutti_reduce_check(TUTTI_REDUCE_SUM, t->spec.dtype, NULL) != TUTTI_OK) {
        return;
    }
    run_op(t, cut, &t->spec, t->data, parts, &part);
    run_op(t, join, &part, parts, joined, &whole);
    run_op(t, all, &t->spec, t->data, sums, &sum);
    assert_same(t, &whole, joined, &sum, sums);
    free_all(t, parts);
    free_all(t, joined);
    free_all(t, sums);
}

static void
check_gather_of_scatter(trial *t)
{
    const uint32_t root = below(t->size);
    const tutti_coll_args cut = {.kind = TUTTI_COLL_SCATTER, .axis = t->axis, .root = root};
    const tutti_coll_args join = {.kind = TUTTI_COLL_GATHER, .axis = t->axis, .root = root};
    unsigned char *parts[MEMBERS_MAX];
    unsigned char *joined[MEMBERS_MAX];
    tutti_spec part;
    tutti_spec whole;

    run_op(t, cut, &t->spec, t->data, parts, &part);
    run_op(t, join, &part, parts, joined, &whole);
    assert_true(tutti_spec_equal(&whole, &t->spec));
    assert_memory_equal(joined[root], t->data[root], tutti_spec_bytes(&whole));
    free_all(t, parts);
    free_all(t, joined);
}

/* Back the other way: what was joined along `to` is cut there, and joined where it was cut. */
static void
check_all_to_all_and_back(trial *t)
{
    const uint32_t to = below(t->spec.dim_count);
    const tutti_coll_args there = {
        .kind = TUTTI_COLL_ALL_TO_ALL, .axis = t->axis, .concat_axis = to};
    const tutti_coll_args back = {
        .kind = TUTTI_COLL_ALL_TO_ALL, .axis = to, .concat_axis = t->axis};
    unsigned char *away[MEMBERS_MAX];
    unsigned char *home[MEMBERS_MAX];
    tutti_spec moved;
    tutti_spec again;

    run_op(t, there, &t->spec, t->data, away, &moved);
    run_op(t, back, &moved, away, home, &again);
    assert_same(t, &again, home, &t->spec, t->data);
    free_all(t, away);
    free_all(t, home);
}

static void
check_permute_and_back(trial *t)
{
    uint32_t to[MEMBERS_MAX];
    uint32_t from[MEMBERS_MAX];
    const uint32_t shift = below(t->size);
    const tutti_coll_args there = {.kind = TUTTI_COLL_PERMUTE, .to = to, .to_count = t->size};
    const tutti_coll_args back = {.kind = TUTTI_COLL_PERMUTE, .to = from, .to_count = t->size};
    unsigned char *away[MEMBERS_MAX];
    unsigned char *home[MEMBERS_MAX];
    tutti_spec spec;
    uint32_t i;

    for (i = 0; i < t->size; i++) {
        to[i] = (i + shift) % t->size;
        from[to[i]] = i;
    }
    run_op(t, there, &t->spec, t->data, away, &spec);
    run_op(t, back, &spec, away, home, &spec);
    assert_same(t, &spec, home, &t->spec, t->data);
    free_all(t, away);
    free_all(t, home);
}

static void
repeat(void (*check)(trial *t))
{
    int round;

    seed = first_seed;
    for (round = 0; round < ROUNDS; round++) {
        trial t = {0};

        draw_group(&t);
        draw_tensors(&t);
        check(&t);
        end_trial(&t);
    }
}

static void
test_all_gather_of_reduce_scatter__is_all_reduce(void **state)
{
    (void)state;
    repeat(check_gather_of_reduce_scatter);
}

static void
test_gather_of_scatter__is_what_was_scattered(void **state)
{
    (void)state;
    repeat(check_gather_of_scatter);
}

static void
test_all_to_all__and_back_is_what_was_there(void **state)
{
    (void)state;
    repeat(check_all_to_all_and_back);
}

static void
test_permute__and_back_is_what_was_there(void **state)
{
    (void)state;
    repeat(check_permute_and_back);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_gather_of_reduce_scatter__is_all_reduce),
        cmocka_unit_test(test_gather_of_scatter__is_what_was_scattered),
        cmocka_unit_test(test_all_to_all__and_back_is_what_was_there),
        cmocka_unit_test(test_permute__and_back_is_what_was_there),
    };
    const char *text = getenv("TUTTI_TEST_SEED");

    first_seed = text != NULL ? strtoull(text, NULL, 10) : 20261121;
    print_message("TUTTI_TEST_SEED=%" PRIu64 "\n", first_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
