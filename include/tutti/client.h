/*
 * libtutti: collectives on tensors in agents, from C and C++.
 *
 *     tutti_client *client;
 *     tutti_error err;
 *     tutti_op op;
 *     float x[1000] = {1};
 *     tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {1000}};
 *
 *     if (tutti_connect(NULL, &client, &err) != TUTTI_OK) {         // $TUTTI_AGENT
 *         fprintf(stderr, "%s\n", err.text);
 *         return 1;
 *     }
 *     tutti_op_init(&op);
 *     op.reduce = TUTTI_REDUCE_AVG;
 *     tutti_all_reduce_data(client, &op, &spec, x, x, &err);         // every rank calls it
 *     tutti_close(client);
 *
 * A client is a connection of this program to the agent of one rank; every call that it makes is a
 * call of that rank. It has a connection to the coordinator, too, for calls about jobs, groups and
 * keys; libtutti opens each connection when the first call needs it.
 *
 * What holds for all functions of libtutti, where their comments say nothing else:
 *
 * - A function blocks until it is done or its time is over. It returns a code (tutti/code.h) and
 *   writes `err` (NULL = not wanted; tutti/error.h) if that code is not TUTTI_OK.
 * - Outputs (`ret_...`) are written on success only. `ret_...` pointers are not NULL, unless the
 *   comment permits it.
 * - The caller owns the arguments. libtutti does not keep a pointer to any of them beyond the call.
 * - Parameters are tagged. [in]: borrowed for the call. [in, moved]: libtutti owns it afterwards.
 *   [out]: memory of the caller that is filled. [out, owned]: new memory that the caller frees.
 *   [out, borrowed]: memory that stays libtutti's.
 * - Texts are UTF-8 with a final NUL. Texts in structs that are filled are cut at their size.
 *
 * Threads: any thread may use a client, and several threads may use one at once. libtutti does not
 * serialise their calls. tutti_close and tutti_set_device need the client for themselves: no other
 * thread may be inside a call on it. libtutti has threads of its own for large transfers and for
 * membership watches, besides those of gRPC; it calls back on the caller's thread, except in
 * tutti/membership.h. No function is safe in a signal handler.
 *
 * Times: a call of an op, tutti_wait and tutti_sync are limited by their own timeout_ms. If that is
 * 0, an op has the time of its group (tutti_group_options.timeout_ms), if it has one, and everything
 * else the agent's --op-timeout (5 minutes). All other calls are limited by
 * tutti_client_options.timeout_ms, 30 s by default.
 *
 * Statuses common to all calls to an agent or coordinator
 *
 *   TUTTI_UNAVAILABLE        UNREACHABLE: there is no connection, and the server has not seen the
 *                            call. The text has the address and the cause. Look whether the server
 *                            runs; call again.
 *                            CONNECTION_LOST: the connection broke during the call, and nobody
 *                            knows whether the server has done it. Call again; where a call must
 *                            not run twice, with tutti_op.token.
 *                            DRAINING, STOPPING: the server is shutting down. The call was not
 *                            begun, or a call that waited was ended. Call again when the server
 *                            runs again.
 *   TUTTI_DEADLINE_EXCEEDED  UNREACHABLE: no connection was made in time. NO_ANSWER: the server did
 *                            not answer in time, and nobody knows whether it has done the call.
 *                            Look at the server, or give a longer timeout.
 *   TUTTI_UNAUTHENTICATED    NO_TOKEN, BAD_TOKEN, TOKEN_EXPIRED, TOKEN_NOT_YET, WRONG_ISSUER,
 *                            WRONG_AUDIENCE: the server wants another token. A token file is read
 *                            again when it changes.
 *   TUTTI_PERMISSION_DENIED  NO_ROLE, WRONG_ROLE, FOREIGN_JOB, FOREIGN_RANK: the token or
 *                            certificate does not permit this call; the text says what it needs.
 *                            Calls on tensors, ops and tracers need the role client; calls of
 *                            tutti/job.h and tutti/diagnose.h the role client or agent.
 *   TUTTI_CANCELLED          the server has heard that the call was given up. libtutti gives up a
 *                            call when its time is over, and a transfer when on_progress says so.
 *   TUTTI_FAILED_PRECONDITION
 *                            FORKED: this process was forked off the one that has connected.
 *                            NO_AGENT, NO_COORDINATOR: the client has no address of the server that
 *                            the call is for. Give it in tutti_client_options.
 *   TUTTI_INVALID_ARGUMENT   MALFORMED_MESSAGE, BAD_TEXT, BAD_ENUM: a text is not UTF-8, or client
 *                            and server have different versions. NULL_ARGUMENT: an argument that
 *                            must not be NULL is. BAD_STRUCT: a struct with a `size` member was not
 *                            begun with its init function, or a newer program has set a field that
 *                            this library does not know.
 *   TUTTI_RESOURCE_EXHAUSTED NO_MEMORY: the server or this process has no memory for the call;
 *                            MESSAGE_LIMIT: the message is too large. SYSTEM_LIMIT: this process
 *                            got no thread or descriptor for the call.
 *   TUTTI_UNIMPLEMENTED      the server is older than this call, or is not of Tutti.
 *   TUTTI_DATA_LOSS          BAD_ANSWER: the answer makes no sense. Compare the versions of client
 *                            and server.
 *
 * docs/errors.md explains each reason. `[in] client` is in no list of parameters: it is a client
 * that tutti_connect gave, not NULL and not closed.
 *
 * NULL stands for the defaults of `op`, `options` and `transfer`, and for an empty text; as the `ret_result`
 * of an op, `ret_id` and `ret_ticket` it says that they are not wanted; `arg`, `user` and `context` are handed
 * on as they are. What else may be NULL says so. For any other pointer, and for an array of more than 0
 * elements or bytes, NULL gives NULL_ARGUMENT; the text names the parameter.
 *
 * Environment: TUTTI_AGENT, TUTTI_COORDINATOR, TUTTI_JOB, TUTTI_TLS_CA, TUTTI_TLS_CERT,
 * TUTTI_TLS_KEY, TUTTI_TLS_NAME, TUTTI_TOKEN_FILE and TRACEPARENT stand for fields of
 * tutti_client_options. TUTTI_HOST_ID replaces the id by which libtutti sees whether an agent is on
 * the same host. TUTTI_LOG sets the level of the log on standard error; without it libtutti logs
 * errors, and a warning when tensors are copied instead of mapped (tutti/share.h).
 *
 * Caveats
 *
 * - Ops on one group are matched by order. The trap: two threads that call ops on the same group
 *   race for their place in it. How it looks: OP_MISMATCH, or data of the wrong partners. What to
 *   do: one thread for each group, or tutti_op.sequence.
 * - A call that one rank makes and another one does not ends with DEADLINE_EXCEEDED on all ranks,
 *   after the op's time (see Times above). What to do: `tutti stall` or tutti_stalls_find
 *   (tutti/diagnose.h) name the rank before that.
 * - Do not fork after tutti_connect and use the client in the child: gRPC does not survive it. exec
 *   is fine. How it looks: FORKED at best, a call that waits for its deadline at worst. What to do:
 *   connect in the child alone.
 * - The memory behind a handle belongs to the agent. A handle dies with tutti_tensor_delete, or
 *   with the agent's process. How it looks: NO_TENSOR or STALE_HANDLE. What to do: upload again.
 * - Data of the *_data functions and of put, write and read is copied over a socket. How it looks:
 *   time goes into copies. What to do: keep what is used again in the agent, as a handle; or map
 *   it (tutti/share.h).
 * - A tensor stays in the agent until it is deleted, also when the client is closed or dies.
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

/* A connection to one agent, or to a coordinator alone. */
typedef struct tutti_client tutti_client;

