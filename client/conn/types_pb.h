/* Private to client: the words of types.proto, as structs of ours and back. */
#ifndef TUTTI_CLIENT_CONN_TYPES_PB_H
#define TUTTI_CLIENT_CONN_TYPES_PB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/tensor.h"
#include "tutti/v1/types.pb-c.h"

/* A spec on its way out, with the memory its message points to. */
typedef struct wire_spec {
    Tutti__V1__TensorSpec message;
    int64_t dims[TUTTI_DIMS_MAX];
} wire_spec;

void client_write_spec(const tutti_spec *spec, wire_spec *ret);

/* protobuf-c's pointers are not const; NULL becomes "". */
char *client_write_text(const char *text);
ProtobufCBinaryData client_write_bytes(const void *data, size_t size);

/* [out, owned] ret_value  a copy with a NUL behind it; `ret_size` NULL = not wanted */
tutti_code client_read_value(ProtobufCBinaryData value, void **ret_value, size_t *ret_size,
                             tutti_error *err);

/*
 * What an agent answers is checked like all that comes from outside.
 * TUTTI_DATA_LOSS  it is nothing that an agent of this version says
 */
tutti_code client_read_spec(const Tutti__V1__TensorSpec *message, tutti_spec *ret_spec,
                            tutti_error *err);

/* NULL and an empty handle are fine when `needed` is false: the handle's text is "" then. */
tutti_code client_read_handle(const Tutti__V1__TensorRef *message, bool needed,
                              tutti_handle *ret_handle, tutti_error *err);

/* A handle or work id; too long is TUTTI_DATA_LOSS. */
tutti_code client_read_id(const char *text, char ret_id[TUTTI_HANDLE_MAX + 1], tutti_error *err);

/* NULL = no error: the code is TUTTI_OK. */
void client_read_error(const Tutti__V1__Error *message, tutti_error *ret);

/* Text for people: what does not fit is cut. */
void client_read_text(const char *text, char *ret, size_t size);

/* Who this client is to the coordinator. Borrows from the client. */
void client_write_member(const tutti_client *client, Tutti__V1__Member *ret);

/* Where a new tensor goes, for a request; "" where it overwrites one. Borrowed. */
char *client_device(const tutti_client *client, const char *into);

#endif
