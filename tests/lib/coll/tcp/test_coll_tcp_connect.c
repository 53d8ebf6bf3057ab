/*
 * Goal: a process says where it is reached, and others find the one of its addresses that works;
 * where none does, or where it was told nonsense, there are words that name what is wrong.
 * Method: addresses made by hand, cut short and corrupted; the interface that every host has; ports
 * of loopback where nobody listens, or somebody else.
 */
#include "tcp_rig.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <unistd.h>

#define TRIES 4096

/* ------------------------------------------------------------------------------ addresses */

static tcp_target
target(const char *text, uint8_t prefix, uint16_t port)
{
    tcp_target it = {.prefix = prefix};
    struct sockaddr_in *four = (struct sockaddr_in *)&it.address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&it.address;

    if (strchr(text, ':') != NULL) {
        six->sin6_family = AF_INET6;
        assert_int_equal(inet_pton(AF_INET6, text, &six->sin6_addr), 1);
    } else {
        four->sin_family = AF_INET;
        assert_int_equal(inet_pton(AF_INET, text, &four->sin_addr), 1);
    }
    tutti_tcp_set_port(&it.address, port);
    return it;
}

/* As many as there can be, of both families. */
static size_t
write_many(unsigned char bytes[TCP_ADDRESS_MAX], size_t count)
{
    tcp_address address = {.count = count};
    size_t i;

    memset(address.token, 0xa5, sizeof(address.token));
    for (i = 0; i < count; i++) {
        address.targets[i] = i % 2 == 0 ? target("10.1.2.3", 24, (uint16_t)(1000 + i))
                                        : target("fd00::4711", 64, (uint16_t)(1000 + i));
    }
    return tutti_tcp_address_write(&address, bytes);
}

static void
test_address__comes_back_as_it_was(void **state)
{
    unsigned char bytes[TCP_ADDRESS_MAX], again[TCP_ADDRESS_MAX];
    tcp_address back;
    char text[80];
    size_t count;

    (void)state;
    for (count = 1; count <= TCP_TARGETS_MAX; count++) {
        const size_t size = write_many(bytes, count);

        assert_true(tutti_tcp_address_read((tutti_bytes){bytes, size}, &back));
        assert_int_equal(back.count, count);
        assert_int_equal(tutti_tcp_address_write(&back, again), size);
        assert_memory_equal(bytes, again, size);
    }
    tutti_tcp_address_text(&back.targets[0].address, text, sizeof(text));
    assert_string_equal(text, "10.1.2.3:1000");
    tutti_tcp_address_text(&back.targets[1].address, text, sizeof(text));
    assert_string_equal(text, "[fd00::4711]:1001");
}

/* Of its own memory, so that the sanitizer sees what is read behind it. */
static bool
is_read(const unsigned char *bytes, size_t size)
{
    unsigned char *copy = malloc(size + (size == 0));
    tcp_address back;
    bool ok;

    memcpy(copy, bytes, size);
    ok = tutti_tcp_address_read((tutti_bytes){copy, size}, &back);
    free(copy);
    return ok;
}

static void
test_address__that_is_cut_or_too_long_is_refused(void **state)
{
    unsigned char bytes[TCP_ADDRESS_MAX + 1] = {0};
    size_t count, size, i;

    (void)state;
    for (count = 1; count <= TCP_TARGETS_MAX; count++) {
        size = write_many(bytes, count);
        for (i = 0; i < size; i++) {
            assert_false(is_read(bytes, i));
        }
        assert_true(is_read(bytes, size));
        assert_false(is_read(bytes, size + 1));
    }
}

static void
test_address__of_nonsense_is_refused(void **state)
{
    unsigned char bytes[TCP_ADDRESS_MAX];
    const size_t count_at = 8 + TCP_TOKEN_BYTES;
    const size_t size = write_many(bytes, 2);
    static const struct {
        size_t at;
        unsigned char value;
    } wrong[] = {
        {0, 'T'},       {7, 0},          {count_at, 0}, {count_at, 1}, {count_at, 3},
        {count_at, 17}, {count_at, 255}, {25, 0},       {25, 5},       {25, 6}, /* families */
        {26, 33},       {26, 255},                                              /* prefixes */
        {34, 129},
    };
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(wrong); i++) {
        const unsigned char was = bytes[wrong[i].at];

        bytes[wrong[i].at] = wrong[i].value;
        assert_false(is_read(bytes, size));
        bytes[wrong[i].at] = was;
    }
    assert_true(is_read(bytes, size));
}

