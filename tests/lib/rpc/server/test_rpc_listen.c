/*
 * Goal: a server takes the addresses it was given, refuses those it must not or cannot take, and
 * says in words why; it leaves nothing behind.
 * Method: servers in one process, and another process where one is needed.
 */
#include "rig.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/config/config.h"
#include "base/os/file.h"

/* A call to a server on `listen` works. */
static void
check_served(const char *listen)
{
    rig self = {0};
    char text[256];
    tutti_error err;

    echo_server_init(&self.server, listen);
    rig_start(&self, 1, NULL);
    assert_ok(rig_ask(self.channel, "hi", text, &err));
    assert_string_equal(text, "hi");
    rig_stop(&self);
}

/* The last error of check_refused. */
static tutti_error refused;

/* A server on `listen` is refused. */
static void
check_refused(const tutti_rpc_server_options *options, const char *listen, tutti_code wanted,
              const char *says)
{
    echo_server self;

    echo_server_init(&self, listen);
    if (options != NULL) {
        self.options = *options;
        self.options.listen = listen;
    }
    assert_fails(echo_server_start(&self, 1, &refused), wanted);
    assert_text_has(refused.text, says);
    echo_server_fini(&self);
}

static bool
has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool has = probe >= 0 && bind(probe, (struct sockaddr *)&address, sizeof(address)) == 0;

    if (probe >= 0) {
        (void)close(probe);
    }
    return has;
}

static void
test_server__listens_on_loopback(void **state)
{
    (void)state;
    check_served("127.0.0.1:0");
    check_served("localhost:0");
}

static void
test_server__listens_on_ipv6(void **state)
{
    (void)state;
    if (!has_ipv6()) {
        SKIP("this machine has no IPv6 loopback");
    }
    check_served("[::1]:0");
}

static void
test_server__refuses_addresses_that_are_none(void **state)
{
    (void)state;
    check_refused(NULL, "nonsense", TUTTI_INVALID_ARGUMENT, "nonsense");
    check_refused(NULL, "no-such-host.invalid:0", TUTTI_INVALID_ARGUMENT, "no-such-host.invalid");
    check_refused(NULL, "unix:/no/such/folder/x.sock", TUTTI_NOT_FOUND, "/no/such/folder");
}

static void
test_server__refuses_plaintext_for_strangers(void **state)
{
    tutti_rpc_server_options options;
    rig self = {0};

    (void)state;
    check_refused(NULL, "0.0.0.0:0", TUTTI_INVALID_ARGUMENT, "--tls-cert");
    check_refused(NULL, "127.0.0.1:0,[::]:0", TUTTI_INVALID_ARGUMENT, "[::]:0");
    assert_string_equal(refused.reason, "PLAINTEXT_REFUSED");
    tutti_rpc_server_options_init(&options, "");
    options.tls_cert = "x";
    check_refused(&options, "127.0.0.1:0", TUTTI_INVALID_ARGUMENT, "belong together");
    options.tls_key = "x"; /* TLS alone does not say who may come */
    check_refused(&options, "0.0.0.0:0", TUTTI_INVALID_ARGUMENT, "would serve anybody");
    assert_string_equal(refused.reason, "OPEN_REFUSED");
    options.tls_cert = "";
    options.tls_key = "";
    options.tls_client_ca = "x";
    check_refused(&options, "127.0.0.1:0", TUTTI_INVALID_ARGUMENT, "--tls-client-ca needs");
    echo_server_init(&self.server, "0.0.0.0:0");
    self.server.options.insecure = true; /* whoever says so gets it */
    rig_start(&self, 1, NULL);
    rig_stop(&self);
}

static void
test_server__refuses_a_port_that_is_taken_and_says_by_whom(void **state)
{
    rig first = {0};
    char listen[64];
    char own[64];

    (void)state;
    echo_server_init(&first.server, "127.0.0.1:0");
    rig_start(&first, 1, NULL);
    (void)snprintf(listen, sizeof(listen), "%s", echo_server_address(&first.server));
    (void)snprintf(own, sizeof(own), "in use by test_rpc_listen (pid %ld)", (long)getpid());
    check_refused(NULL, listen, TUTTI_FAILED_PRECONDITION, listen);
    check_refused(NULL, listen, TUTTI_FAILED_PRECONDITION, own);
    rig_stop(&first);
    check_served(listen); /* it is free again */
}

