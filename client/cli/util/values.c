/* What people type and read: sizes, times, ranks, shapes. */
#include "client/cli/util/values.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit times[] = {{"", 1000},  {"ms", 1},     {"s", 1000},
                             {"m", 60e3}, {"h", 3600e3}, {NULL, 0}};

static const unit sizes[] = {
    {"", 1},
    {"B", 1},
    {"K", 1024},
    {"KiB", 1024},
    {"M", 1048576},
    {"MiB", 1048576},
    {"G", 1073741824},
    {"GiB", 1073741824},
    {"T", 1099511627776},
    {"TiB", 1099511627776},
    {NULL, 0},
};

/* [in] most  the result is less than that, so it fits the integer it goes to */
static bool
parse_with_unit(const char *text, const unit *units, double most, double *ret)
{
    char *end = NULL;
    double amount;

    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    amount = strtod(text, &end);
    if (end != text + strspn(text, "0123456789.")) {
        return false; /* hexadecimal, or with an exponent */
    }
    for (; units->name != NULL; units++) {
        if (strcasecmp(end, units->name) == 0) {
            amount = amount * units->factor + 0.5;
            *ret = amount;
            return amount < most;
        }
    }
    return false;
}

bool
cli_parse_ms(const char *text, uint32_t *ret_ms)
{
    double amount;

    if (!parse_with_unit(text, times, 4294967296.0, &amount) || amount < 1) {
        return false;
    }
    *ret_ms = (uint32_t)amount;
    return true;
}

bool
cli_parse_size(const char *text, uint64_t *ret_bytes)
{
    double amount;

    if (!parse_with_unit(text, sizes, 9.2e18, &amount)) {
        return false;
    }
    *ret_bytes = (uint64_t)amount;
    return true;
}

/*
 * The first character must be a digit or a minus: strtoll alone would take white space and a
 * plus.
 */
bool
cli_parse_number(const char *text, int64_t least, int64_t most, int64_t *ret_number)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    char *end = NULL;
    long long number;

    if (!isdigit((unsigned char)digits[0])) {
        return false;
    }
    errno = 0;
    number = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || number < least || number > most) {
        return false;
    }
    *ret_number = number;
    return true;
}

/* ------------------------------------------------------------------------------ ranks */

static bool
take_rank(const char **at, uint32_t *ret)
{
    char *end = NULL;
    unsigned long number;

    if (!isdigit((unsigned char)**at)) {
        return false;
    }
    number = strtoul(*at, &end, 10);
    *at = end;
    *ret = (uint32_t)number;
    return number < TUTTI_RANKS_MAX;
}

/* "3" or "3-7" at *at, appended. */
static bool
take_run(const char **at, uint32_t *ranks, size_t *count)
{
    uint32_t first = 0;
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
    if (last - first >= TUTTI_RANKS_MAX - *count) {
        return false;
    }
    for (; first <= last; first++) {
        ranks[(*count)++] = first;
    }
    return true;
}

/* [out, owned] ret_ranks  free it */
bool
cli_parse_ranks(const char *text, uint32_t **ret_ranks, size_t *ret_count)
{
    uint32_t *ranks = calloc(TUTTI_RANKS_MAX, sizeof(*ranks));
    const char *at = text;
    size_t count = 0;
    bool good;

    if (ranks == NULL) {
        return false;
    }
    good = take_run(&at, ranks, &count);
    while (good && *at == ',') {
        at++;
        good = take_run(&at, ranks, &count);
    }
    if (!good || *at != '\0') {
        free(ranks);
        return false;
    }
    *ret_ranks = ranks;
    *ret_count = count;
    return true;
}

/* A handle names the rank that made it, so the command can go to that agent without being told. */
bool
cli_rank_of(const char *handle, uint32_t *ret_rank)
{
    const char *at = handle;
    uint32_t rank;

    if (strncmp(handle, "tensor:", 7) == 0) {
        at += 7;
    } else if (strncmp(handle, "work:", 5) == 0) {
        at += 5;
    } else {
        return false;
    }
    if (!take_rank(&at, &rank) || *at != '.') {
        return false;
    }
    *ret_rank = rank;
    return true;
}

/* ------------------------------------------------------------------------------ formatting */

const char *
cli_format_size(uint64_t bytes, char *ret)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double amount = (double)bytes;
    size_t step = 0;

    while (amount >= 1024) {
        amount /= 1024;
        step++;
    }
    if (step == 0 || amount == (double)(uint64_t)amount) {
        (void)snprintf(ret, CLI_WORD_SIZE, "%" PRIu64 " %s", (uint64_t)amount, units[step]);
    } else {
        (void)snprintf(ret, CLI_WORD_SIZE, "%.1f %s", amount, units[step]);
    }
    return ret;
}

const char *
cli_format_shape(const tutti_spec *spec, char *ret)
{
    size_t used = (size_t)snprintf(ret, CLI_WORD_SIZE, "[");
    uint32_t i;

    for (i = 0; i < spec->dim_count && used < CLI_WORD_SIZE; i++) {
        used += (size_t)snprintf(ret + used, CLI_WORD_SIZE - used, "%s%" PRId64, i == 0 ? "" : ", ",
                                 spec->dims[i]);
    }
    if (used < CLI_WORD_SIZE) {
        (void)snprintf(ret + used, CLI_WORD_SIZE - used, "]");
    }
    return ret;
}

/* "0-3,7". What does not fit is left out. */
void
cli_format_ranks(const uint32_t *ranks, size_t count, char *ret, size_t size)
{
    size_t used = 0;
    size_t i;

    ret[0] = '\0';
    for (i = 0; i < count && used < size; i++) {
        size_t last = i;

        while (last + 1 < count && ranks[last + 1] == ranks[last] + 1) {
            last++;
        }
        used += (size_t)snprintf(ret + used, size - used,
                                 last > i ? "%s%" PRIu32 "-%" PRIu32 : "%s%" PRIu32,
                                 i == 0 ? "" : ",", ranks[i], ranks[last]);
        i = last;
    }
}

/* ------------------------------------------------------------------------------ files */

/* "%d" in a name stands for the rank; nothing else in it is a format. */
bool
cli_name_file(const char *path, uint32_t rank, char ret[PATH_MAX])
{
    const char *mark = strstr(path, CLI_RANK_MARK);
    int size;

    if (mark == NULL) {
        size = snprintf(ret, PATH_MAX, "%s", path);
    } else {
        size =
            snprintf(ret, PATH_MAX, "%.*s%" PRIu32 "%s", (int)(mark - path), path, rank, mark + 2);
    }
    return size < PATH_MAX;
}