static void
test_address__of_anything_is_read_without_harm(void **state)
{
    unsigned char bytes[TCP_ADDRESS_MAX], again[TCP_ADDRESS_MAX];
    uint32_t x = 2463534242U;
    tcp_address own, back;
    size_t i, j, size;

    (void)state;
    size = write_many(bytes, 7);
    assert_true(tutti_tcp_address_read((tutti_bytes){bytes, size}, &own));
    for (i = 0; i < TRIES; i++) {
        size = write_many(bytes, 1 + i % TCP_TARGETS_MAX);
        for (j = 0; j < 1 + i % 3; j++) {
            x = x * 1664525U + 1013904223U;
            bytes[(x >> 8) % size] = (unsigned char)(x >> 24);
        }
        if (tutti_tcp_address_read((tutti_bytes){bytes, size}, &back)) {
            assert_int_equal(tutti_tcp_address_write(&back, again), size);
            assert_memory_equal(again, bytes, size);
            tutti_tcp_address_sort(&back, &own);
        }
    }
}

static void
test_sort__puts_the_likeliest_first(void **state)
{
    static const char *const wanted[] = {"10.1.2.9", "fd00::9",  "10.1.3.1", "192.0.2.1",
                                         "fd01::1",  "10.1.2.3", "fd00::1",  "127.0.0.1",
                                         "::1",      "127.0.0.2"};
    static const size_t mixed[] = {7, 5, 8, 0, 2, 1, 9, 3, 6, 4};
    tcp_address own = {.count = 2}, it = {.count = COUNT_OF(wanted)};
    size_t i;

    (void)state;
    own.targets[0] = target("10.1.2.3", 24, 1);
    own.targets[1] = target("fd00::1", 64, 1);
    for (i = 0; i < it.count; i++) {
        it.targets[i] = target(wanted[mixed[i]], 0, (uint16_t)mixed[i]);
    }
    tutti_tcp_address_sort(&it, &own);
    assert_true(tutti_tcp_port(&it.targets[0].address) <= 1);
    assert_true(tutti_tcp_port(&it.targets[1].address) <= 1);
    for (i = 2; i < it.count; i++) {
        const uint16_t port = tutti_tcp_port(&it.targets[i].address);

        assert_in_range(port, i < 5 ? 2 : i < 7 ? 5 : 7, i < 5 ? 4 : i < 7 ? 6 : 9);
    }
    for (i = 1; i < it.count; i++) { /* those of one kind stay in their order */
        assert_true(it.targets[i - 1].rank < it.targets[i].rank);
    }
}

static void
test_sort__knows_networks_that_end_inside_of_a_byte(void **state)
{
    tcp_address own = {.count = 1}, it = {.count = 4};
    size_t i;

    (void)state;
    own.targets[0] = target("10.1.2.3", 22, 1);
    it.targets[0] = target("10.1.4.1", 0, 2); /* 10.1.0.0/22 ends at 10.1.3.255 */
    it.targets[1] = target("10.1.3.255", 0, 0);
    it.targets[2] = target("10.0.2.3", 0, 3);
    it.targets[3] = target("10.1.0.0", 0, 1);
    tutti_tcp_address_sort(&it, &own);
    for (i = 0; i < 4; i++) {
        assert_int_equal(tutti_tcp_port(&it.targets[i].address), i);
    }
}

/* ------------------------------------------------------------------------------ frames */

