/*
 * Env: what a function may ask of the agent while it runs (tutti/plugin.h): tensors, collectives,
 * words for its failure. The same for hosts, whose asking comes by messages.
 */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_ENV_H
#define TUTTI_SERVER_AGENT_FUNCTION_ENV_H

#include "coll/args.h"
#include "server/agent/function/call.h"
#include "tensor/spec.h"

/* Fill in call->env: it is about to run. Control loop. */
void agent_env_open(agent_function_call *call);

/*
 * A new tensor of the call. The function's thread.
 *
 * [in]            space     NULL = the first of --device
 * [out, borrowed] ret_made  as long as the call
 *
 * TUTTI_INVALID_ARGUMENT   as tutti_spec_check
 * TUTTI_RESOURCE_EXHAUSTED HANDLE_LIMIT, MEMORY_LIMIT, or no memory
 */
tutti_code agent_env_make(agent_function_call *call, const tutti_spec *spec, tutti_space *space,
                          agent_made_tensor **ret_made, tutti_error *err);

/* A collective inside of a call. Its maker keeps it until on_end. */
typedef struct agent_env_op agent_env_op;
struct agent_env_op {
    agent_function_call *call;
    tutti_coll_kind kind;
    tutti_reduce reduce;
    int32_t peer;                     /* a group rank: the root, or the other end */
    uint32_t timeout_ms;              /* 0 = what is left of the call's time */
    agent_call_tensor *input;         /* NULL = none here */
    agent_call_tensor *output;        /* likewise */
    void (*on_end)(agent_env_op *op); /* control loop: `err` says how; code OK = well */
    void *owner;
    tutti_error err;
    agent_op *op; /* NULL: it never began */
};

/*
 * From the words of a caller.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_VALUE: no op is called so; BAD_REDUCE_OP
 */
tutti_code agent_env_op_read(agent_env_op *op, const char *name, const char *reduce,
                             tutti_error *err);

/* Begin it. on_end follows, perhaps at once. Control loop; one at a time in a call. */
void agent_env_op_start(agent_env_op *op);

/* The call is given up: what runs inside of it fails with this. Control loop. */
void agent_env_op_cancel(agent_function_call *call, const tutti_error *err);

/* What env->fail does: on_end is told later. [in] reason  NULL = FUNCTION_FAILED */
void agent_env_say(agent_function_call *call, const char *reason, const char *text);

#endif
