/*
 * Goal: .npy files are read as NumPy meant them, or refused with what is wrong; written ones are
 * what NumPy reads, and appear as a whole or not at all.
 * Method: headers in tables, files in a folder of their own. tests/system/test_cli.py asks NumPy.
 */
#include "support/testing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/npy/npy.h"

/* ------------------------------------------------------------------------------ headers */

/* All before the array, version 1.0. */
static size_t
make_header(char *ret, const char *dictionary)
{
    const size_t size = strlen(dictionary);

    memcpy(ret, "\x93NUMPY\x01\x00", 8);
    ret[8] = (char)(size & 0xff);
    ret[9] = (char)(size >> 8);
    memcpy(ret + 10, dictionary, size);
    return 10 + size;
}

static tutti_code
parse(const char *dictionary, npy_header *ret, tutti_error *err)
{
    char bytes[1024];
    const size_t size = make_header(bytes, dictionary);
    char *exact = malloc(size); /* so that a byte too many is seen */
    tutti_code code;

    assert_non_null(exact);
    memcpy(exact, bytes, size);
    code = npy_header_parse(exact, size, ret, err);
    free(exact);
    return code;
}

static void
test_header__reads_what_numpy_and_python_write(void **state)
{
    static const struct {
        const char *text;
        tutti_dtype dtype;
        uint32_t dim_count;
        uint64_t bytes;
        bool fortran;
        bool swapped;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", TUTTI_DTYPE_FP32, 2, 24,
         false, false},
        {"{'descr': '>c16', 'fortran_order': True, 'shape': (2,), }\n", TUTTI_DTYPE_COMPLEX128, 1,
         32, true, true},
        {"{'shape': (), 'fortran_order': False, 'descr': '|b1'}", TUTTI_DTYPE_BOOL, 0, 1, false,
         false},
        {"{\"descr\":\"=i8\",\"fortran_order\":False,\"shape\":(0,7)}", TUTTI_DTYPE_INT64, 2, 0,
         false, false},
        {"{'descr': '>i1', 'fortran_order': False, 'shape': (3L, 2L)}", TUTTI_DTYPE_INT8, 2, 6,
         false, false},
        {"{'descr': '<V2', 'fortran_order': False, 'shape': (5,)}", TUTTI_DTYPE_BF16, 1, 10, false,
         false},
        {"{'descr': 'bfloat16', 'fortran_order': False, 'shape': (5,)}", TUTTI_DTYPE_BF16, 1, 10,
         false, false},
        {"{'descr': 'float8_e4m3fn', 'fortran_order': False, 'shape': (5,)}", TUTTI_DTYPE_FP8_E4M3,
         1, 5, false, false},
        {"{'descr': '|V1', 'fortran_order': False, 'shape': (5,)}", TUTTI_DTYPE_NONE, 1, 5, false,
         false},
    };
    npy_header header;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        assert_ok(parse(cases[i].text, &header, &err));
        assert_int_equal(header.spec.dtype, cases[i].dtype);
        assert_int_equal(header.spec.dim_count, cases[i].dim_count);
        assert_int_equal(header.bytes, cases[i].bytes);
        assert_int_equal(header.fortran, cases[i].fortran);
        assert_int_equal(header.swapped, cases[i].swapped);
        assert_int_equal(header.data_size, 10 + strlen(cases[i].text));
    }
}

#define GOOD(descr, shape) "{'descr': " descr ", 'fortran_order': False, 'shape': " shape "}"

