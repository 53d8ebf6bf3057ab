/*
 * Goal: .safetensors files are read as their format says, or refused with what is wrong; written
 * ones have each tensor aligned and none twice.
 * Method: headers in tables, in memory of exactly their size. tests/system/test_cli_safetensors.py
 * asks the agents, and the safetensors package where it is there.
 */
#include "support/testing.h"

#include <unistd.h>

#include "client/cli/safetensors/safetensors.h"

/* [out, owned] all bytes of a file */
static unsigned char *
make_file(const char *header, size_t data_size, size_t *ret_size)
{
    const size_t header_size = strlen(header);
    unsigned char *bytes = calloc(1, 8 + header_size + data_size);

    assert_non_null(bytes);
    bytes[0] = (unsigned char)(header_size & 0xff);
    bytes[1] = (unsigned char)(header_size >> 8);
    memcpy(bytes + 8, header, header_size);
    *ret_size = 8 + header_size + data_size;
    return bytes;
}

#define ENTRY(dtype, shape, first, end)                                                            \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #first "," #end "]}"

static void
test_parse__finds_each_tensor(void **state)
{
    size_t size;
    unsigned char *bytes = make_file(
        "{\"b\":" ENTRY("BF16", "[2,0,3]", 12, 12) ",\"a\":" ENTRY(
            "F32", "[3]", 0, 12) ",\"__metadata__\":{\"k\":\"v\"},\"c\":" ENTRY("F8_E4M3", "[]", 12,
                                                                                13) "}  ",
        13, &size);
    safetensors file;
    tutti_error err;

    (void)state;
    assert_int_equal(safetensors_parse(bytes, size, &file, &err), TUTTI_OK);
    assert_int_equal(file.count, 3);
    assert_string_equal(file.entries[0].name, "a");
    assert_int_equal(file.entries[0].spec.dtype, TUTTI_DTYPE_FP32);
    assert_int_equal(file.entries[1].bytes, 0);
    assert_int_equal(file.entries[2].spec.dtype, TUTTI_DTYPE_FP8_E4M3);
    assert_int_equal(file.entries[2].spec.dim_count, 0);
    assert_ptr_equal(file.data, bytes + size - 13);
    safetensors_close(&file);
    free(bytes);
}

static void
test_parse__refuses_and_says_why(void **state)
{
    static const struct {
        const char *header;
        size_t data_size;
        const char *why;
    } cases[] = {
        {"", 0, "no JSON"},
        {"[]", 0, "no JSON object"},
        {"{} x", 0, "no JSON"},
        {"{}", 1, "announces 0 bytes of data, the file has 1"},
        {"{\"a\":1}", 0, "\"a\": no \"dtype\""},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, "dtype \"F4\""},
        {"{\"a\":" ENTRY("F32", "2", 0, 8) "}", 8, "no \"shape\" that is a list"},
        {"{\"a\":" ENTRY("F32", "[2.0]", 0, 8) "}", 8, "no number from 0 on"},
        {"{\"a\":" ENTRY("F32", "[-2]", 0, 8) "}", 8, "no number from 0 on"},
        {"{\"a\":" ENTRY("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1,
         "21 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "no \"data_offsets\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8,
         "no \"data_offsets\""},
        {"{\"a\":" ENTRY("F32", "[2]", 8, 0) "}", 8, "no \"data_offsets\""},
        {"{\"a\":" ENTRY("F32", "[2]", -8, 0) "}", 8, "no \"data_offsets\""},
        {"{\"a\":" ENTRY("F32", "[2]", 0, 8) "}", 7, "ends at byte 8 of the data, the file has 7"},
        {"{\"a\":" ENTRY("F32", "[3]", 0, 8) "}", 8, "12 bytes by its shape, 8 by its offsets"},
        {"{\"a\":" ENTRY("F64", "[4611686018427387904,4]", 0, 0) "}", 0, "more elements"},
        {"{\"a\":" ENTRY("F32", "[99999999999999999999]", 0, 0) "}", 0, "no JSON"},
        {"{\"a\":" ENTRY("U8", "[2]", 0, 2) ",\"a\":" ENTRY("U8", "[2]", 0, 2) "}", 2, "duplicate"},
        {"{\"a\":" ENTRY("U8", "[2]", 0, 2) ",\"b\":" ENTRY("U8", "[2]", 1, 3) "}", 3,
         "\"b\" begins at byte 1 of the data, what is before it ends at 2"},
        {"{\"a\":" ENTRY("U8", "[1]", 0, 1) ",\"b\":" ENTRY("U8", "[1]", 2, 3) "}", 3,
         "\"b\" begins at byte 2 of the data, what is before it ends at 1"},
        {"{\"a\":" ENTRY("U8", "[1]", 1, 2) "}", 2, "begins at byte 1"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t size;
        unsigned char *bytes = make_file(cases[i].header, cases[i].data_size, &size);
        safetensors file;
        tutti_error err;

        assert_int_equal(safetensors_parse(bytes, size, &file, &err), TUTTI_INVALID_ARGUMENT);
        if (strstr(err.text, cases[i].why) == NULL) {
            fail_msg("%s: \"%s\", not \"%s\"", cases[i].header, err.text, cases[i].why);
        }
        free(bytes);
    }
}

static void
test_parse__refuses_lengths_that_cannot_be(void **state)
{
    static const unsigned char long_one[16] = {9};
    static const unsigned char huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    safetensors file;
    tutti_error err;

    (void)state;
    assert_int_equal(safetensors_parse("1234567", 7, &file, &err), TUTTI_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "it has 7 bytes"));
    assert_int_equal(safetensors_parse(long_one, 16, &file, &err), TUTTI_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "a header of 9 bytes, the file has 8"));
    assert_int_equal(safetensors_parse(huge, 16, &file, &err), TUTTI_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "a header of 18446744073709551615 bytes"));
}

