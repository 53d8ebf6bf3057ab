/* tutti certs make | show. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "auth/certs.h"
#include "client/cli/cli.h"
#include "client/cli/parse/parse.h"
#include "client/cli/security/commands.h"
#include "client/cli/util/output.h"
#include "client/cli/util/process.h"

#define DAYS_MAX 36500
#define DAYS_AUTHORITY 3650
#define DAYS_LEAF 90

/* What --address says, cut at its commas. */
typedef struct addresses {
    char *text;
    const char *each[TUTTI_AUTH_NAMES_MAX];
    size_t count;
} addresses;

static tutti_code
cut_name(const char *list, addresses *ret, tutti_error *err)
{
    char *rest;
    char *word;

    ret->text = strdup(list);
    if (ret->text == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for addresses");
    }
    rest = ret->text;
    while ((word = strsep(&rest, ",")) != NULL) {
        if (ret->count == TUTTI_AUTH_NAMES_MAX) {
            return cli_fail(err, TUTTI_INVALID_ARGUMENT, "more than %d addresses",
                            TUTTI_AUTH_NAMES_MAX);
        }
        ret->each[ret->count++] = word;
    }
    return TUTTI_OK;
}

/* This machine, as others on it call it, and by its name. */
static tutti_code
read_addresses(const cli *self, addresses *ret, tutti_error *err)
{
    const char *stated = cli_value(self, "address");
    char own[512];
    char name[256] = "";

    if (stated != NULL) {
        return cut_name(stated, ret, err);
    }
    (void)gethostname(name, sizeof(name) - 1);
    (void)snprintf(own, sizeof(own), "localhost,127.0.0.1,::1%s%s",
                   name[0] != '\0' && strcmp(name, "localhost") != 0 ? "," : "",
                   strcmp(name, "localhost") != 0 ? name : "");
    return cut_name(own, ret, err);
}

/* Only what was made is listed; a failure in the middle leaves the ones before it. */
static tutti_code
make_one(const cli *self, const tutti_auth_certificate *wish, json_t *made, tutti_error *err)
{
    const char *folder = self->arguments[0];
    const tutti_code code = tutti_auth_certificate_make(folder, wish, err);

    if (code == TUTTI_OK) {
        (void)json_array_append_new(made, json_string(wish->name));
    }
    return code;
}

/* One that is named, or those that every cluster needs. */
static tutti_code
make_all(const cli *self, unsigned days, json_t *made, tutti_error *err)
{
    const char *name = cli_value(self, "name");
    const bool client_only = name != NULL && cli_value(self, "address") == NULL;
    tutti_auth_certificate wish = {
        .name = name != NULL ? name : "server", .days = days, .grant = cli_value(self, "grant")};
    addresses where = {.count = 0};
    tutti_code code = client_only ? TUTTI_OK : read_addresses(self, &where, err);

    wish.addresses = where.each;
    wish.address_count = where.count;
    if (name == NULL) {
        wish.grant = NULL;
    }
    code = code == TUTTI_OK ? make_one(self, &wish, made, err) : code;
    if (code == TUTTI_OK && name == NULL) {
        wish = (tutti_auth_certificate){
            .name = "client", .days = days, .grant = cli_value(self, "grant")};
        code = make_one(self, &wish, made, err);
    }
    free(where.text);
    return code;
}

static void
say_made(const cli *self, const json_t *made)
{
    const json_t *name;
    size_t i;

    json_array_foreach(made, i, name)
    {
        cli_say(self, "%s/%s.pem and %s.key", self->arguments[0], json_string_value(name),
                json_string_value(name));
    }
}

/*
 * An authority that is there already is used. A new one lives ten years, or longer than the
 * certificates that are asked for.
 */
int
cli_certs_make(cli *self)
{
    const char *folder = self->arguments[0];
    json_t *made = json_array();
    int64_t days = DAYS_LEAF;
    tutti_error err;
    tutti_code code;

    if (!cli_number(self, "days", 1, DAYS_MAX, &days)) {
        json_decref(made);
        return CLI_USAGE;
    }
    process_hide_memory();
    code =
        tutti_auth_authority_make(folder, days > DAYS_AUTHORITY ? DAYS_MAX : DAYS_AUTHORITY, &err);
    if (code == TUTTI_OK) {
        (void)json_array_append_new(made, json_string("ca"));
    }
    if (code == TUTTI_OK || code == TUTTI_ALREADY_EXISTS) {
        code = make_all(self, (unsigned)days, made, &err);
    }
    if (code != TUTTI_OK) {
        json_decref(made);
        return cli_failed(self, NULL, &err);
    }
    if (!self->json) {
        say_made(self, made);
    }
    (void)cli_print_json(self, json_pack("{s:s, s:o}", "folder", folder, "made", made));
    return CLI_FINE;
}

int
cli_certs_show(cli *self)
{
    const char *path = self->arguments[0];
    tutti_auth_shown shown;
    tutti_error err;

    if (tutti_auth_certificate_show(path, &shown, &err) != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    if (!cli_print_json(self, json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "subject", shown.subject,
                                        "issuer", shown.issuer, "names", shown.names, "begins",
                                        shown.begins, "ends", shown.ends, "days_left",
                                        (json_int_t)shown.days_left))) {
        (void)fprintf(self->out,
                      "subject  %s\nissuer   %s\nnames    %s\nfrom     %s\nto       %s, ",
                      shown.subject, shown.issuer, shown.names, shown.begins, shown.ends);
        (void)fprintf(self->out, shown.days_left < 0 ? "has expired\n" : "%ld days left\n",
                      shown.days_left);
    }
    return shown.days_left < 0 ? CLI_FAILED : CLI_FINE;
}
