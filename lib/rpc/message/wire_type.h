/* Wire type: what the types of protobuf's fields are on the wire, and in protobuf-c's structs. Pure. */
#ifndef TUTTI_RPC_MESSAGE_WIRE_TYPE_H
#define TUTTI_RPC_MESSAGE_WIRE_TYPE_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

/* That of one value that is not packed. */
ProtobufCWireType rpc_wire_type_of(ProtobufCType type);

/* Bytes of one value in a struct: of a number, of a pointer, or of a ProtobufCBinaryData. */
size_t rpc_value_bytes(ProtobufCType type);

#endif
