/*
 * Checking a token. The order keeps what is hostile away from code that trusts: first the shape,
 * then the header, read with limits; then the signature, with a key whose algorithm is the one
 * that the header names; and only then the claims.
 */
#include <jansson.h>
#include <jwt.h>
#include <stdbool.h>
#include <string.h>

#include "auth/base64url.h"
#include "auth/token.h"
#include "base/error/fail.h"

/* What a header says, before anything is believed. */
typedef struct header {
    tutti_auth_algorithm algorithm;
    bool has_id;
    char id[TUTTI_AUTH_KEY_ID_MAX + 1];
} header;

static tutti_code
fail_bad(tutti_error *err, const char *why)
{
    return TUTTI_FAIL_FOR(err, TUTTI_UNAUTHENTICATED, "BAD_TOKEN", "the bearer token %s", why);
}

/* Three parts of base64url with dots between, none of them empty. */
static tutti_code
check_shape(const char *token, tutti_error *err)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const char *at = token;
    unsigned parts = 0;

    if (strnlen(token, TUTTI_AUTH_TOKEN_MAX + 1) > TUTTI_AUTH_TOKEN_MAX) {
        return fail_bad(err, "is too long");
    }
    do {
        const size_t size = strspn(at, letters);

        at += size;
        /* an empty part ends the loop: there are never 4 parts */
        parts += size > 0 ? 1 : 4;
    } while (*at++ == '.' && parts < 4);
    return at[-1] == '\0' && parts == 3 ? TUTTI_OK : fail_bad(err, "is no JSON web token");
}

/*
 * "crit" lists extensions that a reader must understand (RFC 7515). None is understood here, so
 * such a token is refused.
 */
static tutti_code
read_header_json(const json_t *json, header *ret, tutti_error *err)
{
    const char *algorithm = json_string_value(json_object_get(json, "alg"));
    const json_t *id = json_object_get(json, "kid");

    if (algorithm == NULL) {
        return fail_bad(err, "is no JSON web token");
    }
    ret->algorithm = tutti_auth_algorithm_from(algorithm);
    if (ret->algorithm == 0) {
        return fail_bad(err, "is not signed with HS256, RS256 or ES256");
    }
    if (json_object_get(json, "crit") != NULL) {
        return fail_bad(err, "wants extensions (\"crit\") that are not known here");
    }
    ret->has_id = id != NULL;
    if (id != NULL &&
        (json_string_value(id) == NULL || json_string_length(id) >= sizeof(ret->id))) {
        return fail_bad(err, "has a \"kid\" that is no short text");
    }
    if (id != NULL) {
        memcpy(ret->id, json_string_value(id), json_string_length(id) + 1);
    }
    return TUTTI_OK;
}

/*
 * The header is read on its own before libjwt sees the token, as the key must be chosen by it.
 * The buffer is the limit of its size.
 */
static tutti_code
read_header(const char *token, header *ret, tutti_error *err)
{
    unsigned char bytes[TUTTI_AUTH_HEADER_MAX];
    size_t size = 0;
    json_t *json = NULL;
    tutti_code code;

    if (auth_base64url_decode(token, strcspn(token, "."), bytes, sizeof(bytes), &size)) {
        json = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, NULL);
    }
    code = json == NULL ? fail_bad(err, "is no JSON web token") : read_header_json(json, ret, err);
    json_decref(json);
    return code;
}

int
auth_library_algorithm(tutti_auth_algorithm algorithm)
{
    return algorithm == TUTTI_AUTH_HS256   ? JWT_ALG_HS256
           : algorithm == TUTTI_AUTH_RS256 ? JWT_ALG_RS256
                                           : JWT_ALG_ES256;
}

/*
 * Did this key sign it? The library takes the algorithm from the token, so the key is only tried
 * when the algorithm is its own. What the library used is compared afterwards once more. A token
 * without "kid", or a key without one, is tried with all keys of the algorithm.
 */
static bool
is_signed_with(const tutti_auth_key *key, const header *head, const char *token)
{
    jwt_t *jwt = NULL;
    bool good;

    if (key->algorithm != head->algorithm ||
        (head->has_id && key->id[0] != '\0' && strcmp(head->id, key->id) != 0)) {
        return false;
    }
    if (jwt_decode(&jwt, token, (const unsigned char *)key->bytes, (int)key->size) != 0) {
        return false;
    }
    good = (int)jwt_get_alg(jwt) == auth_library_algorithm(key->algorithm);
    jwt_free(jwt);
    return good;
}

static tutti_code
check_signature(const tutti_auth_keys *keys, const char *token, tutti_error *err)
{
    header head = {0};
    bool found = false;
    tutti_code code = read_header(token, &head, err);
    size_t i;

    for (i = 0; i < keys->count && code == TUTTI_OK && !found; i++) {
        found = is_signed_with(&keys->keys[i], &head, token);
    }
    return code != TUTTI_OK || found
               ? code
               : fail_bad(err, "was not signed with a key that is known here");
}

/*
 * The claims are read from the signed bytes themselves. The library's own reading of them takes a
 * name that comes twice, and the bytes after a 0 would be lost.
 */
static tutti_code
read_claims(const char *token, const tutti_auth_rules *rules, int64_t now_s, tutti_auth_grant *ret,
            tutti_error *err)
{
    const char *claims = strchr(token, '.') + 1;
    unsigned char bytes[TUTTI_AUTH_TOKEN_MAX + 1];
    size_t size = 0;

    if (!auth_base64url_decode(claims, strcspn(claims, "."), bytes, sizeof(bytes) - 1, &size) ||
        memchr(bytes, '\0', size) != NULL) {
        return fail_bad(err, "is no JSON web token");
    }
    bytes[size] = '\0';
    return auth_claims_read((const char *)bytes, rules, now_s, ret, err);
}

tutti_code
tutti_auth_token_read(const tutti_auth_keys *keys, const tutti_auth_rules *rules, const char *token,
                      int64_t now_s, tutti_auth_grant *ret_grant, tutti_error *err)
{
    tutti_code code = check_shape(token, err);

    code = code == TUTTI_OK ? check_signature(keys, token, err) : code;
    return code == TUTTI_OK ? read_claims(token, rules, now_s, ret_grant, err) : code;
}
