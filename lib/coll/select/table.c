/*
 * Tables as text. The first line is "tutti-table 1"; then a rule a line, and # begins a comment:
 *
 *   all_reduce float 4M.. 2..64 3.. chain
 *
 * that is op, class (or any), bytes, ranks, ranks per host, algorithm; a range is "8K", "1..8K",
 * "..8K", "8K.." or "*", both ends inside. The word "shipped" alone stands for the shipped rules.
 */
/* Tables are given by a user, and written by `tutti tune`: each word is checked, and the first
 * error names its line. Numbers that would overflow are refused. Pure, any thread. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "coll/select/select.h"

#define FNV_START UINT64_C(14695981039346656037) /* FNV-1a: Fowler, Noll, Vo 1991 */
#define FNV_PRIME UINT64_C(1099511628211)
#define LANGUAGE 1 /* what rules mean: another number where the same rules lead elsewhere */
#define HEAD "tutti-table 1"
#define DEFAULTS "shipped"
#define COLUMNS 6

typedef struct word {
    const char *at;
    size_t size;
} word;

/* ------------------------------------------------------------------------------ hash */

static uint64_t
mix_hash(uint64_t hash, uint64_t number)
{
    int byte;

    for (byte = 0; byte < 8; byte++) {
        hash = (hash ^ (number >> (8 * byte) & 0xff)) * FNV_PRIME;
    }
    return hash;
}

static uint64_t
mix_range(uint64_t hash, const tutti_selection_range *range)
{
    return mix_hash(mix_hash(hash, range->from), range->to);
}

/*
 * The hash covers all by which two selections could choose differently, and LANGUAGE, the meaning
 * of rules in this version. Ranges are hashed as numbers, so two ways to write one table have one
 * hash.
 */
void
tutti_selection_seal(tutti_selection *selection)
{
    uint64_t hash = mix_hash(FNV_START, LANGUAGE);
    size_t i;

    for (i = 0; i < sizeof(selection->forced) / sizeof(selection->forced[0]); i++) {
        hash = mix_hash(hash, selection->forced[i]);
    }
    for (i = 0; i < selection->rule_count; i++) {
        const tutti_selection_rule *rule = &selection->rules[i];

        hash = mix_hash(mix_hash(mix_hash(hash, rule->kind), rule->class_), rule->algorithm);
        hash = mix_range(mix_range(mix_range(hash, &rule->bytes), &rule->ranks), &rule->per_host);
    }
    selection->hash = hash;
}

/* ------------------------------------------------------------------------------ writing */

static void
write_number(uint64_t number, tutti_text *text)
{
    static const char units[] = "KMG";
    uint64_t unit = UINT64_C(1) << 30;
    int i;

    for (i = 2; i >= 0; i--, unit >>= 10) {
        if (number >= unit && number % unit == 0) {
            tutti_text_add(text, "%" PRIu64 "%c", number / unit, units[i]);
            return;
        }
    }
    tutti_text_add(text, "%" PRIu64, number);
}

static void
write_range(const tutti_selection_range *range, tutti_text *text)
{
    tutti_text_add(text, " ");
    if (range->from == 0 && range->to == UINT64_MAX) {
        tutti_text_add(text, "*");
        return;
    }
    if (range->from > 0 || range->to == 0) {
        write_number(range->from, text);
    }
    if (range->from != range->to) {
        tutti_text_add(text, "..");
    }
    if (range->from != range->to && range->to != UINT64_MAX) {
        write_number(range->to, text);
    }
}

void
tutti_selection_write_rule(const tutti_selection_rule *rule, tutti_text *text)
{
    tutti_text_add(text, "%s %s", tutti_coll_kind_name(rule->kind),
                   tutti_selection_class_name(rule->class_));
    write_range(&rule->bytes, text);
    write_range(&rule->ranks, text);
    write_range(&rule->per_host, text);
    tutti_text_add(text, " %s", tutti_algorithm_name(rule->algorithm));
}

/* ------------------------------------------------------------------------------ reading */

/* A whole number with a unit of K, M or G, or none. The bound keeps number * unit below 2^64. */
static bool
read_rule_number(word text, uint64_t *ret)
{
    uint64_t number = 0;
    uint64_t unit = 1;
    size_t i;

    for (i = 0; i < text.size && isdigit((unsigned char)text.at[i]); i++) {
        if (number > (UINT64_MAX >> 31) / 10) {
            return false;
        }
        number = number * 10 + (uint64_t)(text.at[i] - '0');
    }
    if (i > 0 && i + 1 == text.size) {
        unit = text.at[i] == 'K'   ? UINT64_C(1) << 10
               : text.at[i] == 'M' ? UINT64_C(1) << 20
               : text.at[i] == 'G' ? UINT64_C(1) << 30
                                   : 0;
        i++;
    }
    *ret = number * unit;
    return i > 0 && i == text.size && unit > 0;
}

/* "from..to" with either side left out; a single number is both. from > to is refused: such a rule
 * would never hold, which is a mistake. */
