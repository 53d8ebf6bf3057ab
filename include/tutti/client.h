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

/* ------------------------------------------------------------------ tensors in the agent */

/* A tensor in the agent: its name on the wire, and what it is. Plain data. */
typedef struct tutti_handle {
    char text[TUTTI_HANDLE_MAX + 1];
    bool known;      /* false: an async op will say what it is */
    tutti_spec spec; /* when known */
} tutti_handle;

/*
 * How far a transfer is, on the thread that called it; return false to give it up with
 * TUTTI_CANCELLED. The last call, with done = total, cannot give it up any more.
 */
typedef bool (*tutti_progress_fn)(void *arg, uint64_t done_bytes, uint64_t total_bytes);

#define TUTTI_STREAMS_MAX 16 /* of one transfer */

/*
 * A big tensor can go over several streams at once, each with a thread and a connection of its own:
 * one connection has one window and keeps one processor busy at each end. Where nothing is said it
 * is two from 64 MiB on over TCP, if this machine has four processors, else one. A stream carries a
 * chunk at least, and an agent that does not know of it gets one.
 *
 * All of it is one transfer: when one stream fails all do, and the error says which it was; a new
 * tensor is not made then, and one that is overwritten keeps the new bytes that have arrived, as
 * with one stream. When the tensor is written while several streams read it, it is read again over
 * one: progress begins again.
 */
typedef struct tutti_transfer {
    size_t size; /* of this struct: set by init */
    tutti_progress_fn on_progress;
    void *arg;
    uint32_t chunk_bytes; /* 4096 to 4 MiB; 0 = 2 MiB */
    uint32_t timeout_ms;  /* without progress, waiting for an op that writes it too; 0 = client's */
    uint32_t streams;     /* at once, each with its connection; 0 = see above */
} tutti_transfer;

TUTTI_API void tutti_transfer_init(tutti_transfer *transfer);

/* Elements and bytes of a spec. TUTTI_INVALID_ARGUMENT  BAD_DTYPE, BAD_SHAPE */
TUTTI_API tutti_code tutti_spec_size(const tutti_spec *spec, uint64_t *ret_count,
                                     uint64_t *ret_bytes, tutti_error *err);

/*
 * Wherever a handle is wanted, its text or the tensor's name serves.
 *
 * TUTTI_NOT_FOUND            NO_TENSOR
 * TUTTI_FAILED_PRECONDITION  FOREIGN_HANDLE: of another agent; STALE_HANDLE: of a dead one
 * TUTTI_INVALID_ARGUMENT     BAD_HANDLE, BAD_NAME, BAD_DTYPE, BAD_SHAPE, SIZE_MISMATCH,
 *                            DTYPE_MISMATCH, SHAPE_MISMATCH
 * TUTTI_ALREADY_EXISTS       NAME_TAKEN
 * TUTTI_RESOURCE_EXHAUSTED   MEMORY_LIMIT, HANDLE_LIMIT
 * TUTTI_DEADLINE_EXCEEDED    STALLED: a transfer that did not move for its timeout_ms
 * TUTTI_CANCELLED            on_progress said so
 *
 * When put or write ends, nothing looks at `data` any more, failed or not.
 */

/*
 * Where tensors that this client makes live from now on: "cpu", "cuda:0"; "cuda" = the agent's
 * first GPU, whatever its number; NULL = its first device, and of a copy, where the original is.
 * Not while other threads use the client. Calls that make tensors then fail with
 * FAILED_PRECONDITION NO_DEVICE where the agent has no such device.
 *
 * TUTTI_INVALID_ARGUMENT  BAD_DEVICE: longer than 31 characters
 */
TUTTI_API tutti_code tutti_set_device(tutti_client *client, const char *device, tutti_error *err);

/* New, filled with zeros. [in] name  NULL = none */
TUTTI_API tutti_code tutti_tensor_create(tutti_client *client, const tutti_spec *spec,
                                         const char *name, tutti_handle *ret_handle,
                                         tutti_error *err);

/* New, from `data`; any size. [in] transfer  NULL = defaults */
TUTTI_API tutti_code tutti_tensor_put(tutti_client *client, const tutti_spec *spec,
                                      const void *data, const char *name,
                                      const tutti_transfer *transfer, tutti_handle *ret_handle,
                                      tutti_error *err);

