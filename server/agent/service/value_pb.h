/* Private to server/agent: plain values as messages. */
#ifndef TUTTI_SERVER_AGENT_SERVICE_VALUE_PB_H
#define TUTTI_SERVER_AGENT_SERVICE_VALUE_PB_H

#include "server/agent/function/call.h"
#include "server/agent/service/types_pb.h"
#include "tutti/v1/functions_service.pb-c.h"

/*
 * A plain value of a message.
 *
 * [out, owned] ret_value  NULL: it is no plain value, but names something (kind tensor or name)
 *
 * TUTTI_INVALID_ARGUMENT  BAD_VALUE: NULL, without a kind, or none that can be passed
 */
tutti_code agent_read_value(const Tutti__V1__Value *message, agent_value **ret_value,
                            tutti_error *err);

/* A value on its way out, with the memory its message points to. */
typedef struct wire_value {
    Tutti__V1__Value message;
    Tutti__V1__Shape shape;
    wire_spec spec;
    char text[TUTTI_DEVICE_MAX + TUTTI_TABLE_HANDLE_SIZE];
} wire_value;

void agent_write_value(const agent_value *value, wire_value *ret); /* borrows it */
void agent_write_tensor_value(const char *handle, const tutti_spec *spec, wire_value *ret);

void agent_write_function(const agent_function *function, Tutti__V1__FunctionInfo *ret);

#endif
