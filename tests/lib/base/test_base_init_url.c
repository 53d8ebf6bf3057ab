/*
 * Goal: an init address is understood as PyTorch means it, or refused with what is missing.
 * Method: tables, and an environment of the test's own.
 */
#include "support/testing.h"

#include <unistd.h>

#include "base/config/init_url.h"
#include "base/os/file.h"

static const char *variables[4]; /* RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT */

static char *
lookup(const char *name)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    size_t i;

    for (i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            return (char *)(uintptr_t)variables[i];
        }
    }
    fail_msg("%s was looked at", name);
    return NULL;
}

static void
set_environment(const char *rank, const char *world_size, const char *host, const char *port)
{
    variables[0] = rank;
    variables[1] = world_size;
    variables[2] = host;
    variables[3] = port;
}

static void
test_init_url__is_taken_apart(void **state)
{
    static const struct {
        const char *url;
        tutti_init_kind kind;
        uint32_t rank;
        uint32_t world_size;
        const char *address;
        const char *path;
    } good[] = {
        {"tcp://host:29600?rank=1&world_size=4", TUTTI_INIT_TCP, 1, 4, "host:29600", ""},
        {"tcp://host:29600/?world_size=4&rank=1", TUTTI_INIT_TCP, 1, 4, "host:29600", ""},
        {"tcp://[::1]:7?rank=0&world_size=1&use_libuv=0", TUTTI_INIT_TCP, 0, 1, "[::1]:7", ""},
        {"file:///tmp/foo?rank=0&world_size=2", TUTTI_INIT_FILE, 0, 2, "", "/tmp/foo"},
        {"file:///a%20b%2fc%zz?rank=0&world_size=2", TUTTI_INIT_FILE, 0, 2, "", "/a b/c%zz"},
        {"env://", TUTTI_INIT_ENV, 2, 8, "master:1234", ""},
        {"env://?rank=3", TUTTI_INIT_ENV, 3, 8, "master:1234", ""},
        {"env://?world_size=3&rank=0", TUTTI_INIT_ENV, 0, 3, "master:1234", ""},
    };
    tutti_init_url url;
    tutti_error err;
    size_t i;

    (void)state;
    set_environment("2", "8", "master", "1234");
    for (i = 0; i < COUNT_OF(good); i++) {
        assert_true(tutti_init_url_is(good[i].url));
        assert_ok(tutti_init_url_parse(good[i].url, lookup, &url, &err));
        assert_int_equal(url.kind, good[i].kind);
        assert_int_equal(url.rank, good[i].rank);
        assert_int_equal(url.world_size, good[i].world_size);
        assert_string_equal(url.address, good[i].address);
        assert_string_equal(url.path, good[i].path);
    }
    set_environment("0", "1", "fe80::1", "7");
    assert_ok(tutti_init_url_parse("env://", lookup, &url, &err));
    assert_string_equal(url.address, "[fe80::1]:7");
    assert_false(tutti_init_url_is("unix:///run/a.sock"));
    assert_false(tutti_init_url_is("host:80"));
}

