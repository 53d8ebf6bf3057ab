/*
 * Pool: threads that run functions, so that none runs on a loop or in the engine. Threads are
 * started when there is work, at most `threads_max` that run at once; one that waits for an op
 * inside of a function is not counted, so that functions that wait for each other on other ranks
 * come to run. Threads that are too many once the waiting is over end; as many as may run stay. They
 * are called "tutti-function". Any thread.
 */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_POOL_H
#define TUTTI_SERVER_AGENT_FUNCTION_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/data/list.h"
#include "tutti/error.h"

typedef struct agent_pool agent_pool;

/* Embedded in what it is about, which stays until on_run has been called. */
typedef struct agent_pool_job agent_pool_job;
struct agent_pool_job {
    tutti_list_node link;
    void (*on_run)(
        agent_pool_job *job); /* on a thread of the pool, which does not touch `job` behind it */
};

tutti_code agent_pool_new(uint32_t threads_max, agent_pool **ret_pool, tutti_error *err);

/* Jobs begin in the order in which they were added. */
void agent_pool_add(agent_pool *pool, agent_pool_job *job);

/* Inside of on_run: from now on, and until `leave`, this thread only waits. */
void agent_pool_wait_begin(agent_pool *pool);
void agent_pool_wait_end(agent_pool *pool);

/*
 * No job is added any more; wait for those that run, until `at_ns`. Returns false if some still
 * run: the pool, and all that their functions may use, has to stay.
 */
bool agent_pool_close(agent_pool *pool, uint64_t at_ns);

#endif
