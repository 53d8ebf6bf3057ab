#include "token_maker.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char token[TOKEN_BYTES];

char *
token_put(char *to, const void *data, size_t size)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const unsigned char *bytes = data;
    unsigned bits = 0;
    unsigned held = 0;
    size_t i;

    for (i = 0; i < size; i++) {
        bits = (bits << 8 | bytes[i]) & 0xffff;
        for (held += 8; held >= 6; held -= 6) {
            *to++ = letters[bits >> (held - 6) & 63];
        }
    }
    if (held > 0) {
        *to++ = letters[bits << (6 - held) & 63];
    }
    *to = '\0';
    return to;
}

const char *
token_make(const char *header, const char *claims)
{
    unsigned char mac[32];
    unsigned size = sizeof(mac);
    char *at = token_put(token, header, strlen(header));

    *at++ = '.';
    at = token_put(at, claims, strlen(claims));
    (void)HMAC(EVP_sha256(), TOKEN_SECRET, (int)strlen(TOKEN_SECRET), (unsigned char *)token,
               (size_t)(at - token), mac, &size);
    *at++ = '.';
    (void)token_put(at, mac, size);
    return token;
}

const char *
token_of(const char *format, ...)
{
    static char claims[TOKEN_BYTES / 2];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(claims, sizeof(claims), format, args);
    va_end(args);
    return token_make("{\"alg\":\"HS256\"}", claims);
}
