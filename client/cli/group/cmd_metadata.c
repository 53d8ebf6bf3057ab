/* tutti metadata broadcast, all-gather: small values between the members of a group. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/connect/ranks.h"
#include "client/cli/group/commands.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "tutti/metadata.h"

/* As text where it is UTF-8; else as hex digits under "value_hex". */
static void
json_value(json_t *object, const void *value, size_t size)
{
    json_t *text = json_stringn(value, size);
    const unsigned char *bytes = value;
    char *digits;
    size_t i;

    if (text != NULL) {
        (void)json_object_set_new(object, "value", text);
        return;
    }
    digits = calloc(2 * size + 1, 1);
    for (i = 0; digits != NULL && i < size; i++) {
        (void)snprintf(digits + 2 * i, 3, "%02x", bytes[i]);
    }
    (void)json_object_set_new(object, "value_hex", json_string(digits == NULL ? "" : digits));
    free(digits);
}

static tutti_metadata_options
metadata_options(const cli *self)
{
    tutti_metadata_options options;

    tutti_metadata_options_init(&options);
    options.group = cli_value(self, "group");
    options.key = cli_value(self, "key");
    options.timeout_ms = self->timeout_ms;
    return options;
}

static void
print_value_line(const cli *self, const void *value, size_t size)
{
    (void)fwrite(value, 1, size, self->out);
    (void)fputc('\n', self->out);
}

/* ------------------------------------------------------------------------------ broadcast */

int
cli_metadata_broadcast(cli *self)
{
    const char *value = self->argument_count > 0 ? self->arguments[0] : "";
    const tutti_metadata_options options = metadata_options(self);
    tutti_client *client = NULL;
    json_t *document;
    void *got = NULL;
    size_t size = 0;
    int64_t root = 0;
    tutti_error err;
    tutti_code code;

    if (!cli_number(self, "root", 0, TUTTI_RANKS_MAX - 1, &root)) {
        return CLI_USAGE;
    }
    code = cli_connect(self, NULL, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_metadata_broadcast(client, &options, (uint32_t)root, value, strlen(value),
                                        &got, &size, &err);
    }
    if (code == TUTTI_OK) {
        document = json_object();
        json_value(document, got, size);
        if (!cli_print_json(self, document)) {
            print_value_line(self, got, size);
        }
    }
    tutti_free(got);
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}

/* ------------------------------------------------------------------------------ all-gather */

static void
print_gathered(const cli *self, void *const *values, const size_t *sizes, size_t count)
{
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < count; i++) {
        json_t *one = json_pack("{s:I}", "group_rank", (json_int_t)i);

        json_value(one, values[i], sizes[i]);
        (void)json_array_append_new(list, one);
    }
    if (cli_print_json(self, json_pack("{s:o}", "values", list))) {
        return;
    }
    for (i = 0; i < count; i++) {
        print_value_line(self, values[i], sizes[i]);
    }
}

int
cli_metadata_all_gather(cli *self)
{
    const tutti_metadata_options options = metadata_options(self);
    tutti_client *client = NULL;
    void **values = NULL;
    size_t *sizes = NULL;
    size_t count = 0;
    tutti_error err;
    tutti_code code = cli_connect(self, NULL, &client, &err);

    if (code == TUTTI_OK) {
        code = tutti_metadata_all_gather(client, &options, self->arguments[0],
                                         strlen(self->arguments[0]), &values, &sizes, &count, &err);
    }
    if (code == TUTTI_OK) {
        print_gathered(self, values, sizes, count);
    }
    tutti_metadata_free(values, sizes, count);
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}
