/*
 * Encode: a struct of protobuf-c's to the bytes of its message, in one pass. Any thread.
 *
 * protobuf_c_message_pack needs the size first, and computes those of inner messages again at each level. This one writes
 * from the end to the beginning, where the size of what an inner message has is known when its head is written. What does not
 * fit, and what is rare, is left to protobuf-c.
 */
#ifndef TUTTI_RPC_MESSAGE_ENCODE_H
#define TUTTI_RPC_MESSAGE_ENCODE_H

#include <stdbool.h>
#include <stddef.h>

struct ProtobufCMessage;

/*
 * [out] room  where the message is written to, at its end
 *
 * Returns where in `room` it begins: the bytes up to its end are those that protobuf_c_message_pack writes. NULL: it has not fit,
 * has unknown fields, or is of a proto2; `room` has anything in it then.
 */
unsigned char *rpc_encode(const struct ProtobufCMessage *message, unsigned char *room, size_t size);

#endif
