/*
 * Goal: what Debian's gRPC 1.51 does not stop by itself does no lasting harm to a server of ours.
 * Method: HTTP/2 frames made by hand, as no proper client would send them.
 */
#include "rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os/log.h"
#include "rpc/loop.h"
#include "rpc/server/server_private.h"

#define MIB (1u << 20)
#define RESETS 5000
#define CALLS_MAX 100
#define TEXT_BYTES 20000u

enum frame_type {
    FRAME_DATA = 0,
    FRAME_HEADERS = 1,
    FRAME_RESET = 3,
    FRAME_SETTINGS = 4,
    FRAME_CONTINUATION = 9,
};

static int
connect_raw(const rig *self)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t count = 0;

    address.sin_port = htons(tutti_rpc_server_addresses(self->server.server, &count)->port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(descriptor >= 0);
    assert_int_equal(connect(descriptor, (struct sockaddr *)&address, sizeof(address)), 0);
    return descriptor;
}

/* Forget what the server says, so that it never waits for us; false when it has hung up. */
static bool
drain(int descriptor)
{
    char bytes[65536];
    ssize_t got;

    do {
        got = recv(descriptor, bytes, sizeof(bytes), MSG_DONTWAIT);
    } while (got > 0);
    return got < 0 && (errno == EAGAIN || errno == EINTR);
}

/* False when the server has hung up. */
static bool
send_bytes(int descriptor, const void *data, size_t size)
{
    const char *at = data;

    while (size > 0) {
        struct pollfd wanted = {.fd = descriptor, .events = POLLOUT | POLLIN};
        ssize_t put;

        (void)poll(&wanted, 1, 1000);
        if (!drain(descriptor)) {
            return false;
        }
        put = send(descriptor, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno != EAGAIN && errno != EINTR) {
            return false;
        }
        at += put > 0 ? put : 0;
        size -= put > 0 ? (size_t)put : 0;
    }
    return true;
}

static bool
send_frame(int descriptor, enum frame_type type, unsigned flags, uint32_t stream, const void *data,
           size_t size)
{
    unsigned char head[9] = {
        (unsigned char)(size >> 16),   (unsigned char)(size >> 8),   (unsigned char)size,
        (unsigned char)type,           (unsigned char)flags,         (unsigned char)(stream >> 24),
        (unsigned char)(stream >> 16), (unsigned char)(stream >> 8), (unsigned char)stream};

    return send_bytes(descriptor, head, sizeof(head)) && send_bytes(descriptor, data, size);
}

static int
greet(const rig *self)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const int descriptor = connect_raw(self);

    assert_true(send_bytes(descriptor, preface, sizeof(preface) - 1));
    assert_true(send_frame(descriptor, FRAME_SETTINGS, 0, 0, "", 0));
    return descriptor;
}

/* POST of a method of EchoService, as HPACK literals. */
static size_t
make_headers_for(const char *method, unsigned char *ret)
{
    char path[64];
    const size_t path_size =
        (size_t)snprintf(path, sizeof(path), "/rpctest.v1.EchoService/%s", method);
    static const char rest[] = "\x01\x01x"
                               "\x00\x02te\x08trailers"
                               "\x0f\x10\x10"
                               "application/grpc";
    size_t at = 0;

    ret[at++] = 0x83;
    ret[at++] = 0x86;
    ret[at++] = 0x04;
    ret[at++] = (unsigned char)path_size;
    memcpy(ret + at, path, path_size);
    at += path_size;
    memcpy(ret + at, rest, sizeof(rest) - 1);
    return at + sizeof(rest) - 1;
}

static size_t
make_headers(unsigned char *ret)
{
    return make_headers_for("Chat", ret);
}

