#include "tcp_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHIFTS 4096

/* ------------------------------------------------------------------------------ data */

const unsigned char *
tcp_rig_data(uint64_t number)
{
    static unsigned char pattern[TCP_RIG_DATA_MAX + SHIFTS];
    uint32_t x = 2463534242U;
    size_t i;

    for (i = 0; i < sizeof(pattern) && pattern[0] == 0; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        pattern[sizeof(pattern) - 1 - i] = (unsigned char)((x >> 9) | (i + 1 == sizeof(pattern)));
    }
    return pattern + number % SHIFTS;
}

/* ------------------------------------------------------------------------------ nodes */

static void
on_packet(void *arg, const void *header, size_t header_size, const void *data, size_t size,
          tutti_transport_rndv *rndv)
{
    tcp_node *self = arg;

    self->number = UINT64_MAX;
    if (header_size >= sizeof(self->number)) {
        memcpy(&self->number, header, sizeof(self->number));
    }
    self->packets++;
    self->bytes += size;
    if (rndv == NULL && size > 0) {
        assert_memory_equal(data, tcp_rig_data(self->number), size);
    }
    if (self->on_packet != NULL) {
        self->on_packet(self, self->number, size, rndv);
    } else if (rndv != NULL) {
        assert_true(self->kept_count < COUNT_OF(self->kept));
        self->kept_numbers[self->kept_count] = self->number;
        self->kept[self->kept_count++] = rndv;
    }
}

static void
on_broken(void *arg, void *owner, const char *why)
{
    tcp_node *self = arg;
    tcp_way *conn = owner;

    assert_non_null(conn);
    conn->broken++;
    (void)snprintf(conn->why, sizeof(conn->why), "%s", why);
    if (self->on_broken != NULL) {
        self->on_broken(self);
    }
}

static const tutti_transport_events events = {on_packet, on_broken};

void
tcp_rig_open(tcp_node *node)
{
    const tutti_transport_tcp_options options = {.devices = "lo"};
    tutti_error err;

    assert_ok(tutti_transport_tcp_open(&options, &node->transport, &err));
    node->transport->ops->listen(node->transport, &events, node);
}

void
tcp_rig_connect(tcp_node *node, tutti_bytes address, tcp_way *conn)
{
    tutti_error err;

    assert_ok(node->transport->ops->connect(node->transport, address, conn, &conn->link, &err));
}

void
tcp_rig_disconnect(tcp_node *node, tcp_way *conn)
{
    tutti_transport_conn *link = conn->link;

    conn->link = NULL;
    if (link != NULL) {
        node->transport->ops->disconnect(link);
    }
}

int
tcp_rig_begin(void **state)
{
    tcp_rig *self = calloc(1, sizeof(*self));

    assert_non_null(self);
    tcp_rig_open(&self->nodes[0]);
    tcp_rig_open(&self->nodes[1]);
    *state = self;
    return 0;
}

int
tcp_rig_begin_way(void **state)
{
    tcp_rig *self;

    (void)tcp_rig_begin(state);
    self = *state;
    tcp_rig_connect(&self->nodes[0],
                    self->nodes[1].transport->ops->address(self->nodes[1].transport), &self->conn);
    return 0;
}

tcp_node *
tcp_rig_there(tcp_rig *rig)
{
    return &rig->nodes[1];
}

void
tcp_rig_open_way(tcp_rig *rig)
{
    tcp_rig_until(rig,
                  rig->conn.link->state != TCP_CONNECTING && rig->conn.link->state != TCP_GREETING);
    assert_int_equal(rig->conn.link->state, TCP_OPEN);
}

int
tcp_rig_end(void **state)
{
    tcp_rig *self = *state;
    size_t i;

    tcp_rig_disconnect(&self->nodes[0], &self->conn);
    for (i = 0; i < 2; i++) {
        if (self->nodes[i].transport != NULL) {
            self->nodes[i].transport->ops->close(self->nodes[i].transport);
        }
    }
    free(self);
    return 0;
}

void
tcp_rig_turn(tcp_rig *rig)
{
    unsigned did = 0;
    size_t i;

    for (i = 0; i < 2; i++) {
        if (rig->nodes[i].transport != NULL) {
            did += rig->nodes[i].transport->ops->progress(rig->nodes[i].transport);
        }
    }
    if (did == 0) {
        (void)sched_yield();
    }
}

/* ------------------------------------------------------------------------------ mail */

static void
on_done(tutti_transport_ticket *ticket, bool ok)
{
    tcp_mail *mail = tutti_container_of(ticket, tcp_mail, ticket);

    mail->came++;
    mail->ok = ok;
    if (mail->on_done != NULL) {
        mail->on_done(mail);
    }
}

static tutti_transport_result
note(tcp_mail *mail, tutti_transport_result result)
{
    if (result != TUTTI_TRANSPORT_LATER) {
        mail->came++;
        mail->ok = result == TUTTI_TRANSPORT_DONE;
    }
    return result;
}

tutti_transport_result
tcp_rig_send(tcp_way *conn, tcp_mail *mail, uint64_t number, size_t size)
{
    const tutti_transport_ops *ops = ((tutti_transport *)conn->link->transport)->ops;

    mail->ticket.on_done = on_done;
    mail->number = number;
    return note(mail, ops->send(conn->link, &mail->number, sizeof(mail->number),
                                size > 0 ? tcp_rig_data(number) : NULL, size, &mail->ticket));
}

tutti_transport_result
tcp_rig_fetch(tcp_node *node, tutti_transport_rndv *rndv, tcp_mail *mail, void *dest, size_t size)
{
    mail->ticket.on_done = on_done;
    return note(mail,
                node->transport->ops->fetch(node->transport, rndv, dest, size, &mail->ticket));
}

