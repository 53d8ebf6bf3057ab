/*
 * Goal: every form of address is understood, and whether strangers can reach it is known.
 * Method: tables.
 */
#include "support/testing.h"

#include "base/config/address.h"

static void
test_address__is_taken_apart(void **state)
{
    static const struct {
        const char *text;
        const char *host;
        const char *path;
        uint16_t port;
        bool local;
        const char *back;
    } good[] = {
        {"host:80", "host", "", 80, false, "host:80"},
        {"127.0.0.1:0", "127.0.0.1", "", 0, true, "127.0.0.1:0"},
        {"127.9.9.9:1", "127.9.9.9", "", 1, true, "127.9.9.9:1"},
        {"0.0.0.0:65535", "0.0.0.0", "", 65535, false, "0.0.0.0:65535"},
        {"[::1]:7", "::1", "", 7, true, "[::1]:7"},
        {"[::]:7", "::", "", 7, false, "[::]:7"},
        {"localhost:7", "localhost", "", 7, true, "localhost:7"},
        {"unix:/run/a.sock", "", "/run/a.sock", 0, true, "unix:/run/a.sock"},
        {"unix:///run/a.sock", "", "/run/a.sock", 0, true, "unix:/run/a.sock"},
    };
    tutti_address address;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(good); i++) {
        assert_ok(tutti_address_parse(good[i].text, &address, &err));
        assert_string_equal(address.host, good[i].host);
        assert_string_equal(address.path, good[i].path);
        assert_string_equal(address.text, good[i].back);
        assert_int_equal(address.port, good[i].port);
        assert_int_equal(tutti_address_is_local(&address), good[i].local);
    }
}

static void
test_address__of_no_known_form_is_refused(void **state)
{
    static const char *const bad[] = {
        "",        "host",    ":80",   "host:",     "host:x", "h:65536",
        "[::1]",   "::1:80",  "[]:1",  "unix:",     "h:-1",   "host:80 ",
        "[::1:80", "[[a]:80", "a]:80", "[unix]:80", "[a]:1",  "unix:////a"};
    char longest[600];
    tutti_address address;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        if (tutti_address_parse(bad[i], &address, &err) == TUTTI_OK) {
            fail_msg("\"%s\" was taken", bad[i]);
        }
    }
    memset(longest, 'a', sizeof(longest));
    memcpy(longest, "unix:/", 6);
    longest[sizeof(longest) - 1] = '\0';
    assert_fails(tutti_address_parse(longest, &address, &err), TUTTI_INVALID_ARGUMENT);
    longest[200] = '\0';
    assert_fails(tutti_address_parse(longest, &address, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "need 1 to 107");
}

static void
test_address_list__is_split_at_commas(void **state)
{
    tutti_address addresses[TUTTI_ADDRESSES_MAX];
    size_t count = 0;
    tutti_error err;

    (void)state;
    assert_ok(tutti_address_parse_list("a:1,unix:/b,[::1]:3", addresses, &count, &err));
    assert_int_equal(count, 3);
    assert_string_equal(addresses[2].text, "[::1]:3");
    tutti_address_set_port(&addresses[2], 44);
    assert_string_equal(addresses[2].text, "[::1]:44");
    assert_fails(tutti_address_parse_list("a:1,,b:2", addresses, &count, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_fails(
        tutti_address_parse_list("a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1", addresses, &count, &err),
        TUTTI_INVALID_ARGUMENT);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address__is_taken_apart),
        cmocka_unit_test(test_address__of_no_known_form_is_refused),
        cmocka_unit_test(test_address_list__is_split_at_commas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
