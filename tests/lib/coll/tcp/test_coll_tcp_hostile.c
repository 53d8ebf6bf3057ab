/*
 * Goal: whatever a stranger, or a member that lost its mind, says to a transport over TCP ends its
 * own connection and nothing else: others get through, no memory is given without credit, and each
 * ticket comes back once. So it is where descriptors run out.
 * Method: bare sockets that say what a test likes, on both sides of a connection.
 */
#include "tcp_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#define STRANGERS 300

static unsigned char room[TCP_RIG_DATA_MAX];

static tcp_node *
there(tcp_rig *self)
{
    return &self->nodes[1];
}

/* The second node works, whatever came before. */
static void
get_through(tcp_rig *self)
{
    static tcp_mail mail;
    const uint64_t before = there(self)->packets;

    mail = (tcp_mail){0};
    if (self->conn.link == NULL) {
        tcp_rig_connect(&self->nodes[0],
                        there(self)->transport->ops->address(there(self)->transport), &self->conn);
    }
    assert_int_not_equal(tcp_rig_send(&self->conn, &mail, 42, 4711), TUTTI_TRANSPORT_FAILED);
    tcp_rig_until(self, there(self)->packets > before && mail.came == 1);
}

/* ------------------------------------------------------------------------------ strangers */

static void
test_stranger__that_says_nonsense_is_hung_up_on(void **state)
{
    static const tcp_head heads[] = {
        {TCP_HELLO, 0, TCP_VERSION, TCP_TOKEN_BYTES}, /* with a token of nulls */
        {TCP_HELLO, 0, TCP_VERSION + 1, TCP_TOKEN_BYTES},
        {TCP_PACKET, 8, 0, 0},
        {TCP_OFFER, 8, 1, 100000},
        {TCP_PUSH, 8, 0, 100000},
        {TCP_DATA, 0, 1, 100},
        {TCP_WELCOME, 0, TCP_VERSION, 0},
        {TCP_CREDIT, 0, 0, 100},
        {TCP_FETCH, 0, 1, 0},
        {(tcp_kind)77, 0, 0, 0},
    };
    tcp_rig *self = *state;
    size_t i;

    for (i = 0; i < COUNT_OF(heads); i++) {
        const int fd = tcp_rig_call(there(self));

        (void)tcp_rig_say_head(self, fd, heads[i].kind, heads[i].header_size, heads[i].id,
                               heads[i].size);
        (void)tcp_rig_say(self, fd, room, TCP_TOKEN_BYTES);
        tcp_rig_await_end(self, fd);
    }
    assert_int_equal(there(self)->packets, 0);
    get_through(self);
}

static void
test_stranger__is_not_told_how_much_of_a_token_was_right(void **state)
{
    tcp_rig *self = *state;
    unsigned char token[TCP_TOKEN_BYTES];
    size_t i;

    for (i = 0; i < TCP_TOKEN_BYTES; i++) {
        const int fd = tcp_rig_call(there(self));
        unsigned char byte;

        memcpy(token, tutti_tcp_from(there(self)->transport)->own.token, sizeof(token));
        token[i] ^= (unsigned char)(1U << (i % 8));
        (void)tcp_rig_say_head(self, fd, TCP_HELLO, 0, TCP_VERSION, TCP_TOKEN_BYTES);
        (void)tcp_rig_say(self, fd, token, sizeof(token));
        assert_false(tcp_rig_hear(self, fd, &byte, 1));
        (void)close(fd);
    }
}

static void
test_stranger__may_say_hello_byte_by_byte(void **state)
{
    tcp_rig *self = *state;
    unsigned char hello[TCP_HEAD_BYTES + TCP_TOKEN_BYTES];
    const int fd = tcp_rig_call(there(self));
    tcp_head head = {.kind = TCP_HELLO, .id = TCP_VERSION, .size = TCP_TOKEN_BYTES};
    size_t i;

    tutti_tcp_head_write(&head, hello);
    memcpy(hello + TCP_HEAD_BYTES, tutti_tcp_from(there(self)->transport)->own.token,
           TCP_TOKEN_BYTES);
    for (i = 0; i < sizeof(hello); i++) {
        assert_true(tcp_rig_say(self, fd, hello + i, 1));
        tcp_rig_turn(self);
    }
    assert_true(tcp_rig_hear_head(self, fd, &head));
    assert_int_equal(head.kind, TCP_WELCOME);
    (void)close(fd);
}

