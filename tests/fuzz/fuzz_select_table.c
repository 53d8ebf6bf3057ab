/*
 * Goal: a table of algorithms is refused with words or understood, and what was understood is
 * written as text that means the same. Method: as read, written, and read once more; the first
 * line is also taken for words of --algorithm.
 */
#include <stdlib.h>
#include <string.h>

#include "coll/select/select.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tutti_selection_rule rules[TUTTI_SELECTION_RULES_MAX];

static void
check_rule(const tutti_selection_rule *rule)
{
    char text[512] = "tutti-table 1\n";
    tutti_text line = tutti_text_in(text + strlen(text), sizeof(text) - strlen(text));
    tutti_selection_rule again[TUTTI_SELECTION_RULES_MAX];
    size_t count = 0;
    tutti_error err;

    tutti_selection_write_rule(rule, &line);
    if (tutti_selection_parse(text, strlen(text), again, &count, &err) != TUTTI_OK || count != 1 ||
        again[0].algorithm != rule->algorithm || again[0].kind != rule->kind ||
        again[0].class_ != rule->class_ || again[0].bytes.from != rule->bytes.from ||
        again[0].bytes.to != rule->bytes.to || again[0].ranks.to != rule->ranks.to ||
        again[0].per_host.from != rule->per_host.from) {
        abort();
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    tutti_selection choice;
    tutti_error err;
    size_t count = 0;
    size_t i;

    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    if (tutti_selection_parse(text, size, rules, &count, &err) == TUTTI_OK) {
        for (i = 0; i < count; i++) {
            check_rule(&rules[i]);
        }
    } else if (err.text[0] == '\0' || strcmp(err.reason, "BAD_TABLE") != 0) {
        abort();
    }
    text[strcspn(text, "\n")] = '\0';
    tutti_selection_init(&choice);
    if (tutti_selection_force(&choice, text, &err) != TUTTI_OK && err.text[0] == '\0') {
        abort();
    }
    free(text);
    return 0;
}
