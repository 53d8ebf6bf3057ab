/*
 * Goal: what somebody may do is read from text, and nonsense is refused.
 * Method: tables of texts.
 */
#include "support/testing.h"

#include "auth/base64url.h"
#include "auth/grant.h"

static void
test_grant__of_all_forms_is_understood(void **state)
{
    tutti_auth_grant grant;
    tutti_error err;
    char text[128];

    (void)state;
    assert_ok(tutti_auth_grant_parse("admin", &grant, &err));
    assert_int_equal(grant.roles, TUTTI_AUTH_ADMIN);
    assert_string_equal(grant.job, "");
    assert_true(tutti_auth_grant_has_rank(&grant, 65535));
    assert_ok(tutti_auth_grant_parse("agent@train/1#0-3,7", &grant, &err));
    assert_int_equal(grant.roles, TUTTI_AUTH_AGENT);
    assert_string_equal(grant.job, "train/1");
    assert_true(tutti_auth_grant_has_rank(&grant, 3));
    assert_false(tutti_auth_grant_has_rank(&grant, 4));
    assert_true(tutti_auth_grant_has_rank(&grant, 7));
    tutti_auth_ranks_print(&grant, text, sizeof(text));
    assert_string_equal(text, "ranks 0-3, 7");
    assert_ok(tutti_auth_grant_parse("client#2", &grant, &err));
    tutti_auth_ranks_print(&grant, text, sizeof(text));
    assert_string_equal(text, "rank 2");
}

static void
test_grant__that_is_none_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "king",
                                      "agent@",
                                      "agent@a b",
                                      "agent#",
                                      "agent#x",
                                      "agent#1,",
                                      "agent#,1",
                                      "agent#3-1",
                                      "agent#1-",
                                      "agent#-1",
                                      "agent#1--2",
                                      "agent#65536",
                                      "agent#99999999999999999999",
                                      "agent#1 ",
                                      "agent@x#1@y",
                                      "agent#1#2",
                                      "agentagentagentagentagent",
                                      "Agent",
                                      "agent @x",
                                      "client,admin",
                                      "agent@.hidden"};
    tutti_auth_grant grant;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        if (tutti_auth_grant_parse(bad[i], &grant, &err) != TUTTI_INVALID_ARGUMENT) {
            fail_msg("\"%s\" was taken", bad[i]);
        }
        assert_true(err.text[0] != '\0');
    }
}

static void
test_grant__has_a_limit_of_runs(void **state)
{
    char text[1024] = "0";
    tutti_auth_grant grant = {.range_count = 0};
    tutti_error err;
    int i;

    (void)state;
    for (i = 1; i < TUTTI_AUTH_RANGES_MAX; i++) {
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), ",%d", 2 * i);
    }
    assert_ok(tutti_auth_ranks_parse(text, &grant, &err));
    assert_int_equal(grant.range_count, TUTTI_AUTH_RANGES_MAX);
    (void)strcat(text, ",500");
    grant.range_count = 0;
    assert_fails(tutti_auth_ranks_parse(text, &grant, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "more than 64 runs");
}

static void
test_base64url__takes_one_form_only(void **state)
{
    static const char *const bad[] = {"A", "AAAAA", "AA==", "A+", "A/", "A A", "AB", "AAB", "\x80"};
    unsigned char bytes[4] = {0};
    size_t size = 9;
    size_t i;

    (void)state;
    assert_true(auth_base64url_decode("", 0, bytes, 4, &size));
    assert_int_equal(size, 0);
    assert_true(auth_base64url_decode("_-8", 3, bytes, 4, &size));
    assert_int_equal(size, 2);
    assert_int_equal(bytes[0], 0xff);
    assert_int_equal(bytes[1], 0xef);
    assert_false(auth_base64url_decode("AAAAAAA", 7, bytes, 4, &size)); /* 5 bytes */
    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_false(auth_base64url_decode(bad[i], strlen(bad[i]), bytes, 4, &size));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grant__of_all_forms_is_understood),
        cmocka_unit_test(test_grant__that_is_none_is_refused),
        cmocka_unit_test(test_grant__has_a_limit_of_runs),
        cmocka_unit_test(test_base64url__takes_one_form_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
