/*
 * Making keys and tokens, and showing what is in a token. This is for people and small clusters;
 * a server never runs it, and checks tokens by other code (token.c), so a mistake here cannot
 * open a server.
 */
#include <jansson.h>
#include <jwt.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "auth/base64url.h"
#include "auth/sign.h"
#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/file.h"

/* ------------------------------------------------------------------------------ making tokens */

/* OpenSSL would ask at the terminal for a passphrase. -1 makes it fail instead. */
static int
no_passphrase(char *buffer, int size, int writing, void *arg)
{
    (void)buffer;
    (void)size;
    (void)writing;
    (void)arg;
    return -1;
}

/* With what a private key in PEM signs; 0 = with nothing. */
static tutti_auth_algorithm
algorithm_of(const char *pem, size_t size)
{
    BIO *bio = BIO_new_mem_buf(pem, (int)size);
    EVP_PKEY *pkey = bio == NULL ? NULL : PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    const tutti_auth_algorithm algorithm = pkey == NULL ? 0 : auth_algorithm_of(pkey);

    EVP_PKEY_free(pkey);
    BIO_free(bio);
    ERR_clear_error();
    return algorithm;
}

/*
 * The key as the library takes it: text of PEM, or the bytes of a secret.
 *
 * [out, owned] ret  its bytes; whoever has them overwrites them before they are freed
 */
static tutti_code
read_signing_key(const char *path, tutti_auth_key *ret, tutti_error *err)
{
    static const char white[] = " \t\r\n";
    char *text = NULL;
    size_t size = 0;
    size_t begin;
    tutti_code code = tutti_file_read(path, TUTTI_AUTH_KEY_FILE_MAX, &text, &size, err);

    if (code != TUTTI_OK) {
        return code;
    }
    begin = strspn(text, white);
    /* The byte 0 is part of a secret, as in keys.c, though strchr() finds it. */
    while (size > begin && text[size - 1] != '\0' && strchr(white, text[size - 1]) != NULL) {
        size--;
    }
    memmove(text, text + begin, size - begin);
    text[size - begin] = '\0';
    *ret = (tutti_auth_key){.algorithm = TUTTI_AUTH_HS256, .bytes = text, .size = size - begin};
    if (strstr(text, "-----BEGIN ") != NULL || text[0] == '{') {
        ret->algorithm = text[0] == '{' ? 0 : algorithm_of(text, ret->size);
    }
    if (ret->algorithm == 0 ||
        (ret->algorithm == TUTTI_AUTH_HS256 && ret->size < TUTTI_AUTH_SECRET_MIN)) {
        code = TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_PATH",
            "%s: no key that signs: need a private RSA or P-256 key in PEM without a "
            "passphrase, or a secret of at least %d bytes",
            path, TUTTI_AUTH_SECRET_MIN);
        OPENSSL_cleanse(text, size);
        free(text);
    }
    return code;
}

/*
 * A token with a role or a job that no server takes would be refused much later, far from who
 * made it. So the wish is checked by the code that reads tokens.
 */
static tutti_code
check_wish(const tutti_auth_wish *wish, tutti_error *err)
{
    tutti_auth_grant grant;
    tutti_code code = TUTTI_OK;

    memset(&grant, 0, sizeof(grant));
    if (wish->role != NULL && tutti_auth_role_from(wish->role) == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "role \"%.64s\", need client, agent or admin", wish->role);
    }
    if (wish->job != NULL) {
        code = tutti_check_name(wish->job, "job", err);
    }
    return code == TUTTI_OK && wish->ranks != NULL
               ? tutti_auth_ranks_parse(wish->ranks, &grant, err)
               : code;
}

static bool
add_text(jwt_t *jwt, const char *name, const char *value)
{
    return value == NULL || value[0] == '\0' || jwt_add_grant(jwt, name, value) == 0;
}

static bool
fill_token(jwt_t *jwt, const tutti_auth_wish *wish, int64_t now_s)
{
    return add_text(jwt, "sub", wish->subject) && add_text(jwt, "iss", wish->issuer) &&
           add_text(jwt, "aud", wish->audience) && add_text(jwt, "role", wish->role) &&
           add_text(jwt, "job", wish->job) && add_text(jwt, "ranks", wish->ranks) &&
           jwt_add_grant_int(jwt, "iat", (long)now_s) == 0 &&
           jwt_add_grant_int(jwt, "exp", (long)(now_s + wish->lasts_s)) == 0 &&
           (wish->key_id == NULL || jwt_add_header(jwt, "kid", wish->key_id) == 0);
}

