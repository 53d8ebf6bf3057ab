/*
 * Diagnosis: which op waits for which rank, what an agent did last, and what may be wrong where it
 * runs.
 *
 *     tutti_stalls stalls;
 *
 *     if (tutti_stalls_find(client, NULL, &stalls, &err) == TUTTI_OK) {
 *         for (size_t i = 0; i < stalls.count; i++) {
 *             puts(stalls.stalls[i].text);
 *         }
 *         tutti_stalls_free(&stalls);
 *     }
 *
 * Three questions, three functions. While an op hangs, tutti_stalls_find names the rank that it
 * waits for. After a failure, tutti_flight_get tells the last ops of one agent; the records of all
 * agents, laid side by side, show where they parted (`tutti trace` does that). Before a job runs,
 * tutti_agent_examine looks at limits and at the ways to other ranks (`tutti doctor`).
 *
 * The flight recorder has the fields of PyTorch's (torch.distributed, NCCL), under other names
 * here.
 *
 * Threads, errors, outputs and common statuses are those of tutti/client.h. No function here
 * disturbs ops in flight, and all of them work while ops hang.
 *
 * Caveats
 *
 * - An op that has just been called is no fault. The trap: a program takes each stall for an error.
 *   How it looks: alarms for ops of a few milliseconds. What to do: set older_than_ms.
 * - Agents tell the coordinator where they stand when it asks. An agent that does not answer in
 *   wait_ms is told as TUTTI_STANDING_SILENT, though it may be slow only. What to do: a longer
 *   wait_ms where machines are loaded.
 * - The times of a flight record are by that agent's clock. What to do: tutti_clock_compare, before
 *   times of several agents are compared.
 */
#ifndef TUTTI_DIAGNOSE_H
#define TUTTI_DIAGNOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of an op in words, "all_reduce(sum, FP32[1024])", with the NUL; longer words are cut. */
#define TUTTI_OP_WORDS_MAX 128

/* ------------------------------------------------------------------ ops that wait */

/* Where a rank stands with an op. The numbers of tutti.v1.Standing. */
typedef enum tutti_standing {
    /* It is in the op. */
    TUTTI_STANDING_ARRIVED = 1,
    /* Its agent answers, and nobody has called the op there: look at the program of that rank. */
    TUTTI_STANDING_ABSENT = 2,
    /* Its agent answers, and is in an earlier op of the group, or ended one in the last second. */
    TUTTI_STANDING_SLOW = 3,
    /* Its agent answers: the op was called there, and waits for its tensors or its turn. */
    TUTTI_STANDING_QUEUED = 4,
    /* Its agent does not answer: its process is stopped, starved or cut off. It is not lost yet. */
    TUTTI_STANDING_SILENT = 5,
    /* Its agent is gone, or nobody has the seat. */
    TUTTI_STANDING_LOST = 6,
} tutti_standing;

/*
 * The name of a standing: "arrived", "absent", "slow", "queued", "silent", "lost".
 *
 * Returns a static string, never NULL; "unknown" for any other number. Any thread.
 */
TUTTI_API const char *tutti_standing_name(tutti_standing standing);

/* Where one rank stands with one op. */
typedef struct tutti_stalled_rank {
    /* Of the job. */
    uint32_t rank;
    tutti_standing standing;
    /* It has begun the op. A rank can have arrived and be silent. */
    bool arrived;
    /*
     * The number of the op that it has ended last on the group, or, if it is slow or queued, of the
     * one that it is in now. 0 = a send or receive, or it has done nothing on the group.
     */
    uint64_t last_sequence;
    /* That op in words; "" = it has done nothing on the group. */
    char last_op[TUTTI_OP_WORDS_MAX];
    /* Milliseconds since that op ended, or, if it still runs, since it was called. */
    uint64_t last_ms;
    /* Silent: milliseconds since its last sign of life. Else 0. */
    uint64_t silent_ms;
    /* Lost: why. Silent: "its connection broke", if it did. Else "". */
    char reason[256];
} tutti_stalled_rank;

