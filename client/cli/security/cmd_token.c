/* tutti token make | show | key. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "auth/sign.h"
#include "client/cli/cli.h"
#include "client/cli/parse/parse.h"
#include "client/cli/security/commands.h"
#include "client/cli/util/output.h"
#include "client/cli/util/process.h"
#include "client/cli/util/values.h"

#define LASTS_MS_DEFAULT (60u * 60 * 1000)
#define TOKEN_FILE_MAX 16384

/* Into --output, for its owner only, or to standard output. */
static int
print_token(cli *self, const char *token, int64_t expires_s)
{
    const char *path = cli_value(self, "output");
    char line[TUTTI_AUTH_TOKEN_MAX + 2];
    tutti_error err;

    if (path != NULL) {
        const size_t size = strlen(token);

        memcpy(line, token, size);
        memcpy(line + size, "\n", 2);
        if (auth_write_new(path, line, size + 1, 0600, &err) != TUTTI_OK) {
            return cli_failed(self, NULL, &err);
        }
    }
    if (!cli_print_json(
            self, json_pack("{s:s, s:I}", "token", token, "expires_s", (json_int_t)expires_s)) &&
        path == NULL) {
        (void)fprintf(self->out, "%s\n", token);
    }
    return CLI_FINE;
}

static const char *
or_else(const char *value, const char *fallback)
{
    return value != NULL ? value : fallback;
}

/* Without --expires a token lives for an hour, since nobody can take it back. */
int
cli_token_make(cli *self)
{
    const tutti_auth_wish wish = {.subject = or_else(cli_value(self, "subject"), "tutti"),
                                  .issuer = cli_value(self, "issuer"),
                                  .audience = or_else(cli_value(self, "audience"), "tutti"),
                                  .role = or_else(cli_value(self, "role"), "client"),
                                  .job = cli_value(self, "job"),
                                  .ranks = cli_value(self, "ranks"),
                                  .key_id = cli_value(self, "key-id")};
    tutti_auth_wish timed = wish;
    char token[TUTTI_AUTH_TOKEN_MAX + 1];
    uint32_t lasts_ms = LASTS_MS_DEFAULT;
    const int64_t now_s = (int64_t)time(NULL);
    tutti_error err;

    if (cli_value(self, "expires") != NULL &&
        (!cli_parse_ms(cli_value(self, "expires"), &lasts_ms) || lasts_ms < 1000)) {
        return cli_usage(self, "--expires: need a time of at least a second, 10m or 8h say");
    }
    timed.lasts_s = lasts_ms / 1000;
    process_hide_memory();
    if (tutti_auth_token_make(self->arguments[0], &timed, now_s, token, &err) != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    return print_token(self, token, now_s + timed.lasts_s);
}

/* The first word of a file; - is standard input. */
static tutti_code
read_token(const char *path, char *ret_token, size_t size, tutti_error *err)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    size_t length;

    if (file == NULL) {
        return cli_fail(err, TUTTI_NOT_FOUND, "could not open %s", path);
    }
    length = fread(ret_token, 1, size - 1, file);
    if (file != stdin) {
        (void)fclose(file);
    }
    ret_token[length] = '\0';
    length = strspn(ret_token, " \t\r\n");
    memmove(ret_token, ret_token + length, strlen(ret_token + length) + 1);
    ret_token[strcspn(ret_token, " \t\r\n")] = '\0';
    return TUTTI_OK;
}

/* "expires in 59 minutes", when it says so. */
static void
say_end(const cli *self, const char *json)
{
    json_t *both = json_loads(json, 0, NULL);
    const json_t *end = json_object_get(json_object_get(both, "claims"), "exp");
    const long left = (long)json_integer_value(end) - (long)time(NULL);

    if (json_is_integer(end) && left > 0) {
        cli_say(self, "expires in %ld:%02ld:%02ld, signature not checked", left / 3600,
                left / 60 % 60, left % 60);
    } else {
        cli_say(self, json_is_integer(end) ? "has expired" : "never expires: no server takes it");
    }
    json_decref(both);
}

int
cli_token_show(cli *self)
{
    char token[TOKEN_FILE_MAX];
    char *json = NULL;
    tutti_error err;
    tutti_code code = read_token(self->arguments[0], token, sizeof(token), &err);

    if (code == TUTTI_OK) {
        code = tutti_auth_token_show(token, &json, &err);
    }
    if (code != TUTTI_OK) {
        return cli_failed(self, self->arguments[0], &err);
    }
    (void)fprintf(self->out, "%s\n", json);
    if (!self->json) {
        say_end(self, json);
    }
    free(json);
    return CLI_FINE;
}

/* A secret both signs and checks, so there is one file; a pair has two. */
int
cli_token_key(cli *self)
{
    const char *path = self->arguments[0];
    const tutti_auth_algorithm algorithm =
        tutti_auth_algorithm_from(or_else(cli_value(self, "algorithm"), "HS256"));
    const bool secret = algorithm == TUTTI_AUTH_HS256;
    char public[TUTTI_AUTH_PATH_MAX + sizeof(".pub")];
    tutti_error err;

    if (algorithm == 0) {
        return cli_usage(self, "--algorithm: need HS256, RS256 or ES256");
    }
    process_hide_memory();
    if (tutti_auth_key_make(algorithm, path, &err) != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    (void)snprintf(public, sizeof(public), "%s%s", path, secret ? "" : ".pub");
    if (!cli_print_json(self, json_pack("{s:s, s:s}", "sign_with", path, "check_with", public))) {
        cli_say(self, "sign with  %s: tutti token make %s", path, path);
        cli_say(self, "check with %s: --token-keys %s", public, public);
    }
    return CLI_FINE;
}
