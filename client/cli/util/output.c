/* What comes out: documents, lines, errors. */
#include "client/cli/util/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/util/advice.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/values.h"

/*
 * This command makes errors of its own without the library, whose functions for that are private.
 */
static void
begin_error(tutti_error *err, tutti_code code)
{
    *err = (tutti_error){.code = code, .rank = TUTTI_ERROR_RANK_NONE};
}

tutti_code
cli_fail(tutti_error *err, tutti_code code, const char *format, ...)
{
    va_list args;

    if (err == NULL) {
        return code;
    }
    begin_error(err, code);
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    (void)strcpy(err->reason, "LOCAL");
    return code;
}

static tutti_code
code_of(int number)
{
    switch (number) {
    case ENOENT:
        return TUTTI_NOT_FOUND;
    case EEXIST:
        return TUTTI_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
        return TUTTI_PERMISSION_DENIED;
    case ENOMEM:
    case ENOSPC:
    case EFBIG:
        return TUTTI_RESOURCE_EXHAUSTED;
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
        return TUTTI_INVALID_ARGUMENT;
    default:
        return TUTTI_UNKNOWN;
    }
}

/* The text is followed by what the system says, so `format` names only what was tried. */
tutti_code
cli_fail_errno(tutti_error *err, int number, const char *format, ...)
{
    char words[256];
    size_t used;
    va_list args;

    if (err == NULL) {
        return code_of(number);
    }
    begin_error(err, code_of(number));
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    used = strlen(err->text);
    (void)snprintf(err->text + used, sizeof(err->text) - used, ": %s",
                   strerror_r(number, words, sizeof(words)));
    (void)snprintf(err->reason, sizeof(err->reason), "SYSTEM");
    err->cause = number;
    err->domain = "errno";
    return err->code;
}

json_t *
cli_json_error(const tutti_error *err)
{
    json_t *error = json_pack("{s:s, s:s, s:s}", "code", tutti_code_name(err->code), "reason",
                              err->reason, "text", err->text);

    if (err->group[0] != '\0') {
        (void)json_object_set_new(error, "group", json_string(err->group));
    }
    if (err->sequence != 0) {
        (void)json_object_set_new(error, "sequence", json_integer((json_int_t)err->sequence));
    }
    if (err->rank != TUTTI_ERROR_RANK_NONE) {
        (void)json_object_set_new(error, "rank", json_integer(err->rank));
    }
    return error;
}

/* Do the words of the command line, or of its environment, cause this error? libtutti finds some of these errors. */
static bool
is_usage(const tutti_error *err)
{
    return strcmp(err->reason, "USAGE") == 0 || strcmp(err->reason, "BAD_ADDRESS") == 0 ||
           strcmp(err->reason, "BAD_URL") == 0;
}

/*
 * With --json the error goes to both outputs: a program reads the document, and the log has the
 * sentence.
 */
int
cli_failed(const cli *self, const char *what, const tutti_error *err)
{
    const char *words = what != NULL && what[0] != '\0' ? what : self->command->name;
    const char *advice = cli_advice(err);
    tutti_error advised = *err;

    if (advice != NULL) {
        (void)snprintf(advised.text, sizeof(advised.text), "%.760s: %s", err->text, advice);
    }
    cli_status_clear(self);
    (void)fprintf(self->err, "tutti: %.200s%s: %s\n", words, strlen(words) > 200 ? "..." : "",
                  advised.text);
    if (self->json) {
        (void)cli_print_json(self, json_pack("{s:o}", "error", cli_json_error(&advised)));
    }
    return is_usage(err) ? CLI_USAGE : CLI_FAILED;
}

/*
 * [in, moved] document
 *
 * Returns whether it was printed, so that the caller knows if words are still wanted.
 */
bool
cli_print_json(const cli *self, json_t *document)
{
    if (self->json) {
        /* On a terminal all that is not ASCII is written out, so also what steers it. */
        const size_t plain = isatty(fileno(self->out)) == 1 ? JSON_ENSURE_ASCII : 0;

        (void)json_dumpf(document, self->out, JSON_INDENT(2) | JSON_REAL_PRECISION(6) | plain);
        (void)fputc('\n', self->out);
    }
    json_decref(document);
    return self->json;
}

void
cli_say_tensor(const cli *self, const tutti_handle *handle)
{
    char shape[CLI_WORD_SIZE];

    if (self->json) {
        return;
    }
    (void)fputs(handle->text, self->out);
    if (handle->known && !self->quiet) {
        (void)fprintf(self->out, "  %s%s", tutti_dtype_name(handle->spec.dtype),
                      cli_format_shape(&handle->spec, shape));
    }
    (void)fputc('\n', self->out);
}

void
cli_say(const cli *self, const char *format, ...)
{
    va_list args;

    if (self->quiet || self->json) {
        return;
    }
    va_start(args, format);
    (void)vfprintf(self->out, format, args);
    va_end(args);
    (void)fputc('\n', self->out);
}

/* No codes where the output is no terminal, or NO_COLOR is set. */
const char *
cli_style_begin(const cli *self, cli_style style)
{
    static const char *const codes[] = {"", "\033[1m", "\033[32m", "\033[33m", "\033[31m"};

    return self->colour ? codes[style] : "";
}

const char *
cli_style_end(const cli *self)
{
    return self->colour ? "\033[0m" : "";
}

void
cli_json_spec(json_t *object, const tutti_spec *spec)
{
    json_t *shape = json_array();
    uint64_t bytes = 0;
    uint32_t i;

    for (i = 0; i < spec->dim_count; i++) {
        (void)json_array_append_new(shape, json_integer(spec->dims[i]));
    }
    (void)tutti_spec_size(spec, NULL, &bytes, NULL);
    (void)json_object_set_new(object, "dtype", json_string(tutti_dtype_name(spec->dtype)));
    (void)json_object_set_new(object, "shape", shape);
    (void)json_object_set_new(object, "bytes", json_integer((json_int_t)bytes));
}
