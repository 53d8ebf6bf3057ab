/* DLPack: dtypes and devices in the words of plug-ins (tutti/plugin.h), and back. Any thread. */
#ifndef TUTTI_TENSOR_DLPACK_H
#define TUTTI_TENSOR_DLPACK_H

#include <stdbool.h>

#include "tensor/tensor.h"
#include "tutti/plugin.h"
#include "tutti/types.h"

DLDataType tutti_dlpack_of_dtype(tutti_dtype dtype);
/* TUTTI_DTYPE_NONE: none of ours. */
tutti_dtype tutti_dlpack_dtype(DLDataType dtype);

/* "cpu", "cuda:0". False: not of that form. */
bool tutti_dlpack_parse_device(const char *text, DLDevice *ret_device);
/* "" for one that agents do not have. */
void tutti_dlpack_device_name(DLDevice device, char ret_name[TUTTI_DEVICE_MAX + 1]);

#endif
