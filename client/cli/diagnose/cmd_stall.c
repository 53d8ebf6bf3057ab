/* tutti stall: which ops wait, and for whom. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/diagnose/commands.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"
#include "client/cli/util/values.h"
#include "tutti/diagnose.h"

#define OLDER_MS 1000 /* younger ops are just running */

/* ------------------------------------------------------------------------------ documents */

static json_t *
json_stall_rank(const tutti_stalled_rank *one)
{
    json_t *rank = json_pack("{s:I, s:s, s:b}", "rank", (json_int_t)one->rank, "standing",
                             tutti_standing_name(one->standing), "arrived", (int)one->arrived);

    if (one->last_op[0] != '\0') {
        (void)json_object_update_new(
            rank, json_pack("{s:s, s:I, s:I}", "last_op", one->last_op, "last_sequence",
                            (json_int_t)one->last_sequence, "last_ms", (json_int_t)one->last_ms));
    }
    if (one->standing == TUTTI_STANDING_SILENT) {
        (void)json_object_set_new(rank, "silent_ms", json_integer((json_int_t)one->silent_ms));
    }
    if (one->reason[0] != '\0') {
        (void)json_object_set_new(rank, "reason", json_string(one->reason));
    }
    return rank;
}

static json_t *
json_ranks(const tutti_stalled_rank *ranks, size_t count)
{
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_stall_rank(&ranks[i]));
    }
    return list;
}

/*
 * The text is the coordinator's own sentence about the stall; the rest is what it was made from.
 */
static json_t *
json_stall(const tutti_stall *one)
{
    json_t *arrived = json_array();
    size_t i;

    for (i = 0; i < one->arrived_listed; i++) {
        (void)json_array_append_new(arrived, json_integer(one->arrived[i]));
    }
    return json_pack("{s:s, s:I, s:s, s:I, s:I, s:o, s:I, s:o, s:s}", "group", one->group,
                     "sequence", (json_int_t)one->sequence, "op", one->op, "waited_ms",
                     (json_int_t)one->waited_ms, "group_size", (json_int_t)one->group_size,
                     "arrived", arrived, "missing_count", (json_int_t)one->missing_count, "ranks",
                     json_ranks(one->ranks, one->rank_count), "text", one->text);
}

static json_t *
json_counted(const tutti_counted_rank *one)
{
    json_t *rank = json_pack("{s:I, s:I}", "rank", (json_int_t)one->rank, "sequence",
                             (json_int_t)one->sequence);

    if (one->last_op[0] != '\0') {
        (void)json_object_update_new(rank, json_pack("{s:s, s:I}", "last_op", one->last_op,
                                                     "last_ms", (json_int_t)one->last_ms));
    }
    return rank;
}

static json_t *
json_uneven(const tutti_uneven_group *one)
{
    json_t *behind = json_array();
    size_t i;

    for (i = 0; i < one->behind_listed; i++) {
        (void)json_array_append_new(behind, json_counted(&one->behind[i]));
    }
    return json_pack("{s:s, s:o, s:I, s:o, s:s}", "group", one->group, "ahead",
                     json_counted(&one->ahead), "behind_count", (json_int_t)one->behind_count,
                     "behind", behind, "text", one->text);
}

static json_t *
json_stalls(const tutti_stalls *all)
{
    json_t *stalls = json_array();
    json_t *uneven = json_array();
    size_t i;

    for (i = 0; i < all->count; i++) {
        (void)json_array_append_new(stalls, json_stall(&all->stalls[i]));
    }
    for (i = 0; i < all->uneven_count; i++) {
        (void)json_array_append_new(uneven, json_uneven(&all->uneven[i]));
    }
    return json_pack("{s:s, s:I, s:I, s:o, s:I, s:I, s:o, s:o}", "job", all->job, "epoch",
                     (json_int_t)all->epoch, "world_size", (json_int_t)all->world_size, "stalls",
                     stalls, "silent", (json_int_t)all->silent_count, "lost",
                     (json_int_t)all->lost_count, "ranks", json_ranks(all->ranks, all->rank_count),
                     "uneven", uneven);
}

/* ------------------------------------------------------------------------------ tables */

static cli_style
write_standing(FILE *out, const json_t *row, const char *key)
{
    const char *standing = cli_row_text(row, key);

    (void)fputs(standing, out);
    return strcmp(standing, tutti_standing_name(TUTTI_STANDING_LOST)) == 0 ||
                   strcmp(standing, tutti_standing_name(TUTTI_STANDING_SILENT)) == 0
               ? CLI_RED
               : CLI_YELLOW;
}

