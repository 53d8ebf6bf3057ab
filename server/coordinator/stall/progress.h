/*
 * Progress: what agents tell of their ops with their heartbeats, and who waits for whom.
 *
 * Of each agent the last word on each group is kept. A question (stall) asks all agents of a job
 * anew, and is answered when all have told or its time is up: so who does not answer is known, too.
 * Agents are asked ten times a second at most; who asks in between waits for the next time.
 *
 * See coordinator.h for threads and time. What is lent is good until the callback returns.
 */
#ifndef TUTTI_SERVER_COORDINATOR_STALL_PROGRESS_H
#define TUTTI_SERVER_COORDINATOR_STALL_PROGRESS_H

#include "base/error/text.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/types.h"
#include "server/coordinator/member/members.h"
#include "tutti/types.h"

#define TUTTI_COORDINATOR_GROUPS_REPORTED_MAX 256 /* of one heartbeat, and kept of one agent */
#define TUTTI_COORDINATOR_PENDING_MAX 8           /* ops of one group */
#define TUTTI_COORDINATOR_OP_WORDS_MAX 128        /* bytes of an op in words, with the NUL */
#define TUTTI_COORDINATOR_STALLS_MAX 256
#define TUTTI_COORDINATOR_UNEVEN_MAX 64
#define TUTTI_COORDINATOR_ARRIVED_MAX 1024
#define TUTTI_COORDINATOR_OTHERS_MAX 64
#define TUTTI_COORDINATOR_QUERY_MS_MAX 10000

/* An op that has not ended. */
typedef struct tutti_coordinator_pending {
    uint64_t sequence; /* 0 = a send or receive */
    const char *op;
    bool queued;
    uint64_t waited_ms;
    int64_t peer; /* of a send or receive: a rank of the job; -1 = any, or none */
} tutti_coordinator_pending;

/* How far a rank is in a group; as tutti.v1.GroupProgress. */
typedef struct tutti_coordinator_progress_report {
    const char *group;
    uint64_t id;
    uint64_t epoch;
    uint64_t came;
    uint64_t entered;
    uint64_t left;
    const char *last_op;
    uint64_t last_ms;
    uint64_t last_sequence;
    const tutti_coordinator_pending *pending;
    size_t pending_count;
} tutti_coordinator_progress_report;

/*
 * After a heartbeat: what came with it, of one group. What is too long is cut, what is too much is
 * left out. A session that is not open is fine.
 */
void tutti_coordinator_session_report(tutti_coordinator_session *session,
                                      const tutti_coordinator_progress_report *told);

/* After a heartbeat: how many ops have ended on its rank since its process began, and how many bytes
 * it gave to them. What was before the first such word is not counted. */
void tutti_coordinator_session_count(tutti_coordinator_session *session, uint64_t ops,
                                     uint64_t bytes);

/* After that: the heartbeat answers that question. */
void tutti_coordinator_session_answered(tutti_coordinator_session *session, uint64_t number);

/* ------------------------------------------------------------------------------ stalls */

/* The numbers of tutti.v1.Standing. */
typedef enum tutti_coordinator_standing {
    TUTTI_COORDINATOR_ARRIVED = 1,
    TUTTI_COORDINATOR_ABSENT = 2,
    TUTTI_COORDINATOR_SLOW = 3,
    TUTTI_COORDINATOR_QUEUED = 4,
    TUTTI_COORDINATOR_SILENT = 5,
    TUTTI_COORDINATOR_GONE = 6,
} tutti_coordinator_standing;

typedef struct tutti_coordinator_stalled_rank {
    uint32_t rank;
    tutti_coordinator_standing standing;
    bool arrived;
    uint64_t last_sequence;
    const char *last_op; /* "" = none */
    uint64_t last_ms;
    uint64_t silent_ms;
    const char *reason; /* "" = none */
} tutti_coordinator_stalled_rank;

