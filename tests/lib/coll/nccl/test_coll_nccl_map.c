/*
 * Goal: NCCL multiplies by the factor that the caller gave, as near as its type comes.
 * Method: factors whose 16-bit values are known.
 */
#include "support/testing.h"

#include <float.h>
#include <math.h>

#include "coll/nccl/map.h"

static uint16_t
half_of(ncclDataType_t type, double factor)
{
    unsigned char scalar[8];
    uint16_t half;

    tutti_nccl_scalar(type, factor, scalar);
    memcpy(&half, scalar, sizeof(half));
    return half;
}

static void
test_scalar__of_16_bits_is_rounded_once(void **state)
{
    (void)state;
    /* The middle of two halves goes to the even one, what is above it up, what is below it down. */
    assert_int_equal(half_of(ncclBfloat16, 1 + 0x1p-8), 0x3f80);
    assert_int_equal(half_of(ncclBfloat16, 1 + 0x1p-8 + 0x1p-40), 0x3f81);
    assert_int_equal(half_of(ncclBfloat16, -1 - 0x1p-8 - 0x1p-40), 0xbf81);
    assert_int_equal(half_of(ncclBfloat16, 1 + 3 * 0x1p-8 - 0x1p-40), 0x3f81);
    assert_int_equal(half_of(ncclFloat16, 1 + 0x1p-11), 0x3c00);
    assert_int_equal(half_of(ncclFloat16, 1 + 0x1p-11 + 0x1p-40), 0x3c01);
    assert_int_equal(half_of(ncclFloat16, 1 + 3 * 0x1p-11 - 0x1p-40), 0x3c01);
    assert_int_equal(half_of(ncclFloat16, 0x1p-25), 0x0000); /* subnormal */
    assert_int_equal(half_of(ncclFloat16, 0x1p-25 + 0x1p-60), 0x0001);
    assert_int_equal(half_of(ncclFloat16, 65520 - 0x1p-30), 0x7bff);
}

static void
test_scalar__has_zeros_infinities_and_no_numbers(void **state)
{
    (void)state;
    assert_int_equal(half_of(ncclBfloat16, -0.0), 0x8000);
    assert_int_equal(half_of(ncclBfloat16, (double)INFINITY), 0x7f80);
    assert_int_equal(half_of(ncclBfloat16, DBL_MAX), 0x7f80);
    assert_int_equal(half_of(ncclBfloat16, (double)NAN), 0x7fc0);
    assert_int_equal(half_of(ncclBfloat16, DBL_MIN), 0x0000);
    assert_int_equal(half_of(ncclFloat16, (double)-INFINITY), 0xfc00);
    assert_int_equal(half_of(ncclFloat16, -DBL_MAX), 0xfc00);
    assert_int_equal(half_of(ncclFloat16, 65520), 0x7c00);
    assert_int_equal(half_of(ncclFloat16, (double)NAN), 0x7e00);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalar__of_16_bits_is_rounded_once),
        cmocka_unit_test(test_scalar__has_zeros_infinities_and_no_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
