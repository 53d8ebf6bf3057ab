/* tutti group split, translate */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/connect/ranks.h"
#include "client/cli/group/commands.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"
#include "client/cli/util/values.h"

/* ------------------------------------------------------------------------------ split */

/* Append "0-3,7". */
static bool
add_list(tutti_rank_lists *lists, const char *word)
{
    uint32_t *ranks = NULL;
    size_t count = 0;
    const size_t used = lists->starts[lists->count];
    uint32_t *all;

    if (!cli_parse_ranks(word, &ranks, &count)) {
        return false;
    }
    all = realloc(lists->ranks, (used + count + 1) * sizeof(*all));
    if (all != NULL) {
        lists->ranks = all;
        memcpy(all + used, ranks, count * sizeof(*all));
        lists->count++;
        lists->starts[lists->count] = used + count;
    }
    free(ranks);
    return all != NULL;
}

/* "0-3/7,5" */
static bool
parse_lists(const char *text, tutti_rank_lists *lists)
{
    char *words = strdup(text);
    char *rest = words;
    char *word;
    bool good = words != NULL;

    lists->starts = calloc(strlen(text) + 2, sizeof(*lists->starts));
    while (good && lists->starts != NULL && (word = strsep(&rest, "/")) != NULL) {
        good = add_list(lists, word);
    }
    free(words);
    return good && lists->starts != NULL;
}

/* What --size, --count or --lists say: one of them. False: it makes no sense, which was said. */
static bool
take_split(cli *self, tutti_split *split, tutti_rank_lists *lists)
{
    const char *const words[] = {cli_value(self, "size"), cli_value(self, "count"),
                                 cli_value(self, "lists")};
    int64_t number = 0;

    if ((words[0] != NULL) + (words[1] != NULL) + (words[2] != NULL) != 1) {
        (void)cli_usage(self, "say one of --size, --count and --lists");
        return false;
    }
    if (words[2] != NULL && !parse_lists(words[2], lists)) {
        (void)cli_usage(self, "\"%s\" are no lists of ranks: write 0-3/4-7", words[2]);
        return false;
    }
    if (!cli_number(self, "size", INT32_MIN, INT32_MAX, &number) ||
        !cli_number(self, "count", INT32_MIN, INT32_MAX, &number)) {
        return false;
    }
    split->kind = words[0] != NULL   ? TUTTI_SPLIT_SIZE
                  : words[1] != NULL ? TUTTI_SPLIT_COUNT
                                     : TUTTI_SPLIT_LISTS;
    split->number = (int32_t)number;
    split->lists = lists;
    split->equal_sizes = cli_flag(self, "equal");
    return true;
}

/* Every member calls, or that of --rank (-1 = none), each for its part. A part that many have made
 * is kept from its first rank. */
static tutti_code
split_all(const cli_all_ranks *world, int64_t rank, const tutti_group_options *options,
          const tutti_split *split, tutti_group_info *infos, size_t *ret_count, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    uint32_t i;

    for (i = 0; i < world->count && code == TUTTI_OK; i++) {
        tutti_group_info *info = &infos[*ret_count];

        if (rank >= 0 && world->ranks[i] != (uint32_t)rank) {
            continue;
        }
        code = tutti_group_split(world->clients[i], options, split, info, NULL, err);
        if (code == TUTTI_OK && info->rank_count > 0 && (info->rank == 0 || rank >= 0)) {
            (*ret_count)++;
        } else if (code == TUTTI_OK) {
            tutti_group_info_free(info);
        }
    }
    return code;
}

static void
print_parts(const cli *self, const tutti_group_info *infos, size_t count)
{
    json_t *groups = json_array();
    size_t i;

    for (i = 0; i < count; i++) {
        (void)json_array_append_new(groups, cli_json_group(&infos[i]));
    }
    cli_print_result(self, json_pack("{s:o}", "groups", groups), "groups", cli_group_columns);
}

