/* Private to server/agent: what the agent is made of, and which file does what. */
#ifndef TUTTI_SERVER_AGENT_STATE_STATE_H
#define TUTTI_SERVER_AGENT_STATE_STATE_H

#include "coll/choose/choose.h"
#include "server/agent/agent.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/record/flight.h"
#include "server/agent/record/metrics.h"
#include "server/agent/state/clients.h"
#include "server/agent/tensor/device.h"

#define AGENT_TRACERS_MAX 16 /* that one op names */
#define AGENT_META_MAX 16384 /* bytes of user_meta */
#define AGENT_WORK_SIZE (TUTTI_HANDLE_MAX + 1)
#define AGENT_WAIT_MAX 1024 /* works of one Wait or Test */

typedef struct agent_op agent_op;

/* A group as this agent knows it. Control loop. */
typedef struct agent_group {
    tutti_map_node by_name;
    char name[TUTTI_NAME_MAX + 1];
    tutti_agent *agent;
    tutti_coll_group *coll; /* NULL until the coordinator has answered */
    uint64_t id;
    uint64_t epoch;
    tutti_link queue;  /* ops in the order they came, the first one next */
    uint64_t sequence; /* of the last op that came, as it will be numbered */
    uint32_t holds;    /* Backwards in the queue: nobody knows yet how many ops they will make */
    bool asking;       /* the first time; a group that is open may be asked for again beside this */
    uint64_t op_count; /* all that came, sends and receives too */
    uint64_t p2p_count;
    uint64_t entered;          /* the number of the last op that the engine was given */
    tutti_link running;        /* ops that the engine has, the oldest first */
    tutti_coll_args last_args; /* for its words: of the op that ended last, ... */
    uint64_t last_sequence;    /* ... its number, 0 = a send or receive, ... */
    uint64_t last_ns;          /* ... and when; 0 = none did */
    uint64_t changes;          /* of what the coordinator is told, ... */
    uint64_t told;             /* ... and how many it was told */
    bool pumping;
    tutti_space *place;  /* the GPU on which its collectives run here; NULL = none yet, ... */
    uint64_t placed;     /* ... and in which epoch */
    bool broken;         /* a member is gone, as far as we know; its return is news soon */
    tutti_timer pause;   /* until the first op in line is let go */
    uint64_t next_epoch; /* of an elastic world: changes to that when its ops have ended, ... */
    uint64_t change_ns;  /* ... or at this time; 0 = does not change */
} agent_group;

enum agent_state {
    AGENT_JOINING,
    AGENT_JOINED,
    AGENT_LEAVING,
};

/* answers.h: answers of ops with tokens */
typedef struct agent_answers {
    tutti_map by_key;
    tutti_link kept; /* that can be repeated, the oldest first */
    uint64_t bytes;
    tutti_timer expiry;
} agent_answers;

struct tutti_agent {
    const tutti_agent_options *options;
    const tutti_rpc_server_options *server_options;
    tutti_rpc_loop *control;
    tutti_rpc_loop *bulk;
    tutti_rpc_server *server;
    tutti_rpc_channel *coordinator;
    tutti_coll_engine *engine;
    tutti_space *space; /* host memory: there is some wherever tensors live */
    agent_devices devices;
    tutti_choices *choices;           /* which algorithms are taken */
    const tutti_choice *first_choice; /* of the options */
    tutti_table *table;
    uint64_t incarnation;
    char host[128];
    char host_id[128];
    void (*on_joined)(void *arg, uint32_t rank); /* NULL = nobody asks */
    void *on_joined_arg;

    enum agent_state state;
    uint32_t rank;
    uint32_t world_size;
    bool elastic;        /* world is whoever is there */
    bool broken;         /* some group is */
    uint64_t settled_ns; /* when the others know us: a fresh process's first ops wait for that */
    uint64_t epoch;
    uint64_t job_id;

    tutti_map groups; /* by name */
    agent_clients clients;
    agent_answers answers;
    uint64_t ops_live;
    uint64_t ops_last; /* the number of the op that came last */
    tutti_link ops;    /* those that live, in the order they came */
    tutti_link syncs;  /* calls that wait for them */
    tutti_tapes *tapes;
    tutti_link walks; /* Backwards, as they came */
    tutti_link asks;
    char advertised[TUTTI_ADDRESSES_MAX][TUTTI_ADDRESS_MAX];
    size_t advertised_count;
    struct agent_works *works;
    struct agent_member *member;
    uint64_t progress_wanted; /* the question that the next heartbeat answers; 0 = none */
    agent_flight *flight;
    struct agent_dump *dump;
    struct tutti_share *share; /* NULL = off */
    tutti_rpc_task gone_task;  /* memory of a tensor of its own has gone */
    atomic_bool gone_posted;
    atomic_uint_fast64_t calls;       /* uploads, downloads and gets in flight */
    struct agent_uploads *uploads;    /* those in parts: upload_parts.c. Bulk loop */
    atomic_uint_fast64_t early_bytes; /* that uploads keep until it is their turn: upload.c */

