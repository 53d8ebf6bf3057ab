/*
 * libtutti: collectives on tensors in agents, from C and C++.
 *
 *     tutti_client *client;
 *     tutti_error err;
 *     float x[1000] = {...};
 *
 *     if (tutti_connect(NULL, &client, &err) != TUTTI_OK) {         // $TUTTI_AGENT
 *         fprintf(stderr, "%s\n", err.text);
 *     }
 *     tutti_op op;
 *     tutti_op_init(&op);
 *     op.reduce = TUTTI_REDUCE_AVG;
 *     tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {1000}};
 *     tutti_all_reduce_data(client, &op, &spec, x, x, &err);         // every rank calls it
 *     tutti_close(client);
 *
 * A client speaks for one rank: for the agent it is connected to. Every function blocks until it is
 * done or the time is up, returns a code, and writes `err` (NULL = not wanted) when that is not
 * TUTTI_OK; outputs are written on success only. Any thread may use a client, several at once too.
 *
 * Caveats
 *
 * - Ops on one group are matched by order. Two threads that call ops on the same group race for
 *   their place in it: give such threads groups of their own, or use tutti_op.sequence. How it
 *   looks: OP_MISMATCH, or wrong partners' data. What to do: one thread per group.
 * - A call that one rank makes and another does not ends with DEADLINE_EXCEEDED on all ranks, after
 *   tutti_op.timeout_ms (else the agent's --op-timeout, 5 minutes).
 * - Do not fork after tutti_connect and use the client in the child: gRPC does not survive it. exec
 *   is fine. How it looks: FAILED_PRECONDITION at best, a call that waits for its deadline at
 *   worst.
 * - The memory behind a handle belongs to the agent. A handle dies with tutti_tensor_delete, or
 *   with the agent's process (STALE_HANDLE).
 * - Data of the *_data functions and of put, write and read is copied over a socket. What is used
 *   again and again should stay in the agent, as a handle.
 */
#ifndef TUTTI_CLIENT_H
#define TUTTI_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/code.h"
#include "tutti/error.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_client tutti_client;

/* ------------------------------------------------------------------ connecting */

/* The library's version, "0.1.0". Static. A program was compiled with TUTTI_VERSION of version.h.
 */
TUTTI_API const char *tutti_version(void);

/*
 * Begin with tutti_client_options_init; strings are copied. NULL looks into the environment, ""
 * means none and does not.
 */
typedef struct tutti_client_options {
    size_t size;       /* of this struct: set by init */
    const char *agent; /* address; NULL = $TUTTI_AGENT; "" = none, for the coordinator alone */
    const char *coordinator; /* address; NULL = what the agent says, else $TUTTI_COORDINATOR */
    const char *job;         /* without an agent: NULL = $TUTTI_JOB, else "default" */
    const char *tls_ca;      /* PEM file; NULL = $TUTTI_TLS_CA, else plaintext */
    const char *tls_cert;    /* the client's own; NULL = $TUTTI_TLS_CERT, else none */
    const char *tls_key;     /* likewise, $TUTTI_TLS_KEY */
    const char *tls_name;    /* what certificates say instead of addresses; NULL = $TUTTI_TLS_NAME,
                                else nothing */
    const char *token_file;  /* bearer token; NULL = $TUTTI_TOKEN_FILE, else none */
    uint32_t timeout_ms;     /* of connecting, and of calls that state none; 0 = 30 s */
    bool wait;               /* while nobody answers at `agent` try again, until the time is up */
    const char *traceparent; /* W3C trace context of all calls, found in the records of ops; NULL =
                                $TRACEPARENT, else none */
} tutti_client_options;

TUTTI_API void tutti_client_options_init(tutti_client_options *options);

/*
 * Connect to an agent, waiting until it has joined its job. When it has a Unix socket, too, and
 * this program runs on its host and may use it, calls go there.
 *
 * [in]          agent       "host:port", "[v6]:port", "unix:/path", or an init address
 *                           (tutti/init.h);
 *                           NULL = $TUTTI_AGENT
 * [out, owned]  ret_client  tutti_close it
 *
 * TUTTI_INVALID_ARGUMENT     a bad address; none given and none in the environment; options that
 *                            do not fit together
 * TUTTI_UNAVAILABLE          nobody answers there: the text says where and why
 * TUTTI_DEADLINE_EXCEEDED    NOT_JOINED: it answers, and had not joined in time: the text says who
 *                            is missing
 * TUTTI_FAILED_PRECONDITION  this process was forked off one that has a client
 * TUTTI_NOT_FOUND, ...       a certificate or token file could not be read
 *
 * Without an agent nobody is asked yet: the first call does that.
 */
TUTTI_API tutti_code tutti_connect(const char *agent, tutti_client **ret_client, tutti_error *err);
TUTTI_API tutti_code tutti_connect_with(const tutti_client_options *options,
                                        tutti_client **ret_client, tutti_error *err);
TUTTI_API void tutti_close(tutti_client *client); /* NULL is fine */

/* Who this client speaks for. Borrowed for the client's life. */
typedef struct tutti_agent_info {
    const char *job;
    uint32_t rank;
    uint32_t world_size;
    uint64_t incarnation; /* of the agent's process */
    uint64_t epoch;       /* of the job, when it was asked */
    const char *coordinator;
    const char *host;
    const char *device;
    const char *version;
    uint32_t pid;
} tutti_agent_info;

/* NULL when the client has no agent. */
TUTTI_API const tutti_agent_info *tutti_whoami(const tutti_client *client);

/* What the agent holds and has done. */
typedef struct tutti_agent_stats {
    uint64_t tensor_count;
    uint64_t memory_used_bytes;
    uint64_t memory_limit_bytes;
    uint64_t work_count;
    uint64_t op_running_count;
    uint64_t op_done_count;
    uint64_t op_failed_count;
    uint64_t call_running_count;
    uint64_t world_sequence; /* of the last op on "world" */
    char world_last_op[128];
    uint64_t gpu_used_bytes; /* of tensors on all of its GPUs; those above are in host memory */
    uint64_t gpu_limit_bytes;
} tutti_agent_stats;

TUTTI_API tutti_code tutti_agent_stat(tutti_client *client, tutti_agent_stats *ret_stats,
                                      tutti_error *err);

/*
 * Ask any gRPC server whether it serves: grpc.health.v1. No client is needed.
 *
 * [in]  options      options->agent is the server's address, and TLS and timeout_ms count; NULL =
 *                    the defaults of tutti_client_options_init
 * [in]  service      NULL or "" = the server as a whole; else "tutti.v1.TensorsService" say
 * [out] ret_serving  false = it is there, and says that it does not serve
 *
 * TUTTI_NOT_FOUND    it has no such service
 * TUTTI_UNAVAILABLE  nobody answers there: the text says where and why
 */
TUTTI_API tutti_code tutti_health_check(const tutti_client_options *options, const char *service,
                                        bool *ret_serving, tutti_error *err);

/* Frees what a function of this header has given as [out, owned] memory. NULL is fine. */
TUTTI_API void tutti_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif
