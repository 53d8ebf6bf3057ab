/* Private to client/cli: what to do about an error. */
#ifndef TUTTI_CLIENT_CLI_UTIL_ADVICE_H
#define TUTTI_CLIENT_CLI_UTIL_ADVICE_H

#include "tutti/error.h"

/* What to do about it, with this command's options; NULL: nothing more than its text says. */
const char *cli_advice(const tutti_error *err);

#endif
