/* Sign: makes keys and tokens, and shows what is in a token. For people and small clusters. */
#ifndef TUTTI_AUTH_SIGN_H
#define TUTTI_AUTH_SIGN_H

#include <stdint.h>

#include "auth/keys.h"
#include "auth/token.h"

/* What a token is to say; NULL = nothing about it. */
typedef struct tutti_auth_wish {
    const char *subject;
    const char *issuer;
    const char *audience;
    const char *role;
    const char *job;
    const char *ranks;
    const char *key_id;
    int64_t lasts_s; /* from now on */
} tutti_auth_wish;

/*
 * [in]  key_path   a secret (HS256), or PEM of a private key: RSA (RS256) or P-256 (ES256)
 * [out] ret_token  of TUTTI_AUTH_TOKEN_MAX + 1 bytes
 *
 * TUTTI_INVALID_ARGUMENT    a role, job or ranks that are none; no key that can sign
 * TUTTI_NOT_FOUND, ...      from the system, with the path
 */
tutti_code tutti_auth_token_make(const char *key_path, const tutti_auth_wish *wish, int64_t now_s,
                                 char *ret_token, tutti_error *err);

/*
 * What a token says, without believing it: {"header": ..., "claims": ...}.
 *
 * [out, owned] ret_json  free() it
 *
 * TUTTI_INVALID_ARGUMENT  it is none
 */
tutti_code tutti_auth_token_show(const char *token, char **ret_json, tutti_error *err);

/*
 * A new key: HS256 a random secret at `path`; else the private key at `path` and the public one at
 * `path` with .pub behind it. Private ones are for their owner only, and nothing is written over.
 * Either both files are made or none.
 *
 * TUTTI_ALREADY_EXISTS    there is such a file
 * TUTTI_INVALID_ARGUMENT  the path is longer than TUTTI_AUTH_PATH_MAX
 */
#define TUTTI_AUTH_PATH_MAX 4000
tutti_code tutti_auth_key_make(tutti_auth_algorithm algorithm, const char *path, tutti_error *err);

/* ------------------------------------------------------------------ for the files of this room */

struct evp_pkey_st;

/*
 * files.c: PEM into a file that must not be there, of mode 0600 for private keys.
 *
 * TUTTI_ALREADY_EXISTS, ...  from the system, with the path
 */
tutti_code auth_write_new(const char *path, const void *data, size_t size, unsigned mode,
                          tutti_error *err);
tutti_code auth_write_private(const char *path, struct evp_pkey_st *pkey, tutti_error *err);

#endif
