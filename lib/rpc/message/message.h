/*
 * The inside of message.h: protobuf-c structs to gRPC byte buffers and back. Any thread, one at a
 * time per message.
 */
#ifndef TUTTI_RPC_MESSAGE_MESSAGE_H
#define TUTTI_RPC_MESSAGE_MESSAGE_H

#include <grpc/byte_buffer.h>
#include <stdbool.h>
#include <stddef.h>

#include "rpc/message.h"
#include "tutti/error.h"

/*
 * Pack a struct, and reference its payload behind it.
 *
 * [in]          message     not NULL; its own payload field is empty when `payload` is given
 * [in, moved]   payload     NULL = none; on_release has run or will, also on failure
 * [out, owned]  ret_buffer  grpc_byte_buffer_destroy()
 *
 * TUTTI_RESOURCE_EXHAUSTED  larger than gRPC can frame (2 GiB - 1); no memory
 */
tutti_code rpc_pack(const struct ProtobufCMessage *message, const tutti_rpc_blob *payload,
                    grpc_byte_buffer **ret_buffer, tutti_error *err);

/* A tutti_rpc_packed is gRPC's buffer under a name that other rooms may know. */
static inline tutti_rpc_packed *
rpc_packed_from(grpc_byte_buffer *buffer)
{
    return (tutti_rpc_packed *)buffer;
}

static inline grpc_byte_buffer *
rpc_packed_buffer(tutti_rpc_packed *packed)
{
    return (grpc_byte_buffer *)packed;
}

/*
 * Unpack what arrived.
 *
 * [in, moved]   buffer       also on failure
 * [in]          strict       it is a request: see check.h
 * [out, owned]  ret_message  tutti_rpc_message_free()
 *
 * TUTTI_INVALID_ARGUMENT    malformed: the text says how
 * TUTTI_RESOURCE_EXHAUSTED  it would take more memory than its size allows
 */
tutti_code rpc_unpack(const struct ProtobufCMessageDescriptor *type, grpc_byte_buffer *buffer,
                      bool strict, tutti_rpc_message **ret_message, tutti_error *err);

/*
 * Unpack bytes that lie in memory. The struct lives in the arena that is inside the message; the
 * same codes. For what is not a gRPC message: the details of an error.
 */
tutti_code rpc_unpack_bytes(const struct ProtobufCMessageDescriptor *type, tutti_bytes wire,
                            tutti_rpc_message **ret_message, tutti_error *err);

#endif
