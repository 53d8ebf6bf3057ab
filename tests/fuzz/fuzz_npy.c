/*
 * Goal: a .npy file of anybody's does no harm, and what is read from it is what its header says.
 * Method: the input as a file in memory; what was understood is written as a header and read again.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/cli/npy/npy.h"
#include "tutti/tutti.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int file;
static char path[64];

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    file = memfd_create("npy", MFD_CLOEXEC);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    return file >= 0 ? 0 : 1;
}

static void
check_again(const tutti_spec *spec)
{
    static char bytes[NPY_HEADER_MAX];
    const size_t size = npy_header_write(spec, bytes);
    npy_header header;

    assert(npy_header_parse(bytes, size, &header, NULL) == TUTTI_OK);
    assert(header.data_size == size && header.spec.dim_count == spec->dim_count);
    assert(header.spec.dtype == spec->dtype || tutti_dtype_bytes(spec->dtype) == 1);
    assert(memcmp(header.spec.dims, spec->dims, spec->dim_count * sizeof(spec->dims[0])) == 0);
}

/* All of its bytes are there. */
static void
check_array(const npy_array *array)
{
    uint64_t bytes = 0;
    unsigned sum = 0;
    uint64_t i;

    assert(tutti_spec_size(&array->spec, NULL, &bytes, NULL) == TUTTI_OK && bytes == array->bytes);
    for (i = 0; i < bytes; i++) {
        sum += ((const volatile unsigned char *)array->data)[i];
    }
    (void)sum;
    check_again(&array->spec);
}

/* The first byte says what voids are. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    npy_array array;
    tutti_error err;

    if (size == 0) {
        return 0;
    }
    assert(ftruncate(file, 0) == 0 && pwrite(file, data + 1, size - 1, 0) == (ssize_t)size - 1);
    if (npy_open(path, (tutti_dtype)(data[0] % (TUTTI_DTYPE_FP8_E5M2 + 1)), &array, &err) ==
        TUTTI_OK) {
        check_array(&array);
        npy_close(&array);
    } else {
        assert(err.code != TUTTI_OK && err.text[0] != '\0');
    }
    return 0;
}