/* ------------------------------------------------------------------ connecting */

/*
 * The version of the library that the program has loaded, "0.1.0". TUTTI_VERSION of
 * tutti/version.h is the one that the program was compiled with.
 *
 * Returns a static string. Any thread, also before tutti_connect.
 */
TUTTI_API const char *tutti_version(void);

/*
 * How to connect. Begin with tutti_client_options_init; then all fields have their defaults.
 * tutti_connect_with copies the strings.
 *
 * For a string, NULL means "look into the environment", and "" means "none, whatever the
 * environment says"; `coordinator` and `job` differ.
 */
typedef struct tutti_client_options {
    /*
     * Bytes of this struct, set by init. It tells libtutti which fields the program was compiled
     * with, so an old program runs with a newer library.
     */
    size_t size;
    /*
     * Address of the agent, in a form that tutti_connect takes. NULL = $TUTTI_AGENT. "" = no agent:
     * then the client can make calls to the coordinator alone, in the name of no rank.
     */
    const char *agent;
    /*
     * Address of the coordinator: "host:port", "[v6]:port" or "unix:/path". NULL or "" = the one
     * that the agent names, else $TUTTI_COORDINATOR.
     */
    const char *coordinator;
    /*
     * The job that calls to the coordinator are about if there is no agent. NULL = $TUTTI_JOB, else
     * "default"; "" is refused with BAD_NAME. With an agent its job counts.
     */
    const char *job;
    /*
     * PEM file of the authorities that sign the servers' certificates. NULL = $TUTTI_TLS_CA, else
     * plaintext. Unix sockets are plaintext always. The three files are read again, within a
     * second, when they change.
     */
    const char *tls_ca;
    /*
     * PEM file of the client's own certificate, for servers that want one; needs tls_key and
     * tls_ca. NULL = $TUTTI_TLS_CERT, else none.
     */
    const char *tls_cert;
    /* PEM file of that certificate's key. NULL = $TUTTI_TLS_KEY, else none. */
    const char *tls_key;
    /*
     * The name that the servers' certificates must have, instead of their addresses. NULL =
     * $TUTTI_TLS_NAME, else the host of the address.
     */
    const char *tls_name;
    /*
     * File with a bearer token (tutti token make), sent with each call. It is not sent in plaintext
     * to another machine (TOKEN_IN_PLAINTEXT). NULL = $TUTTI_TOKEN_FILE, else none.
     */
    const char *token_file;
    /*
     * Milliseconds for connecting, and for each later call that states no time of its own. 0 = 30
     * s. With an init address finding the agent and connecting to it have this time each.
     */
    uint32_t timeout_ms;
    /*
     * While nobody answers at `agent`, try again (after 10 ms, later every 500 ms) until the time
     * is over. false (default) = fail at once with UNREACHABLE. An agent that answers and has not
     * joined is waited for in both cases.
     */
    bool wait;
    /*
     * W3C trace context that is sent with all calls, at most 512 bytes; the agents' records of ops
     * have its trace id. A text that cannot be sent is left out silently. NULL = $TRACEPARENT, else
     * none.
     */
    const char *traceparent;
} tutti_client_options;