static void
test_head__comes_back_or_is_refused(void **state)
{
    static const tcp_head good[] = {
        {TCP_HELLO, 0, TCP_VERSION, TCP_TOKEN_BYTES},
        {TCP_WELCOME, 0, TCP_VERSION, TCP_CREDIT_MAX},
        {TCP_PACKET, TUTTI_TRANSPORT_HEADER_MAX, 0, TUTTI_TRANSPORT_EAGER_MAX},
        {TCP_OFFER, TUTTI_TRANSPORT_HEADER_MAX, UINT64_MAX, UINT64_MAX},
        {TCP_FETCH, 0, 1, 0},
        {TCP_DROP, 0, UINT64_MAX, 0},
        {TCP_DATA, 0, 7, TCP_CHUNK_BYTES},
        {TCP_PUSH, TUTTI_TRANSPORT_HEADER_MAX, 0, TCP_PUSH_MAX},
        {TCP_CREDIT, 0, 0, TCP_CREDIT_MAX},
    };
    unsigned char bytes[TCP_HEAD_BYTES];
    tcp_head back;
    size_t i, j;

    (void)state;
    for (i = 0; i < COUNT_OF(good); i++) {
        tutti_tcp_head_write(&good[i], bytes);
        assert_true(tutti_tcp_head_read(bytes, &back));
        assert_true(back.kind == good[i].kind && back.header_size == good[i].header_size &&
                    back.id == good[i].id && back.size == good[i].size);
        assert_true(tutti_tcp_head_follows(&back) + TCP_HEAD_BYTES <= TCP_FRAME_MAX);
        for (j = 1; j < 8; j++) { /* what has to be null, and sizes of headers that are too big */
            bytes[j] ^= 0x80;
            assert_false(tutti_tcp_head_read(bytes, &back) && j != 2);
            bytes[j] ^= 0x80;
        }
    }
}

static void
test_head__has_sizes_within_limits(void **state)
{
    static const tcp_head wrong[] = {
        {(tcp_kind)0, 0, 0, 0},
        {(tcp_kind)10, 0, 0, 0},
        {(tcp_kind)255, 0, 0, 0},
        {TCP_HELLO, 0, 1, 15},
        {TCP_HELLO, 1, 1, 16},
        {TCP_WELCOME, 0, 1, TCP_CREDIT_MAX + 1},
        {TCP_PACKET, TUTTI_TRANSPORT_HEADER_MAX + 1, 0, 0},
        {TCP_PACKET, 0, 0, TUTTI_TRANSPORT_EAGER_MAX + 1},
        {TCP_PACKET, 0, 0, 1ULL << 63},
        {TCP_PACKET, 0, 1, 0},
        {TCP_OFFER, TUTTI_TRANSPORT_HEADER_MAX + 1, 1, 1},
        {TCP_OFFER, 0, 1, 0},
        {TCP_FETCH, 1, 1, 0},
        {TCP_FETCH, 0, 1, 1},
        {TCP_DROP, 0, 1, 1},
        {TCP_DATA, 0, 1, 0},
        {TCP_DATA, 0, 1, TCP_CHUNK_BYTES + 1},
        {TCP_DATA, 1, 1, 1},
        {TCP_PUSH, 0, 0, 0},
        {TCP_PUSH, 0, 0, TCP_PUSH_MAX + 1},
        {TCP_PUSH, 0, 0, 1ULL << 63},
        {TCP_CREDIT, 0, 0, TCP_CREDIT_MAX + 1},
        {TCP_CREDIT, 1, 0, 1},
    };
    unsigned char bytes[TCP_HEAD_BYTES];
    tcp_head back;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(wrong); i++) {
        tutti_tcp_head_write(&wrong[i], bytes);
        assert_false(tutti_tcp_head_read(bytes, &back));
    }
}

/* ------------------------------------------------------------------------------ opening */

static uint16_t
port_of(const tutti_transport *transport, size_t which)
{
    return tutti_tcp_port(&((const transport_tcp *)transport)->own.targets[which].address);
}

static void
test_open__refuses_interfaces_that_are_none(void **state)
{
    static const char *const devices[] = {"nonesuch", "lo,nonesuch", "nonesuch,lo", "lo,nonesuch,"};
    tutti_transport *transport;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(devices); i++) {
        const tutti_transport_tcp_options options = {.devices = devices[i]};

        assert_fails(tutti_transport_tcp_open(&options, &transport, &err),
                     TUTTI_FAILED_PRECONDITION);
        assert_text_has(err.text, "interface nonesuch,");
        assert_text_has(err.text, "it has: lo");
    }
}

