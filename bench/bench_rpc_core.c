#include "bench_rpc_core.h"

#include <grpc/byte_buffer_reader.h>
#include <string.h>

#include "bench_rpc.h"

grpc_byte_buffer *
core_message(const void *data, size_t size)
{
    grpc_slice slice = grpc_slice_from_static_buffer(data, size);

    return grpc_raw_byte_buffer_create(&slice, 1);
}

size_t
core_take(grpc_byte_buffer *message, void *dest, size_t size)
{
    grpc_byte_buffer_reader reader;
    grpc_slice *slice = NULL;
    size_t at = 0;

    if (message == NULL || grpc_byte_buffer_reader_init(&reader, message) == 0) {
        bench_die("core", "no message, or none that can be read");
    }
    while (grpc_byte_buffer_reader_peek(&reader, &slice) != 0) {
        if (GRPC_SLICE_LENGTH(*slice) > size - at) {
            bench_die("core", "a message is too long");
        }
        memcpy((char *)dest + at, GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
        at += GRPC_SLICE_LENGTH(*slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(message);
    return at;
}

void
core_start(grpc_call *call, const grpc_op *ops, size_t count, void *tag)
{
    if (grpc_call_start_batch(call, ops, count, tag, NULL) != GRPC_CALL_OK) {
        bench_die("core", "a batch was refused");
    }
}

const grpc_channel_args *
core_args(void)
{
    static grpc_arg all[3];
    static const grpc_channel_args args = {3, all};

    all[0] = (grpc_arg){.type = GRPC_ARG_INTEGER,
                        .key = (char *)(uintptr_t)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                        .value.integer = -1};
    all[1] = (grpc_arg){.type = GRPC_ARG_INTEGER,
                        .key = (char *)(uintptr_t)GRPC_ARG_ENABLE_RETRIES,
                        .value.integer = 0};
    all[2] = (grpc_arg){.type = GRPC_ARG_INTEGER,
                        .key = (char *)(uintptr_t)GRPC_ARG_ENABLE_HTTP_PROXY,
                        .value.integer = 0};
    return &args;
}
