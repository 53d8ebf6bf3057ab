/* tutti explain: which algorithm an op would take, and why. */
#include <inttypes.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/diagnose/commands.h"
#include "client/cli/diagnose/way.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"
#include "client/cli/util/values.h"
#include "tutti/algorithms.h"

/* An algorithm that is not possible has a reason instead of a time. */
static json_t *
json_alternatives(const tutti_explanation *why)
{
    json_t *array = json_array();
    size_t i;

    for (i = 0; i < why->alternative_count; i++) {
        const tutti_alternative *one = &why->alternatives[i];
        json_t *object = json_pack("{s:s, s:b, s:b, s:b}", "algorithm", one->algorithm, "taken",
                                   strcmp(one->algorithm, why->algorithm) == 0, "possible",
                                   (int)one->possible, "keeps_order", (int)one->keeps_order);

        if (one->possible) {
            (void)json_object_set_new(object, "predicted_us",
                                      json_real((double)one->predicted_ns / 1000.0));
        } else {
            (void)json_object_set_new(object, "why_not", json_string(one->why_not));
        }
        (void)json_array_append_new(array, object);
    }
    return array;
}

static json_t *
document_explanation(const tutti_explain_question *question, const tutti_explanation *why)
{
    json_t *all = json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:s}", "op", question->op, "group",
                            question->group == NULL ? "world" : question->group, "bytes",
                            (json_int_t)question->bytes, "class", why->order_class, "algorithm",
                            why->algorithm, "why", why->why, "table", why->table);

    (void)json_object_update_new(
        all, json_pack("{s:I, s:I, s:b, s:b, s:b, s:I}", "ranks", (json_int_t)why->rank_count,
                       "hosts", (json_int_t)why->host_count, "settled", (int)why->settled,
                       "shared_memory", (int)why->same_host, "alike", (int)why->alike, "rules",
                       (json_int_t)why->rule_count));
    if (why->rule_number > 0) {
        (void)json_object_update_new(all, json_pack("{s:s, s:I}", "rule", why->rule, "rule_number",
                                                    (json_int_t)why->rule_number));
    }
    if (why->passed_over[0] != '\0') {
        (void)json_object_set_new(all, "passed_over", json_string(why->passed_over));
    }
    (void)json_object_set_new(all, "alternatives", json_alternatives(why));
    return all;
}

/*
 * The cases are those that the agent names in `why`. A choice by rule is the usual one and has no
 * word of its own.
 */
static void
say_why(const cli *self, const tutti_explanation *why)
{
    FILE *out = self->out;

    if (strcmp(why->why, "forced") == 0) {
        (void)fprintf(out, "because it is forced\n");
    } else if (strcmp(why->why, "small") == 0) {
        (void)fprintf(out, "because so few bytes travel with the agreement that comes before every "
                           "op: none of the algorithms runs\n");
    } else if (strcmp(why->why, "one_rank") == 0) {
        (void)fprintf(out, "because the group has one rank: the input is copied to the output, and "
                           "there is nothing to choose\n");
    } else if (why->rule_number > 0) {
        (void)fprintf(out, "by rule %" PRIu32 " of %" PRIu32 " (%s): %s\n", why->rule_number,
                      why->rule_count, why->table, why->rule);
    } else if (!why->alike) {
        (void)fprintf(out, "because the agents of these ranks were told different things: give all "
                           "of them the same --tune-table and --algorithm\n");
    } else {
        (void)fprintf(out, "because none of %" PRIu32 " rules fits (%s)\n", why->rule_count,
                      why->table);
    }
    if (why->passed_over[0] != '\0') {
        (void)fprintf(out, "forced, but passed over: %s\n", why->passed_over);
    }
    if (!why->settled) {
        (void)fprintf(out, "no op has run in this group yet: %s\n",
                      why->host_count < why->rank_count || why->rank_count == 1
                          ? "host placement is taken from the coordinator"
                          : "each rank is taken to be on a host of its own");
    }
}

static cli_style
write_predicted(FILE *out, const json_t *row, const char *key)
{
    if (json_object_get(row, key) == NULL) {
        (void)fputc('-', out);
    } else {
        (void)fprintf(out, "%.1f us", json_real_value(json_object_get(row, key)));
    }
    return CLI_PLAIN;
}

static cli_style
write_order(FILE *out, const json_t *row, const char *key)
{
    (void)fputs(json_is_true(json_object_get(row, key)) ? "kept" : "changed", out);
    return CLI_PLAIN;
}

