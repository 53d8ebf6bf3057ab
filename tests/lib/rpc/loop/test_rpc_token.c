/*
 * Goal: tokens are asked for, and never taken in plaintext from afar; who decides may name the
 * caller. Method: a token in a file, our client, and the bare core where ours would not send it.
 */
#include "rig.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include "base/os/file.h"

static char folder[64];

static int
make_folder(void **state)
{
    (void)state;
    (void)rig_folder_make(folder);
    return 0;
}

static int
remove_folder(void **state)
{
    (void)state;
    rig_folder_remove(folder);
    return 0;
}

/* The file of the token; the name is always the same. */
static const char *
file(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void
begin_with_token(rig *self, const char *listen, const char *token)
{
    tutti_error err;

    memset(self, 0, sizeof(*self));
    echo_server_init(&self->server, listen);
    assert_ok(tutti_file_write(file("token"), token, strlen(token), 0600, &err));
    self->server.options.token_file = file("token");
}

static void
test_token__is_asked_for(void **state)
{
    const tutti_rpc_channel_options right = {.token = "s3cret-token"};
    const tutti_rpc_channel_options wrong = {.token = "s3cret-tokem"};
    const tutti_rpc_channel_options longer = {.token = "s3cret-token-and-more"};
    rig self;
    tutti_error err;

    (void)state;
    begin_with_token(&self, "127.0.0.1:0", " s3cret-token\n");
    rig_start(&self, 1, &right);
    assert_ok(rig_ask(self.channel, "hi", NULL, &err));
    assert_fails(rig_ask_with(&self, NULL, "hi", NULL, &err), TUTTI_UNAUTHENTICATED);
    assert_string_equal(err.reason, "NO_TOKEN");
    assert_fails(rig_ask_with(&self, &wrong, "hi", NULL, &err), TUTTI_UNAUTHENTICATED);
    assert_string_equal(err.reason, "BAD_TOKEN");
    assert_fails(rig_ask_with(&self, &longer, "hi", NULL, &err), TUTTI_UNAUTHENTICATED);
    rig_stop(&self);
}

static void
test_token__guards_streams_as_well(void **state)
{
    rig self;
    tutti_rpc_stream *stream = NULL;
    tutti_error err;

    (void)state;
    begin_with_token(&self, "127.0.0.1:0", "s3cret-token");
    rig_start(&self, 1, NULL);
    assert_ok(tutti_rpc_stream_open(self.channel, &echo_chat, NULL, &stream, &err));
    assert_fails(tutti_rpc_stream_finish(stream, &err), TUTTI_UNAUTHENTICATED);
    assert_int_equal(self.server.end_count, 0); /* the handler never saw it */
    rig_stop(&self);
}

static void
test_token__changes_with_its_file(void **state)
{
    const tutti_rpc_channel_options old = {.token = "old-token"};
    const tutti_rpc_channel_options new = {.token = "new-token"};
    const uint64_t end = tutti_clock_ns() + 10 * TUTTI_NS_PER_S;
    rig self;
    tutti_error err;

    (void)state;
    begin_with_token(&self, "127.0.0.1:0", "old-token");
    rig_start(&self, 1, &old);
    assert_ok(rig_ask(self.channel, "hi", NULL, &err));
    assert_ok(tutti_file_write(file("token"), "new-token", 9, 0600, &err));
    while (rig_ask_with(&self, &new, "hi", NULL, &err) != TUTTI_OK) {
        assert_true(tutti_clock_ns() < end);
        rig_pause();
    }
    assert_fails(rig_ask(self.channel, "hi", NULL, &err), TUTTI_UNAUTHENTICATED);
    rig_stop(&self);
}

static void
test_token__of_a_channel_changes_with_its_file(void **state)
{
    char mine[128];
    const tutti_rpc_channel_options options = {.token_file = mine};
    const uint64_t end = tutti_clock_ns() + 20 * TUTTI_NS_PER_S;
    rig self;
    tutti_error err;

    (void)state;
    (void)snprintf(mine, sizeof(mine), "%s", file("mine"));
    begin_with_token(&self, "127.0.0.1:0", "new-token");
    assert_ok(tutti_file_write(mine, "old-token", 9, 0600, &err));
    rig_start(&self, 1, &options);
    assert_fails(rig_ask(self.channel, "hi", NULL, &err), TUTTI_UNAUTHENTICATED);
    assert_ok(tutti_file_write(mine, "new-token\n", 10, 0600, &err));
    while (rig_ask(self.channel, "hi", NULL, &err) != TUTTI_OK) {
        assert_true(tutti_clock_ns() < end);
        rig_pause();
    }
    assert_ok(tutti_file_write(mine, "", 0, 0600, &err)); /* being written: the old stays */
    assert_ok(rig_ask(self.channel, "hi", NULL, &err));
    rig_stop(&self);
}

static void
test_token__that_is_none_does_not_start(void **state)
{
    rig self;
    tutti_error err;

    (void)state;
    begin_with_token(&self, "127.0.0.1:0", "  \n");
    assert_fails(echo_server_start(&self.server, 1, &err), TUTTI_INVALID_ARGUMENT);
    echo_server_fini(&self.server);
    begin_with_token(&self, "127.0.0.1:0", "two words");
    assert_fails(echo_server_start(&self.server, 1, &err), TUTTI_INVALID_ARGUMENT);
    echo_server_fini(&self.server);
}

/* An IPv4 address of this machine that is not loopback; false when it has none. */
static bool
find_outer_address(char *ret_text, socklen_t size)
{
    struct ifaddrs *all = NULL;
    const struct ifaddrs *at;
    bool found = false;

    assert_int_equal(getifaddrs(&all), 0);
    for (at = all; at != NULL && !found; at = at->ifa_next) {
        if (at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET &&
            (at->ifa_flags & IFF_LOOPBACK) == 0) {
            const struct sockaddr_in *v4 = (const struct sockaddr_in *)(void *)at->ifa_addr;

            found = inet_ntop(AF_INET, &v4->sin_addr, ret_text, size) != NULL;
        }
    }
    freeifaddrs(all);
    return found;
}

static void
test_token__in_plaintext_from_afar_is_refused(void **state)
{
    const tutti_rpc_channel_options right = {.token = "s3cret-token"};
    char outer[64];
    char target[96];
    rig self;
    rig_bare got;
    tutti_rpc_channel *channel = NULL;
    size_t count = 0;
    tutti_error err;

    (void)state;
    assert_fails(tutti_rpc_channel_open("192.0.2.1:1", &right, &channel, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "TOKEN_IN_PLAINTEXT");
    if (!find_outer_address(outer, sizeof(outer))) {
        SKIP("this machine has no address but loopback");
    }
    begin_with_token(&self, "0.0.0.0:0", "s3cret-token");
    self.server.options.insecure = true;
    assert_ok(echo_server_start(&self.server, 1, &err));
    count = 0;
    (void)snprintf(target, sizeof(target), "%s:%u", outer,
                   (unsigned)tutti_rpc_server_addresses(self.server.server, &count)->port);
    assert_ok(tutti_rpc_channel_open(target, NULL, &channel, &err));
    got = rig_call_bare(channel, "/rpctest.v1.EchoService/Unary", "", 0, "authorization",
                        "Bearer s3cret-token"); /* our own client would not send it */
    assert_int_equal(got.status, TUTTI_UNAUTHENTICATED);
    assert_text_has(got.text, "a token came in plaintext from");
    tutti_rpc_channel_close(channel);
    (void)snprintf(target, sizeof(target), "127.0.0.1:%u",
                   (unsigned)tutti_rpc_server_addresses(self.server.server, &count)->port);
    assert_ok(tutti_rpc_channel_open(target, &right, &channel, &err));
    assert_ok(rig_ask(channel, "hi", NULL, &err));
    tutti_rpc_channel_close(channel);
    echo_server_fini(&self.server);
}

/* Knows one token, and who it belongs to. */
static tutti_code
authorize(void *arg, const char *method, const char *token, char *ret_identity, size_t size,
          tutti_error *err)
{
    (void)arg;
    if (strcmp(token, "of-rank-5") == 0) {
        (void)snprintf(ret_identity, size, "rank/5 at %s", strrchr(method, '/') + 1);
        return TUTTI_OK;
    }
    if (strcmp(token, "of-a-guest") == 0) {
        return TUTTI_FAIL(err, TUTTI_PERMISSION_DENIED, "guests may not do that");
    }
    return TUTTI_FAIL(err, TUTTI_UNAUTHENTICATED, "who are you?");
}

static void
test_authorize__decides_and_names_the_caller(void **state)
{
    const tutti_rpc_channel_options rank = {.token = "of-rank-5"};
    const tutti_rpc_channel_options guest = {.token = "of-a-guest"};
    const tutti_rpc_channel_options shared = {.token = "of-the-file"};
    rig self;
    char text[256];
    tutti_error err;

    (void)state;
    begin_with_token(&self, "127.0.0.1:0", "of-the-file");
    self.server.authorize = authorize;
    rig_start(&self, 1, &rank);
    assert_ok(rig_ask(self.channel, "/identity", text, &err));
    assert_string_equal(text, "rank/5 at Unary");
    assert_fails(rig_ask_with(&self, &guest, "hi", NULL, &err), TUTTI_PERMISSION_DENIED);
    assert_fails(rig_ask_with(&self, NULL, "hi", NULL, &err), TUTTI_UNAUTHENTICATED);
    assert_ok(rig_ask_with(&self, &shared, "hi", NULL, &err));
    rig_stop(&self);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token__is_asked_for),
        cmocka_unit_test(test_token__guards_streams_as_well),
        cmocka_unit_test(test_token__changes_with_its_file),
        cmocka_unit_test(test_token__of_a_channel_changes_with_its_file),
        cmocka_unit_test(test_token__that_is_none_does_not_start),
        cmocka_unit_test(test_token__in_plaintext_from_afar_is_refused),
        cmocka_unit_test(test_authorize__decides_and_names_the_caller),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, make_folder, remove_folder);
    tutti_rpc_fini();
    return failed;
}
