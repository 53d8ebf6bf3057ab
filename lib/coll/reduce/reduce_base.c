/* The level that every processor runs. */
#define LEVEL base
#include "coll/reduce/reduce_kernels.inc"
