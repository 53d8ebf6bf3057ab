/*
 * AVX-512 F, BW, DQ and VL; cmake/kernels.cmake has the flags. Its masks and 64-bit comparisons pay
 * in vectors of 256 bits already; of 512 they were not faster, and slower where memory is the
 * limit.
 */
#include "coll/reduce/reduce_kernels.h"

#if defined(__x86_64__)
#define LEVEL avx512
#include "coll/reduce/reduce_kernels.inc"
#endif
