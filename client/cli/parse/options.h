/* Options that several commands have, and the tables of those that collectives have. */
#ifndef TUTTI_CLIENT_CLI_PARSE_OPTIONS_H
#define TUTTI_CLIENT_CLI_PARSE_OPTIONS_H

#include "client/cli/cli.h"

#define OPTION_RANK                                                                                \
    {                                                                                              \
        "rank", 'r', "R", "speak to the agent of this rank", NULL                                  \
    }
#define OPTION_RANK_ONE                                                                            \
    {                                                                                              \
        "rank", 'r', "R", "one call, on this rank; the others come from elsewhere", NULL           \
    }
#define OPTION_GROUP                                                                               \
    {                                                                                              \
        "group", 'g', "NAME", "the group (default: world)", "@groups"                              \
    }
#define OPTION_ASYNC                                                                               \
    {                                                                                              \
        "async", 0, NULL, "with --rank: do not wait; prints a work for tutti wait", NULL           \
    }
#define OPTION_INTO                                                                                \
    {                                                                                              \
        "into", 0, "HANDLE", "write into this tensor instead of making one", NULL                  \
    }
#define OPTION_END                                                                                 \
    {                                                                                              \
        NULL, 0, NULL, NULL, NULL                                                                  \
    }

/* collective_options.c */
extern const cli_option cli_all_reduce_options[];
extern const cli_option cli_reduce_options[];
extern const cli_option cli_reduce_scatter_options[];
extern const cli_option cli_broadcast_options[];
extern const cli_option cli_all_gather_options[];
extern const cli_option cli_gather_options[];
extern const cli_option cli_scatter_options[];
extern const cli_option cli_all_to_all_options[];
extern const cli_option cli_permute_options[];
extern const cli_option cli_barrier_options[];
extern const cli_option cli_send_options[];
extern const cli_option cli_recv_options[];
extern const cli_option cli_infer_options[];
extern const cli_option cli_batch_options[];

/* group_options.c */
extern const cli_option cli_group_create_options[];
extern const cli_option cli_group_split_options[];
extern const cli_option cli_group_translate_options[];
extern const cli_option cli_mesh_create_options[];
extern const cli_option cli_mesh_slice_options[];

/* cluster_options.c */
extern const cli_option cli_start_options[];
extern const cli_option cli_name_options[];
extern const cli_option cli_logs_options[];
extern const cli_option cli_run_options[];

/* diagnose_options.c */
extern const cli_option cli_explain_options[];
extern const cli_option cli_tune_options[];
extern const cli_option cli_stall_options[];
extern const cli_option cli_watch_options[];
extern const cli_option cli_trace_options[];
extern const cli_option cli_doctor_options[];
extern const cli_option cli_health_options[];

/* security_options.c */
extern const cli_option cli_certs_options[];
extern const cli_option cli_token_options[];
extern const cli_option cli_token_key_options[];

/* op.c */
extern const cli_option cli_bench_options[];

#endif
