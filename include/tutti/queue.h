/*
 * Completion queue: ops that are submitted from any thread and end later, each with a completion. No
 * thread waits for an op: thousands may be outstanding, receives from many peers and tags among
 * them.
 *
 *     tutti_queue_data data = {.spec = {TUTTI_DTYPE_FP32, 1, {1000}}};
 *     tutti_queue_completion done;
 *     tutti_queue *queue;
 *     uint64_t id;
 *
 *     data.data = data.result = x;
 *     data.result_bytes = sizeof(x);
 *     code = tutti_queue_open(client, NULL, &queue, &err);
 *     code = tutti_queue_submit_data(queue, TUTTI_OP_ALL_REDUCE, NULL, &data, NULL, &id, &err);
 *     ...                                                  // other work, other submissions
 *     code = tutti_queue_next(queue, TUTTI_QUEUE_FOREVER, &done, &err);
 *     if (code == TUTTI_OK && done.error.code != TUTTI_OK) {
 *         fprintf(stderr, "op %d: %s\n", (int)done.id, done.error.text);
 *     }
 *     tutti_op_more_free(&done.more);
 *     tutti_queue_close(queue, &err);
 *
 * An op is outstanding from its submission until its completion is taken. Each submission that
 * succeeded has exactly one completion, whatever happens: the op ended, it was cancelled, the agent
 * died, or the queue was shut down.
 *
 * Who hears of completions; one of three, for each queue:
 *
 * - a poller: threads that call tutti_queue_next. A thread that waits there reads from the agent
 *   itself, so that an op costs no change of threads. This is the fastest way;
 * - an event loop (poll, epoll, asyncio): it waits for tutti_queue_fd to be readable, then calls
 *   tutti_queue_next with timeout 0. A thread of libtutti reads from the agent;
 * - a callback (tutti_queue_options.on_done), on a thread of libtutti.
 *
 * Order. The ops of one queue reach the agent in the order of their submissions, if one thread
 * submits them or the program orders the threads itself; so collectives of one group match as they
 * do with blocking calls. Sends to one peer with one tag, and receives, keep their order too. An op on
 * more than TUTTI_INLINE_BYTES_MAX (3 MiB) of memory is uploaded first where there is no arena, and what is submitted behind
 * it waits in this process until that is done. Nothing is said about the order between two queues, or between a
 * queue and blocking calls of the same client: do not call collectives of one group both ways at
 * once, or state tutti_op.sequence. Completions come in the order in which the ops end.
 *
 * Threads. Any thread may call any function of a queue, but tutti_queue_close, which needs the queue
 * for itself. tutti_queue_submit does not wait for the agent.
 *
 * Time. A queue has no deadline. An op has op->timeout_ms, its group's time, or the agent's
 * --op-timeout: the agent counts it. If the agent's process stands still (SIGSTOP), nothing is
 * completed until it goes on, the connection is given up as dead, or the queue is shut down, which
 * does not wait for the agent.
 *
 * Caveats
 *
 * - Memory of an op (data, result) belongs to the op until its completion is taken. How it looks if
 *   it does not: wrong numbers, or a crash. Strings and arrays in a tutti_op are copied.
 * - With a poller, answers are read only while a thread is in tutti_queue_next. What is submitted
 *   leaves at once all the same, unless the connection is so full that gRPC holds it back, or the lane
 *   (docs/decisions/0036-lanes.md) is: that takes some 500 small ops that the agent has not read yet.
 * - The client must outlive the queue. How it looks if it does not: a crash in the queue's threads
 *   or in tutti_queue_close. What to do: close queues before tutti_close.
 */
#ifndef TUTTI_QUEUE_H
#define TUTTI_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/list.h"
#include "tutti/op.h"
#include "tutti/op_data.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_queue tutti_queue;

/* As timeout_ms of tutti_queue_next. */
#define TUTTI_QUEUE_FOREVER UINT32_MAX

/* How one op ended. Nothing but `more` has to be freed. */
typedef struct tutti_queue_completion {
    /* As the submission told it. */
    uint64_t id;
    /* As the submission was given it. */
    void *user;
    /*
     * Code TUTTI_OK = it succeeded; else what the function of the op would return, or one of
     *
     *   CANCELLED         CALLER_GONE: by tutti_queue_cancel; QUEUE_SHUT: by tutti_queue_shutdown or
     *                     close. The op may have been done or not
     *   UNAVAILABLE, ...  the stream to the agent broke, and how. The op may have been done or not
     *   INVALID_ARGUMENT  OUT_SHAPE, DTYPE_MISMATCH: the result is not what the caller's memory is
     *                     for: the op has failed on all ranks
     */
    tutti_error error;
    /* Of an op that succeeded: handle, sequence, elapsed_us, the source of a recv; else zeros. */
    tutti_op_result op;
    /* [owned] Handles of a list, and what came with a tensor; tutti_op_more_free. Often empty. */
    tutti_op_more more;
} tutti_queue_completion;

