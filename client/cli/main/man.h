/* Private to client/cli: man pages, from the table of commands. */
#ifndef TUTTI_CLIENT_CLI_MAIN_MAN_H
#define TUTTI_CLIENT_CLI_MAIN_MAN_H

#include "client/cli/cli.h"

/* Write tutti.1 and a page for each command into a folder. */
tutti_code cli_man_write(const char *folder, tutti_error *err);
void cli_man_page(const cli_command *command, FILE *file); /* NULL = tutti.1 */

#endif
