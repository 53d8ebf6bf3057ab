/*
 * Message: one received message, whose struct protobuf-c has generated.
 *
 * What is sent is the generated struct itself (`&request.base`); it is packed before the function
 * that takes it returns.
 *
 * Limits on what is received: 8 MiB of bytes (receive_bytes_max), and 16 MiB of memory for its struct; a
 * peer that sends more gets RESOURCE_EXHAUSTED. A request that is malformed, has text that is not
 * UTF-8, or an enum number that its .proto does not know, gets INVALID_ARGUMENT and reaches no
 * handler.
 *
 * One field is special. If a message type has a field `bytes payload = 100`, its bytes are not in the
 * received struct, where it is empty: they stay where gRPC received them until
 * tuttirpc_message_read_payload copies them to their destination, once. For sending, set the field.
 */
#ifndef TUTTI_RPC_PUBLIC_MESSAGE_H
#define TUTTI_RPC_PUBLIC_MESSAGE_H

#include <stddef.h>

#include "tutti-rpc/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Declared by protobuf-c. */
struct ProtobufCMessage;
struct ProtobufCServiceDescriptor;

/* One thread at a time. */
typedef struct tutti_rpc_message tuttirpc_message;

/* The struct, of the type that the method declares. Borrowed, good as long as the message. */
TUTTIRPC_API const void *tuttirpc_message_get(const tuttirpc_message *message);

/* Bytes of field 100 that have not been read yet; 0 for a type without it. */
TUTTIRPC_API size_t tuttirpc_message_payload_bytes(const tuttirpc_message *message);

/*
 * Copy the next `size` bytes of field 100 to `ret_bytes`, or as many as are left.
 *
 * Returns how many were copied.
 */
TUTTIRPC_API size_t tuttirpc_message_read_payload(tuttirpc_message *message, void *ret_bytes,
                                                  size_t size);

/* NULL is fine. Only of messages that a function has given away as `[out, owned]`. */
TUTTIRPC_API void tuttirpc_message_free(tuttirpc_message *message);

#ifdef __cplusplus
}
#endif

#endif
