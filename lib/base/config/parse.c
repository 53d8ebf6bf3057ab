/*
 * Texts that people write, as numbers. Everything here refuses what it does not understand to the
 * last character, so that a typing error never becomes a value.
 */
#include "base/error/text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error/fail.h"
#include "tutti/types.h"

typedef struct unit {
    const char *name;
    uint64_t factor;
} unit;

static const unit byte_units[] = {
    {"", 1},           {"B", 1},
    {"K", 1ULL << 10}, {"KiB", 1ULL << 10},
    {"M", 1ULL << 20}, {"MiB", 1ULL << 20},
    {"G", 1ULL << 30}, {"GiB", 1ULL << 30},
    {"T", 1ULL << 40}, {"TiB", 1ULL << 40},
    {NULL, 0},
};

static const unit time_units[] = {
    {"ns", 1},
    {"us", 1000},
    {"ms", 1000000},
    {"s", 1000000000},
    {"m", 60ULL * 1000000000},
    {"h", 3600ULL * 1000000000},
    {NULL, 0},
};

/*
 * "12.5MiB" -> 12.5 * factor, refusing what overflows or carries anything else. strtod alone would
 * take 0x10 and 1e3, too: nobody writes sizes and times like that.
 */
static bool
parse_with_unit(const char *text, const unit *units, uint64_t *ret)
{
    char *end = NULL;
    double amount;
    size_t i;

    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    amount = strtod(text, &end);
    if (end != text + strspn(text, "0123456789.")) {
        return false;
    }
    while (*end == ' ') {
        end++;
    }
    for (i = 0; units[i].name != NULL; i++) {
        if (strcasecmp(end, units[i].name) == 0) {
            amount *= (double)units[i].factor;
            if (!(amount < 9.2e18)) {
                return false;
            }
            *ret = (uint64_t)(amount + 0.5);
            return true;
        }
    }
    return false;
}

tutti_code
tutti_parse_bytes(const char *text, uint64_t *ret_bytes, tutti_error *err)
{
    if (!parse_with_unit(text, byte_units, ret_bytes)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "\"%s\" is no size, write 64KiB, 1.5GiB ...", text);
    }
    return TUTTI_OK;
}

/* Zero needs no unit, all other times do: "10" could be seconds or milliseconds. */
tutti_code
tutti_parse_ns(const char *text, uint64_t *ret_ns, tutti_error *err)
{
    if (strcmp(text, "0") == 0) {
        *ret_ns = 0;
        return TUTTI_OK;
    }
    if (!parse_with_unit(text, time_units, ret_ns)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "\"%s\" is no duration, write 250ms, 10s, 5m ...", text);
    }
    return TUTTI_OK;
}

/*
 * strtoull alone would take a sign and white space, and "-1" would become a huge number. So the
 * first character must be a digit.
 */
tutti_code
tutti_parse_uint(const char *text, uint64_t most, uint64_t *ret_number, tutti_error *err)
{
    char *end = NULL;
    uint64_t number = 0;
    bool good = isdigit((unsigned char)text[0]) != 0;

    if (good) {
        errno = 0;
        number = strtoull(text, &end, 10);
        good = errno == 0 && *end == '\0' && number <= most;
    }
    if (!good) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "\"%s\" is no whole number from 0 to %" PRIu64, text, most);
    }
    *ret_number = number;
    return TUTTI_OK;
}

tutti_code
tutti_parse_bool(const char *text, bool *ret_value, tutti_error *err)
{
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};
    size_t i;

    for (i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *ret_value = strcasecmp(text, yes[i]) == 0;
            return TUTTI_OK;
        }
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                          "\"%s\" is neither true nor false", text);
}

/*
 * One number at *at, which moves behind it. strtoul gives its largest value when a number does
 * not fit, and that is above the limit.
 */
static bool
take_rank(const char **at, uint32_t *ret)
{
    char *end = NULL;
    unsigned long number;

    if (!isdigit((unsigned char)**at)) {
        return false;
    }
    number = strtoul(*at, &end, 10);
    if (number >= TUTTI_RANKS_MAX) {
        return false;
    }
    *at = end;
    *ret = (uint32_t)number;
    return true;
}