static void
test_server__refuses_a_port_of_another_machine(void **state)
{
    (void)state;
    check_refused(&(tutti_rpc_server_options){.tls_cert = "",
                                              .tls_key = "",
                                              .tls_client_ca = "",
                                              .token_file = "",
                                              .port_file = "",
                                              .insecure = true},
                  "192.0.2.1:0", TUTTI_INVALID_ARGUMENT, "Cannot assign requested address");
}

static void
test_socket__is_for_its_user_only_and_goes_with_the_server(void **state)
{
    char folder[64];
    char listen[128];
    char lock[160];
    struct stat found;
    rig self = {0};
    tutti_error err;

    (void)state;
    (void)snprintf(listen, sizeof(listen), "unix:%s/a.sock", rig_folder_make(folder));
    (void)snprintf(lock, sizeof(lock), "%s.lock", listen + 5);
    echo_server_init(&self.server, listen);
    rig_start(&self, 1, NULL);
    assert_int_equal(stat(listen + 5, &found), 0);
    assert_true(S_ISSOCK(found.st_mode));
    assert_int_equal(found.st_mode & 0077, 0);
    assert_ok(rig_ask(self.channel, "hi", NULL, &err));
    rig_stop(&self);
    assert_int_equal(stat(listen + 5, &found), -1);
    assert_int_equal(stat(lock, &found), -1);
    rig_folder_remove(folder);
}

static void
test_socket__of_a_running_server_is_not_stolen(void **state)
{
    char folder[64];
    char listen[128];
    char own[64];
    rig first = {0};
    tutti_error err;

    (void)state;
    (void)snprintf(listen, sizeof(listen), "unix:%s/a.sock", rig_folder_make(folder));
    (void)snprintf(own, sizeof(own), "in use by test_rpc_listen (pid %ld)", (long)getpid());
    echo_server_init(&first.server, listen);
    rig_start(&first, 1, NULL);
    check_refused(NULL, listen, TUTTI_FAILED_PRECONDITION, listen);
    check_refused(NULL, listen, TUTTI_FAILED_PRECONDITION, own);
    assert_ok(rig_ask(first.channel, "still there", NULL, &err));
    rig_stop(&first);
    check_served(listen);
    rig_folder_remove(folder);
}

/* A socket that somebody bound; listened on when `alive`. */
static int
bind_socket(const char *path, bool alive)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_true(descriptor >= 0);
    assert_int_equal(bind(descriptor, (struct sockaddr *)&address, sizeof(address)), 0);
    if (alive) {
        assert_int_equal(listen(descriptor, 1), 0);
    }
    return descriptor;
}

static void
test_socket__left_behind_is_replaced_but_nothing_else(void **state)
{
    char folder[64];
    char stale[128];
    char file[128];
    char foreign[128];
    char own[64];
    int descriptor;
    tutti_error err;

    (void)state;
    (void)rig_folder_make(folder);
    (void)snprintf(stale, sizeof(stale), "unix:%s/stale.sock", folder);
    (void)close(bind_socket(stale + 5, false));
    check_served(stale);
    (void)snprintf(file, sizeof(file), "unix:%s/file", folder);
    assert_ok(tutti_file_write(file + 5, "x", 1, 0600, &err));
    check_refused(NULL, file, TUTTI_INVALID_ARGUMENT, "is no socket");
    assert_int_equal(access(file + 5, F_OK), 0);
    /* Somebody who knows nothing of our lock files. */
    (void)snprintf(foreign, sizeof(foreign), "unix:%s/foreign.sock", folder);
    (void)snprintf(own, sizeof(own), "in use by pid %ld", (long)getpid());
    descriptor = bind_socket(foreign + 5, true);
    check_refused(NULL, foreign, TUTTI_FAILED_PRECONDITION, own);
    assert_int_equal(access(foreign + 5, F_OK), 0);
    (void)close(descriptor);
    rig_folder_remove(folder);
}

