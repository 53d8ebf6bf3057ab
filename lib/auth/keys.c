/*
 * Reading keys: a set in JSON, public keys or certificates in PEM, or a secret. Which of the
 * three a file is follows from its content.
 *
 * Each key gets its algorithm when it is read, from what it is. A token's header cannot change
 * it. That closes the known hole in which a token is "signed" with HS256 and the public RSA key
 * as the secret.
 */
#include "auth/keys.h"

#include <assert.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/obj_mac.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/file.h"

#define RSA_BITS_MIN 2048

static const char *const algorithm_names[] = {
    [TUTTI_AUTH_HS256] = "HS256", [TUTTI_AUTH_RS256] = "RS256", [TUTTI_AUTH_ES256] = "ES256"};

tutti_auth_algorithm
tutti_auth_algorithm_from(const char *name)
{
    tutti_auth_algorithm at;

    for (at = TUTTI_AUTH_HS256; at <= TUTTI_AUTH_ES256; at++) {
        if (strcmp(algorithm_names[at], name) == 0) {
            return at;
        }
    }
    return 0;
}

const char *
tutti_auth_algorithm_name(tutti_auth_algorithm algorithm)
{
    return algorithm_names[algorithm];
}

/* The bytes get a 0 at their end, since libjwt reads PEM as text. */
tutti_code
auth_keys_add(tutti_auth_keys *keys, const char *name, const tutti_auth_key *key, tutti_error *err)
{
    tutti_auth_key *own = &keys->keys[keys->count];

    if (keys->count == TUTTI_AUTH_KEYS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "%s: more than %d keys", name, TUTTI_AUTH_KEYS_MAX);
    }
    if (key->algorithm == TUTTI_AUTH_HS256 && key->size < TUTTI_AUTH_SECRET_MIN) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "%s: secret of %zu bytes, need at least %d", name, key->size,
                              TUTTI_AUTH_SECRET_MIN);
    }
    *own = *key;
    own->bytes = malloc(key->size + 1);
    if (own->bytes == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a key");
    }
    memcpy(own->bytes, key->bytes, key->size);
    own->bytes[key->size] = '\0';
    keys->count++;
    return TUTTI_OK;
}

/* RSA of less than 2048 bits and other curves are refused by giving no algorithm. */
tutti_auth_algorithm
auth_algorithm_of(EVP_PKEY *pkey)
{
    char curve[64] = "";

    if (EVP_PKEY_get_base_id(pkey) == EVP_PKEY_RSA) {
        return EVP_PKEY_get_bits(pkey) >= RSA_BITS_MIN ? TUTTI_AUTH_RS256 : 0;
    }
    if (EVP_PKEY_get_base_id(pkey) == EVP_PKEY_EC &&
        EVP_PKEY_get_group_name(pkey, curve, sizeof(curve), NULL) == 1 &&
        strcmp(curve, SN_X9_62_prime256v1) == 0) {
        return TUTTI_AUTH_ES256;
    }
    return 0;
}

/* OpenSSL writes the key anew: what is kept is one form, whatever the file had. */
tutti_code
auth_keys_add_public(tutti_auth_keys *keys, const char *name, const char *id, EVP_PKEY *pkey,
                     tutti_error *err)
{
    tutti_auth_key key = {.algorithm = auth_algorithm_of(pkey)};
    BIO *bio;
    long size;
    tutti_code code;

    ERR_clear_error();
    if (key.algorithm == 0) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
            "%s: holds a key that cannot be used: need RSA of at least %d bits, or P-256", name,
            RSA_BITS_MIN);
    }
    bio = BIO_new(BIO_s_mem());
    if (bio == NULL || PEM_write_bio_PUBKEY(bio, pkey) != 1) {
        BIO_free(bio);
        return TUTTI_FAIL_MEMORY(err, "no memory for a key");
    }
    (void)snprintf(key.id, sizeof(key.id), "%s", id);
    size = BIO_get_mem_data(bio, &key.bytes);
    key.size = size > 0 ? (size_t)size : 0;
    code = auth_keys_add(keys, name, &key, err);
    BIO_free(bio);
    return code;
}

/* ------------------------------------------------------------------------------ PEM */

/* The key in one block of PEM; NULL = none. */
static EVP_PKEY *
key_of_block(const char *kind, const unsigned char *data, long size)
{
    EVP_PKEY *pkey = NULL;

    if (strcmp(kind, PEM_STRING_PUBLIC) == 0) {
        pkey = d2i_PUBKEY(NULL, &data, size);
    } else if (strcmp(kind, PEM_STRING_X509) == 0) {
        X509 *certificate = d2i_X509(NULL, &data, size);

        pkey = certificate == NULL ? NULL : X509_get_pubkey(certificate);
        X509_free(certificate);
    }
    return pkey;
}

