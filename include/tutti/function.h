/*
 * Functions: code that an operator has put beside the tensors, called by name.
 *
 *     const tutti_value args[2] = {tutti_value_tensor("grad"), tutti_value_float(0.5)};
 *     tutti_call_result result;
 *
 *     code = tutti_call(client, "demo.scale", args, 2, NULL, &result, &err);
 *     if (code == TUTTI_OK) {
 *         if (result.value.kind == TUTTI_VALUE_TENSOR) {     // in the agent, read it by its handle
 *             code = tutti_tensor_read(client, result.value.u.text, x, sizeof(x), NULL, &err);
 *         }
 *         tutti_value_free(&result.value);
 *     }
 *
 * A function is a builtin of the agent, one of a plug-in in C (tutti/plugin.h), or one of a host, a
 * process of any language beside the agent. Clients can call what the operator has named and
 * nothing else. It runs in, or beside, the one agent that is called; on all ranks at once it runs
 * by a session (tutti/session.h).
 *
 * Order: a call takes the tensors among its arguments as an op does. It waits for earlier ops and
 * calls that write them, and later ones wait for it.
 *
 * Threads, errors, outputs and common statuses are those of tutti/client.h.
 *
 * Statuses common to the functions of this header
 *
 *   TUTTI_NOT_FOUND         UNKNOWN_FUNC: the agent has no function of that name;
 *                           tutti_function_list shows what there is. NO_VALUE: nothing has that
 *                           name
 *   TUTTI_INVALID_ARGUMENT  BAD_NAME: empty, above TUTTI_NAME_MAX bytes, or of other characters
 *   TUTTI_UNIMPLEMENTED     the agent is older than functions
 *   TUTTI_UNAVAILABLE       STOPPING: the agent stops
 *
 * Caveats
 *
 * - A function that does not return keeps its tensors locked after the caller's time is over. How
 *   it looks: TIMEOUT, and then ops on these tensors wait; `tutti stall` names the function. What to
 *   do: give each wait inside of the function an end.
 * - A tensor that a function has returned has no name unless `result` gave it one, and nobody else
 *   deletes it. How it looks: the agent's memory fills. What to do: tutti_tensor_delete its handle.
 */
#ifndef TUTTI_FUNCTION_H
#define TUTTI_FUNCTION_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/types.h"
#include "tutti/value.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Arguments of one call, at most: more is ARGUMENT_LIMIT. */
#define TUTTI_ARGUMENTS_MAX 64

/* ------------------------------------------------------------------ calling */

/* Begin with tutti_call_options_init. */
typedef struct tutti_call_options {
    /* Bytes of this struct, set by init. */
    size_t size;
    /*
     * The name that gets the result, instead of what it held; a tensor among the results has it as
     * its name. NULL (default) = the result is in the answer alone.
     */
    const char *result;
    /*
     * Milliseconds until the function must have returned; 0 (default) = the agent's --op-timeout.
     */
    uint32_t timeout_ms;
    /* Calls of one scope run in their order, whatever their tensors. NULL (default) = none. */
    const char *scope;
    /*
     * The group on which the function's own collectives run; every rank of it has to call the
     * function, and nothing else may use the group meanwhile. NULL (default) = it can call none.
     */
    const char *group;
} tutti_call_options;

/* [out] options  every field as its comment calls default */
TUTTI_API void tutti_call_options_init(tutti_call_options *options);

/* What a call has returned. */
typedef struct tutti_call_result {
    /* [owned] tutti_value_free it. Of a tensor its handle and its spec. */
    tutti_value value;
    /* From the arrival of the call to its end, in microseconds. */
    uint64_t elapsed_us;
} tutti_call_result;

/*
 * Call a function of the client's agent, and wait until it has returned.
 *
 * [in]          function    its name, or a name of the agent that holds one
 * [in]          args        `count` of them, at most TUTTI_ARGUMENTS_MAX; copied. A register is
 *                           refused: those are a session's
 * [in]          options     NULL = defaults
 * [out, owned]  ret_result  tutti_value_free(&ret_result->value); NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT     ARGUMENT_LIMIT: more than TUTTI_ARGUMENTS_MAX; BAD_VALUE: an argument
 *                            without a kind, above TUTTI_VALUE_BYTES_MAX, or one that the function's
 *                            host cannot take
 * TUTTI_NOT_FOUND            UNKNOWN_FUNC, NO_VALUE; NO_TENSOR: of an argument
 * TUTTI_FAILED_PRECONDITION  NOT_A_FUNCTION: `function` is the name of something else
 * TUTTI_ABORTED              FUNCTION_FAILED, or a reason of the function's own: the text is what
 *                            the function said
 * TUTTI_UNAVAILABLE          HOST_LOST: the process that ran it has ended; the text has its last
 *                            lines. Call again: the agent starts it anew if it is the agent's
 * TUTTI_DEADLINE_EXCEEDED    TIMEOUT: it has not returned in time. It may run on
 * TUTTI_RESOURCE_EXHAUSTED   CALL_LIMIT: --calls-max are queued; MEMORY_LIMIT, HANDLE_LIMIT
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_call(tutti_client *client, const char *function, const tutti_value *args,
                                size_t count, const tutti_call_options *options,
                                tutti_call_result *ret_result, tutti_error *err);

/* ------------------------------------------------------------------ what there is */

