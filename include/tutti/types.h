/*
 * Types: the dtypes, reduce ops, forms and limits that all interfaces of Tutti share.
 *
 *     tutti_spec spec = {TUTTI_DTYPE_FP32, 2, {128, 1024}};
 *     uint64_t bytes;
 *
 *     tutti_spec_size(&spec, NULL, &bytes, &err);             // tutti/tensor.h: 524288
 *     puts(tutti_dtype_name(tutti_dtype_parse("float32")));   // FP32
 *
 * A tensor's bytes are row-major (the last dimension varies fastest), without gaps, and
 * little-endian, in memory as well as on the wire. There are no strides. The names are those of the
 * Open Inference Protocol; the numbers are those of tutti.v1.Dtype, tutti.v1.ReduceOp and
 * tutti.v1.Form, so a program may pass them on.
 *
 * Threads: all functions are pure. Any thread may call them, without a client.
 *
 * Caveats
 *
 * - There is no conversion. A tensor is received with the dtype that it was sent with, and an op
 *   whose ranks give different dtypes fails on all of them with DTYPE_MISMATCH.
 * - The host stores FP16, BF16 and FP8 as bits. C11 has no such types: use uint16_t and uint8_t.
 */
#ifndef TUTTI_TYPES_H
#define TUTTI_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/code.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Dimensions of a tensor, 0 to this: a tensor of 0 dimensions is a scalar, of one element. */
#define TUTTI_DIMS_MAX 16
/*
 * Bytes of the name of a job, group, mesh, tensor or tracer, without the NUL. Names consist of
 * letters, digits and . _ / - and begin with a letter, a digit or _ (else BAD_NAME).
 */
#define TUTTI_NAME_MAX 127
/* Bytes of the handle of a tensor or work, "tensor:3.8f3a9c12e4b07d55.17", without the NUL. */
#define TUTTI_HANDLE_MAX 63
/* Ranks of a job. */
#define TUTTI_RANKS_MAX 65536
/*
 * Tensor bytes that may travel inside one message: 3 MiB. libtutti sends larger tensors in chunks
 * by itself.
 */
#define TUTTI_INLINE_BYTES_MAX (3u << 20)
/* Tensor bytes in one message of an upload or download: 4 MiB. */
#define TUTTI_CHUNK_BYTES_MAX (4u << 20)

/*
 * All dtypes: X(NAME, number, bytes of one element, numpy's name).
 *
 *   BOOL                  one byte, 0 or 1; ops take any other byte as true, and write 1
 *   UINT8 ... UINT64      unsigned integers
 *   INT8 ... INT64        signed integers, two's complement
 *   FP16                  IEEE 754 binary16
 *   BF16                  the upper half of a binary32
 *   FP32, FP64            IEEE 754 binary32 and binary64: float and double
 *   COMPLEX64, 128        two FP32, or two FP64: the real part, then the imaginary part
 *   FP8_E4M3, FP8_E5M2    8-bit floats, moved by every op and reduced by none (DTYPE_UNSUPPORTED)
 */
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

/*
 * What one element of a tensor is. TUTTI_DTYPE_NONE is no dtype: it says "not known" or "not
 * stated", and a spec with it is refused with BAD_DTYPE.
 */
typedef enum tutti_dtype {
    TUTTI_DTYPE_NONE = 0,
#define TUTTI_DTYPE_ENUM(name, number, bytes, numpy) TUTTI_DTYPE_##name = number,
    TUTTI_DTYPE_MAP(TUTTI_DTYPE_ENUM)
#undef TUTTI_DTYPE_ENUM
} tutti_dtype;

/*
 * All reduce ops: X(NAME, number, the name that people type). They join the elements at the same
 * place of all ranks' inputs, element by element, in the order of group ranks.
 *
 *   SUM, PROD, MIN, MAX   as the names say
 *   AVG                   the sum divided by the number of ranks
 *   BAND, BOR, BXOR       bitwise and, or, exclusive or
 *   PREMUL_SUM            each rank's elements times that rank's tutti_op.factor, then the sum
 *
 * Which dtypes a reduce op takes; others are refused with BAD_REDUCE_OP:
 *
 *   BOOL        SUM, MAX, BOR = or; PROD, MIN, BAND = and; BXOR = exclusive or; no AVG, no
 *               PREMUL_SUM
 *   integers    all but PREMUL_SUM. SUM and PROD wrap around. AVG is the wrapped sum divided by
 *               the number of ranks, truncated toward zero
 *   floats      SUM, PROD, MIN, MAX, AVG, PREMUL_SUM. FP16 and BF16 are accumulated in FP32 and
 *               rounded once. In MIN and MAX a number wins over a NaN, and -0 is less than +0
 *   complex     SUM, AVG, PREMUL_SUM
 *   FP8         none: DTYPE_UNSUPPORTED
 *
 * In host memory the result has the same bits on every rank, and a float sum has the bits of a sum
 * in the order of group ranks, unless a table or --algorithm permits another order
 * (docs/algorithms.md). On GPUs NCCL runs the reduction, in an order of its own.
 */
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