/* An op that has not ended, as those ranks tell it that have called it. */
typedef struct tutti_stall {
    char group[TUTTI_NAME_MAX + 1];
    /* The op's number in its group, from 1; 0 = a send or receive. */
    uint64_t sequence;
    /* In words, as one of the ranks in it has called it. */
    char op[TUTTI_OP_WORDS_MAX];
    /* Milliseconds since the first call of it. */
    uint64_t waited_ms;
    /* Ranks of the group, those that have begun the op, and those that have not. */
    uint32_t group_size;
    uint32_t arrived_count;
    uint32_t missing_count;
    /*
     * Those that have begun it, as ranks of the job: an array of `arrived_listed`, the first 1024
     * of arrived_count. [out, borrowed] of the tutti_stalls, as `ranks`.
     */
    uint32_t *arrived;
    size_t arrived_listed;
    /* Those that are missing, and those that are in it and silent: the first 64, by group rank. */
    tutti_stalled_rank *ranks;
    size_t rank_count;
    /* All of that as a sentence for people. */
    char text[1024];
} tutti_stall;

/* How many ops of a group a rank has called. */
typedef struct tutti_counted_rank {
    /* Of the job. */
    uint32_t rank;
    /* The number of the last op that it has called, from 1; 0 = none. */
    uint64_t sequence;
    /* Its op that ended last, in words, and milliseconds since; "" = none has. */
    char last_op[TUTTI_OP_WORDS_MAX];
    uint64_t last_ms;
} tutti_counted_rank;

/*
 * A group in which nothing runs, and whose ranks have called different numbers of ops: the next call
 * of one rank does not meet the next call of another.
 */
typedef struct tutti_uneven_group {
    char group[TUTTI_NAME_MAX + 1];
    /* The first of the ranks that have called the most. */
    tutti_counted_rank ahead;
    /* Of `behind_count` ranks that have called fewer, the first `behind_listed`, at most 64. */
    uint32_t behind_count;
    tutti_counted_rank *behind;
    size_t behind_listed;
    /* All of that as a sentence for people. */
    char text[1024];
} tutti_uneven_group;

/* The answer of tutti_stalls_find. tutti_stalls_free frees all that it points to. */
typedef struct tutti_stalls {
    char job[TUTTI_NAME_MAX + 1];
    /* Of the job, when the coordinator answered. */
    uint64_t epoch;
    uint32_t world_size;
    /*
     * An array of `count`, at most 256, the longest wait first: of each group its oldest op, and
     * all sends and receives. count 0 = nothing waits.
     */
    tutti_stall *stalls;
    size_t count;
    /*
     * An array of `rank_count`: the first 64 ranks that are silent or lost, whether an op needs
     * them or not.
     */
    tutti_stalled_rank *ranks;
    size_t rank_count;
    /* How many ranks of the job are silent, and lost, in all. */
    uint32_t silent_count;
    uint32_t lost_count;
    /*
     * An array of `uneven_count`, at most 64. Only groups of which every rank answers, and in which no
     * op has ended in the last second (or in older_than_ms, if it is less).
     */
    tutti_uneven_group *uneven;
    size_t uneven_count;
} tutti_stalls;

/* Which ops are asked about. Begin with tutti_stall_options_init. */
typedef struct tutti_stall_options {
    /* Bytes of this struct, set by init. */
    size_t size;
    /* Only ops of this group; NULL (default) or "" = of all groups. */
    const char *group;
    /* Only ops that have waited that many milliseconds; 0 (default) = all in flight. */
    uint64_t older_than_ms;
    /* Milliseconds that agents may take to answer, 1 to 10000; 0 (default) = 500. */
    uint32_t wait_ms;
} tutti_stall_options;

/* Set `size`, and all else to NULL and 0. [out] options */
TUTTI_API void tutti_stall_options_init(tutti_stall_options *options);

/*
 * Ask the coordinator which ops of the client's job wait, and for whom. It asks all agents where
 * they stand, and answers when all have told, or wait_ms are over. The client needs no agent.
 *
 * [in]         options     NULL = all ops, and 500 ms
 * [out, owned] ret_stalls  tutti_stalls_free it, also when it is empty
 *
 * TUTTI_NOT_FOUND           NO_JOB: the coordinator has no job of that name
 * TUTTI_INVALID_ARGUMENT    BAD_WAIT: wait_ms is above 10000; BAD_NAME: of the job or the group
 * TUTTI_RESOURCE_EXHAUSTED  WAITER_LIMIT: too many calls wait at the coordinator. Ask later
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_stalls_find(tutti_client *client, const tutti_stall_options *options,
                                       tutti_stalls *ret_stalls, tutti_error *err);

/*
 * Free what the struct points to, and empty it; the struct itself is the caller's.
 *
 * [in] stalls  NULL is fine, and one that is empty already. Any thread
 */
TUTTI_API void tutti_stalls_free(tutti_stalls *stalls);

/* ------------------------------------------------------------------ the flight recorder */

