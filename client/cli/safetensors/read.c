/* .safetensors files being read. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/safetensors/dtypes.h"
#include "client/cli/safetensors/safetensors.h"
#include "client/cli/util/output.h"

#define PREFIX_SIZE 8 /* the length of the header */
#define METADATA "__metadata__"

bool
safetensors_is(const char *path)
{
    static const char ending[] = ".safetensors";
    const size_t size = strlen(path);

    return size >= sizeof(ending) - 1 && strcmp(path + size - (sizeof(ending) - 1), ending) == 0;
}

/* ------------------------------------------------------------------------------ one tensor */

static tutti_code
refuse(tutti_error *err, const char *name, const char *what)
{
    return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header: \"%.100s\": %s", name, what);
}

static tutti_code
read_header_shape(const char *name, const json_t *shape, tutti_spec *spec, tutti_error *err)
{
    size_t i;

    if (!json_is_array(shape)) {
        return refuse(err, name, "no \"shape\" that is a list");
    }
    if (json_array_size(shape) > TUTTI_DIMS_MAX) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "the header: \"%.100s\" has %zu dimensions, tensors have at most %d", name,
                        json_array_size(shape), TUTTI_DIMS_MAX);
    }
    spec->dim_count = (uint32_t)json_array_size(shape);
    for (i = 0; i < spec->dim_count; i++) {
        const json_t *dim = json_array_get(shape, i);

        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            return refuse(err, name, "a dimension that is no number from 0 on");
        }
        spec->dims[i] = (int64_t)json_integer_value(dim);
    }
    return TUTTI_OK;
}

static tutti_code
read_offsets(const json_t *offsets, uint64_t data_size, safetensors_entry *entry, tutti_error *err)
{
    const json_t *first = json_array_get(offsets, 0);
    const json_t *end = json_array_get(offsets, 1);
    uint64_t bytes;

    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(end) ||
        json_integer_value(first) < 0 || json_integer_value(end) < json_integer_value(first)) {
        return refuse(err, entry->name, "no \"data_offsets\" that are [FIRST, END]");
    }
    if ((uint64_t)json_integer_value(end) > data_size) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "the header: \"%.100s\" ends at byte %" JSON_INTEGER_FORMAT
                        " of the data, the file has %" PRIu64,
                        entry->name, json_integer_value(end), data_size);
    }
    entry->offset = (uint64_t)json_integer_value(first);
    entry->bytes = (uint64_t)json_integer_value(end) - entry->offset;
    if (tutti_spec_size(&entry->spec, NULL, &bytes, err) != TUTTI_OK) {
        return refuse(err, entry->name, "a shape of more elements than there can be");
    }
    if (bytes != entry->bytes) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "the header: \"%.100s\" has %" PRIu64 " bytes by its shape, %" PRIu64
                        " by its offsets",
                        entry->name, bytes, entry->bytes);
    }
    return TUTTI_OK;
}

static tutti_code
read_entry(const char *name, const json_t *value, uint64_t data_size, safetensors_entry *entry,
           tutti_error *err)
{
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    tutti_code code;

    entry->name = name;
    if (dtype == NULL) {
        return refuse(err, name, "no \"dtype\" that is a text");
    }
    entry->spec.dtype = safetensors_dtype(dtype);
    if (entry->spec.dtype == TUTTI_DTYPE_NONE) {
        return cli_fail(
            err, TUTTI_INVALID_ARGUMENT,
            "the header: \"%.100s\" is of dtype \"%.20s\", of which there are no tensors", name,
            dtype);
    }
    code = read_header_shape(name, json_object_get(value, "shape"), &entry->spec, err);
    return code != TUTTI_OK
               ? code
               : read_offsets(json_object_get(value, "data_offsets"), data_size, entry, err);
}

/* ------------------------------------------------------------------------------ all of them */