static void
test_open__refuses_names_that_others_begin_with(void **state)
{
    static const char *const devices[] = {"l", "lo0", "o", ",", ",lo", " lo"};
    tutti_transport *transport;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(devices); i++) {
        const tutti_transport_tcp_options options = {.devices = devices[i]};

        assert_fails(tutti_transport_tcp_open(&options, &transport, &err),
                     TUTTI_FAILED_PRECONDITION);
    }
    assert_fails(tutti_transport_tcp_open(&(tutti_transport_tcp_options){.devices = "nonesuch"},
                                          &transport, NULL),
                 TUTTI_FAILED_PRECONDITION);
}

static void
test_open__takes_the_port_it_is_told_or_refuses(void **state)
{
    static const char *const devices[] = {"lo", ""};
    tutti_transport_tcp_options options = {.devices = "lo"};
    char text[TUTTI_TRANSPORT_TCP_TEXT_MAX], wanted[24];
    tutti_transport *transport, *other;
    tutti_error err;
    size_t i, j;

    (void)state;
    for (i = 0; i < 4; i++) { /* a free one, then that one; of one interface and of all */
        options.devices = devices[i / 2];
        options.port = i % 2 == 0 ? 0 : options.port;
        assert_ok(tutti_transport_tcp_open(&options, &transport, &err));
        assert_true(i % 2 == 0 || port_of(transport, 0) == options.port);
        options.port = port_of(transport, 0);
        for (j = 0; j < ((transport_tcp *)transport)->own.count; j++) {
            assert_true(i % 2 == 0 || port_of(transport, j) == options.port);
        }
        (void)snprintf(wanted, sizeof(wanted), ":%u", (unsigned)options.port);
        assert_text_has(tutti_transport_tcp_describe(transport, text, sizeof(text)), wanted);
        assert_fails(tutti_transport_tcp_open(&options, &other, &err), TUTTI_FAILED_PRECONDITION);
        assert_text_has(err.text, wanted);
        transport->ops->close(transport);
    }
}

static void
congestion_of(int fd, char ret_name[17])
{
    socklen_t size = 16;

    memset(ret_name, 0, 17);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, ret_name, &size), 0);
}

static void
test_open__takes_the_congestion_control_it_is_told_or_refuses(void **state)
{
    tutti_transport_tcp_options options = {.devices = "lo", .congestion = "nonsense"};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    tutti_transport *transport = NULL;
    char name[17];
    tutti_error err;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(tutti_transport_tcp_open(&options, &transport, &err),
                     TUTTI_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "no congestion control nonsense"));
    assert_non_null(strstr(err.text, "reno"));
    options.congestion = "reno"; /* which every kernel has */
    assert_ok(tutti_transport_tcp_open(&options, &transport, &err));
    tutti_tcp_tune(tutti_tcp_from(transport), fd);
    congestion_of(fd, name);
    assert_string_equal(name, "reno");
    transport->ops->close(transport);
    (void)close(fd);
}

/* A pacing one makes a fast network slow. */
static void
test_open__takes_no_bbr_unless_told(void **state)
{
    const tutti_transport_tcp_options options = {.devices = "lo"};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    tutti_transport *transport = NULL;
    char before[17], name[17];
    tutti_error err;

    (void)state;
    assert_true(fd >= 0);
    congestion_of(fd, before);
    assert_ok(tutti_transport_tcp_open(&options, &transport, &err));
    tutti_tcp_tune(tutti_tcp_from(transport), fd);
    congestion_of(fd, name);
    assert_true(strncmp(name, "bbr", 3) != 0);
    assert_true(strncmp(before, "bbr", 3) == 0 || strcmp(name, before) == 0);
    transport->ops->close(transport);
    (void)close(fd);
}

static void
test_open__without_options_says_where_it_is(void **state)
{
    char text[TUTTI_TRANSPORT_TCP_TEXT_MAX];
    tutti_transport *transport;
    tutti_error err;
    tcp_address back;

    (void)state;
    assert_ok(tutti_transport_tcp_open(NULL, &transport, &err));
    assert_true(tutti_transport_tcp_is_address(transport->ops->address(transport)));
    assert_true(tutti_tcp_address_read(transport->ops->address(transport), &back));
    assert_int_equal(tutti_tcp_port(&back.targets[0].address), port_of(transport, 0));
    assert_true(strlen(tutti_transport_tcp_describe(transport, text, sizeof(text))) > 0);
    assert_true(strlen(tutti_transport_tcp_describe(transport, text, 8)) < 8);
    transport->ops->close(transport);
}

