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

#include "base/data/list.h"
#include "base/os/timers.h"
#include "tutti/error.h"

typedef struct tutti_rpc_loop tutti_rpc_loop;

/*
 * Once per process, before the first loop: starts gRPC with all signals blocked in its threads, and
 * leads its log into ours, at a limited rate.
 *
 * gRPC does not survive fork(): what a child asks of this room is refused with
 * TUTTI_FAILED_PRECONDITION. Starting a program is fine.
 */
void tutti_rpc_init(void);

/*
 * Have servers of this process refuse more calls on a connection from its first byte on, with
 * gRPC's own way: the connection ends. Without this, gRPC counts only when the client has
 * acknowledged the limit, which it may leave. For a program whose servers all have this limit
 * (`streams_max`): all of gRPC's connections in the process are meant, in both directions. Behind
 * tutti_rpc_init. In a gRPC of another version than 1.51 it does nothing but log so.
 */
void tutti_rpc_limit_first_calls(uint64_t calls);

/* Balances tutti_rpc_init, after the last loop is gone. */
void tutti_rpc_fini(void);

/*
 * A queue and its mailbox; nothing runs yet.
 *
 * [in] name  of the thread, at most 15 bytes; static
 *
 * TUTTI_RESOURCE_EXHAUSTED   no memory
 * TUTTI_FAILED_PRECONDITION  this process was forked off the one that started gRPC
 */
tutti_code tutti_rpc_loop_new(const char *name, tutti_rpc_loop **ret_loop, tutti_error *err);

/*
 * For a loop that seldom has work, in a process where another one always has: its thread sleeps
 * outside gRPC while no call is bound to it. All queues of a process share one epoll set, whose
 * events any thread in gRPC may be woken for, about twice for each call of the other loop. A call
 * that begins pays with one more step between threads. Before start.
 */
void tutti_rpc_loop_idle(tutti_rpc_loop *loop);

/*
 * Serve the queue on a thread of its own, which takes no signals.
 *
 * TUTTI_RESOURCE_EXHAUSTED  the system gives no thread
 */
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
    tutti_list_node link;
    void (*on_run)(tutti_rpc_task *task);
};

/* Any thread. Never fails, never runs the task before it returns. */
void tutti_rpc_loop_post(tutti_rpc_loop *loop, tutti_rpc_task *task);

/*
 * Run a task once nothing else is to do: no event is ready, and no socket has something to read. It
 * runs after 5 ms even when that has not happened. For work in slices (of 16 messages, say), so
 * that what is received in between does not wait for all of it. The loop's thread, or before the
 * loop starts; on a loop that never dozes. A task that has not run when the loop ends does not run.
 */
void tutti_rpc_loop_post_idle(tutti_rpc_loop *loop, tutti_rpc_task *task);
void tutti_rpc_loop_cancel_idle(tutti_rpc_loop *loop, tutti_rpc_task *task); /* posted */

/* For a task that was posted so: was nothing else to do? False: the 5 ms were over. */
bool tutti_rpc_loop_is_idle(const tutti_rpc_loop *loop);

/* Timers on the clock of tutti_clock_ns(); the loop's thread only, or before the loop starts. */
void tutti_rpc_loop_timer_start(tutti_rpc_loop *loop, tutti_timer *timer, uint64_t at_ns);
void tutti_rpc_loop_timer_stop(tutti_rpc_loop *loop, tutti_timer *timer);

/*
 * Be the loop's thread for a while: between the two, callbacks of the loop run on no other thread,
 * tutti_rpc_loop_is_current is true, and what only the loop's thread may touch is the caller's. For
 * a thread that has work for the loop and has been woken already: posting a task would wake another
 * one. Enter waits for the turn, which is given in the order in which it was asked for; leave runs
 * what was posted in between. Not on the loop's thread. The loop must not be stopped before the
 * last leave.
 */
void tutti_rpc_loop_enter(tutti_rpc_loop *loop);
/* The same if nobody has the turn, or waits for it; false = somebody does. */
bool tutti_rpc_loop_try_enter(tutti_rpc_loop *loop);
void tutti_rpc_loop_leave(tutti_rpc_loop *loop);

/* Is the caller the loop's thread? */
bool tutti_rpc_loop_is_current(const tutti_rpc_loop *loop);

#endif