/*
 * One op of an agent, as its flight recorder has it. Times are nanoseconds since 1970, by the
 * agent's clock; 0 = that has not happened.
 */
typedef struct tutti_flight_entry {
    /* Counts the ops of the agent's process, from 0. */
    uint64_t record_id;
    char group[TUTTI_NAME_MAX + 1];
    /* Of the group, alike on all ranks; 0 = the group was not found. */
    uint64_t group_id;
    /* Of the group: with each epoch its ops are counted from 1 again. 0 = the op never began. */
    uint64_t epoch;
    /* The op's number in its group, from 1, alike on all ranks; 0 = a send or receive. */
    uint64_t sequence;
    /* Of a send or receive: its number among those of this rank on the group, from 1. Else 0. */
    uint64_t p2p_count;
    /* "all_reduce"; "send 0->1", with group ranks. */
    char name[64];
    /*
     * "scheduled": it waits for its turn, its group or its tensors; "started": it runs;
     * "completed"; "failed".
     */
    char state[16];
    /* When the call came; when the op had its tensors and its turn; when it ended. */
    uint64_t created_ns;
    uint64_t started_ns;
    uint64_t completed_ns;
    /* The op's time limit, in milliseconds from created_ns. */
    uint64_t timeout_ms;
    /* Tensors that it takes and makes on this rank. */
    uint32_t input_count;
    uint32_t output_count;
    /* The first of these; dtype TUTTI_DTYPE_NONE = there is none, or it is not known. */
    tutti_spec input;
    tutti_spec output;
    /* Failed: the reason, and the first 199 bytes of the text. Else "". */
    char error_reason[TUTTI_ERROR_REASON_MAX];
    char error_text[200];
} tutti_flight_entry;

/*
 * The last 4096 ops of the agent, or as many as it has had, whatever became of them, of all its
 * clients. libtutti asks page by page, so ops that begin meanwhile are in the list, too.
 *
 * [out, owned] ret_entries  an array of `ret_count`, by record_id; tutti_free it, also when it is
 *                           empty
 * [out]        ret_count
 *
 * Statuses are those common to all calls (tutti/client.h). Each page is limited by the client's
 * timeout_ms.
 */
TUTTI_API tutti_code tutti_flight_get(tutti_client *client, tutti_flight_entry **ret_entries,
                                      size_t *ret_count, tutti_error *err);

/*
 * How far the agent's clock is ahead of this machine's. It measures 8 round trips, and the shortest
 * counts, as NTP does: the agent's time is taken to be that of the middle of the trip.
 *
 * [out] ret_offset_ns  nanoseconds; subtract it from the agent's times to have this machine's.
 *                      Negative = the agent's clock is behind
 * [out] ret_error_ns   nanoseconds: the offset is not further off than that, half of the trip
 *
 * Statuses are those common to all calls (tutti/client.h).
 */
TUTTI_API tutti_code tutti_clock_compare(tutti_client *client, int64_t *ret_offset_ns,
                                         uint64_t *ret_error_ns, tutti_error *err);

/* ------------------------------------------------------------------ what it can compute */

/* What an agent can do with a dtype, on one of its backends. */
typedef struct tutti_capability {
    tutti_dtype dtype;
    /* Bytes of one element. */
    uint32_t element_bytes;
    /* The reduce ops that it takes: bit number TUTTI_REDUCE_SUM and so on. 0 = it is only moved. */
    uint32_t reduce_mask;
    /* "host", "nccl". */
    char backend[32];
} tutti_capability;

/* What an agent can do. Free it with tutti_capabilities_free. */
typedef struct tutti_capabilities {
    /* Tensor bytes in one message, and in one message of a stream. */
    uint64_t inline_bytes_max;
    uint64_t chunk_bytes_max;
    /* Dimensions of a tensor. */
    uint32_t dims_max;
    /* [owned] One row for each dtype of each backend. */
    tutti_capability *rows;
    size_t row_count;
} tutti_capabilities;

/*
 * Ask the client's agent what it can do.
 *
 * [out, owned] ret_capabilities  tutti_capabilities_free it
 *
 * Statuses are those common to all calls (tutti/client.h).
 */
TUTTI_API tutti_code tutti_capabilities_get(tutti_client *client,
                                            tutti_capabilities *ret_capabilities, tutti_error *err);

/* [in, out] capabilities  is zeroed; NULL is fine. Any thread */
TUTTI_API void tutti_capabilities_free(tutti_capabilities *capabilities);

/* ------------------------------------------------------------------ what may be wrong */

