/*
 * Walk: one Backward, under way or waiting. All on the control loop.
 *
 * It takes a place in the queue of every group that its tape names, as an op that came now, and
 * runs its ops from there: what comes behind waits until it lets go. The dual of a record runs when
 * the duals of all records that read its result are over, and those of later records on the same
 * line: a group, or messages between two ranks with one tag. So ranks that have recorded ops of
 * different groups in different orders do not wait for each other in a circle.
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

#define WALKS_MAX 1024
#define WALK_CHANNEL_SIZE 24

/* A gradient that is given. */
typedef struct walk_seed {
    agent_walk *walk;
    uint64_t tensor;
    tutti_claim claim; /* of the gradient: shared until the walk is over */
    bool taken;
} walk_seed;

/* A gradient that is wanted. */
typedef struct walk_want {
    uint64_t tensor;
    uint64_t gradient; /* the new tensor */
    tutti_claim claim; /* of it */
    bool made;
    bool found;
    agent_walk *walk;
    tutti_tensor *own;        /* [owned] what it will be, until it is in the table */
    agent_posted_move posted; /* ... while it is copied there */
} walk_want;

/* The place in a group's queue. */
typedef struct walk_line {
    tutti_link link; /* in walk->lines */
    agent_walk *walk;
    agent_op *hold;     /* NULL = let go */
    agent_group *group; /* [borrowed] while it is held */
    char name[TUTTI_NAME_MAX + 1];
    bool reached;
    bool shared;       /* it has collectives, as far as is known before the start */
    bool told;         /* an op of ours has failed there: the others know */
    uint32_t left;     /* collective records whose duals are not over */
    uint32_t messages; /* the same of sends and receives: they need no place */
    uint32_t flying;   /* ops */
} walk_line;

/* A record, as a part of the walk. */
typedef struct walk_node {
    tutti_map_node by_channel; /* the last one of its line, while nodes are made */
    unsigned char channel[WALK_CHANNEL_SIZE];
    tutti_link ready; /* in walk->ready */
    agent_walk *walk;
    walk_line *line; /* NULL = no communication */
    tutti_tape_record *record;
    struct walk_node *next; /* on the same line: goes after this one */
    uint32_t blockers;
    agent_op *op; /* in flight */
    bool agreed;
} walk_node;

/* It waits for an op that came before it. */
typedef struct walk_wait {
    struct walk_wait *next; /* of the same op */
    agent_walk *walk;
} walk_wait;

struct agent_walk {
    tutti_link link; /* in agent->walks */
    tutti_agent *agent;
    tutti_rpc_call *call; /* [ref] NULL = async */
    agent_client *client;
    agent_gradients_fn answer;
    struct agent_work *work;
    tutti_tape *tape; /* [ref] */
    walk_seed *seeds;
    size_t seed_count;
    walk_want *wants;
    size_t want_count;
    uint32_t claims_waiting;
    uint32_t ops_waiting; /* that came before, and matter to the tape */
    tutti_link lines;
    walk_node *nodes;
    size_t node_count;
    size_t nodes_left;
    uint32_t flying; /* ops, and what is fetched from a device */
    uint32_t adding; /* gradients that were given and are not summed up yet */
    bool giving;     /* all is worked out: what is wanted gets memory of its own */
    tutti_link ready;
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
void agent_walk_post(agent_walk *walk); /* look at it again, soon */
/* [in] line  whose ranks all know; NULL = none */
void agent_walk_fail(agent_walk *walk, const tutti_error *err, walk_line *line);

/* backward_queue.c */
/* An op of our own, without a call; counted, not yet in any queue. NULL: no memory. */
agent_op *agent_walk_op(agent_walk *walk, agent_group *group, void (*on_end)(agent_op *op),
                        void *owner);
tutti_code agent_walk_open_lines(agent_walk *walk, tutti_error *err);

/* backward_queue.c */
/* Find the ops that came before, are not over and matter to its tape. */
tutti_code agent_walk_await(agent_walk *walk, tutti_error *err);
bool agent_walk_must_wait(const agent_walk *walk); /* for those, or Backwards that came before */

/* backward_queue.c */
/* NULL: no memory */
walk_line *agent_walk_line_of(agent_walk *walk, const char *group, bool shared, tutti_error *err);
void agent_walk_let_go(walk_line *line);
void agent_walk_tidy(agent_walk *walk); /* let go of lines that are not needed any more */
/* It has failed: tell those who do not know yet. */
void agent_walk_unwind(agent_walk *walk);

/* backward_graph.c */
tutti_code agent_walk_make_nodes(agent_walk *walk, tutti_error *err);
void agent_walk_go_on(agent_walk *walk); /* start what may start */
void agent_walk_free_nodes(agent_walk *walk);
void agent_walk_node_over(walk_node *node);

/* backward_op.c: the ops of one node */
tutti_code agent_walk_node_start(walk_node *node, tutti_error *err);

/* backward_sum.c: what a Backward works out by itself. [moved] gradient, also on failure. */
/* What the dual op made; or, of a node without one, of its result. The node is over in time. */
tutti_code agent_walk_take_gradient(walk_node *node, tutti_tensor *gradient, tutti_error *err);
tutti_code agent_walk_take_given(agent_walk *walk, tutti_tape_var *var, tutti_tensor *gradient,
                                 tutti_error *err);

/* backward_args.c: what a Backward takes and gives */
tutti_code agent_walk_take(agent_walk *walk, const agent_backward *request, tutti_error *err);
tutti_code agent_walk_take_seeds(agent_walk *walk, tutti_error *err);
tutti_code agent_walk_own(agent_walk *walk, tutti_error *err); /* its copies fly */
void agent_walk_give(agent_walk *walk);
void agent_walk_drop_args(agent_walk *walk);
/* [out, owned] an array of want_count; NULL: no memory */
agent_gradient *agent_walk_describe(const agent_walk *walk);

#endif
