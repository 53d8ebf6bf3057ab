/*
 * Goal: every (op, dtype) gives the bits that are promised: at any address, for any split, in every
 * instruction set of this machine.
 * Method: a scalar reference written with other means; random bits mixed with the values at edges.
 */
#include "reduce_reference.h"

#include <math.h>

#include "support/testing.h"

#include "coll/reduce/reduce.h"
#include "coll/reduce/reduce_kernels.h"

#define ALL_DTYPES 18
#define ALL_OPS 10
#define COUNT_MAX 10000
#define ELEMENT_MAX 16
#define GUARD 64 /* bytes around an output that nobody may touch */

static uint64_t seed = 88172645463325252ULL;

static uint64_t
draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* ------------------------------------------------------------------------------------ data */

static const uint32_t fp32_edges[] = {
    0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x00000001, 0x807fffff, 0x00800000,
    0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001,
    0x33800000, 0x3f800001, 0x4b000000, 0x3f808000, 0x3f818000, 0x3f801000, 0x477ff000,
};

static const uint16_t fp16_edges[] = {
    0x0000, 0x8000, 0x3c00, 0xbc00, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00,
    0xfc00, 0x7e00, 0xfe55, 0x7c01, 0x3c01, 0x1000, 0x1400, 0x9000, 0x6800, 0x03ff,
};

static const uint16_t bf16_edges[] = {
    0x0000, 0x8000, 0x3f80, 0xbf80, 0x0001, 0x807f, 0x0080, 0x7f7f, 0xff7f, 0x7f80,
    0xff80, 0x7fc0, 0xffd5, 0x7f81, 0x3f81, 0x3b80, 0x3c00, 0xbb80, 0x4380, 0x007f,
};

static const uint64_t fp64_edges[] = {
    0x0000000000000000, 0x8000000000000000, 0x3ff0000000000000, 0xbff0000000000000,
    0x0000000000000001, 0x800fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff,
    0xffefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000,
    0xfff8123456789abc, 0x7ff0000000000001, 0x3ca0000000000000, 0x3ff0000000000001,
};

#define EDGE(edges) ((uint64_t)(edges)[draw() % COUNT_OF(edges)])

/* Integers and whatever has no edges of its own: small ones, those at the ends, any. */
static uint64_t
draw_integer(void)
{
    static const uint64_t edges[] = {
        0, 1, UINT64_MAX, INT64_MAX, 1ULL << 63, 0x7fffffff7f7f7fff, 0x8000000080008080};

    return draw() % 2 == 0 ? draw() : draw() % 2 == 0 ? draw() % 5 : EDGE(edges);
}

static uint64_t
draw_bits(tutti_dtype part)
{
    if (draw() % 3 != 0) {
        return draw_integer();
    }
    switch (part) {
    case TUTTI_DTYPE_FP16:
        return EDGE(fp16_edges);
    case TUTTI_DTYPE_BF16:
        return EDGE(bf16_edges);
    case TUTTI_DTYPE_FP32:
        return EDGE(fp32_edges);
    case TUTTI_DTYPE_FP64:
        return EDGE(fp64_edges);
    default:
        return draw_integer();
    }
}

/* Random bits make mostly huge and tiny floats, whose sums round nothing: half are near 1. */
static uint64_t
draw_near_one(tutti_dtype part)
{
    const double value = ((double)(draw() % 2000001) - 1e6) / 1e5;
    const float narrow = (float)value;
    uint64_t bits = draw_bits(part);

    switch (part) {
    case TUTTI_DTYPE_FP16:
        return (bits & 0x8fff) | 0x3000;
    case TUTTI_DTYPE_BF16:
        return (bits & 0x80ff) | 0x3f00;
    case TUTTI_DTYPE_FP32:
        memcpy(&bits, &narrow, sizeof(narrow));
        return bits;
    case TUTTI_DTYPE_FP64:
        memcpy(&bits, &value, sizeof(value));
        return bits;
    default:
        return bits;
    }
}

static tutti_dtype
part_of(tutti_dtype dtype)
{
    return dtype == TUTTI_DTYPE_COMPLEX64    ? TUTTI_DTYPE_FP32
           : dtype == TUTTI_DTYPE_COMPLEX128 ? TUTTI_DTYPE_FP64
                                             : dtype;
}

