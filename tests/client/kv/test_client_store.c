/*
 * Goal: views of the store name keys as they should, and init addresses lead to a client or to
 * words. Method: no server but the fake agent; the store's calls are tested with the real
 * coordinator by tests/system/test_cli_store.py.
 */
#include "client_rig.h"

#include "tutti/init.h"
#include "tutti/store.h"

static void
test_view__puts_its_prefix_before_keys_and_nests(void **state)
{
    tutti_kv_view outer;
    tutti_kv_view inner;
    char key[TUTTI_KV_KEY_MAX];
    size_t size = 0;
    tutti_error err;

    (void)state;
    assert_ok(tutti_kv_view_init(&outer, NULL, "p", &err));
    assert_ok(tutti_kv_view_init(&inner, &outer, "q", &err));
    assert_ok(tutti_kv_view_key(&inner, "x\0y", 3, key, &size, &err));
    assert_int_equal(size, 7);
    assert_memory_equal(key, "p/q/x\0y", 7);
    assert_ok(tutti_kv_view_init(&inner, NULL, "p/q", &err)); /* the same, told at once */
    assert_ok(tutti_kv_view_key(&inner, "", 0, key, &size, &err));
    assert_memory_equal(key, "p/q/", 4);
}

static void
test_view__refuses_what_keys_cannot_hold(void **state)
{
    char prefix[TUTTI_KV_KEY_MAX + 1];
    char key[TUTTI_KV_KEY_MAX];
    tutti_kv_view view;
    tutti_kv_view inner;
    size_t size = 77;
    tutti_error err;

    (void)state;
    assert_fails(tutti_kv_view_init(&view, NULL, "", &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_KEY");
    memset(prefix, 'x', sizeof(prefix));
    prefix[TUTTI_KV_KEY_MAX] = '\0';
    assert_fails(tutti_kv_view_init(&view, NULL, prefix, &err), TUTTI_INVALID_ARGUMENT);
    prefix[TUTTI_KV_KEY_MAX - 1] = '\0';
    assert_ok(tutti_kv_view_init(&view, NULL, prefix, &err));
    assert_fails(tutti_kv_view_init(&inner, &view, "y", &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_kv_view_key(&view, "k", 1, key, &size, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "at most 1024 together");
    assert_int_equal(size, 77);
}

static void
test_multi__without_keys_or_with_too_many_asks_nobody(void **state)
{
    static tutti_kv_bytes keys[1025];
    client_rig *rig = *state;
    void *value = NULL;
    size_t size;
    bool all;
    tutti_error err;

    assert_fails(tutti_kv_multi_get(rig->client, keys, 0, 0, &value, &size, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "KEYS_LIMIT");
    assert_fails(tutti_kv_multi_set(rig->client, keys, keys, 1025, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_kv_check(rig->client, keys, 0, NULL, &all, &err), TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_kv_wait(rig->client, NULL, NULL, 0, 0, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "WAIT_LIMIT");
}

static void
test_meet__wants_an_initialised_meeting(void **state)
{
    client_rig *rig = *state;
    tutti_meeting meeting = {0};
    tutti_error err;

    assert_fails(tutti_meet(rig->client, "k", 1, &meeting, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "tutti_meeting_init");
    tutti_meeting_init(&meeting);
    meeting.rank = -2;
    assert_fails(tutti_meet(rig->client, "k", 1, &meeting, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "RANK_RANGE");
    tutti_meeting_init(&meeting);
    meeting.count = 1;
    meeting.name = NULL; /* as "" */
    assert_fails(tutti_meet(rig->client, "k", 1, &meeting, &err), TUTTI_UNIMPLEMENTED);
}

static void
test_init_parse__tells_what_an_address_means(void **state)
{
    tutti_init_info info = {.rank = 7};
    tutti_error err;

    (void)state;
    assert_ok(tutti_init_parse("tcp://h:1?rank=1&world_size=2", &info, &err));
    assert_string_equal(info.scheme, "tcp");
    assert_string_equal(info.coordinator, "h:1");
    assert_int_equal(info.rank, 1);
    assert_int_equal(info.world_size, 2);
    assert_ok(tutti_init_parse("file:///nonexistent/x?rank=0&world_size=1", &info, &err));
    assert_string_equal(info.path, "/nonexistent/x");
    assert_string_equal(info.coordinator, "");
    assert_fails(tutti_init_parse("invalid://", &info, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_URL");
}

static void
test_connect__by_an_init_address_says_why_not(void **state)
{
    tutti_client_options options;
    tutti_client *client = NULL;
    tutti_error err;

    (void)state;
    tutti_client_options_init(&options);
    options.timeout_ms = 100;
    options.agent = "tcp://127.0.0.1?rank=0&world_size=1";
    assert_fails(tutti_connect_with(&options, &client, &err), TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "BAD_URL");
    options.agent = "file:///nonexistent/x?rank=1&world_size=2";
    assert_fails(tutti_connect_with(&options, &client, &err), TUTTI_DEADLINE_EXCEEDED);
    assert_string_equal(err.reason, "NOT_JOINED");
    assert_text_has(err.text, "rank 1 of job default did not come in 100 ms: could not open");
    assert_null(client);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_view__puts_its_prefix_before_keys_and_nests),
        cmocka_unit_test(test_view__refuses_what_keys_cannot_hold),
        client_test(test_multi__without_keys_or_with_too_many_asks_nobody),
        client_test(test_meet__wants_an_initialised_meeting),
        cmocka_unit_test(test_init_parse__tells_what_an_address_means),
        cmocka_unit_test(test_connect__by_an_init_address_says_why_not),
    };

    return cmocka_run_group_tests(tests, client_rig_open, client_rig_close);
}
