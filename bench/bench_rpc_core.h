/* What server and client of the bare gRPC core peer share. No protobuf: messages are raw bytes. */
#ifndef TUTTI_BENCH_BENCH_RPC_CORE_H
#define TUTTI_BENCH_BENCH_RPC_CORE_H

#include <grpc/grpc.h>
#include <stddef.h>
#include <stdint.h>

#define CORE_ECHO "/bench.Core/Echo"
#define CORE_UPLOAD "/bench.Core/Upload"
#define CORE_DOWNLOAD "/bench.Core/Download"

/* The one message of a download's request. */
typedef struct core_order {
    uint64_t chunk_bytes;
    uint64_t count;
} core_order;

/* Of `size` bytes at `data`, which are referenced and stay. */
grpc_byte_buffer *core_message(const void *data, size_t size);

/* Copy what arrived to one place; frees it. Returns its bytes. */
size_t core_take(grpc_byte_buffer *message, void *dest, size_t size);

void core_start(grpc_call *call, const grpc_op *ops, size_t count, void *tag);

/* Messages as large as ours; no retries, no proxy. For both ends. */
const grpc_channel_args *core_args(void);

#endif
