/*
 * Goal: what is sent over TCP comes once, in order where it is small and whole where it is large;
 * every ticket comes back exactly once; who sleeps is woken.
 * Method: two transports of one thread; their private state says which way data took.
 */
#include "tcp_rig.h"

#include <poll.h>
#include <unistd.h>

#define PACKETS (TUTTI_TRANSPORT_EAGER_MAX + 1)
#define POOL_PEERS 36 /* more than the credit of all is enough for */
#define POOL_BYTES (64 * (uint64_t)TCP_RIG_MIB)

static tcp_mail mails[PACKETS];
static unsigned char room[TCP_RIG_DATA_MAX];

static int
begin(void **state)
{
    memset(mails, 0, sizeof(mails));
    return tcp_rig_begin_way(state);
}

/* ------------------------------------------------------------------------------ packets */

static void
in_order(tcp_node *node, uint64_t number, size_t size, tutti_transport_rndv *rndv)
{
    assert_null(rndv);
    assert_int_equal(number, node->packets - 1);
    assert_int_equal(size, number);
}

static void
test_packets__of_all_sizes_come_in_order(void **state)
{
    tcp_rig *self = *state;
    size_t i;

    tcp_rig_there(self)->on_packet = in_order;
    for (i = 0; i < PACKETS; i++) {
        assert_int_not_equal(tcp_rig_send(&self->conn, &mails[i], i, i), TUTTI_TRANSPORT_FAILED);
        if (i % 64 == 63) {
            tcp_rig_turn(self);
        }
    }
    tcp_rig_until(self, tcp_rig_there(self)->packets == PACKETS && mails[PACKETS - 1].came == 1);
    for (i = 0; i < PACKETS; i++) {
        assert_true(mails[i].came == 1 && mails[i].ok);
    }
}

static void
test_packets__have_headers_of_all_sizes(void **state)
{
    static unsigned char header[TUTTI_TRANSPORT_HEADER_MAX];
    tcp_rig *self = *state;
    const tutti_transport_ops *ops = self->nodes[0].transport->ops;
    size_t i;

    tcp_rig_open_way(self);
    for (i = 0; i <= sizeof(header); i++) {
        assert_int_equal(ops->send(self->conn.link, header, i, NULL, 0, &mails[i].ticket),
                         TUTTI_TRANSPORT_DONE);
    }
    tcp_rig_until(self, tcp_rig_there(self)->packets == sizeof(header) + 1);
}

/* ------------------------------------------------------------------------------ data */

/* One of so many bytes; true: it was pushed. */
static bool
fetch(tcp_rig *self, size_t size, uint64_t number)
{
    tcp_mail out = {0}, in = {0};
    tutti_transport_rndv *rndv;
    bool pushed;

    assert_int_not_equal(tcp_rig_send(&self->conn, &out, number, size), TUTTI_TRANSPORT_FAILED);
    tcp_rig_until(self, tcp_rig_there(self)->kept_count == 1);
    assert_int_equal(tcp_rig_there(self)->kept_numbers[0], number);
    tcp_rig_there(self)->kept_count = 0;
    rndv = tcp_rig_there(self)->kept[0];
    pushed = rndv->pushed;
    assert_int_not_equal(tcp_rig_fetch(tcp_rig_there(self), rndv, &in, room, size),
                         TUTTI_TRANSPORT_FAILED);
    tcp_rig_until(self, in.came > 0 && out.came > 0);
    assert_true(in.came == 1 && in.ok && out.came == 1 && out.ok);
    assert_memory_equal(room, tcp_rig_data(number), size);
    return pushed;
}

