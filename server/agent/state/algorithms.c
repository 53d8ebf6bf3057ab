/*
 * Which algorithms this agent takes: --tune-table and --algorithm when it opens, and what
 * SetAlgorithms tells it later. The selector (lib/coll/select) hands choices to the thread that
 * runs the engine.
 *
 * Ranks may be told at different moments: with every op they compare whether they choose alike, and
 * take a common default where they do not (docs/decisions/0016).
 */
#include "server/agent/state/algorithms.h"

#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/file.h"
#include "base/os/log.h"
#include "server/agent/state/state.h"

#define TABLE_BYTES_MAX (256U << 10)

/* Rules of a fixed maximum, since the parser allocates nothing. */
static tutti_code
read_table(const char *text, size_t size, tutti_selection *selection,
           tutti_selection_rule **ret_rules, tutti_error *err)
{
    tutti_selection_rule *rules = calloc(TUTTI_SELECTION_RULES_MAX, sizeof(*rules));
    tutti_code code;

    if (rules == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a table of algorithms");
    }
    code = tutti_selection_parse(text, size, rules, &selection->rule_count, err);
    selection->rules = rules;
    *ret_rules = rules;
    return code;
}

tutti_code
agent_algorithms_open(tutti_agent *agent, tutti_error *err)
{
    const char *path = agent->options->tune_table;
    tutti_selection_rule *rules = NULL;
    tutti_selection selection;
    char *text = NULL;
    size_t size = 0;
    tutti_code code = TUTTI_OK;

    tutti_selection_init(&selection);
    if (path[0] != '\0') {
        code = tutti_file_read(path, TABLE_BYTES_MAX, &text, &size, err);
    }
    if (code == TUTTI_OK && path[0] != '\0') {
        code = read_table(text, size, &selection, &rules, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_selection_force(&selection, agent->options->algorithm, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_selector_new(&selection, rules != NULL, &agent->selector, err);
        agent->first_selection = code == TUTTI_OK ? tutti_selector_current(agent->selector) : NULL;
    }
    if (code == TUTTI_OK && path[0] != '\0') {
        TUTTI_LOG("agent", INFO, "%zu rules from %s say which algorithms are taken",
                  selection.rule_count, path);
    }
    free(text);
    free(rules);
    return code;
}

/*
 * Starts from the choice of the options, so that two empty arguments restore what the agent began
 * with.
 */
tutti_code
agent_algorithms_set(tutti_agent *agent, const char *table, const char *forced, tutti_error *err)
{
    tutti_selection selection = *agent->first_selection;
    tutti_selection_rule *rules = NULL;
    tutti_code code = TUTTI_OK;

    if (table[0] != '\0' || forced[0] != '\0') { /* else as at the start */
        memset(selection.forced, 0, sizeof(selection.forced));
    }
    if (strlen(table) > TABLE_BYTES_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_TABLE",
                              "a table of %zu bytes, the limit is %u", strlen(table),
                              TABLE_BYTES_MAX);
    }
    if (table[0] != '\0') {
        code = read_table(table, strlen(table), &selection, &rules, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_selection_force(&selection, forced, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_selector_put(agent->selector, &selection, rules != NULL, err);
    }
    free(rules);
    if (code == TUTTI_OK) {
        TUTTI_LOG("agent", INFO, "a client has set %s of %zu rules, and %s",
                  table[0] != '\0' ? "a table" : "the table", selection.rule_count,
                  forced[0] != '\0' ? forced : "to force nothing");
    }
    return code;
}
