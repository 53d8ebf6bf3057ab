/* The device of an op, and of its new results. agent_op_launch, which posts the op, is in op.h. */
#ifndef TUTTI_SERVER_AGENT_OP_POST_H
#define TUTTI_SERVER_AGENT_OP_POST_H

#include "server/agent/state/types.h"
#include "tutti/error.h"

/*
 * Its tensors are known: where does the op happen, and its new results go?
 *
 * One communicator serves a group, so its collectives stay on the GPU that the first one used.
 *
 * TUTTI_INVALID_ARGUMENT     DEVICE_MISMATCH: this rank's own tensors are in different places, or
 *                            on another GPU than the group's
 * TUTTI_FAILED_PRECONDITION  NO_BACKEND: nothing here moves bytes of that device
 */
tutti_code agent_op_find_place(agent_op *op, tutti_error *err);

#endif