static int
compare_offsets(const void *one, const void *other)
{
    const safetensors_entry *a = one;
    const safetensors_entry *b = other;

    if (a->offset != b->offset) {
        return a->offset < b->offset ? -1 : 1;
    }
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* No byte belongs to two tensors, and none to no tensor. */
static tutti_code
check_order(const safetensors *file, uint64_t data_size, tutti_error *err)
{
    uint64_t at = 0;
    size_t i;

    for (i = 0; i < file->count; i++) {
        if (file->entries[i].offset != at) {
            return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                            "the header: \"%.100s\" begins at byte %" PRIu64
                            " of the data, what is before it ends at %" PRIu64,
                            file->entries[i].name, file->entries[i].offset, at);
        }
        at += file->entries[i].bytes;
    }
    if (at != data_size) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "the header announces %" PRIu64 " bytes of data, the file has %" PRIu64, at,
                        data_size);
    }
    return TUTTI_OK;
}

static tutti_code
read_entries(safetensors *file, uint64_t data_size, tutti_error *err)
{
    const char *name;
    json_t *value;

    file->entries = calloc(json_object_size(file->header) + 1, sizeof(*file->entries));
    if (file->entries == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for %zu tensors",
                        json_object_size(file->header));
    }
    json_object_foreach(file->header, name, value)
    {
        tutti_code code;

        if (strcmp(name, METADATA) == 0) {
            continue;
        }
        code = read_entry(name, value, data_size, &file->entries[file->count], err);
        if (code != TUTTI_OK) {
            return code;
        }
        file->count++;
    }
    qsort(file->entries, file->count, sizeof(*file->entries), compare_offsets);
    return check_order(file, data_size, err);
}

static tutti_code
read_length(const unsigned char *bytes, size_t size, size_t *ret, tutti_error *err)
{
    uint64_t length = 0;
    int i;

    if (size < PREFIX_SIZE) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "it is no .safetensors file: it has %zu bytes, the length of the header "
                        "alone has 8",
                        size);
    }
    for (i = PREFIX_SIZE - 1; i >= 0; i--) {
        length = length << 8 | bytes[i];
    }
    if (length > SAFETENSORS_HEADER_MAX || length > size - PREFIX_SIZE) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "it is no .safetensors file: a header of %" PRIu64
                        " bytes, the file has %zu, and %u are the most",
                        length, size - PREFIX_SIZE, SAFETENSORS_HEADER_MAX);
    }
    *ret = (size_t)length;
    return TUTTI_OK;
}

tutti_code
safetensors_parse(const void *bytes, size_t size, safetensors *ret, tutti_error *err)
{
    safetensors file = {0};
    json_error_t wrong;
    size_t length = 0;
    tutti_code code = read_length(bytes, size, &length, err);

    if (code != TUTTI_OK) {
        return code;
    }
    file.data = (const char *)bytes + PREFIX_SIZE + length;
    file.header =
        json_loadb((const char *)bytes + PREFIX_SIZE, length, JSON_REJECT_DUPLICATES, &wrong);
    if (file.header == NULL) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header is no JSON: byte %d: %.200s",
                        wrong.position, wrong.text);
    }
    code = json_is_object(file.header)
               ? read_entries(&file, size - PREFIX_SIZE - length, err)
               : cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header is no JSON object");
    if (code != TUTTI_OK) {
        safetensors_close(&file);
        return code;
    }
    *ret = file;
    return TUTTI_OK;
}

tutti_code
safetensors_open(const char *path, safetensors *ret, tutti_error *err)
{
    npy_array file;
    tutti_code code = npy_load(path, &file, err);

    if (code != TUTTI_OK) {
        return code;
    }
    code = safetensors_parse(file.data, (size_t)file.bytes, ret, err);
    if (code != TUTTI_OK) {
        npy_close(&file);
        return code;
    }
    ret->file = file;
    return TUTTI_OK;
}

void
safetensors_close(safetensors *file)
{
    json_decref(file->header);
    free(file->entries);
    npy_close(&file->file);
    *file = (safetensors){0};
}
