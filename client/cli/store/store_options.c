/* The options of tutti store. */
#include "client/cli/store/store_options.h"

#include "client/cli/cli.h"
#include "client/cli/parse/options.h"

#define OPTION_PREFIX                                                                              \
    {                                                                                              \
        "prefix", 0, "PREFIX", "of the keys: KEY means PREFIX/KEY", NULL                           \
    }
#define OPTION_RAW                                                                                 \
    {                                                                                              \
        "raw", 0, NULL, "print the bytes alone, without a new line", NULL                          \
    }
#define OPTION_NO_WAIT                                                                             \
    {                                                                                              \
        "no-wait", 0, NULL, "fail when it is not there now", NULL                                  \
    }
#define OPTION_END                                                                                 \
    {                                                                                              \
        NULL, 0, NULL, NULL, NULL                                                                  \
    }

const cli_option store_options[] = {OPTION_PREFIX, OPTION_END};

const cli_option store_get_options[] = {OPTION_PREFIX, OPTION_RAW, OPTION_END};

const cli_option store_take_options[] = {OPTION_PREFIX, OPTION_RAW, OPTION_NO_WAIT, OPTION_END};

const cli_option store_multi_get_options[] = {OPTION_PREFIX, OPTION_NO_WAIT, OPTION_END};

const cli_option store_cas_options[] = {
    {"expect", 'e', "VALUE", "what must be there (default: no key at all)", NULL},
    OPTION_PREFIX,
    OPTION_END,
};

const cli_option store_add_options[] = {
    {"by", 0, "N", "how much (default: 1), may be negative", NULL},
    OPTION_PREFIX,
    OPTION_END,
};

const cli_option store_watch_options[] = {
    {"count", 'n', "N", "end after so many changes", NULL},
    OPTION_PREFIX,
    OPTION_END,
};

const cli_option store_meet_options[] = {
    {"count", 'n', "N", "how many callers meet (default: 2)", NULL},
    {"as", 0, "RANK", "the number to have; assigned by name when one caller does not say it", NULL},
    {"root", 0, NULL, "all are told this caller's number", NULL},
    {"name", 0, "NAME", "by which callers are put in order", NULL},
    OPTION_PREFIX,
    OPTION_END,
};
