/* tutti session: one program drives all agents of a group, line by line. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/session/commands.h"
#include "client/cli/session/line_editor.h"
#include "client/cli/session/shell.h"
#include "client/cli/session/ticket.h"
#include "client/cli/util/output.h"
#include "client/cli/util/values.h"

/* ------------------------------------------------------------------------------ prompt */

/* Names of functions are asked for once, when somebody first completes a call. */
typedef struct prompt {
    shell *shell;
    tutti_function_info *functions;
    size_t function_count;
    bool asked;
} prompt;

static void
ask_functions(prompt *self)
{
    if (!self->asked) {
        self->asked = true;
        (void)tutti_function_list(self->shell->client, &self->functions, &self->function_count,
                                  NULL);
    }
}

/* The command of the line so far: behind "NAME =" and the last semicolon; NULL = it is to come. */
static const shell_command *
command_before(const char *before)
{
    const char *last = strrchr(before, ';');
    const shell_command *found = NULL;
    const char *rest;
    shell_line line;
    tutti_error err;

    if (shell_line_parse(last == NULL ? before : last + 1, &rest, &line, &err) == TUTTI_OK &&
        line.command != NULL) {
        found = shell_find_command(line.command);
    }
    shell_line_free(&line);
    return found;
}

/* The index-th key of a command, as it is typed. */
static const char *
key_at(const shell_command *command, size_t index)
{
    static char word[32];
    const char *key = command->keys;

    for (; *key != '\0' && index > 0; index--) {
        key += strcspn(key, " ");
        key += *key == ' ' ? 1 : 0;
    }
    if (*key == '\0') {
        return NULL;
    }
    (void)snprintf(word, sizeof(word), "%.*s", (int)strcspn(key, " "), key);
    if (strcmp(word, "in_group") != 0 && strcmp(word, "worker0_only") != 0) {
        (void)strcat(word, "=");
    }
    return word;
}

/* Commands first; behind one its keys, names of the session and, of a call, functions. */
static const char *
complete_line(void *arg, const char *before, size_t index)
{
    prompt *self = arg;
    const shell *lines = self->shell;
    const shell_command *command = command_before(before);
    size_t keys = 0;

    if (command == NULL) {
        while (index > 0 && shell_commands[keys].name != NULL) {
            keys++;
            index--;
        }
        return shell_commands[keys].name;
    }
    if (index < lines->variable_count) {
        return lines->variables[index].name;
    }
    index -= lines->variable_count;
    while (key_at(command, keys) != NULL) {
        keys++;
    }
    if (index < keys) {
        return key_at(command, index);
    }
    index -= keys;
    if (strcmp(command->name, "call") == 0 || strcmp(command->name, "get_function") == 0) {
        ask_functions(self);
        return index < self->function_count ? self->functions[index].name : NULL;
    }
    return NULL;
}

/* A line that fails does not end it. */
static void
run_prompt(shell *self)
{
    const tutti_session_info *info = tutti_session_describe(self->session);
    prompt one = {.shell = self};
    char text[64];
    char *line;

    (void)snprintf(text, sizeof(text), "tutti (%" PRIu32 " workers)> ", info->worker_count);
    cli_say(self->tool,
            "session %s of %" PRIu32 " workers, led by worker %" PRIu32
            "; help lists the commands, Ctrl-D ends it",
            info->id, info->worker_count, info->leader);
    line_editor_open(complete_line, &one);
    while (!self->over && (line = line_editor_read(text)) != NULL) {
        self->number++;
        self->failed = false;
        (void)shell_run(self, line);
        (void)fflush(self->tool->out);
        free(line);
    }
    line_editor_close();
    tutti_free(one.functions);
    self->failed = false;
}

/* ------------------------------------------------------------------------------ script */

static tutti_code
run_script(shell *self, FILE *file, tutti_error *err)
{
    const bool keep_going = cli_flag(self->tool, "keep-going");
    char *line = NULL;
    size_t room = 0;
    ssize_t size;

    self->script = true;
    while (!self->over && (keep_going || !self->failed) &&
           (size = getline(&line, &room, file)) >= 0) {
        self->number++;
        if (size > SHELL_LINE_MAX) {
            free(line);
            return cli_fail(err, TUTTI_INVALID_ARGUMENT, "line %" PRIu64 ": above %d bytes",
                            self->number, SHELL_LINE_MAX);
        }
        (void)shell_run(self, line);
        (void)fflush(self->tool->out); /* a program may write the next line when it has read this */
    }
    free(line);
    return ferror(file) != 0 ? cli_fail_errno(err, errno, "could not read the script") : TUTTI_OK;
}

static tutti_code
run_file(shell *self, const char *path, tutti_error *err)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    tutti_code code;

    if (file == NULL) {
        return cli_fail_errno(err, errno, "could not open %.200s", path);
    }
    code = run_script(self, file, err);
    if (file != stdin) {
        (void)fclose(file);
    }
    return code;
}

/* ------------------------------------------------------------------------------ all of it */

