/*
 * Reading and writing the text "ROLE[@JOB][#RANKS]". It comes from certificates, from the
 * configuration and, its parts, from tokens, so each length and number is checked here.
 */
#include "auth/grant.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"

static const struct {
    const char *name;
    unsigned role;
} roles[] = {
    {"client", TUTTI_AUTH_CLIENT}, {"agent", TUTTI_AUTH_AGENT}, {"admin", TUTTI_AUTH_ADMIN}};

#define ROLE_COUNT (sizeof(roles) / sizeof(roles[0]))

unsigned
tutti_auth_role_from(const char *name)
{
    size_t i;

    for (i = 0; i < ROLE_COUNT; i++) {
        if (strcmp(roles[i].name, name) == 0) {
            return roles[i].role;
        }
    }
    return 0;
}

void
tutti_auth_roles_print(unsigned wanted, char *ret_text, size_t size)
{
    tutti_text text = tutti_text_in(ret_text, size);
    size_t i;

    for (i = 0; i < ROLE_COUNT; i++) {
        if ((wanted & roles[i].role) != 0) {
            tutti_text_add(&text, "%s%s", text.used == 0 ? "" : " or ", roles[i].name);
        }
    }
}

/* A rank at *at, which moves behind it. */
static bool
read_rank(const char **at, uint32_t *ret_rank)
{
    uint64_t rank = 0;
    const char *start = *at;

    while (**at >= '0' && **at <= '9' && rank < TUTTI_RANKS_MAX) {
        rank = rank * 10 + (uint64_t)(**at - '0');
        (*at)++;
    }
    *ret_rank = (uint32_t)rank;
    return *at != start && rank < TUTTI_RANKS_MAX;
}

static bool
read_range(const char **at, tutti_auth_range *ret_range)
{
    if (!read_rank(at, &ret_range->first)) {
        return false;
    }
    ret_range->last = ret_range->first;
    if (**at == '-') {
        (*at)++;
        return read_rank(at, &ret_range->last) && ret_range->first <= ret_range->last;
    }
    return true;
}

/* Appends to the ranges that the grant has. On failure the grant is not to be used any more. */
tutti_code
tutti_auth_ranks_parse(const char *text, tutti_auth_grant *grant, tutti_error *err)
{
    const char *at = text;
    bool good;

    do {
        if (grant->range_count == TUTTI_AUTH_RANGES_MAX) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                                  "more than %d runs of ranks", TUTTI_AUTH_RANGES_MAX);
        }
        good =
            read_range(&at, &grant->ranges[grant->range_count++]) && (*at == '\0' || *at++ == ',');
    } while (good && at[-1] == ',');
    if (!good || *at != '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "ranks \"%.64s\", need the like of 0-3,7", text);
    }
    return TUTTI_OK;
}

/* Copy until one of `ends`; false when it does not fit. */
static bool
take_word(const char **at, const char *ends, char *ret_word, size_t size)
{
    const size_t length = strcspn(*at, ends);

    if (length >= size) {
        return false;
    }
    memcpy(ret_word, *at, length);
    ret_word[length] = '\0';
    *at += length;
    return true;
}

/* A text without an end date: who shows a certificate is bounded by the certificate's own. */
tutti_code
tutti_auth_grant_parse(const char *text, tutti_auth_grant *ret_grant, tutti_error *err)
{
    const char *at = text;
    char role[16] = "";
    tutti_code code = TUTTI_OK;

    memset(ret_grant, 0, sizeof(*ret_grant));
    ret_grant->expires_s = INT64_MAX;
    if (take_word(&at, "@#", role, sizeof(role))) {
        ret_grant->roles = tutti_auth_role_from(role);
    }
    if (ret_grant->roles == 0) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
            "\"%.64s\": need client, agent or admin, then @JOB and #RANKS if wanted", text);
    }
    if (*at == '@') {
        at++;
        if (!take_word(&at, "#", ret_grant->job, sizeof(ret_grant->job))) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                                  "\"%.64s\": the job's name is too long", text);
        }
        code = tutti_check_name(ret_grant->job, "job", err);
    }
    return code == TUTTI_OK && *at == '#' ? tutti_auth_ranks_parse(at + 1, ret_grant, err) : code;
}

/* No ranges means all ranks, so a parser must never turn a bad text into no ranges. */
bool
tutti_auth_grant_has_rank(const tutti_auth_grant *grant, uint32_t rank)
{
    bool found = grant->range_count == 0;
    size_t i;

    for (i = 0; i < grant->range_count && !found; i++) {
        found = rank >= grant->ranges[i].first && rank <= grant->ranges[i].last;
    }
    return found;
}

/* For messages: at most eight ranges are named. */
void
tutti_auth_ranks_print(const tutti_auth_grant *grant, char *ret_text, size_t size)
{
    const bool one = grant->range_count == 1 && grant->ranges[0].first == grant->ranges[0].last;
    tutti_text text = tutti_text_in(ret_text, size);
    size_t i;

    tutti_text_add(&text, one ? "rank " : grant->range_count == 0 ? "all ranks" : "ranks ");
    for (i = 0; i < grant->range_count && i < 8; i++) {
        const tutti_auth_range *range = &grant->ranges[i];

        tutti_text_add(&text, "%s%" PRIu32, i == 0 ? "" : ", ", range->first);
        if (range->last != range->first) {
            tutti_text_add(&text, "-%" PRIu32, range->last);
        }
    }
    if (i < grant->range_count) {
        tutti_text_add(&text, " ...");
    }
}
