/* Private to client/cli: options that several commands have. */
#ifndef TUTTI_CLIENT_CLI_PARSE_OPTIONS_H
#define TUTTI_CLIENT_CLI_PARSE_OPTIONS_H

#include "client/cli/cli.h"

#define OPTION_RANK                                                                                \
    {                                                                                              \
        "rank", 'r', "R", "call the agent of this rank", NULL                                      \
    }
#define OPTION_RANK_ONE                                                                            \
    {                                                                                              \
        "rank", 'r', "R",                                                                          \
            "make the call of this rank alone; other programs make the calls of the other ranks",  \
            NULL                                                                                   \
    }
#define OPTION_GROUP                                                                               \
    {                                                                                              \
        "group", 'g', "NAME", "the group (default: world)", "@groups"                              \
    }
#define OPTION_ASYNC                                                                               \
    {                                                                                              \
        "async", 0, NULL, "with --rank: do not wait, print the id of a work for tutti wait", NULL  \
    }
#define OPTION_INTO                                                                                \
    {                                                                                              \
        "into", 0, "HANDLE", "write into this tensor instead of making one", NULL                  \
    }
#define OPTION_END                                                                                 \
    {                                                                                              \
        NULL, 0, NULL, NULL, NULL                                                                  \
    }

#endif
