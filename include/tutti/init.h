/*
 * Init addresses, as PyTorch's init_method: where a job meets, and as which rank of how many. Part
 * of tutti/client.h, which says what holds for all functions.
 *
 *     env://                                RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
 *     tcp://host:port?rank=0&world_size=4   the coordinator's address
 *     file:///path?rank=0&world_size=4      a file that holds it: tutti-coordinator --port-file
 *
 * tutti_connect takes one where it takes an agent's address: it waits for the file and for the
 * rank, connects to that rank's agent, and fails with INVALID_ARGUMENT WORLD_SIZE when the job has
 * another.
 */
#ifndef TUTTI_INIT_H
#define TUTTI_INIT_H

#include <stdint.h>

#include "tutti/code.h"
#include "tutti/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_init_info {
    char scheme[8]; /* "env", "tcp", "file" */
    uint32_t rank;
    uint32_t world_size;
    char coordinator[256]; /* "" = its file is not there yet */
    char path[1024];       /* of that file; "" = none */
} tutti_init_info;

/* What an address says, without connecting. TUTTI_INVALID_ARGUMENT BAD_URL: what is missing */
TUTTI_API tutti_code tutti_init_parse(const char *url, tutti_init_info *ret_info, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
