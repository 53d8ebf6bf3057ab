/*
 * Goal: a token becomes a grant, or an error that says why; nothing hostile in it does harm.
 * Method: tokens signed by OpenSSL alone, with a clock of the test.
 */
#include "support/testing.h"

#include "auth/token.h"
#include "token_maker.h"

#define NOW 1000000

static tutti_auth_keys *keys;
static tutti_auth_rules rules = {
    .issuer = "", .audience = "tutti", .prefix = "", .skew_s = 30, .subjects = NULL};

#define GOOD "\"aud\":\"tutti\",\"exp\":1000100,\"sub\":\"me\""

static int
make_keys(void **state)
{
    tutti_error err;

    (void)state;
    assert_ok(tutti_auth_keys_parse("test", TOKEN_SECRET, strlen(TOKEN_SECRET), &keys, &err));
    return 0;
}

static int
free_keys(void **state)
{
    (void)state;
    tutti_auth_keys_unref(keys);
    return 0;
}

static void
check_refused(const char *token, const char *reason)
{
    tutti_auth_grant grant;
    tutti_error err;

    if (tutti_auth_token_read(keys, &rules, token, NOW, &grant, &err) == TUTTI_OK) {
        fail_msg("%.200s was taken", token);
    }
    assert_string_equal(err.reason, reason);
}

static void
check_taken(const char *token, tutti_auth_grant *ret)
{
    tutti_error err;

    assert_ok(tutti_auth_token_read(keys, &rules, token, NOW, ret, &err));
}

static void
test_token__becomes_a_grant(void **state)
{
    tutti_auth_grant grant;

    (void)state;
    check_taken(token_of("{" GOOD ",\"role\":\"agent\",\"job\":\"train\",\"ranks\":\"2-3\"}"),
                &grant);
    assert_int_equal(grant.roles, TUTTI_AUTH_AGENT);
    assert_string_equal(grant.identity, "me");
    assert_string_equal(grant.job, "train");
    assert_true(tutti_auth_grant_has_rank(&grant, 2));
    assert_false(tutti_auth_grant_has_rank(&grant, 4));
    assert_int_equal(grant.expires_s, 1000130);
    check_taken(token_of("{" GOOD ",\"role\":[\"client\",\"agent\",\"unknown\"],\"ranks\":[1,5]}"),
                &grant);
    assert_int_equal(grant.roles, TUTTI_AUTH_AGENT | TUTTI_AUTH_CLIENT);
    assert_int_equal(grant.range_count, 2);
    check_taken(token_of("{" GOOD ",\"role\":\"client\",\"ranks\":7}"), &grant);
    assert_true(tutti_auth_grant_has_rank(&grant, 7));
    assert_false(tutti_auth_grant_has_rank(&grant, 0));
}

static void
test_token__of_a_wrong_shape_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      ".",
                                      "..",
                                      "...",
                                      "a.b",
                                      "a.b.",
                                      ".b.c",
                                      "a..c",
                                      "a.b.c.",
                                      "a.b.c.d",
                                      "a b.c.d",
                                      "a.b.c\n",
                                      "a=.b.c",
                                      "%41.b.c",
                                      "e30.e30.e30",
                                      "eyJhbGciOiJIUzI1NiJ9.e30.AA",
                                      "bnVsbA.bnVsbA.AA",
                                      "W10.W10.AA"};
    char *huge = malloc(TUTTI_AUTH_TOKEN_MAX + 100);
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        check_refused(bad[i], "BAD_TOKEN");
    }
    memset(huge, 'a', TUTTI_AUTH_TOKEN_MAX + 99);
    huge[TUTTI_AUTH_TOKEN_MAX + 99] = '\0';
    check_refused(huge, "BAD_TOKEN");
    free(huge);
}

static void
test_token__of_another_algorithm_is_refused(void **state)
{
    static const char *const headers[] = {"{\"alg\":\"none\"}",
                                          "{\"alg\":\"HS384\"}",
                                          "{\"alg\":\"RS256\"}",
                                          "{\"alg\":\"ES256\"}",
                                          "{\"alg\":\"hs256\"}",
                                          "{\"alg\":null}",
                                          "{\"alg\":1}",
                                          "{}",
                                          "[\"alg\"]",
                                          "{\"alg\":\"none\",\"alg\":\"HS256\"}",
                                          "{\"alg\":\"HS256\\u0000\"}",
                                          "{\"alg\":\"HS256\",\"crit\":[]}",
                                          "{\"alg\":\"HS256\",\"kid\":5}"};
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(headers); i++) {
        check_refused(token_make(headers[i], "{" GOOD ",\"role\":\"admin\"}"), "BAD_TOKEN");
    }
}

