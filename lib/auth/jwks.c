/* JSON Web Key Sets: RFC 7517, what an issuer publishes, Kubernetes' /openid/v1/jwks for one. */
#include <jansson.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "auth/base64url.h"
#include "auth/keys.h"
#include "base/error/fail.h"

#define NUMBER_BYTES_MAX 1024 /* of an RSA modulus: 8192 bits */
#define P256_BYTES 32

typedef struct number {
    unsigned char bytes[NUMBER_BYTES_MAX];
    size_t size;
} number;

static const char *
get_jwks_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text == NULL ? "" : text;
}

/* Numbers come as base64url with the highest byte first, as OpenSSL takes them. */
static tutti_code
read_jwks_number(const json_t *jwk, const char *file, const char *name, number *ret,
                 tutti_error *err)
{
    const char *text = get_jwks_text(jwk, name);

    if (!auth_base64url_decode(text, strlen(text), ret->bytes, sizeof(ret->bytes), &ret->size) ||
        ret->size == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "%s: a key without \"%s\" as base64url of 1 to %d bytes", file, name,
                              NUMBER_BYTES_MAX);
    }
    return TUTTI_OK;
}

/* NULL when OpenSSL does not take it. */
static EVP_PKEY *
make_pkey(const char *type, OSSL_PARAM_BLD *builder)
{
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(builder);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    EVP_PKEY *pkey = NULL;

    if (params == NULL || context == NULL || EVP_PKEY_fromdata_init(context) != 1 ||
        EVP_PKEY_fromdata(context, &pkey, EVP_PKEY_PUBLIC_KEY, params) != 1) {
        pkey = NULL;
    }
    EVP_PKEY_CTX_free(context);
    OSSL_PARAM_free(params);
    return pkey;
}

static EVP_PKEY *
make_rsa(const number *n, const number *e)
{
    OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
    BIGNUM *modulus = BN_bin2bn(n->bytes, (int)n->size, NULL);
    BIGNUM *exponent = BN_bin2bn(e->bytes, (int)e->size, NULL);
    EVP_PKEY *pkey = NULL;

    if (builder != NULL && modulus != NULL && exponent != NULL &&
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, modulus) == 1 &&
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, exponent) == 1) {
        pkey = make_pkey("RSA", builder);
    }
    BN_free(modulus);
    BN_free(exponent);
    OSSL_PARAM_BLD_free(builder);
    return pkey;
}

/* Both coordinates have their full 32 bytes here; add_p256 has checked that. */
static EVP_PKEY *
make_p256(const number *x, const number *y)
{
    unsigned char point[1 + 2 * P256_BYTES] = {4}; /* uncompressed */
    OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
    EVP_PKEY *pkey = NULL;

    memcpy(point + 1, x->bytes, P256_BYTES);
    memcpy(point + 1 + P256_BYTES, y->bytes, P256_BYTES);
    if (builder != NULL &&
        OSSL_PARAM_BLD_push_utf8_string(builder, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) ==
            1 &&
        OSSL_PARAM_BLD_push_octet_string(builder, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point)) ==
            1) {
        pkey = make_pkey("EC", builder);
    }
    OSSL_PARAM_BLD_free(builder);
    return pkey;
}

static tutti_code
add_pkey(tutti_auth_keys *keys, const char *file, const json_t *jwk, EVP_PKEY *pkey,
         tutti_error *err)
{
    tutti_code code;

    ERR_clear_error();
    if (pkey == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "%s: key \"%.64s\" is invalid", file, get_jwks_text(jwk, "kid"));
    }
    code = auth_keys_add_public(keys, file, get_jwks_text(jwk, "kid"), pkey, err);
    EVP_PKEY_free(pkey);
    return code;
}

