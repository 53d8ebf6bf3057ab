/*
 * What a signed token says: for whom, from whom, until when, and what he may do. The signature
 * has been checked when this code runs, so the text is what the issuer wrote. But an issuer may
 * sign tokens for others too, hence the checks of audience and issuer.
 *
 * What is wrong with a token and what the token may not do have different codes: UNAUTHENTICATED
 * asks the client for another token, PERMISSION_DENIED says that another one of this kind will
 * not help.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/token.h"
#include "base/error/fail.h"
#include "base/error/text.h"

#define SECONDS_MAX ((int64_t)1 << 53) /* what a JSON number holds exactly */

static tutti_code
fail_claim(tutti_error *err, const char *name, const char *wanted)
{
    return TUTTI_FAIL_FOR(err, TUTTI_UNAUTHENTICATED, "BAD_TOKEN",
                          "the bearer token's \"%.64s\" is not %s", name, wanted);
}

/* ------------------------------------------------------------------------------ time */

/* A point in time. Absent: `ret` is left as it is. */
static tutti_code
read_time(const json_t *claims, const char *name, int64_t *ret, tutti_error *err)
{
    const json_t *value = json_object_get(claims, name);
    double seconds;

    if (value == NULL) {
        return TUTTI_OK;
    }
    /* The comparison is written so that a NaN fails it. */
    seconds = json_number_value(value);
    if (!json_is_number(value) || !(seconds >= 0 && seconds <= (double)SECONDS_MAX)) {
        return fail_claim(err, name, "a time");
    }
    *ret = (int64_t)seconds;
    return TUTTI_OK;
}

/*
 * A token needs an end: one that is good for ever could never be withdrawn. The skew is added to
 * the end once, so that the remembered token expires when a new check would refuse it.
 */
static tutti_code
check_times(const json_t *claims, const tutti_auth_rules *rules, int64_t now_s,
            tutti_auth_grant *grant, tutti_error *err)
{
    int64_t expires = -1;
    int64_t begins = 0;
    tutti_code code = read_time(claims, "exp", &expires, err);

    code = code == TUTTI_OK ? read_time(claims, "nbf", &begins, err) : code;
    if (code == TUTTI_OK && expires < 0) {
        code = fail_claim(err, "exp", "there: a token needs a time at which it expires");
    }
    if (code != TUTTI_OK) {
        return code;
    }
    if (now_s >= expires + rules->skew_s) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAUTHENTICATED, "TOKEN_EXPIRED",
                              "the bearer token has expired %" PRId64 " s ago", now_s - expires);
    }
    if (now_s + rules->skew_s < begins) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAUTHENTICATED, "TOKEN_NOT_YET",
                              "the bearer token is not valid before %" PRId64
                              " s from now: wait, or compare the clocks of the two machines",
                              begins - now_s);
    }
    grant->expires_s = expires + rules->skew_s;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ from and for */

/* An empty option takes any issuer; the keys alone are then what is trusted. */
static tutti_code
check_issuer(const json_t *claims, const tutti_auth_rules *rules, tutti_error *err)
{
    const char *issuer = json_string_value(json_object_get(claims, "iss"));

    if (rules->issuer[0] == '\0' || (issuer != NULL && strcmp(issuer, rules->issuer) == 0)) {
        return TUTTI_OK;
    }
    return TUTTI_FAIL_FOR(
        err, TUTTI_UNAUTHENTICATED, "WRONG_ISSUER",
        "the bearer token's \"iss\" is not the issuer that this server trusts (--token-issuer)");
}

/*
 * RFC 7519 allows one text or a list of texts. Without an audience in the configuration the token
 * must have none: one that names an audience is for somebody, and that is not us.
 */
static tutti_code
check_audience(const json_t *claims, const tutti_auth_rules *rules, tutti_error *err)
{
    const json_t *audience = json_object_get(claims, "aud");
    const json_t *one;
    bool found = audience == NULL && rules->audience[0] == '\0';
    size_t i;

    if (json_is_string(audience)) {
        found = strcmp(json_string_value(audience), rules->audience) == 0;
    }
    json_array_foreach(audience, i, one)
    {
        found =
            found || (json_is_string(one) && strcmp(json_string_value(one), rules->audience) == 0);
    }
    if (found) {
        return TUTTI_OK;
    }
    return TUTTI_FAIL_FOR(err, TUTTI_UNAUTHENTICATED, "WRONG_AUDIENCE",
                          "the bearer token's \"aud\" does not name \"%.64s\" (--token-audience)",
                          rules->audience);
}