typedef struct tutti_coordinator_stall {
    const char *group;
    uint64_t group_id;
    uint64_t epoch;
    uint64_t sequence;
    const char *op;
    uint64_t waited_ms;
    uint32_t group_size;
    uint32_t arrived_count; /* ... of which `arrived` lists the first */
    uint32_t missing_count;
    uint32_t other_count;
    uint32_t arrived[TUTTI_COORDINATOR_ARRIVED_MAX];
    tutti_coordinator_stalled_rank others[TUTTI_COORDINATOR_OTHERS_MAX];
} tutti_coordinator_stall;

/* How many ops of a group a rank has called. */
typedef struct tutti_coordinator_counted_rank {
    uint32_t rank;
    uint64_t sequence;
    const char *last_op; /* "" = none */
    uint64_t last_ms;
} tutti_coordinator_counted_rank;

/* A group where nothing runs, and whose ranks have called different numbers of ops. */
typedef struct tutti_coordinator_uneven {
    const char *group;
    uint64_t group_id;
    uint64_t epoch;
    tutti_coordinator_counted_rank ahead; /* the first of those that have called the most */
    uint32_t behind_count;                /* ... and of those that have not, of which the first: */
    tutti_coordinator_counted_rank behind[TUTTI_COORDINATOR_OTHERS_MAX];
} tutti_coordinator_uneven;

typedef struct tutti_coordinator_stalls {
    const char *job;
    uint64_t epoch;
    uint32_t world_size;
    size_t count;
    tutti_coordinator_stall *stalls;
    size_t uneven_count;
    tutti_coordinator_uneven *uneven;
    uint32_t silent_count;
    uint32_t lost_count;
    uint32_t other_count; /* ranks that are silent or lost, the first of them: */
    tutti_coordinator_stalled_rank others[TUTTI_COORDINATOR_OTHERS_MAX];
} tutti_coordinator_stalls;

typedef struct tutti_coordinator_stall_query_request {
    const char *job;
    const char *group; /* NULL or "" = all */
    uint64_t older_than_ms;
    uint32_t wait_ms; /* 0 = 500 */
} tutti_coordinator_stall_query_request;

/* A parked DescribeStall. Zero it and set the callback. */
typedef struct tutti_coordinator_stall_query tutti_coordinator_stall_query;
struct tutti_coordinator_stall_query {
    /* The answer: `stalls`, or `err` when that is not NULL. */
    void (*on_answer)(tutti_coordinator_stall_query *query, const tutti_coordinator_stalls *stalls,
                      const tutti_error *err);
    /* The coordinator's: */
    tutti_coordinator_pending_call wait;
    tutti_list_node link; /* among the questions */
    char job[TUTTI_NAME_MAX + 1];
    uint64_t job_id;
    char group[TUTTI_NAME_MAX + 1];
    uint64_t older_than_ms;
    uint64_t number;
    uint64_t wait_ns; /* from when the agents are asked */
    uint32_t awaited; /* agents that have not answered; 0 = they have not been asked */
};

/*
 * TUTTI_OK                  parked
 * TUTTI_NOT_FOUND           NO_JOB
 * TUTTI_INVALID_ARGUMENT    BAD_NAME; BAD_WAIT
 * TUTTI_RESOURCE_EXHAUSTED  WAITER_LIMIT
 * TUTTI_UNAVAILABLE         DRAINING
 */
tutti_code tutti_coordinator_stall_query_start(tutti_coordinator *self,
                                               const tutti_coordinator_stall_query_request *request,
                                               tutti_coordinator_stall_query *query,
                                               tutti_error *err);

/* The caller went away. Not parked is fine. */
void tutti_coordinator_stall_query_withdraw(tutti_coordinator_stall_query *query);

/* "group world op 41 all_reduce(sum, FP32[4]): 3 of 4 ranks are in it, since 12.3 s; rank 2 ..." */
void tutti_coordinator_stall_describe(const tutti_coordinator_stall *stall, tutti_text *text);

/* "group world: rank 1 is behind: it has called 4 ops (the last ...), rank 0 has called 7 ..." */
void tutti_coordinator_uneven_describe(const tutti_coordinator_uneven *uneven, tutti_text *text);

/* The agent is freed: what it reported goes. */
void coord_progress_report_fini(coord_agent *agent);

#endif