static tutti_code
add_rsa(tutti_auth_keys *keys, const char *file, const json_t *jwk, tutti_error *err)
{
    number n;
    number e;
    tutti_code code = read_jwks_number(jwk, file, "n", &n, err);

    code = code == TUTTI_OK ? read_jwks_number(jwk, file, "e", &e, err) : code;
    return code == TUTTI_OK ? add_pkey(keys, file, jwk, make_rsa(&n, &e), err) : code;
}

static tutti_code
add_p256(tutti_auth_keys *keys, const char *file, const json_t *jwk, tutti_error *err)
{
    number x;
    number y;
    tutti_code code = read_jwks_number(jwk, file, "x", &x, err);

    code = code == TUTTI_OK ? read_jwks_number(jwk, file, "y", &y, err) : code;
    if (code == TUTTI_OK && (x.size != P256_BYTES || y.size != P256_BYTES)) {
        code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "%s: a P-256 key of %zu and %zu bytes, need %d each", file, x.size,
                              y.size, P256_BYTES);
    }
    return code == TUTTI_OK ? add_pkey(keys, file, jwk, make_p256(&x, &y), err) : code;
}

/* The secret is overwritten on the stack. auth_keys_add has made its own copy. */
static tutti_code
add_secret(tutti_auth_keys *keys, const char *file, const json_t *jwk, tutti_error *err)
{
    number k;
    tutti_auth_key key = {.algorithm = TUTTI_AUTH_HS256, .bytes = (char *)k.bytes};
    tutti_code code = read_jwks_number(jwk, file, "k", &k, err);

    if (code == TUTTI_OK) {
        key.size = k.size;
        (void)snprintf(key.id, sizeof(key.id), "%s", get_jwks_text(jwk, "kid"));
        code = auth_keys_add(keys, file, &key, err);
    }
    OPENSSL_cleanse(&k, sizeof(k));
    return code;
}

/*
 * Is it a key of this kind, and for signatures? The algorithm follows from the kind. A key that
 * states another algorithm or use is left out, even if it could be used.
 */
static bool
is_for(const json_t *jwk, const char *kind, const char *algorithm)
{
    const char *stated = get_jwks_text(jwk, "alg");
    const char *use = get_jwks_text(jwk, "use");

    return strcmp(get_jwks_text(jwk, "kty"), kind) == 0 &&
           (stated[0] == '\0' || strcmp(stated, algorithm) == 0) &&
           (use[0] == '\0' || strcmp(use, "sig") == 0);
}

/*
 * Keys of other kinds are passed over and are no error: an issuer publishes all its keys in one
 * set.
 */
static tutti_code
add_jwk(tutti_auth_keys *keys, const char *file, const json_t *jwk, tutti_error *err)
{
    if (strlen(get_jwks_text(jwk, "kid")) > TUTTI_AUTH_KEY_ID_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "%s: \"kid\" of more than %d bytes", file, TUTTI_AUTH_KEY_ID_MAX);
    }
    if (is_for(jwk, "RSA", "RS256")) {
        return add_rsa(keys, file, jwk, err);
    }
    if (is_for(jwk, "EC", "ES256") && strcmp(get_jwks_text(jwk, "crv"), "P-256") == 0) {
        return add_p256(keys, file, jwk, err);
    }
    return is_for(jwk, "oct", "HS256") ? add_secret(keys, file, jwk, err) : TUTTI_OK;
}

tutti_code
auth_keys_parse_jwks(tutti_auth_keys *keys, const char *name, const char *text, size_t size,
                     tutti_error *err)
{
    json_error_t why;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
    const json_t *list = json_object_get(root, "keys");
    const size_t count = json_array_size(list);
    tutti_code code = TUTTI_OK;
    size_t i;

    if (root == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "%s: no JSON: %s in line %d", name, why.text, why.line);
    }
    if (!json_is_array(list)) { /* one key alone is fine, too */
        code = add_jwk(keys, name, root, err);
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = add_jwk(keys, name, json_array_get(list, i), err);
    }
    json_decref(root);
    return code;
}