/*
 * A private key in this file is refused and not used: it would mean that a secret lies on every
 * server.
 */
static tutti_code
add_block(tutti_auth_keys *keys, const char *name, const char *kind, const unsigned char *data,
          long size, tutti_error *err)
{
    EVP_PKEY *pkey;
    tutti_code code;

    if (strstr(kind, "PRIVATE KEY") != NULL) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
            "%s: holds a private key: give the public key, which is enough to check tokens", name);
    }
    pkey = key_of_block(kind, data, size);
    if (pkey == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "%s: holds a PEM block \"%.40s\": need public keys or certificates",
                              name, kind);
    }
    code = auth_keys_add_public(keys, name, "", pkey, err);
    EVP_PKEY_free(pkey);
    return code;
}

/* A file may have several keys; the ids of PEM keys are empty, so each is tried. */
static tutti_code
parse_pem(tutti_auth_keys *keys, const char *name, const char *text, size_t size, tutti_error *err)
{
    BIO *bio = BIO_new_mem_buf(text, (int)size);
    char *kind = NULL;
    char *header = NULL;
    unsigned char *data = NULL;
    long data_size = 0;
    tutti_code code = TUTTI_OK;

    while (bio != NULL && code == TUTTI_OK &&
           PEM_read_bio(bio, &kind, &header, &data, &data_size) == 1) {
        code = add_block(keys, name, kind, data, data_size, err);
        OPENSSL_free(kind);
        OPENSSL_free(header);
        OPENSSL_clear_free(data, data_size > 0 ? (size_t)data_size : 0);
    }
    ERR_clear_error();
    BIO_free(bio);
    return code;
}

/* ------------------------------------------------------------------------------ files */

static tutti_code
parse_secret(tutti_auth_keys *keys, const char *name, const char *text, size_t size,
             tutti_error *err)
{
    const tutti_auth_key key = {
        .algorithm = TUTTI_AUTH_HS256, .bytes = (char *)(uintptr_t)text, .size = size};

    return auth_keys_add(keys, name, &key, err);
}

/*
 * White space at both ends is no part of a secret: an editor adds a newline. The byte 0 is part
 * of it, hence the tests beside strchr(), which also finds the end of its text.
 */
static tutti_code
parse_any(tutti_auth_keys *keys, const char *name, const char *text, size_t size, tutti_error *err)
{
    static const char white[] = " \t\r\n";
    static const char pem[] = "-----BEGIN ";
    tutti_code code;

    while (size > 0 && strchr(white, text[0]) != NULL && text[0] != '\0') {
        text++;
        size--;
    }
    while (size > 0 && strchr(white, text[size - 1]) != NULL && text[size - 1] != '\0') {
        size--;
    }
    if (size > 0 && text[0] == '{') {
        code = auth_keys_parse_jwks(keys, name, text, size, err);
    } else if (memmem(text, size, pem, sizeof(pem) - 1) != NULL) {
        code = parse_pem(keys, name, text, size, err);
    } else {
        code = parse_secret(keys, name, text, size, err);
    }
    if (code == TUTTI_OK && keys->count == 0) {
        code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "%s: no key in it for HS256, RS256 or ES256", name);
    }
    return code;
}

tutti_code
tutti_auth_keys_parse(const char *name, const char *text, size_t size, tutti_auth_keys **ret_keys,
                      tutti_error *err)
{
    tutti_auth_keys *keys = calloc(1, sizeof(*keys));
    tutti_code code;

    assert(size <= TUTTI_AUTH_KEY_FILE_MAX);
    if (keys == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for keys");
    }
    atomic_init(&keys->refs, 1);
    code = parse_any(keys, name, text, size, err);
    if (code != TUTTI_OK) {
        tutti_auth_keys_unref(keys);
        return code;
    }
    *ret_keys = keys;
    return TUTTI_OK;
}

tutti_code
tutti_auth_keys_read(const char *path, tutti_auth_keys **ret_keys, tutti_error *err)
{
    char *text = NULL;
    size_t size = 0;
    tutti_code code;

    TUTTI_TRY(tutti_file_read(path, TUTTI_AUTH_KEY_FILE_MAX, &text, &size, err));
    code = tutti_auth_keys_parse(path, text, size, ret_keys, err);
    OPENSSL_cleanse(text, size);
    free(text);
    return code;
}

/*
 * Keys are counted, since a token may still be checked with keys that have just been replaced.
 * Their bytes are overwritten before they are freed.
 */
void
tutti_auth_keys_unref(tutti_auth_keys *keys)
{
    size_t i;

    if (keys == NULL || atomic_fetch_sub(&keys->refs, 1) != 1) {
        return;
    }
    for (i = 0; i < keys->count; i++) {
        OPENSSL_cleanse(keys->keys[i].bytes, keys->keys[i].size);
        free(keys->keys[i].bytes);
    }
    free(keys);
}