/* Overwrite all of an existing one. `spec` says what `data` is: same dtype and element count. */
TUTTI_API tutti_code tutti_tensor_write(tutti_client *client, const char *handle,
                                        const tutti_spec *spec, const void *data,
                                        const tutti_transfer *transfer, tutti_error *err);

/* All of its bytes; SIZE_MISMATCH unless `bytes` is exactly its size. */
TUTTI_API tutti_code tutti_tensor_read(tutti_client *client, const char *handle, void *data,
                                       uint64_t bytes, const tutti_transfer *transfer,
                                       tutti_error *err);

/* [in] into  NULL = a new one; [in] name  of the new one, NULL = none */
TUTTI_API tutti_code tutti_tensor_copy(tutti_client *client, const char *handle, const char *into,
                                       const char *name, tutti_handle *ret_handle,
                                       tutti_error *err);

TUTTI_API tutti_code tutti_tensor_delete(tutti_client *client, const char *handle,
                                         tutti_error *err);

typedef struct tutti_tensor_info {
    tutti_handle handle;
    char name[TUTTI_NAME_MAX + 1];
    uint64_t bytes;
    bool pending; /* an op still writes it */
    bool failed;  /* the op that was to write it failed: `error` */
    tutti_error error;
    char device[32]; /* "cpu", "cuda:0"; "" while nobody knows its shape */
    char owner[64];  /* who made it: an identity, else an address; "" = nobody in particular */
    bool ephemeral;  /* it is deleted when whoever made it ends */
} tutti_tensor_info;

/* Without waiting for it. */
TUTTI_API tutti_code tutti_tensor_stat(tutti_client *client, const char *handle,
                                       tutti_tensor_info *ret_info, tutti_error *err);

/* All, in the order they were made. [out, owned] ret_infos  tutti_free it */
TUTTI_API tutti_code tutti_tensor_list(tutti_client *client, tutti_tensor_info **ret_infos,
                                       size_t *ret_count, tutti_error *err);

/* ------------------------------------------------------------------ collectives */

#define TUTTI_ANY_SOURCE INT32_MIN

/* What an op is asked to do; each op looks at what concerns it. Begin with tutti_op_init. */
typedef struct tutti_op {
    size_t size;         /* of this struct: set by init */
    const char *group;   /* NULL = "world" */
    const char *input;   /* handle or name; what this rank gives */
    const char *output;  /* NULL = a new tensor; the same as input = in place */
    tutti_reduce reduce; /* all_reduce, reduce_to_root, reduce_scatter; init: SUM */
    double factor;       /* of PREMUL_SUM; init: 1 */
    int32_t root;        /* broadcast, reduce_to_root, gather, scatter; init: 0 */
    int32_t peer;        /* send: to whom; recv: from whom, or TUTTI_ANY_SOURCE (init) */
    bool global;         /* root and peer are ranks of the job, not of the group */
    uint32_t tag;        /* send, recv */
    int32_t axis;        /* all_gather, gather, reduce_scatter, scatter; negative: from the end */
    tutti_form form;     /* of these four; init: CONCAT */
    const tutti_spec *expect; /* recv: what it must be; NULL = whatever comes */
    bool async;               /* return at once; tutti_wait for the work */
    uint32_t timeout_ms; /* 0 = the agent's --op-timeout; else no call outlives it by over 2 s */
    uint64_t sequence;   /* the number it must get in its group; 0 = the next */
    const int64_t *out_shape; /* of FLAT: what the result, or a part, becomes */
    size_t out_shape_count;   /* 0 = one dimension */
    int32_t split_axis;       /* all_to_all: where it is cut into equal parts */
    int32_t concat_axis;      /* all_to_all: where the parts are joined */
    const int32_t *src_dst;   /* permute: by sender, the group rank that gets its tensor */
    size_t src_dst_count;     /* the group's size */
    /* all_to_all: parts of any length along split_axis, one for each rank; NULL = equal ones */
    const int64_t *input_splits;
    size_t input_split_count;
    const int64_t *output_splits; /* what they send to this rank; must fit what they say */
    size_t output_split_count;
    bool monitored; /* barrier: when time is up it fails with MISSING_RANKS instead of TIMEOUT */
    /*
     * Lists (tutti/list.h): handles or names instead of `input`, where results go (none: new
     * tensors), and an axis for each input (none: `axis`).
     */
    const char *const *inputs;
    size_t input_count;
    const char *const *outputs;
    size_t output_count;
    const int32_t *axes;
    size_t axis_count;
    bool coalesced; /* broadcast, scatter: a receiver says that a list comes */
    /* scatter, on the root: rows of dimension 0 for each group rank; NULL = equal parts */
    const int64_t *splits;
    size_t split_count;
    const void *user_meta; /* broadcast and scatter on the root, send: travels with the tensor */
    size_t user_meta_size; /* at most 16384 */
    struct tutti_op_more *more; /* what else it gives; NULL = not wanted, and in pipelines */
    /* Gradients (tutti/tracer.h): record it on these tracers too, on none, without communication */
    const char *const *tracers;
    size_t tracer_count;
    bool no_grad;
    bool local_grad;
    /*
     * The caller's own count, such as a training step; 0 = none. Collectives meet only with the
     * same step, else all ranks get OP_MISMATCH: what succeeded elsewhere, and is called again
     * here, is not summed with the others' next step. Not of send and recv.
     */
    uint64_t step;
    /*
     * send, recv: with group_count, the group is cut into so many blocks of consecutive ranks, and
     * the peer is the rank in our place, group_offset blocks further; `peer` is not looked at
     */
    int32_t group_offset;
    uint32_t group_count;
    /*
     * For calling again when an answer was lost: a random number, drawn anew for each op; 0 = none.
     * For --retry-window of the agent (30 s) a call with the same token gets the answer of the
     * first one. While that runs: TUTTI_ABORTED TOKEN_IN_FLIGHT.
     */
    uint64_t token;
} tutti_op;

