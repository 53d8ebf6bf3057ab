/* tutti functions, call: code that an operator has put beside the tensors of an agent. */
#include <stdlib.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/session/commands.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"
#include "client/cli/util/typed.h"

static const cli_column function_columns[] = {
    {"FUNCTION", "name", NULL},
    {"SOURCE", "source", NULL},
    {"SIGNATURE", "signature", NULL},
    {">CALLS", "calls", NULL},
    {0},
};

static json_t *
json_functions(const tutti_function_info *infos, size_t count)
{
    json_t *array = json_array();
    size_t i;

    for (i = 0; i < count; i++) {
        (void)json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:I}", "name", infos[i].name,
                                                     "source", infos[i].source, "signature",
                                                     infos[i].signature, "calls",
                                                     (json_int_t)infos[i].calls));
    }
    return array;
}

int
cli_functions(cli *self)
{
    tutti_function_info *infos = NULL;
    tutti_client *client = NULL;
    size_t count = 0;
    tutti_error err;
    tutti_code code = cli_connect(self, NULL, &client, &err);

    if (code == TUTTI_OK) {
        code = tutti_function_list(client, &infos, &count, &err);
    }
    if (code == TUTTI_OK) {
        cli_print_result(self,
                         json_pack("{s:I, s:o}", "rank", (json_int_t)tutti_whoami(client)->rank,
                                   "functions", json_functions(infos, count)),
                         "functions", function_columns);
    }
    tutti_free(infos);
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}

/* ------------------------------------------------------------------------------ call */

typedef struct arguments {
    cli_typed typed[TUTTI_ARGUMENTS_MAX];
    tutti_value values[TUTTI_ARGUMENTS_MAX];
    size_t count;
} arguments;

static tutti_code
read_arguments(const cli *self, arguments *ret, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    int i;

    if (self->argument_count - 1 > TUTTI_ARGUMENTS_MAX) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "%d arguments for a function, at most %d",
                        self->argument_count - 1, TUTTI_ARGUMENTS_MAX);
    }
    for (i = 1; i < self->argument_count && code == TUTTI_OK; i++) {
        code = cli_typed_parse(self->arguments[i], &ret->typed[ret->count], err);
        ret->values[ret->count] = ret->typed[ret->count].value;
        ret->count++;
    }
    return code;
}

static void
free_arguments(arguments *self)
{
    size_t i;

    for (i = 0; i < self->count; i++) {
        cli_typed_free(&self->typed[i]);
    }
    free(self);
}

static tutti_code
call_function(cli *self, const arguments *given, tutti_call_result *ret_result, tutti_error *err)
{
    tutti_call_options options;
    tutti_client *client = NULL;
    tutti_code code = cli_connect(self, NULL, &client, err);

    tutti_call_options_init(&options);
    options.result = cli_value(self, "result");
    options.group = cli_value(self, "group");
    options.timeout_ms = self->timeout_ms;
    if (code == TUTTI_OK) {
        code = tutti_call(client, self->arguments[0], given->values, given->count, &options,
                          ret_result, err);
    }
    tutti_close(client);
    return code;
}

int
cli_call_function(cli *self)
{
    arguments *given = calloc(1, sizeof(*given));
    tutti_call_result result = {0};
    tutti_error err;
    tutti_code code;
    int64_t rank;

    if (given == NULL || !cli_rank_option(self, &rank)) {
        free(given);
        return CLI_USAGE;
    }
    code = read_arguments(self, given, &err);
    if (code == TUTTI_OK) {
        code = call_function(self, given, &result, &err);
    }
    if (code == TUTTI_OK &&
        !cli_print_json(self, json_pack("{s:o, s:I}", "result", cli_typed_json(&result.value),
                                        "elapsed_us", (json_int_t)result.elapsed_us))) {
        cli_typed_print(self->out, &result.value);
        (void)fputc('\n', self->out);
    }
    tutti_value_free(&result.value);
    free_arguments(given);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, self->arguments[0], &err);
}
