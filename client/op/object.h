/* Private to client: objects and the bytes they travel as. */
#ifndef TUTTI_CLIENT_OP_OBJECT_H
#define TUTTI_CLIENT_OP_OBJECT_H

#include "tutti/error.h"
#include "tutti/object.h"

/* object_pb.c */
size_t client_object_size(const tutti_object *object);
size_t client_object_write(const tutti_object *object, unsigned char *ret_bytes);

/* [out] ret_object  its data owned. TUTTI_DATA_LOSS, TUTTI_RESOURCE_EXHAUSTED */
tutti_code client_object_read(const unsigned char *bytes, size_t size, tutti_object *ret_object,
                              tutti_error *err);

#endif
