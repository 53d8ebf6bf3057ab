/*
 * Works: waiting for ops that were started with tutti_op.async.
 *
 *     tutti_op_result result;
 *     tutti_work_status status;
 *     const char *works[] = {result.work};
 *
 *     op.async = true;
 *     code = tutti_all_reduce(client, &op, &result, &err);           // returns at once
 *     ...                                                           // the caller computes
 *     code = tutti_wait(client, works, 1, 0, &status, &err);
 *     if (code == TUTTI_OK && status.error.code != TUTTI_OK) {
 *         fprintf(stderr, "%s\n", status.error.text);                // the op failed
 *     }
 *
 * A work is the id of one async op at one agent, "work:RANK.INCARNATION.NUMBER". It is known from
 * the answer to the op until --works-max newer works (4096) have ended; until then it may be waited
 * for any number of times, by any client of that agent. Nothing has to be freed.
 *
 * Another call need not wait first: it may name the tensor that an async op makes
 * (tutti_op_result.output), and the agent begins it when the op has ended. If the op fails, that
 * call fails with the op's error.
 *
 * Threads, errors, outputs and common statuses are those of tutti/client.h. Several threads may
 * wait for the same work.
 *
 * Caveats
 *
 * - Two kinds of failure. The trap: TUTTI_OK of tutti_wait says that the works have ended, not that
 *   they succeeded. How it looks: a result is used that does not exist. What to do: look at each
 *   status.error, or pass NULL for the statuses, and the first failure is returned.
 * - A wait that ends with DEADLINE_EXCEEDED does not end the op: tutti_cancel does, or its own
 *   timeout_ms, on all ranks.
 * - A rank of the group that never calls the op keeps the work running until that timeout.
 */
#ifndef TUTTI_WORK_H
#define TUTTI_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How an async op stands. While `done` is false the fields below it say nothing yet. */
typedef struct tutti_work_status {
    /* The id that was asked for. */
    char work[TUTTI_HANDLE_MAX + 1];
    /* The op has ended, well or not. */
    bool done;
    /* Why it failed; code TUTTI_OK = it did not fail, or has not ended yet. */
    tutti_error error;
    /*
     * The tensor with the result of a done op. `text` is "" if this rank gets none, if the op
     * failed, and for a list (tutti_wait_more of tutti/list.h tells its outputs). The new tensor
     * that a failed op was to make (tutti_op_result.output) stays, keeps the error for whoever
     * names it, and has to be deleted.
     */
    tutti_handle output;
    /* Of a done recv: the sender, as a group rank and as a rank of the job. Else 0. */
    uint32_t source;
    uint32_t source_global;
    /* From the op's arrival at the agent to its end, in microseconds. */
    uint64_t elapsed_us;
} tutti_work_status;

/*
 * Wait until all of these works have ended.
 *
 * [in]  works         `count` ids, as tutti_op_result.work; in any order, also twice
 * [in]  count         1 to 1024
 * [in]  timeout_ms    milliseconds to wait at most; 0 = the agent's --op-timeout (5 minutes)
 * [out] ret_statuses  an array of `count`, in the order of `works`; NULL = not wanted, and then the
 *                     error of the first work in that order that failed is returned
 *
 * TUTTI_DEADLINE_EXCEEDED    TIMEOUT: not all have ended; the text names those that run. They go on
 * TUTTI_NOT_FOUND            NO_WORK: it never was, or is forgotten. Its result tensor is still
 *                            there. Ask earlier, or raise tutti-agent --works-max
 * TUTTI_INVALID_ARGUMENT     WORK_COUNT: count is 0 or above 1024. Split the list;
 *                            BAD_HANDLE: a text is not the id of a work
 * TUTTI_FAILED_PRECONDITION  FOREIGN_HANDLE: a work of another rank's agent. Ask that one;
 *                            STALE_HANDLE: of a former process of this agent. Its ops have failed
 * TUTTI_UNAVAILABLE          STOPPING: the agent stops
 * any other                  with ret_statuses = NULL: what an op failed with (tutti/op.h)
 * and the statuses common to all calls (tutti/client.h)
 *
 * If one id is bad, the call waits for none of them.
 */
TUTTI_API tutti_code tutti_wait(tutti_client *client, const char *const *works, size_t count,
                                uint32_t timeout_ms, tutti_work_status *ret_statuses,
                                tutti_error *err);

/*
 * How works stand at this moment, without waiting for them.
 *
 * [in]  works, count  as in tutti_wait
 * [out] ret_statuses  as in tutti_wait; with NULL the first failure among the ended ones is
 *                     returned, and works that still run count as not failed
 *
 * Statuses as tutti_wait, but for TIMEOUT and STOPPING. The call itself is limited by the client's
 * timeout_ms.
 */
TUTTI_API tutti_code tutti_test(tutti_client *client, const char *const *works, size_t count,
                                tutti_work_status *ret_statuses, tutti_error *err);

/*
 * End ops that still run, on all ranks: they fail with TUTTI_CANCELLED, CALLER_GONE. What has ended
 * stays as it is. The call does not wait: tutti_wait tells when the ops have ended, and how. An op
 * that has sent what another rank waited for may have succeeded there.
 *
 * [in]  works, count  as in tutti_wait
 * [out] ret_statuses  as in tutti_test: how they stand now; NULL = not wanted
 *
 * Statuses as tutti_test. If one id is bad, the call cancels none of them.
 */
TUTTI_API tutti_code tutti_cancel(tutti_client *client, const char *const *works, size_t count,
                                  tutti_work_status *ret_statuses, tutti_error *err);

/* What tutti_sync has waited for. */
typedef struct tutti_sync_result {
    /* Ops that were in flight when the agent was asked. */
    uint64_t waited_count;
    /* How many of these failed. */
    uint64_t failed_count;
    /* The error of the one that failed first; code TUTTI_OK = none failed. */
    tutti_error error;
} tutti_sync_result;

/*
 * Wait until all ops have ended that the agent was given before this call: sync and async ones, of
 * all its clients, and each tutti_backward as one op. Ops that come later are not waited for.
 *
 * [in]  group       only ops of this group; NULL or "" = of all groups. A tutti_backward is of no
 *                   group. For a group that the agent does not know there is nothing to wait for
 * [in]  timeout_ms  milliseconds to wait at most; 0 = the agent's --op-timeout (5 minutes)
 * [out] ret_result  TUTTI_OK is returned also when ops failed; NULL = not wanted, and then the
 *                   first failure is returned
 *
 * TUTTI_DEADLINE_EXCEEDED  TIMEOUT: the text says how many still run, and which. They go on
 * TUTTI_INVALID_ARGUMENT   BAD_NAME: not a name that a group can have
 * TUTTI_UNAVAILABLE        STOPPING: the agent stops
 * any other                with ret_result = NULL: what an op failed with (tutti/op.h)
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_sync(tutti_client *client, const char *group, uint32_t timeout_ms,
                                tutti_sync_result *ret_result, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
