#include "rpc/message/service.h"

#include <assert.h>
#include <protobuf-c/protobuf-c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *
rpc_service_name(const ProtobufCServiceDescriptor *service)
{
    return service->name;
}

size_t
rpc_service_find(const ProtobufCServiceDescriptor *service, const char *method)
{
    size_t i;

    for (i = 0; i < service->n_methods; i++) {
        if (strcmp(service->methods[i].name, method) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

const ProtobufCMessageDescriptor *
rpc_service_input(const ProtobufCServiceDescriptor *service, size_t number)
{
    assert(number < service->n_methods);
    return service->methods[number].input;
}

const ProtobufCMessageDescriptor *
rpc_service_output(const ProtobufCServiceDescriptor *service, size_t number)
{
    assert(number < service->n_methods);
    return service->methods[number].output;
}

char *
rpc_service_path(const ProtobufCServiceDescriptor *service, const char *method)
{
    const size_t size = strlen(service->name) + strlen(method) + 3;
    char *path = malloc(size);

    if (path != NULL) {
        (void)snprintf(path, size, "/%s/%s", service->name, method);
    }
    return path;
}
