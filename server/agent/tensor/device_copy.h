/*
 * Posted move: a move of a tensor's bytes whose end is told on a loop of ours, since the space has
 * a thread of its own for that. The caller embeds it and leaves it alone until on_done, which may
 * free it.
 */
#ifndef TUTTI_SERVER_AGENT_TENSOR_DEVICE_COPY_H
#define TUTTI_SERVER_AGENT_TENSOR_DEVICE_COPY_H

#include "rpc/loop.h"
#include "tensor/move.h"

typedef struct agent_posted_move agent_posted_move;

/* On the loop, once. err: NULL = well; else the move's error, borrowed from `posted`. */
typedef void (*agent_posted_move_fn)(agent_posted_move *posted, const tutti_error *err);

struct agent_posted_move {
    agent_posted_move_fn on_done;
    tutti_move move;
    tutti_rpc_loop *loop;
    tutti_rpc_task task;
    tutti_code code;
    tutti_error err;
};

/*
 * Prepare `posted` and return the move to give to a function of tensor/move.h or of a space;
 * on_done follows that call.
 */
tutti_move *agent_posted_move_of(agent_posted_move *posted, tutti_rpc_loop *loop,
                                 agent_posted_move_fn on_done);

#endif
