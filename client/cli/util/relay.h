/* What programs print, line by line, with their rank in front. */
#ifndef TUTTI_CLIENT_CLI_UTIL_RELAY_H
#define TUTTI_CLIENT_CLI_UTIL_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define RELAY_LINE_MAX 65536 /* longer lines are passed on in pieces */

/* One output of one program. */
typedef struct relay {
    int descriptor; /* the end of its pipe that we read, not blocking; -1 = closed */
    FILE *to;       /* borrowed */
    char prefix[16];
    char *line; /* what has no line end yet */
    size_t size;
    bool cut; /* the beginning of this line was passed on already */
} relay;

/*
 * Make the pipe. [out, owned] ret_input  where the program writes to: close it once it is started
 * [in] prefix  "" = bytes are passed on as they come. False: errno says why
 */
bool relay_open(relay *self, FILE *to, const char *prefix, int *ret_input);

/* Pass on what is there. When the program has closed its end, so do we. */
void relay_move(relay *self);

/* Pass on the rest, an unfinished line too; no more comes. Zeroed with descriptor -1 is fine. */
void relay_close(relay *self);

#endif