/* Set `size`, and all fields to NULL, 0 and false: everything by default. [out] options */
TUTTI_API void tutti_client_options_init(tutti_client_options *options);

/*
 * Connect to an agent and wait until it has joined its job, which is when all ranks of the job are
 * there. If the agent listens on a Unix socket, too, and this program runs on its host and may open
 * that socket, the client uses the socket from then on.
 *
 * [in]          agent       "host:port", "[v6]:port", "unix:/path", or an init address
 *                           (tutti/init.h); NULL = $TUTTI_AGENT; "" = no agent, see
 *                           tutti_client_options.agent
 * [out, owned]  ret_client  tutti_close it
 *
 * TUTTI_INVALID_ARGUMENT     NO_AGENT: no address is given, and none in the environment.
 *                            BAD_URL: an init address that says too little.
 *                            WORLD_SIZE: the job has another number of ranks than the init address.
 *                            BAD_NAME: of the job.
 *                            TOKEN_IN_PLAINTEXT: a token for another machine needs tls_ca.
 *                            CERTIFICATE_EXPIRED: expired or not valid yet. Make another one.
 *                            BAD_ADDRESS: it is none. BAD_CREDENTIALS: options that do not fit
 *                            together (a certificate without key or authority); a file that is not
 *                            PEM
 * TUTTI_UNAVAILABLE          UNREACHABLE: nobody answers there; the text says where and why. Set
 *                            `wait` if the agent may start later
 * TUTTI_DEADLINE_EXCEEDED    NOT_JOINED: it answers, and has not joined in time; the text names the
 *                            ranks that are missing. Start these, or give a longer timeout_ms.
 *                            UNREACHABLE: no connection in time
 * TUTTI_FAILED_PRECONDITION  NOT_AN_AGENT: that address is the coordinator's. `tutti --coordinator
 *                            ADDRESS status` shows those of the agents.
 *                            FORKED: a process that has a client has forked this one
 * TUTTI_UNIMPLEMENTED        what answers is neither an agent nor a coordinator
 * TUTTI_NOT_FOUND, ...       a certificate, key or token file could not be read: the code says why
 *                            (NOT_FOUND, PERMISSION_DENIED), `cause` is the errno
 * and the statuses common to all calls
 *
 * On failure nothing is left to close. Without an agent nobody is asked yet: the first call to the
 * coordinator tells whether it is there.
 */