static cli_style
write_last_op(FILE *out, const json_t *row, const char *key)
{
    if (cli_row_number(row, "last_sequence") != 0) {
        (void)fprintf(out, "%" JSON_INTEGER_FORMAT " ", cli_row_number(row, "last_sequence"));
    }
    return cli_cell_value(out, row, key);
}

static cli_style
write_ended(FILE *out, const json_t *row, const char *key)
{
    if (json_object_get(row, key) == NULL) {
        (void)fputc('-', out);
    } else {
        (void)fprintf(out, "%.3g s ago", (double)cli_row_number(row, key) / 1000.0);
    }
    return CLI_PLAIN;
}

static cli_style
write_why(FILE *out, const json_t *row, const char *key)
{
    if (json_object_get(row, "silent_ms") != NULL) {
        (void)fprintf(out, "heard last %.3g s ago",
                      (double)cli_row_number(row, "silent_ms") / 1000.0);
    } else if (json_object_get(row, key) != NULL) {
        (void)fputs(cli_row_text(row, key), out);
    }
    return CLI_PLAIN;
}

static const cli_column stall_columns[] = {
    {">RANK", "rank", NULL},
    {"STANDING", "standing", write_standing},
    {"IN IT", "arrived", NULL},
    {"LAST OP", "last_op", write_last_op},
    {"ENDED", "last_ms", write_ended},
    {"WHY", "reason", write_why},
    {0},
};

static void
print_ranks(const cli *self, const json_t *ranks)
{
    if (json_array_size(ranks) > 0) {
        cli_print_rows(self, ranks, stall_columns);
    }
}

/* When no op waits, ranks that are silent or lost are shown on their own. */
static void
print_stalls(const cli *self, const tutti_stalls *all, const json_t *document)
{
    const json_t *stalls = json_object_get(document, "stalls");
    size_t i;

    (void)fprintf(self->out,
                  "job %s, epoch %" PRIu64 ": %zu op%s wait%s, %" PRIu32 " of %" PRIu32
                  " ranks silent, %" PRIu32 " lost\n",
                  all->job, all->epoch, all->count, all->count == 1 ? "" : "s",
                  all->count == 1 ? "s" : "", all->silent_count, all->world_size, all->lost_count);
    for (i = 0; i < all->count; i++) {
        (void)fprintf(self->out, "\n%s%s%s\n", cli_style_begin(self, CLI_BOLD), all->stalls[i].text,
                      cli_style_end(self));
        print_ranks(self, json_object_get(json_array_get(stalls, i), "ranks"));
    }
    if (all->count == 0) {
        print_ranks(self, json_object_get(document, "ranks"));
    }
    for (i = 0; i < all->uneven_count; i++) {
        (void)fprintf(self->out, "\n%s%s%s\n", cli_style_begin(self, CLI_BOLD), all->uneven[i].text,
                      cli_style_end(self));
    }
}

/* ------------------------------------------------------------------------------ asking */

static bool
read_stall_options(cli *self, tutti_stall_options *ret)
{
    const char *older = cli_value(self, "older");
    uint32_t older_ms = OLDER_MS;

    tutti_stall_options_init(ret);
    ret->group = cli_value(self, "group");
    if (older != NULL && !cli_parse_ms(older, &older_ms)) {
        return false;
    }
    ret->older_than_ms = older_ms;
    return true;
}

/* Only the coordinator is asked: agents that hang would not answer. */
static tutti_code
find_stall(cli *self, const tutti_stall_options *options, tutti_stalls *ret, tutti_error *err)
{
    tutti_client *client = NULL;
    tutti_code code = cli_connect_coordinator(self, &client, err);

    if (code == TUTTI_OK) {
        code = tutti_stalls_find(client, options, ret, err);
        tutti_close(client);
    }
    return code;
}

/* Exits with failure when something waits or is gone, so that a script can ask. */
int
cli_stall(cli *self)
{
    tutti_stall_options options;
    tutti_stalls all;
    json_t *document;
    tutti_error err;
    int status;

    if (!read_stall_options(self, &options)) {
        return cli_usage(self, "--older \"%s\": need a time: 250ms, 10s, 5m",
                         cli_value(self, "older"));
    }
    if (find_stall(self, &options, &all, &err) != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    status = all.count + all.silent_count + all.lost_count > 0 ? CLI_FAILED : CLI_FINE;
    document = json_stalls(&all);
    if (!self->json) {
        print_stalls(self, &all, document);
    }
    (void)cli_print_json(self, document);
    tutti_stalls_free(&all);
    return status;
}