/* One "3" or "3-7" at *at, appended to the list. */
static bool
take_run(const char **at, uint32_t *ranks, size_t most, size_t *count)
{
    uint32_t first;
    uint32_t last;

    if (!take_rank(at, &first)) {
        return false;
    }
    last = first;
    if (**at == '-') {
        (*at)++;
        if (!take_rank(at, &last) || last < first) {
            return false;
        }
    }
    /* Compared so that nothing overflows: `most` is never below `*count`. */
    if (last - first >= most - *count) {
        return false;
    }
    for (; first <= last; first++) {
        ranks[(*count)++] = first;
    }
    return true;
}

tutti_code
tutti_parse_ranks(const char *text, uint32_t *ret_ranks, size_t most, size_t *ret_count,
                  tutti_error *err)
{
    const char *at = text;
    size_t count = 0;
    bool good = take_run(&at, ret_ranks, most, &count);

    while (good && *at == ',') {
        at++;
        good = take_run(&at, ret_ranks, most, &count);
    }
    if (!good || *at != '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "\"%s\" is no list of ranks, write 0-3,7 (at most %zu)", text, most);
    }
    *ret_count = count;
    return TUTTI_OK;
}

/* Compare two runs of digits by value; both pointers move behind their run. */
static int
compare_digits(const char **left, const char **right)
{
    size_t left_digits;
    size_t right_digits;
    int order;

    *left += strspn(*left, "0");
    *right += strspn(*right, "0");
    left_digits = strspn(*left, "0123456789");
    right_digits = strspn(*right, "0123456789");
    if (left_digits != right_digits) {
        return left_digits < right_digits ? -1 : 1;
    }
    order = memcmp(*left, *right, left_digits);
    *left += left_digits;
    *right += right_digits;
    return order;
}

/*
 * Sorts "gpu-2" before "gpu-10", as people expect. Names that are equal in this sense are then
 * compared as texts, so that two different names are never equal.
 */
int
tutti_compare_numeric(const char *left, const char *right)
{
    const char *a = left;
    const char *b = right;
    int order = 0;

    while (order == 0 && *a != '\0' && *b != '\0') {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            order = compare_digits(&a, &b);
        } else {
            order = (unsigned char)*a - (unsigned char)*b;
            a++;
            b++;
        }
    }
    if (order == 0) {
        order = (unsigned char)*a - (unsigned char)*b;
    }
    return order != 0 ? order : strcmp(left, right); /* "07" and "7" still differ */
}

/*
 * '.', '-' and '/' must not come first: such a name could be taken for a hidden file, for a flag,
 * or for a path.
 */
/* Not strspn, which makes a table of its set each time: each op has a name. */
static bool
is_in_name(char one)
{
    return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '-' && one <= '9') ||
           one == '_'; /* - . / and digits lie together in ASCII */
}

static bool
has_name_alone(const char *text)
{
    while (is_in_name(*text)) {
        text++;
    }
    return *text == '\0';
}

tutti_code
tutti_check_name(const char *name, const char *what, tutti_error *err)
{
    const size_t size = strlen(name);

    if (size == 0 || size > TUTTI_NAME_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME",
                              "%s name of %zu bytes, need 1 to %d", what, size, TUTTI_NAME_MAX);
    }
    if (!has_name_alone(name) || strchr("./-", name[0]) != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME",
                              "%s name \"%s\": only letters, digits and . _ / - are allowed, the "
                              "first a letter, digit or _",
                              what, name);
    }
    return TUTTI_OK;
}

/* Groups of a mesh have a prefix that nobody else may use, and may join axes with '+'. */
tutti_code
tutti_check_group_name(const char *name, tutti_error *err)
{
    char plain[TUTTI_NAME_MAX + 1];
    const size_t size = strlen(name);
    const size_t prefix = sizeof(TUTTI_MESH_PREFIX) - 1;
    char *plus;

    if (strncmp(name, TUTTI_MESH_PREFIX, prefix) != 0 || size > TUTTI_NAME_MAX) {
        return tutti_check_name(name, "group", err);
    }
    memcpy(plain, name + prefix, size - prefix + 1);
    while ((plus = strchr(plain, '+')) != NULL) { /* allowed in here, and only here */
        *plus = '_';
    }
    return tutti_check_name(plain, "mesh", err);
}
