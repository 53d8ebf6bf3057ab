/*
 * Diagnosis: who waits for whom, and what each agent did last.
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
 * Threads, errors and outputs are those of tutti/client.h.
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

#define TUTTI_OP_WORDS_MAX 128 /* bytes of an op in words, with the NUL */

/* ------------------------------------------------------------------ ops that wait */

/* Where a rank stands with an op. The numbers of tutti.v1.Standing. */
typedef enum tutti_standing {
    TUTTI_STANDING_ARRIVED = 1, /* it is in the op */
    TUTTI_STANDING_ABSENT = 2,  /* it answers, and nobody has called the op there */
    TUTTI_STANDING_SLOW = 3,   /* it answers, and is behind: in an earlier op, or just out of one */
    TUTTI_STANDING_QUEUED = 4, /* it answers, and the call waits for its tensors or its turn */
    TUTTI_STANDING_SILENT = 5, /* it does not answer: stopped, starved or cut off */
    TUTTI_STANDING_LOST = 6,   /* its process is gone */
} tutti_standing;

/* "absent". Static. */
TUTTI_API const char *tutti_standing_name(tutti_standing standing);

typedef struct tutti_stalled_rank {
    uint32_t rank;
    tutti_standing standing;
    bool arrived;
    uint64_t last_sequence; /* what it did last on the group, or does instead */
    char last_op[TUTTI_OP_WORDS_MAX];
    uint64_t last_ms;   /* since that ended, or was called */
    uint64_t silent_ms; /* since its last sign of life */
    char reason[256];   /* lost: why */
} tutti_stalled_rank;

/* An op that has not ended. */
typedef struct tutti_stall {
    char group[TUTTI_NAME_MAX + 1];
    uint64_t sequence; /* 0 = a send or receive */
    char op[TUTTI_OP_WORDS_MAX];
    uint64_t waited_ms; /* since the first call of it */
    uint32_t group_size;
    uint32_t arrived_count;
    uint32_t missing_count;
    uint32_t *arrived; /* ranks of the job: the first 1024; owned by the tutti_stalls */
    size_t arrived_listed;
    tutti_stalled_rank *ranks; /* who is missing, or silent: the first 64; likewise */
    size_t rank_count;
    char text[1024]; /* all of that as a sentence */
} tutti_stall;

typedef struct tutti_stalls {
    char job[TUTTI_NAME_MAX + 1];
    uint64_t epoch;
    uint32_t world_size;
    tutti_stall *stalls; /* the oldest op of each group; at most 256 */
    size_t count;
    tutti_stalled_rank *ranks; /* who is silent or lost, the first 64, needed by an op or not */
    size_t rank_count;
    uint32_t silent_count;
    uint32_t lost_count;
} tutti_stalls;

/* Begin with tutti_stall_options_init. */
typedef struct tutti_stall_options {
    size_t size;            /* of this struct: set by init */
    const char *group;      /* NULL = all */
    uint64_t older_than_ms; /* only ops that have waited that long */
    uint32_t wait_ms;       /* how long agents may take to answer, at most 10000; 0 = 500 */
} tutti_stall_options;

TUTTI_API void tutti_stall_options_init(tutti_stall_options *options);

/*
 * Ask the coordinator which ops wait; it asks all agents where they stand.
 *
 * [in]         options     NULL = all ops
 * [out, owned] ret_stalls  tutti_stalls_free it
 *
 * TUTTI_NOT_FOUND         NO_JOB
 * TUTTI_INVALID_ARGUMENT  BAD_WAIT
 */
TUTTI_API tutti_code tutti_stalls_find(tutti_client *client, const tutti_stall_options *options,
                                       tutti_stalls *ret_stalls, tutti_error *err);
TUTTI_API void tutti_stalls_free(tutti_stalls *stalls); /* what it points to; NULL is fine */

/* ------------------------------------------------------------------ the flight recorder */

/* One of the last 4096 ops of an agent. Times: nanoseconds since 1970 on the agent's clock. */
typedef struct tutti_flight_entry {
    uint64_t record_id; /* counts the ops of the agent's process from 0 */
    char group[TUTTI_NAME_MAX + 1];
    uint64_t group_id;  /* 0 = it was never found */
    uint64_t epoch;     /* of the group: with each, sequences begin with 1 again */
    uint64_t sequence;  /* 0 = a send or receive */
    uint64_t p2p_count; /* of those: the how manieth of this rank on the group; else 0 */
    char name[64];      /* "all_reduce", "send 0->1" */
    char state[16];     /* "scheduled", "started", "completed", "failed" */
    uint64_t created_ns;
    uint64_t started_ns; /* 0 = not yet, and so on */
    uint64_t completed_ns;
    uint64_t timeout_ms;
    uint32_t input_count; /* tensors; `input` is the first */
    uint32_t output_count;
    tutti_spec input;
    tutti_spec output;
    char error_reason[TUTTI_ERROR_REASON_MAX];
    char error_text[200];
} tutti_flight_entry;

/* [out, owned] ret_entries  by record_id; tutti_free it */
TUTTI_API tutti_code tutti_flight_get(tutti_client *client, tutti_flight_entry **ret_entries,
                                      size_t *ret_count, tutti_error *err);

/*
 * How far the agent's clock is ahead of ours, by a few round trips of which the shortest counts.
 *
 * [out] ret_offset_ns  subtract it from the agent's times
 * [out] ret_error_ns   it is not further off than that
 */
TUTTI_API tutti_code tutti_clock_compare(tutti_client *client, int64_t *ret_offset_ns,
                                         uint64_t *ret_error_ns, tutti_error *err);

/* ------------------------------------------------------------------ what may be wrong */

#define TUTTI_NO_LIMIT UINT64_MAX

/* Where an agent runs, and what it may use. */
typedef struct tutti_self_check {
    uint32_t rank;
    uint32_t pid;
    char host[128];
    char version[32];
    char kernel[160];
    char device[32];
    char addresses[8][256]; /* where it tells clients to come */
    size_t address_count;
    char transports[128]; /* of the data plane, "" = all */
    char net_devices[128];
    char rdma_devices[16][64];
    size_t rdma_device_count;
    uint64_t memlock_bytes; /* in force; TUTTI_NO_LIMIT, and so on */
    uint64_t memlock_max_bytes;
    uint64_t files;
    uint64_t files_max;
    uint64_t files_open;
    char gpus[8][208]; /* "cuda:0 NVIDIA H100, GPU-..." */
    size_t gpu_count;
} tutti_self_check;

/* Whether it reaches another rank on the data plane. */
typedef struct tutti_reach {
    uint32_t rank;
    bool reached;
    uint64_t trip_us; /* there and back, with what connecting took */
    char why[256];    /* not reached */
} tutti_reach;

/*
 * Look at an agent, and have it try the ways to other ranks.
 *
 * [in]         ranks        of the job, at most 1024; its own is passed over
 * [in]         wait_ms      how long that may take, at most 10000; 0 = 2000
 * [out, owned] ret_reaches  in the order of `ranks`; tutti_free it
 *
 * TUTTI_INVALID_ARGUMENT  BAD_WAIT, LOOKUP_LIMIT, RANK_RANGE
 */
TUTTI_API tutti_code tutti_agent_examine(tutti_client *client, const uint32_t *ranks, size_t count,
                                         uint32_t wait_ms, tutti_self_check *ret_self_check,
                                         tutti_reach **ret_reaches, size_t *ret_reach_count,
                                         tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