static void
fill(tutti_dtype dtype, void *array, size_t count)
{
    const tutti_dtype part = part_of(dtype);
    const size_t bytes = tutti_dtype_bytes(part);
    const size_t parts = count * tutti_dtype_bytes(dtype) / bytes;
    size_t i;

    for (i = 0; i < parts; i++) {
        const uint64_t bits = draw() % 2 == 0 ? draw_near_one(part) : draw_bits(part);

        memcpy((char *)array + i * bytes, &bits, bytes);
    }
}

static double
draw_factor(void)
{
    static const double factors[] = {0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1.0 / 3.0, 1e-40, 1e300};

    return draw() % 2 == 0 ? factors[draw() % COUNT_OF(factors)]
                           : ((double)(draw() % 2001) - 1000.0) / 700.0;
}

/* --------------------------------------------------------------------------------- a case */

typedef struct trial {
    tutti_reduce reduce;
    tutti_dtype dtype;
    size_t count;
    size_t input_count;
    const void *inputs[TUTTI_REDUCE_INPUTS_MAX];
    double factors[TUTTI_REDUCE_INPUTS_MAX];
    unsigned char *memory; /* of all inputs */
    unsigned char *wanted;
    unsigned char *output; /* room for a misaligned output and its guards */
} trial;

static const double *
factors_of(const trial *self)
{
    return self->reduce == TUTTI_REDUCE_PREMUL_SUM ? self->factors : NULL;
}

static size_t
bytes_of(const trial *self)
{
    return self->count * tutti_dtype_bytes(self->dtype);
}

static void
tell_wanted(trial *self)
{
    const reference_job job = {self->reduce, self->dtype, self->inputs, self->input_count,
                               factors_of(self)};
    size_t i;

    for (i = 0; i < self->count; i++) {
        reference_element(&job, i, self->wanted + i * tutti_dtype_bytes(self->dtype));
    }
}

/* Each input at an address of its own, mostly an odd one. */
static void
set_up(trial *self)
{
    const size_t stride = bytes_of(self) + 17;
    size_t i;

    self->memory = malloc(stride * self->input_count + 64);
    self->wanted = malloc(bytes_of(self) + 1);
    self->output = malloc(bytes_of(self) + 2 * GUARD + 64);
    assert_true(self->memory != NULL && self->wanted != NULL && self->output != NULL);
    for (i = 0; i < self->input_count; i++) {
        unsigned char *input = self->memory + i * stride;

        fill(self->dtype, input, self->count);
        self->inputs[i] = input;
        self->factors[i] = draw_factor();
    }
    tell_wanted(self);
}

static void
tear_down(trial *self)
{
    free(self->memory);
    free(self->wanted);
    free(self->output);
}

static const char *
hex_of(const unsigned char *element, size_t bytes, char text[2 * ELEMENT_MAX + 1])
{
    size_t i;

    for (i = 0; i < bytes; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", element[bytes - 1 - i]);
    }
    return text;
}

static void
assert_wanted(const trial *self, const unsigned char *output, const char *how)
{
    const size_t bytes = tutti_dtype_bytes(self->dtype);
    char got[2 * ELEMENT_MAX + 1];
    char wanted[2 * ELEMENT_MAX + 1];
    size_t at;

    for (at = 0; at < bytes_of(self); at += bytes) {
        if (memcmp(output + at, self->wanted + at, bytes) != 0) {
            fail_msg("%s of %zu %s, %zu inputs, %s: element %zu is %s, wanted %s",
                     tutti_reduce_name(self->reduce), self->count, tutti_dtype_name(self->dtype),
                     self->input_count, how, at / bytes, hex_of(output + at, bytes, got),
                     hex_of(self->wanted + at, bytes, wanted));
        }
    }
}

static void
assert_guards(const trial *self, const unsigned char *output)
{
    size_t i;

    for (i = 0; i < GUARD; i++) {
        assert_int_equal(output[-1 - (ptrdiff_t)i], 0xa5);
        assert_int_equal(output[bytes_of(self) + i], 0xa5);
    }
}

