/*
 * Names of codes, types and reductions. All follow the maps of the public headers, so a new entry
 * there needs no change here.
 */
#include "tutti/types.h"

#include <string.h>
#include <strings.h>

const char *
tutti_dtype_name(tutti_dtype dtype)
{
    switch (dtype) {
#define NAME_CASE(name, number, bytes, numpy)                                                      \
    case TUTTI_DTYPE_##name:                                                                       \
        return #name;
        TUTTI_DTYPE_MAP(NAME_CASE)
#undef NAME_CASE
    case TUTTI_DTYPE_NONE:
    default:
        return "DTYPE_<?>";
    }
}

size_t
tutti_dtype_bytes(tutti_dtype dtype)
{
    switch (dtype) {
#define SIZE_CASE(name, number, bytes, numpy)                                                      \
    case TUTTI_DTYPE_##name:                                                                       \
        return bytes;
        TUTTI_DTYPE_MAP(SIZE_CASE)
#undef SIZE_CASE
    case TUTTI_DTYPE_NONE:
    default:
        return 0;
    }
}

/* Both our own name and NumPy's are taken, in any case of letters. */
tutti_dtype
tutti_dtype_parse(const char *name)
{
#define TRY(own, number, bytes, numpy)                                                             \
    if (strcasecmp(name, #own) == 0 || strcasecmp(name, numpy) == 0) {                             \
        return TUTTI_DTYPE_##own;                                                                  \
    }
    TUTTI_DTYPE_MAP(TRY)
#undef TRY
    return TUTTI_DTYPE_NONE;
}

const char *
tutti_reduce_name(tutti_reduce reduce)
{
    switch (reduce) {
#define NAME_CASE(name, number, word)                                                              \
    case TUTTI_REDUCE_##name:                                                                      \
        return word;
        TUTTI_REDUCE_MAP(NAME_CASE)
#undef NAME_CASE
    case TUTTI_REDUCE_NONE:
    default:
        return "reduce_<?>";
    }
}

/* "product" and "mean" are what NumPy and PyTorch call them. */
tutti_reduce
tutti_reduce_parse(const char *name)
{
#define TRY(own, number, word)                                                                     \
    if (strcasecmp(name, word) == 0) {                                                             \
        return TUTTI_REDUCE_##own;                                                                 \
    }
    TUTTI_REDUCE_MAP(TRY)
#undef TRY
    if (strcasecmp(name, "product") == 0) {
        return TUTTI_REDUCE_PROD;
    }
    if (strcasecmp(name, "mean") == 0) {
        return TUTTI_REDUCE_AVG;
    }
    return TUTTI_REDUCE_NONE;
}
