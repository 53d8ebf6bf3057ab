/* The options of tutti store, for the table of commands. */
#ifndef TUTTI_CLIENT_CLI_STORE_STORE_OPTIONS_H
#define TUTTI_CLIENT_CLI_STORE_STORE_OPTIONS_H

#include "client/cli/cli.h"

extern const cli_option store_options[];
extern const cli_option store_get_options[];
extern const cli_option store_set_options[];
extern const cli_option store_lease_keep_options[];
extern const cli_option store_take_options[];
extern const cli_option store_multi_get_options[];
extern const cli_option store_cas_options[];
extern const cli_option store_add_options[];
extern const cli_option store_watch_options[];
extern const cli_option store_meet_options[];

#endif
