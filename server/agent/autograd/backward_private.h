/*
 * Backward pass: one Backward, under way or waiting. All on the control loop.
 *
 * It takes a place in the queue of every group that its tape names, as an op that came now, and
 * runs its ops from there: what comes behind waits until it lets go. The gradient op of a record
 * runs when the gradient ops of all records that read its result are over, and those of later
 * records on the same line: a group, or messages between two ranks with one tag. So ranks that have
 * recorded ops of different groups in different orders do not wait for each other in a circle.
 *
 * When it fails, every group in which others go on counts one more op of this rank, a refused one:
 * that is how their Backwards hear of it.
 */
#ifndef TUTTI_SERVER_AGENT_AUTOGRAD_BACKWARD_PRIVATE_H
#define TUTTI_SERVER_AGENT_AUTOGRAD_BACKWARD_PRIVATE_H

#include "server/agent/autograd/backward.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/state/clients.h"
#include "server/agent/state/op.h"
#include "server/agent/tensor/device_copy.h"
#include "server/agent/tensor/table.h"

#define BACKWARDS_MAX 1024
#define GRAD_CHANNEL_SIZE 24

/* A gradient that is given: the pass adds it to what the tape has for `tensor`. */
typedef struct grad_in {
    agent_backward_pass *backward;
    uint64_t tensor;
    tutti_lock_set lock_set; /* of the gradient: shared until the backward pass is over */
    bool taken;
} grad_in;

/* A gradient that is wanted. `made`: it has an entry in the table, exclusively locked by the pass.
 * `found`: the entry has its tensor. */
typedef struct grad_out {
    uint64_t tensor;
    uint64_t gradient;       /* the new tensor */
    tutti_lock_set lock_set; /* of it */
    bool made;
    bool found;
    agent_backward_pass *backward;
    tutti_tensor *own;        /* [owned] what it will be, until it is in the table */
    agent_posted_move posted; /* ... while it is copied there */
} grad_out;

/*
 * The place of a pass in a group's queue. It is held from agent_backward_start on, and let go when
 * no node needs it any more. An op of the pass may run in the group only when the place is
 * `reached`. The struct is freed when slot is NULL and nothing of `left`, `messages`, `flying` is
 * left.
 *
 */
typedef struct grad_queue {
    tutti_list_node link; /* in backward->queues */
    agent_backward_pass *backward;
    agent_op *slot;     /* NULL = let go */
    agent_group *group; /* [borrowed] while it is held */
    char name[TUTTI_NAME_MAX + 1];
    bool reached;
    bool shared;       /* it has collectives, as far as is known before the start */
    bool told;         /* an op of ours has failed there: the others know */
    bool went_on;      /* an op of ours was begun there: what comes next follows from it */
    uint32_t left;     /* collective records whose gradient ops are not over */
    uint32_t messages; /* the same of sends and receives: they need no place */
    uint32_t flying;   /* ops */
} grad_queue;

/*
 * A record, as a part of the backward pass. It is ready at blockers == 0: the number of nodes that
 * read its result, and one for the later node of its channel. A node without a queue is a local
 * one. `agreed`: the agreement is over, and the op in flight is the gradient op.
 *
 */
typedef struct grad_node {
    tutti_map_node by_channel; /* the last one of its line, while nodes are made */
    unsigned char channel[GRAD_CHANNEL_SIZE];
    tutti_list_node ready; /* in backward->ready */
    agent_backward_pass *backward;
    grad_queue *queue; /* NULL = no communication */
    tutti_tape_record *record;
    struct grad_node *next; /* on the same line: goes after this one */
    uint32_t blockers;
    agent_op *op; /* in flight */
    bool agreed;
} grad_node;

/* The pass waits for an op that came before it: in op->waits, freed at the op's end. */
typedef struct backward_wait {
    struct backward_wait *next; /* of the same op */
    agent_backward_pass *backward;
} backward_wait;

/*
 * `flying` + `lock_sets_waiting` + `ops_waiting` + places held == 0 is the only state in which the
 * pass may end: each of them is a callback that points here.
 *
 */