static void
test_data__is_pushed_or_asked_for_by_its_size(void **state)
{
    static const size_t sizes[] = {
        8193, 65536, TCP_PUSH_MAX, TCP_PUSH_MAX + 1, 5 * TCP_PUSH_MAX, 3 * TCP_PUSH_MAX + 4711};
    tcp_rig *self = *state;
    size_t i;

    tcp_rig_open_way(self);
    for (i = 0; i < COUNT_OF(sizes); i++) {
        assert_int_equal(fetch(self, sizes[i], i + 1), sizes[i] <= TCP_PUSH_MAX);
    }
}

static void
test_data__is_asked_for_where_no_credit_is_left(void **state)
{
    tcp_rig *self = *state;
    uint64_t i;

    tcp_rig_open_way(self);
    for (i = 0; i < 4; i++) {
        (void)tcp_rig_send(&self->conn, &mails[i], i, TCP_PUSH_MAX);
    }
    assert_int_equal(self->conn.link->credit, 0);
    tcp_rig_until(self, tcp_rig_there(self)->kept_count == 4);
    for (i = 0; i < 4; i++) {
        assert_int_equal(tcp_rig_there(self)->kept[i]->pushed, i < 2);
        tcp_rig_there(self)->transport->ops->drop(tcp_rig_there(self)->transport,
                                                  tcp_rig_there(self)->kept[i]);
    }
    tcp_rig_until(self, mails[2].came == 1 && mails[3].came == 1);
    tcp_rig_until(self, self->conn.link->credit == TCP_CREDIT_MAX);
}

static void
test_credit__comes_back_for_as_much_as_is_sent(void **state)
{
    tcp_rig *self = *state;
    uint64_t i;

    tcp_rig_open_way(self);
    for (i = 0; i < 100; i++) {
        tcp_rig_until(self, self->conn.link->credit >= TCP_PUSH_MAX);
        assert_true(fetch(self, TCP_PUSH_MAX, i));
    }
    for (i = 0; i < 1000; i++) { /* what is owed is said before there is too little */
        assert_true(fetch(self, 8193 + i * 91, i) || self->conn.link->credit < 8193 + i * 91);
    }
}

/* Fetched, in the order that `turn` says, when all have come: three of four, the rest is dropped.
 */
static void
fetch_kept(tcp_rig *self, tcp_mail *in, unsigned char *to, size_t size)
{
    tcp_node *node = tcp_rig_there(self);
    size_t i;

    for (i = 0; i < node->kept_count; i++) {
        const size_t at = node->kept_count - 1 - i;

        if (at % 4 == 3) {
            node->transport->ops->drop(node->transport, node->kept[at]);
        } else {
            assert_int_not_equal(tcp_rig_fetch(node, node->kept[at], &in[at], to + at * size, size),
                                 TUTTI_TRANSPORT_FAILED);
        }
    }
}

static void
test_data__of_several_comes_among_packets(void **state)
{
    enum {
        MANY = 12,
        SIZE = 3000000
    };
    tcp_rig *self = *state;
    tcp_mail in[MANY] = {0};
    unsigned char *to = malloc((size_t)MANY * SIZE);
    size_t i;

    for (i = 0; i < MANY; i++) {
        (void)tcp_rig_send(&self->conn, &mails[2 * i], i, SIZE);
        (void)tcp_rig_send(&self->conn, &mails[2 * i + 1], 1000 + i, 100);
    }
    tcp_rig_until(self, tcp_rig_there(self)->packets == 2 * (size_t)MANY);
    fetch_kept(self, in, to, SIZE);
    for (i = 0; i < MANY; i++) {
        (void)tcp_rig_send(&self->conn, &mails[2 * MANY + i], i, i * 600);
        tcp_rig_until(self, mails[2 * i].came == 1 && (i % 4 == 3 || in[i].came == 1));
        assert_true(mails[2 * i].ok && mails[2 * i + 1].came == 1);
        assert_true(i % 4 == 3 || memcmp(to + i * SIZE, tcp_rig_data(i), SIZE) == 0);
    }
    tcp_rig_until(self, tcp_rig_there(self)->packets == 3 * (size_t)MANY);
    free(to);
}