static unsigned char *
fresh_output(trial *self, size_t offset)
{
    memset(self->output, 0xa5, bytes_of(self) + 2 * GUARD + 64);
    return self->output + GUARD + offset;
}

static void
run_level(trial *self, const tutti_reduce_level *level, bool far)
{
    const bool is_complex = part_of(self->dtype) != self->dtype;
    unsigned char *output = fresh_output(self, draw() % 32);
    const tutti_reduce_job job = {
        .inputs = self->inputs,
        .input_count = self->input_count,
        .factors = factors_of(self),
        .count = is_complex ? 2 * self->count : self->count,
        .output = output,
        .far = far,
    };

    level->kernels[self->dtype][self->reduce](&job);
    assert_wanted(self, output, level->name);
    assert_guards(self, output);
}

static void
run_all(trial *self)
{
    const tutti_reduce_level *levels[TUTTI_REDUCE_LEVELS_MAX];
    const size_t level_count = tutti_reduce_levels(levels);
    unsigned char *output = fresh_output(self, draw() % 32);
    size_t i;

    tutti_reduce_run(self->reduce, self->dtype, self->inputs, self->input_count, factors_of(self),
                     self->count, output);
    assert_wanted(self, output, "through the door");
    assert_guards(self, output);
    for (i = 0; i < level_count; i++) {
        run_level(self, levels[i], false);
        run_level(self, levels[i], true);
    }
}

static void
try_case(tutti_reduce reduce, tutti_dtype dtype, size_t count, size_t input_count)
{
    static trial self;

    self = (trial){.reduce = reduce, .dtype = dtype, .count = count, .input_count = input_count};
    set_up(&self);
    run_all(&self);
    tear_down(&self);
}

#define EACH_PAIR(reduce, dtype)                                                                   \
    for ((dtype) = TUTTI_DTYPE_BOOL; (dtype) < ALL_DTYPES; (dtype)++)                              \
        for ((reduce) = TUTTI_REDUCE_SUM; (reduce) < ALL_OPS; (reduce)++)                          \
            if (reference_allows((reduce), (dtype)))

/* ---------------------------------------------------------------------------------- tests */

static void
test_reduce_check__accepts_the_table_and_nothing_else(void **state)
{
    tutti_error err;
    int dtype;
    int reduce;

    (void)state;
    for (dtype = -2; dtype < 40; dtype++) {
        for (reduce = -2; reduce < 40; reduce++) {
            const tutti_code code =
                tutti_reduce_check((tutti_reduce)reduce, (tutti_dtype)dtype, &err);

            if (dtype >= 0 && reduce >= 0 &&
                reference_allows((tutti_reduce)reduce, (tutti_dtype)dtype)) {
                assert_int_equal(code, TUTTI_OK);
            } else {
                assert_int_equal(code, TUTTI_INVALID_ARGUMENT);
            }
        }
    }
}

static void
test_reduce_check__says_what_does_not_fit(void **state)
{
    static const struct {
        tutti_reduce reduce;
        tutti_dtype dtype;
        const char *reason;
        const char *words;
    } cases[] = {
        {TUTTI_REDUCE_BAND, TUTTI_DTYPE_FP32, "BAD_REDUCE_OP", "band on FP32"},
        {TUTTI_REDUCE_AVG, TUTTI_DTYPE_BOOL, "BAD_REDUCE_OP", "avg on BOOL"},
        {TUTTI_REDUCE_MAX, TUTTI_DTYPE_COMPLEX64, "BAD_REDUCE_OP", "max on COMPLEX64"},
        {TUTTI_REDUCE_PREMUL_SUM, TUTTI_DTYPE_INT32, "BAD_REDUCE_OP", "premul_sum on INT32"},
        {TUTTI_REDUCE_NONE, TUTTI_DTYPE_INT32, "BAD_REDUCE_OP", "no reduce op is given"},
        {(tutti_reduce)77, TUTTI_DTYPE_INT32, "BAD_REDUCE_OP", "reduce op 77"},
        {TUTTI_REDUCE_SUM, TUTTI_DTYPE_FP8_E4M3, "DTYPE_UNSUPPORTED",
         "no arithmetic on FP8_E4M3: convert the tensor first"},
        {TUTTI_REDUCE_SUM, TUTTI_DTYPE_NONE, "DTYPE_UNSUPPORTED", "no arithmetic on"},
    };
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        assert_fails(tutti_reduce_check(cases[i].reduce, cases[i].dtype, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, cases[i].reason);
        assert_text_has(err.text, cases[i].words);
    }
}

