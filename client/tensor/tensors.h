/* Private to client: small tensors, in one message. */
#ifndef TUTTI_CLIENT_TENSOR_TENSORS_H
#define TUTTI_CLIENT_TENSOR_TENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/tensor.h"

/* Where bytes go: a new tensor, named or not, or an existing one. */
typedef struct client_put {
    const tutti_spec *spec;
    const void *data;
    uint64_t bytes;
    const char *name; /* NULL = none */
    const char *into; /* NULL = a new one */
} client_put;

/* [in] lease  under which it is made; 0 = the client's, if it has one */
tutti_code client_wire_create(tutti_client *client, const tutti_spec *spec, const char *name,
                              uint64_t lease, tutti_handle *ret_handle, tutti_error *err);

tutti_code client_wire_put(tutti_client *client, const client_put *put, uint64_t deadline_ns,
                           tutti_handle *ret_handle, tutti_error *err);

/* Exactly `bytes` of them. */
tutti_code client_wire_get(tutti_client *client, const char *handle, void *data, uint64_t bytes,
                           uint64_t deadline_ns, tutti_error *err);

/* `deadline_ns` 0 = the client's timeout. */
tutti_code client_wire_delete(tutti_client *client, const char *const *handles, size_t count,
                              tutti_error *err);

#endif
