/*
 * Private to client/cli/session: tickets, files with which a session that lingers is resumed.
 *
 *     7f3a9c12e4b07d55.00112233445566778899aabbccddeeff
 *     x 1
 *     sum 2
 *
 * The first line has the session's id and its secret, as Session.ticket of Python has it; the others
 * have the names of registers, and may be missing. The file is its user's alone.
 */
#ifndef TUTTI_CLIENT_CLI_SESSION_TICKET_H
#define TUTTI_CLIENT_CLI_SESSION_TICKET_H

#include "client/cli/session/shell.h"

/* What a ticket says, without the names. */
typedef struct ticket {
    char id[TUTTI_SESSION_ID_MAX + 1];
    unsigned char secret[TUTTI_SESSION_SECRET_BYTES];
} ticket;

/*
 * Read a ticket; its names become the shell's variables.
 *
 * TUTTI_NOT_FOUND            there is no such file
 * TUTTI_FAILED_PRECONDITION  others can read it
 * TUTTI_INVALID_ARGUMENT     it is no ticket
 */
tutti_code ticket_read(const char *path, shell *self, ticket *ret, tutti_error *err);

/* Write the ticket of the shell's session with its variables, to shell->ticket, as a whole. */
tutti_code ticket_write(const shell *self, tutti_error *err);

/* [out] ret  $XDG_STATE_HOME/tutti/session-ID, else under ~/.local/state; its folders are made */
tutti_code ticket_default_path(const char *id, char ret[PATH_MAX], tutti_error *err);

#endif
