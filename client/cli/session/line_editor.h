/* Private to client/cli/session: a line from who types, with history and completion where the
 * program was built with libedit. */
#ifndef TUTTI_CLIENT_CLI_SESSION_LINE_EDITOR_H
#define TUTTI_CLIENT_CLI_SESSION_LINE_EDITOR_H

#include <stddef.h>

/*
 * Words that a line may go on with.
 *
 * [in] before  the line up to the word
 * [in] index   0, 1, ...
 *
 * Returns [borrowed] the index-th of them, beginning with `word` or not; NULL = there are no more.
 */
typedef const char *(*line_editor_fn)(void *arg, const char *before, size_t index);

/* One at a time in a process: libedit has no more. */
void line_editor_open(line_editor_fn complete, void *arg);

/* [out, owned] Returns the line without its end, free() it; NULL = the input has ended. */
char *line_editor_read(const char *prompt);

/* Keeps the history. */
void line_editor_close(void);

#endif
