/*
 * Recording: ops that are put on tapes. An op is examined when it is launched; its place on a tape
 * is the one at which its call came.
 */
#ifndef TUTTI_SERVER_AGENT_AUTOGRAD_RECORDING_H
#define TUTTI_SERVER_AGENT_AUTOGRAD_RECORDING_H

#include "server/agent/autograd/tape.h"
#include "server/agent/state/request.h"
#include "server/agent/state/types.h"

/*
 * The op has come: find the tracers that it names, and hold them in op->tapes. TUTTI_NOT_FOUND
 * NO_TRACER; TUTTI_INVALID_ARGUMENT TRACED_INLINE, TRACER_COUNT
 */
tutti_code agent_recording_take(agent_op *op, const agent_request *request, tutti_error *err);
/*
 * It is about to be posted: put it on the tapes that it names or that know its input, or take what
 * it overwrites off all tapes. An error refuses the op: TAPE_LIMIT, those of tutti_grad_op_check,
 * no memory. [in] result  what it makes here
 */
tutti_code agent_recording_begin(agent_op *op, const tutti_spec *result, tutti_error *err);
/* Pack what goes with the tensor: user_meta and the tracers of a root or sender. */
tutti_code agent_recording_pack(agent_op *op, tutti_error *err);
/*
 * Take apart what has come with the tensor: names are kept, op.meta is user_meta then. The thread
 * that runs the engine, which may be the control loop inside a post (coll/coll.h).
 */
void agent_recording_unpack(agent_op *op);
/* A receiver that may get names of tracers with its tensor; it has ended. */
tutti_code agent_tensor_meta_expect(agent_op *op, const tutti_tape_entry *entry, tutti_error *err);
void agent_tensor_meta_end(agent_op *op);
void agent_recording_drop_names(agent_op *op);
void agent_recording_describe(const agent_op *op, const tutti_spec *result, tutti_tape_entry *ret);
/* On the tapes with it, or off them with what it overwrites; in place, a tensor stays what it is.
 */
tutti_code agent_recording_one(agent_op *op, tutti_tape_entry *entry, tutti_error *err);
bool agent_recording_is_on(const agent_op *op, const tutti_tape *tape, uint32_t part);
/* The same of an op on a list: a coalesced one is as many ops. TUTTI_INVALID_ARGUMENT TRACED_LIST
 */
tutti_code agent_recording_list(agent_op *op, tutti_error *err);
/* Result and input are still there. The thread that runs the engine. */
void agent_recording_computed(agent_op *op);
/*
 * It is over, its tensors are still locked: end its records, or drop them if it failed. For every
 * op, recorded or not.
 */
void agent_recording_end(agent_op *op);

#endif
