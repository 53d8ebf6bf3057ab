/*
 * What a call shows, and what that allows. There are two moments. When the call comes,
 * tutti_auth_admit finds the grant and compares its role, and for calls to an agent the agent's
 * own job and rank. When the request has been read, tutti_auth_check compares what the request
 * names. Which moment counts is the scope in the table of roles.c.
 */
#include <string.h>

#include "auth/auth_private.h"
#include "auth/roles.h"
#include "base/error/fail.h"

#define CERTIFICATE_PREFIX "tutti:"

/* gRPC has verified the certificate against the authority already. Here only its name is read. */
static tutti_code
find_certificate(const char *uri, tutti_auth_grant **ret_grant, tutti_error *err)
{
    tutti_auth_grant grant;
    tutti_error why;

    if (tutti_auth_grant_parse(uri + strlen(CERTIFICATE_PREFIX), &grant, &why) != TUTTI_OK) {
        return TUTTI_FAIL_FOR(err, TUTTI_PERMISSION_DENIED, "NO_ROLE",
                              "the certificate's name %.64s gives no role: %.128s", uri, why.text);
    }
    (void)snprintf(grant.identity, sizeof(grant.identity), "%s", uri);
    *ret_grant = auth_grant_dup(&grant, err);
    return *ret_grant == NULL ? TUTTI_RESOURCE_EXHAUSTED : TUTTI_OK;
}

/* [out, owned] ret_grant  NULL = no limits */
static tutti_code
find_grant(tutti_auth *self, const tutti_auth_visit *visit, tutti_auth_grant **ret_grant,
           tutti_error *err)
{
    /* A token that is shown, where tokens are asked for, wins over the certificate. */
    const bool asks = self->options->keys[0] != '\0';

    if (asks && visit->token[0] != '\0') {
        return auth_find_token(self, visit->token, ret_grant, err);
    }
    if (strncmp(visit->certificate, CERTIFICATE_PREFIX, strlen(CERTIFICATE_PREFIX)) == 0) {
        return find_certificate(visit->certificate, ret_grant, err);
    }
    if (asks) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAUTHENTICATED, "NO_TOKEN",
                              "this server wants a bearer token");
    }
    *ret_grant = NULL;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ deciding */

/* No job in a request means the job "default", here as everywhere. */
static tutti_code
check_job(const tutti_auth_grant *grant, const char *job, tutti_error *err)
{
    const char *named = job == NULL || job[0] == '\0' ? "default" : job;

    if (grant->job[0] == '\0' || strcmp(grant->job, named) == 0) {
        return TUTTI_OK;
    }
    return TUTTI_FAIL_FOR(err, TUTTI_PERMISSION_DENIED, "FOREIGN_JOB",
                          "you may work with job %s, this is job %.127s", grant->job, named);
}

tutti_code
tutti_auth_check_rank(const tutti_auth_grant *grant, uint32_t rank, tutti_error *err)
{
    char ranks[128];

    if (grant == NULL || tutti_auth_grant_has_rank(grant, rank)) {
        return TUTTI_OK;
    }
    tutti_auth_ranks_print(grant, ranks, sizeof(ranks));
    return TUTTI_FAIL_FOR(err, TUTTI_PERMISSION_DENIED, "FOREIGN_RANK",
                          "you may speak for %s, not for rank %u", ranks, (unsigned)rank);
}

/*
 * No grant means that the server asks for nothing. A method without a row is closed to everybody
 * who has a grant, so a new method is closed until somebody writes its row.
 */
bool
tutti_auth_may(const tutti_auth_grant *grant, const char *method)
{
    const tutti_auth_row *row = tutti_auth_row_find(method);

    return grant == NULL || (row != NULL && (grant->roles & (row->roles | TUTTI_AUTH_ADMIN)) != 0);
}

/*
 * The message names both what is wanted and what was given: whoever sees it has shown a valid
 * token.
 */
static tutti_code
check_role(const tutti_auth_grant *grant, const tutti_auth_row *row, const char *method,
           tutti_error *err)
{
    char wanted[64];
    char given[64];

    if (tutti_auth_may(grant, method)) {
        return TUTTI_OK;
    }
    tutti_auth_roles_print(row == NULL ? 0 : row->roles | TUTTI_AUTH_ADMIN, wanted, sizeof(wanted));
    tutti_auth_roles_print(grant->roles, given, sizeof(given));
    return TUTTI_FAIL_FOR(err, TUTTI_PERMISSION_DENIED, "WRONG_ROLE",
                          "%s needs the role %s, you have %s", method,
                          row == NULL ? "of nobody" : wanted, given);
}