static void
test_create__is_read_again_with_each_tensor_aligned(void **state)
{
    safetensors_entry entries[] = {{.name = "byte", .spec = {TUTTI_DTYPE_UINT8, 1, {3}}},
                                   {.name = "b/double", .spec = {TUTTI_DTYPE_FP64, 2, {2, 1}}},
                                   {.name = "\xc3\xa4", .spec = {TUTTI_DTYPE_FP16, 0, {0}}}};
    char path[64];
    npy_output output;
    safetensors file;
    tutti_error err;
    size_t i;

    (void)state;
    (void)snprintf(path, sizeof(path), "st-%d.safetensors", (int)getpid());
    assert_int_equal(safetensors_create(path, entries, 3, &output, &err), TUTTI_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    memset(output.data, 7, output.bytes);
    assert_int_equal(npy_commit(&output, &err), TUTTI_OK);
    assert_int_equal(safetensors_open(path, &file, &err), TUTTI_OK);
    (void)unlink(path);
    assert_int_equal(file.count, 3);
    for (i = 0; i < 3; i++) {
        assert_string_equal(file.entries[i].name, entries[i].name);
        assert_int_equal(file.entries[i].offset % tutti_dtype_bytes(entries[i].spec.dtype), 0);
        assert_int_equal(file.entries[i].bytes, entries[i].bytes);
    }
    assert_int_equal((file.data - (const char *)file.file.data) % 8, 0);
    assert_int_equal(file.data[20], 7);
    safetensors_close(&file);
}

static void
test_create__refuses_names_and_dtypes(void **state)
{
    safetensors_entry twice[] = {{.name = "a", .spec = {TUTTI_DTYPE_UINT8, 0, {0}}},
                                 {.name = "a", .spec = {TUTTI_DTYPE_UINT8, 0, {0}}}};
    safetensors_entry wide[] = {{.name = "a", .spec = {TUTTI_DTYPE_COMPLEX128, 0, {0}}}};
    safetensors_entry meta[] = {{.name = "__metadata__", .spec = {TUTTI_DTYPE_UINT8, 0, {0}}}};
    npy_output output;
    tutti_error err;

    (void)state;
    assert_int_equal(safetensors_create("x.safetensors", twice, 2, &output, &err),
                     TUTTI_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "given twice"));
    assert_int_equal(safetensors_create("x.safetensors", wide, 1, &output, &err),
                     TUTTI_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "COMPLEX128, which .safetensors files lack"));
    assert_int_equal(safetensors_create("x.safetensors", meta, 1, &output, &err),
                     TUTTI_INVALID_ARGUMENT);
    assert_int_not_equal(access("x.safetensors", F_OK), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse__finds_each_tensor),
        cmocka_unit_test(test_parse__refuses_and_says_why),
        cmocka_unit_test(test_parse__refuses_lengths_that_cannot_be),
        cmocka_unit_test(test_create__is_read_again_with_each_tensor_aligned),
        cmocka_unit_test(test_create__refuses_names_and_dtypes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