static void
test_strangers__of_any_number_let_members_through(void **state)
{
    tcp_rig *self = *state;
    transport_tcp *transport = tutti_tcp_from(there(self)->transport);
    int fds[STRANGERS];
    size_t i;

    for (i = 0; i < STRANGERS; i++) {
        fds[i] = tcp_rig_call(there(self));
        if (i % 3 == 0) {
            (void)tcp_rig_say_head(self, fds[i], TCP_HELLO, 0, TCP_VERSION, TCP_TOKEN_BYTES);
        }
    }
    get_through(self);
    tcp_rig_until(self, transport->stranger_count <= 256);
    tcp_rig_await_end(self, fds[0]); /* the oldest had to go */
    get_through(self);
    for (i = 1; i < STRANGERS; i++) {
        (void)close(fds[i]);
    }
    tcp_rig_until(self, transport->stranger_count == 0 && tutti_list_empty(&transport->strangers));
    get_through(self);
}

/* ------------------------------------------------------------------------------ members */

static void
say_text(tcp_rig *self, int fd, const tcp_head *head, size_t more)
{
    static unsigned char header[TUTTI_TRANSPORT_HEADER_MAX]; /* number 0 */

    assert_true(head->header_size <= sizeof(header));
    (void)tcp_rig_say_head(self, fd, head->kind, head->header_size, head->id, head->size);
    (void)(tcp_rig_say(self, fd, header, head->header_size) &&
           tcp_rig_say(self, fd, tcp_rig_data(0), more));
}

static void
test_member__that_says_nonsense_is_hung_up_on(void **state)
{
    static const tcp_head heads[] = {
        {TCP_HELLO, 0, TCP_VERSION, TCP_TOKEN_BYTES}, /* and again the token */
        {TCP_WELCOME, 0, TCP_VERSION, 0},
        {TCP_CREDIT, 0, 0, 100},
        {TCP_FETCH, 0, 1, 0},
        {TCP_DROP, 0, 1, 0},
        {TCP_DATA, 0, 1, 100}, /* nobody asked */
        {(tcp_kind)0, 0, 0, 0},
        {(tcp_kind)200, 0, 0, 0},
        {TCP_PACKET, 8, 0, 8193},
        {TCP_PACKET, 8, 0, 1ULL << 63},
        {TCP_PACKET, 8, 3, 8},
        {TCP_PACKET, 288 + 1, 0, 0},
        {TCP_OFFER, 8, 1, 0},
        {TCP_OFFER, 288 + 1, 1, 10000},
        {TCP_PUSH, 8, 0, 0},
        {TCP_PUSH, 8, 0, TCP_PUSH_MAX + 1},
        {TCP_PUSH, 8, 0, UINT64_MAX},
    };
    tcp_rig *self = *state;
    size_t i;

    for (i = 0; i < COUNT_OF(heads); i++) {
        const int fd = tcp_rig_call_known(self, there(self), NULL);

        (void)tcp_rig_say_head(self, fd, heads[i].kind, heads[i].header_size, heads[i].id,
                               heads[i].size);
        if (heads[i].kind == TCP_HELLO) {
            (void)tcp_rig_say(self, fd, tutti_tcp_from(there(self)->transport)->own.token,
                              TCP_TOKEN_BYTES);
        }
        tcp_rig_await_end(self, fd);
    }
    assert_int_equal(there(self)->packets, 0);
    get_through(self);
}

