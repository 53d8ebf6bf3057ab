#include "tensor/dlpack.h"

#include <stdio.h>
#include <string.h>

#include "base/error/text.h"

/* ------------------------------------------------------------------------------ dtypes */

typedef struct dl_row {
    tutti_dtype dtype;
    uint8_t code;
    uint8_t bits;
} dl_row;

/* Codes of DLPack 1.1. */
static const dl_row dl_rows[] = {
    {TUTTI_DTYPE_BOOL, 6, 8},      {TUTTI_DTYPE_UINT8, 1, 8},      {TUTTI_DTYPE_UINT16, 1, 16},
    {TUTTI_DTYPE_UINT32, 1, 32},   {TUTTI_DTYPE_UINT64, 1, 64},    {TUTTI_DTYPE_INT8, 0, 8},
    {TUTTI_DTYPE_INT16, 0, 16},    {TUTTI_DTYPE_INT32, 0, 32},     {TUTTI_DTYPE_INT64, 0, 64},
    {TUTTI_DTYPE_FP16, 2, 16},     {TUTTI_DTYPE_BF16, 4, 16},      {TUTTI_DTYPE_FP32, 2, 32},
    {TUTTI_DTYPE_FP64, 2, 64},     {TUTTI_DTYPE_COMPLEX64, 5, 64}, {TUTTI_DTYPE_COMPLEX128, 5, 128},
    {TUTTI_DTYPE_FP8_E4M3, 10, 8}, {TUTTI_DTYPE_FP8_E5M2, 12, 8},
};

#define DL_ROWS (sizeof(dl_rows) / sizeof(dl_rows[0]))

DLDataType
tutti_dlpack_of_dtype(tutti_dtype dtype)
{
    DLDataType ret = {0, 0, 1};
    size_t i;

    for (i = 0; i < DL_ROWS; i++) {
        if (dl_rows[i].dtype == dtype) {
            ret.code = dl_rows[i].code;
            ret.bits = dl_rows[i].bits;
        }
    }
    return ret;
}

tutti_dtype
tutti_dlpack_dtype(DLDataType dtype)
{
    size_t i;

    for (i = 0; i < DL_ROWS; i++) {
        if (dtype.lanes == 1 && dl_rows[i].code == dtype.code && dl_rows[i].bits == dtype.bits) {
            return dl_rows[i].dtype;
        }
    }
    return TUTTI_DTYPE_NONE;
}

/* ------------------------------------------------------------------------------ devices */

#define DL_CPU 1
#define DL_CUDA 2

bool
tutti_dlpack_parse_device(const char *text, DLDevice *ret_device)
{
    uint64_t number = 0;

    if (strcmp(text, "cpu") == 0) {
        *ret_device = (DLDevice){DL_CPU, 0};
        return true;
    }
    if (strncmp(text, "cuda:", 5) != 0 ||
        tutti_parse_uint(text + 5, INT32_MAX, &number, NULL) != TUTTI_OK) {
        return false;
    }
    *ret_device = (DLDevice){DL_CUDA, (int32_t)number};
    return true;
}

void
tutti_dlpack_device_name(DLDevice device, char ret_name[TUTTI_DEVICE_MAX + 1])
{
    ret_name[0] = '\0';
    if (device.device_type == DL_CPU) {
        (void)snprintf(ret_name, TUTTI_DEVICE_MAX + 1, "cpu");
    } else if (device.device_type == DL_CUDA && device.device_id >= 0) {
        (void)snprintf(ret_name, TUTTI_DEVICE_MAX + 1, "cuda:%d", (int)device.device_id);
    }
}
