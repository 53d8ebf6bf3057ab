/* Names of dtypes in .safetensors files: "F32", "BF16". */
#ifndef TUTTI_CLIENT_CLI_SAFETENSORS_DTYPES_H
#define TUTTI_CLIENT_CLI_SAFETENSORS_DTYPES_H

#include "tutti/types.h"

/* TUTTI_DTYPE_NONE: there are no tensors of that dtype. */
tutti_dtype safetensors_dtype(const char *name);

/* NULL: the format lacks it. Static. */
const char *safetensors_dtype_name(tutti_dtype dtype);

#endif