TUTTI_API tutti_code tutti_connect(const char *agent, tutti_client **ret_client, tutti_error *err);

/*
 * The same with options.
 *
 * [in]          options     NULL = the defaults; copied
 * [out, owned]  ret_client  tutti_close it
 *
 * Statuses are those of tutti_connect; BAD_STRUCT also for options that were not begun with
 * tutti_client_options_init.
 */
TUTTI_API tutti_code tutti_connect_with(const tutti_client_options *options,
                                        tutti_client **ret_client, tutti_error *err);

/*
 * Close the connections and free the client. Takes 100 ms at most for each idle stream to an agent
 * that does not answer. Tensors, tracers and async ops go on in the agent.
 *
 * [in, moved]  client  NULL is fine. No other thread may be inside a call on it; its views
 *                      (tutti_tensor_unmap), pipelines and membership watches must be closed before
 *
 * In a child of fork it frees the memory and leaves the parent's connections as they are.
 */
TUTTI_API void tutti_close(tutti_client *client);

/* ------------------------------------------------------------------ the agent */

/*
 * Which agent a client speaks for, as that agent said when the client connected: nothing here
 * changes later. Strings are borrowed for the client's life, never NULL.
 */
typedef struct tutti_agent_info {
    /* The job's name. */
    const char *job;
    /* The agent's rank, 0 to world_size - 1. */
    uint32_t rank;
    /* Ranks of the job. In an elastic job: the seats, taken or not. */
    uint32_t world_size;
    /* The random number that the agent's process drew at its start; it is part of every handle. */
    uint64_t incarnation;
    /* Of the job, from 1 on; raised by each change of members. */
    uint64_t epoch;
    /* The coordinator's address that this client uses: that of the options, else the agent's. */
    const char *coordinator;
    /* The name of the agent's machine. */
    const char *host;
    /* The agent's --device: "cpu", "cuda:0", "cuda:0,cpu". */
    const char *device;
    /* The agent's version, "0.1.0". */
    const char *version;
    /* The agent's process id, on its machine. */
    uint32_t pid;
} tutti_agent_info;

/*
 * The agent that a client is connected to. It asks nobody.
 *
 * Returns [out, borrowed] memory of the client; NULL if the client has no agent.
 */
TUTTI_API const tutti_agent_info *tutti_whoami(const tutti_client *client);

/* What an agent holds, and has done since its start. */
typedef struct tutti_agent_stats {
    /* Tensors, in host memory and on GPUs. Limit: --handles-max. */
    uint64_t tensor_count;
    /* Bytes of tensors in host memory, with what alignment costs. */
    uint64_t memory_used_bytes;
    /* --memory-limit, in bytes. */
    uint64_t memory_limit_bytes;
    /* Async ops that the agent knows: those that run, and ended ones not yet forgotten. */
    uint64_t work_count;
    /* Ops in flight, those that wait for their turn included. Limit: --ops-max. */
    uint64_t op_running_count;
    /* Ops that the engine has ended, well and otherwise. */
    uint64_t op_done_count;
    uint64_t op_failed_count;
    /* Calls on tensors in flight, uploads and downloads among them. */
    uint64_t call_running_count;
    /* The number of the last op on "world" that began here, from 1; 0 = none yet. */
    uint64_t world_sequence;
    /* That op in words, "all_reduce(sum, FP32[1024])"; "" = none yet. */
    char world_last_op[128];
    /* Bytes of tensors on all GPUs of the agent together, and the sum of their limits. */
    uint64_t gpu_used_bytes;
    uint64_t gpu_limit_bytes;
    /*
     * Of all groups the one in which an op runs, or ended last; that group's last op, and its number in
     * the group. "" and 0 = no op has begun.
     */
    char newest_group[TUTTI_NAME_MAX + 1];
    char newest_op[128];
    uint64_t newest_sequence;
} tutti_agent_stats;

