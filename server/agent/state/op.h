/*
 * An op, from its call to the end of all that it uses.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_OP_H
#define TUTTI_SERVER_AGENT_STATE_OP_H

#include <assert.h>

#include "server/agent/agent.h"
#include "server/agent/state/clients.h"
#include "server/agent/state/events.h"
#include "server/agent/state/request.h"
#include "server/agent/state/types.h"
#include "server/agent/tensor/table.h"

/*
 * The tensors of an op that takes or makes a list. Arrays in, in_locks and axes have in_count
 * elements; out (NULL until the shapes are known) and out_locks have out_count. Locks point into
 * op->lock_set or `made`. The list belongs to whichever thread the op belongs to (agent_op_state).
 *
 */
struct agent_list {
    uint32_t in_count;
    tutti_coll_tensor *in;
    tutti_lock **in_locks;   /* NULL: inline */
    int32_t *axes;           /* as given */
    tutti_tensor *in_memory; /* of the inline ones */
    uint32_t out_count;
    tutti_coll_tensor *out;
    tutti_lock **out_locks; /* NULL: inline, or the input stands for it */
    tutti_tensor *out_memory;
    uint32_t given_count; /* outputs that the caller named: the first uses of out_uses */
    bool out_is_new;
    tutti_lock_set made; /* results that came to be when their number was known */
};

/*
 * How far an op is. It only moves forward, on the control loop, by agent_op_move:
 *
 *   NEW     made of a request; its lock set is not asked for yet
 *   QUEUED  in its group's queue, or with the backward pass that made it. Its lock set may be
 *           granted (`ready`) or not. When it has failed here (refused, its time is up, its caller
 *           is gone), it keeps its place: the other ranks may have counted it
 *   POSTED  the engine has it. agent_op_on_done says its end, on the thread that runs the engine:
 *           `failed`, `err` and the results belong to that thread until `ended` is posted
 *   OVER    nothing of it is used any more; it is freed when its call is over, too
 *
 * QUEUED may be skipped by an op that a backward pass posts itself, POSTED by one that is refused.
 */
typedef enum agent_op_state {
    AGENT_OP_NEW,
    AGENT_OP_QUEUED,
    AGENT_OP_POSTED,
    AGENT_OP_OVER,
} agent_op_state;

/*
 * Fields without a word on threads belong to the control loop. `op`, `failed`, `err`, `ended_ns`,
 * inline_out, `outputs`, `launched` and meta are the engine's thread's while the op is POSTED.
 */
struct agent_op {
    tutti_coll_op op;     /* the engine's */
    tutti_coll_args said; /* for its words: those of `op` are the engine's once it runs */
    tutti_agent *agent;
    agent_group *group; /* NULL: it runs, and its group is gone; or it is a Backward */
    char former_group[TUTTI_NAME_MAX + 1]; /* the name of the group that is gone; "" = none is */
    tutti_list_node link;                  /* in the group's queue, then among those that run */
    tutti_list_node live;                  /* in the agent's ops */
    uint64_t number;                       /* in the order they came to this agent */
    tutti_rpc_call *call;                  /* [ref] */
    agent_client *client;                  /* whose; NULL = of a backward pass */
    uint64_t came_ns;                      /* when its client came; 0 = of a backward pass */
    agent_answer_fn answer;
    struct agent_kept *kept_answer; /* answers.h; NULL = none */
    tutti_lock_set lock_set;
    tutti_lock *in;  /* of the lock set; NULL = none */
    tutti_lock *out; /* may be `in` */
    tutti_tensor *inline_in;
    tutti_tensor *inline_out;
    agent_list *list;      /* [owned] NULL = one tensor in, one out */
    agent_output *outputs; /* [owned] of a list: what the answer told */
    uint32_t output_count;
    bool list_is_new;
    unsigned char *meta; /* [owned] args.meta points here, then: what has come */
    size_t meta_size;
    agent_op_options options; /* as the caller gave them */
    bool out_inline; /* the result goes into the answer: asked for, or nobody can name it */
    bool out_is_new;
    bool out_is_named;                /* ... by the caller: a root gets a tensor of its own, too */
    bool no_result;                   /* this rank gets none: it is not the root */
    tutti_space *space;               /* where new results go */
    tutti_space *wanted;              /* the caller wants them there; NULL = wherever */
    tutti_spec flat;                  /* args.flat points here */
    int64_t *splits;                  /* [owned] those of args point here */
    uint32_t *to;                     /* [owned] args.to points here */
    tutti_spec *expects;              /* [owned] what the results must be */
    uint32_t expect_count;            /* 0 = anything */
    char trace[TUTTI_RPC_TRACE_SIZE]; /* the caller's; "" = none */
    agent_op_state state;             /* control loop */
    bool ready;                       /* the lock set is granted; control loop */
    bool failed;                      /* `err` says why; see above */
    bool call_over;                   /* nothing of the call is used any more; control loop */
    char handle[TUTTI_TABLE_HANDLE_SIZE]; /* of a new result that the answer tells; "" = none */
    tutti_error err;                      /* refused, or failed */
    uint64_t expect;                      /* the number the caller asked for */
    uint64_t sequence;                    /* the number it will have */
    uint64_t enqueued_ns;
    uint64_t ended_ns;
    uint64_t record_id;     /* of its entry in the flight recorder, ... */
    bool recorded;          /* ... when it has one */
    uint32_t source_global; /* of a Recv: the sender's rank in the job */
    uint64_t deadline_ns;
    struct agent_work *work;
    tutti_rpc_task ended; /* engine -> control loop */
    agent_event *after;   /* [ref] the op waits for it on its GPU; NULL = none */
    agent_event *done;    /* [ref] is recorded behind the op, which is answered then; NULL = none */
    tutti_coll_events events;   /* the same for the engine: op.events points here */
    bool launched;              /* `done` is recorded, or need not be; the engine's thread */
    tutti_rpc_task launch_told; /* engine -> control loop, before `ended` */
    tutti_timer overdue;        /* its time is up while it is in line */
    bool answered;              /* ... and its caller was told */

    atomic_bool told; /* its caller knows of the end */
    uint32_t tape_count;
    struct tutti_tape **tapes; /* [owned, refs] that the caller has named, until it is launched */
    struct tutti_tape_record *records; /* of this op, one a tape */
    tutti_coll_kept *kept;             /* [owned] of those on a device: op.kept points here */
    struct backward_wait *waits;       /* [owned] Backwards that wait for its end */
    struct agent_late *late; /* [owned] of a receiver: it is recorded when the root says so */

    /* Of a Backward: an op without a call, or (`barriers`) a place in the queue. */
    void (*on_end)(agent_op *op); /* control loop; inline_out may be taken */
    void *owner;
    bool barriers;
    const tutti_spec *view; /* what inline_in counts as; NULL = as it is */
};

/* Has the caller of an async op its answer, with the handles of the results? Control loop. */
static inline bool
agent_op_is_answered_early(const agent_op *op)
{
    return op->options.async && op->call == NULL;
}

static inline void
agent_op_move(agent_op *op, agent_op_state state)
{
    assert(state > op->state);
    op->state = state;
}

static inline bool
agent_op_is_p2p(const agent_op *op)
{
    return op->op.args.kind == TUTTI_COLL_SEND || op->op.args.kind == TUTTI_COLL_RECV;
}

#endif