static tutti_code
run_shell(shell *self, tutti_error *err)
{
    const char *lines = cli_value(self->tool, "execute");
    const bool typed = self->tool->argument_count == 0 && isatty(STDIN_FILENO) == 1;
    tutti_code code = TUTTI_OK;

    if (lines != NULL) {
        self->number = 1;
        self->script = true;
        (void)shell_run(self, lines);
    } else if (typed) {
        run_prompt(self);
    } else {
        code = run_file(self, self->tool->argument_count > 0 ? self->tool->arguments[0] : "-", err);
    }
    shell_settle(self);
    return code;
}

/* A new session, or that of a ticket, which then has its names. */
static tutti_code
open_or_resume(shell *self, const tutti_session_options *options, tutti_error *err)
{
    const char *path = cli_value(self->tool, "resume");
    ticket known;
    tutti_code code;

    if (path == NULL) {
        return tutti_session_open(self->client, options, &self->session, err);
    }
    code = ticket_read(path, self, &known, err);
    return code == TUTTI_OK ? tutti_session_resume(self->client, known.id, known.secret, options,
                                                   &self->session, err)
                            : code;
}

/* From here on, so that who is cut off has a ticket. */
static tutti_code
begin_lingering(shell *self, tutti_error *err)
{
    const tutti_session_info *info = tutti_session_describe(self->session);
    const char *path = cli_value(self->tool, "ticket");

    path = path == NULL ? cli_value(self->tool, "resume") : path;
    if (info->secret_bytes == 0) {
        return cli_fail(err, TUTTI_FAILED_PRECONDITION,
                        "the session would not linger: --session-linger of its agents is 0");
    }
    if (path != NULL) {
        (void)snprintf(self->ticket, sizeof(self->ticket), "%s", path);
    } else if (ticket_default_path(info->id, self->ticket, err) != TUTTI_OK) {
        return err->code;
    }
    return ticket_write(self, err);
}

static tutti_code
open_shell(cli *tool, shell *ret, int64_t num_groups, tutti_error *err)
{
    tutti_session_options options;
    tutti_code code = cli_connect(tool, NULL, &ret->client, err);

    tutti_session_options_init(&options);
    options.group = cli_value(tool, "group");
    options.num_groups = (uint32_t)num_groups;
    options.linger = ret->linger_ms > 0;
    options.linger_ms = ret->linger_ms;
    if (code == TUTTI_OK) {
        code = open_or_resume(ret, &options, err);
    }
    if (code == TUTTI_OK && options.linger) {
        code = begin_lingering(ret, err);
    }
    return code;
}

/* How to go on; the ticket of a session that is over is of no use. */
static void
say_how_to_go_on(const shell *self)
{
    const char *path = cli_value(self->tool, "resume");
    tutti_error err;

    if (self->ticket[0] == '\0') {
        if (path != NULL) {
            (void)unlink(path);
        }
        return;
    }
    if (ticket_write(self, &err) != TUTTI_OK) {
        (void)cli_failed(self->tool, NULL, &err);
        return;
    }
    (void)fprintf(self->tool->err,
                  "tutti: session %s lingers for %g s; go on with: tutti session --resume %s\n",
                  tutti_session_describe(self->session)->id, self->linger_ms / 1000.0,
                  self->ticket);
}

static bool
read_linger(cli *self, shell *ret)
{
    const char *text = cli_value(self, "linger");

    if (text != NULL && (!cli_parse_ms(text, &ret->linger_ms) || ret->linger_ms == 0)) {
        (void)cli_usage(self, "--linger takes a time, 30s or 5m, and not \"%s\"", text);
        return false;
    }
    if (text == NULL && cli_value(self, "ticket") != NULL) {
        (void)cli_usage(self, "--ticket is for sessions that linger: give --linger TIME");
        return false;
    }
    if (cli_value(self, "resume") != NULL &&
        (cli_value(self, "group") != NULL || cli_value(self, "num-groups") != NULL)) {
        (void)cli_usage(self, "a session that is resumed has its own group and --num-groups");
        return false;
    }
    return true;
}

int
cli_session(cli *self)
{
    shell one = {.tool = self};
    int64_t num_groups = 1;
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank) ||
        !cli_number(self, "num-groups", 1, TUTTI_RANKS_MAX, &num_groups)) {
        return CLI_USAGE;
    }
    if (!read_linger(self, &one)) {
        return CLI_USAGE;
    }
    if (self->argument_count > 0 && cli_value(self, "execute") != NULL) {
        return cli_usage(self, "a file and --execute: give one of them");
    }
    code = open_shell(self, &one, num_groups, &err);
    if (code == TUTTI_OK) {
        code = run_shell(&one, &err);
        say_how_to_go_on(&one);
    }
    shell_fini(&one);
    (void)tutti_session_close(one.session, NULL); /* what broke has been told */
    tutti_close(one.client);
    if (code != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    return one.failed ? CLI_FAILED : CLI_FINE;
}