/*
 * Takes completions, one at a time, on a thread of libtutti that takes no signals. It may submit,
 * cancel, count and shut down; no function of libtutti that waits for an agent may be called in it,
 * because no completion is read meanwhile; tutti_queue_close neither. It must return soon.
 *
 * [in] context  tutti_queue_options.context
 * [in] done     borrowed until it returns; libtutti frees `more`
 */
typedef void (*tutti_queue_fn)(void *context, const tutti_queue_completion *done);

/* Begin with tutti_queue_options_init. */
typedef struct tutti_queue_options {
    /* Bytes of this struct. Set by init; do not change it. */
    size_t size;
    /*
     * Most ops that are outstanding at one time. 0, the default, and more than the agent takes mean
     * what the agent takes: 16 times its --commands-max, less one: 4095.
     */
    uint32_t outstanding_max;
    /* Called for each completion; NULL, the default, = they are taken by tutti_queue_next. */
    tutti_queue_fn on_done;
    /* For on_done. */
    void *context;
} tutti_queue_options;

/* [out] options  every field as its comment calls default */
TUTTI_API void tutti_queue_options_init(tutti_queue_options *options);

/*
 * Open a queue to the client's agent. Whether the agent can be reached shows in the completions. An agent of this
 * machine is asked for a lane; one that stands still is waited for at most 1 s.
 *
 * [in]          client     with an agent; outlives the queue
 * [in]          options    NULL = defaults; copied
 * [out, owned]  ret_queue  tutti_queue_close it
 *
 * TUTTI_INVALID_ARGUMENT     BAD_STRUCT: options that were not initialised
 * TUTTI_FAILED_PRECONDITION  NO_AGENT: the client was connected without an agent; FORKED
 * TUTTI_UNIMPLEMENTED        the agent is older than completion queues
 * TUTTI_RESOURCE_EXHAUSTED   no memory, or no thread
 */
TUTTI_API tutti_code tutti_queue_open(tutti_client *client, const tutti_queue_options *options,
                                      tutti_queue **ret_queue, tutti_error *err);

/*
 * Give up: nothing more can be submitted, and all that is outstanding is completed with CANCELLED
 * QUEUE_SHUT; ops that run are cancelled as if their caller had gone away (CALLER_GONE on all ranks
 * of their groups), but async ops go on. Completions can still be taken; tutti_queue_next then says
 * QUEUE_SHUT, also to threads that wait in it. Returns at once; again is fine. Collectives that had
 * not begun at the agent are not called, so this rank may be out of step in their groups: delete
 * those, or end the job.
 *
 * [in] queue  not NULL
 */
TUTTI_API void tutti_queue_shutdown(tutti_queue *queue);

/*
 * Shut down, as above if anything is outstanding; call on_done for what it has not been called for;
 * free. Completions that were not taken are forgotten. Tensors that ops have made stay in the agent.
 *
 * [in, moved] queue  NULL is fine. No other thread is in a function of the queue
 *
 * TUTTI_FAILED_PRECONDITION  FORKED: the parent's queue; nothing is done
 *                            QUEUE_CALLBACK: called inside on_done; nothing is done
 */
TUTTI_API tutti_code tutti_queue_close(tutti_queue *queue, tutti_error *err);

/* ------------------------------------------------------------------ submitting
 *
 * If one of these functions fails, nothing was submitted, and there will be no completion:
 *
 * TUTTI_INVALID_ARGUMENT     NO_OP: no such kind; BAD_STRUCT: a struct that was not initialised
 * TUTTI_RESOURCE_EXHAUSTED   QUEUE_FULL: outstanding_max ops are outstanding, or 48 MiB of data that
 *                            travels in messages: take completions, then submit again. Without a
 *                            reason: no memory
 * TUTTI_FAILED_PRECONDITION  QUEUE_SHUT: the queue was shut down; FORKED
 * TUTTI_UNAVAILABLE, ...     the stream to the agent has broken, and how: open another queue
 */

/*
 * An op on tensors in the agent. An async op is completed when the agent has it, with the id of its
 * work in tutti_op_result.work.
 *
 * [in]  kind    which op; all are possible
 * [in]  op      its arguments; NULL = as tutti_op_init; copied. `more` should be NULL: see
 *               tutti_queue_completion
 * [in]  user    for the completion; not looked at
 * [out] ret_id  1, 2, 3, ... : larger than that of each earlier submission; NULL = not wanted
 */
TUTTI_API tutti_code tutti_queue_submit(tutti_queue *queue, tutti_op_kind kind, const tutti_op *op,
                                        void *user, uint64_t *ret_id, tutti_error *err);

/*
 * Memory of the caller's for an op. It must not change until the completion is taken; the result is written before the
 * completion can be seen.
 */
typedef tutti_op_data tutti_queue_data;