    tutti_rpc_task start_task;
    tutti_rpc_task stop_task;
    tutti_rpc_task end_task;
    tutti_rpc_task hurry_task;
    atomic_uint stops; /* how often it was told to stop */
    bool draining;     /* it leaves: no op begins any more */
    uint32_t untold;   /* ... and that many ways of telling the others are under way */
    tutti_rpc_task told_task;
    tutti_timer leave_timer; /* until the second phase */
    tutti_timer trim_timer;  /* when free memory goes back: trim.c */
    bool failed;
    agent_numbers numbers;
    bool in_session; /* the coordinator hears us */
    tutti_error why; /* failed */
    void (*on_end)(void *arg, const tutti_error *err);
    void *on_end_arg;
};

const char *agent_job(const tutti_agent *agent);
/* We have joined, or are about to leave: health says so. */
void agent_say_serving(tutti_agent *agent);
/* May an op begin? FAILED_PRECONDITION NOT_JOINED, UNAVAILABLE STOPPING */
tutti_code agent_check_open(const tutti_agent *agent, tutti_error *err);
/* An op has ended: perhaps the last one that we waited for. */
void agent_stop_look(tutti_agent *agent);

/* Say in a claim who calls, before the first entry is made for him. access.c */
tutti_code agent_own_claim(tutti_claim *claim, const tutti_rpc_call *call, tutti_error *err);

/* Where clients reach it, borrowed for the agent's life; how many. */
size_t agent_addresses(tutti_agent *agent, char *ret_addresses[TUTTI_ADDRESSES_MAX]);

/* The agent ends because of this. Control loop. */
void agent_give_up(tutti_agent *agent, const tutti_error *err);

/* ------------------------------------------------------------------ op.c: calls that become ops */

/* One result of a list, or a tensor argument of one: by handle, or inline. */
typedef struct agent_output {
    char handle[TUTTI_TABLE_HANDLE_SIZE]; /* "" = inline */
    bool has_spec;
    tutti_spec spec;
} agent_output;

typedef struct agent_input {
    const char *handle; /* NULL = inline */
    tutti_spec spec;    /* of an inline one */
} agent_input;

/* What an op made. */
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

/* Says how it went to the caller: written by the wire file of the method. Any thread, once. */
typedef void (*agent_answer_fn)(tutti_rpc_call *call, const agent_op_result *result);

/* What a caller asks. Borrowed for agent_op_start, payload included. */
typedef struct agent_request {
    const char *group;    /* "" = world */
    tutti_coll_args args; /* as far as the request says; spec of an inline input or of `expect` */
    bool root_global;     /* args.root, args.peer are ranks of the job */
    bool has_block;       /* args.peer is the rank in our place, block_offset blocks further */
    int32_t block_offset;
    uint32_t block_count; /* of the group */
    int32_t axis;         /* as given; args.axis is found when the shape is known */
    int32_t concat_axis;
    const char *input; /* a handle; NULL = none */
    bool inline_input; /* args.spec and the payload */
    tutti_rpc_message *payload;
    const char *output; /* a handle; "" = a new tensor */
    bool inline_result;
    bool async;
    uint32_t timeout_ms;
    uint64_t sequence; /* expected; 0 = any */
    uint64_t token;    /* of the caller, for calling again; 0 = none */
    bool is_list;      /* what follows; args.coalesced and args.form say which */
    size_t input_count;
    agent_input *inputs; /* [owned] see agent_request_fini */
    size_t output_count;
    char *const *outputs; /* handles */
    size_t axis_count;
    const int32_t *axes;  /* one for each input, or none: `axis` */
    char *const *tracers; /* names: record the op on these */
    size_t tracer_count;
    bool no_grad;
    bool local_grad;
    tutti_error refused; /* code not OK: what the wire file has found wrong already */
} agent_request;

void agent_op_start(tutti_agent *agent, tutti_rpc_call *call, agent_request *request,
                    agent_answer_fn answer);

typedef struct agent_list agent_list; /* list.h */

/* ------------------------------------------------------------------ group.c */

