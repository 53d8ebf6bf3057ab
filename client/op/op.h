/* Private to client: ops by their kind. */
#ifndef TUTTI_CLIENT_OP_OP_H
#define TUTTI_CLIENT_OP_OP_H

#include "client/op/collectives.h"
#include "tutti/op.h"

/* The function of a kind; NULL = there is no such kind. */
client_op_fn client_op_of(tutti_op_kind kind);

/*
 * The caller's op, completed with the defaults of what it does not say. TUTTI_INVALID_ARGUMENT as
 * client_take_struct
 */
tutti_code client_take_op(const tutti_op *given, tutti_op *ret_op, tutti_error *err);

/*
 * Memory of the caller's as it was given: `data` and `result` say who gives and takes. Completes the other
 * fields. TUTTI_INVALID_ARGUMENT  BAD_DTYPE, BAD_SHAPE: of the spec of what is given
 *
 * [in, out] memory  spec, data, result, result_bytes; all zero = this rank neither gives nor takes
 */
tutti_code client_take_memory(client_inline *memory, tutti_error *err);

#define CLIENT_DRAWN_NAME_SIZE 32 /* "tutti.tmp/" and 16 hex digits */

/* A name that no tensor has: for a temporary one, or to be refused with. */
void client_draw_name(char ret_name[CLIENT_DRAWN_NAME_SIZE]);

#endif
