/* tutti sync: until an agent has ended its ops. */
#include <inttypes.h>

#include "client/cli/cli.h"
#include "client/cli/collective/commands.h"
#include "client/cli/connect/connect.h"
#include "client/cli/util/output.h"

/* Failed ops are only counted, and the first one's error is shown. */
static void
say_sync(const cli *self, const tutti_sync_result *result)
{
    json_t *object = json_pack("{s:I, s:I}", "waited", (json_int_t)result->waited_count, "failed",
                               (json_int_t)result->failed_count);

    if (result->failed_count > 0) {
        (void)json_object_set_new(object, "error", cli_json_error(&result->error));
    }
    if (cli_print_json(self, object)) {
        return;
    }
    cli_say(self, "%" PRIu64 " ops were running, %" PRIu64 " failed", result->waited_count,
            result->failed_count);
    if (result->failed_count > 0) {
        (void)fprintf(self->err, "tutti: sync: %s\n", result->error.text);
    }
}

int
cli_sync(cli *self)
{
    const char *group = self->argument_count > 0 ? self->arguments[0] : NULL;
    tutti_client *client = NULL;
    tutti_sync_result result;
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    code = cli_connect(self, NULL, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_sync(client, group, self->timeout_ms, &result, &err);
    }
    tutti_close(client);
    if (code != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    say_sync(self, &result);
    return result.failed_count == 0 ? CLI_FINE : CLI_FAILED;
}
