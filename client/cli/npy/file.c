/* .npy files on disk: read or mapped, converted. output.c writes them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/npy/npy.h"
#include "client/cli/util/output.h"

#define MAP_FROM_BYTES (1u << 20) /* smaller files are read */

/* ------------------------------------------------------------------------------ converting */

/* Turn the bytes of each number around; a complex number is two. */
static void
swap_bytes(unsigned char *bytes, uint64_t size, size_t number_size)
{
    uint64_t at;

    for (at = 0; at < size; at += number_size) {
        size_t i;

        for (i = 0; i < number_size / 2; i++) {
            const unsigned char byte = bytes[at + i];

            bytes[at + i] = bytes[at + number_size - 1 - i];
            bytes[at + number_size - 1 - i] = byte;
        }
    }
}

/* From Fortran order to C order: walk the result, step through the source. */
static void
reorder_npy_file(const tutti_spec *spec, const unsigned char *from, unsigned char *to,
                 uint64_t count)
{
    const size_t size = tutti_dtype_bytes(spec->dtype);
    uint64_t strides[TUTTI_DIMS_MAX];
    int64_t index[TUTTI_DIMS_MAX] = {0};
    uint64_t stride = size;
    uint64_t at = 0;
    uint64_t done;
    uint32_t i;

    for (i = 0; i < spec->dim_count; i++) {
        strides[i] = stride;
        stride *= (uint64_t)spec->dims[i];
    }
    for (done = 0; done < count; done++) {
        memcpy(to + done * size, from + at, size);
        for (i = spec->dim_count; i-- > 0;) {
            at += strides[i];
            if (++index[i] < spec->dims[i]) {
                break;
            }
            at -= strides[i] * (uint64_t)spec->dims[i];
            index[i] = 0;
        }
    }
}

/* With one dimension that is more than 1, both orders are the same. */
static bool
needs_reorder(const npy_header *header)
{
    uint32_t long_dims = 0;
    uint32_t i;

    for (i = 0; i < header->spec.dim_count; i++) {
        long_dims += header->spec.dims[i] > 1 ? 1 : 0;
    }
    return header->fortran && long_dims > 1;
}

/*
 * Files in C order and of this machine's byte order are used as they are, without a copy. Only
 * others need memory as large as the array.
 */
static tutti_code
convert_npy_file(const npy_header *header, npy_array *array, tutti_error *err)
{
    const tutti_dtype dtype = array->spec.dtype;
    const bool is_complex = dtype == TUTTI_DTYPE_COMPLEX64 || dtype == TUTTI_DTYPE_COMPLEX128;
    const size_t size = tutti_dtype_bytes(dtype);
    unsigned char *converted;

    if (!header->swapped && !needs_reorder(header)) {
        return TUTTI_OK;
    }
    converted = malloc(array->bytes + 1);
    if (converted == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED,
                        "no memory to convert an array of %" PRIu64 " bytes", array->bytes);
    }
    if (needs_reorder(header)) {
        reorder_npy_file(&array->spec, array->data, converted, array->bytes / size);
    } else if (array->bytes > 0) {
        memcpy(converted, array->data, array->bytes);
    }
    if (header->swapped) {
        swap_bytes(converted, array->bytes, is_complex ? size / 2 : size);
    }
    free(array->owned);
    array->owned = converted;
    array->data = converted;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ reading */

/*
 * All of the file, in memory of ours or as a mapping. Large files are mapped, so that a file
 * larger than memory can be sent.
 */
