/* Works. */
#ifndef TUTTI_WORK_H
#define TUTTI_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How an async op stands. */
typedef struct tutti_work_status {
    char work[TUTTI_HANDLE_MAX + 1];
    bool done;
    tutti_error error;   /* code TUTTI_OK = it did not fail */
    tutti_handle output; /* of a done op */
    uint32_t source;     /* recv */
    uint32_t source_global;
    uint64_t elapsed_us;
} tutti_work_status;

/*
 * Wait for works. TUTTI_OK also when one of them failed: look at each status.
 *
 * [in]  works         1 to 1024 ids
 * [in]  timeout_ms    0 = the agent's --op-timeout
 * [out] ret_statuses  `count` of them; NULL = not wanted, and then the first failure is returned
 *
 * TUTTI_DEADLINE_EXCEEDED  the works go on
 * TUTTI_NOT_FOUND          NO_WORK
 */
TUTTI_API tutti_code tutti_wait(tutti_client *client, const char *const *works, size_t count,
                                uint32_t timeout_ms, tutti_work_status *ret_statuses,
                                tutti_error *err);

/* How they stand, without waiting. */
TUTTI_API tutti_code tutti_test(tutti_client *client, const char *const *works, size_t count,
                                tutti_work_status *ret_statuses, tutti_error *err);

/* What Sync found. */
typedef struct tutti_sync_result {
    uint64_t waited_count; /* ops that were running when the agent was asked */
    uint64_t failed_count; /* of these */
    tutti_error error;     /* the first one's; code TUTTI_OK = none failed */
} tutti_sync_result;

/*
 * Wait for all ops that the agent was given before, sync and async, whoever asked for them.
 * TUTTI_OK also when ops failed.
 *
 * [in]  group       only its ops; NULL = all
 * [in]  timeout_ms  0 = the agent's --op-timeout
 * [out] ret_result  NULL = not wanted, and then the first failure is returned
 */
TUTTI_API tutti_code tutti_sync(tutti_client *client, const char *group, uint32_t timeout_ms,
                                tutti_sync_result *ret_result, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
