/*
 * Types: the dtypes, reduce ops and limits that every door of Tutti speaks of.
 *
 * Bytes of a tensor are row-major and little-endian. The names are those of the Open Inference
 * Protocol; the numbers are those of tutti.v1.Dtype and tutti.v1.ReduceOp.
 */
#ifndef TUTTI_TYPES_H
#define TUTTI_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/code.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_DIMS_MAX 16                 /* dimensions of a tensor; 0 = a scalar */
#define TUTTI_NAME_MAX 127                /* bytes of a job's, group's or tensor's name */
#define TUTTI_HANDLE_MAX 63               /* bytes of a tensor's or work's handle */
#define TUTTI_RANKS_MAX 65536             /* ranks of a job */
#define TUTTI_INLINE_BYTES_MAX (3u << 20) /* tensor bytes that may travel inside one message */
#define TUTTI_CHUNK_BYTES_MAX (4u << 20)  /* tensor bytes in one message of a stream */

/* X(NAME, number, bytes of one element, numpy's name) */
#define TUTTI_DTYPE_MAP(X)                                                                         \
    X(BOOL, 1, 1, "bool")                                                                          \
    X(UINT8, 2, 1, "uint8")                                                                        \
    X(UINT16, 3, 2, "uint16")                                                                      \
    X(UINT32, 4, 4, "uint32")                                                                      \
    X(UINT64, 5, 8, "uint64")                                                                      \
    X(INT8, 6, 1, "int8")                                                                          \
    X(INT16, 7, 2, "int16")                                                                        \
    X(INT32, 8, 4, "int32")                                                                        \
    X(INT64, 9, 8, "int64")                                                                        \
    X(FP16, 10, 2, "float16")                                                                      \
    X(BF16, 11, 2, "bfloat16")                                                                     \
    X(FP32, 12, 4, "float32")                                                                      \
    X(FP64, 13, 8, "float64")                                                                      \
    X(COMPLEX64, 14, 8, "complex64")                                                               \
    X(COMPLEX128, 15, 16, "complex128")                                                            \
    X(FP8_E4M3, 16, 1, "float8_e4m3")                                                              \
    X(FP8_E5M2, 17, 1, "float8_e5m2")

typedef enum tutti_dtype {
    TUTTI_DTYPE_NONE = 0,
#define TUTTI_DTYPE_ENUM(name, number, bytes, numpy) TUTTI_DTYPE_##name = number,
    TUTTI_DTYPE_MAP(TUTTI_DTYPE_ENUM)
#undef TUTTI_DTYPE_ENUM
} tutti_dtype;

/* X(NAME, number, the name people type) */
#define TUTTI_REDUCE_MAP(X)                                                                        \
    X(SUM, 1, "sum")                                                                               \
    X(PROD, 2, "prod")                                                                             \
    X(MIN, 3, "min")                                                                               \
    X(MAX, 4, "max")                                                                               \
    X(AVG, 5, "avg")                                                                               \
    X(BAND, 6, "band")                                                                             \
    X(BOR, 7, "bor")                                                                               \
    X(BXOR, 8, "bxor")                                                                             \
    X(PREMUL_SUM, 9, "premul_sum")

typedef enum tutti_reduce {
    TUTTI_REDUCE_NONE = 0,
#define TUTTI_REDUCE_ENUM(name, number, word) TUTTI_REDUCE_##name = number,
    TUTTI_REDUCE_MAP(TUTTI_REDUCE_ENUM)
#undef TUTTI_REDUCE_ENUM
} tutti_reduce;

/* How tensors of several ranks become one, or one becomes several. The numbers of tutti.v1.Form. */
typedef enum tutti_form {
    TUTTI_FORM_CONCAT = 0, /* joined along `axis`; cut into equal parts there */
    TUTTI_FORM_STACK = 1,  /* along a dimension of the group's size: new, or cut and gone */
    TUTTI_FORM_LIST = 2,   /* a tensor for each rank, of its own shape where each has its own */
    TUTTI_FORM_FLAT = 3,   /* elements in memory order, into a tensor of `out_shape` */
} tutti_form;

/* What a tensor is, without its bytes. */
typedef struct tutti_spec {
    tutti_dtype dtype;
    uint32_t dim_count; /* 0 = a scalar */
    int64_t dims[TUTTI_DIMS_MAX];
} tutti_spec;

/* "FP32". Static; "DTYPE_<?>" for a number that is none of ours. */
TUTTI_API const char *tutti_dtype_name(tutti_dtype dtype);

/* From "FP32", "fp32" or "float32"; TUTTI_DTYPE_NONE when nobody knows it. */
TUTTI_API tutti_dtype tutti_dtype_parse(const char *name);

/* Bytes of one element: 1 to 16; 0 for a number that is none of ours. */
TUTTI_API size_t tutti_dtype_bytes(tutti_dtype dtype);

/* "sum". Static; "reduce_<?>" for a number that is none of ours. */
TUTTI_API const char *tutti_reduce_name(tutti_reduce reduce);

/* From "sum", "SUM", "product", "mean" ...; TUTTI_REDUCE_NONE when nobody knows it. */
TUTTI_API tutti_reduce tutti_reduce_parse(const char *name);

#ifdef __cplusplus
}
#endif

#endif