static void
test_init_url__says_what_is_missing(void **state)
{
    static const struct {
        const char *url;
        const char *words;
    } bad[] = {
        {"tcp://127.0.0.1?rank=0&world_size=1", "port number missing"},
        {"tcp://[::1]?rank=0&world_size=1", "port number missing"},
        {"tcp://?rank=0&world_size=1", "port number missing"},
        {"tcp://127.0.0.1:23456?world_size=1", "rank parameter missing"},
        {"tcp://127.0.0.1:23456", "rank parameter missing"},
        {"tcp://127.0.0.1:23456?rank=0", "world size parameter missing"},
        {"tcp://h:65536?rank=0&world_size=1", "h:65536"},
        {"tcp://h:0?rank=0&world_size=1", "1 to 65535"},
        {"tcp://:80?rank=0&world_size=1", ":80"},
        {"tcp://h:1?rank=2&world_size=2", "rank 2 in a world of 2"},
        {"tcp://h:1?rank=-1&world_size=2", "rank is \"-1\""},
        {"tcp://h:1?rank=&world_size=2", "rank is \"\""},
        {"tcp://h:1?rank=0&world_size=65537", "up to 65536"},
        {"tcp://h:1?rank=0&rank=0&world_size=2", "rank is given twice"},
        {"file:///tmp/foo?world_size=1", "rank parameter missing"},
        {"file:///tmp/foo?rank=0", "world size parameter missing"},
        {"file://?rank=0&world_size=1", "path missing"},
        {"file:///?rank=0&world_size=1", "path missing"},
        {"file://host/x?rank=0&world_size=1", "path missing"},
        {"file:///a%00b?rank=0&world_size=1", "zero"},
        {"invalid://", "no scheme \"invalid\", known are env://, tcp://, file://"},
        {"://", "no scheme \"\""},
        {"host:80", "write env://"},
        {"env://host:80", "env:// takes no host and no path"},
    };
    tutti_init_url url = {.rank = 77};
    tutti_error err;
    size_t i;

    (void)state;
    set_environment("0", "1", "master", "1234");
    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_fails(tutti_init_url_parse(bad[i].url, lookup, &url, &err), TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "BAD_URL");
        assert_text_has(err.text, bad[i].words);
    }
    assert_int_equal(url.rank, 77);
}

static void
test_init_url__names_the_variable_that_is_not_set(void **state)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    tutti_init_url url;
    char words[80];
    size_t i;
    tutti_error err;

    (void)state;
    for (i = 0; i < COUNT_OF(names); i++) {
        set_environment("0", "1", "master", "1234");
        variables[i] = NULL;
        (void)snprintf(words, sizeof(words), "environment variable %s expected, but not set",
                       names[i]);
        assert_fails(tutti_init_url_parse("env://", lookup, &url, &err), TUTTI_INVALID_ARGUMENT);
        assert_text_has(err.text, words);
        variables[i] = "";
        assert_fails(tutti_init_url_parse("env://", lookup, &url, &err), TUTTI_INVALID_ARGUMENT);
        assert_text_has(err.text, words);
    }
}

static void
test_init_url__too_long_is_refused(void **state)
{
    static char text[4096] = "file:///";
    tutti_init_url url;
    tutti_error err;

    (void)state;
    memset(text + 8, 'x', 1200);
    (void)strcpy(text + 1208, "?rank=0&world_size=1");
    assert_fails(tutti_init_url_parse(text, lookup, &url, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "1023 bytes");
    memset(text + 8, 'x', 3000);
    assert_fails(tutti_init_url_parse(text, lookup, &url, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "at most 2047");
}

static void
test_init_url__finds_the_address_in_its_file(void **state)
{
    char path[] = "/tmp/tutti-init-XXXXXX";
    char address[TUTTI_ADDRESS_MAX] = "untouched";
    tutti_init_url url = {.kind = TUTTI_INIT_FILE};
    tutti_error err;
    const int descriptor = mkstemp(path);

    (void)state;
    assert_true(descriptor >= 0);
    (void)close(descriptor);
    (void)snprintf(url.path, sizeof(url.path), "%s", path);
    assert_fails(tutti_init_url_resolve(&url, address, &err), TUTTI_NOT_FOUND);
    assert_text_has(err.text, "holds nothing yet");
    assert_ok(tutti_file_write(path, "127.0.0.1:4567\nunix:/x\n", 23, 0600, &err));
    assert_ok(tutti_init_url_resolve(&url, address, &err));
    assert_string_equal(address, "127.0.0.1:4567");
    assert_ok(tutti_file_write(path, "nonsense\n", 9, 0600, &err));
    assert_fails(tutti_init_url_resolve(&url, address, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_URL");
    assert_int_equal(unlink(path), 0);
    assert_fails(tutti_init_url_resolve(&url, address, &err), TUTTI_NOT_FOUND);
    assert_string_equal(address, "127.0.0.1:4567");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init_url__is_taken_apart),
        cmocka_unit_test(test_init_url__says_what_is_missing),
        cmocka_unit_test(test_init_url__names_the_variable_that_is_not_set),
        cmocka_unit_test(test_init_url__too_long_is_refused),
        cmocka_unit_test(test_init_url__finds_the_address_in_its_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