static void
test_levels__have_the_same_kernels(void **state)
{
    const tutti_reduce_level *levels[TUTTI_REDUCE_LEVELS_MAX];
    const size_t level_count = tutti_reduce_levels(levels);
    tutti_dtype dtype;
    tutti_reduce reduce;
    size_t i;

    (void)state;
    assert_in_range(level_count, 1, TUTTI_REDUCE_LEVELS_MAX);
    assert_ptr_equal(levels[level_count - 1], &tutti_reduce_base);
    for (i = 0; i < level_count; i++) {
        print_message("level %s\n", levels[i]->name);
        for (dtype = 0; dtype < ALL_DTYPES; dtype++) {
            for (reduce = 0; reduce < ALL_OPS; reduce++) {
                assert_int_equal(levels[i]->kernels[dtype][reduce] != NULL,
                                 reference_allows(reduce, dtype));
            }
        }
    }
}

static void
test_reduce__of_any_count_and_few_inputs_is_as_told(void **state)
{
    static const size_t counts[] = {0,   1,   2,   3,    7,    8,    9,    15,  16,
                                    17,  31,  32,  33,   63,   64,   65,   127, 129,
                                    511, 512, 513, 1023, 1024, 1025, 2047, 2049};
    tutti_dtype dtype;
    tutti_reduce reduce;
    size_t c;
    size_t n;

    (void)state;
    EACH_PAIR(reduce, dtype)
    {
        for (c = 0; c < COUNT_OF(counts); c++) {
            for (n = 1; n <= (counts[c] <= 129 ? 9 : 5); n++) {
                try_case(reduce, dtype, counts[c], n);
            }
        }
    }
}

static void
test_reduce__of_more_than_a_block_is_as_told(void **state)
{
    static const size_t counts[] = {4095, 4096, 4097, 8193, COUNT_MAX};
    tutti_dtype dtype;
    tutti_reduce reduce;
    size_t c;

    (void)state;
    EACH_PAIR(reduce, dtype)
    {
        for (c = 0; c < COUNT_OF(counts); c++) {
            try_case(reduce, dtype, counts[c], 2 + draw() % 3);
        }
    }
}

static void
test_reduce__of_many_inputs_is_as_told(void **state)
{
    static const size_t inputs[] = {16, 17, 100, 255, 256, 257, 1000, 4095, 4096};
    tutti_dtype dtype;
    tutti_reduce reduce;
    size_t n;

    (void)state;
    EACH_PAIR(reduce, dtype)
    {
        for (n = 0; n < COUNT_OF(inputs); n++) {
            try_case(reduce, dtype, 21, inputs[n]);
        }
    }
}

/* A quotient of floats must not be rounded up where integers are cut off. */
static void
test_avg__of_integers_is_cut_off_for_every_divisor(void **state)
{
    static const tutti_dtype dtypes[] = {
        TUTTI_DTYPE_UINT8, TUTTI_DTYPE_UINT16, TUTTI_DTYPE_UINT32, TUTTI_DTYPE_UINT64,
        TUTTI_DTYPE_INT8,  TUTTI_DTYPE_INT16,  TUTTI_DTYPE_INT32,  TUTTI_DTYPE_INT64,
    };
    size_t d;
    size_t n;

    (void)state;
    for (d = 0; d < COUNT_OF(dtypes); d++) {
        for (n = 1; n <= TUTTI_REDUCE_INPUTS_MAX; n += n < 300 ? 1 : 97) {
            try_case(TUTTI_REDUCE_AVG, dtypes[d], 9, n);
        }
    }
}

