/* Stub: the name of a method, for calls of it. */
#ifndef TUTTI_RPC_PUBLIC_STUB_H
#define TUTTI_RPC_PUBLIC_STUB_H

#ifdef __cplusplus
extern "C" {
#endif

struct ProtobufCServiceDescriptor;

/*
 * A method of a service. Static: a channel remembers it by its address.
 *
 * With `service` NULL `method` is the whole path, "/greeter.v1.Greeter/SayHello": then a response is not
 * unpacked, and all its bytes are the message's payload.
 */
typedef struct tutti_rpc_stub {
    const struct ProtobufCServiceDescriptor *service; /* as protobuf-c has generated it */
    const char *method;                               /* as in the .proto */
} tuttirpc_stub;

#ifdef __cplusplus
}
#endif

#endif