static void
fetch_at_once(tcp_node *node, uint64_t number, size_t size, tutti_transport_rndv *rndv)
{
    (void)number;
    assert_int_equal(tcp_rig_fetch(node, rndv, node->arg, room, size), TUTTI_TRANSPORT_LATER);
}

static void
test_data__is_pulled_when_it_is_heard_of(void **state)
{
    static const size_t sizes[] = {8193, 1000000, 2000000};
    tcp_rig *self = *state;
    size_t i;

    tcp_rig_there(self)->on_packet = fetch_at_once;
    for (i = 0; i < COUNT_OF(sizes); i++) {
        tcp_mail in = {0};

        tcp_rig_there(self)->arg = &in;
        (void)tcp_rig_send(&self->conn, &mails[i], i, sizes[i]);
        tcp_rig_until(self, in.came == 1 && mails[i].came == 1);
        assert_true(in.ok && mails[i].ok);
        assert_memory_equal(room, tcp_rig_data(i), sizes[i]);
    }
}

static void
drop_at_once(tcp_node *node, uint64_t number, size_t size, tutti_transport_rndv *rndv)
{
    (void)number;
    (void)size;
    if (rndv != NULL) {
        node->transport->ops->drop(node->transport, rndv);
    }
}

static void
test_data__is_dropped_when_it_is_heard_of(void **state)
{
    tcp_rig *self = *state;
    size_t i;

    tcp_rig_there(self)->on_packet = drop_at_once;
    tcp_rig_open_way(self);
    for (i = 0; i < 20; i++) {
        (void)tcp_rig_send(&self->conn, &mails[2 * i], i, i % 2 == 0 ? 1000000 : 2000000);
        (void)tcp_rig_send(&self->conn, &mails[2 * i + 1], i, i);
        tcp_rig_until(self, mails[2 * i].came == 1 && mails[2 * i + 1].came == 1);
        assert_true(mails[2 * i].ok);
    }
    tcp_rig_until(self, tcp_rig_there(self)->packets == 40);
    tcp_rig_until(self, self->conn.link->credit == TCP_CREDIT_MAX);
}

static void
test_pull__of_another_size_fails_and_gives_the_credit_back(void **state)
{
    tcp_rig *self = *state;
    tcp_mail in[3] = {0};
    size_t i;

    tcp_rig_open_way(self);
    for (i = 0; i < 3; i++) {
        (void)tcp_rig_send(&self->conn, &mails[i], i, i < 2 ? TCP_PUSH_MAX : 2000000);
    }
    tcp_rig_until(self, tcp_rig_there(self)->kept_count == 3);
    for (i = 0; i < 3; i++) {
        assert_int_equal(
            tcp_rig_fetch(tcp_rig_there(self), tcp_rig_there(self)->kept[i], &in[i], room, 9000),
            TUTTI_TRANSPORT_FAILED);
    }
    tcp_rig_until(self, mails[2].came == 1 && self->conn.link->credit == TCP_CREDIT_MAX);
}

static void
test_credit__of_all_peers_has_a_limit(void **state)
{
    static tcp_way conns[POOL_PEERS];
    tcp_rig *self = *state;
    transport_tcp *transport = tutti_tcp_from(tcp_rig_there(self)->transport);
    uint64_t given = 0;
    size_t i;

    tcp_rig_disconnect(&self->nodes[0], &self->conn);
    tcp_rig_until(self, transport->credit == POOL_BYTES);
    for (i = 0; i < POOL_PEERS; i++) {
        tcp_rig_connect(
            &self->nodes[0],
            tcp_rig_there(self)->transport->ops->address(tcp_rig_there(self)->transport),
            &conns[i]);
        tcp_rig_until(self, conns[i].link->state == TCP_OPEN);
        given += conns[i].link->credit;
        assert_int_equal(transport->credit, POOL_BYTES - given);
    }
    assert_int_equal(given, POOL_BYTES);
    self->conn = conns[POOL_PEERS - 1]; /* has none, and gets through all the same */
    assert_false(fetch(self, 10000, 1));
    for (i = 0; i < POOL_PEERS; i++) {
        tcp_rig_disconnect(&self->nodes[0], &conns[i]);
    }
    self->conn.link = NULL;
    tcp_rig_until(self, transport->credit == POOL_BYTES);
}

