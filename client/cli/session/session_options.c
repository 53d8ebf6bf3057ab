/* The options of functions and sessions. */
#include "client/cli/cli.h"
#include "client/cli/parse/options.h"
#include "client/cli/session/commands.h"

const cli_option cli_session_options[] = {
    OPTION_RANK,
    OPTION_GROUP,
    {"num-groups", 0, "N", "groups of consecutive workers (default: 1)", NULL},
    {"execute", 'e', "LINES", "run these lines, with a semicolon between, and end", NULL},
    {"keep-going", 'k', NULL, "in a script: go on behind a line that failed", NULL},
    OPTION_END,
};

const cli_option cli_call_options[] = {
    OPTION_RANK,
    {"result", 0, "NAME", "the name that gets the result in the agent", NULL},
    {"group", 'g', "NAME", "the group of the function's own collectives", "@groups"},
    OPTION_END,
};
