/*
 * Call: one call of a function, from its arrival to the end of all that it uses.
 *
 * It comes in on the control loop, where its tensors are claimed and the entry of its result is
 * made. When its locks are granted and the calls of its scope before it are over, it runs: on a
 * thread of the pool, or in a host. Then it is the function's thread's, until `done` is posted.
 */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_CALL_H
#define TUTTI_SERVER_AGENT_FUNCTION_CALL_H

#include <stdatomic.h>

#include "rpc/server.h"
#include "server/agent/agent.h"
#include "server/agent/function/pool.h"
#include "server/agent/function/registry.h"
#include "server/agent/function/value.h"
#include "server/agent/state/types.h"

#define AGENT_CALL_ARGS_MAX 64
#define AGENT_SCOPE_MAX 127 /* bytes of a scope's name */

typedef struct agent_function_call agent_function_call;

/* What a caller asks. Borrowed for agent_function_start, but the values. */
typedef struct agent_call_input {
    agent_value *value; /* [owned] NULL: what follows */
    const char *tensor; /* a handle or name of a tensor; NULL: what follows */
    const char *name;   /* of whatever it is */
} agent_call_input;

typedef struct agent_call_request {
    const char *function;
    agent_call_input *args; /* [owned] with their values */
    size_t arg_count;
    const char *result; /* "" = only in the answer */
    const char *scope;  /* "" = none */
    const char *group;  /* "" = none */
    uint32_t timeout_ms;
    uint32_t worker;
    uint32_t worker_count; /* 0 = the job's */
    uint32_t group_size;   /* 0 = all */
    tutti_error refused;   /* code not OK: what the wire file has found wrong already */
} agent_call_request;

/* What a call came to. */
typedef struct agent_call_result {
    agent_value *value;                   /* [borrowed] NULL: a tensor */
    char handle[TUTTI_TABLE_HANDLE_SIZE]; /* of that */
    tutti_spec spec;
    uint64_t elapsed_us;
} agent_call_result;

/* Writes the answer of a call: by the wire file. Control loop. */
typedef void (*agent_call_answer_fn)(tutti_rpc_call *call, const agent_call_result *result);

/*
 * Only forward, on the control loop:
 *
 *   WAITING  for its locks, or for its turn in its scope
 *   RUNNING  a thread of the pool has it, or a host
 *   OVER     nothing of it is used any more; it is freed when its rpc call is over, too
 */
typedef enum agent_function_state {
    AGENT_FUNCTION_WAITING,
    AGENT_FUNCTION_RUNNING,
    AGENT_FUNCTION_OVER,
} agent_function_state;

/* A tensor that a function may touch: an argument, or one that it has made. */
typedef struct agent_call_tensor {
    DLTensor dl;
    int64_t shape[TUTTI_DIMS_MAX];
    tutti_lock *lock; /* exclusive and granted */
} agent_call_tensor;

/* One that it has made: it goes with the call, unless it is the result. */
typedef struct agent_made_tensor {
    tutti_list_node link;
    tutti_lock_set lock_set;
    agent_call_tensor tensor;
} agent_made_tensor;

typedef struct agent_call_arg {
    agent_value *value; /* [ref] NULL = a tensor */
    tutti_lock *lock;   /* of the call's lock set; NULL = none */
    bool any;           /* the lock's entry may hold a plain value, too */
    agent_call_tensor tensor;
} agent_call_arg;

struct agent_function_call {
    tutti_agent *agent;
    tutti_rpc_call *rpc; /* [ref] */
    agent_call_answer_fn answer;
    bool answered;
    bool rpc_over;
    tutti_list_node link;      /* in functions->calls */
    tutti_list_node in_scope;  /* in the scope's calls */
    struct agent_scope *scope; /* NULL = none */
    tutti_lock_set lock_set;
    tutti_lock *function_lock; /* of the name that holds the function; NULL = it was named itself */
    agent_function *function;  /* [ref] */
    char function_name[AGENT_FUNCTION_NAME_MAX + 1];
    agent_call_arg *args; /* [owned] */
    tutti_any *anys;      /* [owned] as the function sees them */
    size_t arg_count;
    tutti_lock *result; /* an entry of its own; NULL = only in the answer */
    agent_function_state state;
    bool ready;        /* its lock set is granted */
    bool begin_posted; /* `done` is posted, to begin it */
    bool failed;       /* `err` says why: before it ran, or nobody waits for it */
    tutti_error err;
    uint64_t number;
    uint64_t arrived_ns;
    uint64_t began_ns; /* RUNNING */
    uint64_t deadline_ns;
    tutti_timer timer;
    char handle[TUTTI_TABLE_HANDLE_SIZE]; /* of a result without a name that the answer tells */

    /* What it is told: fixed while it runs. */
    tutti_env env;
    tutti_space *gpu; /* of env.stream */
    _Atomic int cancelled;
    char group[TUTTI_NAME_MAX + 1]; /* for its own collectives; "" = none */

    /* The function's thread's, or in a host the control loop's. */
    agent_pool_job job;
    tutti_list_node made;
    tutti_error said;     /* of env->fail; code OK = nothing */
    agent_value *value;   /* [owned] what it returned: a value, ... */
    tutti_tensor *tensor; /* [owned] ... or a tensor */
    tutti_rpc_task done;
    struct agent_env_op *op;           /* that runs inside of it; NULL = none. Control loop */
    struct agent_host_call *host_call; /* [owned] host.h; NULL = it runs in no host */
};

/* Control loop. The arguments' values are the call's from now on. */
void agent_function_start(tutti_agent *agent, tutti_rpc_call *rpc, agent_call_request *request,
                          agent_call_answer_fn answer);

void agent_call_request_fini(agent_call_request *request); /* of one that is not started */

/*
 * The function has returned: what `ret` says, or `said` (status not 0). Takes the result and posts
 * the end. The function's thread.
 */
void agent_call_returned(agent_function_call *call, int status, const tutti_any *ret);

/* It has failed with this, instead: of a host. Control loop. */
void agent_call_failed(agent_function_call *call, const tutti_error *err);

/* A tensor of the call by what a function knows it by; NULL: none of its own. */
agent_call_tensor *agent_call_find_tensor(agent_function_call *call, const DLTensor *dl);

/* Fill in what a function sees of a tensor. */
void agent_call_tensor_open(agent_call_tensor *tensor, const tutti_tensor *from, tutti_lock *lock);

#endif
