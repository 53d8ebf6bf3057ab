/* Numbers of every dtype as the checker of tutti bench reads and writes them. */
#ifndef TUTTI_CLIENT_CLI_BENCH_NUMBER_H
#define TUTTI_CLIENT_CLI_BENCH_NUMBER_H

#include <stdbool.h>

#include "tutti/types.h"

/* FP16, BF16, FP32, FP64 and complex ones: their results may be rounded. */
bool bench_number_is_float(tutti_dtype dtype);

/* The distance from 1 to the next number; 0 for what is no float. */
double bench_number_unit(tutti_dtype dtype);

/* A whole number as an integer of this dtype keeps it. */
double bench_number_wrap(tutti_dtype dtype, double number);

/* One element; of complex ones both parts, else the first. FP8 is a byte and no number. */
void bench_number_store(tutti_dtype dtype, const double number[2], void *ret_element);
void bench_number_load(tutti_dtype dtype, const void *element, double ret_number[2]);

#endif