static void
test_member__that_pushes_more_than_its_credit_is_hung_up_on(void **state)
{
    const tcp_head push = {TCP_PUSH, 8, 0, TCP_PUSH_MAX};
    tcp_rig *self = *state;
    tcp_node *node = there(self);
    uint64_t credit, pushed;
    const int fd = tcp_rig_call_known(self, node, &credit);
    tcp_mail in = {0};

    assert_int_equal(credit, TCP_CREDIT_MAX);
    for (pushed = 0; pushed < credit; pushed += TCP_PUSH_MAX) {
        say_text(self, fd, &push, TCP_PUSH_MAX);
    }
    tcp_rig_until(self, node->kept_count == 2 && node->kept[1]->got == TCP_PUSH_MAX);
    (void)tcp_rig_say_head(self, fd, TCP_PUSH, 0, 0, 1);
    tcp_rig_await_end(self, fd);
    assert_int_equal(node->packets, 2);
    assert_int_equal(tcp_rig_fetch(node, node->kept[0], &in, room, TCP_PUSH_MAX),
                     TUTTI_TRANSPORT_DONE);
    node->transport->ops->drop(node->transport, node->kept[1]);
    assert_int_equal(tutti_tcp_from(node->transport)->credit, 64 * TCP_RIG_MIB);
}

static void
test_member__has_its_credit_again_once_and_no_more(void **state)
{
    const tcp_head push = {TCP_PUSH, 8, 0, TCP_PUSH_MAX};
    tcp_rig *self = *state;
    tcp_node *node = there(self);
    const int fd = tcp_rig_call_known(self, node, NULL);
    uint64_t owed = 0;
    tcp_head head;
    size_t i;

    for (i = 0; i < 8; i++) {
        say_text(self, fd, &push, TCP_PUSH_MAX);
        tcp_rig_until(self, node->kept_count == 1 && node->kept[0]->got == TCP_PUSH_MAX);
        node->transport->ops->drop(node->transport, node->kept[0]);
        node->kept_count = 0;
        assert_true(tcp_rig_hear_head(self, fd, &head));
        assert_int_equal(head.kind, TCP_CREDIT);
        owed += head.size;
        assert_in_range(owed, i * TCP_PUSH_MAX, (i + 1) * TCP_PUSH_MAX);
    }
    (void)close(fd);
}

/* What a member pushed by half before it died: it fails for who asks, before and after. */
static void
test_member__that_dies_in_the_middle_of_data(void **state)
{
    const tcp_head push = {TCP_PUSH, 8, 0, 500000};
    tcp_rig *self = *state;
    tcp_node *node = there(self);
    tcp_mail in[3] = {0};
    int fds[3];
    size_t i;

    for (i = 0; i < 3; i++) {
        fds[i] = tcp_rig_call_known(self, node, NULL);
        say_text(self, fds[i], &push, 250000);
        tcp_rig_until(self, node->kept_count == i + 1 && node->kept[i]->got == 250000);
    }
    assert_int_equal(tcp_rig_fetch(node, node->kept[0], &in[0], room, 500000),
                     TUTTI_TRANSPORT_LATER);
    node->transport->ops->drop(node->transport, node->kept[1]);
    for (i = 0; i < 3; i++) {
        (void)close(fds[i]);
    }
    tcp_rig_until(self, tutti_list_empty(&tutti_tcp_from(node->transport)->sources));
    assert_true(in[0].came == 1 && !in[0].ok);
    assert_int_equal(tcp_rig_fetch(node, node->kept[2], &in[2], room, 500000),
                     TUTTI_TRANSPORT_FAILED);
    assert_int_equal(tutti_tcp_from(node->transport)->credit, 64 * TCP_RIG_MIB);
}