/*
 * An op on memory, as tutti/op_data.h has it. The caller says who gives and who takes, by NULL: the
 * root of a broadcast gives and does not take, the others take; a send gives, a recv takes. The rank
 * that a recv came from is in tutti_op_result.source.
 *
 * Memory of an arena (tutti/share.h) is not copied. Other arrays of more than 8 KiB are copied to the arena by the
 * submission, where there is one, and back by the thread that reads the completion; a submission may ask the agent for
 * memory then. Else, up to TUTTI_INLINE_BYTES_MAX (3 MiB), the bytes travel inside the call, copied by the submission.
 * Larger data goes through temporary tensors, as tutti/op_data.h says, by two threads of the queue.
 *
 * [in]  kind    which op
 * [in]  op      as above; input and output are not looked at, `async` must be false (ASYNC_INLINE),
 *               no lists
 * [in]  data    copied, not the memory it names; NULL: for a barrier, and where this rank neither
 *               gives nor takes
 * [in]  user    for the completion
 * [out] ret_id  as above
 *
 * TUTTI_INVALID_ARGUMENT  BAD_DTYPE, BAD_SHAPE: of the spec; SIZE_MISMATCH: result_bytes of a large result is
 *                         no multiple of the dtype's bytes
 * and what all submissions say
 */
TUTTI_API tutti_code tutti_queue_submit_data(tutti_queue *queue, tutti_op_kind kind,
                                             const tutti_op *op, const tutti_queue_data *data,
                                             void *user, uint64_t *ret_id, tutti_error *err);

/*
 * Several arrays in one op, as tutti_list_data (tutti/op_data.h). The submission copies what is given, of
 * any size, but for what is in an arena; results are written before the completion can be seen.
 *
 * [in]  kind    all but ALL_TO_ALL, BARRIER, SEND and RECV
 * [in]  op      as in tutti_queue_submit_data
 * [in]  arrays  1 to 1024; copied, not the memory that results go to
 * [in]  user    for the completion
 * [out] ret_id  as above
 *
 * TUTTI_INVALID_ARGUMENT  as tutti_list_data
 * and what all submissions say
 */
TUTTI_API tutti_code tutti_queue_submit_list(tutti_queue *queue, tutti_op_kind kind,
                                             const tutti_op *op, const tutti_op_data *arrays,
                                             size_t count, void *user, uint64_t *ret_id,
                                             tutti_error *err);

/*
 * Cancel one op, without waiting. Its completion still comes: with CANCELLED CALLER_GONE, or with
 * how it ended if that was earlier. A collective that is cancelled takes its turn in its group and
 * fails on all ranks: there with CANCELLED CALLER_GONE and this rank in tutti_error.rank; the group
 * goes on with the next one. A cancelled recv takes no message; a cancelled send fails on the
 * receiver's side too, if that was waiting for it. While an op uploads, its cancel waits behind
 * the upload.
 *
 * [in] id  as the submission told it
 *
 * TUTTI_NOT_FOUND            NOTHING_SUBMITTED: there is no such op, or its completion is there
 * TUTTI_FAILED_PRECONDITION  FORKED
 * TUTTI_RESOURCE_EXHAUSTED   no memory
 */
TUTTI_API tutti_code tutti_queue_cancel(tutti_queue *queue, uint64_t id, tutti_error *err);

/* ------------------------------------------------------------------ completions */

/*
 * Take the next completion, and wait for one if there is none, whether something is outstanding or
 * not: another thread may submit meanwhile.
 *
 * [in]         timeout_ms  0 = do not wait; TUTTI_QUEUE_FOREVER
 * [out, owned] ret_done    written on success only; tutti_op_more_free(&ret_done->more)
 *
 * Returns TUTTI_OK also for an op that failed: ret_done->error says so.
 *
 * TUTTI_DEADLINE_EXCEEDED    NOTHING_DONE: there was none in that time
 * TUTTI_FAILED_PRECONDITION  QUEUE_SHUT: the queue was shut down, and all completions were taken
 *                            QUEUE_CALLBACK: the queue has on_done; FORKED
 * TUTTI_UNAVAILABLE, ...     the stream to the agent has broken, and how; all completions were taken
 */
TUTTI_API tutti_code tutti_queue_next(tutti_queue *queue, uint32_t timeout_ms,
                                      tutti_queue_completion *ret_done, tutti_error *err);

/*
 * A descriptor (eventfd) for poll and epoll: readable while tutti_queue_next with timeout 0 would
 * not say NOTHING_DONE. So it stays readable when the queue is over: leave the loop then. Do not read
 * from it. The first call starts a thread of the queue.
 *
 * [out, borrowed] ret_fd  good until tutti_queue_close; always the same
 *
 * TUTTI_FAILED_PRECONDITION  QUEUE_CALLBACK: the queue has on_done; FORKED
 * TUTTI_RESOURCE_EXHAUSTED   no descriptor, or no thread
 */
TUTTI_API tutti_code tutti_queue_fd(tutti_queue *queue, int *ret_fd, tutti_error *err);

/* Returns how many ops are outstanding: submitted, and their completions not taken. */
TUTTI_API size_t tutti_queue_count(tutti_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