/* ------------------------------------------------------------------------------ bare sockets */

static struct sockaddr_in
loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

int
tcp_rig_listen(uint16_t *ret_port)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = loopback(0);
    socklen_t size = sizeof(at);

    assert_int_equal(bind(fd, (const struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *ret_port = ntohs(at.sin_port);
    return fd;
}

int
tcp_rig_call(const tcp_node *node)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const transport_tcp *transport = tutti_tcp_from(node->transport);
    const struct sockaddr_in at = loopback(tutti_tcp_port(&transport->own.targets[0].address));

    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

int
tcp_rig_call_known(tcp_rig *rig, tcp_node *node, uint64_t *ret_credit)
{
    const int fd = tcp_rig_call(node);
    tcp_head head;

    assert_true(tcp_rig_say_head(rig, fd, TCP_HELLO, 0, TCP_VERSION, TCP_TOKEN_BYTES));
    assert_true(tcp_rig_say(rig, fd, tutti_tcp_from(node->transport)->own.token, TCP_TOKEN_BYTES));
    assert_true(tcp_rig_hear_head(rig, fd, &head));
    assert_int_equal(head.kind, TCP_WELCOME);
    assert_int_equal(head.id, TCP_VERSION);
    if (ret_credit != NULL) {
        *ret_credit = head.size;
    }
    return fd;
}

size_t
tcp_rig_address(const tcp_node *node, const uint16_t *ports, size_t count,
                unsigned char ret_bytes[TCP_ADDRESS_MAX])
{
    tcp_address address = {.count = count};
    size_t i;

    if (node != NULL) {
        memcpy(address.token, tutti_tcp_from(node->transport)->own.token, TCP_TOKEN_BYTES);
    }
    for (i = 0; i < count; i++) {
        const struct sockaddr_in at = loopback(ports[i]);

        address.targets[i].prefix = 8;
        memcpy(&address.targets[i].address, &at, sizeof(at));
    }
    return tutti_tcp_address_write(&address, ret_bytes);
}

static int
accept_one(tcp_rig *rig, int listener)
{
    int fd = -1;

    tcp_rig_until(rig, (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0);
    return fd;
}

int
tcp_rig_connect_bare(tcp_rig *rig, uint64_t credit)
{
    unsigned char bytes[TCP_ADDRESS_MAX], hello[TCP_HEAD_BYTES + TCP_TOKEN_BYTES];
    uint16_t port;
    const int listener = tcp_rig_listen(&port);
    int fd;

    tcp_rig_connect(&rig->nodes[0], (tutti_bytes){bytes, tcp_rig_address(NULL, &port, 1, bytes)},
                    &rig->conn);
    fd = accept_one(rig, listener);
    (void)close(listener);
    assert_true(tcp_rig_hear(rig, fd, hello, sizeof(hello)));
    assert_true(tcp_rig_say_head(rig, fd, TCP_WELCOME, 0, TCP_VERSION, credit));
    tcp_rig_until(rig, rig->conn.link->state == TCP_OPEN);
    return fd;
}

bool
tcp_rig_say(tcp_rig *rig, int fd, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    const uint64_t late = tutti_clock_ns() + TCP_RIG_LATE_NS;

    while (size > 0) {
        const ssize_t some = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (some < 0 && errno != EAGAIN) {
            return false;
        }
        at += some > 0 ? some : 0;
        size -= some > 0 ? (size_t)some : 0;
        tcp_rig_turn(rig);
        assert_true(tutti_clock_ns() < late);
    }
    return true;
}

bool
tcp_rig_say_head(tcp_rig *rig, int fd, tcp_kind kind, size_t header_size, uint64_t id,
                 uint64_t size)
{
    const tcp_head head = {
        .kind = kind, .header_size = (uint16_t)header_size, .id = id, .size = size};
    unsigned char bytes[TCP_HEAD_BYTES];

    tutti_tcp_head_write(&head, bytes);
    return tcp_rig_say(rig, fd, bytes, sizeof(bytes));
}

bool
tcp_rig_hear(tcp_rig *rig, int fd, void *ret_bytes, size_t size)
{
    unsigned char *at = ret_bytes;
    const uint64_t late = tutti_clock_ns() + TCP_RIG_LATE_NS;

    while (size > 0) {
        const ssize_t some = recv(fd, at, size, MSG_DONTWAIT);

        if (some == 0 || (some < 0 && errno != EAGAIN)) {
            return false;
        }
        at += some > 0 ? some : 0;
        size -= some > 0 ? (size_t)some : 0;
        tcp_rig_turn(rig);
        assert_true(tutti_clock_ns() < late);
    }
    return true;
}

bool
tcp_rig_hear_head(tcp_rig *rig, int fd, tcp_head *ret_head)
{
    unsigned char bytes[TCP_HEAD_BYTES];

    return tcp_rig_hear(rig, fd, bytes, sizeof(bytes)) && tutti_tcp_head_read(bytes, ret_head);
}

void
tcp_rig_await_end(tcp_rig *rig, int fd)
{
    static unsigned char away[65536];
    const uint64_t late = tutti_clock_ns() + TCP_RIG_LATE_NS;
    ssize_t some;

    while ((some = recv(fd, away, sizeof(away), MSG_DONTWAIT)) > 0 ||
           (some < 0 && errno == EAGAIN)) {
        tcp_rig_turn(rig);
        assert_true(tutti_clock_ns() < late);
    }
    (void)close(fd);
}
