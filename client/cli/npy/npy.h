/*
 * .npy files: NumPy's format for one array, versions 1.0 to 3.0.
 *
 * What is read lies in C order and little-endian afterwards, as tensors do; files in Fortran order
 * or big-endian are converted. Large files are mapped, not read. NumPy has no name for BF16 and
 * FP8: they are written as voids of their size, '<V2' and '|V1'. Reading, '|V2' is BF16 and '|V1'
 * is refused unless the caller says which FP8 it is; the names of ml_dtypes ('bfloat16',
 * 'float8_e4m3', 'float8_e4m3fn', 'float8_e5m2') are understood as well. Any thread.
 */
#ifndef TUTTI_CLIENT_CLI_NPY_NPY_H
#define TUTTI_CLIENT_CLI_NPY_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/error.h"
#include "tutti/types.h"

#define NPY_HEADER_MAX                                                                             \
    65536                  /* bytes of a header that we look at; records alone have longer ones    \
                            */
#define NPY_PREFIX_SIZE 12 /* magic, version and length: the most of them */

/* What a header says. */
typedef struct npy_header {
    tutti_spec spec;  /* dtype TUTTI_DTYPE_NONE: a void of one byte, it can be any FP8 */
    uint64_t bytes;   /* of the array */
    size_t data_size; /* where the array begins: the size of all that is before it */
    bool fortran;     /* the first index runs fastest */
    bool swapped;     /* big-endian */
} npy_header;

/*
 * How many bytes the header has with all before it, from the first NPY_PREFIX_SIZE bytes.
 *
 * TUTTI_INVALID_ARGUMENT  no .npy file, an unknown version, a header beyond NPY_HEADER_MAX
 */
tutti_code npy_header_size(const void *bytes, size_t size, size_t *ret_size, tutti_error *err);

/*
 * Read a header: all bytes before the array. Bounded in time by their number.
 *
 * TUTTI_INVALID_ARGUMENT  malformed, or of what we have no tensors for: the text says what
 */
tutti_code npy_header_parse(const void *bytes, size_t size, npy_header *ret_header,
                            tutti_error *err);

/* The same the other way: into at most NPY_HEADER_MAX bytes; how many. */
size_t npy_header_write(const tutti_spec *spec, char ret_bytes[NPY_HEADER_MAX]);

/* An array of a file. */
typedef struct npy_array {
    tutti_spec spec;
    uint64_t bytes;
    const void *data;
    void *owned; /* converted or read; NULL = it lies in the mapping */
    void *mapping;
    size_t mapping_size;
} npy_array;

/*
 * [in]          dtype      what a void is; TUTTI_DTYPE_NONE = not said
 * [out, owned]  ret_array  npy_close it
 *
 * Texts go behind the path: "could not open it: No such file or directory".
 *
 * TUTTI_NOT_FOUND, ...     from the system
 * TUTTI_INVALID_ARGUMENT   as npy_header_parse; more or fewer bytes than the header says
 * TUTTI_RESOURCE_EXHAUSTED no memory
 */
tutti_code npy_open(const char *path, tutti_dtype dtype, npy_array *ret_array, tutti_error *err);
void npy_close(npy_array *array); /* zeroed is fine */

/* All bytes of a regular file, whatever is in them, into data and bytes; errors as npy_open. */
tutti_code npy_load(const char *path, npy_array *ret_array, tutti_error *err);

/* A file being written: fill `data`, then commit or discard. */
typedef struct npy_output {
    void *data; /* spec's bytes; zeros at first */
    uint64_t bytes;
    bool stream;     /* written at the end, in one go */
    char *path;      /* NULL = standard output */
    char *temporary; /* beside it, until commit */
    char *memory;    /* header and data */
    size_t memory_size;
    bool mapped;
} npy_output;

/*
 * Begin a file; nothing appears under `path` before commit, which replaces what is there, or writes
 * into it when it is a device or a pipe. "-" is standard output. A signal that ends us removes what
 * was begun; one file at a time is watched so.
 *
 * TUTTI_NOT_FOUND, ...     from the system, with the path
 * TUTTI_RESOURCE_EXHAUSTED no memory, or no room on the disk
 */
tutti_code npy_create(const char *path, const tutti_spec *spec, npy_output *ret_output,
                      tutti_error *err);
/* The same of any other format: `bytes` zeros behind the caller's header. */
tutti_code npy_create_file(const char *path, const void *header, size_t header_size, uint64_t bytes,
                           npy_output *ret_output, tutti_error *err);
tutti_code npy_commit(npy_output *output, tutti_error *err); /* gone in any case */
void npy_discard(npy_output *output);                        /* zeroed is fine */

#endif