/* ------------------------------------------------------------------------------ what he may do */

/* A claim of ours; with the prefix, when there is one. */
static const json_t *
find_claim(const json_t *claims, const tutti_auth_rules *rules, const char *name)
{
    char full[256];
    const int size = snprintf(full, sizeof(full), "%s%s", rules->prefix, name);

    return size > 0 && (size_t)size < sizeof(full) ? json_object_get(claims, full) : NULL;
}

/*
 * Unknown roles in a list are passed over, as another system may have roles of its own in the
 * same claim.
 */
static tutti_code
read_roles(const json_t *value, tutti_auth_grant *grant, tutti_error *err)
{
    const json_t *one;
    size_t i;

    if (json_is_string(value)) {
        grant->roles = tutti_auth_role_from(json_string_value(value));
    } else if (!json_is_array(value)) {
        return value == NULL ? TUTTI_OK : fail_claim(err, "role", "text, or a list of texts");
    }
    json_array_foreach(value, i, one)
    {
        if (!json_is_string(one)) {
            return fail_claim(err, "role", "text, or a list of texts");
        }
        grant->roles |= tutti_auth_role_from(json_string_value(one)); /* others may have theirs */
    }
    return TUTTI_OK;
}

/*
 * A job that is malformed is an error and not "no job": without a job the grant would be good for
 * all jobs.
 */
static tutti_code
read_job(const json_t *value, tutti_auth_grant *grant, tutti_error *err)
{
    if (value == NULL) {
        return TUTTI_OK;
    }
    if (!json_is_string(value) ||
        tutti_check_name(json_string_value(value), "job", NULL) != TUTTI_OK) {
        return fail_claim(err, "job", "the name of a job");
    }
    (void)snprintf(grant->job, sizeof(grant->job), "%s", json_string_value(value));
    return TUTTI_OK;
}

static tutti_code
add_claims_rank(const json_t *value, tutti_auth_grant *grant, tutti_error *err)
{
    const json_int_t rank = json_integer_value(value);

    if (!json_is_integer(value) || rank < 0 || rank >= TUTTI_RANKS_MAX ||
        grant->range_count == TUTTI_AUTH_RANGES_MAX) {
        return fail_claim(err, "ranks", "\"0-3,7\", or a list of at most 64 ranks");
    }
    grant->ranges[grant->range_count++] =
        (tutti_auth_range){.first = (uint32_t)rank, .last = (uint32_t)rank};
    return TUTTI_OK;
}

/* "0-3,7", 3, or [0, 1, 2]. An empty list is no rank at all, which nobody can want. */
static tutti_code
read_claims_ranks(const json_t *value, tutti_auth_grant *grant, tutti_error *err)
{
    const json_t *one;
    tutti_code code = TUTTI_OK;
    size_t i;

    if (value == NULL) {
        return TUTTI_OK;
    }
    if (json_is_string(value)) {
        return tutti_auth_ranks_parse(json_string_value(value), grant, NULL) == TUTTI_OK
                   ? TUTTI_OK
                   : fail_claim(err, "ranks", "\"0-3,7\", or a list of at most 64 ranks");
    }
    if (!json_is_array(value) || json_array_size(value) == 0) {
        return add_claims_rank(value, grant, err);
    }
    json_array_foreach(value, i, one)
    {
        code = code == TUTTI_OK ? add_claims_rank(one, grant, err) : code;
    }
    return code;
}

/* A '*' is only special at the end, so a subject that has one in the middle can be named. */
static bool
subject_fits(const tutti_auth_subject_rule *rule, const char *subject)
{
    const size_t size = strlen(rule->subject);

    return size > 0 && rule->subject[size - 1] == '*'
               ? strncmp(rule->subject, subject, size - 1) == 0
               : strcmp(rule->subject, subject) == 0;
}

/*
 * Our configuration says what this subject is: it wins over what the token says, and what it
 * leaves open the token may narrow. The first rule that fits counts.
 */
static void
apply_subject(const tutti_auth_rules *rules, const char *subject, tutti_auth_grant *grant)
{
    size_t i;

    for (i = 0; i < rules->subject_count; i++) {
        const tutti_auth_grant *ours = &rules->subjects[i].grant;

        if (!subject_fits(&rules->subjects[i], subject)) {
            continue;
        }
        grant->roles = ours->roles;
        if (ours->job[0] != '\0') {
            memcpy(grant->job, ours->job, sizeof(grant->job));
        }
        if (ours->range_count > 0) {
            grant->range_count = ours->range_count;
            memcpy(grant->ranges, ours->ranges, sizeof(grant->ranges));
        }
        return;
    }
}