static void
test_member__that_sends_more_data_than_it_offered_is_hung_up_on(void **state)
{
    const tcp_head offer = {TCP_OFFER, 8, 7, 300000};
    tcp_rig *self = *state;
    tcp_node *node = there(self);
    const int fd = tcp_rig_call_known(self, node, NULL);
    tcp_mail in = {0};
    tcp_head head;

    say_text(self, fd, &offer, 0);
    tcp_rig_until(self, node->kept_count == 1);
    assert_int_equal(tcp_rig_fetch(node, node->kept[0], &in, room, 300000), TUTTI_TRANSPORT_LATER);
    assert_true(tcp_rig_hear_head(self, fd, &head));
    assert_true(head.kind == TCP_FETCH && head.id == 7);
    (void)tcp_rig_say_head(self, fd, TCP_DATA, 0, 7, 200000);
    (void)tcp_rig_say(self, fd, tcp_rig_data(0), 200000);
    tcp_rig_until(self, self->nodes[1].kept[0]->got == 200000);
    (void)tcp_rig_say_head(self, fd, TCP_DATA, 0, 7, 100001);
    tcp_rig_await_end(self, fd);
    assert_true(in.came == 1 && !in.ok);
    get_through(self);
}

static void
test_member__that_offers_the_same_twice_harms_itself_alone(void **state)
{
    const tcp_head offer = {TCP_OFFER, 8, 7, 300000};
    tcp_rig *self = *state;
    tcp_node *node = there(self);
    const int fd = tcp_rig_call_known(self, node, NULL);
    tcp_mail in[2] = {0};
    size_t i;

    say_text(self, fd, &offer, 0);
    say_text(self, fd, &offer, 0);
    tcp_rig_until(self, node->kept_count == 2);
    for (i = 0; i < 2; i++) {
        (void)tcp_rig_fetch(node, node->kept[i], &in[i], room + i * 300000, 300000);
    }
    for (i = 0; i < 2; i++) {
        (void)tcp_rig_say_head(self, fd, TCP_DATA, 0, 7, 300000);
        (void)tcp_rig_say(self, fd, tcp_rig_data(0), 300000);
    }
    tcp_rig_until(self, in[0].came == 1 && in[1].came == 1);
    (void)tcp_rig_say_head(self, fd, TCP_DATA, 0, 7, 1);
    tcp_rig_await_end(self, fd);
}

/* Sizes that no memory has: nobody makes room for what was not asked for. */
static void
test_member__may_offer_more_than_there_is(void **state)
{
    static const uint64_t sizes[] = {1ULL << 63, UINT64_MAX, (1ULL << 63) - 1};
    tcp_rig *self = *state;
    tcp_node *node = there(self);
    const int fd = tcp_rig_call_known(self, node, NULL);
    tcp_mail in = {0};
    tcp_head head;
    size_t i;

    for (i = 0; i < COUNT_OF(sizes); i++) {
        const tcp_head offer = {TCP_OFFER, 8, i, sizes[i]};

        say_text(self, fd, &offer, 0);
        tcp_rig_until(self, node->kept_count == i + 1);
        if (i == 0) {
            assert_int_equal(tcp_rig_fetch(node, node->kept[0], &in, room, 100),
                             TUTTI_TRANSPORT_FAILED);
        } else {
            node->transport->ops->drop(node->transport, node->kept[i]);
        }
        assert_true(tcp_rig_hear_head(self, fd, &head));
        assert_true(head.kind == TCP_DROP && head.id == i);
    }
    (void)close(fd);
}

static void
drop_it(tcp_node *node, uint64_t number, size_t size, tutti_transport_rndv *rndv)
{
    (void)number;
    (void)size;
    if (rndv != NULL) {
        node->transport->ops->drop(node->transport, rndv);
    }
}

