/* AVX2 and F16C; cmake/kernels.cmake has the flags. */
#include "coll/reduce/reduce_kernels.h"

#if defined(__x86_64__)
#define LEVEL avx2
#include "coll/reduce/reduce_kernels.inc"
#endif
