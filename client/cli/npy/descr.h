/* NumPy's names of dtypes: "<f4", "|b1", "bfloat16". */
#ifndef TUTTI_CLIENT_CLI_NPY_DESCR_H
#define TUTTI_CLIENT_CLI_NPY_DESCR_H

#include "client/cli/npy/npy.h"

/* Into the header's dtype and swapped. TUTTI_INVALID_ARGUMENT  there are no such tensors */
tutti_code npy_descr_read(const char *word, npy_header *header, tutti_error *err);

/* What we write for one of our dtypes. Static. */
const char *npy_descr_of(tutti_dtype dtype);

#endif