/* CVE-2023-44487: open a call and take it back at once, again and again. */
static void
test_server__outlives_rapid_resets(void **state)
{
    rig *self = *state;
    unsigned char headers[256];
    const size_t size = make_headers(headers);
    const int descriptor = greet(self);
    size_t before;
    uint32_t stream = 1;
    size_t i;
    tutti_error err;

    assert_ok(rig_ask(self->channel, "warm", NULL, &err));
    before = rig_memory();
    for (i = 0; i < RESETS; i++, stream += 2) {
        assert_true(send_frame(descriptor, FRAME_HEADERS, 4, stream, headers, size));
        assert_true(send_frame(descriptor, FRAME_RESET, 0, stream, "\0\0\0\x08", 4));
    }
    assert_ok(rig_ask(self->channel, "others are served", NULL, &err));
    rig_await(tutti_rpc_server_call_count(self->server.server), 0);
    rig_await(self->server.end_count, self->server.cancel_count);
    print_message("%d resets: %zu reached the handler, memory +%zd KiB\n", RESETS,
                  self->server.end_count, ((ssize_t)rig_memory() - (ssize_t)before) / 1024);
    if (!RIG_SANITIZED) { /* all at once, at 14 KiB each, is the worst */
        assert_true(rig_memory() < before + 128 * (size_t)MIB);
    }
    (void)close(descriptor);
}

/* CVE-2023-33953: one header that never ends. */
static void
test_server__serves_others_during_an_endless_header(void **state)
{
    static char filler[16384];
    rig *self = *state;
    const int descriptor = greet(self);
    size_t before;
    size_t sent = 0;
    uint64_t slowest = 0;
    uint64_t start;
    tutti_error err;

    memset(filler, 'a', sizeof(filler));
    assert_ok(rig_ask(self->channel, "warm", NULL, &err));
    before = rig_memory();
    start = tutti_clock_ns();
    assert_true(send_frame(descriptor, FRAME_HEADERS, 0, 1, "\x83\x86\x00\x7f\xff\xff\xff\x07", 8));
    while (sent < 8 * MIB &&
           send_frame(descriptor, FRAME_CONTINUATION, 0, 1, filler, sizeof(filler))) {
        const uint64_t asked = tutti_clock_ns();

        sent += sizeof(filler);
        if (sent % (256 * 1024) == 0) {
            assert_ok(rig_ask(self->channel, "hi", NULL, &err));
            slowest = tutti_clock_ns() - asked > slowest ? tutti_clock_ns() - asked : slowest;
        }
    }
    print_message("%zu KiB of one header in %llu ms: slowest other call %llu ms, memory +%zd KiB\n",
                  sent >> 10, (unsigned long long)((tutti_clock_ns() - start) / TUTTI_NS_PER_MS),
                  (unsigned long long)(slowest / TUTTI_NS_PER_MS),
                  ((ssize_t)rig_memory() - (ssize_t)before) / 1024);
    assert_true(slowest < 5 * TUTTI_NS_PER_S);
    if (!RIG_SANITIZED) {
        assert_true(rig_memory() < before + 64 * (size_t)MIB);
    }
    (void)close(descriptor);
    assert_ok(rig_ask(self->channel, "and afterwards", NULL, &err));
}

/* A client that acknowledges no settings keeps to --streams-max all the same. */
static void
test_server__counts_calls_from_the_first_byte(void **state)
{
    rig *self = *state;
    unsigned char headers[256];
    const size_t size = make_headers(headers);
    const int descriptor = greet(self);
    const uint64_t end = tutti_clock_ns() + 20 * TUTTI_NS_PER_S;
    uint32_t i;
    tutti_error err;

    for (i = 0; i < CALLS_MAX; i++) {
        assert_true(send_frame(descriptor, FRAME_HEADERS, 4, 1 + 2 * i, headers, size));
    }
    assert_ok(rig_ask(self->channel, "so many may be", NULL, &err));
    rig_await(tutti_rpc_server_call_count(self->server.server), CALLS_MAX);
    for (i = CALLS_MAX; i < 2 * CALLS_MAX; i++) {
        (void)send_frame(descriptor, FRAME_HEADERS, 4, 1 + 2 * i, headers, size);
    }
    while (drain(descriptor)) {
        assert_true(tutti_clock_ns() < end);
        rig_pause();
    }
    (void)close(descriptor);
    rig_await(tutti_rpc_server_call_count(self->server.server), 0);
    assert_ok(rig_ask(self->channel, "others are served", NULL, &err));
}

