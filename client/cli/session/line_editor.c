/*
 * Lines with history and completion. libedit and not readline: readline is under the GPL, which a
 * program that is linked with it has to follow. Without libedit a line is what getline gives.
 */
#include "client/cli/session/line_editor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifdef TUTTI_LIBEDIT
#include <editline/readline.h>

#define HISTORY_LINES 1000
#define HISTORY_PATH_MAX 512

static line_editor_fn completer;
static void *completer_arg;
static char *history_path; /* NULL = nowhere to keep it */

/* $XDG_STATE_HOME/tutti/session_history, else ~/.local/state/... */
static char *
find_history(void)
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    char *path = calloc(HISTORY_PATH_MAX, 1);
    int size = -1;

    if (path == NULL) {
        return NULL;
    }
    if (state != NULL && state[0] == '/') {
        size = snprintf(path, HISTORY_PATH_MAX, "%s", state);
    } else if (home != NULL && home[0] == '/') {
        size = snprintf(path, HISTORY_PATH_MAX, "%s/.local/state", home);
    }
    if (size < 0 || size > HISTORY_PATH_MAX - 64) {
        free(path);
        return NULL;
    }
    (void)mkdir(path, 0700);
    (void)strcat(path, "/tutti");
    (void)mkdir(path, 0700);
    (void)strcat(path, "/session_history");
    return path;
}

/* The next word that begins with `text`; libedit asks until it gets NULL, and frees them. */
static char *
next_match(const char *text, int state)
{
    static size_t index;
    static char before[4096];
    const char *word;

    if (state == 0) {
        const size_t start = (size_t)(rl_point - (int)strlen(text));

        index = 0;
        (void)snprintf(before, sizeof(before), "%.*s", (int)(start < sizeof(before) ? start : 0),
                       rl_line_buffer);
    }
    while ((word = completer(completer_arg, before, index++)) != NULL) {
        if (strncmp(word, text, strlen(text)) == 0) {
            return strdup(word);
        }
    }
    return NULL;
}

/* NULL where nothing fits: then libedit offers files. */
static char **
complete_word(const char *text, int start, int end)
{
    (void)start;
    (void)end;
    return rl_completion_matches(text, next_match);
}

void
line_editor_open(line_editor_fn complete, void *arg)
{
    completer = complete;
    completer_arg = arg;
    rl_readline_name = "tutti";
    rl_attempted_completion_function = complete_word;
    using_history();
    stifle_history(HISTORY_LINES);
    history_path = find_history();
    if (history_path != NULL) {
        (void)read_history(history_path);
    }
}

char *
line_editor_read(const char *prompt)
{
    char *line = readline(prompt);

    if (line != NULL && line[strspn(line, " \t")] != '\0') {
        (void)add_history(line);
    }
    return line;
}

void
line_editor_close(void)
{
    if (history_path != NULL) {
        (void)write_history(history_path);
        (void)chmod(history_path, 0600);
        free(history_path);
        history_path = NULL;
    }
}

#else

void
line_editor_open(line_editor_fn complete, void *arg)
{
    (void)complete;
    (void)arg;
}

char *
line_editor_read(const char *prompt)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t size;

    (void)fputs(prompt, stdout);
    (void)fflush(stdout);
    size = getline(&line, &room, stdin);
    if (size < 0) {
        free(line);
        return NULL;
    }
    if (size > 0 && line[size - 1] == '\n') {
        line[size - 1] = '\0';
    }
    return line;
}

void
line_editor_close(void)
{
}

#endif
