/*
 * Private to server/agent: the messages of types.proto as structs of ours, and back. Any thread.
 * What is written borrows from what it is written of.
 */
#ifndef TUTTI_SERVER_AGENT_SERVICE_TYPES_PB_H
#define TUTTI_SERVER_AGENT_SERVICE_TYPES_PB_H

#include "rpc/server.h"
#include "server/agent/state/types.h"
#include "server/agent/tensor/table.h"
#include "tutti/v1/types.pb-c.h"

/* A spec on its way out, with the memory its message points to. */
typedef struct wire_spec {
    Tutti__V1__TensorSpec message;
    int64_t dims[TUTTI_DIMS_MAX];
} wire_spec;

/* TUTTI_INVALID_ARGUMENT  BAD_DTYPE, BAD_SHAPE; NULL is BAD_SHAPE too */
tutti_code agent_read_spec(const Tutti__V1__TensorSpec *message, tutti_spec *ret_spec,
                           tutti_error *err);
void agent_write_spec(const tutti_spec *spec, wire_spec *ret);

/* A reference out: `spec` NULL = not known yet. Borrows handle and spec. */
void agent_write_ref(const char *handle, wire_spec *spec, Tutti__V1__TensorRef *ret);

/* A reference to the tensor of a use, with the memory it points to. */
typedef struct wire_use {
    Tutti__V1__TensorRef message;
    wire_spec spec;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
} wire_use;

void agent_write_use(const agent_access *access, uint32_t lock, const tutti_spec *spec,
                     wire_use *ret);

void agent_write_error(const tutti_error *err, Tutti__V1__Error *ret);

/* There is no memory for what the answer would be. */
void agent_fail_answer(tutti_rpc_call *call);

#endif
