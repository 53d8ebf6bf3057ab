/* Private to collective_all.c and collective_save.c: an op on all ranks of a group. */
#ifndef TUTTI_CLIENT_CLI_COLLECTIVE_COLLECTIVE_RUN_H
#define TUTTI_CLIENT_CLI_COLLECTIVE_COLLECTIVE_RUN_H

#include "client/cli/collective/collective.h"
#include "client/cli/connect/connect.h"
#include "client/cli/npy/npy.h"
#include "client/cli/util/progress.h"

/* What one rank has. Texts are handles or names; "" = none. */
typedef struct collective_rank {
    npy_array array; /* of its file */
    char input[TUTTI_NAME_MAX + 1];
    char output[TUTTI_NAME_MAX + 1];
    bool uploaded; /* the input was made for this op alone */
    bool created;  /* the output was */
    tutti_op_result result;
} collective_rank;

/* One op on all ranks of its group. */
typedef struct collective_run {
    const collective *what;
    cli_all_ranks world;
    collective_rank *ranks;
    uint32_t root;     /* its group rank; of no rank when there is none such */
    const char *label; /* what results are called; NULL = nothing */
    tutti_spec spec;   /* of the root's tensor, where a label is given to a broadcast */
    cli_bar *bar;
} collective_run;

/* The results of an op that went well into the file, or files, of -o. */
tutti_code collective_save(const collective_run *run, const char *path, tutti_error *err);

/* What became of it; [in] path  where results were saved; NULL = they stay in the agents */
void collective_print(const collective_run *run, const char *path);

#endif