/* ------------------------------------------------------------------------------ ways */

/* The way of the first node, to these ports of loopback and then to the second node. */
static void
connect_by(tcp_rig *self, const uint16_t *ports, size_t count)
{
    uint16_t all[TCP_TARGETS_MAX] = {0};
    unsigned char bytes[TCP_ADDRESS_MAX];
    size_t size;

    memcpy(all, ports, count * sizeof(ports[0]));
    all[count] = port_of(self->nodes[1].transport, 0);
    size = tcp_rig_address(&self->nodes[1], all, count + 1, bytes);
    tcp_rig_connect(&self->nodes[0], (tutti_bytes){bytes, size}, &self->conn);
}

static void
get_through(tcp_rig *self)
{
    static tcp_mail mail;

    mail = (tcp_mail){0};
    assert_int_not_equal(tcp_rig_send(&self->conn, &mail, 42, 4711), TUTTI_TRANSPORT_FAILED);
    tcp_rig_until(self, self->nodes[1].packets == 1 && mail.came == 1);
    assert_int_equal(self->nodes[1].number, 42);
    assert_int_equal(self->conn.broken, 0);
}

static void
test_connect__goes_on_where_nobody_listens(void **state)
{
    tcp_rig *self = *state;
    uint16_t ports[TCP_TARGETS_MAX - 1];
    size_t i;

    for (i = 0; i < COUNT_OF(ports); i++) {
        (void)close(tcp_rig_listen(&ports[i]));
    }
    connect_by(self, ports, COUNT_OF(ports));
    get_through(self);
}

/* Another process, that says so much to whoever calls, or hangs up. */
static void
answer(tcp_rig *self, int listener, const void *bytes, size_t size)
{
    unsigned char hello[TCP_HEAD_BYTES + TCP_TOKEN_BYTES];
    int fd = -1;

    tcp_rig_until(self, (fd = accept(listener, NULL, NULL)) >= 0);
    if (size > 0) {
        assert_true(tcp_rig_hear(self, fd, hello, sizeof(hello)));
        (void)tcp_rig_say(self, fd, bytes, size);
        tcp_rig_await_end(self, fd);
    } else {
        (void)close(fd);
    }
    (void)close(listener);
}

static void
test_connect__goes_on_where_another_process_answers(void **state)
{
    unsigned char heads[3][TCP_HEAD_BYTES] = {"HTTP/1.1 400 Bad Request"};
    tcp_rig *self = *state;
    uint16_t ports[4];
    int listeners[4];
    size_t i;

    tutti_tcp_head_write(&(tcp_head){.kind = TCP_WELCOME, .id = TCP_VERSION + 1}, heads[1]);
    tutti_tcp_head_write(&(tcp_head){.kind = TCP_FETCH, .id = TCP_VERSION}, heads[2]);
    for (i = 0; i < 4; i++) {
        listeners[i] = tcp_rig_listen(&ports[i]);
    }
    connect_by(self, ports, 4);
    for (i = 0; i < 4; i++) {
        answer(self, listeners[i], i < 3 ? heads[i] : NULL, i < 3 ? TCP_HEAD_BYTES : 0);
    }
    get_through(self);
}

static void
test_connect__goes_on_where_another_rank_listens(void **state)
{
    tcp_rig *self = *state;
    const uint16_t port = port_of(self->nodes[0].transport, 0); /* its own: the token is another */

    connect_by(self, &port, 1);
    get_through(self);
    assert_int_equal(self->nodes[0].packets, 0);
}

