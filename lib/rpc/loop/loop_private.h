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
 * A tag is what gRPC hands back when a batch is over. Embed one for each batch that can be under
 * way at the same time in the struct that owns the batch, and reach the owner with
 * tutti_container_of().
 *
 * on_done runs once for each started batch, on the loop's thread. If the batch was started on the
 * loop's thread, on_done runs after the function that started it has returned to the loop; if it
 * was started on another thread, on_done may run before rpc_batch_start returns. The owner stays
 * alive until then. `ok` is gRPC's: false if the batch could not do what it was for, for example
 * a message on a broken connection.
 */
typedef struct tutti_rpc_tag tutti_rpc_tag;
typedef void (*tutti_rpc_done_fn)(tutti_rpc_tag *tag, bool ok);

struct tutti_rpc_tag {
    tutti_rpc_done_fn on_done;
};

/* gRPC's queue, for calls that are made on it. Borrowed until the loop is freed. */
grpc_completion_queue *rpc_loop_queue(const tutti_rpc_loop *loop);

/*
 * A caller that starts batches on the queue of a loop holds the loop, from before the first batch
 * until its last event has come: a loop that dozes looks at its queue only while it is held. Each
 * hold is balanced by one drop. Any thread; nothing happens for a loop that does not doze.
 * rpc_loop_dozes does not change once the loop has started.
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