static void
test_port_file__says_where_the_server_is(void **state)
{
    char folder[64];
    char listen[160];
    char file[128];
    char *text = NULL;
    char wanted[300];
    const tutti_address *addresses;
    size_t count = 0;
    rig self = {0};
    tutti_error err;

    (void)state;
    (void)rig_folder_make(folder);
    (void)snprintf(listen, sizeof(listen), "127.0.0.1:0,unix:%s/a.sock", folder);
    (void)snprintf(file, sizeof(file), "%s/ports", folder);
    echo_server_init(&self.server, listen);
    self.server.options.port_file = file;
    rig_start(&self, 1, NULL);
    addresses = tutti_rpc_server_addresses(self.server.server, &count);
    assert_int_equal(count, 2);
    assert_true(addresses[0].port != 0);
    (void)snprintf(wanted, sizeof(wanted), "127.0.0.1:%u\nunix:%s/a.sock\n",
                   (unsigned)addresses[0].port, folder);
    assert_ok(tutti_file_read(file, 4096, &text, NULL, &err));
    assert_string_equal(text, wanted);
    free(text);
    tutti_rpc_channel_close(self.channel);
    assert_ok(tutti_rpc_channel_open(addresses[1].text, NULL, &self.channel, &err));
    assert_ok(rig_ask(self.channel, "over the socket", NULL, &err));
    rig_stop(&self);
    rig_folder_remove(folder);
}

static void
test_server__that_cannot_take_its_second_address_leaves_the_first(void **state)
{
    char listen[64];
    char both[160];
    rig taken = {0};

    (void)state;
    echo_server_init(&taken.server, "127.0.0.1:0");
    rig_start(&taken, 1, NULL);
    (void)snprintf(listen, sizeof(listen), "%s", echo_server_address(&taken.server));
    (void)snprintf(both, sizeof(both), "unix:/tmp/tutti-rpc-%ld.sock,%s", (long)getpid(), listen);
    check_refused(NULL, both, TUTTI_FAILED_PRECONDITION, listen);
    rig_stop(&taken);
    check_served(both);
}

static void
test_options__have_the_defaults_of_their_table(void **state)
{
    tutti_rpc_server_options options;
    tutti_rpc_server_options loaded;
    char *const argv[] = {(char *)(uintptr_t) "test", (char *)(uintptr_t) "--drain-grace",
                          (char *)(uintptr_t) "3s", (char *)(uintptr_t) "--reflection=false"};
    tutti_option_set set = tutti_rpc_server_option_set(&loaded, "127.0.0.1:7070");
    tutti_config *config = NULL;
    tutti_config_wish wish = TUTTI_CONFIG_RUN;
    tutti_error err;

    (void)state;
    tutti_rpc_server_options_init(&options, "127.0.0.1:7070");
    assert_string_equal(options.listen, "127.0.0.1:7070");
    assert_string_equal(options.tls_cert, "");
    assert_false(options.insecure);
    assert_true(options.reflection);
    assert_int_equal(options.receive_bytes_max, 8u << 20);
    assert_int_equal(options.streams_max, 100);
    assert_int_equal(options.handshake_ns, 10 * TUTTI_NS_PER_S);
    assert_int_equal(options.grace_ns, 10 * TUTTI_NS_PER_S);
    assert_ok(tutti_config_load(&set, 1, 4, argv, &config, &wish, &err));
    assert_string_equal(loaded.listen, "127.0.0.1:7070");
    assert_int_equal(loaded.grace_ns, 3 * TUTTI_NS_PER_S);
    assert_false(loaded.reflection);
    assert_int_equal(loaded.streams_max, 100);
    tutti_config_free(config);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server__listens_on_loopback),
        cmocka_unit_test(test_server__listens_on_ipv6),
        cmocka_unit_test(test_server__refuses_addresses_that_are_none),
        cmocka_unit_test(test_server__refuses_plaintext_for_strangers),
        cmocka_unit_test(test_server__refuses_a_port_that_is_taken_and_says_by_whom),
        cmocka_unit_test(test_server__refuses_a_port_of_another_machine),
        cmocka_unit_test(test_socket__is_for_its_user_only_and_goes_with_the_server),
        cmocka_unit_test(test_socket__of_a_running_server_is_not_stolen),
        cmocka_unit_test(test_socket__left_behind_is_replaced_but_nothing_else),
        cmocka_unit_test(test_port_file__says_where_the_server_is),
        cmocka_unit_test(test_server__that_cannot_take_its_second_address_leaves_the_first),
        cmocka_unit_test(test_options__have_the_defaults_of_their_table),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
