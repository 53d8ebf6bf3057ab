/* Private to client: one call for each op. */
#ifndef TUTTI_CLIENT_OP_COLLECTIVES_H
#define TUTTI_CLIENT_OP_COLLECTIVES_H

#include "client/conn/call.h"
#include "tutti/op.h"

/* Memory of the caller's instead of handles. */
typedef struct client_inline {
    const tutti_spec *spec; /* of what is given */
    bool gives;             /* this rank's input is `data` */
    bool takes;             /* the result goes to `result` */
    bool expects;           /* the agent cannot tell by `spec` whether it fits there: it is told */
    const void *data;
    uint64_t bytes;
    void *result;
    uint64_t result_bytes;
    const tutti_spec
        *list; /* of a list that is given: of each, their bytes one behind the other in `data` */
    size_t list_count; /* 0 = it is none; `spec` is not looked at otherwise */
    const tutti_spec
        *list_rooms; /* of a list that is taken: what fits into each result; NULL = all do */
    client_request_hook
        *request_hook; /* the request goes there and is not answered; NULL = nowhere */
} client_inline;

/* What fits into `result`: the agent compares dtype and number of elements. */
static inline tutti_spec
client_inline_room(const client_inline *memory)
{
    const tutti_dtype dtype = memory->spec->dtype;

    return (tutti_spec){.dtype = dtype,
                        .dim_count = 1,
                        .dims = {(int64_t)(memory->result_bytes / tutti_dtype_bytes(dtype))}};
}

typedef tutti_code (*client_op_fn)(tutti_client *client, const tutti_op *op,
                                   const client_inline *memory, tutti_op_result *ret_result,
                                   tutti_error *err);

/*
 * All ops: X(op, wire, NAME), of tutti_<op>, client_wire_<wire> and TUTTI_OP_<NAME>. A new op is a
 * row here, and in parts_pb.c its write_<wire> and a CLIENT_OP_METHOD.
 */
#define CLIENT_OP_MAP(X)                                                                           \
    X(all_reduce, all_reduce, ALL_REDUCE)                                                          \
    X(reduce_to_root, reduce, REDUCE_TO_ROOT)                                                      \
    X(reduce_scatter, reduce_scatter, REDUCE_SCATTER)                                              \
    X(broadcast, broadcast, BROADCAST)                                                             \
    X(all_gather, all_gather, ALL_GATHER)                                                          \
    X(gather, gather, GATHER)                                                                      \
    X(scatter, scatter, SCATTER)                                                                   \
    X(all_to_all, all_to_all, ALL_TO_ALL)                                                          \
    X(permute, permute, PERMUTE)                                                                   \
    X(barrier, barrier, BARRIER)                                                                   \
    X(send, send, SEND)                                                                            \
    X(recv, recv, RECV)

/* `op` is taken and complete; `memory` NULL = handles. */
#define CLIENT_OP_DECLARE(op_name, wire, NAME)                                                     \
    tutti_code client_wire_##wire(tutti_client *client, const tutti_op *op,                        \
                                  const client_inline *memory, tutti_op_result *ret_result,        \
                                  tutti_error *err);
CLIENT_OP_MAP(CLIENT_OP_DECLARE)
#undef CLIENT_OP_DECLARE

#endif