static tutti_code
load_npy_file(int descriptor, size_t size, npy_array *array, tutti_error *err)
{
    char *bytes;
    size_t done = 0;
    ssize_t got = 1;

    if (size >= MAP_FROM_BYTES) {
        array->mapping = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (array->mapping == MAP_FAILED) {
            array->mapping = NULL;
            return cli_fail_errno(err, errno, "could not map it");
        }
        array->mapping_size = size;
        array->data = array->mapping;
        return TUTTI_OK;
    }
    bytes = malloc(size + 1);
    if (bytes == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to read %zu bytes", size);
    }
    array->owned = bytes;
    array->data = bytes;
    while (done < size && got > 0) {
        got = read(descriptor, bytes + done, size - done);
        done += got > 0 ? (size_t)got : 0;
    }
    if (got < 0) {
        return cli_fail_errno(err, errno, "could not read it");
    }
    if (done < size) {
        return cli_fail(err, TUTTI_DATA_LOSS, "it became shorter while it was read");
    }
    return TUTTI_OK;
}

/*
 * A dtype that is stated must be one that the file may hold: voids say only how many bytes an
 * element has.
 */
static tutti_code
choose_dtype(tutti_dtype stated, npy_header *header, tutti_error *err)
{
    const tutti_dtype found = header->spec.dtype;
    const bool is_void = found == TUTTI_DTYPE_NONE || found == TUTTI_DTYPE_BF16;

    if (stated == TUTTI_DTYPE_NONE && found == TUTTI_DTYPE_NONE) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "voids of one byte can be FP8_E4M3 or FP8_E5M2: say which with --dtype");
    }
    if (stated == TUTTI_DTYPE_NONE || stated == found) {
        return TUTTI_OK;
    }
    if (!is_void || tutti_dtype_bytes(stated) != (found == TUTTI_DTYPE_NONE ? 1u : 2u)) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the file holds %s, not %s",
                        found == TUTTI_DTYPE_NONE ? "voids of one byte" : tutti_dtype_name(found),
                        tutti_dtype_name(stated));
    }
    header->spec.dtype = stated;
    return TUTTI_OK;
}

/*
 * The size of the file must be that of header and data together, to the byte: a file that was cut
 * is found here.
 */
static tutti_code
read_array(size_t size, tutti_dtype dtype, npy_array *array, tutti_error *err)
{
    npy_header header;
    tutti_code code = npy_header_parse(array->data, size, &header, err);

    if (code == TUTTI_OK) {
        code = choose_dtype(dtype, &header, err);
    }
    if (code == TUTTI_OK && header.bytes != size - header.data_size) {
        code = cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "the header announces %" PRIu64 " bytes of data, the file has %zu",
                        header.bytes, size - header.data_size);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    array->spec = header.spec;
    array->bytes = header.bytes;
    array->data = (const char *)array->data + header.data_size;
    return convert_npy_file(&header, array, err);
}

tutti_code
npy_load(const char *path, npy_array *ret_array, tutti_error *err)
{
    npy_array array = {0};
    struct stat stat;
    tutti_code code;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);

    if (descriptor < 0) {
        return cli_fail_errno(err, errno, "could not open it");
    }
    if (fstat(descriptor, &stat) != 0 || !S_ISREG(stat.st_mode)) {
        (void)close(descriptor);
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "it is no regular file");
    }
    code = load_npy_file(descriptor, (size_t)stat.st_size, &array, err);
    (void)close(descriptor);
    array.bytes = (uint64_t)stat.st_size;
    if (code != TUTTI_OK) {
        npy_close(&array);
        return code;
    }
    *ret_array = array;
    return TUTTI_OK;
}

tutti_code
npy_open(const char *path, tutti_dtype dtype, npy_array *ret_array, tutti_error *err)
{
    npy_array array = {0};
    tutti_code code = npy_load(path, &array, err);

    if (code == TUTTI_OK) {
        code = read_array((size_t)array.bytes, dtype, &array, err);
    }
    if (code != TUTTI_OK) {
        npy_close(&array);
        return code;
    }
    *ret_array = array;
    return TUTTI_OK;
}

void
npy_close(npy_array *array)
{
    free(array->owned);
    if (array->mapping != NULL) {
        (void)munmap(array->mapping, array->mapping_size);
    }
    *array = (npy_array){0};
}