static void
test_header__refuses_the_rest_and_says_why(void **state)
{
    static const char *const cases[][2] = {
        {"", "no dictionary"},
        {"[1]", "no dictionary"},
        {"{", "no dictionary of strings"},
        {"{}", "has no 'descr'"},
        {"{'descr': '<f4', 'shape': (1,)}", "has no 'fortran_order'"},
        {"{'descr': '<f4', 'fortran_order': False}", "has no 'shape'"},
        {GOOD("'<f4'", "(1,)") "x", "goes on behind its dictionary"},
        {"{'descr': '<f4', 'descr': '<f4'}", "two entries 'descr'"},
        {"{'colour': 3}", "an entry 'colour'"},
        {"{'descr': '<f4' 'shape': (1,)}", "no end"},
        {GOOD("'<U2'", "(1,)"), "no tensors of dtype '<U2'"},
        {GOOD("'|O'", "(1,)"), "no tensors of dtype '|O'"},
        {GOOD("'f4'", "(1,)"), "says no byte order"},
        {GOOD("''", "(1,)"), "says no byte order"},
        {GOOD("[('a', '<i4')]", "(1,)"), "array of records"},
        {GOOD("7", "(1,)"), "no short string"},
        {GOOD("'<f4", "(1,)"), "no tensors of dtype '<f4, '"},
        {"{'descr': '<f4", "no short string"},
        {GOOD("'\\x3cf4'", "(1,)"), "no short string"},
        {GOOD("'<f4'", "1"), "not a tuple"},
        {GOOD("'<f4'", "(1 2)"), "misses a comma"},
        {GOOD("'<f4'", "(1)"), "misses a comma"},
        {GOOD("'<f4'", "(-1,)"), "numbers of 63 bits"},
        {GOOD("'<f4'", "(9223372036854775808,)"), "numbers of 63 bits"},
        {GOOD("'<f4'", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), "more than 16 dimensions"},
        {GOOD("'<f4'", "(4294967296, 4294967296, 4294967296)"), ""},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "neither True nor False"},
    };
    npy_header header;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        assert_fails(parse(cases[i][0], &header, &err), TUTTI_INVALID_ARGUMENT);
        assert_text_has(err.text, cases[i][1]);
    }
}

static void
test_header__that_is_cut_anywhere_is_refused(void **state)
{
    char bytes[256];
    const size_t size = make_header(bytes, GOOD("'<f4'", "(2, 3)"));
    npy_header header;
    size_t cut;

    (void)state;
    for (cut = 0; cut < size; cut++) {
        char *exact = malloc(cut + 1);

        assert_non_null(exact);
        memcpy(exact, bytes, cut);
        assert_fails(npy_header_parse(exact, cut, &header, NULL), TUTTI_INVALID_ARGUMENT);
        free(exact);
    }
}

static void
test_header_size__knows_versions_and_limits(void **state)
{
    unsigned char bytes[NPY_PREFIX_SIZE] = "\x93NUMPY\x02\x00";
    size_t size = 0;
    tutti_error err;

    (void)state;
    bytes[8] = 0xf4; /* 500 */
    bytes[9] = 1;
    assert_ok(npy_header_size(bytes, sizeof(bytes), &size, &err));
    assert_int_equal(size, 12 + 500);
    bytes[11] = 0x7f;
    assert_fails(npy_header_size(bytes, sizeof(bytes), &size, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "at most 65524");
    bytes[6] = 4;
    assert_fails(npy_header_size(bytes, sizeof(bytes), &size, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "version 4.0 of .npy, need 1.0 to 3.0");
    bytes[0] = 'P';
    assert_fails(npy_header_size(bytes, sizeof(bytes), &size, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "no .npy file");
}

static void
test_header_write__is_read_back_for_every_dtype_and_rank(void **state)
{
    static char bytes[NPY_HEADER_MAX];
    npy_header header;
    tutti_error err;
    uint32_t dims;
    int dtype;
    uint32_t i;

    (void)state;
    for (dtype = TUTTI_DTYPE_BOOL; dtype <= TUTTI_DTYPE_FP8_E5M2; dtype++) {
        for (dims = 0; dims <= TUTTI_DIMS_MAX; dims++) {
            tutti_spec spec = {.dtype = (tutti_dtype)dtype, .dim_count = dims};
            size_t size;

            for (i = 0; i < dims; i++) {
                spec.dims[i] = i % 3;
            }
            size = npy_header_write(&spec, bytes);
            assert_int_equal(size % 64, 0);
            assert_ok(npy_header_parse(bytes, size, &header, &err));
            assert_int_equal(header.data_size, size);
            assert_int_equal(header.spec.dtype,
                             dtype >= TUTTI_DTYPE_FP8_E4M3 ? TUTTI_DTYPE_NONE : dtype);
            assert_int_equal(header.spec.dim_count, dims);
            assert_memory_equal(header.spec.dims, spec.dims, dims * sizeof(spec.dims[0]));
            assert_false(header.fortran || header.swapped);
        }
    }
}

/* ------------------------------------------------------------------------------ files */

static char folder[] = "/tmp/tutti-test-npy-XXXXXX";
static char path[64];

static int
make_folder(void **state)
{
    (void)state;
    (void)snprintf(path, sizeof(path), "%s", "");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof(path), "%s/x.npy", folder);
    return 0;
}

static int
remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder); /* fails when something was left there */
}