/* It offers and offers, and does not read that nobody wants it: at some time we stop listening. */
static void
test_member__that_does_not_read_is_not_heard_for_ever(void **state)
{
    enum {
        MANY = 512,
        FRAME = TCP_HEAD_BYTES + 8
    };
    static unsigned char frames[MANY * FRAME];
    tcp_rig *self = *state;
    tcp_node *node = there(self);
    const int fd = tcp_rig_call_known(self, node, NULL);
    unsigned idle = 0;
    uint64_t before;
    size_t i, at = 0;

    node->on_packet = drop_it;
    for (i = 0; i < MANY; i++) {
        tutti_tcp_head_write(&(tcp_head){TCP_OFFER, 8, i, 100}, frames + i * FRAME);
    }
    while (idle < 1000 && node->packets < 4000000) {
        const ssize_t some =
            send(fd, frames + at, sizeof(frames) - at, MSG_DONTWAIT | MSG_NOSIGNAL);

        assert_true(some > 0 || errno == EAGAIN);
        at = (at + (some > 0 ? (size_t)some : 0)) % sizeof(frames);
        before = node->packets;
        tcp_rig_turn(self);
        idle = node->packets > before ? 0 : idle + 1;
    }
    assert_int_equal(idle, 1000);
    get_through(self);
    (void)close(fd);
    tcp_rig_until(self, tutti_tcp_from(node->transport)->credit == 62 * TCP_RIG_MIB);
}

/* ------------------------------------------------------------------------------ who is called */

static void
test_called__that_answers_nonsense_breaks_the_way(void **state)
{
    static const tcp_head heads[] = {
        {TCP_FETCH, 0, 1, 0}, /* never offered */
        {TCP_DROP, 0, 0, 0},
        {TCP_FETCH, 0, UINT64_MAX, 0},
        {TCP_CREDIT, 0, 0, 2}, /* more than there can be */
        {TCP_WELCOME, 0, TCP_VERSION, 0},
        {TCP_HELLO, 0, TCP_VERSION, TCP_TOKEN_BYTES},
        {TCP_DATA, 0, 1, 1},
        {TCP_PACKET, 0, 0, 0},
        {(tcp_kind)0, 0, 0, 0},
    };
    tcp_rig *self = *state;
    size_t i;

    for (i = 0; i < COUNT_OF(heads); i++) {
        const int fd = tcp_rig_connect_bare(self, TCP_CREDIT_MAX - 1);
        tcp_mail mail = {0};

        (void)tcp_rig_say_head(self, fd, heads[i].kind, 0, heads[i].id, heads[i].size);
        tcp_rig_until(self, self->conn.broken == i + 1);
        assert_text_has(self->conn.why, "did not make");
        assert_int_equal(tcp_rig_send(&self->conn, &mail, 1, 10), TUTTI_TRANSPORT_FAILED);
        tcp_rig_disconnect(&self->nodes[0], &self->conn);
        tcp_rig_await_end(self, fd);
    }
}

static void
test_called__that_asks_twice_breaks_the_way(void **state)
{
    static const tcp_kind kinds[][2] = {
        {TCP_FETCH, TCP_FETCH}, {TCP_FETCH, TCP_DROP}, {TCP_DROP, TCP_FETCH}, {TCP_DROP, TCP_DROP}};
    tcp_rig *self = *state;
    size_t i;

    for (i = 0; i < COUNT_OF(kinds); i++) {
        const int fd = tcp_rig_connect_bare(self, 0);
        tcp_mail mail = {0};
        tcp_head head;

        assert_int_equal(tcp_rig_send(&self->conn, &mail, 1, 5 * TCP_RIG_MIB),
                         TUTTI_TRANSPORT_LATER);
        assert_true(tcp_rig_hear_head(self, fd, &head));
        assert_int_equal(head.kind, TCP_OFFER);
        (void)tcp_rig_say_head(self, fd, kinds[i][0], 0, head.id, 0);
        (void)tcp_rig_say_head(self, fd, kinds[i][1], 0, head.id, 0);
        tcp_rig_until(self, self->conn.broken == i + 1);
        tcp_rig_disconnect(&self->nodes[0], &self->conn);
        assert_int_equal(mail.came, 1);
        assert_int_equal(mail.ok, kinds[i][0] == TCP_DROP);
        tcp_rig_await_end(self, fd);
    }
}