static void
test_token__that_was_changed_is_refused(void **state)
{
    const char *good = token_of("{" GOOD ",\"role\":\"admin\"}");
    char token[512];
    tutti_auth_grant grant;
    tutti_error err;
    size_t i;

    (void)state;
    (void)snprintf(token, sizeof(token), "%s", good);
    for (i = 0; token[i] != '\0'; i++) {
        const char kept = token[i];

        token[i] = kept == 'A' ? 'B' : 'A';
        if (kept != '.') {
            /* The last letter has bits that do not count: changing these alone is malformed. */
            assert_true(tutti_auth_token_read(keys, &rules, token, NOW, &grant, &err) != TUTTI_OK);
        }
        token[i] = kept;
    }
    for (i = strlen(token); i > 0; i--) {
        token[i - 1] = '\0';
        assert_true(tutti_auth_token_read(keys, &rules, token, NOW, &grant, &err) != TUTTI_OK);
    }
}

static void
test_token__has_its_time(void **state)
{
    tutti_auth_grant grant;

    (void)state;
    check_taken(token_of("{\"aud\":\"tutti\",\"role\":\"client\",\"exp\":999971}"), &grant);
    check_refused(token_of("{\"aud\":\"tutti\",\"role\":\"client\",\"exp\":999970}"),
                  "TOKEN_EXPIRED");
    check_taken(token_of("{" GOOD ",\"role\":\"client\",\"nbf\":1000030}"), &grant);
    check_refused(token_of("{" GOOD ",\"role\":\"client\",\"nbf\":1000031}"), "TOKEN_NOT_YET");
    check_taken(token_of("{\"aud\":\"tutti\",\"role\":\"client\",\"exp\":1000000.5}"), &grant);
    check_refused(token_of("{\"aud\":\"tutti\",\"role\":\"client\"}"), "BAD_TOKEN");
    check_refused(token_of("{\"aud\":\"tutti\",\"role\":\"client\",\"exp\":\"1e9\"}"), "BAD_TOKEN");
    check_refused(token_of("{\"aud\":\"tutti\",\"role\":\"client\",\"exp\":-1}"), "BAD_TOKEN");
    check_refused(token_of("{\"aud\":\"tutti\",\"role\":\"client\",\"exp\":1e300}"), "BAD_TOKEN");
    check_refused(token_of("{\"aud\":\"tutti\",\"role\":\"client\",\"exp\":true}"), "BAD_TOKEN");
}

static void
test_token__is_for_us_and_from_whom_we_trust(void **state)
{
    tutti_auth_grant grant;

    (void)state;
    check_refused(token_of("{\"exp\":1000100,\"role\":\"client\"}"), "WRONG_AUDIENCE");
    check_refused(token_of("{\"aud\":\"other\",\"exp\":1000100,\"role\":\"client\"}"),
                  "WRONG_AUDIENCE");
    check_refused(token_of("{\"aud\":[[\"tutti\"]],\"exp\":1000100,\"role\":\"client\"}"),
                  "WRONG_AUDIENCE");
    check_taken(token_of("{\"aud\":[1,\"tutti\"],\"exp\":1000100,\"role\":\"client\"}"), &grant);
    rules.audience = "";
    check_taken(token_of("{\"exp\":1000100,\"role\":\"client\"}"), &grant);
    check_refused(token_of("{" GOOD ",\"role\":\"client\"}"), "WRONG_AUDIENCE");
    rules.audience = "tutti";
    rules.issuer = "us";
    check_refused(token_of("{" GOOD ",\"role\":\"client\"}"), "WRONG_ISSUER");
    check_refused(token_of("{" GOOD ",\"role\":\"client\",\"iss\":[\"us\"]}"), "WRONG_ISSUER");
    check_taken(token_of("{" GOOD ",\"role\":\"client\",\"iss\":\"us\"}"), &grant);
    rules.issuer = "";
}