static void
test_connect__hears_a_welcome_that_comes_in_pieces(void **state)
{
    unsigned char bytes[TCP_ADDRESS_MAX], head[TCP_HEAD_BYTES];
    tcp_rig *self = *state;
    uint16_t port;
    const int listener = tcp_rig_listen(&port);
    int fd = -1;
    size_t i;

    tcp_rig_connect(&self->nodes[0], (tutti_bytes){bytes, tcp_rig_address(NULL, &port, 1, bytes)},
                    &self->conn);
    tcp_rig_until(self, (fd = accept(listener, NULL, NULL)) >= 0);
    tutti_tcp_head_write(&(tcp_head){.kind = TCP_WELCOME, .id = TCP_VERSION, .size = 12345}, head);
    for (i = 0; i < sizeof(head); i++) {
        assert_int_not_equal(self->conn.link->state, TCP_OPEN);
        assert_true(tcp_rig_say(self, fd, head + i, 1));
        tcp_rig_turn(self);
    }
    tcp_rig_until(self, self->conn.link->state == TCP_OPEN);
    assert_int_equal(self->conn.link->credit, 12345);
    (void)close(fd);
    (void)close(listener);
    tcp_rig_until(self, self->conn.broken == 1);
}

static void
test_connect__that_finds_nobody_has_words(void **state)
{
    tcp_rig *self = *state;
    unsigned char bytes[TCP_ADDRESS_MAX];
    tcp_mail mails[2] = {0};
    uint16_t ports[2];
    char wanted[24];
    size_t size;

    (void)close(tcp_rig_listen(&ports[0]));
    (void)close(tcp_rig_listen(&ports[1]));
    size = tcp_rig_address(NULL, ports, 2, bytes);
    tcp_rig_connect(&self->nodes[0], (tutti_bytes){bytes, size}, &self->conn);
    (void)tcp_rig_send(&self->conn, &mails[0], 0, 10);
    (void)tcp_rig_send(&self->conn, &mails[1], 0, 1000000);
    tcp_rig_until(self, self->conn.broken == 1);
    (void)snprintf(wanted, sizeof(wanted), "127.0.0.1:%u: ", ports[1]);
    assert_text_has(self->conn.why, wanted);
    assert_text_has(self->conn.why, "refused");
    assert_int_equal(mails[0].came + mails[1].came, 0);
    tcp_rig_disconnect(&self->nodes[0], &self->conn);
    assert_true(mails[0].came == 1 && !mails[0].ok && mails[1].came == 1 && !mails[1].ok);
}

static void
test_connect__refuses_an_address_of_another_transport(void **state)
{
    tcp_rig *self = *state;
    tutti_transport *transport = self->nodes[0].transport;
    tutti_transport_conn *link = NULL;
    tutti_error err;

    assert_fails(transport->ops->connect(transport, tutti_bytes_of("/tmp/x"), NULL, &link, &err),
                 TUTTI_UNAVAILABLE);
    assert_text_has(err.text, "--transports");
    assert_fails(transport->ops->connect(transport, (tutti_bytes){NULL, 0}, NULL, &link, &err),
                 TUTTI_UNAVAILABLE);
    assert_null(link);
}

#define sentence(name) cmocka_unit_test_setup_teardown(name, tcp_rig_begin, tcp_rig_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address__comes_back_as_it_was),
        cmocka_unit_test(test_address__that_is_cut_or_too_long_is_refused),
        cmocka_unit_test(test_address__of_nonsense_is_refused),
        cmocka_unit_test(test_address__of_anything_is_read_without_harm),
        cmocka_unit_test(test_sort__puts_the_likeliest_first),
        cmocka_unit_test(test_sort__knows_networks_that_end_inside_of_a_byte),
        cmocka_unit_test(test_head__comes_back_or_is_refused),
        cmocka_unit_test(test_head__has_sizes_within_limits),
        cmocka_unit_test(test_open__refuses_interfaces_that_are_none),
        cmocka_unit_test(test_open__refuses_names_that_others_begin_with),
        cmocka_unit_test(test_open__takes_the_port_it_is_told_or_refuses),
        cmocka_unit_test(test_open__takes_the_congestion_control_it_is_told_or_refuses),
        cmocka_unit_test(test_open__takes_no_bbr_unless_told),
        cmocka_unit_test(test_open__without_options_says_where_it_is),
        sentence(test_connect__goes_on_where_nobody_listens),
        sentence(test_connect__goes_on_where_another_process_answers),
        sentence(test_connect__goes_on_where_another_rank_listens),
        sentence(test_connect__hears_a_welcome_that_comes_in_pieces),
        sentence(test_connect__that_finds_nobody_has_words),
        sentence(test_connect__refuses_an_address_of_another_transport),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
