#include "client/cli/npy/descr.h"

#include <string.h>

#include "client/cli/npy/npy.h"
#include "client/cli/util/output.h"

typedef struct descr {
    const char *name; /* without the byte order */
    tutti_dtype dtype;
} descr;

/* What NumPy writes behind '<', '>', '|' or '='. */
static const descr ordered[] = {
    {"b1", TUTTI_DTYPE_BOOL},      {"u1", TUTTI_DTYPE_UINT8},       {"u2", TUTTI_DTYPE_UINT16},
    {"u4", TUTTI_DTYPE_UINT32},    {"u8", TUTTI_DTYPE_UINT64},      {"i1", TUTTI_DTYPE_INT8},
    {"i2", TUTTI_DTYPE_INT16},     {"i4", TUTTI_DTYPE_INT32},       {"i8", TUTTI_DTYPE_INT64},
    {"f2", TUTTI_DTYPE_FP16},      {"f4", TUTTI_DTYPE_FP32},        {"f8", TUTTI_DTYPE_FP64},
    {"c8", TUTTI_DTYPE_COMPLEX64}, {"c16", TUTTI_DTYPE_COMPLEX128}, {"V2", TUTTI_DTYPE_BF16},
};

/* What others write, without a byte order. */
static const descr named[] = {
    {"bfloat16", TUTTI_DTYPE_BF16},
    {"float8_e4m3", TUTTI_DTYPE_FP8_E4M3},
    {"float8_e4m3fn", TUTTI_DTYPE_FP8_E4M3},
    {"float8_e5m2", TUTTI_DTYPE_FP8_E5M2},
};

static tutti_dtype
find_descr(const descr *table, size_t count, const char *name)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return table[i].dtype;
        }
    }
    return TUTTI_DTYPE_NONE;
}

/* One byte needs no order, and bool is written with '|'. A void's order is not said. */
static bool
is_swapped(char order, tutti_dtype dtype)
{
    return order == '>' && tutti_dtype_bytes(dtype) > 1;
}

/*
 * One byte of void leaves the dtype NONE: FP8 has two forms, and only the caller can say which it
 * is.
 */
tutti_code
npy_descr_read(const char *word, npy_header *header, tutti_error *err)
{
    header->spec.dtype = find_descr(named, sizeof(named) / sizeof(named[0]), word);
    if (header->spec.dtype != TUTTI_DTYPE_NONE) {
        return TUTTI_OK;
    }
    if (word[0] == '\0' || strchr("<>|=", word[0]) == NULL) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "dtype '%s' says no byte order", word);
    }
    if (strcmp(word + 1, "V1") == 0) {
        return TUTTI_OK; /* some FP8: the caller knows */
    }
    header->spec.dtype = find_descr(ordered, sizeof(ordered) / sizeof(ordered[0]), word + 1);
    if (header->spec.dtype == TUTTI_DTYPE_NONE) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "there are no tensors of dtype '%s'", word);
    }
    header->swapped = is_swapped(word[0], header->spec.dtype);
    return TUTTI_OK;
}

const char *
npy_descr_of(tutti_dtype dtype)
{
    static const char *const words[] = {
        [TUTTI_DTYPE_BOOL] = "|b1",        [TUTTI_DTYPE_UINT8] = "|u1",
        [TUTTI_DTYPE_UINT16] = "<u2",      [TUTTI_DTYPE_UINT32] = "<u4",
        [TUTTI_DTYPE_UINT64] = "<u8",      [TUTTI_DTYPE_INT8] = "|i1",
        [TUTTI_DTYPE_INT16] = "<i2",       [TUTTI_DTYPE_INT32] = "<i4",
        [TUTTI_DTYPE_INT64] = "<i8",       [TUTTI_DTYPE_FP16] = "<f2",
        [TUTTI_DTYPE_BF16] = "<V2",        [TUTTI_DTYPE_FP32] = "<f4",
        [TUTTI_DTYPE_FP64] = "<f8",        [TUTTI_DTYPE_COMPLEX64] = "<c8",
        [TUTTI_DTYPE_COMPLEX128] = "<c16", [TUTTI_DTYPE_FP8_E4M3] = "|V1",
        [TUTTI_DTYPE_FP8_E5M2] = "|V1",
    };

    return words[dtype];
}