static void
write_file(const char *dictionary, const void *data, size_t data_size, size_t more)
{
    char bytes[1024];
    const size_t size = make_header(bytes, dictionary);
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fwrite(data, 1, data_size, file), data_size);
    assert_int_equal(fwrite(bytes, 1, more, file), more);
    assert_int_equal(fclose(file), 0);
}

static void
test_open__turns_fortran_order_and_big_endian(void **state)
{
    /* As [[0, 1, 2], [3, 4, 5]], its columns one after the other. */
    static const unsigned char columns[] = {0, 0, 0, 3, 0, 1, 0, 4, 0, 2, 0, 5};
    const uint16_t wanted[] = {0, 1, 2, 3, 4, 5};
    npy_array array;
    tutti_error err;

    (void)state;
    write_file("{'descr': '>u2', 'fortran_order': True, 'shape': (2, 3)}", columns, sizeof(columns),
               0);
    assert_ok(npy_open(path, TUTTI_DTYPE_NONE, &array, &err));
    assert_int_equal(array.bytes, sizeof(wanted));
    assert_memory_equal(array.data, wanted, sizeof(wanted));
    npy_close(&array);
    npy_close(&array); /* once more is nothing */
}

static void
test_open__wants_as_many_bytes_as_announced(void **state)
{
    const float data[6] = {0};
    npy_array array;
    tutti_error err;

    (void)state;
    write_file(GOOD("'<f4'", "(2, 3)"), data, sizeof(data) - 1, 0);
    assert_fails(npy_open(path, TUTTI_DTYPE_NONE, &array, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "announces 24 bytes of data, the file has 23");
    write_file(GOOD("'<f4'", "(2, 3)"), data, sizeof(data), 5);
    assert_fails(npy_open(path, TUTTI_DTYPE_NONE, &array, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "the file has 29");
    write_file(GOOD("'<f4'", "(0, 3)"), data, 0, 0);
    assert_ok(npy_open(path, TUTTI_DTYPE_NONE, &array, &err));
    assert_int_equal(array.bytes, 0);
    npy_close(&array);
    assert_fails(npy_open(folder, TUTTI_DTYPE_NONE, &array, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "no regular file");
    assert_fails(npy_open("/nonexistent/x.npy", TUTTI_DTYPE_NONE, &array, &err), TUTTI_NOT_FOUND);
}

static void
test_open__asks_what_voids_are(void **state)
{
    npy_array array;
    tutti_error err;

    (void)state;
    write_file(GOOD("'|V1'", "(3,)"), "abc", 3, 0);
    assert_fails(npy_open(path, TUTTI_DTYPE_NONE, &array, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "--dtype");
    assert_fails(npy_open(path, TUTTI_DTYPE_BF16, &array, &err), TUTTI_INVALID_ARGUMENT);
    assert_ok(npy_open(path, TUTTI_DTYPE_FP8_E5M2, &array, &err));
    assert_int_equal(array.spec.dtype, TUTTI_DTYPE_FP8_E5M2);
    npy_close(&array);
    write_file(GOOD("'<f4'", "(1,)"), "abcd", 4, 0);
    assert_fails(npy_open(path, TUTTI_DTYPE_FP64, &array, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "the file holds FP32, not FP64");
}

/* Past MAP_FROM_BYTES, so that it is mapped. */
static void
test_create__is_read_back_small_and_mapped(void **state)
{
    static const int64_t counts[] = {0, 1, 1000, 500000};
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(counts); i++) {
        const tutti_spec spec = {.dtype = TUTTI_DTYPE_INT32, .dim_count = 1, .dims = {counts[i]}};
        npy_output output;
        npy_array array;
        tutti_error err;
        int64_t k;

        assert_ok(npy_create(path, &spec, &output, &err));
        for (k = 0; k < counts[i]; k++) {
            ((int32_t *)output.data)[k] = (int32_t)k;
        }
        assert_ok(npy_commit(&output, &err));
        assert_ok(npy_open(path, TUTTI_DTYPE_NONE, &array, &err));
        assert_int_equal(array.bytes, 4 * counts[i]);
        for (k = 0; k < counts[i]; k++) {
            assert_int_equal(((const int32_t *)array.data)[k], k);
        }
        npy_close(&array);
    }
}

static void
test_create__leaves_the_old_file_until_commit(void **state)
{
    const tutti_spec spec = {.dtype = TUTTI_DTYPE_UINT8, .dim_count = 1, .dims = {3}};
    npy_output output;
    npy_array array;
    tutti_error err;

    (void)state;
    write_file(GOOD("'|u1'", "(1,)"), "a", 1, 0);
    assert_ok(npy_create(path, &spec, &output, &err));
    npy_discard(&output);
    npy_discard(&output); /* once more is nothing */
    assert_ok(npy_open(path, TUTTI_DTYPE_NONE, &array, &err));
    assert_int_equal(array.bytes, 1);
    npy_close(&array);
    assert_fails(npy_create("/nonexistent/x.npy", &spec, &output, &err), TUTTI_NOT_FOUND);
    assert_text_has(err.text, "/nonexistent/x.npy");
}

static void
test_create__follows_links_and_keeps_to_the_umask(void **state)
{
    const tutti_spec spec = {.dtype = TUTTI_DTYPE_UINT8, .dim_count = 1, .dims = {3}};
    char link[80];
    struct stat found;
    npy_output output;
    tutti_error err;

    (void)state;
    (void)snprintf(link, sizeof(link), "%s/link.npy", folder);
    write_file(GOOD("'|u1'", "(1,)"), "a", 1, 0);
    assert_int_equal(symlink(path, link), 0);
    (void)umask(027);
    assert_ok(npy_create(link, &spec, &output, &err));
    assert_ok(npy_commit(&output, &err));
    assert_int_equal(lstat(link, &found), 0);
    assert_true(S_ISLNK(found.st_mode));
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0640);
    assert_int_equal(unlink(link), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header__reads_what_numpy_and_python_write),
        cmocka_unit_test(test_header__refuses_the_rest_and_says_why),
        cmocka_unit_test(test_header__that_is_cut_anywhere_is_refused),
        cmocka_unit_test(test_header_size__knows_versions_and_limits),
        cmocka_unit_test(test_header_write__is_read_back_for_every_dtype_and_rank),
        cmocka_unit_test(test_open__turns_fortran_order_and_big_endian),
        cmocka_unit_test(test_open__wants_as_many_bytes_as_announced),
        cmocka_unit_test(test_open__asks_what_voids_are),
        cmocka_unit_test(test_create__is_read_back_small_and_mapped),
        cmocka_unit_test(test_create__leaves_the_old_file_until_commit),
        cmocka_unit_test(test_create__follows_links_and_keeps_to_the_umask),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
