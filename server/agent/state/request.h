/*
 * The request for an op, and its result, in structs that know nothing of protobuf.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_REQUEST_H
#define TUTTI_SERVER_AGENT_STATE_REQUEST_H

#include "coll/coll.h"
#include "rpc/server.h"
#include "server/agent/tensor/table.h"

#define AGENT_TRACERS_MAX 16 /* that one op names */
#define AGENT_META_MAX 16384 /* bytes of user_meta */
#define AGENT_WORK_SIZE (TUTTI_HANDLE_MAX + 1)

/* One result of a list. */
typedef struct agent_output {
    char handle[TUTTI_TABLE_HANDLE_SIZE]; /* "" = inline */
    bool has_spec;
    tutti_spec spec;
} agent_output;

/* One tensor argument of a list. */
typedef struct agent_input {
    const char *handle; /* NULL = inline */
    tutti_spec spec;    /* of an inline one */
} agent_input;

/* The result of an op. Borrowed while its answer is written. */
typedef struct agent_op_result {
    char handle[TUTTI_TABLE_HANDLE_SIZE]; /* "" = none, or inline */
    bool has_spec;
    tutti_spec spec;
    tutti_tensor *payload; /* [borrowed] the bytes of an inline result */
    uint64_t payload_bytes;
    uint32_t output_count; /* of a list, which has no `handle` and `spec` */
    const agent_output *outputs;
    tutti_bytes meta; /* what came with the tensor */
    uint64_t sequence;
    char work[AGENT_WORK_SIZE];
    uint64_t elapsed_us;
    uint32_t source; /* of a Recv */
    uint32_t source_global;
} agent_op_result;

/*
 * Writes the response of an op that succeeded: a function of the method's wire file. Any thread;
 * once, but for ops with tokens, whose answer may be repeated to further calls (op/answers.h).
 */
typedef void (*agent_answer_fn)(tutti_rpc_call *call, const agent_op_result *result);

/*
 * Options of a request beside the arguments of the collective. No pointers: the op keeps a copy for
 * its whole life.
 *
 */
typedef struct agent_op_options {
    bool root_global; /* args.root, args.peer are ranks of the job */
    bool has_block;   /* args.peer is the rank in our place, block_offset blocks further */
    int32_t block_offset;
    uint32_t block_count; /* of the group */
    int32_t axis;         /* as given; args.axis is found when the shape is known */
    int32_t concat_axis;
    bool inline_result; /* the answer has the result; else it is a tensor of the agent */
    bool async;         /* the call is answered when the op has its place in the order */
    uint32_t timeout_ms;
    uint64_t sequence;    /* that the op must get; 0 = any */
    uint64_t token;       /* of the caller, for calling again; 0 = none */
    uint64_t after_event; /* of events.h; 0 = none */
    uint64_t done_event;
    bool no_grad;
    bool local_grad;
    bool tell_refusal; /* of a send or receive: the other end hears of a refusal */
} agent_op_options;

/* A request for an op. Borrowed for agent_op_start, payload included. */
typedef struct agent_request {
    const char *group;    /* "" = world */
    tutti_coll_args args; /* as far as the request says; spec of an inline input or of `expect` */
    agent_op_options options;
    const char *input; /* a handle; NULL = none */
    bool inline_input; /* args.spec and the payload */
    tutti_rpc_message *payload;
    const char *output; /* a handle; "" = a new tensor */
    const char *device; /* where that new tensor is to be; NULL or "" = wherever */
    const char *result; /* the name of that new tensor; NULL = none */
    bool is_list;       /* what follows; args.coalesced and args.form say which */
    size_t input_count;
    agent_input *inputs; /* [owned] see agent_request_fini */
    size_t output_count;
    char *const *outputs; /* handles */
    size_t axis_count;
    const int32_t *axes; /* one for each input, or none: `axis` */
    tutti_spec *expects; /* [owned] see agent_request_fini: what the results must be */
    size_t expect_count;
    char *const *tracers; /* names: record the op on these */
    size_t tracer_count;
    tutti_error refused; /* code not OK: what the wire file has found wrong already */
} agent_request;

#endif