/* ------------------------------------------------------------------------------ sleeping */

static bool
rings(const tcp_node *node, int timeout_ms)
{
    struct pollfd it = {.fd = node->transport->ops->descriptor(node->transport), .events = POLLIN};

    return poll(&it, 1, timeout_ms) == 1;
}

/* Until the doorbell of a node is silent when it is armed. */
static void
fall_asleep(tcp_rig *self, tcp_node *node)
{
    tcp_rig_turn(self);
    tcp_rig_until(self, node->transport->ops->arm(node->transport, false) && !rings(node, 0));
}

static void
send_one(tcp_rig *self, size_t which)
{
    assert_int_equal(tcp_rig_send(&self->conn, &mails[which], which, 100), TUTTI_TRANSPORT_DONE);
}

static void
test_doorbell__rings_for_a_packet_while_it_is_armed(void **state)
{
    tcp_rig *self = *state;
    tcp_node *node = tcp_rig_there(self);

    tcp_rig_open_way(self);
    fall_asleep(self, node);
    send_one(self, 0);
    assert_true(rings(node, 10000));
    node->transport->ops->disarm(node->transport);
    assert_false(rings(node, 0));
    send_one(self, 1);
    assert_false(rings(node, 10));
    assert_true(!node->transport->ops->arm(node->transport, false) || rings(node, 10000));
    tcp_rig_until(self, node->packets == 2);
    fall_asleep(self, node);
    send_one(self, 2);
    assert_true(rings(node, 10000));
}

/* ... and may then sleep a while longer, but not for ever. */
static void
test_doorbell__rings_for_a_packet_where_nothing_runs(void **state)
{
    tcp_rig *self = *state;
    tcp_node *node = tcp_rig_there(self);
    unsigned naps = 0;
    size_t i;

    tcp_rig_open_way(self);
    for (i = 0; i < 20; i++) {
        while (!node->transport->ops->arm(node->transport, true)) {
            (void)node->transport->ops->progress(node->transport);
        }
        send_one(self, i);
        while (node->packets == i) {
            assert_true(!node->transport->ops->arm(node->transport, true) || rings(node, 10000));
            assert_true(++naps < 1000);
            (void)node->transport->ops->progress(node->transport);
        }
    }
}

/* What rang because nothing ran is no reason to wake for who waits for something now. */
static void
test_doorbell__is_silent_where_something_runs_and_nothing_comes(void **state)
{
    tcp_rig *self = *state;
    tcp_node *node = tcp_rig_there(self);

    tcp_rig_open_way(self);
    fall_asleep(self, node);
    assert_true(node->transport->ops->arm(node->transport, true));
    (void)rings(node, 20); /* an alarm, where there is one */
    fall_asleep(self, node);
    assert_false(rings(node, 20));
    node->transport->ops->disarm(node->transport);
    assert_false(rings(node, 20));
}

/* What rang while somebody looked says nothing of the idleness behind it. */
static void
test_doorbell__has_a_new_lull_behind_each_look(void **state)
{
    tcp_rig *self = *state;
    tcp_node *node = tcp_rig_there(self);
    int i;

    tcp_rig_open_way(self);
    fall_asleep(self, node);
    for (i = 0; i < 3; i++) {
        assert_true(node->transport->ops->arm(node->transport, true));
        assert_true(rings(node, 10000));
        node->transport->ops->disarm(node->transport);
    }
    assert_true(node->transport->ops->arm(node->transport, true));
    assert_true(rings(node, 10000));
    for (i = 0; i < 2; i++) { /* nobody looked: from now on only a packet rings */
        assert_true(node->transport->ops->arm(node->transport, true));
        assert_false(rings(node, 20));
    }
}

