/* Private to works.c: works, and the calls that wait for them. */
#ifndef TUTTI_SERVER_AGENT_OP_WORKS_PRIVATE_H
#define TUTTI_SERVER_AGENT_OP_WORKS_PRIVATE_H

#include "server/agent/op/works.h"

/* Running: status.done is false, `finished` is in no list. Done: in works->finished, until it is
 * forgotten, which needs pins == 0. */
struct agent_work {
    tutti_map_node by_number;
    unsigned char key[8];
    tutti_list_node finished; /* in works->finished, the oldest first */
    tutti_list_node waits;    /* agent_wait_link.of_work, of calls that have not heard of its end */
    uint32_t pins;            /* calls that will want to know how it stands */
    uint64_t number;
    agent_cancel_fn cancel; /* of the owner; while the work runs */
    void *owner;
    agent_work_status status;
};

struct agent_works {
    tutti_map by_number;
    tutti_list_node finished;
    uint64_t finished_count;
    uint64_t last_number;
    tutti_list_node waits; /* all calls that wait */
};

typedef struct agent_wait agent_wait;

/* One work that a call waits for. */
typedef struct agent_wait_link {
    tutti_list_node of_work;
    agent_wait *wait;
} agent_wait_link;

/* A Wait or Test. `missing` of the first `count` works are not done. numbers[i] and links[i] are of
 * the same work, and each counts one pin of it. */
struct agent_wait {
    tutti_list_node link;
    tutti_agent *agent;
    tutti_rpc_call *call;
    agent_statuses_fn answer;
    tutti_timer timer;
    size_t count;
    size_t missing;
    uint64_t began_ns;
    uint64_t *numbers;
    agent_wait_link links[];
};

/*
 * TUTTI_INVALID_ARGUMENT     BAD_HANDLE
 * TUTTI_FAILED_PRECONDITION  STALE_HANDLE, FOREIGN_HANDLE
 * TUTTI_NOT_FOUND            NO_WORK
 */
tutti_code agent_work_find(const tutti_agent *agent, const char *name, agent_work **ret,
                           tutti_error *err);
/* The work with that number, which the caller has pinned: so it has not been forgotten. */
agent_work *agent_work_pinned(const tutti_agent *agent, uint64_t number);

/* Answer the call with how all of its works stand (err is NULL), or with err, and free the wait. */
void agent_wait_end(agent_wait *wait, const tutti_error *err);

#endif