static void
test_called__that_never_reads_keeps_no_ticket(void **state)
{
    enum {
        MOST = 4000
    };
    static tcp_mail mails[MOST];
    tcp_rig *self = *state;
    const int fd = tcp_rig_connect_bare(self, TCP_CREDIT_MAX);
    size_t i;

    memset(mails, 0, sizeof(mails));
    for (i = 0; i < MOST; i++) {
        static const size_t sizes[] = {100, 8192, 1000000, 3000000};

        (void)tcp_rig_send(&self->conn, &mails[i], i, sizes[i % 4]);
        if (i % 16 == 0) {
            tcp_rig_turn(self);
        }
    }
    assert_int_equal(mails[MOST - 1].came, 0);
    tcp_rig_disconnect(&self->nodes[0], &self->conn);
    for (i = 0; i < MOST; i++) {
        assert_int_equal(mails[i].came, 1);
    }
    (void)close(fd);
}

/* A rank that is stopped is not dead: what it was told waits, and goes on with it. */
static void
test_called__that_reads_late_gets_it_all(void **state)
{
    tcp_rig *self = *state;
    const int fd = tcp_rig_connect_bare(self, TCP_CREDIT_MAX);
    unsigned char *all = malloc(TCP_FRAME_MAX);
    tcp_mail mails[600] = {0};
    tcp_head head;
    uint64_t i;

    for (i = 0; i < COUNT_OF(mails); i++) {
        assert_int_not_equal(tcp_rig_send(&self->conn, &mails[i], i, 8192), TUTTI_TRANSPORT_FAILED);
    }
    for (i = 0; i < COUNT_OF(mails); i++) {
        assert_true(tcp_rig_hear_head(self, fd, &head));
        assert_true(head.kind == TCP_PACKET && head.header_size == 8 && head.size == 8192);
        assert_true(tcp_rig_hear(self, fd, all, 8 + 8192));
        assert_memory_equal(all, &mails[i].number, 8);
        assert_memory_equal(all + 8, tcp_rig_data(i), 8192);
    }
    assert_true(mails[COUNT_OF(mails) - 1].came == 1);
    free(all);
    (void)close(fd);
}

/* ------------------------------------------------------------------------------ time and limits */

static void
test_called__that_says_nothing_is_one_address_of_two(void **state)
{
    tcp_rig *self = *state;
    unsigned char bytes[TCP_ADDRESS_MAX];
    uint16_t ports[2];
    const int silent = tcp_rig_listen(&ports[0]);
    const uint64_t began = tutti_clock_ns();
    tcp_mail mail = {0};
    size_t size;

    ports[1] = tutti_tcp_port(&tutti_tcp_from(there(self)->transport)->own.targets[0].address);
    size = tcp_rig_address(there(self), ports, 2, bytes);
    tcp_rig_connect(&self->nodes[0], (tutti_bytes){bytes, size}, &self->conn);
    (void)tcp_rig_send(&self->conn, &mail, 1, 1000);
    tcp_rig_until(self, there(self)->packets == 1 && mail.came == 1);
    assert_true(tutti_clock_ns() - began >= TUTTI_NS_PER_S);
    assert_int_equal(self->conn.broken, 0);
    (void)close(silent);
}

/* All that this process may have, from now on; what it had before is returned. */
static struct rlimit
limit_descriptors(rlim_t count)
{
    struct rlimit was, now;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    now = was;
    now.rlim_cur = count;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    return was;
}

static rlim_t
first_free(void)
{
    const int fd = dup(0);

    assert_true(fd >= 0);
    (void)close(fd);
    return (rlim_t)fd;
}

