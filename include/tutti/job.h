/* The job and its ranks. */
#ifndef TUTTI_JOB_H
#define TUTTI_JOB_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_job_info {
    char name[TUTTI_NAME_MAX + 1];
    uint64_t id;
    uint32_t world_size;
    uint64_t epoch; /* 0 = the world was never complete yet */
    uint32_t alive_count;
    uint32_t lost_count;
    uint32_t group_count;
    uint64_t since_ms;
} tutti_job_info;

TUTTI_API tutti_code tutti_job_get(tutti_client *client, tutti_job_info *ret_info,
                                   tutti_error *err);

typedef enum tutti_rank_state {
    TUTTI_RANK_FREE = 1,
    TUTTI_RANK_WAITING = 2,
    TUTTI_RANK_ALIVE = 3,
    TUTTI_RANK_LOST = 4,
} tutti_rank_state;

typedef struct tutti_rank_info {
    uint32_t rank;
    tutti_rank_state state;
    uint64_t incarnation;
    uint64_t joined_epoch;
    uint64_t since_ms;
    char reason[256]; /* of a lost one */
    char host[128];
    uint32_t pid;
    char device[32];
    char version[32];
    char address[256]; /* the one to take from here: on its own host its Unix socket, if any */
} tutti_rank_info;

/* [in] ranks  1 to 1024; [out] ret_infos  as many, in that order */
TUTTI_API tutti_code tutti_ranks_get(tutti_client *client, const uint32_t *ranks, size_t count,
                                     tutti_rank_info *ret_infos, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
