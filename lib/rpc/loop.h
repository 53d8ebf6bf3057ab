/*
 * Loop: one gRPC completion queue and the one thread that serves it.
 *
 * Whatever is bound to a loop (calls, timers, tasks) runs its callbacks on that thread, one after
 * the other: state that only they touch needs no lock. A callback must not block: no disk, no DNS,
 * no waiting for another callback.
 */
#ifndef TUTTI_RPC_LOOP_H
#define TUTTI_RPC_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/timers.h"
#include "tutti/error.h"

typedef struct tutti_rpc_loop tutti_rpc_loop;

/* Once per process, before the first loop: blocks signals' delivery to gRPC's threads, caps its
 * log. */
void tutti_rpc_init(void);

/* Balances tutti_rpc_init, after the last loop is gone. */
void tutti_rpc_fini(void);

/*
 * A queue and its mailbox; nothing runs yet.
 *
 * [in] name  of the thread, at most 15 bytes; static
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code tutti_rpc_loop_new(const char *name, tutti_rpc_loop **ret_loop, tutti_error *err);

/* Serve the queue on a thread of its own. */
tutti_code tutti_rpc_loop_start(tutti_rpc_loop *loop, tutti_error *err);

/*
 * End: the thread returns when everything outstanding has come back, and is joined. What is bound
 * to the loop must have been ended before (servers stopped, requests done, streams finished);
 * timers that still run are forgotten. Not from the loop's own thread. Called on a loop that was
 * never started it drains the queue on the caller's thread.
 */
void tutti_rpc_loop_stop(tutti_rpc_loop *loop);

void tutti_rpc_loop_free(tutti_rpc_loop *loop); /* NULL is fine; stopped before */

/*
 * A task is run once per post, on the loop's thread, in the order of the posts. Embed it in what it
 * is about; it may be posted again from on_run, not while it is posted.
 */
typedef struct tutti_rpc_task tutti_rpc_task;
struct tutti_rpc_task {
    tutti_link link;
    void (*on_run)(tutti_rpc_task *task);
};

/* Any thread. Never fails, never runs the task before it returns. */
void tutti_rpc_loop_post(tutti_rpc_loop *loop, tutti_rpc_task *task);

/* Timers on the clock of tutti_clock_ns(); the loop's thread only, or before the loop starts. */
void tutti_rpc_loop_timer_start(tutti_rpc_loop *loop, tutti_timer *timer, uint64_t at_ns);
void tutti_rpc_loop_timer_stop(tutti_rpc_loop *loop, tutti_timer *timer);

/* Is the caller the loop's thread? */
bool tutti_rpc_loop_is_current(const tutti_rpc_loop *loop);

#endif
