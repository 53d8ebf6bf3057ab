/* What the words of `tutti run` say. */
#ifndef TUTTI_CLIENT_CLI_CLUSTER_RUN_OPTIONS_H
#define TUTTI_CLIENT_CLI_CLUSTER_RUN_OPTIONS_H

#include "client/cli/cli.h"

typedef struct run_options {
    uint32_t count;           /* of programs here; 0 = as many as --cluster has ranks */
    const char *memory_limit; /* of agents we start; NULL = theirs */
    char **devices;           /* `count` of them; NULL = the agents' default */
    bool spread;              /* the job has ranks on other hosts; what follows is for it alone */
    uint32_t node_count;      /* 0 = the ranks here are given: rank_start, world_size */
    uint32_t node_rank;
    uint32_t rank_start;
    uint32_t world_size;
    const char *coordinator;
    char coordinator_host[256]; /* of that address */
    const char *job;
    const char *listen; /* NULL = where other hosts reach us */
    bool insecure;
} run_options;

/* False: they make no sense, which was said. [out, owned] ret  run_options_free it */
bool run_options_read(cli *self, run_options *ret);
void run_options_free(run_options *options);

#endif
