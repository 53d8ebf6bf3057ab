/*
 * A fake agent, and as much of a coordinator as clients ask: answers from a script, in this
 * process, over real gRPC. It keeps one tensor's bytes and counts what it was asked.
 */
#ifndef TUTTI_TESTS_FAKE_AGENT_H
#define TUTTI_TESTS_FAKE_AGENT_H

#include "support/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "rpc/server.h"
#include "tutti/tutti.h"

#define FAKE_NAMES_MAX 32

/* How a transfer goes wrong. */
typedef enum fake_mischief {
    FAKE_WELL = 0,
    FAKE_STALL,        /* after `mischief_chunks` messages nothing more is read or written */
    FAKE_BREAK_OFF,    /* the stream fails with `error` */
    FAKE_END_EARLY,    /* a download ends well, with bytes missing */
    FAKE_TOO_MUCH,     /* a download sends more bytes than the tensor has */
    FAKE_WRONG_OFFSET, /* a download skips a byte */
    FAKE_WRONG_SPEC,   /* a tensor of 17 dimensions */
    FAKE_NO_HANDLE,    /* a response without a handle */
    FAKE_LONG_HANDLE,  /* one of 64 bytes */
    FAKE_COUNT_LESS,   /* an upload answers that a byte is missing */
    FAKE_BREAK_PART,   /* an upload's part up to byte `mischief_chunks` fails with `error` */
} fake_mischief;

/* What is wrong with a stream of commands. */
typedef enum fake_run {
    FAKE_RUN_WELL = 0,
    FAKE_RUN_REFUSE,     /* each ends with `error` at once */
    FAKE_RUN_END_BEFORE, /* each ends with `error` when its second command comes; nothing is
                            answered */
    FAKE_RUN_END_AFTER,  /* each ends well behind its first answer */
    FAKE_RUN_OTHER_ID,   /* answers are to other commands */
    FAKE_RUN_NOTHING,    /* answers say nothing */
    FAKE_RUN_OTHER_CALL, /* ... are results of another call */
    FAKE_RUN_ERROR,      /* answers are `error` */
} fake_run;

/* Written by the test while no call is under way. */
typedef struct fake_script {
    unsigned join_after;     /* DescribeAgent calls that answer "not yet" */
    uint32_t rank;           /* of the agent, in a world of 4 */
    bool elastic;            /* DescribeAgent says so */
    const char *fail_method; /* fails with `error`; "" or NULL = none */
    const char *park_method; /* unary: answered only when it is cancelled */
    tutti_error error;
    fake_mischief mischief;
    unsigned mischief_chunks;
    tutti_spec spec; /* of the stored tensor, and of results */
    bool not_serving;
    uint32_t streams_max;  /* DescribeAgent says so; then uploads in parts get no answer */
    unsigned list_count;   /* tensors of List, in pages of 3 */
    uint32_t commands_max; /* DescribeAgent says so */
    fake_run run;
    unsigned session_workers; /* of a session, at most 8 */
    unsigned session_hold; /* answers wait until more than so many are there, the last goes first */
    int session_fail;      /* commands of this kind fail with `error`, on worker 1 */
    int session_end;       /* ... end the stream with `error` */
    bool session_stranger; /* answers are to commands that were not given */
    bool session_disorder; /* workers are numbered from 1 */
} fake_script;

/* What a command of a session has asked for. */
typedef struct fake_command {
    int which; /* its number in the oneof */
    uint32_t src;
    uint32_t dst;
    uint32_t into;
    bool in_group;
    tutti_reduce reduce;
    size_t worker_count; /* of a call: arguments */
    uint32_t worker;
    char name[64];
} fake_command;

typedef struct fake_agent {
    fake_script script;
    tutti_rpc_server *server;
    tutti_rpc_server_options options;
    tutti_rpc_loop *loop;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopped;

    /* What has been stored and seen; read by the test when its calls are over. */
    unsigned char *bytes;
    size_t size;
    atomic_uint stream_count; /* open ones */
    atomic_uint describe_count;
    atomic_uint put_count;
    atomic_uint upload_count;
    atomic_uint chunk_count;
    atomic_uint get_count;
    atomic_uint download_count;
    atomic_uint op_count;
    atomic_uint delete_count;
    atomic_uint run_count;     /* streams of commands */
    atomic_uint run_open;      /* of them: open now */
    atomic_uint run_most;      /* and at most at once */
    atomic_uint run_cancelled; /* ... that ended without a word of the client */
    atomic_uint command_count;
    char deleted[FAKE_NAMES_MAX][128];
    char made[FAKE_NAMES_MAX][128]; /* names given to new tensors */
    atomic_uint made_count;
    char op_input[128];
    char op_output[128];
    char op_group[128];
    bool op_inline;
    bool op_inline_result;
    bool op_async;
    int op_root;
    bool op_root_global;
    bool op_has_peer;
    tutti_reduce op_reduce; /* from here on: of the ops of fake_parts_pb.c */
    double op_factor;
    int op_axis;
    int op_concat_axis;
    tutti_form op_form;
    int64_t op_dims[TUTTI_DIMS_MAX];
    size_t op_dim_count;
    int32_t op_to[8];
    size_t op_to_count;
    uint32_t op_timeout_ms;
    uint64_t op_sequence;
    atomic_uint drive_count; /* commands of sessions, without the opening */
    fake_command drives[FAKE_NAMES_MAX];
    char called[256];         /* the last call of a function, or value set */
    uint64_t group_tokens[2]; /* of CreateGroup or CreateSubgroups: the first gets no answer */
    unsigned group_calls;
    uint64_t call_left_ms; /* of the last op's or wait's gRPC deadline; 0 = none */
} fake_agent;

/* Serve on 127.0.0.1:0, or `listen`. */
void fake_agent_start(fake_agent *self, const char *listen);
void fake_agent_stop(fake_agent *self);
const char *fake_agent_address(const fake_agent *self);

/* Wait until no stream is open: one that a client gave up ends here a little later. */
void fake_agent_settle(fake_agent *self);

/* fake_pb.c */
void fake_agent_add_services(fake_agent *self);

#endif
