/* The names that completion offers: of tensors, groups, clusters and ops, one on each line. */
#include <stdlib.h>
#include <string.h>

#include "client/cli/bench/bench.h"
#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/main/complete.h"
#include "client/cli/util/output.h"
#include "client/cli/util/state.h"

/* Shells expand what they are told to complete, so that a name with "$(" in it would be a command:
 * names of others that are not plain words are left out. */
static void
print_name(const cli *self, const char *name)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "._-+/:@,=%";

    if (name[0] != '\0' && name[0] != '-' && name[strspn(name, plain)] == '\0') {
        (void)fprintf(self->out, "%s\n", name);
    }
}

static tutti_code
print_tensors(cli *self, tutti_error *err)
{
    tutti_client *client = NULL;
    tutti_tensor_info *infos = NULL;
    size_t count = 0;
    tutti_code code = cli_connect(self, NULL, &client, err);
    size_t i;

    if (code == TUTTI_OK) {
        code = tutti_tensor_list(client, &infos, &count, err);
    }
    for (i = 0; i < count; i++) {
        const bool named = infos[i].name[0] != '\0';

        print_name(self, named ? infos[i].name : infos[i].handle.text);
    }
    tutti_free(infos);
    tutti_close(client);
    return code;
}

/* Group names come from other users of the job, so they are not trusted to be plain words. */
static tutti_code
print_groups(cli *self, tutti_error *err)
{
    tutti_client *client = NULL;
    tutti_group_info *infos = NULL;
    size_t count = 0;
    tutti_code code = cli_connect_coordinator(self, &client, err);
    size_t i;

    if (code == TUTTI_OK) {
        code = tutti_group_list(client, &infos, &count, err);
    }
    for (i = 0; i < count; i++) {
        print_name(self, infos[i].name);
        tutti_group_info_free(&infos[i]);
    }
    tutti_free(infos);
    tutti_close(client);
    return code;
}

static tutti_code
print_clusters(cli *self, tutti_error *err)
{
    char **names = NULL;
    size_t count = 0;
    const tutti_code code = state_names(&names, &count, err);
    size_t i;

    for (i = 0; i < count; i++) {
        print_name(self, names[i]);
    }
    state_names_free(names, count);
    return code;
}

static tutti_code
print_ops(cli *self, tutti_error *err)
{
    int kind;

    (void)err;
    for (kind = 0; bench_op_at(kind) != NULL; kind++) {
        (void)fprintf(self->out, "%s\n", bench_op_at(kind)->word);
    }
    return TUTTI_OK;
}

/* CLI_USAGE: it is no kind of name. Nothing was printed then. */
int
cli_complete_names(cli *self, const char *kind)
{
    static const struct {
        const char *kind;
        tutti_code (*print)(cli *self, tutti_error *err);
    } kinds[] = {{"tensors", print_tensors},
                 {"groups", print_groups},
                 {"clusters", print_clusters},
                 {"ops", print_ops}};
    tutti_error err;
    size_t i;

    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kind, kinds[i].kind) == 0) {
            return kinds[i].print(self, &err) == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
        }
    }
    return CLI_USAGE;
}
