/* The options of what looks for faults. */
#include "client/cli/cli.h"
#include "client/cli/diagnose/commands.h"
#include "client/cli/parse/options.h"

const cli_option cli_stall_options[] = {
    {"group", 'g', "NAME", "ops of this group alone (default: all groups)", "@groups"},
    {"older", 0, "TIME", "ops that have waited that long (default: 1s)", NULL},
    OPTION_END,
};

const cli_option cli_watch_options[] = {
    {"count", 'n', "N", "end after so many changes", NULL},
    {"after", 0, "EPOCH", "show the changes after this epoch, too; 0 = all", NULL},
    OPTION_END,
};

const cli_option cli_top_options[] = {
    {"once", '1', NULL, "show it once; so it is also without a terminal, and with --json", NULL},
    {"interval", 0, "TIME", "how long to wait between two looks (default: 2s)", NULL},
    {"sort", 's', "COLUMN",
     "order of the ranks: rank (default), state, host, ops/s, bytes/s or ops; the key s changes it",
     "rank state host ops/s bytes/s ops"},
    OPTION_END,
};

const cli_option cli_trace_options[] = {
    {"output", 'o', "FILE", "where to (default: trace.json), - is standard output", "FILE"},
    {"from", 0, "FOLDER", "read what agents left in their --flight-dir instead of asking them",
     "FILE"},
    {"around", 0, "GROUP:SEQ", "show this op, and what all ranks did around it: world:41", NULL},
    {"window", 0, "TIME", "how long before and after that op (default: 1s)", NULL},
    OPTION_END,
};

const cli_option cli_doctor_options[] = {
    {"wait", 0, "TIME", "how long ranks may take to reach each other (default: 2s)", NULL},
    OPTION_END,
};

const cli_option cli_health_options[] = {
    {"service", 's', "NAME", "tutti.v1.TensorsService say (default: the server as a whole)", NULL},
    OPTION_END,
};

const cli_option cli_explain_options[] = {
    OPTION_RANK,
    OPTION_GROUP,
    {"bytes", 'b', "SIZE", "size of the tensor that a rank gives (default: 1MiB)", NULL},
    {"dtype", 'd', "DTYPE", "dtype of the tensor (default: FP32)", NULL},
    {"op", 0, "OP",
     "reduction: sum, prod, min, max, avg, band, bor, bxor, premul_sum (default: sum)",
     "sum prod min max avg band bor bxor premul_sum"},
    OPTION_END,
};

const cli_option cli_tune_options[] = {
    {"output", 'o', "FILE", "where to (default: tutti.table), - is standard output", "FILE"},
    {"time", 0, "TIME", "how long the measurement may take in all (default: 1m)", NULL},
    {"ops", 0, "LIST",
     "ops to measure: all_reduce,broadcast (default: all that have several algorithms)", NULL},
    {"begin", 'b', "SIZE", "the smallest tensor (default: 8)", NULL},
    {"end", 'e', "SIZE", "the largest (default: 16MiB)", NULL},
    {"load", 0, NULL, "tell the running agents to take the table from now on", NULL},
    OPTION_END,
};
