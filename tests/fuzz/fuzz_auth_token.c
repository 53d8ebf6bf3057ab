/*
 * Goal: no token, key file or grant makes us crash, leak or believe what was not signed.
 * Method: the first byte says what the rest is. Claims are read as if they had been signed; a whole
 * token is never signed with our secret, so none may be taken.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "auth/sign.h"
#include "auth/token.h"

#define NOW 1000000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char secret[] = "a secret that the fuzzer does not know, of 32 bytes";
static const tutti_auth_rules rules = {
    .issuer = "", .audience = "tutti", .prefix = "", .skew_s = 30, .subjects = NULL};

static void
check_grant(const tutti_auth_grant *grant)
{
    size_t i;

    if (grant->roles == 0 || grant->range_count > TUTTI_AUTH_RANGES_MAX) {
        abort();
    }
    for (i = 0; i < grant->range_count; i++) {
        if (grant->ranges[i].first > grant->ranges[i].last ||
            grant->ranges[i].last >= TUTTI_RANKS_MAX) {
            abort();
        }
    }
}

static void
try_token(const char *text)
{
    tutti_auth_keys *keys = NULL;
    tutti_auth_grant grant;
    tutti_error err;
    char *json = NULL;

    if (tutti_auth_keys_parse("fuzz", secret, sizeof(secret) - 1, &keys, &err) != TUTTI_OK ||
        tutti_auth_token_read(keys, &rules, text, NOW, &grant, &err) == TUTTI_OK) {
        abort();
    }
    if (err.text[0] == '\0' || strcmp(err.reason, "BAD_TOKEN") != 0) {
        abort();
    }
    tutti_auth_keys_unref(keys);
    if (tutti_auth_token_show(text, &json, &err) == TUTTI_OK) {
        free(json);
    }
}

static void
try_keys(const char *text, size_t size)
{
    tutti_auth_keys *keys = NULL;
    tutti_error err;

    if (tutti_auth_keys_parse("fuzz", text, size, &keys, &err) == TUTTI_OK) {
        if (keys->count == 0 || keys->count > TUTTI_AUTH_KEYS_MAX) {
            abort();
        }
        tutti_auth_keys_unref(keys);
    }
}

static void
try_grants(char *text)
{
    tutti_auth_subject_rule *subjects = NULL;
    tutti_auth_grant grant;
    tutti_error err;
    size_t count = 0;

    if (tutti_auth_grant_parse(text, &grant, &err) == TUTTI_OK) {
        check_grant(&grant);
    }
    if (tutti_auth_subjects_parse(text, &subjects, &count, &err) == TUTTI_OK) {
        free(subjects);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tutti_auth_grant grant;
    tutti_error err;
    char *text;

    if (size == 0 || (text = malloc(size)) == NULL) {
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] % 4 == 0) {
        try_token(text);
    } else if (data[0] % 4 == 1) {
        try_keys(text, size - 1);
    } else if (data[0] % 4 == 2) {
        try_grants(text);
    } else if (auth_claims_read(text, &rules, NOW, &grant, &err) == TUTTI_OK) {
        check_grant(&grant);
    }
    free(text);
    return 0;
}
