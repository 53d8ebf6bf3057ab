/* Private to client: one call for each op. */
#ifndef TUTTI_CLIENT_OP_COLLECTIVES_H
#define TUTTI_CLIENT_OP_COLLECTIVES_H

#include "client/conn/call.h"

/* Memory of the caller's instead of handles. */
typedef struct client_inline {
    const tutti_spec *spec; /* of what is given */
    bool gives;             /* this rank's input is `data` */
    bool takes;             /* the result goes to `result` */
    const void *data;
    uint64_t bytes;
    void *result;
    uint64_t result_bytes;
    client_request_hook
        *request_hook; /* the request goes there and is not answered; NULL = nowhere */
} client_inline;

typedef tutti_code (*client_op_fn)(tutti_client *client, const tutti_op *op,
                                   const client_inline *memory, tutti_op_result *ret_result,
                                   tutti_error *err);

/* `op` is taken and complete; `memory` NULL = handles. */
tutti_code client_wire_all_reduce(tutti_client *client, const tutti_op *op,
                                  const client_inline *memory, tutti_op_result *ret_result,
                                  tutti_error *err);
tutti_code client_wire_broadcast(tutti_client *client, const tutti_op *op,
                                 const client_inline *memory, tutti_op_result *ret_result,
                                 tutti_error *err);
tutti_code client_wire_all_gather(tutti_client *client, const tutti_op *op,
                                  const client_inline *memory, tutti_op_result *ret_result,
                                  tutti_error *err);
tutti_code client_wire_reduce(tutti_client *client, const tutti_op *op, const client_inline *memory,
                              tutti_op_result *ret_result, tutti_error *err);
tutti_code client_wire_reduce_scatter(tutti_client *client, const tutti_op *op,
                                      const client_inline *memory, tutti_op_result *ret_result,
                                      tutti_error *err);
tutti_code client_wire_gather(tutti_client *client, const tutti_op *op, const client_inline *memory,
                              tutti_op_result *ret_result, tutti_error *err);
tutti_code client_wire_scatter(tutti_client *client, const tutti_op *op,
                               const client_inline *memory, tutti_op_result *ret_result,
                               tutti_error *err);
tutti_code client_wire_all_to_all(tutti_client *client, const tutti_op *op,
                                  const client_inline *memory, tutti_op_result *ret_result,
                                  tutti_error *err);
tutti_code client_wire_permute(tutti_client *client, const tutti_op *op,
                               const client_inline *memory, tutti_op_result *ret_result,
                               tutti_error *err);
tutti_code client_wire_barrier(tutti_client *client, const tutti_op *op,
                               const client_inline *memory, tutti_op_result *ret_result,
                               tutti_error *err);
tutti_code client_wire_send(tutti_client *client, const tutti_op *op, const client_inline *memory,
                            tutti_op_result *ret_result, tutti_error *err);
tutti_code client_wire_recv(tutti_client *client, const tutti_op *op, const client_inline *memory,
                            tutti_op_result *ret_result, tutti_error *err);

#endif
