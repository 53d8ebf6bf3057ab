/*
 * Reflection: grpc.reflection.v1 and v1alpha of a server: which services it has, and their .proto
 * files.
 */
#ifndef TUTTI_RPC_SERVER_REFLECTION_PB_H
#define TUTTI_RPC_SERVER_REFLECTION_PB_H

#include <stddef.h>

#include "rpc/message/descriptors_pb.h"
#include "rpc/server.h"

typedef struct rpc_reflection {
    const rpc_descriptors *descriptors;
    const tutti_rpc_service *services; /* of the server; borrowed, complete once it has started */
    const size_t *service_count;
    struct ProtobufCServiceDescriptor *older; /* v1's under its name in v1alpha; owned */
} rpc_reflection;

/* TUTTI_RESOURCE_EXHAUSTED  no memory */
tutti_code rpc_reflection_init(rpc_reflection *reflection, const rpc_descriptors *descriptors,
                               const tutti_rpc_service *services, const size_t *service_count,
                               tutti_error *err);
void rpc_reflection_fini(rpc_reflection *reflection); /* zeros are fine */

/* The two services, for tutti_rpc_server_add. */
tutti_rpc_service rpc_reflection_service_v1(rpc_reflection *reflection, tutti_rpc_loop *loop);
tutti_rpc_service rpc_reflection_service_v1alpha(rpc_reflection *reflection, tutti_rpc_loop *loop);

#endif