struct agent_op {
    tutti_coll_op op;     /* the engine's */
    tutti_coll_args said; /* for its words: those of `op` are the engine's once it runs */
    tutti_agent *agent;
    agent_group *group;   /* NULL: it runs, and its group is gone */
    tutti_link link;      /* in the group's queue, then among those that run */
    tutti_link live;      /* in the agent's ops */
    uint64_t number;      /* in the order they came to this agent */
    tutti_rpc_call *call; /* [ref] */
    agent_client *client; /* whose; NULL = of a walk */
    agent_answer_fn answer;
    struct agent_kept *kept_answer; /* answers.h; NULL = none */
    tutti_claim claim;
    tutti_use *in;  /* of the claim; NULL = none */
    tutti_use *out; /* may be `in` */
    tutti_tensor *inline_in;
    tutti_tensor *inline_out;
    agent_list *list;      /* [owned] NULL = one tensor in, one out */
    agent_output *outputs; /* [owned] of a list: what the answer told */
    uint32_t output_count;
    bool list_is_new;
    unsigned char *meta; /* [owned] args.meta points here, then: what has come */
    size_t meta_size;
    bool out_is_new;
    bool out_inline;
    bool async;
    bool global;    /* root and peer are ranks of the job until the group is known */
    bool has_block; /* the peer is to be found by these */
    int32_t block_offset;
    uint32_t block_count;
    int32_t axis; /* as given, until the shape is known */
    int32_t concat_axis;
    bool no_result;                   /* this rank gets none: it is not the root */
    tutti_space *space;               /* where new results go */
    tutti_spec flat;                  /* args.flat points here */
    int64_t *splits;                  /* [owned] those of args point here */
    uint32_t *to;                     /* [owned] args.to points here */
    char trace[TUTTI_RPC_TRACE_SIZE]; /* the caller's; "" = none */
    bool ready;                       /* the claim is granted */
    bool posted;
    bool cancelled;
    bool failed;
    bool over;                            /* nothing of it is used any more, ... */
    bool call_over;                       /* ... nor of its call: both on the control loop */
    char handle[TUTTI_TABLE_HANDLE_SIZE]; /* of a new result that the answer tells; "" = none */
    tutti_error err;                      /* refused, or failed */
    uint64_t expect;                      /* the number the caller asked for */
    uint64_t sequence;                    /* the number it will have */
    uint64_t came_ns;
    uint64_t ended_ns;
    uint64_t record_id;     /* of its entry in the flight recorder, ... */
    bool recorded;          /* ... when it has one */
    uint32_t source_global; /* of a Recv: the sender's rank in the job */
    uint64_t deadline_ns;
    struct agent_work *work;
    tutti_rpc_task ended; /* engine -> control loop */
    tutti_timer overdue;  /* its time is up while it is in line */
    bool answered;        /* ... and its caller was told */

    bool no_grad;
    bool local_grad;
    atomic_bool told; /* its caller knows of the end */
    uint32_t tape_count;
    tutti_tape **tapes;         /* [owned, refs] that the caller has named, until it is launched */
    tutti_tape_record *records; /* of this op, one a tape */
    tutti_coll_kept *kept;      /* [owned] of those on a device: op.kept points here */
    struct walk_wait *waits;    /* [owned] Backwards that wait for its end */
    struct agent_late *late;    /* [owned] of a receiver: it is recorded when the root says so */

    /* Of a Backward: an op without a call, or a place in the queue (`holds`). */
    void (*on_end)(agent_op *op); /* control loop; inline_out may be taken */
    void *owner;
    bool holds;
    const tutti_spec *view; /* what inline_in counts as; NULL = as it is */
};

/* The group of that name, made and asked for when it is not known yet. NULL: no memory. */
agent_group *agent_group_of(tutti_agent *agent, const char *name, tutti_error *err);
void agent_group_add(agent_group *group, agent_op *op);
void agent_group_pump(agent_group *group);
void agent_group_hold(agent_op *hold);   /* a Backward takes its place in the queue */
void agent_group_unhold(agent_op *hold); /* its place is over, and not in the queue any more */
/* The number of the last op of which, and of all before it, nothing runs any more. */
uint64_t agent_group_left(const agent_group *group);
void agent_groups_renew(tutti_agent *agent, uint32_t rank, uint64_t epoch);
void agent_group_deleted(tutti_agent *agent, const char *name);
void agent_groups_free(tutti_agent *agent);
/* The coordinator has answered: ranks, or why not. */
void agent_group_known(agent_group *group, uint64_t id, uint64_t epoch, const uint32_t *ranks,
                       uint32_t count);
void agent_group_unknown(agent_group *group, const tutti_error *err);
/* Until when do ops in line wait? 0: the time of all is up. Those whose time is up keep their place
 * meanwhile: the others may have counted them. */
uint64_t agent_group_waits_until(const agent_group *group);
/* After a time without the coordinator: are our groups still what they were? */
void agent_groups_check(tutti_agent *agent);

/* op.c, create.c, resolve.c and post.c, for each other and for group.c */
/* NULL: no memory. claim.on_ready is the caller's to set. */
agent_op *agent_op_new(tutti_agent *agent, tutti_rpc_call *call, const agent_request *request,
                       agent_answer_fn answer);
