/*
 * Hosts: processes beside the agent that offer functions through FunctionsService.Serve. Their
 * calls have their tensors as other calls do; what a host asks for in a call (a new tensor, a
 * collective) it asks for by messages, one at a time for each call. Control loop.
 */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_HOST_H
#define TUTTI_SERVER_AGENT_FUNCTION_HOST_H

#include "server/agent/agent.h"
#include "server/agent/function/call.h"
#include "server/agent/function/env.h"
#include "server/agent/state/share.h"
#include "tensor/cuda/cuda.h"

#define AGENT_HOST_NAME_MAX 127
#define AGENT_HOST_FUNCTIONS_MAX 4096

typedef struct agent_host_call agent_host_call;

/* How a host maps a tensor. */
typedef struct agent_host_memory {
    const agent_call_tensor *tensor; /* NULL: it is a plain value */
    uint64_t byte_count;
    agent_shared shared; /* of one with bytes in host memory */
    unsigned char ipc_handle[TUTTI_CUDA_IPC_SIZE];
    const char *gpu_uuid; /* of one with bytes on a GPU; NULL = it is in host memory */
} agent_host_memory;

/* What a host is told: by the wire file, which has the stream. Nothing waits. */
typedef struct agent_host_wire {
    void (*call)(agent_host *host, const agent_host_call *call);
    void (*done)(agent_host *host, uint64_t call, uint64_t request, const agent_host_memory *memory,
                 const tutti_error *err); /* NULL = none of it, well */
    void (*cancel)(agent_host *host, uint64_t call);
    void (*import)(agent_host *host, uint64_t request, const char *module);
} agent_host_wire;

struct agent_host {
    tutti_list_node link; /* in functions->hosts */
    tutti_agent *agent;
    const agent_host_wire *wire;
    void *stream; /* the wire file's */
    char name[AGENT_HOST_NAME_MAX + 1];
    bool own; /* the agent has started it: its functions may have any name */
    bool imports;
    bool closed; /* its stream has ended: its calls wait to be told why */
    uint32_t calls_max;
    uint32_t sent_count;
    tutti_list_node calls; /* agent_host_call.link */
    uint64_t last_number;
    tutti_timer timer; /* closed: until its calls are told, whatever is known by then */
};

/*
 *   PREPARING  its tensors get memory that can be mapped. A thread of the pool
 *   QUEUED     the host runs as many as it wants
 *   SENT       the host has it
 *   RETURNED   its result is being taken
 */
typedef enum agent_host_call_state {
    AGENT_HOST_CALL_PREPARING,
    AGENT_HOST_CALL_QUEUED,
    AGENT_HOST_CALL_SENT,
    AGENT_HOST_CALL_RETURNED,
} agent_host_call_state;

struct agent_host_call {
    tutti_list_node link;
    agent_host *host; /* NULL: it is gone */
    agent_function_call *call;
    uint64_t number;
    agent_host_call_state state;
    agent_host_memory *memory; /* [owned] one for each argument */
    agent_pool_job job;
    tutti_rpc_task prepared;
    tutti_error err;                   /* why it is over before it returned */
    bool over;                         /* it has ended, but for what is busy */
    bool busy;                         /* a make or an op runs */
    uint64_t request;                  /* ... of this number */
    agent_env_op op;                   /* `err` is that of a make, and of what was prepared, too */
    tutti_spec spec;                   /* of a make */
    char device[TUTTI_DEVICE_MAX + 1]; /* likewise */
    agent_host_memory made;
    int status;         /* RETURNED */
    agent_value *value; /* [owned] */
    tutti_any ret;
};

/* ------------------------------------------------------------------ of calls: call.c */

void agent_host_begin(agent_function_call *call);
void agent_host_cancel(agent_function_call *call);
void agent_host_end(agent_function_call *call); /* the call is over; also of one in no host */

/* ------------------------------------------------------------------ of streams: the wire file */

/* A function that a host offers. */
typedef struct agent_host_function {
    const char *name;
    const char *signature;
} agent_host_function;

/*
 * Its first message.
 *
 * [in] own         it has shown the key that the agent gave to a process of its own
 * [in] calls_max   0 = 1
 *
 * TUTTI_PERMISSION_DENIED  NOT_ALLOWED: a name that is not under one of --functions
 * TUTTI_ALREADY_EXISTS     FUNCTION_TAKEN
 * TUTTI_RESOURCE_EXHAUSTED HOST_LIMIT, no memory
 * TUTTI_INVALID_ARGUMENT   BAD_NAME; BAD_VALUE: more functions than AGENT_HOST_FUNCTIONS_MAX
 */
tutti_code agent_host_open(tutti_agent *agent, const char *name, bool own, bool imports,
                           uint32_t calls_max, const agent_host_wire *wire, void *stream,
                           agent_host **ret_host, tutti_error *err);
tutti_code agent_host_offer(agent_host *host, const agent_host_function *functions, size_t count,
                            tutti_error *err);

/* The functions are taken: calls may come. */
void agent_host_start(agent_host *host);

/* Its stream has ended. The host is not the caller's any more. */
void agent_host_close(agent_host *host);

/*
 * The end of a call.
 *
 * [in, moved] value   NULL: a tensor, ...
 * [in]        handle  ... of the call; NULL: `failure`
 *
 * TUTTI_INVALID_ARGUMENT  BAD_ORDER: the host does not have that call, or it asks for something
 *                         in it
 */
tutti_code agent_host_returned(agent_host *host, uint64_t number, agent_value *value,
                               const char *handle, const tutti_error *failure, tutti_error *err);

/* It has stopped a call that was cancelled. BAD_ORDER */
tutti_code agent_host_stopped(agent_host *host, uint64_t number, tutti_error *err);

/*
 * What it asks for in a call: wire->done follows. BAD_ORDER as above.
 *
 * [in] device  of the new tensor; "" = "cpu"
 */
tutti_code agent_host_make(agent_host *host, uint64_t number, uint64_t request,
                           const tutti_spec *spec, const char *device, tutti_error *err);
tutti_code agent_host_op(agent_host *host, uint64_t number, uint64_t request, const char *name,
                         const char *input, const char *output, tutti_reduce reduce, int32_t peer,
                         tutti_error *err);

/* ------------------------------------------------------------------ importing: host_import.c */

/* How an import ended: err, or `count` new functions. Control loop. */
typedef void (*agent_import_fn)(tutti_rpc_call *rpc, agent_function *const *functions, size_t count,
                                const tutti_error *err);

/*
 * Ask the hosts that can, one after the other, until one has imported it.
 *
 * TUTTI_PERMISSION_DENIED    NOT_ALLOWED
 * TUTTI_NOT_FOUND            NO_HOST
 * TUTTI_FAILED_PRECONDITION  IMPORT_FAILED: none could; with the first host's words
 * TUTTI_UNAVAILABLE          HOST_LOST
 */
void agent_host_import(tutti_agent *agent, tutti_rpc_call *rpc, const char *module,
                       agent_import_fn answer);

/* What the host says. [in] failure  NULL = it has imported it. BAD_ORDER */
tutti_code agent_host_imported(agent_host *host, uint64_t request,
                               const agent_host_function *functions, size_t count,
                               const tutti_error *failure, tutti_error *err);

void agent_host_imports_fail(agent_host *host, const tutti_error *err); /* it is gone */

/* ------------------------------------------------------------------ names */

/* May a host's function, or a module, be called so? --functions */
bool agent_host_allows(const tutti_agent *agent, const char *name);

/* A process of the agent's own has ended: hosts of its that are closed tell their calls. */
void agent_hosts_tell(tutti_agent *agent);

#endif
