/* .safetensors files being written, and the names of dtypes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/safetensors/dtypes.h"
#include "client/cli/safetensors/safetensors.h"
#include "client/cli/util/output.h"

static const struct {
    const char *name;
    tutti_dtype dtype;
} names[] = {
    {"BOOL", TUTTI_DTYPE_BOOL},        {"U8", TUTTI_DTYPE_UINT8},
    {"I8", TUTTI_DTYPE_INT8},          {"F8_E4M3", TUTTI_DTYPE_FP8_E4M3},
    {"F8_E5M2", TUTTI_DTYPE_FP8_E5M2}, {"U16", TUTTI_DTYPE_UINT16},
    {"I16", TUTTI_DTYPE_INT16},        {"F16", TUTTI_DTYPE_FP16},
    {"BF16", TUTTI_DTYPE_BF16},        {"U32", TUTTI_DTYPE_UINT32},
    {"I32", TUTTI_DTYPE_INT32},        {"F32", TUTTI_DTYPE_FP32},
    {"U64", TUTTI_DTYPE_UINT64},       {"I64", TUTTI_DTYPE_INT64},
    {"F64", TUTTI_DTYPE_FP64},         {"C64", TUTTI_DTYPE_COMPLEX64},
};

tutti_dtype
safetensors_dtype(const char *name)
{
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i].name, name) == 0) {
            return names[i].dtype;
        }
    }
    return TUTTI_DTYPE_NONE;
}

const char *
safetensors_dtype_name(tutti_dtype dtype)
{
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].dtype == dtype) {
            return names[i].name;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------ the header */

static int
compare_sizes(const void *one, const void *other)
{
    const safetensors_entry *a = one;
    const safetensors_entry *b = other;
    const size_t a_size = tutti_dtype_bytes(a->spec.dtype);
    const size_t b_size = tutti_dtype_bytes(b->spec.dtype);

    return a_size != b_size ? (a_size > b_size ? -1 : 1) : strcmp(a->name, b->name);
}

static json_t *
json_entry(const safetensors_entry *entry)
{
    json_t *shape = json_array();
    uint32_t i;

    for (i = 0; i < entry->spec.dim_count; i++) {
        (void)json_array_append_new(shape, json_integer(entry->spec.dims[i]));
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_dtype_name(entry->spec.dtype),
                     "shape", shape, "data_offsets", (json_int_t)entry->offset,
                     (json_int_t)(entry->offset + entry->bytes));
}

/* Gives the entry its place at *at, and moves that behind it. */
static tutti_code
add_entry(json_t *header, safetensors_entry *entry, uint64_t *at, tutti_error *err)
{
    tutti_code code = tutti_spec_size(&entry->spec, NULL, &entry->bytes, err);

    if (code != TUTTI_OK) {
        return code;
    }
    if (safetensors_dtype_name(entry->spec.dtype) == NULL) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "\"%s\" is %s, which .safetensors files lack: write a .npy file",
                        entry->name, tutti_dtype_name(entry->spec.dtype));
    }
    if (strcmp(entry->name, "__metadata__") == 0 || json_object_get(header, entry->name) != NULL) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "\"%s\" cannot be the name of a tensor in the file%s", entry->name,
                        json_object_get(header, entry->name) != NULL ? ": it is given twice" : "");
    }
    entry->offset = *at;
    *at += entry->bytes;
    if (json_object_set_new(header, entry->name, json_entry(entry)) != 0) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "\"%s\" is no text in UTF-8, or no memory",
                        entry->name);
    }
    return TUTTI_OK;
}

/* The length, and the text with spaces behind it up to a multiple of eight. [out, owned] */
static char *
format_header(const json_t *header, size_t *ret_size)
{
    char *text = json_dumps(header, JSON_COMPACT);
    const size_t size = text == NULL ? 0 : strlen(text);
    const size_t padded = (size + 7) / 8 * 8;
    char *bytes = text == NULL ? NULL : malloc(8 + padded);
    int i;

    if (bytes != NULL) {
        for (i = 0; i < 8; i++) {
            bytes[i] = (char)((uint64_t)padded >> (8 * i) & 0xff);
        }
        memset(bytes + 8, ' ', padded);
        memcpy(bytes + 8, text, size);
    }
    free(text);
    *ret_size = 8 + padded;
    return bytes;
}

tutti_code
safetensors_create(const char *path, safetensors_entry *entries, size_t count,
                   npy_output *ret_output, tutti_error *err)
{
    json_t *header = json_object();
    uint64_t bytes = 0;
    size_t size;
    char *text = NULL;
    tutti_code code = TUTTI_OK;
    size_t i;

    qsort(entries, count, sizeof(*entries), compare_sizes);
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = add_entry(header, &entries[i], &bytes, err);
    }
    if (code == TUTTI_OK) {
        text = format_header(header, &size);
        code = text != NULL ? npy_create_file(path, text, size, bytes, ret_output, err)
                            : cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a header");
    }
    free(text);
    json_decref(header);
    return code;
}