tutti_code agent_op_take(agent_op *op, agent_request *request, tutti_error *err);
void agent_op_launch(agent_op *op); /* its turn has come */
void agent_op_finish(agent_op *op); /* control loop: it is over in every sense */
void agent_op_end_early(agent_op *op, const tutti_error *err); /* it never becomes an op */
void agent_op_answer_async(agent_op *op); /* it has its place: handles and work id are good */
bool agent_op_is_p2p(const agent_op *op);
/* deadline.c: one that may have to wait in line; its caller hears in time, its place stays. */
void agent_op_watch(agent_op *op);
void agent_op_unwatch(agent_op *op);

/* Can the output hold the result? DTYPE_MISMATCH, OUT_SHAPE */
tutti_code agent_check_output(const tutti_spec *output, const tutti_spec *result, tutti_error *err);
/* Does a result of that many bytes fit into a message? INLINE_LIMIT */
tutti_code agent_check_inline(uint64_t bytes, tutti_error *err);

/* Axes as given become those of the spec, which is known; for scatter they stay. */
tutti_code agent_take_axes(tutti_coll_args *args, int32_t axis, int32_t concat_axis,
                           tutti_error *err);
tutti_code agent_take_list_axis(const tutti_coll_args *args, int32_t axis,
                                tutti_coll_tensor *tensor, tutti_error *err);
void agent_op_on_done(tutti_coll_op *engine_op, const tutti_error *err); /* engine's thread */
void agent_op_on_released(tutti_coll_op *engine_op);                     /* engine's thread */

/* ------------------------------------------------------------------ works.c: async ops */

typedef struct agent_work agent_work;

/* How a work stands; what is behind pointers is borrowed until the next call. */
typedef struct agent_work_status {
    char work[AGENT_WORK_SIZE];
    bool done;
    bool failed;
    tutti_error err;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    bool has_spec;
    tutti_spec spec;
    uint32_t output_count; /* of a list */
    agent_output *outputs;
    tutti_bytes meta;
    uint32_t source;
    uint32_t source_global;
    uint64_t elapsed_us;
} agent_work_status;

tutti_code agent_works_open(tutti_agent *agent, tutti_error *err);
void agent_works_close(tutti_agent *agent);
tutti_code agent_work_new(tutti_agent *agent, agent_work **ret_work, tutti_error *err);
void agent_work_name(const agent_work *work, char ret_name[AGENT_WORK_SIZE]);
void agent_work_done(agent_work *work, agent_op *op); /* takes `outputs` and `meta` of the op */
uint64_t agent_works_count(const tutti_agent *agent);

/* Writes the answer of a Wait or Test: by the wire file. */
typedef void (*agent_statuses_fn)(tutti_rpc_call *call, const agent_work_status *statuses,
                                  size_t count);
/* Answers the call: at once, when all are done, or when time is up. timeout_ms as in the proto. */
void agent_works_wait(tutti_agent *agent, tutti_rpc_call *call, char *const *works, size_t count,
                      uint32_t timeout_ms, agent_statuses_fn answer);
void agent_works_test(tutti_agent *agent, tutti_rpc_call *call, char *const *works, size_t count,
                      agent_statuses_fn answer);
/* End all waits: the agent drains. */
void agent_works_drain(tutti_agent *agent);

/* ------------------------------------------------------------------ sync.c: waiting for all ops */

/* What became of the ops that ran when a Sync came. */
typedef struct agent_sync_result {
    uint64_t waited;
    uint64_t failed;
    tutti_error err; /* the first one, when some failed */
} agent_sync_result;

/* Writes the answer of a Sync: by the wire file. */
typedef void (*agent_sync_fn)(tutti_rpc_call *call, const agent_sync_result *result);
/* Answers the call: when all ops that live now have ended, or when time is up. group "" = all */
void agent_sync(tutti_agent *agent, tutti_rpc_call *call, const char *group, uint32_t timeout_ms,
                agent_sync_fn answer);
/* An op has ended; it is still in the agent's ops. */
void agent_sync_op_ended(tutti_agent *agent, const agent_op *op);
void agent_sync_drain(tutti_agent *agent);

/* ------------------------------------------------------------------ metrics.c: metrics */

/* An op is over; its lists are still there. Control loop. */
void agent_note_op(agent_op *op);

/* ------------------------------------------------------------------ the services */

void agent_add_tensors(tutti_agent *agent);     /* tensors_pb.c */
void agent_add_collectives(tutti_agent *agent); /* collectives_pb.c */
void agent_add_diagnostics(tutti_agent *agent); /* diagnostics_pb.c */
void agent_add_commands(tutti_agent *agent);    /* commands_pb.c */
void agent_add_tracers(tutti_agent *agent);     /* tracers_pb.c */

#endif