static void
assert_survives(tutti_dtype dtype, tutti_reduce reduce, const double *factor)
{
    static uint16_t values[65536];
    static uint16_t results[65536];
    static uint16_t wanted;
    const void *inputs[] = {values};
    const reference_job job = {reduce, dtype, inputs, 1, factor};
    const tutti_reduce_level *levels[TUTTI_REDUCE_LEVELS_MAX];
    const size_t level_count = tutti_reduce_levels(levels);
    size_t level;
    size_t i;

    for (i = 0; i < 65536; i++) {
        values[i] = (uint16_t)i;
    }
    for (level = 0; level < level_count; level++) {
        levels[level]->kernels[dtype][reduce](
            &(tutti_reduce_job){inputs, 1, factor, 0, 65536, results, 0, false});
        for (i = 0; i < 65536; i++) {
            reference_element(&job, i, &wanted);
            if (results[i] != wanted) {
                fail_msg("%s %04zx by %g in %s is %04x, wanted %04x", tutti_dtype_name(dtype), i,
                         factor == NULL ? 1.0 : *factor, levels[level]->name, results[i], wanted);
            }
        }
    }
}

/* Every value of 16 bits, as it is and moved to where rounding ties, overflows and is subnormal. */
static void
test_halves__of_every_value_are_widened_and_rounded_right(void **state)
{
    static const double factors[] = {
        1.0,       -1.0,   0x1.004p0, 0x1.00cp0, 0x1.01p0, 0x1.03p0, 0x1.ffep0,      0x1.fep0,
        1.0 / 3.0, 0x1p-1, 0x1p-9,    0x1.8p-11, 0x1p-16,  0x1p-25,  0x1.000002p-25, 0x1.fffffep-26,
        65504.0,   0x1p15, 1e-30,     1e30,      0.0};
    size_t i;

    (void)state;
    assert_survives(TUTTI_DTYPE_FP16, TUTTI_REDUCE_SUM, NULL);
    assert_survives(TUTTI_DTYPE_BF16, TUTTI_REDUCE_SUM, NULL);
    assert_survives(TUTTI_DTYPE_FP16, TUTTI_REDUCE_MIN, NULL);
    assert_survives(TUTTI_DTYPE_BF16, TUTTI_REDUCE_MAX, NULL);
    for (i = 0; i < COUNT_OF(factors); i++) {
        assert_survives(TUTTI_DTYPE_FP16, TUTTI_REDUCE_PREMUL_SUM, &factors[i]);
        assert_survives(TUTTI_DTYPE_BF16, TUTTI_REDUCE_PREMUL_SUM, &factors[i]);
    }
}

/* Not a question to the reference but to the page that says it. */
static void
test_reduce__keeps_its_word_on_known_values(void **state)
{
    const float nan_first[] = {NAN, 1, -0.0f, 0.0f, NAN};
    const float nan_second[] = {2, NAN, 0.0f, -0.0f, NAN};
    const uint32_t max_bits[] = {0x40000000, 0x3f800000, 0, 0, 0x7fc00000};
    const uint32_t min_bits[] = {0x40000000, 0x3f800000, 0x80000000, 0x80000000, 0x7fc00000};
    const void *nans[] = {nan_first, nan_second};
    const int8_t hundreds[] = {100, -100, 1, -1};
    const int8_t others[] = {100, -100, 2, -2};
    const int8_t shares[] = {-28, 28, 1, -1};
    const void *integers[] = {hundreds, others};
    const float infinities[] = {INFINITY, INFINITY};
    const float opposites[] = {-INFINITY, 1};
    const uint32_t sums[] = {0x7fc00000, 0x7f800000};
    const void *both[] = {infinities, opposites};
    const unsigned char trues[] = {0, 1, 2, 255};
    const unsigned char ones[] = {0, 1, 1, 1};
    const void *truths[] = {trues};
    uint32_t bits[5];
    int8_t bytes[4];

    (void)state;
    tutti_reduce_run(TUTTI_REDUCE_MAX, TUTTI_DTYPE_FP32, nans, 2, NULL, 5, bits);
    assert_memory_equal(bits, max_bits, sizeof(max_bits));
    tutti_reduce_run(TUTTI_REDUCE_MIN, TUTTI_DTYPE_FP32, nans, 2, NULL, 5, bits);
    assert_memory_equal(bits, min_bits, sizeof(min_bits));
    tutti_reduce_run(TUTTI_REDUCE_AVG, TUTTI_DTYPE_INT8, integers, 2, NULL, 4, bytes);
    assert_memory_equal(bytes, shares, sizeof(shares));
    tutti_reduce_run(TUTTI_REDUCE_SUM, TUTTI_DTYPE_FP32, both, 2, NULL, 2, bits);
    assert_memory_equal(bits, sums, sizeof(sums));
    tutti_reduce_run(TUTTI_REDUCE_BAND, TUTTI_DTYPE_BOOL, truths, 1, NULL, 4, bytes);
    assert_memory_equal(bytes, ones, sizeof(ones));
}