/* Nothing but who called is there to remind the transport: it is heard when there is room again. */
static void
test_accept__goes_on_when_there_are_descriptors_again(void **state)
{
    tcp_rig *self = *state;
    transport_tcp *transport = tutti_tcp_from(there(self)->transport);
    const int fd = tcp_rig_call(there(self));
    const struct rlimit was = limit_descriptors(first_free());
    tcp_head head;

    tcp_rig_until(self, transport->accept_again_ns != 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_true(tcp_rig_say_head(self, fd, TCP_HELLO, 0, TCP_VERSION, TCP_TOKEN_BYTES));
    assert_true(tcp_rig_say(self, fd, transport->own.token, TCP_TOKEN_BYTES));
    assert_true(tcp_rig_hear_head(self, fd, &head));
    assert_int_equal(head.kind, TCP_WELCOME);
    (void)close(fd);
    get_through(self);
}

static void
test_connect__without_descriptors_has_words(void **state)
{
    tcp_rig *self = *state;
    tutti_transport *transport = there(self)->transport;
    const struct rlimit was = limit_descriptors(first_free());

    tcp_rig_connect(&self->nodes[0], transport->ops->address(transport), &self->conn);
    assert_int_not_equal(self->conn.link->shortage_ns, 0);
    self->conn.link->shortage_ns = 1; /* for so long already */
    tcp_rig_until(self, self->conn.broken == 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_text_has(self->conn.why, strerror(EMFILE));
    tcp_rig_disconnect(&self->nodes[0], &self->conn);
}

/* What was sent waits meanwhile. */
static void
test_connect__goes_on_when_there_are_descriptors_again(void **state)
{
    tcp_rig *self = *state;
    tutti_transport *transport = there(self)->transport;
    const struct rlimit was = limit_descriptors(first_free());
    static tcp_mail mail;

    tcp_rig_connect(&self->nodes[0], transport->ops->address(transport), &self->conn);
    assert_int_equal(tcp_rig_send(&self->conn, &mail, 42, 4711), TUTTI_TRANSPORT_LATER);
    tcp_rig_until(self, self->conn.link->patience < tutti_clock_ns());
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    tcp_rig_until(self, mail.came == 1);
    assert_int_equal(self->conn.broken, 0);
}

static void
test_open__without_descriptors_says_so(void **state)
{
    const rlim_t least = first_free();
    tutti_code code = TUTTI_RESOURCE_EXHAUSTED;
    tutti_transport *transport;
    tutti_error err;
    rlim_t more;

    (void)state;
    for (more = 0; more < 16 && code != TUTTI_OK; more++) {
        const struct rlimit was = limit_descriptors(least + more);

        code = tutti_transport_tcp_open(NULL, &transport, &err);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        assert_true(code == TUTTI_OK || code == TUTTI_RESOURCE_EXHAUSTED);
    }
    assert_int_equal(code, TUTTI_OK);
    transport->ops->close(transport);
}

#define sentence(name) cmocka_unit_test_setup_teardown(name, tcp_rig_begin, tcp_rig_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        sentence(test_stranger__that_says_nonsense_is_hung_up_on),
        sentence(test_stranger__is_not_told_how_much_of_a_token_was_right),
        sentence(test_stranger__may_say_hello_byte_by_byte),
        sentence(test_strangers__of_any_number_let_members_through),
        sentence(test_member__that_says_nonsense_is_hung_up_on),
        sentence(test_member__that_pushes_more_than_its_credit_is_hung_up_on),
        sentence(test_member__has_its_credit_again_once_and_no_more),
        sentence(test_member__that_dies_in_the_middle_of_data),
        sentence(test_member__that_sends_more_data_than_it_offered_is_hung_up_on),
        sentence(test_member__that_offers_the_same_twice_harms_itself_alone),
        sentence(test_member__may_offer_more_than_there_is),
        sentence(test_member__that_does_not_read_is_not_heard_for_ever),
        sentence(test_called__that_answers_nonsense_breaks_the_way),
        sentence(test_called__that_asks_twice_breaks_the_way),
        sentence(test_called__that_never_reads_keeps_no_ticket),
        sentence(test_called__that_reads_late_gets_it_all),
        sentence(test_called__that_says_nothing_is_one_address_of_two),
        sentence(test_accept__goes_on_when_there_are_descriptors_again),
        sentence(test_connect__goes_on_when_there_are_descriptors_again),
        sentence(test_connect__without_descriptors_has_words),
        cmocka_unit_test(test_open__without_descriptors_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