TUTTI_API void tutti_op_init(tutti_op *op);

/* Which op, where a function takes any. */
typedef enum tutti_op_kind {
    TUTTI_OP_ALL_REDUCE = 1,
    TUTTI_OP_REDUCE_TO_ROOT,
    TUTTI_OP_REDUCE_SCATTER,
    TUTTI_OP_BROADCAST,
    TUTTI_OP_ALL_GATHER,
    TUTTI_OP_GATHER,
    TUTTI_OP_SCATTER,
    TUTTI_OP_ALL_TO_ALL,
    TUTTI_OP_PERMUTE,
    TUTTI_OP_BARRIER,
    TUTTI_OP_SEND,
    TUTTI_OP_RECV,
} tutti_op_kind;

#define TUTTI_OP_KINDS 12

/* "all_reduce"; NULL for a number that is no kind. */
TUTTI_API const char *tutti_op_kind_name(tutti_op_kind kind);

/* The kind of that name, with - or _ between words. False: there is none. */
TUTTI_API bool tutti_op_kind_parse(const char *name, tutti_op_kind *ret_kind);

/*
 * What an op gives besides its result, tutti/list.h: filled by one that succeeds, through op.more;
 * free it with tutti_op_more_free.
 */
typedef struct tutti_op_more {
    tutti_handle *outputs; /* [owned] the results of a list, in order; NULL = none */
    size_t output_count;
    void *user_meta; /* [owned] what came with the tensor; NULL = nothing */
    size_t user_meta_size;
} tutti_op_more;

typedef struct tutti_op_result {
    tutti_handle output;             /* text "" where this rank gets none */
    uint64_t sequence;               /* its number in the group, from 1; 0 for send and recv */
    char work[TUTTI_HANDLE_MAX + 1]; /* of an async op */
    uint64_t elapsed_us;             /* inside the agent */
    uint32_t source;                 /* recv: group rank of the sender */
    uint32_t source_global;          /* recv: its rank in the job */
} tutti_op_result;

/*
 * all_reduce      everyone gets the reduction of all inputs
 * reduce_to_root  the root alone does; the others' output stays as it is
 * reduce_scatter  group rank i gets part i of it
 * broadcast       everyone gets the root's input; the others give none
 * all_gather      everyone gets all inputs, joined in the order of group ranks
 * gather          the root alone does
 * scatter         group rank i gets part i of the root's input; what others give is ignored
 * all_to_all      group rank i gets part i of every input, joined in the order of group ranks
 * permute         group rank src_dst[i] gets the input of group rank i; every rank says the same
 *
 * [out] ret_result  NULL = not wanted
 *
 * TUTTI_FAILED_PRECONDITION  OP_MISMATCH: ranks called different ops; NOT_IN_GROUP; ...
 * TUTTI_INVALID_ARGUMENT     SHAPE_MISMATCH, DTYPE_MISMATCH, BAD_REDUCE_OP, BAD_ROOT, BAD_AXIS,
 *                            INDIVISIBLE, OUT_SHAPE, BAD_PERMUTATION, ...
 * TUTTI_DEADLINE_EXCEEDED    TIMEOUT: the text names who had not come
 * TUTTI_UNAVAILABLE          RANK_LOST: a rank is gone; the agent is not there any more
 * TUTTI_NOT_FOUND            NO_GROUP, NO_TENSOR
 * docs/errors.md lists all reasons.
 */