static bool
read_range(word text, tutti_selection_range *ret)
{
    size_t dots = 0;

    *ret = (tutti_selection_range){0, UINT64_MAX};
    if (text.size == 1 && text.at[0] == '*') {
        return true;
    }
    while (dots + 1 < text.size && memcmp(text.at + dots, "..", 2) != 0) {
        dots++;
    }
    if (dots + 1 >= text.size) {
        ret->to = 0;
        return read_rule_number(text, &ret->from) && (ret->to = ret->from, true);
    }
    return text.size > 2 && (dots == 0 || read_rule_number((word){text.at, dots}, &ret->from)) &&
           (dots + 2 == text.size ||
            read_rule_number((word){text.at + dots + 2, text.size - dots - 2}, &ret->to)) &&
           ret->from <= ret->to;
}

static bool
read_class(word text, tutti_selection_class *ret)
{
    int i;

    for (i = 0; i <= TUTTI_CLASS_COUNT; i++) {
        const char *name = tutti_selection_class_name((tutti_selection_class)i);

        if (strlen(name) == text.size && memcmp(name, text.at, text.size) == 0) {
            *ret = (tutti_selection_class)i;
            return true;
        }
    }
    return false;
}

/* Returns how many there are; of more than COLUMNS, COLUMNS + 1. */
static size_t
cut_words(word line, word words[COLUMNS])
{
    size_t count = 0;
    size_t i = 0;

    while (i < line.size && line.at[i] != '#') {
        size_t end = i;

        while (end < line.size && line.at[end] != '#' && line.at[end] != ' ' &&
               line.at[end] != '\t' && line.at[end] != '\r') {
            end++;
        }
        if (end > i && count == COLUMNS) {
            return COLUMNS + 1;
        }
        if (end > i) {
            words[count++] = (word){line.at + i, end - i};
        }
        i = end > i ? end : i + 1;
    }
    return count;
}

static tutti_code
read_rule(const word words[COLUMNS], size_t line, tutti_selection_rule *ret, tutti_error *err)
{
    static const char *const columns[] = {"", "class", "bytes", "ranks", "ranks per host"};
    tutti_error why;
    size_t bad = 0;
    tutti_code code;

    code = tutti_selection_check_pair(words[0].at, words[0].size, words[5].at, words[5].size,
                                      &ret->kind, &ret->algorithm, &why);
    if (code != TUTTI_OK) {
        return TUTTI_FAIL_FOR(err, code, "BAD_TABLE", "line %zu of the table: %.900s", line,
                              why.text);
    }
    bad = !read_class(words[1], &ret->class_)     ? 1
          : !read_range(words[2], &ret->bytes)    ? 2
          : !read_range(words[3], &ret->ranks)    ? 3
          : !read_range(words[4], &ret->per_host) ? 4
                                                  : 0;
    if (bad > 0) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_TABLE", "line %zu of the table: %.*s is no %s", line,
            (int)(words[bad].size < 64 ? words[bad].size : 64), words[bad].at, columns[bad]);
    }
    return TUTTI_OK;
}

static tutti_code
add_rules(const tutti_selection_rule *added, size_t added_count, tutti_selection_rule *rules,
          size_t *count, tutti_error *err)
{
    if (added_count > TUTTI_SELECTION_RULES_MAX - *count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_TABLE",
                              "the table has more than %d rules", TUTTI_SELECTION_RULES_MAX);
    }
    memcpy(rules + *count, added, added_count * sizeof(*added));
    *count += added_count;
    return TUTTI_OK;
}

static tutti_code
read_rule_line(word text, size_t line, tutti_selection_rule *rules, size_t *count, tutti_error *err)
{
    word words[COLUMNS];
    const size_t found = cut_words(text, words);
    tutti_selection_rule rule;

    if (line == 1 && (text.size != strlen(HEAD) || memcmp(text.at, HEAD, text.size) != 0)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_TABLE",
                              "the first line of the table is not \"%s\"", HEAD);
    }
    if (line == 1 || found == 0) {
        return TUTTI_OK;
    }
    if (found == 1 && words[0].size == strlen(DEFAULTS) &&
        memcmp(words[0].at, DEFAULTS, strlen(DEFAULTS)) == 0) {
        size_t defaults_count;
        const tutti_selection_rule *defaults = tutti_selection_default(&defaults_count);

        return add_rules(defaults, defaults_count, rules, count, err);
    }
    if (found != COLUMNS) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_TABLE",
                              "line %zu of the table has %s words, need %d: op, class, bytes, "
                              "ranks, ranks per host, algorithm",
                              line, found < COLUMNS ? "fewer" : "more", COLUMNS);
    }
    TUTTI_TRY(read_rule(words, line, &rule, err));
    return add_rules(&rule, 1, rules, count, err);
}

tutti_code
tutti_selection_parse(const char *text, size_t size, tutti_selection_rule *ret_rules,
                      size_t *ret_count, tutti_error *err)
{
    size_t count = 0;
    size_t line = 0;
    size_t at = 0;
    tutti_code code = TUTTI_OK;

    while (code == TUTTI_OK && (at < size || line == 0)) {
        const char *end = at < size ? memchr(text + at, '\n', size - at) : NULL;
        const size_t length = end != NULL ? (size_t)(end - (text + at)) : size - at;

        code = read_rule_line((word){text + at, length}, ++line, ret_rules, &count, err);
        at += length + 1;
    }
    if (code == TUTTI_OK) {
        *ret_count = count;
    }
    return code;
}
