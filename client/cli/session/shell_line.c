/* Lines of a session: words, quotes, brackets and comments. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/session/shell.h"
#include "client/cli/util/output.h"

bool
shell_is_name(const char *text)
{
    size_t size = 0;

    if (!isalpha((unsigned char)text[0]) && text[0] != '_') {
        return false;
    }
    while (isalnum((unsigned char)text[size]) || text[size] == '_') {
        size++;
    }
    return text[size] == '\0' && size <= SHELL_NAME_MAX;
}

/* Where reading is, and where words are written to; both only grow. */
typedef struct scanner {
    const char *at;
    char *out;
} scanner;

static bool
is_end(char letter)
{
    return letter == '\0' || letter == ';' || letter == '\n';
}

/* A backslash keeps the next letter, within double quotes only. */
static tutti_code
scan_quoted(scanner *self, tutti_error *err)
{
    const char quote = *self->at++;

    while (*self->at != quote) {
        if (*self->at == '\\' && quote == '"' && self->at[1] != '\0') {
            self->at++;
        }
        if (*self->at == '\0') {
            return cli_fail(err, TUTTI_INVALID_ARGUMENT, "a quote (%c) is not closed", quote);
        }
        *self->out++ = *self->at++;
    }
    self->at++;
    return TUTTI_OK;
}

/* "[2, 3]" is one word, without its spaces. */
static tutti_code
scan_brackets(scanner *self, tutti_error *err)
{
    while (*self->at != ']') {
        if (is_end(*self->at)) {
            return cli_fail(err, TUTTI_INVALID_ARGUMENT, "a bracket is not closed: write [2,3]");
        }
        if (*self->at != ' ') {
            *self->out++ = *self->at;
        }
        self->at++;
    }
    *self->out++ = *self->at++;
    return TUTTI_OK;
}

static tutti_code
scan_word(scanner *self, shell_word *ret, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    *ret = (shell_word){.text = self->out, .quoted = *self->at == '"' || *self->at == '\''};
    while (code == TUTTI_OK && !is_end(*self->at) && !isspace((unsigned char)*self->at)) {
        if (*self->at == '"' || *self->at == '\'') {
            code = scan_quoted(self, err);
        } else if (*self->at == '[') {
            code = scan_brackets(self, err);
        } else {
            *self->out++ = *self->at++;
        }
    }
    *self->out++ = '\0';
    return code;
}

static void
skip_blanks(scanner *self)
{
    while (*self->at == ' ' || *self->at == '\t' || *self->at == '\r') {
        self->at++;
    }
    if (*self->at == '#') {
        self->at += strcspn(self->at, "\n");
    }
}

static tutti_code
scan_words(scanner *self, shell_line *line, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    for (skip_blanks(self); code == TUTTI_OK && !is_end(*self->at); skip_blanks(self)) {
        if (line->word_count == SHELL_WORDS_MAX) {
            return cli_fail(err, TUTTI_INVALID_ARGUMENT, "more than %d words in a line",
                            SHELL_WORDS_MAX);
        }
        code = scan_word(self, &line->words[line->word_count], err);
        line->word_count++;
    }
    return code;
}

static void
drop_words(shell_line *line, size_t count)
{
    line->word_count -= count;
    memmove(line->words, line->words + count, line->word_count * sizeof(*line->words));
}

/* "x = copy y" and "x=copy y". */
static tutti_code
take_name(shell_line *line, tutti_error *err)
{
    char *first = line->words[0].text;
    char *equals = line->words[0].quoted ? NULL : strchr(first, '=');

    if (equals == NULL && (line->word_count < 2 || strcmp(line->words[1].text, "=") != 0)) {
        return TUTTI_OK;
    }
    if (equals != NULL) {
        *equals = '\0';
        line->words[0].text = equals + 1;
        drop_words(line, equals[1] == '\0' ? 1 : 0);
    } else {
        drop_words(line, 2);
    }
    line->name = first;
    if (!shell_is_name(first)) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "\"%.60s\" is no name: letters, digits and _, no digit first", first);
    }
    if (line->word_count == 0) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "no command behind \"%s =\"", first);
    }
    return TUTTI_OK;
}

tutti_code
shell_line_parse(const char *text, const char **ret_rest, shell_line *ret_line, tutti_error *err)
{
    scanner scan = {.at = text};
    tutti_code code;

    *ret_line = (shell_line){.memory = malloc(2 * strlen(text) + SHELL_WORDS_MAX + 1)};
    if (ret_line->memory == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a line");
    }
    scan.out = ret_line->memory;
    code = scan_words(&scan, ret_line, err);
    *ret_rest = *scan.at == '\0' ? scan.at : scan.at + 1;
    if (code == TUTTI_OK && ret_line->word_count > 0) {
        code = take_name(ret_line, err);
    }
    if (code == TUTTI_OK && ret_line->word_count > 0) {
        ret_line->command = ret_line->words[0].text;
        drop_words(ret_line, 1);
    }
    return code;
}

void
shell_line_free(shell_line *line)
{
    free(line->memory);
    *line = (shell_line){0};
}
