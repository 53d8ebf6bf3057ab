/*
 * Auth: decides about calls. Who is it (a token, a certificate), which role has he, for which job
 * and which ranks; and does this call keep to that? Knows no gRPC: server/guard.h puts it in front
 * of a server's methods.
 *
 * Any thread. Tokens that were checked are remembered by their digest until they expire or the keys
 * change, so a call costs a hash and no signature.
 */
#ifndef TUTTI_AUTH_AUTH_H
#define TUTTI_AUTH_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "auth/grant.h"
#include "base/config/config.h"
#include "tutti/error.h"

typedef struct tutti_auth tutti_auth;

/* Filled by tutti_config_load from tutti_auth_option_set. */
typedef struct tutti_auth_options {
    const char *keys; /* "" = no tokens are asked for */
    const char *issuer;
    const char *audience;
    const char *subjects;
    const char *prefix;
    uint64_t skew_ns;
    bool core_dumps; /* the process stays open to debuggers although it holds keys */
} tutti_auth_options;

/* token-keys, token-issuer, token-audience, token-subjects, token-claim-prefix, token-skew,
 * core-dumps. */
tutti_option_set tutti_auth_option_set(tutti_auth_options *target);

/*
 * Read the keys, if there are any. Later they are read again when the file changes; a file that
 * cannot be used is logged, and the last good keys stay.
 *
 * [in] options  borrowed until close
 *
 * TUTTI_INVALID_ARGUMENT, TUTTI_NOT_FOUND, ...  as tutti_auth_keys_read and
 *                                               tutti_auth_subjects_parse
 */
tutti_code tutti_auth_open(const tutti_auth_options *options, tutti_auth **ret_auth,
                           tutti_error *err);

void tutti_auth_close(tutti_auth *auth); /* no call is being decided on; NULL is fine */

/*
 * An agent's own job and rank, for calls to it. Before it is told its rank, who is bound to ranks
 * may ask it whether it has joined, and nothing else.
 */
void tutti_auth_set_job(tutti_auth *auth,
                        const char *job); /* copied; once, before the first call */
void tutti_auth_set_rank(tutti_auth *auth, uint32_t rank);

/* What a call shows. */
typedef struct tutti_auth_visit {
    const char *method;
    const char *token;       /* "" = none */
    const char *certificate; /* the one URI of the client's certificate; "" = none */
} tutti_auth_visit;

/*
 * May he call the method? A token decides when there is one; else a certificate that says "tutti:";
 * else, when tokens are asked for, nobody may.
 *
 * [out, owned] ret_grant  unref it; NULL = no limits: no tokens are asked for
 *
 * TUTTI_UNAUTHENTICATED    NO_TOKEN, and as tutti_auth_token_read
 * TUTTI_PERMISSION_DENIED  NO_ROLE, WRONG_ROLE, FOREIGN_JOB, FOREIGN_RANK
 * TUTTI_FAILED_PRECONDITION  NOT_JOINED: bound to ranks, and the agent has none yet
 */
tutti_code tutti_auth_admit(tutti_auth *auth, const tutti_auth_visit *visit,
                            tutti_auth_grant **ret_grant, tutti_error *err);

/* Has he a role for this method? [in] grant  NULL = no limits */
bool tutti_auth_may(const tutti_auth_grant *grant, const char *method);

/* May he speak for this rank? [in] grant  NULL = no limits. TUTTI_PERMISSION_DENIED  FOREIGN_RANK */
tutti_code tutti_auth_check_rank(const tutti_auth_grant *grant, uint32_t rank, tutti_error *err);

void tutti_auth_grant_unref(tutti_auth_grant *grant); /* NULL is fine */

/* Whom a request speaks for. */
typedef struct tutti_auth_subject {
    bool has_job;
    const char *job; /* "" or NULL = "default" */
    bool has_rank;   /* of the member in it */
    uint32_t rank;
    bool has_seat; /* the rank it asks for, or the number for which it stands */
    uint32_t seat;
} tutti_auth_subject;

/*
 * Does this message keep to the grant? For every message of a stream.
 *
 * [in] grant  NULL = no limits
 *
 * TUTTI_PERMISSION_DENIED  FOREIGN_JOB, FOREIGN_RANK
 */
tutti_code tutti_auth_check(const tutti_auth_grant *grant, const char *method,
                            const tutti_auth_subject *subject, tutti_error *err);

#endif
