/* The options of what looks for faults. */
#include "client/cli/options.h"

const cli_option cli_stall_options[] = {
    {"group", 'g', "NAME", "this group alone; all when it is not said", NULL},
    {"older", 0, "TIME", "ops that have waited that long; 1s when it is not said", NULL},
    OPTION_END,
};

const cli_option cli_watch_options[] = {
    {"count", 'n', "N", "end after so many changes", NULL},
    {"after", 0, "EPOCH", "show what changed behind this epoch, too; 0 = all", NULL},
    OPTION_END,
};

const cli_option cli_trace_options[] = {
    {"output", 'o', "FILE", "where to; trace.json when it is not said, - is standard output",
     "FILE"},
    {"from", 0, "FOLDER", "read what agents left in their --flight-dir instead of asking them",
     "FILE"},
    {"around", 0, "GROUP:SEQ", "this op, and what all ranks did around it: world:41", NULL},
    {"window", 0, "TIME", "how long before and after; 1s when it is not said", NULL},
    OPTION_END,
};

const cli_option cli_doctor_options[] = {
    {"wait", 0, "TIME", "how long ranks may take to reach each other; 2s when it is not said",
     NULL},
    OPTION_END,
};

const cli_option cli_health_options[] = {
    {"service", 's', "NAME", "tutti.v1.TensorsService say; the server as a whole when not said",
     NULL},
    OPTION_END,
};

const cli_option cli_explain_options[] = {
    OPTION_RANK,
    OPTION_GROUP,
    {"bytes", 'b', "SIZE", "of the tensor that a rank gives; 1MiB when it is not said", NULL},
    {"dtype", 'd', "DTYPE", "of what is reduced; FP32 when it is not said", NULL},
    {"op", 0, "OP", "how elements become one; sum when it is not said",
     "sum prod min max avg band bor bxor premul_sum"},
    OPTION_END,
};

const cli_option cli_tune_options[] = {
    {"output", 'o', "FILE", "where to; tutti.table when it is not said, - is standard output",
     "FILE"},
    {"time", 0, "TIME", "how long it may take in all; 1m when it is not said", NULL},
    {"ops", 0, "LIST",
     "these alone: all_reduce,broadcast; all that have several algorithms when it "
     "is not said",
     NULL},
    {"begin", 'b', "SIZE", "the smallest tensor; 8 when it is not said", NULL},
    {"end", 'e', "SIZE", "the largest; 16MiB when it is not said", NULL},
    {"load", 0, NULL, "tell the running agents to take the table from now on", NULL},
    OPTION_END,
};