/* All ranks of the parent are connected, also when only one of them calls. */
static int
split_group(cli *self, int64_t rank, const tutti_group_options *options, const tutti_split *split)
{
    cli_all_ranks world = {0};
    tutti_group_info *infos = NULL;
    size_t count = 0;
    size_t i;
    tutti_error err;
    tutti_code code = cli_all_ranks_open(self, options->parent, &world, &err);

    if (code == TUTTI_OK) {
        infos = calloc(world.count + 1, sizeof(*infos));
        code = infos == NULL ? cli_fail(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory")
                             : split_all(&world, rank, options, split, infos, &count, &err);
    }
    if (code == TUTTI_OK) {
        print_parts(self, infos, count);
    }
    for (i = 0; i < count; i++) {
        tutti_group_info_free(&infos[i]);
    }
    free(infos);
    cli_all_ranks_close(&world);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, options->parent, &err);
}

int
cli_group_split(cli *self)
{
    tutti_group_options options;
    tutti_rank_lists lists = {0};
    tutti_split split;
    int exit_code = CLI_USAGE;
    int64_t rank;

    tutti_group_options_init(&options);
    tutti_split_init(&split);
    options.parent = self->argument_count > 0 ? self->arguments[0] : NULL;
    options.name = cli_value(self, "name");
    options.tag = cli_value(self, "tag");
    options.ephemeral = cli_flag(self, "ephemeral");
    if (cli_rank_option(self, &rank) && take_split(self, &split, &lists)) {
        exit_code = split_group(self, rank, &options, &split);
    }
    free(lists.starts);
    free(lists.ranks);
    return exit_code;
}

/* ------------------------------------------------------------------------------ translate */

static const cli_column translate_columns[] = {
    {">RANK", "rank", NULL},
    {">THERE", "there", NULL},
    {0},
};

/* -1 in the array, and an empty cell in the table: that rank is not in the other group. */
static void
print_ranks(const cli *self, const uint32_t *ranks, const int32_t *translated, size_t count)
{
    json_t *array = json_array();
    json_t *rows = json_array(); /* the same, beside the ranks that were asked for */
    size_t i;

    for (i = 0; i < count; i++) {
        json_t *row = json_pack("{s:I}", "rank", (json_int_t)ranks[i]);

        if (translated[i] >= 0) {
            (void)json_object_set_new(row, "there", json_integer(translated[i]));
        }
        (void)json_array_append_new(array, json_integer(translated[i]));
        (void)json_array_append_new(rows, row);
    }
    if (!cli_print_json(self, json_pack("{s:o}", "ranks", array))) {
        cli_print_rows(self, rows, translate_columns);
    }
    json_decref(rows);
}

static tutti_code
translate_group_split(cli *self, const uint32_t *ranks, size_t count, int32_t *ret_ranks,
                      tutti_error *err)
{
    tutti_client *client = NULL;
    tutti_code code = cli_connect(self, NULL, &client, err);

    if (code == TUTTI_OK) {
        code = tutti_ranks_translate(client, cli_value(self, "from"), cli_value(self, "to"),
                                     (const int32_t *)ranks, count, ret_ranks, err);
    }
    tutti_close(client);
    return code;
}

int
cli_group_translate(cli *self)
{
    uint32_t *ranks = NULL;
    int32_t *translated;
    size_t count = 0;
    int64_t rank;
    tutti_error err;
    tutti_code code;

    if (!cli_rank_option(self, &rank)) {
        return CLI_USAGE;
    }
    if (!cli_parse_ranks(self->arguments[0], &ranks, &count)) {
        return cli_usage(self, "\"%s\": need a list of ranks: 0-3,7", self->arguments[0]);
    }
    translated = calloc(count, sizeof(*translated));
    code = translated == NULL ? cli_fail(&err, TUTTI_RESOURCE_EXHAUSTED, "no memory")
                              : translate_group_split(self, ranks, count, translated, &err);
    if (code == TUTTI_OK) {
        print_ranks(self, ranks, translated, count);
    }
    free(translated);
    free(ranks);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}