static void
try_in_place(tutti_reduce reduce, tutti_dtype dtype, size_t count, size_t input_count)
{
    static trial self;
    size_t target;

    for (target = 0; target < input_count; target++) {
        self =
            (trial){.reduce = reduce, .dtype = dtype, .count = count, .input_count = input_count};
        set_up(&self);
        tutti_reduce_run(reduce, dtype, self.inputs, input_count, factors_of(&self), count,
                         (void *)(uintptr_t)self.inputs[target]);
        assert_wanted(&self, self.inputs[target], "in place");
        tear_down(&self);
        set_up(&self);
        tutti_reduce_run_far(reduce, dtype, self.inputs, input_count, factors_of(&self), count,
                             (void *)(uintptr_t)self.inputs[target]);
        assert_wanted(&self, self.inputs[target], "in place, from far");
        tear_down(&self);
    }
}

static void
test_reduce__into_any_of_its_inputs_is_as_told(void **state)
{
    tutti_dtype dtype;
    tutti_reduce reduce;
    size_t n;

    (void)state;
    EACH_PAIR(reduce, dtype)
    {
        for (n = 1; n <= 6; n++) {
            try_in_place(reduce, dtype, 37, n);
            try_in_place(reduce, dtype, 2500, n);
        }
    }
}

static void
test_reduce__gives_the_same_bits_for_every_split(void **state)
{
    static trial self;
    const void *pieces[5];
    tutti_dtype dtype;
    tutti_reduce reduce;
    size_t i;

    (void)state;
    EACH_PAIR(reduce, dtype)
    {
        const size_t bytes = tutti_dtype_bytes(dtype);
        size_t at = 0;
        unsigned char *output;

        self = (trial){.reduce = reduce, .dtype = dtype, .count = COUNT_MAX, .input_count = 5};
        set_up(&self);
        output = fresh_output(&self, 3);
        while (at < COUNT_MAX) {
            const size_t most = 1 + draw() % (draw() % 4 == 0 ? 3000 : 20);
            const size_t count = most < COUNT_MAX - at ? most : COUNT_MAX - at;

            for (i = 0; i < 5; i++) {
                pieces[i] = (const char *)self.inputs[i] + at * bytes;
            }
            tutti_reduce_run(reduce, dtype, pieces, 5, factors_of(&self), count,
                             output + at * bytes);
            at += count;
        }
        assert_wanted(&self, output, "in pieces");
        assert_guards(&self, output);
        tear_down(&self);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_check__accepts_the_table_and_nothing_else),
        cmocka_unit_test(test_reduce_check__says_what_does_not_fit),
        cmocka_unit_test(test_levels__have_the_same_kernels),
        cmocka_unit_test(test_reduce__of_any_count_and_few_inputs_is_as_told),
        cmocka_unit_test(test_reduce__of_more_than_a_block_is_as_told),
        cmocka_unit_test(test_reduce__of_many_inputs_is_as_told),
        cmocka_unit_test(test_avg__of_integers_is_cut_off_for_every_divisor),
        cmocka_unit_test(test_halves__of_every_value_are_widened_and_rounded_right),
        cmocka_unit_test(test_reduce__keeps_its_word_on_known_values),
        cmocka_unit_test(test_reduce__into_any_of_its_inputs_is_as_told),
        cmocka_unit_test(test_reduce__gives_the_same_bits_for_every_split),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
