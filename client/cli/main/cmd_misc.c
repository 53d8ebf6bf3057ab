/* tutti health, version, help, completion, man. */
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/main/commands.h"
#include "client/cli/main/complete.h"
#include "client/cli/main/man.h"
#include "client/cli/parse/help.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"

/* Works with any gRPC server, so it takes an address and looks for no cluster. */
int
cli_health(cli *self)
{
    const char *address = self->arguments[0];
    tutti_client_options options;
    bool serving = false;
    tutti_error err;

    tutti_client_options_init(&options);
    options.agent = address;
    options.timeout_ms = self->timeout_ms;
    cli_options_secure(self, &options);
    if (tutti_health_check(&options, cli_value(self, "service"), &serving, &err) != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    if (!cli_print_json(self, json_pack("{s:s, s:b}", "address", address, "serving", serving))) {
        cli_say(self, "%s%s%s", cli_style_begin(self, serving ? CLI_GREEN : CLI_RED),
                serving ? "serving" : "not serving", cli_style_end(self));
    }
    return serving ? CLI_FINE : CLI_FAILED;
}

int
cli_version(cli *self)
{
    if (!cli_print_json(self, json_pack("{s:s}", "version", tutti_version()))) {
        (void)fprintf(self->out, "tutti %s\n", tutti_version());
    }
    return CLI_FINE;
}

int
cli_help(cli *self)
{
    const cli_command *command;
    int used = 0;

    if (self->argument_count == 0) {
        cli_help_all(self, self->out);
        return CLI_FINE;
    }
    command = cli_find_command(self->syntax, self->arguments, self->argument_count, &used);
    if (command != NULL) {
        cli_help_command(command, self->out);
        return CLI_FINE;
    }
    if (cli_help_prefix(self, self->arguments[0], self->out)) {
        return CLI_FINE;
    }
    return cli_usage(self, "no command \"%s\"", self->arguments[0]);
}

/* Names come first: what is a kind of name is no shell. */
int
cli_completion(cli *self)
{
    const int code = cli_complete_names(self, self->arguments[0]);

    if (code != CLI_USAGE) {
        return code;
    }
    if (!cli_complete_write(self->arguments[0], self->out)) {
        return cli_usage(self, "no completion for \"%s\": need bash, zsh or fish",
                         self->arguments[0]);
    }
    return CLI_FINE;
}

int
cli_man(cli *self)
{
    tutti_error err;

    return cli_man_write(self->arguments[0], &err) == TUTTI_OK ? CLI_FINE
                                                               : cli_failed(self, NULL, &err);
}
