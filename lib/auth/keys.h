/*
 * Keys: what tokens are checked with. A key belongs to one algorithm, so a public key never becomes
 * somebody's secret. Never changes once read; any thread.
 */
#ifndef TUTTI_AUTH_KEYS_H
#define TUTTI_AUTH_KEYS_H

#include <stdatomic.h>
#include <stddef.h>

#include "tutti/error.h"

#define TUTTI_AUTH_KEYS_MAX 16              /* of one file */
#define TUTTI_AUTH_KEY_FILE_MAX (256 << 10) /* bytes of it */
#define TUTTI_AUTH_SECRET_MIN 32            /* bytes of a secret, as many as the digest has */
#define TUTTI_AUTH_KEY_ID_MAX 127

typedef enum tutti_auth_algorithm {
    TUTTI_AUTH_HS256 = 1, /* a secret shared by who signs and who checks */
    TUTTI_AUTH_RS256,
    TUTTI_AUTH_ES256,
} tutti_auth_algorithm;

/* "HS256"; 0 = none of ours. */
tutti_auth_algorithm tutti_auth_algorithm_from(const char *name);
const char *tutti_auth_algorithm_name(tutti_auth_algorithm algorithm);

typedef struct tutti_auth_key {
    tutti_auth_algorithm algorithm;
    char id[TUTTI_AUTH_KEY_ID_MAX + 1]; /* "" = any */
    char *bytes;                        /* a secret, or PEM of a public key; owned */
    size_t size;
} tutti_auth_key;

typedef struct tutti_auth_keys {
    atomic_uint refs;
    size_t count;
    tutti_auth_key keys[TUTTI_AUTH_KEYS_MAX];
} tutti_auth_keys;

/*
 * A file of one of three forms: a JWKS ("{...}"; keys of other kinds and for other uses are passed
 * over), PEM (public keys or certificates, one after the other), else the bytes of a secret without
 * the white space around them.
 *
 * TUTTI_INVALID_ARGUMENT    no key in it, a private key, one that is too short, too many
 * TUTTI_NOT_FOUND, ...      from the system, with the path
 */
tutti_code tutti_auth_keys_read(const char *path, tutti_auth_keys **ret_keys, tutti_error *err);

/* The same of text that is there already; `name` is for errors. */
tutti_code tutti_auth_keys_parse(const char *name, const char *text, size_t size,
                                 tutti_auth_keys **ret_keys, tutti_error *err);

void tutti_auth_keys_unref(tutti_auth_keys *keys); /* NULL is fine */

/* ------------------------------------------------------------------ for the files of this room */

struct evp_pkey_st;

/* What a key is for; 0 = none of ours: RSA of at least 2048 bits, or P-256. */
tutti_auth_algorithm auth_algorithm_of(struct evp_pkey_st *pkey);

/* One more; `bytes` is copied. TUTTI_INVALID_ARGUMENT, TUTTI_RESOURCE_EXHAUSTED */
tutti_code auth_keys_add(tutti_auth_keys *keys, const char *name, const tutti_auth_key *key,
                         tutti_error *err);

/* A public key as PEM: RSA of at least 2048 bits, or P-256. Others are TUTTI_INVALID_ARGUMENT. */
tutti_code auth_keys_add_public(tutti_auth_keys *keys, const char *name, const char *id,
                                struct evp_pkey_st *pkey, tutti_error *err);

/* jwks.c */
tutti_code auth_keys_parse_jwks(tutti_auth_keys *keys, const char *name, const char *text,
                                size_t size, tutti_error *err);

#endif
