/* Private to client: tensors put and got, whatever their size. */
#ifndef TUTTI_CLIENT_TENSOR_TENSOR_H
#define TUTTI_CLIENT_TENSOR_TENSOR_H

#include "client/tensor/tensors.h"
#include "tutti/tensor.h"

/* The same as tutti_tensor_put and tutti_tensor_read, on a transfer that was taken. */
tutti_code client_put_any(tutti_client *client, const client_put *put,
                          const tutti_transfer *transfer, tutti_handle *ret_handle,
                          tutti_error *err);

#endif
