/*
 * Goal: TLS lets in who should come in, says who it is and why not; certificates change under
 * running connections.
 * Method: certificates made when the tests start, by certs.sh.
 */
#include "rig.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os/file.h"

static char folder[64];
static char paths[24][128];

/* A file of the certificates' folder; good for the next two dozen of calls. */
static const char *
file(const char *name)
{
    static size_t next;
    char *path = paths[next++ % COUNT_OF(paths)];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void
copy(const char *from, const char *to)
{
    char *data = NULL;
    size_t size = 0;
    tutti_error err;

    assert_ok(tutti_file_read(file(from), 1 << 20, &data, &size, &err));
    assert_ok(tutti_file_write(file(to), data, size, 0600, &err));
    free(data);
}

static int
make_certificates(void **state)
{
    char command[PATH_MAX + 128];

    (void)state;
    (void)rig_folder_make(folder);
    (void)snprintf(command, sizeof(command), "sh %s %s", TUTTI_CERTS_SH, folder);
    return system(command);
}

static int
remove_certificates(void **state)
{
    (void)state;
    rig_folder_remove(folder);
    return 0;
}

/* A TLS server; mutual when `client_ca` is given. */
static void
begin(rig *self, const char *client_ca, const tutti_rpc_channel_options *options)
{
    memset(self, 0, sizeof(*self));
    echo_server_init(&self->server, "127.0.0.1:0");
    copy("server.pem", "live.pem");
    copy("server.key", "live.key");
    self->server.options.tls_cert = file("live.pem");
    self->server.options.tls_key = file("live.key");
    self->server.options.tls_client_ca = client_ca == NULL ? "" : file(client_ca);
    rig_start(self, 1, options);
}

static void
test_tls__serves_who_trusts_its_authority(void **state)
{
    const tutti_rpc_channel_options options = {.tls_ca = file("ca.pem")};
    rig self;
    char text[256];
    tutti_error err;

    (void)state;
    begin(&self, NULL, &options);
    assert_ok(rig_ask(self.channel, "hi", text, &err));
    assert_string_equal(text, "hi");
    assert_ok(rig_ask(self.channel, "/identity", text, &err));
    assert_string_equal(text, "");
    rig_stop(&self);
}

static void
test_tls__is_refused_by_who_does_not_trust_it(void **state)
{
    const tutti_rpc_channel_options other = {.tls_ca = file("other-ca.pem")};
    const tutti_rpc_channel_options right = {.tls_ca = file("ca.pem")};
    const tutti_rpc_channel_options wrong_name = {.tls_ca = file("ca.pem"),
                                                  .tls_name = "elsewhere.example"};
    rig self;
    tutti_error err;

    (void)state;
    begin(&self, NULL, &right);
    assert_fails(rig_ask_with(&self, &other, "hi", NULL, &err), TUTTI_UNAVAILABLE);
    assert_text_has(err.text, "not signed by the given authority");
    assert_text_has(err.text, echo_server_address(&self.server));
    assert_fails(rig_ask_with(&self, &wrong_name, "hi", NULL, &err), TUTTI_UNAVAILABLE);
    assert_text_has(err.text, "its certificate is for localhost, ");
    assert_text_has(err.text, ", not for elsewhere.example");
    assert_fails(rig_ask_with(&self, NULL, "hi", NULL, &err), TUTTI_UNAVAILABLE); /* plaintext */
    assert_text_has(err.text, "perhaps it wants TLS");
    assert_ok(rig_ask(self.channel, "hi", NULL, &err));
    rig_stop(&self);
}

static void
test_tls__takes_a_name_instead_of_the_address(void **state)
{
    const tutti_rpc_channel_options options = {.tls_ca = file("ca.pem"), .tls_name = "localhost"};
    rig self;
    tutti_error err;

    (void)state;
    begin(&self, NULL, &options);
    assert_ok(rig_ask(self.channel, "hi", NULL, &err));
    rig_stop(&self);
}

static void
check_identity(const rig *self, const char *name, const char *wanted)
{
    char cert[64];
    char key[64];
    char text[256];
    tutti_rpc_channel_options options = {.tls_ca = file("ca.pem")};
    tutti_error err;

    (void)snprintf(cert, sizeof(cert), "%s.pem", name);
    (void)snprintf(key, sizeof(key), "%s.key", name);
    options.tls_cert = file(cert);
    options.tls_key = file(key);
    assert_ok(rig_ask_with(self, &options, "/identity", text, &err));
    assert_string_equal(text, wanted);
}

static void
test_mtls__knows_who_calls_by_one_exact_name(void **state)
{
    rig self;

    (void)state;
    begin(&self, "ca.pem", NULL);
    check_identity(&self, "agent", "spiffe://tutti/job/default/rank/3");
    check_identity(&self, "dns-agent", "agent-4.example");
    check_identity(&self, "two-names", "");
    rig_stop(&self);
}

static void
test_mtls__refuses_who_shows_nothing_or_something_foreign(void **state)
{
    const tutti_rpc_channel_options nothing = {.tls_ca = file("ca.pem")};
    const tutti_rpc_channel_options foreign = {
        .tls_ca = file("ca.pem"), .tls_cert = file("foreign.pem"), .tls_key = file("foreign.key")};
    rig self;
    tutti_error err;

    (void)state;
    begin(&self, "ca.pem", NULL);
    assert_fails(rig_ask_with(&self, &nothing, "hi", NULL, &err), TUTTI_UNAVAILABLE);
    assert_text_has(err.text, "client certificate");
    assert_fails(rig_ask_with(&self, &foreign, "hi", NULL, &err), TUTTI_UNAVAILABLE);
    assert_int_equal(tutti_rpc_server_call_count(self.server.server), 0);
    rig_stop(&self);
}

static void
check_not_started(const char *cert, const char *key, const char *ca, tutti_code wanted,
                  const char *says)
{
    echo_server self;
    tutti_error err;

    echo_server_init(&self, "127.0.0.1:0");
    self.options.tls_cert = file(cert);
    self.options.tls_key = file(key);
    self.options.tls_client_ca = ca == NULL ? "" : file(ca);
    assert_fails(echo_server_start(&self, 1, &err), wanted);
    assert_text_has(err.text, says);
    assert_string_equal(err.reason, wanted == TUTTI_NOT_FOUND             ? "SYSTEM_ERROR"
                                    : strstr(says, "has expired") != NULL ? "CERTIFICATE_EXPIRED"
                                                                          : "BAD_CREDENTIALS");
    echo_server_fini(&self);
}

static void
test_tls__does_not_start_with_what_cannot_serve(void **state)
{
    tutti_rpc_channel *channel = NULL;
    const tutti_rpc_channel_options mixed = {
        .tls_ca = file("ca.pem"), .tls_cert = file("agent.pem"), .tls_key = file("foreign.key")};
    const tutti_rpc_channel_options half = {.tls_ca = file("ca.pem"), .tls_key = file("agent.key")};
    tutti_error err;

    (void)state;
    check_not_started("nothing.pem", "server.key", NULL, TUTTI_NOT_FOUND, "nothing.pem");
    check_not_started("server.pem", "server2.key", NULL, TUTTI_INVALID_ARGUMENT,
                      "is not that of the certificate");
    check_not_started("server.key", "server.key", NULL, TUTTI_INVALID_ARGUMENT, "no certificate");
    check_not_started("server.csr.der", "server.key", NULL, TUTTI_INVALID_ARGUMENT, "no PEM file");
    check_not_started("expired.pem", "expired.key", NULL, TUTTI_INVALID_ARGUMENT, "has expired on");
    check_not_started("server.pem", "server.key", "expired.pem", TUTTI_INVALID_ARGUMENT,
                      "has expired on");
    check_not_started("server.pem", "server.pem", NULL, TUTTI_INVALID_ARGUMENT, "no private key");
    check_not_started("server.pem", "locked.key", NULL, TUTTI_INVALID_ARGUMENT, "passphrase");
    check_not_started("server.pem", "server.key", "server.key", TUTTI_INVALID_ARGUMENT,
                      "no certificate");
    assert_fails(tutti_rpc_channel_open("127.0.0.1:1", &mixed, &channel, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_fails(tutti_rpc_channel_open("127.0.0.1:1", &half, &channel, &err),
                 TUTTI_INVALID_ARGUMENT);
}

static int
connect_to(const rig *self, size_t number)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t count = 0;

    address.sin_port = htons(tutti_rpc_server_addresses(self->server.server, &count)[number].port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(descriptor >= 0);
    assert_int_equal(connect(descriptor, (struct sockaddr *)&address, sizeof(address)), 0);
    return descriptor;
}

/* The common name that the server's certificate shows to a new connection. */
static void
read_name(const rig *self, size_t number, char *ret_name, int size)
{
    static const unsigned char h2[] = "\x02h2";
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *session = SSL_new(context);
    const int descriptor = connect_to(self, number);
    X509 *certificate;

    assert_int_equal(SSL_set_alpn_protos(session, h2, 3), 0);
    assert_int_equal(SSL_set_fd(session, descriptor), 1);
    assert_int_equal(SSL_connect(session), 1);
    assert_true(SSL_version(session) >= TLS1_2_VERSION);
    certificate = SSL_get1_peer_certificate(session);
    assert_non_null(certificate);
    assert_true(X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName,
                                          ret_name, size) > 0);
    X509_free(certificate);
    SSL_free(session);
    SSL_CTX_free(context);
    (void)close(descriptor);
}

static void
test_tls__shows_new_certificates_and_keeps_running_connections(void **state)
{
    const tutti_rpc_channel_options options = {.tls_ca = file("ca.pem"), .tls_name = "localhost"};
    rig self;
    char name[64];
    tutti_error err;

    (void)state;
    begin(&self, NULL, &options);
    assert_ok(rig_ask(self.channel, "before", NULL, &err));
    read_name(&self, 0, name, sizeof(name));
    assert_string_equal(name, "server");

    copy("server2.pem", "live.pem"); /* the key does not fit yet */
    read_name(&self, 0, name, sizeof(name));
    assert_string_equal(name, "server");
    assert_ok(rig_ask_with(&self, &options, "hi", NULL, &err));

    copy("server2.key", "live.key"); /* now it does */
    read_name(&self, 0, name, sizeof(name));
    assert_string_equal(name, "server2");
    assert_ok(rig_ask_with(&self, &options, "hi", NULL, &err));
    assert_ok(rig_ask(self.channel, "the old connection lives", NULL, &err));

    assert_ok(tutti_file_write(file("live.pem"), "garbage", 7, 0600, &err));
    read_name(&self, 0, name, sizeof(name));
    assert_string_equal(name, "server2");
    assert_int_equal(unlink(file("live.pem")), 0);
    read_name(&self, 0, name, sizeof(name));
    assert_string_equal(name, "server2");
    rig_stop(&self);
}

static void
test_tls__on_two_ports_reloads_on_both(void **state)
{
    rig self = {0};
    char name[64];
    size_t i;

    (void)state;
    echo_server_init(&self.server, "127.0.0.1:0,127.0.0.1:0");
    copy("server.pem", "live.pem");
    copy("server.key", "live.key");
    self.server.options.tls_cert = file("live.pem");
    self.server.options.tls_key = file("live.key");
    rig_start(&self, 1, NULL);
    for (i = 0; i < 2; i++) {
        read_name(&self, i, name, sizeof(name));
        assert_string_equal(name, "server");
    }
    copy("server2.pem", "live.pem");
    copy("server2.key", "live.key");
    for (i = 0; i < 2; i++) {
        read_name(&self, i, name, sizeof(name));
        assert_string_equal(name, "server2");
    }
    rig_stop(&self);
}

static void
await_identity(tutti_rpc_channel *channel, const char *wanted)
{
    const uint64_t end = tutti_clock_ns() + 20 * TUTTI_NS_PER_S;
    char text[256] = "";
    tutti_error err;

    while (strcmp(text, wanted) != 0) {
        assert_true(tutti_clock_ns() < end);
        assert_ok(rig_ask(channel, "/identity", text, &err));
        rig_pause();
    }
}

/* One message there and back. */
static void
chat(tutti_rpc_stream *stream)
{
    const echo_fields fields = {.text = "still there"};
    echo_storage storage;
    tutti_rpc_message *message = NULL;
    tutti_error err;

    assert_ok(tutti_rpc_stream_write(stream, echo_request(&storage, &fields), NULL, &err));
    assert_ok(tutti_rpc_stream_read(stream, &message, &err));
    assert_non_null(message);
    tutti_rpc_message_free(message);
}

static void
test_mtls__a_channel_shows_new_certificates_and_keeps_its_streams(void **state)
{
    const tutti_rpc_channel_options options = {
        .tls_ca = file("ca.pem"), .tls_cert = file("mine.pem"), .tls_key = file("mine.key")};
    rig self;
    tutti_rpc_stream *stream = NULL;
    tutti_error err;
    size_t i;

    (void)state;
    copy("agent.pem", "mine.pem");
    copy("agent.key", "mine.key");
    begin(&self, "ca.pem", &options);
    await_identity(self.channel, "spiffe://tutti/job/default/rank/3");
    assert_ok(tutti_rpc_stream_open(self.channel, &echo_chat, NULL, &stream, &err));
    chat(stream);
    for (i = 0; i < 2; i++) { /* the second time the stream's own connection has been let go */
        copy("dns-agent.key", "mine.key"); /* does not fit yet: all stays as it was */
        copy("dns-agent.pem", "mine.pem");
        await_identity(self.channel, "agent-4.example");
        chat(stream);
        copy("agent.pem", "mine.pem");
        copy("agent.key", "mine.key");
        await_identity(self.channel, "spiffe://tutti/job/default/rank/3");
        chat(stream);
    }
    assert_ok(tutti_rpc_stream_finish(stream, &err));
    rig_stop(&self);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tls__serves_who_trusts_its_authority),
        cmocka_unit_test(test_tls__is_refused_by_who_does_not_trust_it),
        cmocka_unit_test(test_tls__takes_a_name_instead_of_the_address),
        cmocka_unit_test(test_mtls__knows_who_calls_by_one_exact_name),
        cmocka_unit_test(test_mtls__refuses_who_shows_nothing_or_something_foreign),
        cmocka_unit_test(test_tls__does_not_start_with_what_cannot_serve),
        cmocka_unit_test(test_tls__shows_new_certificates_and_keeps_running_connections),
        cmocka_unit_test(test_tls__on_two_ports_reloads_on_both),
        cmocka_unit_test(test_mtls__a_channel_shows_new_certificates_and_keeps_its_streams),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, make_certificates, remove_certificates);
    tutti_rpc_fini();
    return failed;
}
