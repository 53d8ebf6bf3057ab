/*
 * .safetensors files: tensors with names, as Hugging Face's package has them.
 *
 * Eight bytes, little-endian, say how long the header is. The header is a JSON object: under the
 * name of each tensor its dtype, shape and data_offsets, and under "__metadata__" texts, which are
 * ignored. The bytes of the tensors follow, in C order and little-endian, without holes. A file is
 * refused as a whole if anything in its header is not so. Any thread.
 */
#ifndef TUTTI_CLIENT_CLI_SAFETENSORS_SAFETENSORS_H
#define TUTTI_CLIENT_CLI_SAFETENSORS_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/cli/npy/npy.h"
#include "tutti/error.h"
#include "tutti/types.h"

/* Bytes of a header: some 100 000 tensors. To read one takes several times as much memory. */
#define SAFETENSORS_HEADER_MAX 16777216u

typedef struct safetensors_entry {
    const char *name; /* [borrowed] of the file, or the caller's */
    tutti_spec spec;
    uint64_t offset; /* behind the header */
    uint64_t bytes;
} safetensors_entry;

typedef struct safetensors {
    safetensors_entry *entries; /* in the order of their bytes */
    size_t count;
    const char *data;
    json_t *header;
    npy_array file;
} safetensors;

/* Does the path end as such files do? */
bool safetensors_is(const char *path);

/*
 * All of a file's bytes, which are borrowed. Bounded by the size of the header.
 *
 * [out, owned]  ret  safetensors_close it
 *
 * TUTTI_INVALID_ARGUMENT    no such file, or of what we have no tensors for: the text says what
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code safetensors_parse(const void *bytes, size_t size, safetensors *ret, tutti_error *err);

/* The same of a file; errors also as npy_open. */
tutti_code safetensors_open(const char *path, safetensors *ret, tutti_error *err);
void safetensors_close(safetensors *file); /* zeroed is fine */

/*
 * Begin a file: fill data + entries[i].offset of the output, then npy_commit or npy_discard it.
 * Large elements come first, so that each tensor is aligned.
 *
 * [in, out]     entries     their names and specs; they are sorted, and get offsets and bytes
 * [out, owned]  ret_output
 *
 * TUTTI_INVALID_ARGUMENT  a name twice, or "__metadata__"; a dtype that the format lacks
 * and those of npy_create
 */
tutti_code safetensors_create(const char *path, safetensors_entry *entries, size_t count,
                              npy_output *ret_output, tutti_error *err);

#endif
