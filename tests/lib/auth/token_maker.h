/* Tokens for tests, signed with HS256 by OpenSSL alone: also those that libjwt would not make. */
#ifndef TUTTI_TESTS_AUTH_TOKEN_MAKER_H
#define TUTTI_TESTS_AUTH_TOKEN_MAKER_H

#include <stddef.h>

#define TOKEN_SECRET "a secret of the tests, long enough for HS256"
#define TOKEN_BYTES (64 << 10)

/* base64url of bytes; returns what is behind it. */
char *token_put(char *to, const void *data, size_t size);

/* Header and claims as they are, and the signature over them. Borrowed until the next call. */
const char *token_make(const char *header, const char *claims);

/* {"alg":"HS256"} and the claims, which are printed. */
const char *token_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