/*
 * Ask the agent what it holds. The numbers are read one after the other while the agent works, so
 * they need not fit together exactly.
 *
 * [out] ret_stats
 *
 * Statuses are those common to all calls.
 */
TUTTI_API tutti_code tutti_agent_stat(tutti_client *client, tutti_agent_stats *ret_stats,
                                      tutti_error *err);

/*
 * Ask any gRPC server whether it serves, by grpc.health.v1. It needs no client: it connects, asks
 * once and closes the connection. An agent serves from the moment it has joined its job.
 *
 * [in]  options      options->agent is the server's address (no init address, and not ""); TLS,
 *                    token and timeout_ms count, the rest does not; NULL = the defaults of
 *                    tutti_client_options_init
 * [in]  service      NULL or "" = the server as a whole; else a name such as
 *                    "tutti.v1.TensorsService"
 * [out] ret_serving  false = it is there, and says that it does not serve
 *
 * TUTTI_NOT_FOUND            NO_SERVICE: it has no such service
 * TUTTI_UNAVAILABLE          UNREACHABLE: nobody answers there; the text says where and why
 * TUTTI_FAILED_PRECONDITION  NO_AGENT: no address is given; FORKED
 * TUTTI_INVALID_ARGUMENT     BAD_ADDRESS; BAD_CREDENTIALS: options that do not fit together
 */
TUTTI_API tutti_code tutti_health_check(const tutti_client_options *options, const char *service,
                                        bool *ret_serving, tutti_error *err);

/* Who leads, as one of several coordinators says. */
typedef struct tutti_leader_info {
    /* This one does. A coordinator without an etcd always does. */
    bool leads;
    /* It stands by: the address of the one that leads; "" = nobody does. */
    char leader[TUTTI_ERROR_GROUP_MAX];
} tutti_leader_info;

/*
 * Ask one coordinator whether it leads. It needs no client: it connects, asks once and closes the
 * connection, and follows nobody.
 *
 * [in]  options   options->agent is the coordinator's address; job, TLS, token and timeout_ms count,
 *                 the rest does not; NULL = the defaults of tutti_client_options_init
 * [out] ret_info
 *
 * TUTTI_UNAVAILABLE          UNREACHABLE: nobody answers there; the text says where and why
 * TUTTI_DEADLINE_EXCEEDED    something is there, and does not answer
 * TUTTI_UNAUTHENTICATED, TUTTI_PERMISSION_DENIED
 *                            it tells strangers nothing
 * TUTTI_UNIMPLEMENTED        it is no coordinator
 * TUTTI_FAILED_PRECONDITION  NO_AGENT: no address is given; FORKED
 * TUTTI_INVALID_ARGUMENT     BAD_ADDRESS; BAD_CREDENTIALS: options that do not fit together
 */
TUTTI_API tutti_code tutti_leader_check(const tutti_client_options *options,
                                        tutti_leader_info *ret_info, tutti_error *err);

/*
 * Asked while a blocking call waits for a server.
 *
 * Returns true = give the call up: it ends with TUTTI_CANCELLED, as if this program had gone away:
 * an op ends on all ranks with CALLER_GONE.
 */
typedef bool (*tutti_interrupt_fn)(void);

/*
 * A function that each blocking call asks every 50 ms, on the thread that waits, whether to go on;
 * a call that is answered sooner does not ask. It is for programs that can look at their signals on
 * one thread alone, such as interpreters. It may run on any thread that calls libtutti, several at
 * once; it must not call libtutti.
 *
 * [in] hook  of all clients of the process; NULL = none, the default. Calls that wait already do not
 *            ask it. Any thread
 */
TUTTI_API void tutti_set_interrupt(tutti_interrupt_fn hook);

/*
 * Free memory that a function of libtutti has given as [out, owned], where its comment does not
 * name another function for that. libtutti may use another heap than the program, so free() is
 * wrong.
 *
 * [in, moved]  memory  NULL is fine. Any thread
 */
TUTTI_API void tutti_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif
