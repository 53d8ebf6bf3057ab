/*
 * Which kernel reduces: the table of the best level that this processor has. Any thread; nothing is
 * allocated. The numeric rules are in reduce.h, their arithmetic in reduce_kernels.inc; all levels
 * give the same bits, so the choice of a level cannot be seen in a result, also between ranks on
 * different processors.
 */
#include "coll/reduce/reduce.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/error/fail.h"
#include "coll/reduce/reduce_kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* F16C is asked for by cpuid: not all supported compilers know it in __builtin_cpu_supports. The
 * AVX state was checked with avx2. */
#if defined(__x86_64__)
static bool
has_f16c(void)
{
    unsigned int a = 0;
    unsigned int b = 0;
    unsigned int c = 0;
    unsigned int d = 0;

    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static bool
has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

size_t
tutti_reduce_levels(const tutti_reduce_level *ret_levels[TUTTI_REDUCE_LEVELS_MAX])
{
    size_t count = 0;

#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && has_f16c()) {
        if (has_avx512()) {
            ret_levels[count++] = &tutti_reduce_avx512;
        }
        ret_levels[count++] = &tutti_reduce_avx2;
    }
#endif
    ret_levels[count++] = &tutti_reduce_base;
    return count;
}

/*
 * Asked once: the question costs microseconds on a virtual machine, and the answer never changes.
 * Relaxed is enough: the tables are constants, and two threads that ask at once write the same
 * pointer.
 */
static const tutti_reduce_level *
best_level(void)
{
    static _Atomic(const tutti_reduce_level *) best;
    const tutti_reduce_level *level = atomic_load_explicit(&best, memory_order_relaxed);
    const tutti_reduce_level *levels[TUTTI_REDUCE_LEVELS_MAX];

    if (level == NULL) {
        (void)tutti_reduce_levels(levels);
        level = levels[0];
        atomic_store_explicit(&best, level, memory_order_relaxed);
    }
    return level;
}

static bool
is_in_table(tutti_reduce reduce, tutti_dtype dtype)
{
    return dtype > TUTTI_DTYPE_NONE && dtype < TUTTI_REDUCE_DTYPES && reduce > TUTTI_REDUCE_NONE &&
           reduce < TUTTI_REDUCE_OPS && tutti_reduce_base.kernels[dtype][reduce] != NULL;
}

/* SUM is defined on every dtype that has arithmetic at all, so it tells "no such dtype" from "not
 * this op". */
tutti_code
tutti_reduce_check(tutti_reduce reduce, tutti_dtype dtype, tutti_error *err)
{
    if (tutti_dtype_bytes(dtype) == 0 || !is_in_table(TUTTI_REDUCE_SUM, dtype)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DTYPE_UNSUPPORTED",
                              "no arithmetic on %s: convert the tensor first",
                              tutti_dtype_name(dtype));
    }
    if (reduce == TUTTI_REDUCE_NONE) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_REDUCE_OP",
                              "no reduce op is given: need sum, prod, min, max, avg, ...");
    }
    if (reduce < TUTTI_REDUCE_NONE || reduce >= TUTTI_REDUCE_OPS) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_REDUCE_OP",
                              "reduce op %d is unknown", (int)reduce);
    }
    if (!is_in_table(reduce, dtype)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_REDUCE_OP",
                              "%s on %s has no meaning: choose another reduce op, or convert the "
                              "tensor first",
                              tutti_reduce_name(reduce), tutti_dtype_name(dtype));
    }
    return TUTTI_OK;
}

/* Complex numbers are reduced as twice as many parts: only ops that act on each part alone are in
 * the table. */
static bool
is_complex(tutti_dtype dtype)
{
    return dtype == TUTTI_DTYPE_COMPLEX64 || dtype == TUTTI_DTYPE_COMPLEX128;
}

static void
run_reduce(tutti_reduce reduce, tutti_dtype dtype, tutti_reduce_job job)
{
    assert(is_in_table(reduce, dtype));
    assert(job.input_count >= 1 && job.input_count <= TUTTI_REDUCE_INPUTS_MAX);
    assert((job.factors != NULL) == (reduce == TUTTI_REDUCE_PREMUL_SUM));
    job.count *= is_complex(dtype) ? 2 : 1;
    best_level()->kernels[dtype][reduce](&job);
}

void
tutti_reduce_run(tutti_reduce reduce, tutti_dtype dtype, const void *const *inputs,
                 size_t input_count, const double *factors, size_t count, void *output)
{
    run_reduce(reduce, dtype,
               (tutti_reduce_job){inputs, input_count, factors, .count = count, .output = output});
}

void
tutti_reduce_run_far(tutti_reduce reduce, tutti_dtype dtype, const void *const *inputs,
                     size_t input_count, const double *factors, size_t count, void *output)
{
    run_reduce(reduce, dtype,
               (tutti_reduce_job){inputs, input_count, factors, .count = count, .output = output,
                                  .far = true});
}

/* An AVG kernel over one input that divides by `parts` instead of the number of inputs. */
void
tutti_reduce_divide(tutti_dtype dtype, size_t parts, size_t count, void *data)
{
    const void *const inputs[] = {data};
    const tutti_reduce_job job = {
        .inputs = inputs,
        .input_count = 1,
        .count = is_complex(dtype) ? 2 * count : count,
        .output = data,
        .parts = parts,
    };

    assert(is_in_table(TUTTI_REDUCE_AVG, dtype));
    assert(parts >= 1);
    best_level()->kernels[dtype][TUTTI_REDUCE_AVG](&job);
}