/*
 * A subject that is too long to be kept whole never gets a rule: the part that fits could be the
 * name of somebody else.
 */
static tutti_code
read_grant(const json_t *claims, const tutti_auth_rules *rules, tutti_auth_grant *grant,
           tutti_error *err)
{
    const char *subject = json_string_value(json_object_get(claims, "sub"));
    tutti_code code;

    (void)snprintf(grant->identity, sizeof(grant->identity), "%s", subject == NULL ? "" : subject);
    code = read_roles(find_claim(claims, rules, "role"), grant, err);
    code = code == TUTTI_OK ? read_job(find_claim(claims, rules, "job"), grant, err) : code;
    code =
        code == TUTTI_OK ? read_claims_ranks(find_claim(claims, rules, "ranks"), grant, err) : code;
    if (code != TUTTI_OK) {
        return code;
    }
    if (subject != NULL && strlen(subject) <= TUTTI_AUTH_IDENTITY_MAX) {
        apply_subject(rules, subject, grant);
    }
    if (grant->roles == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_PERMISSION_DENIED, "NO_ROLE",
                              "the bearer token of \"%.64s\" gives no role: it needs the claim "
                              "\"%.64srole\", or its subject a line in --token-subjects",
                              grant->identity, rules->prefix);
    }
    return TUTTI_OK;
}

/*
 * A name that comes twice is refused. Two readers could otherwise take different ones of the two.
 */
tutti_code
auth_claims_read(const char *text, const tutti_auth_rules *rules, int64_t now_s,
                 tutti_auth_grant *ret_grant, tutti_error *err)
{
    json_t *claims = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    tutti_auth_grant grant;
    tutti_code code;

    memset(&grant, 0, sizeof(grant));
    code = json_is_object(claims) ? check_times(claims, rules, now_s, &grant, err)
                                  : fail_claim(err, "claims", "an object");
    code = code == TUTTI_OK ? check_issuer(claims, rules, err) : code;
    code = code == TUTTI_OK ? check_audience(claims, rules, err) : code;
    code = code == TUTTI_OK ? read_grant(claims, rules, &grant, err) : code;
    json_decref(claims);
    if (code == TUTTI_OK) {
        memcpy(ret_grant, &grant, sizeof(grant));
    }
    return code;
}

/* ------------------------------------------------------------------------------ subjects */

static tutti_code
parse_rule(char *word, tutti_auth_subject_rule *rule, tutti_error *err)
{
    char *equals = strrchr(word, '=');

    if (equals == NULL || equals == word || equals - word > TUTTI_AUTH_IDENTITY_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "\"%.64s\": need SUBJECT=ROLE[@JOB][#RANKS]", word);
    }
    *equals = '\0';
    (void)snprintf(rule->subject, sizeof(rule->subject), "%s", word);
    return tutti_auth_grant_parse(equals + 1, &rule->grant, err);
}

/*
 * Rules are separated by white space, and the last '=' of each separates the subject from its
 * role: subjects of OIDC may contain an '='.
 */
tutti_code
tutti_auth_subjects_parse(const char *text, tutti_auth_subject_rule **ret_rules, size_t *ret_count,
                          tutti_error *err)
{
    tutti_auth_subject_rule *rules = calloc(TUTTI_AUTH_SUBJECTS_MAX, sizeof(*rules));
    char *copy = strdup(text);
    char *rest = copy;
    char *word;
    size_t count = 0;
    tutti_code code = TUTTI_OK;

    if (rules == NULL || copy == NULL) {
        code = TUTTI_FAIL_MEMORY(err, "no memory for subjects");
    }
    while (code == TUTTI_OK && (word = strtok_r(rest, " \t\r\n", &rest)) != NULL) {
        code = count == TUTTI_AUTH_SUBJECTS_MAX
                   ? TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                                    "--token-subjects has more than %d subjects, the limit",
                                    TUTTI_AUTH_SUBJECTS_MAX)
                   : parse_rule(word, &rules[count++], err);
    }
    free(copy);
    if (code != TUTTI_OK) {
        free(rules);
        return code;
    }
    *ret_rules = rules;
    *ret_count = count;
    return TUTTI_OK;
}
