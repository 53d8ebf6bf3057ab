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
 * [in]          type         NULL = it stays bytes: all of it is payload
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

/* ------------------------------------------------------------------------------ arena */

/* * Arena: memory for unpacking one message, with its limit given at birth. A message of two bytes
 * per field grows a hundredfold in protobuf-c; here it meets the limit. One thread. */

#define TUTTI_RPC_ARENA_BASE (64u << 10) /* bytes any message may take, and ... */
#define TUTTI_RPC_ARENA_FACTOR 16        /* ... as many times its wire length beside them, ... */
#define TUTTI_RPC_ARENA_MAX (16u << 20)  /* ... but never more than this */

typedef struct rpc_arena_block rpc_arena_block;

typedef struct rpc_arena {
    unsigned char *at; /* the next free byte of the current block */
    size_t room;       /* behind it */
    size_t left;       /* bytes that may still be taken */
    size_t next_bytes; /* of the next block */
    rpc_arena_block *blocks;
    bool refused; /* something was not given: the limit, or no memory */
} rpc_arena;

/* [in] first  memory to begin with, aligned for any type; borrowed as long as the arena */
void rpc_arena_init(rpc_arena *arena, size_t wire_bytes, void *first, size_t first_bytes);
void rpc_arena_fini(rpc_arena *arena);

/* Aligned for any type; NULL when the limit is reached or memory is gone. */
void *rpc_arena_take(rpc_arena *arena, size_t size);

#endif