/* In tutti_self_check: the system sets no limit. */
#define TUTTI_NO_LIMIT UINT64_MAX

/* Where an agent runs, and what it may use. Longer texts are cut. */
typedef struct tutti_self_check {
    uint32_t rank;
    uint32_t pid;
    /* The name of its machine, its version, and its kernel: "Linux 6.1.0". */
    char host[128];
    char version[32];
    char kernel[160];
    /* Its --device: "cpu", "cuda:0". */
    char device[32];
    /* Where it tells clients to come: the first `address_count`, "host:port" or "unix:/path". */
    char addresses[8][256];
    size_t address_count;
    /* What its data plane uses between hosts: "tcp", "ucx", or what UCX was told to use. */
    char transports[128];
    /* On which network interfaces; "" = on all. */
    char net_devices[128];
    /* InfiniBand and RoCE devices of its machine: the first `rdma_device_count`. */
    char rdma_devices[16][64];
    size_t rdma_device_count;
    /*
     * RLIMIT_MEMLOCK in bytes, as it is, and as far as it may be raised. RDMA needs a large one.
     * TUTTI_NO_LIMIT = none.
     */
    uint64_t memlock_bytes;
    uint64_t memlock_max_bytes;
    /* RLIMIT_NOFILE in descriptors, likewise, and how many are open. */
    uint64_t files;
    uint64_t files_max;
    uint64_t files_open;
    /* Its GPUs, the first `gpu_count`: "cuda:0 NVIDIA H100, GPU-...". */
    char gpus[8][208];
    size_t gpu_count;
} tutti_self_check;

/* Whether an agent reaches another rank on the data plane, the way by which ops move data. */
typedef struct tutti_reach {
    /* Of the job. */
    uint32_t rank;
    bool reached;
    /* Reached: microseconds there and back, with what connecting took, if it had to connect. */
    uint64_t trip_us;
    /* Not reached: what is known of why. Else "". */
    char why[256];
} tutti_reach;

/*
 * Look at an agent, and have it try the ways to other ranks. The call is limited by the client's
 * timeout_ms plus wait_ms.
 *
 * [in]         ranks            ranks of the job to try; its own is passed over. NULL for count 0
 * [in]         count            0 to 1024
 * [in]         wait_ms          milliseconds that trying may take, 1 to 10000; 0 = 2000
 * [out]        ret_self_check
 * [out, owned] ret_reaches      an array of `ret_reach_count`, in the order of `ranks`, without its
 *                               own; tutti_free it, also when it is empty
 * [out]        ret_reach_count
 *
 * A rank that is not reached is no failure of the call: look at each `reached`.
 *
 * TUTTI_INVALID_ARGUMENT     BAD_WAIT: wait_ms is above 10000; LOOKUP_LIMIT: more than 1024 ranks;
 *                            RANK_RANGE: a rank is not below the world size
 * TUTTI_FAILED_PRECONDITION  NOT_JOINED: the agent takes part in no job yet. Wait until it does
 * TUTTI_UNAVAILABLE          STOPPING: the agent stops
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_agent_examine(tutti_client *client, const uint32_t *ranks, size_t count,
                                         uint32_t wait_ms, tutti_self_check *ret_self_check,
                                         tutti_reach **ret_reaches, size_t *ret_reach_count,
                                         tutti_error *err);

/* ------------------------------------------------------------------ which way calls go */

/*
 * Would a stream of this client have a lane (shared memory, docs/decisions/0036-lanes.md) to its
 * agent? A lane is made and given back. Streams that are open already keep the way they have.
 *
 * TUTTI_OK                   calls go through a lane
 *
 * All else says why they go by gRPC; nothing is wrong by it:
 *
 * TUTTI_FAILED_PRECONDITION  LANE_UNWANTED: the environment of this process has TUTTI_NO_LANE
 *                            LANES_OFF: the agent has --no-lane or --no-share
 *                            OTHER_HOST: the agent is on another host; the text has both ids
 *                            NO_AGENT, FORKED
 * TUTTI_RESOURCE_EXHAUSTED   LANE_LIMIT: the agent has --lanes-max of them; or no memory
 * TUTTI_UNAVAILABLE          NO_SHARE_SOCKET: the agent is in another network namespace
 * TUTTI_PERMISSION_DENIED    OTHER_USER: the agent runs as another user, without --share-any-user
 * TUTTI_UNIMPLEMENTED        the agent is older than lanes
 * and the statuses common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_lane_check(tutti_client *client, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
