/* Private to coll/host: a plan at work. */
#ifndef TUTTI_COLL_HOST_RUN_H
#define TUTTI_COLL_HOST_RUN_H

#include "coll/host/exchange.h"
#include "coll/host/plan.h"

/* Made by tutti_coll_host_run, constant from then on; in a stage of the op's state. */
typedef struct host_run {
    host_plan plan;
    bool blocks;
    size_t *rounds; /* [rounds + 2] where the steps of each begin */
    uint64_t bytes; /* of the tensor, or a block */
    uint64_t chunk; /* of these */
    uint32_t chunks;
    uint32_t slots; /* chunks whose stage and scratch are in use at once */
    uint64_t element;
    unsigned char *data;
    unsigned char *stage;
    uint64_t data_slot; /* bytes */
    uint64_t stage_slot;
} host_run;

/* Its state is what tutti_coll_host_run (plan.h) makes. */
tutti_code tutti_host_run_advance(tutti_coll_op *op, bool *ret_done, tutti_error *err);

#endif
