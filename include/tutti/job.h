/*
 * The job and its ranks: who takes part at present, and where their agents are.
 *
 *     tutti_job_info job;
 *     tutti_rank_info info;
 *     uint32_t rank = 1;
 *
 *     if (tutti_job_get(client, &job, &err) == TUTTI_OK && job.alive_count == job.world_size &&
 *         tutti_ranks_get(client, &rank, 1, &info, &err) == TUTTI_OK) {
 *         printf("rank 1 is on %s, at %s\n", info.host, info.address);
 *     }
 *
 * The coordinator answers these calls, so they need no agent: a client with agent = "" asks about
 * tutti_client_options.job. Threads, errors, outputs and common statuses are those of
 * tutti/client.h.
 *
 * Caveats
 *
 * - The answer is of the past. The trap: a program looks whether a rank is alive and then calls an
 *   op. How it looks: RANK_LOST all the same. What to do: handle that error; to hear of changes use
 *   tutti/membership.h instead of asking again and again.
 * - In an elastic job (tutti-agent --min-world) a free seat is told as TUTTI_RANK_LOST, with the
 *   reason "it has not joined yet".
 */
#ifndef TUTTI_JOB_H
#define TUTTI_JOB_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A job, as the coordinator has it. */
typedef struct tutti_job_info {
    char name[TUTTI_NAME_MAX + 1];
    /* Drawn when the job began: tells it from earlier and later jobs of the same name. */
    uint64_t id;
    /* Seats, 1 to TUTTI_RANKS_MAX: the largest number of ranks at once. */
    uint32_t world_size;
    /* Raised by one with each change of members, from 1; 0 = the world was never complete yet. */
    uint64_t epoch;
    /* Ranks that are TUTTI_RANK_ALIVE, and those that are TUTTI_RANK_LOST. */
    uint32_t alive_count;
    uint32_t lost_count;
    /* Groups, "world" among them, without those of meshes. 0 until the world was complete. */
    uint32_t group_count;
    /* When the job began: milliseconds since 1970, by the coordinator's clock. */
    uint64_t since_ms;
    /* Ops that have ended on its agents, and bytes that were given to them, all agents together: each
     * counts from the first heartbeat that the coordinator's process had from it. */
    uint64_t op_count;
    uint64_t op_bytes;
} tutti_job_info;

/*
 * The client's job.
 *
 * [out] ret_info
 *
 * TUTTI_NOT_FOUND            NO_JOB: the coordinator has no job of that name. Check the name and
 *                            the coordinator's address
 * TUTTI_INVALID_ARGUMENT     BAD_NAME: of the job
 * TUTTI_FAILED_PRECONDITION  NO_COORDINATOR: neither options nor agent nor environment name one
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_job_get(tutti_client *client, tutti_job_info *ret_info,
                                   tutti_error *err);

/*
 * All jobs of the coordinator, in the order of their names, whichever the client's own is. libtutti
 * asks page by page, so of jobs that begin or end meanwhile some are in the list.
 *
 * [out, owned] ret_infos  an array of `ret_count`; tutti_free it, also when it is empty
 * [out]        ret_count
 *
 * TUTTI_FAILED_PRECONDITION  NO_COORDINATOR
 * TUTTI_PERMISSION_DENIED    the token or certificate is for one job
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_jobs_list(tutti_client *client, tutti_job_info **ret_infos,
                                     size_t *ret_count, tutti_error *err);

/* What has become of a rank's seat. The numbers of tutti.v1.RankState. */
typedef enum tutti_rank_state {
    /* No agent has taken the seat yet. */
    TUTTI_RANK_FREE = 1,
    /* Its agent has joined and waits until all ranks of the job are there. */
    TUTTI_RANK_WAITING = 2,
    /* Its agent takes part. */
    TUTTI_RANK_ALIVE = 3,
    /* Its agent was alive and has died, left or cannot be reached. Another may take the seat. */
    TUTTI_RANK_LOST = 4,
} tutti_rank_state;

/* A rank, and the agent that has its seat, or had it last. */
typedef struct tutti_rank_info {
    uint32_t rank;
    tutti_rank_state state;
    /* The random number of that agent's process; 0 = nobody has had the seat yet. */
    uint64_t incarnation;
    /* The job's epoch at which that process joined. */
    uint64_t joined_epoch;
    /* Since when it has its state: milliseconds since 1970, by the coordinator's clock. */
    uint64_t since_ms;
    /* Why a lost rank is lost, or a living one is about to leave; "" = neither. */
    char reason[256];
    /*
     * The agent, as it describes itself: its machine's name, process id, --device ("cpu",
     * "cuda:0") and version. "" and 0 while nobody has had the seat.
     */
    char host[128];
    uint32_t pid;
    char device[32];
    char version[32];
    /*
     * Where this program can reach it: on the agent's host its Unix socket, if it has one that this
     * program may open; elsewhere the first of its other addresses. tutti_connect takes it.
     */
    char address[256];
    /* Ops that have ended on that agent, and bytes that were given to them: by its last heartbeat. */
    uint64_t op_count;
    uint64_t op_bytes;
    /* How long ago that heartbeat came, in milliseconds, at least 1; 0 = none has come. */
    uint64_t counted_ms;
} tutti_rank_info;

/*
 * Ranks of the client's job. The answer is one moment's state of all of them.
 *
 * [in]  ranks      numbers of ranks, each below the world size; in any order, also twice
 * [in]  count      1 to 1024
 * [out] ret_infos  an array of `count`, filled in the order of `ranks`
 *
 * TUTTI_INVALID_ARGUMENT  LOOKUP_LIMIT: count is 0 or above 1024. Ask in several calls;
 *                         RANK_RANGE: a rank is not below the world size; BAD_NAME: of the job
 * TUTTI_NOT_FOUND         NO_JOB
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_ranks_get(tutti_client *client, const uint32_t *ranks, size_t count,
                                     tutti_rank_info *ret_infos, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
