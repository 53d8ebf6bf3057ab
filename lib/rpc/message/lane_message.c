#include "rpc/message/lane_message.h"

#include <grpc/slice.h>

#include "rpc/lane.h"

#define SLICES_MAX 16 /* of one message */

bool
rpc_lane_message_is_large(grpc_byte_buffer *message)
{
    return grpc_byte_buffer_length(message) > TUTTI_LANE_MESSAGE_MAX ||
           message->data.raw.slice_buffer.count > SLICES_MAX;
}

size_t
rpc_lane_message_bytes(grpc_byte_buffer *message)
{
    return rpc_lane_message_is_large(message) ? 0 : grpc_byte_buffer_length(message);
}

bool
rpc_lane_message_put(tutti_lane *lane, grpc_byte_buffer *message)
{
    const grpc_slice_buffer *slices = &message->data.raw.slice_buffer;
    tutti_bytes parts[SLICES_MAX];
    size_t i;

    if (rpc_lane_message_is_large(message)) {
        return tutti_lane_put(lane, NULL, 0, TUTTI_RPC_LANE_ELSEWHERE);
    }
    for (i = 0; i < slices->count; i++) {
        parts[i] = (tutti_bytes){GRPC_SLICE_START_PTR(slices->slices[i]),
                                 GRPC_SLICE_LENGTH(slices->slices[i])};
    }
    return tutti_lane_put(lane, parts, slices->count, TUTTI_RPC_LANE_BYTES);
}

grpc_byte_buffer *
rpc_lane_message_take(tutti_lane *lane, size_t bytes)
{
    grpc_slice slice = grpc_slice_malloc(bytes);
    grpc_byte_buffer *message;

    tutti_lane_take(lane, GRPC_SLICE_START_PTR(slice));
    message = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return message;
}
