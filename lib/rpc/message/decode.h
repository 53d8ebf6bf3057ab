/*
 * Decode: bytes of a message to a struct of protobuf-c's, checked (check.h) and unpacked in one pass. Any thread.
 *
 * protobuf_c_message_unpack and the check before it take three passes, and were a third of what a small op costs. What is
 * rare is left to them, and so are all words about what is wrong: this one only says that it has not done it.
 */
#ifndef TUTTI_RPC_MESSAGE_DECODE_H
#define TUTTI_RPC_MESSAGE_DECODE_H

#include <stdbool.h>

#include "base/data/bytes.h"
#include "rpc/message/message.h"

struct ProtobufCMessage;
struct ProtobufCMessageDescriptor;

/*
 * [in] type   of a proto in the syntax proto3: without required fields and default values
 * [in] wire   of the whole message
 * [in] strict as rpc_check
 * [in] arena  all memory of the struct is taken there
 *
 * Returns the struct, as protobuf_c_message_unpack gives it for bytes that rpc_check takes; NULL: they must decide. That is so for
 * anything that they refuse, and for unknown fields, members of a oneof or messages that come twice, and repeated fields
 * that are not together.
 */
struct ProtobufCMessage *rpc_decode(const struct ProtobufCMessageDescriptor *type, tutti_bytes wire,
                                    bool strict, rpc_arena *arena);

#endif
