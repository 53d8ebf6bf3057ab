/* Private to client/cli: progress bars and status lines. */
#ifndef TUTTI_CLIENT_CLI_UTIL_PROGRESS_H
#define TUTTI_CLIENT_CLI_UTIL_PROGRESS_H

#include "client/cli/cli.h"

/* A bar on standard error, when that is a terminal and the thing takes long. Any thread. */
typedef struct cli_bar cli_bar;

/* `what` is borrowed. Never NULL: when nothing is to be drawn, nothing is. */
cli_bar *cli_bar_new(const cli *self, const char *what, uint64_t total_bytes);
void cli_bar_free(cli_bar *bar);

/* One transfer of those that the bar counts together; as `arg` of cli_bar_moved. */
typedef struct cli_bar_part {
    cli_bar *bar;
    uint64_t done_bytes;
} cli_bar_part;

bool cli_bar_moved(void *part, uint64_t done_bytes, uint64_t total_bytes); /* tutti_progress_fn */

/* The monotonic clock. */
uint64_t cli_now_ms(void);

/* A line that is written over: "2 of 4 agents have joined". */
void cli_status_line(const cli *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void cli_status_clear(const cli *self);

#endif
