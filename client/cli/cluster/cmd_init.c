/* tutti init: what an init address means. */
#include <inttypes.h>

#include "client/cli/cli.h"
#include "client/cli/cluster/commands.h"
#include "client/cli/util/output.h"

static void
print_words(const cli *self, const tutti_init_info *info)
{
    (void)fprintf(self->out, "rank         %" PRIu32 " of %" PRIu32 "\n", info->rank,
                  info->world_size);
    (void)fprintf(self->out, "coordinator  %s\n",
                  info->coordinator[0] != '\0' ? info->coordinator : "not known yet");
    if (info->path[0] != '\0') {
        (void)fprintf(self->out, "file         %s\n", info->path);
    }
}

int
cli_init(cli *self)
{
    tutti_init_info info;
    tutti_error err;
    json_t *document;

    if (tutti_init_parse(self->arguments[0], &info, &err) != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    document = json_pack("{s:s, s:I, s:I, s:s?}", "scheme", info.scheme, "rank",
                         (json_int_t)info.rank, "world_size", (json_int_t)info.world_size,
                         "coordinator", info.coordinator[0] != '\0' ? info.coordinator : NULL);
    if (info.path[0] != '\0') {
        (void)json_object_set_new(document, "path", json_string(info.path));
    }
    if (!cli_print_json(self, document)) {
        print_words(self, &info);
    }
    return CLI_FINE;
}