static tutti_code
fail_no_rank(const tutti_auth_grant *grant, tutti_error *err)
{
    char ranks[128];

    tutti_auth_ranks_print(grant, ranks, sizeof(ranks));
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_JOINED",
                          "this agent has no rank yet, and you may speak for %s: wait until it has "
                          "joined",
                          ranks);
}

/*
 * Compares the grant with the agent's own job and rank. Before the agent has joined, its rank is
 * not known: a grant for certain ranks must then wait, a grant for all ranks need not.
 */
static tutti_code
check_here(const tutti_auth *self, const tutti_auth_grant *grant, bool early, tutti_error *err)
{
    const int_least64_t rank = atomic_load(&self->rank);
    tutti_code code = check_job(grant, self->job, err);

    if (code == TUTTI_OK && rank >= 0) {
        code = tutti_auth_check_rank(grant, (uint32_t)rank, err);
    } else if (code == TUTTI_OK && grant->range_count > 0 && !early) {
        code = fail_no_rank(grant, err);
    }
    return code;
}

static tutti_code
decide_call(const tutti_auth *self, const tutti_auth_grant *grant, const char *method,
            tutti_error *err)
{
    const tutti_auth_row *row = tutti_auth_row_find(method);
    tutti_code code = check_role(grant, row, method, err);

    if (code == TUTTI_OK &&
        (row->scope == TUTTI_AUTH_SCOPE_SERVER || row->scope == TUTTI_AUTH_SCOPE_EARLY)) {
        code = check_here(self, grant, row->scope == TUTTI_AUTH_SCOPE_EARLY, err);
    }
    if (code == TUTTI_OK && row->scope == TUTTI_AUTH_SCOPE_ALL && grant->job[0] != '\0') {
        code = TUTTI_FAIL_FOR(err, TUTTI_PERMISSION_DENIED, "FOREIGN_JOB",
                              "you may work with job %s, %s shows all jobs", grant->job, method);
    }
    return code;
}

/* [out, owned] ret_grant  NULL = the server asks for nothing, so there are no limits */
tutti_code
tutti_auth_admit(tutti_auth *auth, const tutti_auth_visit *visit, tutti_auth_grant **ret_grant,
                 tutti_error *err)
{
    tutti_auth_grant *grant = NULL;
    tutti_code code = find_grant(auth, visit, &grant, err);

    if (code == TUTTI_OK && grant != NULL) {
        code = decide_call(auth, grant, visit->method, err);
    }
    if (code != TUTTI_OK) {
        tutti_auth_grant_unref(grant);
        return code;
    }
    *ret_grant = grant;
    return TUTTI_OK;
}

/*
 * Without a wish for a seat the coordinator would choose one, and it might choose a rank of
 * somebody else.
 */
static tutti_code
check_access_seat(const tutti_auth_grant *grant, const tutti_auth_subject *subject,
                  tutti_error *err)
{
    if (!subject->has_seat && grant->range_count > 0) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_PERMISSION_DENIED, "FOREIGN_RANK",
            "you may speak for certain ranks only: say which one you are (--rank)");
    }
    return subject->has_seat ? tutti_auth_check_rank(grant, subject->seat, err) : TUTTI_OK;
}

tutti_code
tutti_auth_check(const tutti_auth_grant *grant, const char *method,
                 const tutti_auth_subject *subject, tutti_error *err)
{
    const tutti_auth_row *row = grant == NULL ? NULL : tutti_auth_row_find(method);
    tutti_code code = TUTTI_OK;

    if (row == NULL ||
        (row->scope != TUTTI_AUTH_SCOPE_REQUEST && row->scope != TUTTI_AUTH_SCOPE_SEAT)) {
        return TUTTI_OK; /* decided when the call came */
    }
    if (subject->has_job) {
        code = check_job(grant, subject->job, err);
    }
    if (code == TUTTI_OK && subject->has_rank) {
        code = tutti_auth_check_rank(grant, subject->rank, err);
    }
    return code == TUTTI_OK && row->scope == TUTTI_AUTH_SCOPE_SEAT
               ? check_access_seat(grant, subject, err)
               : code;
}
