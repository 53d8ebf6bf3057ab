/* Async ops: how they stand, and calls that wait for them. Control loop. */
#ifndef TUTTI_SERVER_AGENT_OP_WORKS_H
#define TUTTI_SERVER_AGENT_OP_WORKS_H

#include "server/agent/agent.h"
#include "server/agent/state/request.h"
#include "server/agent/state/types.h"
#include "server/agent/tensor/table.h"

#define AGENT_WAIT_MAX 1024 /* works of one Wait or Test */

/* How a work stands; what is behind pointers is borrowed until the next call. */
typedef struct agent_work_status {
    char work[AGENT_WORK_SIZE];
    bool done;
    bool failed;
    tutti_error err;
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    bool has_spec;
    tutti_spec spec;
    uint32_t output_count; /* of a list */
    agent_output *outputs;
    tutti_bytes meta;
    uint32_t source;
    uint32_t source_global;
    uint64_t elapsed_us;
} agent_work_status;

/* Before the services open; close frees all works, when no call waits any more. */
tutti_code agent_works_open(tutti_agent *agent, tutti_error *err);
void agent_works_close(tutti_agent *agent);
/* Ends what a work stands for with `err`, at once or later; on all ranks. */
typedef void (*agent_cancel_fn)(void *owner, const tutti_error *err);
/*
 * A work for an op that begins, with an id of its own. It belongs to the agent: whoever made it
 * must see to it that agent_work_done follows, or it is remembered as running until the agent ends.
 * Until then cancel(owner) may be called.
 */
tutti_code agent_work_new(tutti_agent *agent, agent_cancel_fn cancel, void *owner,
                          agent_work **ret_work, tutti_error *err);
void agent_work_name(const agent_work *work, char ret_name[AGENT_WORK_SIZE]);
/* The op has ended: keep its outcome, answer calls that waited for it, forget the oldest finished
 * works beyond --works-max. Takes `outputs` and `meta` of an op that succeeded. */
void agent_work_done(agent_work *work, agent_op *op);
uint64_t agent_works_count(const tutti_agent *agent);

/* Writes the answer of a Wait or Test: by the wire file. */
typedef void (*agent_statuses_fn)(tutti_rpc_call *call, const agent_work_status *statuses,
                                  size_t count);
/* Answers the call: at once, when all are done, or when time is up. timeout_ms as in the proto. */
void agent_works_wait(tutti_agent *agent, tutti_rpc_call *call, char *const *works, size_t count,
                      uint32_t timeout_ms, agent_statuses_fn answer);
void agent_works_test(tutti_agent *agent, tutti_rpc_call *call, char *const *works, size_t count,
                      agent_statuses_fn answer);
/* Answers the call as a Test does, after it has cancelled the works that run; none if one id is bad. */
void agent_works_cancel(tutti_agent *agent, tutti_rpc_call *call, char *const *works, size_t count,
                        agent_statuses_fn answer);
/* End all waits: the agent drains. */
void agent_works_drain(tutti_agent *agent);

#endif
