/* Private to client: what the requests and responses of CollectivesService have in common. */
#ifndef TUTTI_CLIENT_OP_OP_PB_H
#define TUTTI_CLIENT_OP_OP_PB_H

#include "client/conn/call.h"
#include "client/conn/types_pb.h"
#include "client/op/collectives.h"
#include "tutti/v1/collectives_service.pb-c.h"

/*
 * Parts of a request, with the memory that the message points to. Filled by client_write_op and
 * client_write_lists, good until client_op_fini; borrows from the op and the caller's memory.
 */
typedef struct wire_op {
    Tutti__V1__OpOptions options;
    Tutti__V1__TensorArg input;
    wire_spec spec;
    wire_spec expect;
    Tutti__V1__TensorSpec *expects[1]; /* points to it */
    wire_spec *rooms;                  /* [owned] of a list that is taken */
    Tutti__V1__TensorSpec **room_pointers;
    char *group;
    char *output;
    bool has_input;
    Tutti__V1__TensorArg *memory; /* [owned] of a list */
    wire_spec *specs;             /* [owned] of a list of memory */
    Tutti__V1__TensorArg **inputs;
    size_t input_count;
    char **outputs;
    size_t output_count;
} wire_op;

/* `memory` NULL = handles. Borrows from both. */
void client_write_op(const tutti_op *op, const client_inline *memory, wire_op *ret);

/* The lists of it. TUTTI_RESOURCE_EXHAUSTED; client_op_fini in any case */
tutti_code client_write_lists(const tutti_op *op, const client_inline *memory, wire_op *ret,
                              tutti_error *err);
void client_op_fini(wire_op *op);

/* What an op gives besides its result, where op->more wants it. TUTTI_DATA_LOSS */
tutti_code client_read_more(Tutti__V1__TensorRef *const *outputs, size_t output_count,
                            ProtobufCBinaryData meta, struct tutti_op_more *ret_more,
                            tutti_error *err);

/* NULL = nothing is given. */
Tutti__V1__TensorArg *client_op_input(wire_op *op);

/* The call of an op: its deadline, and the bytes that it brings. */
client_call client_op_call(const tutti_client *client, const tutti_op *op,
                           const client_inline *memory, const tutti_rpc_stub *stub);

/*
 * A response: output NULL = there is no result. The bytes of an inline one go where `memory` wants
 * them.
 *
 * TUTTI_DATA_LOSS         it is nothing that an agent says
 * TUTTI_INVALID_ARGUMENT  SIZE_MISMATCH, DTYPE_MISMATCH: not what the caller has room for
 */
tutti_code client_read_op(tutti_rpc_message *message, const Tutti__V1__TensorRef *output,
                          const Tutti__V1__OpInfo *info, const client_inline *memory,
                          tutti_op_result *ret_result, tutti_error *err);

/*
 * client_wire_<op>: a request that write_<op> completes, called, and its response read. All
 * requests and responses of ops have these fields.
 */
#define CLIENT_OP_METHOD(op_name, Name, NAME)                                                      \
    CLIENT_OP_METHOD_AND(op_name, Name, NAME, ((ProtobufCBinaryData){0, NULL}))
/* [in] META  what in `response` came with the tensor */
#define CLIENT_OP_METHOD_AND(op_name, Name, NAME, META)                                            \
    tutti_code client_wire_##op_name(tutti_client *client, const tutti_op *op,                     \
                                     const client_inline *memory, tutti_op_result *ret_result,     \
                                     tutti_error *err)                                             \
    {                                                                                              \
        static const tutti_rpc_stub stub = {&tutti__v1__collectives_service__descriptor, #Name};   \
        Tutti__V1__##Name##Request request = TUTTI__V1__##NAME##_REQUEST__INIT;                    \
        const client_call call = client_op_call(client, op, memory, &stub);                        \
        const Tutti__V1__##Name##Response *response;                                               \
        tutti_rpc_message *message = NULL;                                                         \
        wire_op wire;                                                                              \
        tutti_code code;                                                                           \
                                                                                                   \
        client_write_op(op, memory, &wire);                                                        \
        code = client_write_lists(op, memory, &wire, err);                                         \
        request.group = wire.group;                                                                \
        request.input = client_op_input(&wire);                                                    \
        request.output = wire.output;                                                              \
        request.inputs = wire.inputs;                                                              \
        request.n_inputs = wire.input_count;                                                       \
        request.outputs = wire.outputs;                                                            \
        request.n_outputs = wire.output_count;                                                     \
        request.options = &wire.options;                                                           \
        write_##op_name(op, memory, &request);                                                     \
        if (code == TUTTI_OK) {                                                                    \
            code = client_invoke(client, &call, &request.base, &message, err);                     \
        }                                                                                          \
        if (code == TUTTI_OK && message != NULL) {                                                 \
            response = tutti_rpc_message_get(message);                                             \
            code = client_read_op(message, response->output, response->info, memory, ret_result,   \
                                  err);                                                            \
            if (code == TUTTI_OK) {                                                                \
                code =                                                                             \
                    client_read_more(response->outputs, response->n_outputs, META, op->more, err); \
            }                                                                                      \
        }                                                                                          \
        tutti_rpc_message_free(message);                                                           \
        client_op_fini(&wire);                                                                     \
        return code;                                                                               \
    }

/* An axis for each tensor of a list, and that it is one. protobuf-c's pointers are not const. */
#define CLIENT_WRITE_AXES(request, op)                                                             \
    ((request)->axes = (int32_t *)(uintptr_t)(op)->axes, (request)->n_axes = (op)->axis_count,     \
     (request)->coalesced = (op)->coalesced)

/* The root of a request, as a group rank or a rank of the job. */
#define CLIENT_WRITE_ROOT(request, NAME, op)                                                       \
    do {                                                                                           \
        if ((op)->global) {                                                                        \
            (request)->opt_root_global_case =                                                      \
                TUTTI__V1__##NAME##_REQUEST__OPT_ROOT_GLOBAL_ROOT_GLOBAL;                          \
            (request)->root_global = (op)->root;                                                   \
        } else {                                                                                   \
            (request)->opt_root_case = TUTTI__V1__##NAME##_REQUEST__OPT_ROOT_ROOT;                 \
            (request)->root = (op)->root;                                                          \
        }                                                                                          \
    } while (0)

#endif