struct agent_backward_pass {
    tutti_list_node link; /* in agent->backwards, in the order in which they came */
    tutti_agent *agent;
    tutti_rpc_call *call; /* [ref] NULL = async */
    agent_client *client;
    agent_gradients_fn answer;
    struct agent_work *work;
    tutti_tape *tape; /* [ref] */
    grad_in *grads_in;
    size_t grad_in_count;
    grad_out *grads_out;
    size_t grad_out_count;
    uint32_t lock_sets_waiting;
    uint32_t ops_waiting; /* that came before, and matter to the tape */
    tutti_list_node queues;
    grad_node *nodes;
    size_t node_count;
    size_t nodes_left;
    uint32_t flying; /* ops, and what is fetched from a device */
    uint32_t adding; /* gradients that were given and are not summed up yet */
    bool giving;     /* all is worked out: what is wanted gets memory of its own */
    tutti_list_node ready;
    tutti_rpc_task task;
    bool posted;
    bool keep;
    bool started;
    bool failed;
    bool over;
    bool call_over;
    tutti_error err;
    agent_op as_op; /* among the agent's ops, for a Sync and for its work: no group, no tensors */
    uint64_t deadline_ns;
};

/* backward.c */
void agent_backward_post(agent_backward_pass *backward); /* look at it again, soon */
/* Fail the pass; the first error counts. [in] queue  its group has heard of it; NULL = none has */
void agent_backward_fail(agent_backward_pass *backward, const tutti_error *err, grad_queue *queue);

/* backward_queue.c */
/* An op of our own, without a call; counted, not yet in any queue. NULL: no memory. */
agent_op *agent_backward_op(agent_backward_pass *backward, agent_group *group,
                            void (*on_end)(agent_op *op), void *owner);
tutti_code agent_backward_open_queues(agent_backward_pass *backward, tutti_error *err);

/* backward_queue.c */
/* Find the ops that came before, are not over and matter to its tape. */
tutti_code agent_backward_find_earlier(agent_backward_pass *backward, tutti_error *err);
bool agent_backward_must_wait(
    const agent_backward_pass *backward); /* for those, or Backwards that came before */

/* backward_queue.c */
/*
 * The pass's place in that group, made if there is none. `shared`: collectives of the tape ran
 * there. NULL: no memory
 */
grad_queue *agent_backward_find_queue(agent_backward_pass *backward, const char *group, bool shared,
                                      tutti_error *err);
void agent_backward_release_slot(grad_queue *queue);
void agent_backward_release_idle_slots(
    agent_backward_pass *backward); /* let go of lines that are not needed any more */
/* It has failed: refuse one op in each group whose other ranks do not know yet, and let go of all
 * places in which nothing flies. */
void agent_backward_fail_queues(agent_backward_pass *backward);

/* backward_graph.c */
tutti_code agent_backward_make_nodes(agent_backward_pass *backward, tutti_error *err);
void agent_backward_advance(agent_backward_pass *backward); /* start what may start */
void agent_backward_free_nodes(agent_backward_pass *backward);
void agent_backward_node_over(grad_node *node);

/* backward_op.c: the ops of one node */
tutti_code agent_backward_node_start(grad_node *node, tutti_error *err);

/* backward_sum.c: what a Backward works out by itself. [moved] gradient, also on failure. */
/*
 * A node's gradient: what its gradient op made or, of a local node, the gradient of its result. It
 * is worked out and added to the node's input; then the node is over, perhaps after copies.
 */
tutti_code agent_backward_take_gradient(grad_node *node, tutti_tensor *gradient, tutti_error *err);
tutti_code agent_backward_take_given(agent_backward_pass *backward, tutti_tape_var *var,
                                     tutti_tensor *gradient, tutti_error *err);

/* backward_args.c: what a Backward takes and gives */
tutti_code agent_backward_take(agent_backward_pass *backward, const agent_backward *request,
                               tutti_error *err);
tutti_code agent_backward_take_grads_in(agent_backward_pass *backward, tutti_error *err);
tutti_code agent_backward_own(agent_backward_pass *backward, tutti_error *err); /* its copies fly */
void agent_backward_write_grads(agent_backward_pass *backward);
void agent_backward_drop_args(agent_backward_pass *backward);
/* [out, owned] an array of want_count; NULL: no memory */
agent_gradient *agent_backward_describe(const agent_backward_pass *backward);

#endif