/* A function that can be called. Plain data. */
typedef struct tutti_function_info {
    char name[TUTTI_NAME_MAX + 1];
    /* "builtin", "plugin FILE", "module NAME", "host NAME". */
    char source[256];
    /* What it takes and gives, in its author's words; may be "". A longer text is cut. */
    char signature[256];
    /* Calls of it that run or wait. */
    uint32_t calls;
} tutti_function_info;

/*
 * The functions of the client's agent, in the order of their names.
 *
 * [out, owned] ret_infos  an array of `ret_count`; tutti_free it, also when it is empty
 * [out]        ret_count
 *
 * Statuses are those common to this header.
 */
TUTTI_API tutti_code tutti_function_list(tutti_client *client, tutti_function_info **ret_infos,
                                         size_t *ret_count, tutti_error *err);

/*
 * Check that the agent has a function, and give it a name, by which tutti_call finds it and which
 * may be an argument.
 *
 * [in]  function  its name
 * [in]  result    the name that gets it, instead of what it held; NULL or "" = only check
 * [out] ret_info  NULL = not wanted
 *
 * TUTTI_NOT_FOUND  UNKNOWN_FUNC
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_function_get(tutti_client *client, const char *function,
                                        const char *result, tutti_function_info *ret_info,
                                        tutti_error *err);

/* ------------------------------------------------------------------ names */

/*
 * What a name of the agent holds: a plain value, or a tensor. It waits for the call or op that
 * writes it, and fails as that has failed.
 *
 * [in]         name       as in tutti_value_set, or a handle
 * [out, owned] ret_value  tutti_value_free it. Of a tensor its handle and spec
 *
 * TUTTI_NOT_FOUND  NO_VALUE: the name holds nothing
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_value_get(tutti_client *client, const char *name, tutti_value *ret_value,
                                     tutti_error *err);

/*
 * Give a name a plain value, instead of what it held. Tensors are named where they are made
 * (tutti/tensor.h).
 *
 * [in] name   1 to TUTTI_NAME_MAX bytes
 * [in] value  copied; no tensor, and no register
 *
 * TUTTI_INVALID_ARGUMENT  BAD_VALUE: it cannot be kept. BAD_NAME
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_value_set(tutti_client *client, const char *name,
                                     const tutti_value *value, tutti_error *err);

/* ------------------------------------------------------------------ modules */

/*
 * Load a plug-in or a compiled module out of the folder that --module-path of the agent names. Its
 * functions are called "MODULE.function". Loading it again changes nothing.
 *
 * [in]         path        a file name inside of that folder, without a folder
 * [in]         device      where its tensors live: "cpu", "cuda:0"; NULL = the agent's first device
 * [in]         result      the name that gets the module; NULL or "" = none
 * [out, owned] ret_infos   its functions, an array of `ret_count`; tutti_free it; NULL = not wanted
 * [out]        ret_count   NULL = not wanted
 *
 * TUTTI_PERMISSION_DENIED    NO_MODULES: the agent has no --module-path
 * TUTTI_INVALID_ARGUMENT     BAD_PATH: not a file name inside of it
 * TUTTI_NOT_FOUND            NO_MODULE
 * TUTTI_FAILED_PRECONDITION  BAD_MODULE: it is no plug-in of this version; the text says what is
 *                            wrong
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_function_load(tutti_client *client, const char *path, const char *device,
                                         const char *result, tutti_function_info **ret_infos,
                                         size_t *ret_count, tutti_error *err);

/*
 * Ask the hosts that are connected to the agent to import a module of their language, by its name.
 *
 * [in]         module     "my_package.train"
 * [out, owned] ret_infos  the functions that are new, an array of `ret_count`; tutti_free it; NULL
 *                         = not wanted
 * [out]        ret_count  NULL = not wanted
 *
 * TUTTI_PERMISSION_DENIED    NOT_ALLOWED: the name is not under one of --functions
 * TUTTI_NOT_FOUND            NO_HOST: no host that can import is connected
 * TUTTI_FAILED_PRECONDITION  IMPORT_FAILED: the text is what the host said
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_function_import(tutti_client *client, const char *module,
                                           tutti_function_info **ret_infos, size_t *ret_count,
                                           tutti_error *err);

/* ------------------------------------------------------------------ a host of functions */

