/*
 * Messages of a stream in a lane (lane/lane.h): gRPC's buffers to rings and back. Both ends of a
 * stream use it. Threads as for the lane.
 */
#ifndef TUTTI_RPC_MESSAGE_LANE_MESSAGE_H
#define TUTTI_RPC_MESSAGE_LANE_MESSAGE_H

#include <grpc/byte_buffer.h>
#include <stdbool.h>
#include <stddef.h>

#include "lane/lane.h"

/* Is it too large for a lane, or in too many pieces? Then it goes by gRPC, and a note in its place. */
bool rpc_lane_message_is_large(grpc_byte_buffer *message);

/* The room that it needs in the ring, or its note, if it is large. */
size_t rpc_lane_message_bytes(grpc_byte_buffer *message);

/* The message, or its note, if it is large. False: there is no room. */
bool rpc_lane_message_put(tutti_lane *lane, grpc_byte_buffer *message);

/* Behind a peek that found so many bytes of a message. [owned] grpc_byte_buffer_destroy() */
grpc_byte_buffer *rpc_lane_message_take(tutti_lane *lane, size_t bytes);

#endif
