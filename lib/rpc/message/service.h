/*
 * What a protobuf-c service descriptor says, for those who do not speak protobuf-c. Any thread.
 */
#ifndef TUTTI_RPC_MESSAGE_SERVICE_H
#define TUTTI_RPC_MESSAGE_SERVICE_H

#include <stddef.h>

struct ProtobufCServiceDescriptor;
struct ProtobufCMessageDescriptor;

/* "tutti.v1.StoreService" */
const char *rpc_service_name(const struct ProtobufCServiceDescriptor *service);

/* The number of a method; SIZE_MAX when the service has none of that name. */
size_t rpc_service_find(const struct ProtobufCServiceDescriptor *service, const char *method);

const struct ProtobufCMessageDescriptor *
rpc_service_input(const struct ProtobufCServiceDescriptor *service, size_t number);
const struct ProtobufCMessageDescriptor *
rpc_service_output(const struct ProtobufCServiceDescriptor *service, size_t number);

/* "/tutti.v1.StoreService/Get" in memory of its own; NULL without memory. */
char *rpc_service_path(const struct ProtobufCServiceDescriptor *service, const char *method);

#endif