/*
 * A host: this program offers functions of its own to the agent, and every client can call them. They
 * are functions of plug-ins (tutti/plugin.h, which the program includes too), and run in this
 * process instead of in the agent's: if one crashes, its callers get HOST_LOST, and the agent lives.
 *
 *     #include "tutti/plugin.h"
 *     #include "tutti/tutti.h"
 *
 *     code = tutti_host_open(client, NULL, &host, &err);
 *     if (code == TUTTI_OK) {
 *         code = tutti_host_add(host, "demo.scale", scale, NULL, "tensor, float -> null", &err);
 *     }
 *     if (code == TUTTI_OK) {
 *         code = tutti_host_start(host, &err);      // the agent has taken the functions
 *     }
 *     if (code == TUTTI_OK) {
 *         code = tutti_host_wait(host, &err);       // until tutti_host_stop, or the agent has ended
 *     }
 *     tutti_host_close(host);
 *
 * Tensors among the arguments are the memory of the agent, mapped for reading and writing: nothing is copied.
 * They are the function's until it returns. What differs from a plug-in: tensors on a GPU are refused
 * (BAD_VALUE, CANNOT_SHARE of env->make), env->stream is NULL, and env->op takes no timeout_ms.
 *
 * Threads: functions run on threads of the host, `calls_max` at once, which take no signals.
 * tutti_host_stop may be called from any thread, also from a function, but not from a signal handler;
 * all else of a host from one thread at a time. The client must not be closed before the host.
 *
 * Caveats
 *
 * - A function that does not return keeps tutti_host_wait and tutti_host_close waiting. What to do:
 *   give each wait inside of it an end, and look at *env->cancelled, which is not 0 once nobody waits
 *   for the result, and once the agent has ended.
 * - The agent must allow the names (--functions); and program and agent must be on one host, as
 *   tutti/share.h says it.
 */
typedef struct tutti_host tutti_host;

struct tutti_env;
struct tutti_any;

/* The type tutti_function of tutti/plugin.h, for programs that have not included it. */
typedef int (*tutti_host_function)(const struct tutti_env *env, const struct tutti_any *args,
                                   int32_t count, struct tutti_any *ret);

/* Calls of one host that run at once, at most. */
#define TUTTI_HOST_CALLS_MAX 256

/* Begin with tutti_host_options_init. */
typedef struct tutti_host_options {
    /* Bytes of this struct, set by init. */
    size_t size;
    /* What people see: "host NAME" in lists of functions. NULL (default) = "C, pid N". */
    const char *name;
    /* Functions that run at once, 1 to TUTTI_HOST_CALLS_MAX; 0 (default) = 4. */
    uint32_t calls_max;
} tutti_host_options;

/* [out] options  every field as its comment calls default */
TUTTI_API void tutti_host_options_init(tutti_host_options *options);

/*
 * A host without functions. Nothing is sent yet.
 *
 * [in]         client    connected to an agent; has to be closed after the host
 * [in]         options   NULL = defaults; copied
 * [out, owned] ret_host  tutti_host_close it
 *
 * TUTTI_INVALID_ARGUMENT    calls_max is above TUTTI_HOST_CALLS_MAX
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
TUTTI_API tutti_code tutti_host_open(tutti_client *client, const tutti_host_options *options,
                                     tutti_host **ret_host, tutti_error *err);

/*
 * Add a function, before tutti_host_start.
 *
 * [in] name       by which it is called; copied
 * [in] function   called until the host is closed
 * [in] context    env->context of its calls; NULL is fine
 * [in] signature  for people, "tensor, float -> tensor"; copied; NULL = nothing
 *
 * TUTTI_INVALID_ARGUMENT     BAD_NAME
 * TUTTI_ALREADY_EXISTS       FUNCTION_TAKEN: the host has one of that name
 * TUTTI_FAILED_PRECONDITION  HOST_STARTED
 * TUTTI_RESOURCE_EXHAUSTED   no memory
 */
TUTTI_API tutti_code tutti_host_add(tutti_host *host, const char *name,
                                    tutti_host_function function, void *context,
                                    const char *signature, tutti_error *err);

/*
 * Offer the functions. When it returns the agent has taken them, and calls may run. If it fails the
 * host can only be closed.
 *
 * TUTTI_PERMISSION_DENIED    NOT_ALLOWED: a name that is not under one of --functions of the agent
 * TUTTI_ALREADY_EXISTS       FUNCTION_TAKEN: the agent has a function of that name
 * TUTTI_RESOURCE_EXHAUSTED   HOST_LIMIT: --hosts-max are connected; no memory, no thread
 * TUTTI_FAILED_PRECONDITION  HOST_STARTED: a second start
 * TUTTI_DEADLINE_EXCEEDED    the agent has not answered within the client's timeout_ms
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_host_start(tutti_host *host, tutti_error *err);

/*
 * Wait until the host is over, and all functions have returned.
 *
 * TUTTI_OK                   it was stopped: calls that had come were answered before
 * TUTTI_FAILED_PRECONDITION  HOST_NOT_STARTED
 * TUTTI_UNAVAILABLE          CONNECTION_LOST: the agent has died; STOPPING: it has ended the stream
 * ...                        all else that the agent has said
 */
TUTTI_API tutti_code tutti_host_wait(tutti_host *host, tutti_error *err);

/*
 * Let tutti_host_wait return: calls that have come are answered first, and the agent answers later ones
 * with HOST_LOST. Any thread, also a function.
 */
TUTTI_API void tutti_host_stop(tutti_host *host);

/* Stop the host, wait as tutti_host_wait does, and free it. NULL is fine. Not from a function. */
TUTTI_API void tutti_host_close(tutti_host *host);

#ifdef __cplusplus
}
#endif

#endif
