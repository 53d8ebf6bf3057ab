/* The options of functions and sessions. */
#include "client/cli/cli.h"
#include "client/cli/parse/options.h"
#include "client/cli/session/commands.h"

const cli_option cli_session_options[] = {
    OPTION_RANK,
    OPTION_GROUP,
    {"num-groups", 0, "N", "groups of consecutive workers (default: 1)", NULL},
    {"execute", 'e', "LINES", "run these lines, with a semicolon between, and end", NULL},
    {"linger", 0, "TIME", "keep the session for this time when this ends: 30s, 5m", NULL},
    {"ticket", 0, "FILE",
     "with --linger: where to write what resumes it (default: among your state)", "FILE"},
    {"resume", 0, "FILE", "go on with the session of this ticket", "FILE"},
    {"keep-going", 'k', NULL, "in a script: go on behind a line that failed", NULL},
    OPTION_END,
};

const cli_option cli_call_options[] = {
    OPTION_RANK,
    {"result", 0, "NAME", "the name that gets the result in the agent", NULL},
    {"group", 'g', "NAME", "the group of the function's own collectives", "@groups"},
    OPTION_END,
};