static cli_style
write_taken(FILE *out, const json_t *row, const char *key)
{
    (void)fputc(json_is_true(json_object_get(row, key)) ? '*' : ' ', out);
    return CLI_PLAIN;
}

static cli_style
write_why_not(FILE *out, const json_t *row, const char *key)
{
    (void)fputs(json_object_get(row, key) == NULL ? " " : cli_row_text(row, key), out);
    return CLI_PLAIN;
}

static const cli_column alternative_columns[] = {
    {" ", "taken", write_taken},
    {"ALGORITHM", "algorithm", NULL},
    {">PREDICTED", "predicted_us", write_predicted},
    {"ORDER", "keeps_order", write_order},
    {"WHY NOT", "why_not", write_why_not},
    {0},
};

static void
say_explanation(const cli *self, const tutti_explain_question *question,
                const tutti_explanation *why, const tutti_error *no_lane,
                const json_t *alternatives)
{
    char size[CLI_WORD_SIZE];

    (void)fprintf(self->out,
                  "%s of %s, class %s, %" PRIu32 " rank%s on %" PRIu32 " host%s%s: %s%s%s\n",
                  question->op, cli_format_size(question->bytes, size), why->order_class,
                  why->rank_count, why->rank_count == 1 ? "" : "s", why->host_count,
                  why->host_count == 1 ? "" : "s", why->same_host ? ", sharing memory" : "",
                  cli_style_begin(self, CLI_BOLD), why->algorithm, cli_style_end(self));
    say_why(self, why);
    if (no_lane->code == TUTTI_OK) {
        (void)fprintf(self->out, "calls from here go to the agent through a lane\n");
    } else {
        (void)fprintf(self->out, "calls from here go to the agent by gRPC: %s\n", no_lane->text);
    }
    if (why->alternative_count > 0) {
        cli_print_rows(self, alternatives, alternative_columns);
        cli_say(self,
                "predicted by the model of docs/algorithms.md, not measured here: tutti tune does");
    }
}

/*
 * An op may be written with '-' or '_'. An unknown one is refused by the agent, which knows them
 * all.
 */
static bool
read_question(cli *self, char word[64], tutti_explain_question *ret)
{
    const char *bytes = cli_value(self, "bytes");
    const char *dtype = cli_value(self, "dtype");
    const char *reduce = cli_value(self, "op");
    char *at;

    (void)snprintf(word, 64, "%s", self->arguments[0]);
    for (at = word; *at != '\0'; at++) {
        *at = *at == '-' ? '_' : *at;
    }
    *ret =
        (tutti_explain_question){.op = word, .group = cli_value(self, "group"), .bytes = 1 << 20};
    if (bytes != NULL && !cli_parse_size(bytes, &ret->bytes)) {
        (void)cli_usage(self, "-b \"%s\": need a size: 8, 64K, 1MiB", bytes);
        return false;
    }
    ret->dtype = dtype != NULL ? tutti_dtype_parse(dtype) : TUTTI_DTYPE_FP32;
    ret->reduce = reduce != NULL ? tutti_reduce_parse(reduce) : TUTTI_REDUCE_SUM;
    if (ret->dtype == TUTTI_DTYPE_NONE || ret->reduce == TUTTI_REDUCE_NONE) {
        (void)cli_usage(self, "--%s \"%s\" does not exist",
                        ret->dtype == TUTTI_DTYPE_NONE ? "dtype" : "op",
                        ret->dtype == TUTTI_DTYPE_NONE ? dtype : reduce);
        return false;
    }
    return true;
}

/*
 * The agent answers by the code that also chooses, so that this command cannot say another thing
 * than what happens.
 */
int
cli_explain(cli *self)
{
    tutti_explain_question question;
    tutti_client *client = NULL;
    tutti_error no_lane = {0};
    tutti_explanation why;
    json_t *document;
    tutti_error err;
    char word[64];
    tutti_code code;

    if (!read_question(self, word, &question)) {
        return CLI_USAGE;
    }
    code = cli_connect(self, NULL, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_explain(client, &question, &why, &err);
        no_lane.code = tutti_lane_check(client, &no_lane);
        tutti_close(client);
    }
    if (code != TUTTI_OK) {
        (void)cli_failed(self, NULL, &err);
        return code == TUTTI_INVALID_ARGUMENT ? CLI_USAGE
                                              : CLI_FAILED; /* no such op, or not here */
    }
    document = document_explanation(&question, &why);
    cli_add_way(document, &no_lane);
    if (!self->json) {
        say_explanation(self, &question, &why, &no_lane, json_object_get(document, "alternatives"));
    }
    (void)cli_print_json(self, document);
    return CLI_FINE;
}
