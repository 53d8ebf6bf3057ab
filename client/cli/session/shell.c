/* Lines of a session run: variables, and commands that others have to come behind. */
#include "client/cli/session/shell.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/parse/suggest.h"
#include "client/cli/session/ticket.h"
#include "client/cli/util/output.h"

/* ------------------------------------------------------------------------------ variables */

const shell_variable *
shell_find(const shell *self, const char *name)
{
    size_t i;

    for (i = 0; i < self->variable_count; i++) {
        if (strcmp(self->variables[i].name, name) == 0) {
            return &self->variables[i];
        }
    }
    return NULL;
}

static bool
is_named_register(const shell *self, uint32_t reg)
{
    size_t i;

    for (i = 0; i < self->variable_count; i++) {
        if (self->variables[i].reg == reg) {
            return true;
        }
    }
    return false;
}

/* [out] ret_new  there was none: it is not kept when the line fails */
static tutti_code
take_variable(shell *self, const char *name, uint32_t *ret_register, bool *ret_new,
              tutti_error *err)
{
    const shell_variable *found = shell_find(self, name);
    shell_variable *more;
    tutti_code code;

    *ret_new = found == NULL;
    if (found != NULL) {
        *ret_register = found->reg;
        return TUTTI_OK;
    }
    more = realloc(self->variables, (self->variable_count + 1) * sizeof(*more));
    if (more == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a variable");
    }
    self->variables = more;
    do { /* a name of a ticket may be of a register that is null, and so seems to be free */
        code = tutti_session_register(self->session, ret_register, err);
    } while (code == TUTTI_OK && is_named_register(self, *ret_register));
    if (code == TUTTI_OK) {
        more[self->variable_count].reg = *ret_register;
        (void)snprintf(more[self->variable_count].name, sizeof(more->name), "%s", name);
        self->variable_count++;
        self->renamed = true;
    }
    return code;
}

/* The last one, which has just been made. */
static void
forget_variable(shell *self)
{
    const uint32_t reg = self->variables[self->variable_count - 1].reg;

    self->variable_count--;
    self->renamed = true;
    (void)tutti_session_drop(self->session, &reg, 1, NULL, NULL);
}

/* ------------------------------------------------------------------------------ what is left */

void
shell_settle(shell *self)
{
    tutti_session_result result = {0};
    tutti_error err;
    size_t i;

    for (i = 0; i < self->pending_count; i++) {
        const shell_pending *one = &self->pending[i];

        if (tutti_session_wait(self->session, one->ticket, &result, &err) != TUTTI_OK) {
            shell_print_failed(self, one->number, one->command, &err, NULL);
        } else if (result.error.code != TUTTI_OK) {
            shell_print_failed(self, one->number, one->command, &result.error, &result);
        }
        tutti_session_result_free(&result);
    }
    self->pending_count = 0;
}

void
shell_fini(shell *self)
{
    free(self->variables);
    free(self->pending);
}

/* ------------------------------------------------------------------------------ a line */

/* Is it one of the keys of a command, alone or with a value? */
static bool
is_key(const shell_command *command, const char *word)
{
    const size_t size = strcspn(word, "=");
    const char *key = command->keys;

    for (; *key != '\0'; key += strcspn(key, " "), key += *key == ' ' ? 1 : 0) {
        if (strcspn(key, " ") == size && strncmp(key, word, size) == 0) {
            return true;
        }
    }
    return false;
}

static tutti_code
sort_words(const shell_line *line, shell_call *call, tutti_error *err)
{
    size_t i;

    for (i = 0; i < line->word_count; i++) {
        const shell_word *word = &line->words[i];

        if (!word->quoted && is_key(call->command, word->text)) {
            call->keys[call->key_count++] = word->text;
        } else {
            call->quoted[call->word_count] = word->quoted;
            call->words[call->word_count++] = word->text;
        }
    }
    if (call->word_count < call->command->least || call->word_count > call->command->most) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "%s: write %s %s",
                        call->word_count < call->command->least ? "words are missing"
                                                                : "too many words",
                        call->command->name, call->command->synopsis);
    }
    return TUTTI_OK;
}

static tutti_code
fail_unknown_command(const char *name, tutti_error *err)
{
    const shell_command *command;

    for (command = shell_commands; command->name != NULL; command++) {
        if (cli_distance(command->name, name) <= 2) {
            return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                            "there is no command \"%.60s\"; did you mean %s?", name, command->name);
        }
    }
    return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                    "there is no command \"%.60s\": help lists those that there are", name);
}

static tutti_code
check_result(const shell_line *line, const shell_call *call, tutti_error *err)
{
    if (line->name != NULL && call->command->gives == ' ') {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "%s has no result for \"%s\"",
                        call->command->name, line->name);
    }
    if (line->name == NULL && call->command->gives == '!' && shell_key(call, "dst") == NULL) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "give the result a name: x = %s %s",
                        call->command->name, call->command->synopsis);
    }
    return TUTTI_OK;
}

static tutti_code
prepare(shell *self, const shell_line *line, shell_call *ret, tutti_error *err)
{
    tutti_code code;

    *ret = (shell_call){.shell = self, .command = shell_find_command(line->command)};
    if (ret->command == NULL) {
        return fail_unknown_command(line->command, err);
    }
    code = sort_words(line, ret, err);
    return code == TUTTI_OK ? check_result(line, ret, err) : code;
}

static tutti_code
run_line(shell *self, const shell_line *line, tutti_error *err)
{
    bool made = false;
    shell_call call;
    tutti_code code = prepare(self, line, &call, err);

    if (code == TUTTI_OK && line->name != NULL) {
        code = take_variable(self, line->name, &call.into, &made, err);
    }
    if (code == TUTTI_OK) {
        code = call.command->run(&call, err);
    }
    if (code != TUTTI_OK && made) {
        forget_variable(self);
    }
    return code;
}

/* TUTTI_OK: the line was well, or its error has been told and the script goes on. */
static tutti_code
run_told(shell *self, const shell_line *line, tutti_code parsed, tutti_error *err)
{
    const tutti_code code =
        parsed != TUTTI_OK || line->command == NULL ? parsed : run_line(self, line, err);

    if (code != TUTTI_OK && err->text[0] != '\0') { /* else its command has told it */
        shell_print_failed(self, self->number, line->command == NULL ? "" : line->command, err,
                           NULL);
    }
    return code;
}

/* Who is cut off behind this line finds its names again. */
static void
keep_ticket(shell *self)
{
    tutti_error err;

    if (self->renamed && self->ticket[0] != '\0' && ticket_write(self, &err) != TUTTI_OK) {
        shell_print_failed(self, self->number, "", &err, NULL);
    }
    self->renamed = false;
}

tutti_code
shell_run(shell *self, const char *text)
{
    tutti_code code = TUTTI_OK;

    while (code == TUTTI_OK && *text != '\0' && !self->over) {
        shell_line line;
        tutti_error err = {0};
        const tutti_code parsed = shell_line_parse(text, &text, &line, &err);

        code = run_told(self, &line, parsed, &err);
        shell_line_free(&line);
        keep_ticket(self);
    }
    return code;
}
