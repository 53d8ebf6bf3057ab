/* The options of tutti store. */
#include "client/cli/store/store_options.h"

#include "client/cli/cli.h"
#include "client/cli/parse/options.h"

#define OPTION_PREFIX                                                                              \
    {                                                                                              \
        "prefix", 0, "PREFIX", "prefix of the keys: KEY means PREFIX/KEY", NULL                    \
    }
#define OPTION_RAW                                                                                 \
    {                                                                                              \
        "raw", 0, NULL, "print the bytes alone, without a newline", NULL                           \
    }
#define OPTION_NO_WAIT                                                                             \
    {                                                                                              \
        "no-wait", 0, NULL, "do not wait, fail when the key is not there", NULL                    \
    }
#define OPTION_END                                                                                 \
    {                                                                                              \
        NULL, 0, NULL, NULL, NULL                                                                  \
    }

const cli_option store_options[] = {OPTION_PREFIX, OPTION_END};

const cli_option store_get_options[] = {OPTION_PREFIX, OPTION_RAW, OPTION_END};

const cli_option store_set_options[] = {
    {"lease", 0, "TIME",
     "hold the key: it is deleted when this command has been gone for TIME (10s), or ends", NULL},
    {"lease-id", 0, "LEASE", "the key goes with this lease (store lease grant)", NULL},
    OPTION_PREFIX,
    OPTION_END,
};

const cli_option store_lease_keep_options[] = {
    {"hold", 0, NULL, "keep it until --timeout or Ctrl-C, then revoke it", NULL},
    OPTION_END,
};

const cli_option store_take_options[] = {OPTION_PREFIX, OPTION_RAW, OPTION_NO_WAIT, OPTION_END};

const cli_option store_multi_get_options[] = {OPTION_PREFIX, OPTION_NO_WAIT, OPTION_END};

const cli_option store_cas_options[] = {
    {"expect", 'e', "VALUE", "value that the key must have now (default: no such key)", NULL},
    OPTION_PREFIX,
    OPTION_END,
};

const cli_option store_add_options[] = {
    {"by", 0, "N", "number to add (default: 1), may be negative", NULL},
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
    {"as", 0, "RANK", "number of this caller; assigned by name when a caller does not give one",
     NULL},
    {"root", 0, NULL, "all callers are told this caller's number", NULL},
    {"name", 0, "NAME", "name by which callers are put in order", NULL},
    OPTION_PREFIX,
    OPTION_END,
};