static void
test_doorbell__rings_for_a_connection_and_for_its_end(void **state)
{
    tcp_rig *self = *state;
    tcp_node *node = tcp_rig_there(self);
    int fd;

    tcp_rig_open_way(self);
    fall_asleep(self, node);
    fd = tcp_rig_call(node);
    assert_true(rings(node, 10000));
    fall_asleep(self, node);
    (void)close(fd);
    assert_true(rings(node, 10000));
    fall_asleep(self, node);
    tcp_rig_disconnect(&self->nodes[0], &self->conn);
    assert_true(rings(node, 10000));
}

static void
test_doorbell__rings_for_room_to_write(void **state)
{
    tcp_rig *self = *state;
    tcp_node *node = &self->nodes[0];
    size_t i;

    tcp_rig_open_way(self);
    for (i = 0; i == 0 || mails[i - 1].came == 1; i++) {
        assert_true(i < PACKETS);
        (void)tcp_rig_send(&self->conn, &mails[i], i, 8000);
    }
    while (tcp_rig_there(self)->packets < i - 1) {
        if (!node->transport->ops->arm(node->transport, false) || rings(node, 0)) {
            (void)node->transport->ops->progress(node->transport);
        }
        (void)tcp_rig_there(self)->transport->ops->progress(tcp_rig_there(self)->transport);
    }
    tcp_rig_until(self, mails[i - 1].came == 1);
}

static void
test_arm__says_no_while_there_is_bad_news(void **state)
{
    tcp_rig *self = *state;
    tcp_node *node = &self->nodes[0];
    unsigned char bytes[TCP_ADDRESS_MAX];
    uint16_t port;
    tcp_way conn = {0};

    (void)close(tcp_rig_listen(&port));
    tcp_rig_connect(node, (tutti_bytes){bytes, tcp_rig_address(NULL, &port, 1, bytes)}, &conn);
    while (conn.link->state != TCP_BROKEN) {
        assert_true(!node->transport->ops->arm(node->transport, false) || rings(node, 10000));
        (void)node->transport->ops->progress(node->transport);
    }
    assert_true(conn.broken == 1 || !node->transport->ops->arm(node->transport, true));
    tcp_rig_until(self, conn.broken == 1);
    assert_text_has(conn.why, "127.0.0.1:");
    tcp_rig_disconnect(node, &conn);
}

#define sentence(name) cmocka_unit_test_setup_teardown(name, begin, tcp_rig_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        sentence(test_packets__of_all_sizes_come_in_order),
        sentence(test_packets__have_headers_of_all_sizes),
        sentence(test_data__is_pushed_or_asked_for_by_its_size),
        sentence(test_data__is_asked_for_where_no_credit_is_left),
        sentence(test_credit__comes_back_for_as_much_as_is_sent),
        sentence(test_data__of_several_comes_among_packets),
        sentence(test_data__is_pulled_when_it_is_heard_of),
        sentence(test_data__is_dropped_when_it_is_heard_of),
        sentence(test_pull__of_another_size_fails_and_gives_the_credit_back),
        sentence(test_credit__of_all_peers_has_a_limit),
        sentence(test_doorbell__rings_for_a_packet_while_it_is_armed),
        sentence(test_doorbell__rings_for_a_packet_where_nothing_runs),
        sentence(test_doorbell__is_silent_where_something_runs_and_nothing_comes),
        sentence(test_doorbell__has_a_new_lull_behind_each_look),
        sentence(test_doorbell__rings_for_a_connection_and_for_its_end),
        sentence(test_doorbell__rings_for_room_to_write),
        sentence(test_arm__says_no_while_there_is_bad_news),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