static void
test_token__with_claims_of_wrong_kinds_is_refused(void **state)
{
    static const char *const bad[] = {
        "\"role\":5",
        "\"role\":[5]",
        "\"role\":{}",
        "\"role\":\"client\",\"job\":5",
        "\"role\":\"client\",\"job\":\"\"",
        "\"role\":\"client\",\"job\":\"../x\"",
        "\"role\":\"client\",\"job\":null",
        "\"role\":\"client\",\"ranks\":\"\"",
        "\"role\":\"client\",\"ranks\":[]",
        "\"role\":\"client\",\"ranks\":[\"1\"]",
        "\"role\":\"client\",\"ranks\":-1",
        "\"role\":\"client\",\"ranks\":1.5",
        "\"role\":\"client\",\"ranks\":65536",
        "\"role\":\"client\",\"ranks\":null",
        "\"role\":\"client\",\"role\":\"admin\"",
    };
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        check_refused(token_of("{" GOOD ",%s}", bad[i]), "BAD_TOKEN");
    }
    check_refused(token_of("{" GOOD "}"), "NO_ROLE");
    check_refused(token_of("{" GOOD ",\"role\":\"\"}"), "NO_ROLE");
    check_refused(token_of("{" GOOD ",\"role\":\"Admin\"}"), "NO_ROLE");
}

static void
test_token__may_get_its_role_by_its_subject(void **state)
{
    tutti_auth_subject_rule *subjects = NULL;
    tutti_auth_grant grant;
    tutti_error err;

    (void)state;
    assert_ok(tutti_auth_subjects_parse(" me=agent@train#2\n you*=client  *=admin@spare ",
                                        &subjects, &rules.subject_count, &err));
    assert_int_equal(rules.subject_count, 3);
    rules.subjects = subjects;
    check_taken(token_of("{" GOOD "}"), &grant);
    assert_int_equal(grant.roles, TUTTI_AUTH_AGENT);
    assert_string_equal(grant.job, "train");
    check_taken(token_of("{" GOOD ",\"role\":\"admin\",\"job\":\"x\",\"ranks\":9}"), &grant);
    assert_int_equal(grant.roles, TUTTI_AUTH_AGENT); /* ours wins */
    assert_string_equal(grant.job, "train");
    assert_false(tutti_auth_grant_has_rank(&grant, 9));
    check_taken(token_of("{\"aud\":\"tutti\",\"exp\":1000100,\"sub\":\"yours\",\"job\":\"x\"}"),
                &grant);
    assert_int_equal(grant.roles, TUTTI_AUTH_CLIENT);
    assert_string_equal(grant.job, "x");
    check_refused(token_of("{\"aud\":\"tutti\",\"exp\":1000100}"), "NO_ROLE");
    rules.subjects = NULL;
    rules.subject_count = 0;
    free(subjects);
}

static void
test_subjects__that_are_none_are_refused(void **state)
{
    static const char *const bad[] = {"me", "me=", "=agent", "me=king", "me=agent#", "a=agent b"};
    tutti_auth_subject_rule *subjects = NULL;
    size_t count = 0;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_fails(tutti_auth_subjects_parse(bad[i], &subjects, &count, &err),
                     TUTTI_INVALID_ARGUMENT);
    }
}

static void
test_keys__that_are_none_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "short",
        "{}",
        "{\"keys\":[]}",
        "{\"keys\":[1,null,\"x\",[],{}]}",
        "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}",
        "{\"keys\":[{\"kty\":\"oct\"}]}",
        "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"AQ\",\"e\":\"AQAB\"}]}",
        "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"\",\"e\":\"\"}]}",
        "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AA\",\"y\":\"AA\"}]}",
        "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\","
        "\"x\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\","
        "\"y\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\"}]}", /* on no curve */
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        "-----BEGIN NONSENSE-----\nAAAA\n-----END NONSENSE-----\n",
        "-----BEGIN PUBLIC KEY-----",
    };
    tutti_auth_keys *none = NULL;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        if (tutti_auth_keys_parse("file", bad[i], strlen(bad[i]), &none, &err) !=
            TUTTI_INVALID_ARGUMENT) {
            fail_msg("%s was taken", bad[i]);
        }
        assert_text_has(err.text, "file: ");
    }
    assert_null(none);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token__becomes_a_grant),
        cmocka_unit_test(test_token__of_a_wrong_shape_is_refused),
        cmocka_unit_test(test_token__of_another_algorithm_is_refused),
        cmocka_unit_test(test_token__that_was_changed_is_refused),
        cmocka_unit_test(test_token__has_its_time),
        cmocka_unit_test(test_token__is_for_us_and_from_whom_we_trust),
        cmocka_unit_test(test_token__with_claims_of_wrong_kinds_is_refused),
        cmocka_unit_test(test_token__may_get_its_role_by_its_subject),
        cmocka_unit_test(test_subjects__that_are_none_are_refused),
        cmocka_unit_test(test_keys__that_are_none_are_refused),
    };

    return cmocka_run_group_tests(tests, make_keys, free_keys);
}