/* [out] ret_token  untouched on failure */
static tutti_code
write_signature(const tutti_auth_key *key, const tutti_auth_wish *wish, int64_t now_s,
                char *ret_token, tutti_error *err)
{
    jwt_t *jwt = NULL;
    char *text = NULL;
    tutti_code code = TUTTI_OK;

    if (jwt_new(&jwt) == 0 && fill_token(jwt, wish, now_s) &&
        jwt_set_alg(jwt, (jwt_alg_t)auth_library_algorithm(key->algorithm),
                    (const unsigned char *)key->bytes, (int)key->size) == 0) {
        text = jwt_encode_str(jwt);
    }
    if (text == NULL || strlen(text) > TUTTI_AUTH_TOKEN_MAX) {
        code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "could not make the token: %s",
                              text == NULL ? "libjwt could not sign it" : "more than 8000 bytes");
    } else {
        memcpy(ret_token, text, strlen(text) + 1);
    }
    free(text);
    jwt_free(jwt);
    return code;
}

tutti_code
tutti_auth_token_make(const char *key_path, const tutti_auth_wish *wish, int64_t now_s,
                      char *ret_token, tutti_error *err)
{
    tutti_auth_key key = {.size = 0};
    tutti_code code = check_wish(wish, err);

    if (code == TUTTI_OK) {
        code = read_signing_key(key_path, &key, err);
    }
    if (code == TUTTI_OK) {
        code = write_signature(&key, wish, now_s, ret_token, err);
        OPENSSL_cleanse(key.bytes, key.size);
        free(key.bytes);
    }
    return code;
}

/* ------------------------------------------------------------------------------ looking at them */

/* One part of a token as JSON; NULL = it is none. */
static json_t *
read_token_part(const char *text, size_t size)
{
    unsigned char bytes[TUTTI_AUTH_TOKEN_MAX];
    size_t done = 0;

    return auth_base64url_decode(text, size, bytes, sizeof(bytes), &done)
               ? json_loadb((const char *)bytes, done, JSON_REJECT_DUPLICATES, NULL)
               : NULL;
}

/* Nothing is verified here: what is shown is what the token claims. */
tutti_code
tutti_auth_token_show(const char *token, char **ret_json, tutti_error *err)
{
    const size_t first = strcspn(token, ".");
    const char *second = token + first + (token[first] == '.' ? 1 : 0);
    json_t *header = read_token_part(token, first);
    json_t *claims = read_token_part(second, strcspn(second, "."));
    json_t *both = json_pack("{s:o?, s:o?}", "header", header, "claims", claims);
    const bool good = json_is_object(header) && json_is_object(claims);

    *ret_json = good ? json_dumps(both, JSON_INDENT(2)) : NULL;
    json_decref(both);
    return *ret_json != NULL ? TUTTI_OK
                             : TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                                              "that is no JSON web token");
}

/* ------------------------------------------------------------------------------ making keys */

/* The secret is text of hex digits: it survives editors, copying and environment variables. */
static tutti_code
make_secret(const char *path, tutti_error *err)
{
    unsigned char bytes[TUTTI_AUTH_SECRET_MIN];
    char text[2 * sizeof(bytes) + 2];
    size_t i;
    tutti_code code;

    if (RAND_bytes(bytes, sizeof(bytes)) != 1) {
        return TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "CRYPTO_FAILED", "no random numbers");
    }
    for (i = 0; i < sizeof(bytes); i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    text[2 * sizeof(bytes)] = '\n';
    code = auth_write_new(path, text, 2 * sizeof(bytes) + 1, 0600, err);
    OPENSSL_cleanse(bytes, sizeof(bytes));
    OPENSSL_cleanse(text, sizeof(text));
    return code;
}

static tutti_code
write_public(const char *path, EVP_PKEY *pkey, tutti_error *err)
{
    char public[TUTTI_AUTH_PATH_MAX + sizeof(".pub")];
    BIO *bio = BIO_new(BIO_s_mem());
    char *data = NULL;
    tutti_code code = TUTTI_FAIL_MEMORY(err, "no memory for a key");

    (void)snprintf(public, sizeof(public), "%s.pub", path);
    if (bio != NULL && PEM_write_bio_PUBKEY(bio, pkey) == 1) {
        const long size = BIO_get_mem_data(bio, &data);

        code = auth_write_new(public, data, size > 0 ? (size_t)size : 0, 0644, err);
    }
    BIO_free(bio);
    return code;
}

tutti_code
tutti_auth_key_make(tutti_auth_algorithm algorithm, const char *path, tutti_error *err)
{
    EVP_PKEY *pkey;
    tutti_code code;

    if (strlen(path) > TUTTI_AUTH_PATH_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_PATH",
                              "a path of %zu bytes, need at most %d", strlen(path),
                              TUTTI_AUTH_PATH_MAX);
    }
    if (algorithm == TUTTI_AUTH_HS256) {
        return make_secret(path, err);
    }
    pkey = algorithm == TUTTI_AUTH_RS256 ? EVP_RSA_gen(3072) : EVP_EC_gen("P-256");
    if (pkey == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "CRYPTO_FAILED", "OpenSSL made no key");
    }
    code = auth_write_private(path, pkey, err);
    if (code == TUTTI_OK) {
        code = write_public(path, pkey, err);
        if (code != TUTTI_OK) {
            (void)unlink(path); /* alone it is of no use, and another attempt would find it */
        }
    }
    EVP_PKEY_free(pkey);
    return code;
}
