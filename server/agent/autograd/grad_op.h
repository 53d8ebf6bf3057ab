/*
 * Gradient op: how gradients of an op's result become gradients of its input. A linear op's
 * gradient op is its adjoint; of max and min the gradient goes to every rank that holds the result,
 * ties included.
 *
 * Pure functions of records (tape.h). Any thread.
 */
#ifndef TUTTI_SERVER_AGENT_AUTOGRAD_GRAD_OP_H
#define TUTTI_SERVER_AGENT_AUTOGRAD_GRAD_OP_H

#include "server/agent/autograd/tape.h"

/*
 * Can gradients go back through such an op?
 *
 * TUTTI_INVALID_ARGUMENT  BAD_REDUCE_OP: not through this reduction; BAD_LOCAL_GRAD: not without
 *                         communication; DTYPE_UNSUPPORTED: no floats; TRACED_LIST: uneven parts
 */
tutti_code tutti_grad_op_check(const tutti_coll_args *args, bool local, tutti_error *err);

/* Does its gradient op need to know where the input is the result? */
bool tutti_grad_op_masks(const tutti_coll_args *args);

/* mask[i] = 1 where input[i] is output[i] or both are zeros, else 0. Of floats. */
void tutti_grad_op_mask(const tutti_spec *spec, const void *input, const void *output,
                        unsigned char *mask);

/*
 * The op that the ranks run on gradients; nothing is said of the tensor.
 *
 * [out] ret_args   borrows the record's lists
 * [out] ret_gives  this rank gives a gradient of its result: when it has none, zeros
 */
void tutti_grad_op_args(const tutti_tape_record *record, tutti_coll_args *ret_args,
                        bool *ret_gives);

/* Is what the gradient op made the gradient as it is, with nothing to be done behind it? */
bool tutti_grad_op_is_plain(const tutti_tape_record *record);

/*
 * Behind the gradient op, in place: by the factor, then the mask. [in] gradient  of the input, in
 * host memory; written
 */
void tutti_grad_op_finish(const tutti_tape_record *record, tutti_tensor *gradient);

/*
 * The gradient of this rank's input by its own result alone.
 *
 * [in]  gradient  of the result
 * [out] ret       of the input: zeroed memory of as many bytes as it has
 */
void tutti_grad_op_local(const tutti_tape_record *record, const tutti_tensor *gradient,
                         tutti_tensor *ret);

#endif
