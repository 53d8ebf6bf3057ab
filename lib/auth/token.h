/*
 * Token: a JSON web token is checked and becomes a grant. What is in a token is hostile until its
 * signature has been checked with a key of the algorithm that the token names. Any thread.
 */
#ifndef TUTTI_AUTH_TOKEN_H
#define TUTTI_AUTH_TOKEN_H

#include "auth/grant.h"
#include "auth/keys.h"

#define TUTTI_AUTH_TOKEN_MAX 8000  /* bytes of a token: gRPC takes 8 KiB of metadata */
#define TUTTI_AUTH_HEADER_MAX 1024 /* bytes of its header, decoded */
#define TUTTI_AUTH_SUBJECTS_MAX 64

/* Whose tokens carry no claims of ours: "system:serviceaccount:train:agents" is an agent. */
typedef struct tutti_auth_subject_rule {
    char subject[TUTTI_AUTH_IDENTITY_MAX + 1]; /* of "sub"; with '*' at its end: what begins so */
    tutti_auth_grant grant;
} tutti_auth_subject_rule;

/* What a token has to say. */
typedef struct tutti_auth_rules {
    const char *issuer;   /* "" = any */
    const char *audience; /* "" = the token must be for nobody in particular */
    const char *prefix;   /* of the claims role, job and ranks */
    int64_t skew_s;       /* between our clock and the issuer's */
    const tutti_auth_subject_rule *subjects;
    size_t subject_count;
} tutti_auth_rules;

/*
 * TUTTI_UNAUTHENTICATED  BAD_TOKEN: malformed, or no key of ours signed it; TOKEN_EXPIRED,
 *                        TOKEN_NOT_YET, WRONG_ISSUER, WRONG_AUDIENCE
 * TUTTI_PERMISSION_DENIED  NO_ROLE: it says who it is, but not what he may do
 */
tutti_code tutti_auth_token_read(const tutti_auth_keys *keys, const tutti_auth_rules *rules,
                                 const char *token, int64_t now_s, tutti_auth_grant *ret_grant,
                                 tutti_error *err);

/*
 * "SUBJECT=ROLE[@JOB][#RANKS] ..." with white space between; [out, owned] free() it.
 *
 * TUTTI_INVALID_ARGUMENT  not of that form
 */
tutti_code tutti_auth_subjects_parse(const char *text, tutti_auth_subject_rule **ret_rules,
                                     size_t *ret_count, tutti_error *err);

/* ------------------------------------------------------------------ for the files of this room */

int auth_library_algorithm(tutti_auth_algorithm algorithm); /* libjwt's number */

/*
 * claims.c: what the signed JSON says.
 *
 * [in] claims  the JSON's text
 */
tutti_code auth_claims_read(const char *claims, const tutti_auth_rules *rules, int64_t now_s,
                            tutti_auth_grant *ret_grant, tutti_error *err);

#endif
