/*
 * The inside of loop.h: tags, and the queue for those who make calls.
 */
#ifndef TUTTI_RPC_LOOP_LOOP_PRIVATE_H
#define TUTTI_RPC_LOOP_LOOP_PRIVATE_H

#include <grpc/grpc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/loop.h"
#include "tutti/error.h"

/*
 * A tag is what gRPC hands back when a batch is over. Embed one per batch in the struct that owns
 * the batch, and reach the owner with tutti_container_of().
 *
 * on_done runs once for each started batch, on the loop's thread, after the call that started the
 * batch has returned if that was made on the loop's thread. The owner stays alive until then.
 */
typedef struct tutti_rpc_tag tutti_rpc_tag;
typedef void (*tutti_rpc_done_fn)(tutti_rpc_tag *tag, bool ok);

struct tutti_rpc_tag {
    tutti_rpc_done_fn on_done;
};

grpc_completion_queue *rpc_loop_queue(const tutti_rpc_loop *loop);

/*
 * Whoever starts batches on the queue of a loop holds the loop, from before the first one until the
 * last event has come: a loop that dozes does not look at its queue unless somebody holds it. Any
 * thread; nothing at all for a loop that does not doze.
 */
void rpc_loop_hold(tutti_rpc_loop *loop);
void rpc_loop_drop(tutti_rpc_loop *loop);
bool rpc_loop_dozes(const tutti_rpc_loop *loop);

/*
 * Start a batch. Any thread; no lock of ours is held: gRPC may write to the socket, and run a
 * payload's on_release, before it returns. A refusal would be our own mistake: it asserts.
 */
void rpc_batch_start(grpc_call *call, const grpc_op *ops, size_t op_count, void *tag);

#endif