TUTTI_API tutti_code tutti_all_reduce(tutti_client *client, const tutti_op *op,
                                      tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_broadcast(tutti_client *client, const tutti_op *op,
                                     tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_all_gather(tutti_client *client, const tutti_op *op,
                                      tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_reduce_to_root(tutti_client *client, const tutti_op *op,
                                          tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_reduce_scatter(tutti_client *client, const tutti_op *op,
                                          tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_gather(tutti_client *client, const tutti_op *op,
                                  tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_scatter(tutti_client *client, const tutti_op *op,
                                   tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_all_to_all(tutti_client *client, const tutti_op *op,
                                      tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_permute(tutti_client *client, const tutti_op *op,
                                   tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_barrier(tutti_client *client, const tutti_op *op,
                                   tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_send(tutti_client *client, const tutti_op *op,
                                tutti_op_result *ret_result, tutti_error *err);
TUTTI_API tutti_code tutti_recv(tutti_client *client, const tutti_op *op,
                                tutti_op_result *ret_result, tutti_error *err);

/* One rank's view of a group, for tutti_infer. */
typedef struct tutti_infer_place {
    uint32_t group_size; /* 0 = as many as the job has */
    uint32_t group_rank;
} tutti_infer_place;

/*
 * What an op would make on that rank if all ranks of the group called it so, and what is wrong with
 * its arguments, without running it. Not for barrier, send and recv. Groups, outputs and times are
 * not looked at; roots are group ranks.
 *
 * [in]  input        what each rank gives (of broadcast and scatter: the root); NULL = op->input
 * [in]  place        NULL = group rank 0 of as many as the job has
 * [out] ret_result   dtype TUTTI_DTYPE_NONE: this rank gets no result
 *
 * TUTTI_FAILED_PRECONDITION  PENDING: op->input has no shape yet
 * and what the op itself would say
 */
TUTTI_API tutti_code tutti_infer(tutti_client *client, tutti_op_kind kind, const tutti_op *op,
                                 const tutti_spec *input, const tutti_infer_place *place,
                                 tutti_spec *ret_result, tutti_error *err);

/*
 * The same on memory of the caller's: small data travels with the call, larger data is uploaded,
 * run and downloaded. op->input, output and async must be unset (assert). Whatever happens, no
 * tensor stays in the agent as long as it can be reached; while they run, they are named
 * "tutti.tmp/...".
 *
 * all_reduce  [in] data, [out] result: both as `spec`; may be the same memory
 * broadcast   [in, out] data: as `spec` on every rank; the root's is sent, and not changed. In a
 *             group other than the world, with a root that is not global, this asks the coordinator
 *             who is who
 * all_gather  [in] data: as `spec`; [out] result: group size times as much
 * all_to_all  [in] data: as `spec`; [out] result: as many bytes; may be the same memory
 * permute     likewise
 *
 * reduce_scatter  [in] data: as `spec`; [out] result: this rank's part
 * reduce_to_root  [in] data: as `spec`; [out] result: as `spec` too, on the root; elsewhere not
 *                 looked at. May be the same memory
 * gather          [in] data: as `spec`; [out] result: group size times as much, on the root;
 *                 elsewhere not looked at
 * scatter         [in] data: as `spec`, on the root; elsewhere neither is looked at, but for the
 *                 dtype; [out] result: this rank's part, on the root too
 *
 * Those with a root find out who it is as broadcast does.
 */
TUTTI_API tutti_code tutti_all_reduce_data(tutti_client *client, const tutti_op *op,
                                           const tutti_spec *spec, const void *data, void *result,
                                           tutti_error *err);
TUTTI_API tutti_code tutti_broadcast_data(tutti_client *client, const tutti_op *op,
                                          const tutti_spec *spec, void *data, tutti_error *err);
TUTTI_API tutti_code tutti_all_gather_data(tutti_client *client, const tutti_op *op,
                                           const tutti_spec *spec, const void *data, void *result,
                                           uint64_t result_bytes, tutti_error *err);
TUTTI_API tutti_code tutti_reduce_to_root_data(tutti_client *client, const tutti_op *op,
                                               const tutti_spec *spec, const void *data,
                                               void *result, tutti_error *err);
TUTTI_API tutti_code tutti_reduce_scatter_data(tutti_client *client, const tutti_op *op,
                                               const tutti_spec *spec, const void *data,
                                               void *result, uint64_t result_bytes,
                                               tutti_error *err);
TUTTI_API tutti_code tutti_gather_data(tutti_client *client, const tutti_op *op,
                                       const tutti_spec *spec, const void *data, void *result,
                                       uint64_t result_bytes, tutti_error *err);
TUTTI_API tutti_code tutti_scatter_data(tutti_client *client, const tutti_op *op,
                                        const tutti_spec *spec, const void *data, void *result,
                                        uint64_t result_bytes, tutti_error *err);
TUTTI_API tutti_code tutti_all_to_all_data(tutti_client *client, const tutti_op *op,
                                           const tutti_spec *spec, const void *data, void *result,
                                           tutti_error *err);
TUTTI_API tutti_code tutti_permute_data(tutti_client *client, const tutti_op *op,
                                        const tutti_spec *spec, const void *data, void *result,
                                        tutti_error *err);

/* How an async op stands. */
typedef struct tutti_work_status {
    char work[TUTTI_HANDLE_MAX + 1];
    bool done;
    tutti_error error;   /* code TUTTI_OK = it did not fail */
    tutti_handle output; /* of a done op */
    uint32_t source;     /* recv */
    uint32_t source_global;
    uint64_t elapsed_us;
} tutti_work_status;

/*
 * Wait for works. TUTTI_OK also when one of them failed: look at each status.
 *
 * [in]  works         1 to 1024 ids
 * [in]  timeout_ms    0 = the agent's --op-timeout
 * [out] ret_statuses  `count` of them; NULL = not wanted, and then the first failure is returned
 *
 * TUTTI_DEADLINE_EXCEEDED  the works go on
 * TUTTI_NOT_FOUND          NO_WORK
 */
TUTTI_API tutti_code tutti_wait(tutti_client *client, const char *const *works, size_t count,
                                uint32_t timeout_ms, tutti_work_status *ret_statuses,
                                tutti_error *err);

/* How they stand, without waiting. */
TUTTI_API tutti_code tutti_test(tutti_client *client, const char *const *works, size_t count,
                                tutti_work_status *ret_statuses, tutti_error *err);

/* What Sync found. */
typedef struct tutti_sync_result {
    uint64_t waited_count; /* ops that were running when the agent was asked */
    uint64_t failed_count; /* of these */
    tutti_error error;     /* the first one's; code TUTTI_OK = none failed */
} tutti_sync_result;

/*
 * Wait for all ops that the agent was given before, sync and async, whoever asked for them.
 * TUTTI_OK also when ops failed.
 *
 * [in]  group       only its ops; NULL = all
 * [in]  timeout_ms  0 = the agent's --op-timeout
 * [out] ret_result  NULL = not wanted, and then the first failure is returned
 */
TUTTI_API tutti_code tutti_sync(tutti_client *client, const char *group, uint32_t timeout_ms,
                                tutti_sync_result *ret_result, tutti_error *err);

/* ------------------------------------------------------------------ groups and ranks */

/* Groups: tutti/group.h, which this header brings along. */

typedef struct tutti_job_info {
    char name[TUTTI_NAME_MAX + 1];
    uint64_t id;
    uint32_t world_size;
    uint64_t epoch; /* 0 = the world was never complete yet */
    uint32_t alive_count;
    uint32_t lost_count;
    uint32_t group_count;
    uint64_t since_ms;
} tutti_job_info;

TUTTI_API tutti_code tutti_job_get(tutti_client *client, tutti_job_info *ret_info,
                                   tutti_error *err);

typedef enum tutti_rank_state {
    TUTTI_RANK_FREE = 1,
    TUTTI_RANK_WAITING = 2,
    TUTTI_RANK_ALIVE = 3,
    TUTTI_RANK_LOST = 4,
} tutti_rank_state;

typedef struct tutti_rank_info {
    uint32_t rank;
    tutti_rank_state state;
    uint64_t incarnation;
    uint64_t joined_epoch;
    uint64_t since_ms;
    char reason[256]; /* of a lost one */
    char host[128];
    uint32_t pid;
    char device[32];
    char version[32];
    char address[256]; /* the one to take from here: on its own host its Unix socket, if any */
} tutti_rank_info;

/* [in] ranks  1 to 1024; [out] ret_infos  as many, in that order */
TUTTI_API tutti_code tutti_ranks_get(tutti_client *client, const uint32_t *ranks, size_t count,
                                     tutti_rank_info *ret_infos, tutti_error *err);

/* ------------------------------------------------------------------ the key-value store */

/* Keys: 1 to 1024 bytes; values: up to 1 MiB; both any bytes. Versions count the store's changes.
 */

/* [out, owned] ret_value  and a NUL behind it; TUTTI_NOT_FOUND  NO_KEY */
TUTTI_API tutti_code tutti_kv_get(tutti_client *client, const void *key, size_t key_size,
                                  void **ret_value, size_t *ret_size, tutti_error *err);
TUTTI_API tutti_code tutti_kv_set(tutti_client *client, const void *key, size_t key_size,
                                  const void *value, size_t value_size, tutti_error *err);

/*
 * Store `value` if what is there equals `expected` (NULL = if there is nothing).
 * [out, owned] ret_value  what is there now; NULL = not wanted
 */
TUTTI_API tutti_code tutti_kv_compare_and_set(tutti_client *client, const void *key,
                                              size_t key_size, const void *expected,
                                              size_t expected_size, const void *value,
                                              size_t value_size, bool *ret_swapped,
                                              void **ret_value, size_t *ret_size, tutti_error *err);

/* A counter of decimal text that begins at 0. TUTTI_FAILED_PRECONDITION NOT_A_NUMBER */
TUTTI_API tutti_code tutti_kv_add(tutti_client *client, const void *key, size_t key_size,
                                  int64_t delta, int64_t *ret_value, tutti_error *err);
TUTTI_API tutti_code tutti_kv_delete(tutti_client *client, const void *key, size_t key_size,
                                     bool *ret_existed, tutti_error *err);

/* A key of the store. */
typedef struct tutti_kv_entry {
    const void *key;
    size_t key_size;
    const void *value;
    size_t value_size;
    uint64_t version;
    bool deleted; /* of a watch: the key is gone */
} tutti_kv_entry;

/* Borrowed until it returns; return false to stop. */
typedef bool (*tutti_kv_fn)(void *arg, const tutti_kv_entry *entry);

/* All keys that begin with a prefix, in order; TUTTI_OK also when on_entry stopped it. */
TUTTI_API tutti_code tutti_kv_list(tutti_client *client, const void *prefix, size_t prefix_size,
                                   tutti_kv_fn on_entry, void *arg, tutti_error *err);

/*
 * Wait until all keys exist. [in] timeout_ms  0 = the client's
 * TUTTI_DEADLINE_EXCEEDED  TIMEOUT: the text lists what is missing
 */
TUTTI_API tutti_code tutti_kv_wait(tutti_client *client, const void *const *keys,
                                   const size_t *key_sizes, size_t count, uint32_t timeout_ms,
                                   tutti_error *err);

/*
 * Every change from now on, until on_entry returns false or the time is up (0 = never): both are
 * TUTTI_OK. The first call has no key: the watch stands.
 *
 * TUTTI_DEADLINE_EXCEEDED   the time was up before the watch stood
 * TUTTI_RESOURCE_EXHAUSTED  SLOW_WATCHER: on_entry was too slow; read again, then watch again
 */
TUTTI_API tutti_code tutti_kv_watch(tutti_client *client, const void *prefix, size_t prefix_size,
                                    uint32_t timeout_ms, tutti_kv_fn on_entry, void *arg,
                                    tutti_error *err);

#ifdef __cplusplus
}
#endif

#include "tutti/group.h"
#include "tutti/init.h"
#include "tutti/list.h"
#include "tutti/membership.h"
#include "tutti/object.h"
#include "tutti/pipeline.h"
#include "tutti/store.h"

#endif