/* A message of EchoService.Unary: field 1, a text. */
static size_t
make_text(unsigned char *ret)
{
    const size_t field = TEXT_BYTES + 4;
    const unsigned char head[] = {0,
                                  0,
                                  0,
                                  (unsigned char)(field >> 8),
                                  (unsigned char)field,
                                  0x0a,
                                  (unsigned char)(TEXT_BYTES | 0x80),
                                  (unsigned char)(TEXT_BYTES >> 7 | 0x80),
                                  TEXT_BYTES >> 14};

    memcpy(ret, head, sizeof(head));
    memset(ret + sizeof(head), 'a', TEXT_BYTES);
    return sizeof(head) + TEXT_BYTES;
}

static uint64_t
count_refused(const tutti_rpc_server *server)
{
    uint64_t count = 0;
    size_t i;

    for (i = 0; i < server->route_count; i++) {
        count += atomic_load(&server->routes[i].ended[TUTTI_RESOURCE_EXHAUSTED]);
    }
    return count;
}

/* Flow control is in the client's hands: it opens no window, so the answers wait inside gRPC. */
static void
test_server__keeps_within_the_quota_what_nobody_reads(void **state)
{
    static unsigned char text[TEXT_BYTES + 16];
    rig *self = *state;
    unsigned char headers[256];
    const size_t size = make_headers_for("Unary", headers);
    const size_t text_size = make_text(text);
    const size_t quota = 512u << 10;
    const int descriptor = greet(self);
    uint32_t i;
    tutti_error err;

    self->server.server->quota_bytes = quota; /* gRPC's own, for what comes in, stays large */
    for (i = 0; i < CALLS_MAX - 1; i++) {
        assert_true(send_frame(descriptor, FRAME_HEADERS, 4, 1 + 2 * i, headers, size));
        assert_true(send_frame(descriptor, FRAME_DATA, 0, 1 + 2 * i, text, 10000));
        assert_true(
            send_frame(descriptor, FRAME_DATA, 1, 1 + 2 * i, text + 10000, text_size - 10000));
        assert_true(atomic_load(&self->server.server->unsent_bytes) <= quota + 2 * TEXT_BYTES);
    }
    rig_await(count_refused(self->server.server) > 0, true);
    assert_ok(rig_ask(self->channel, "small answers pass", NULL, &err));
    text[text_size] = '\0';
    assert_fails(rig_ask(self->channel, (const char *)text + text_size - TEXT_BYTES, NULL, &err),
                 TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "UNSENT_LIMIT");
    (void)close(descriptor);
    rig_await(atomic_load(&self->server.server->unsent_bytes), 0);
}

static void
test_server__closes_connections_that_speak_something_else(void **state)
{
    static const char junk_frame[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                     "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    static const char *const garbage[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02",
                                          junk_frame};
    rig *self = *state;
    size_t i;
    tutti_error err;

    assert_ok(tutti_log_set_levels("error", &err));
    for (i = 0; i < COUNT_OF(garbage); i++) {
        const int descriptor = connect_raw(self);
        const uint64_t end = tutti_clock_ns() + 20 * TUTTI_NS_PER_S;

        (void)send(descriptor, garbage[i], strlen(garbage[i]), MSG_NOSIGNAL);
        (void)shutdown(descriptor, SHUT_WR);
        while (drain(descriptor)) {
            assert_true(tutti_clock_ns() < end);
            rig_pause();
        }
        (void)close(descriptor);
    }
    assert_ok(rig_ask(self->channel, "hi", NULL, &err));
    assert_ok(tutti_log_set_levels("info", &err));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_server__outlives_rapid_resets, rig_begin, rig_end),
        cmocka_unit_test_setup_teardown(test_server__serves_others_during_an_endless_header,
                                        rig_begin, rig_end),
        cmocka_unit_test_setup_teardown(test_server__counts_calls_from_the_first_byte, rig_begin,
                                        rig_end),
        cmocka_unit_test_setup_teardown(test_server__keeps_within_the_quota_what_nobody_reads,
                                        rig_begin, rig_end),
        cmocka_unit_test_setup_teardown(test_server__closes_connections_that_speak_something_else,
                                        rig_begin, rig_end),
    };
    int failed;

    tutti_rpc_init();
    tutti_rpc_limit_first_calls(CALLS_MAX);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