/* How the elements of several ranks become one. TUTTI_REDUCE_NONE is no reduce op. */
typedef enum tutti_reduce {
    TUTTI_REDUCE_NONE = 0,
#define TUTTI_REDUCE_ENUM(name, number, word) TUTTI_REDUCE_##name = number,
    TUTTI_REDUCE_MAP(TUTTI_REDUCE_ENUM)
#undef TUTTI_REDUCE_ENUM
} tutti_reduce;

/*
 * How the tensors of several ranks become one (all_gather, gather), or one becomes several
 * (reduce_scatter, scatter). `axis` is tutti_op.axis, n the size of the group.
 */
typedef enum tutti_form {
    /*
     * Joined along `axis`, in the order of group ranks: that dimension becomes n times as long, and
     * n scalars become one dimension of length n. In the other direction the tensor is cut there
     * into n equal parts (else INDIVISIBLE; of a scalar SCALAR_INPUT).
     */
    TUTTI_FORM_CONCAT = 0,
    /*
     * Joined along a new dimension of length n, put in at `axis`. In the other direction the
     * dimension at `axis` has the length n, and each part is without it.
     */
    TUTTI_FORM_STACK = 1,
    /*
     * Not joined: a tensor for each rank, in tutti_op.inputs or outputs (tutti/list.h), each of a
     * shape of its own where the op permits that.
     */
    TUTTI_FORM_LIST = 2,
    /*
     * The elements in memory order, as all_gather_into_tensor of PyTorch: the result has the shape
     * tutti_op.out_shape, or one dimension without it. Another number of elements is OUT_SHAPE.
     */
    TUTTI_FORM_FLAT = 3,
} tutti_form;

/*
 * What a tensor is, without its bytes. Plain data: copied by assignment, nothing to free.
 *
 *     tutti_spec matrix = {TUTTI_DTYPE_BF16, 2, {64, 64}};
 *     tutti_spec scalar = {TUTTI_DTYPE_FP64, 0, {0}};
 */
typedef struct tutti_spec {
    /* TUTTI_DTYPE_NONE is refused with BAD_DTYPE. */
    tutti_dtype dtype;
    /* 0 to TUTTI_DIMS_MAX; 0 = a scalar. More is BAD_SHAPE. */
    uint32_t dim_count;
    /*
     * Elements along each dimension, each 0 or more; those from dim_count on are not looked at. A 0
     * makes a tensor without elements, which is permitted. The product of the others times the
     * bytes of an element must not be above 2^63 - 1 (else BAD_SHAPE).
     */
    int64_t dims[TUTTI_DIMS_MAX];
} tutti_spec;

/*
 * The name of a dtype, "FP32".
 *
 * Returns a static string, never NULL; "DTYPE_<?>" for TUTTI_DTYPE_NONE and for a number that is
 * not in the map.
 */
TUTTI_API const char *tutti_dtype_name(tutti_dtype dtype);

/*
 * The dtype of a name: ours or numpy's, in upper or lower case ("FP32", "fp32", "float32").
 *
 * [in] name  not NULL
 *
 * Returns TUTTI_DTYPE_NONE if no dtype has that name.
 */
TUTTI_API tutti_dtype tutti_dtype_parse(const char *name);

/*
 * Bytes of one element.
 *
 * Returns 1, 2, 4, 8 or 16; 0 for TUTTI_DTYPE_NONE and for a number that is not in the map.
 */
TUTTI_API size_t tutti_dtype_bytes(tutti_dtype dtype);

/*
 * The name of a reduce op, "premul_sum".
 *
 * Returns a static string, never NULL; "reduce_<?>" for TUTTI_REDUCE_NONE and for a number that is
 * not in the map.
 */
TUTTI_API const char *tutti_reduce_name(tutti_reduce reduce);

/*
 * The reduce op of a name, in upper or lower case. "product" stands for PROD and "mean" for AVG, as
 * in other libraries.
 *
 * [in] name  not NULL
 *
 * Returns TUTTI_REDUCE_NONE if no reduce op has that name.
 */
TUTTI_API tutti_reduce tutti_reduce_parse(const char *name);

#ifdef __cplusplus
}
#endif

#endif
