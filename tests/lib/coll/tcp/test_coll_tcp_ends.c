/*
 * Goal: a way over TCP, a transport and a process may end at any moment: every ticket comes back
 * exactly once, what was sent arrives, what has come can be had, and nothing is left behind.
 * Method: two transports of one thread, which end each other from wherever that is possible; peers
 * in processes of their own.
 */
#include "tcp_rig.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define PACKETS 4096

static tcp_mail mails[PACKETS];
static unsigned char room[TCP_RIG_DATA_MAX];

static int
begin(void **state)
{
    memset(mails, 0, sizeof(mails));
    return tcp_rig_begin_way(state);
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

/* ------------------------------------------------------------------------------ ends */

static void
test_disconnect__gives_tickets_back_and_leaves_what_has_come(void **state)
{
    tcp_rig *self = *state;
    tcp_node *node = tcp_rig_there(self);
    tcp_mail in[4] = {0};

    tcp_rig_open_way(self);
    assert_int_not_equal(tcp_rig_send(&self->conn, &mails[0], 0, 500000), TUTTI_TRANSPORT_FAILED);
    tcp_rig_until(self, node->kept_count == 1 && mails[0].came == 1);
    tcp_rig_until(self, node->kept[0]->got == 500000);
    (void)tcp_rig_send(&self->conn, &mails[1], 1, 2000000);
    (void)tcp_rig_send(&self->conn, &mails[2], 2, 5000000);
    tcp_rig_until(self, node->kept_count == 3);
    assert_int_equal(tcp_rig_fetch(node, node->kept[2], &in[2], room, 5000000),
                     TUTTI_TRANSPORT_LATER);
    tcp_rig_disconnect(&self->nodes[0], &self->conn);
    assert_true(mails[1].came == 1 && !mails[1].ok && mails[2].came == 1 && !mails[2].ok);
    tcp_rig_until(self, in[2].came == 1);
    assert_false(in[2].ok);
    assert_int_equal(tcp_rig_fetch(node, node->kept[1], &in[1], room, 2000000),
                     TUTTI_TRANSPORT_FAILED);
    assert_int_equal(tcp_rig_fetch(node, node->kept[0], &in[0], room, 500000),
                     TUTTI_TRANSPORT_DONE);
    assert_memory_equal(room, tcp_rig_data(0), 500000);
}

/* What was sent at once, as the kernel has room for it. */
static uint64_t
fill_up(tcp_way *conn)
{
    uint64_t sent = 0;

    (void)tcp_rig_send(conn, &mails[PACKETS - 1], 1, 2000000); /* the answer to it comes too late */
    while (sent < PACKETS - 1 &&
           tcp_rig_send(conn, &mails[sent], sent, 8000) == TUTTI_TRANSPORT_DONE) {
        sent++;
    }
    return sent;
}

/* Little of what is sent to a node is taken before it looks; not so little that its kernel tells of
 * room only when it is asked, five times a second. */
static void
narrow(tcp_node *node)
{
    transport_tcp *transport = tutti_tcp_from(node->transport);
    const int size = 1 << 18;
    tutti_list_node *at, *spare;

    tutti_list_each(at, spare, &transport->sources)
    {
        const tcp_source *source = tutti_container_of(at, tcp_source, link);

        assert_int_equal(setsockopt(source->watch.fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)),
                         0);
    }
}

static void
test_disconnect__keeps_back_nothing_that_was_sent(void **state)
{
    tcp_rig *self = *state;
    transport_tcp *transport = tutti_tcp_from(tcp_rig_there(self)->transport);
    uint64_t sent;

    tcp_rig_there(self)->on_packet = drop_at_once;
    tcp_rig_open_way(self);
    narrow(tcp_rig_there(self));
    sent = fill_up(&self->conn);
    assert_true(sent > 0);
    tcp_rig_disconnect(&self->nodes[0], &self->conn);
    assert_int_equal(mails[PACKETS - 1].came, 1);
    tcp_rig_until(self, tcp_rig_there(self)->packets > 0 && tutti_list_empty(&transport->sources));
    assert_in_range(tcp_rig_there(self)->packets, 1 + sent, 1 + sent + 1);
}

static void
test_disconnect__before_there_is_a_connection(void **state)
{
    tcp_rig *self = *state;
    size_t i;

    for (i = 0; i < 3; i++) {
        assert_int_equal(tcp_rig_send(&self->conn, &mails[i], i, i * 1000000),
                         TUTTI_TRANSPORT_LATER);
    }
    tcp_rig_disconnect(&self->nodes[0], &self->conn);
    for (i = 0; i < 3; i++) {
        assert_true(mails[i].came == 1 && !mails[i].ok);
    }
}

static void
test_close__of_the_receiver_breaks_the_way(void **state)
{
    tcp_rig *self = *state;
    size_t i;

    tcp_rig_open_way(self);
    for (i = 0; i < 10; i++) {
        assert_int_not_equal(tcp_rig_send(&self->conn, &mails[i], i, 3000000),
                             TUTTI_TRANSPORT_FAILED);
    }
    tcp_rig_there(self)->transport->ops->close(tcp_rig_there(self)->transport);
    tcp_rig_there(self)->transport = NULL;
    tcp_rig_until(self, self->conn.broken == 1);
    assert_true(self->conn.why[0] != '\0');
    assert_int_equal(tcp_rig_send(&self->conn, &mails[10], 10, 10), TUTTI_TRANSPORT_FAILED);
    tcp_rig_disconnect(&self->nodes[0], &self->conn);
    for (i = 0; i < 10; i++) {
        assert_true(mails[i].came == 1 && !mails[i].ok);
    }
    tcp_rig_turn(self);
    assert_int_equal(self->conn.broken, 1);
}

/* Rendezvous messages in every state, and a stranger; the leak sanitizer sees what stays. */
static void
test_close__with_everything_under_way(void **state)
{
    tcp_rig *self = *state;
    tcp_node *node = tcp_rig_there(self);
    tcp_mail in[2] = {0};
    const int stranger = tcp_rig_call(node);
    size_t i;

    tcp_rig_open_way(self);
    for (i = 0; i < 6; i++) {
        (void)tcp_rig_send(&self->conn, &mails[i], i, i < 3 ? 600000 : 4000000);
    }
    tcp_rig_until(self, node->kept_count == 6 && node->kept[2]->got == 600000);
    (void)tcp_rig_fetch(node, node->kept[3], &in[0], room, 4000000);
    node->transport->ops->drop(node->transport, node->kept[1]);
    (void)tcp_rig_send(&self->conn, &mails[6], 6, 700000);
    node->transport->ops->close(node->transport);
    node->transport = NULL;
    assert_true(in[0].came == 1 && !in[0].ok);
    (void)close(stranger);
}

/* What was pushed and not asked for outlives its sender, but not the transport. */
static void
test_close__with_data_of_who_is_gone(void **state)
{
    tcp_rig *self = *state;
    tcp_node *node = tcp_rig_there(self);

    tcp_rig_open_way(self);
    (void)tcp_rig_send(&self->conn, &mails[0], 0, 600000);
    (void)tcp_rig_send(&self->conn, &mails[1], 1, 600000);
    (void)tcp_rig_send(&self->conn, &mails[2], 2, 2000000);
    tcp_rig_until(self, node->kept_count == 3 && node->kept[1]->got == 600000);
    tcp_rig_disconnect(&self->nodes[0], &self->conn);
    tcp_rig_until(self, node->kept[0]->source == NULL);
    node->transport->ops->drop(node->transport, node->kept[0]);
    node->transport->ops->close(node->transport);
    node->transport = NULL;
}

/* ------------------------------------------------------------------------------ from inside */

static void
hang_up(tcp_node *node)
{
    tcp_rig *self = tutti_container_of(node, tcp_rig, nodes[0]);

    tcp_rig_disconnect(node, &self->conn);
}

static void
hang_up_on_packet(tcp_node *node, uint64_t number, size_t size, tutti_transport_rndv *rndv)
{
    tcp_rig *self = tutti_container_of(node, tcp_rig, nodes[1]);

    (void)number;
    (void)size;
    if (rndv != NULL) {
        node->transport->ops->drop(node->transport, rndv);
    }
    tcp_rig_disconnect(&self->nodes[0], &self->conn); /* what sends it */
    tcp_rig_disconnect(node, node->arg);
}

static void
test_disconnect__inside_of_a_packet(void **state)
{
    tcp_rig *self = *state;
    tcp_way back = {0};
    size_t i;

    tcp_rig_connect(tcp_rig_there(self),
                    self->nodes[0].transport->ops->address(self->nodes[0].transport), &back);
    tcp_rig_there(self)->on_packet = hang_up_on_packet;
    tcp_rig_there(self)->arg = &back;
    for (i = 0; i < 5; i++) {
        (void)tcp_rig_send(&self->conn, &mails[i], i, i == 3 ? 3000000 : 700000 * i);
        (void)tcp_rig_send(&back, &mails[5 + i], i, 10);
    }
    tcp_rig_until(self, self->conn.link == NULL);
    tcp_rig_until(self, tutti_list_empty(&tutti_tcp_from(tcp_rig_there(self)->transport)->sources));
    for (i = 0; i < 10; i++) {
        assert_int_equal(mails[i].came, 1);
    }
}

static void
hang_up_on_done(tcp_mail *mail)
{
    hang_up(mail->arg);
}

static void
test_disconnect__inside_of_a_ticket(void **state)
{
    tcp_rig *self = *state;
    size_t i;

    tcp_rig_there(self)->on_packet = drop_at_once;
    for (i = 0; i < 8; i++) { /* the first is dropped by the peer, which is told in take_word */
        mails[i].on_done = i == 0 ? hang_up_on_done : NULL;
        mails[i].arg = &self->nodes[0];
        (void)tcp_rig_send(&self->conn, &mails[i], i, 2000000);
    }
    tcp_rig_until(self, self->conn.link == NULL);
    for (i = 0; i < 8; i++) {
        assert_int_equal(mails[i].came, 1);
    }
}

static void
test_disconnect__inside_of_a_ticket_of_written_data(void **state)
{
    tcp_rig *self = *state;
    tcp_mail in[3] = {0};
    size_t i;

    for (i = 0; i < 3; i++) { /* before there is a connection: none is done at once */
        mails[i].on_done = i == 1 ? hang_up_on_done : NULL;
        mails[i].arg = &self->nodes[0];
        assert_int_equal(tcp_rig_send(&self->conn, &mails[i], i, i == 1 ? 3000000 : 5),
                         TUTTI_TRANSPORT_LATER);
    }
    tcp_rig_until(self, tcp_rig_there(self)->kept_count == 1);
    (void)tcp_rig_fetch(tcp_rig_there(self), tcp_rig_there(self)->kept[0], &in[0], room, 3000000);
    (void)tcp_rig_send(&self->conn, &mails[3], 3, 2000000);
    tcp_rig_until(self, self->conn.link == NULL && in[0].came == 1);
    assert_true(in[0].ok && mails[1].ok && mails[3].came == 1 && !mails[3].ok);
}

static void
test_disconnect__inside_of_bad_news(void **state)
{
    tcp_rig *self = *state;
    size_t i;

    self->nodes[0].on_broken = hang_up;
    for (i = 0; i < 4; i++) {
        (void)tcp_rig_send(&self->conn, &mails[i], i, i * 1000000);
    }
    tcp_rig_there(self)->transport->ops->close(tcp_rig_there(self)->transport);
    tcp_rig_there(self)->transport = NULL;
    tcp_rig_until(self, self->conn.broken == 1);
    assert_null(self->conn.link);
    for (i = 0; i < 4; i++) {
        assert_true(mails[i].came == 1 && !mails[i].ok);
    }
}

/* ... and is sent a packet, from inside of the ticket of one before it. */
static void
send_more(tcp_mail *mail)
{
    tcp_rig *self = mail->arg;

    if (mail + 1 < &mails[500]) {
        mail[1].on_done = send_more;
        mail[1].arg = self;
        if (tcp_rig_send(&self->conn, mail + 1, mail->number + 1, 8000) == TUTTI_TRANSPORT_DONE) {
            send_more(mail + 1);
        }
    }
}

static void
test_send__inside_of_a_ticket(void **state)
{
    tcp_rig *self = *state;
    size_t i;

    mails[0].on_done = send_more;
    mails[0].arg = self;
    assert_int_equal(tcp_rig_send(&self->conn, &mails[0], 0, 8000), TUTTI_TRANSPORT_LATER);
    tcp_rig_until(self, tcp_rig_there(self)->packets == 500);
    assert_int_equal(tcp_rig_there(self)->number, 499);
    for (i = 0; i < 500; i++) {
        assert_true(mails[i].came == 1 && mails[i].ok);
    }
}

/* ------------------------------------------------------------------------------ a dead process */

/* Of a process of its own: opens a transport, and a way to whoever it reads the address of. */
static void
call_back(int from, tcp_node *node, tcp_way *conn)
{
    unsigned char bytes[TCP_ADDRESS_MAX];
    const ssize_t size = read(from, bytes, sizeof(bytes));

    tcp_rig_open(node);
    tcp_rig_connect(node, (tutti_bytes){bytes, (size_t)size}, conn);
}

static void
live(int from, int to)
{
    tcp_node node = {0};
    tcp_way conn = {0};
    tutti_bytes own;

    call_back(from, &node, &conn);
    own = node.transport->ops->address(node.transport);
    (void)tcp_rig_send(&conn, &mails[0], 0, 4000000);
    if (write(to, own.data, own.size) != (ssize_t)own.size) {
        _exit(1);
    }
    for (;;) {
        (void)node.transport->ops->progress(node.transport);
    }
}

/* Sends what is taken at once when it is told to, and says how much that was. */
static void
say_all_and_leave(int from, int to)
{
    tcp_node node = {0};
    tcp_way conn = {0};
    uint64_t sent;
    char word;

    call_back(from, &node, &conn);
    while (conn.link->state != TCP_OPEN) {
        (void)node.transport->ops->progress(node.transport);
    }
    assert_int_equal(read(from, &word, 1), 1);
    sent = fill_up(&conn);
    assert_int_equal(write(to, &sent, sizeof(sent)), sizeof(sent));
    tcp_rig_disconnect(&node, &conn);
    node.transport->ops->close(node.transport);
    _exit(0);
}

static pid_t
start_peer(void (*run)(int from, int to), int ends[2])
{
    int out[2], back[2];
    pid_t child;

    assert_true(pipe(out) == 0 && pipe(back) == 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(out[1]);
        (void)close(back[0]);
        run(out[0], back[1]);
    }
    (void)close(out[0]);
    (void)close(back[1]);
    ends[0] = back[0];
    ends[1] = out[1];
    return child;
}

/* The child forks before there is a transport. */
static tcp_rig *
begin_with_peer(void **state, void (*run)(int from, int to), pid_t *ret_peer, int ends[2])
{
    tcp_rig *self;
    tutti_bytes own;

    memset(mails, 0, sizeof(mails));
    *ret_peer = start_peer(run, ends);
    (void)tcp_rig_begin(state);
    self = *state;
    own = self->nodes[0].transport->ops->address(self->nodes[0].transport);
    assert_int_equal(write(ends[1], own.data, own.size), own.size);
    return self;
}

static void
end_peer(pid_t peer, int ends[2])
{
    int status;

    assert_int_equal(waitpid(peer, &status, 0), peer);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void
test_death__of_a_process_is_heard_of(void **state)
{
    pid_t peer;
    int ends[2];
    tcp_rig *self = begin_with_peer(state, live, &peer, ends);
    tcp_node *node = &self->nodes[0];
    unsigned char bytes[TCP_ADDRESS_MAX];
    const ssize_t size = read(ends[0], bytes, sizeof(bytes));

    assert_true(size > 0);
    tcp_rig_connect(node, (tutti_bytes){bytes, (size_t)size}, &self->conn);
    (void)tcp_rig_send(&self->conn, &mails[0], 0, 4000000);
    tcp_rig_until(self, self->conn.link->state == TCP_OPEN && node->kept_count == 1);
    assert_int_equal(kill(peer, SIGKILL), 0);
    end_peer(peer, ends);
    tcp_rig_until(self, self->conn.broken == 1 && node->kept[0]->source == NULL);
    assert_int_equal(tcp_rig_fetch(node, node->kept[0], &mails[1], room, 4000000),
                     TUTTI_TRANSPORT_FAILED);
}

static void
test_close__keeps_back_nothing_that_was_sent(void **state)
{
    pid_t peer;
    int ends[2];
    tcp_rig *self = begin_with_peer(state, say_all_and_leave, &peer, ends);
    tcp_node *node = &self->nodes[0];
    transport_tcp *transport = tutti_tcp_from(node->transport);
    uint64_t sent = 0;

    node->on_packet = drop_at_once;
    tcp_rig_until(self, !tutti_list_empty(&transport->sources));
    narrow(node);
    assert_int_equal(write(ends[1], "!", 1), 1);
    assert_int_equal(read(ends[0], &sent, sizeof(sent)), sizeof(sent));
    tcp_rig_until(self, tutti_list_empty(&transport->sources));
    end_peer(peer, ends);
    assert_true(sent > 0);
    assert_in_range(node->packets, 1 + sent, 1 + sent + 1);
}

#define sentence(name) cmocka_unit_test_setup_teardown(name, begin, tcp_rig_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_death__of_a_process_is_heard_of, tcp_rig_end),
        cmocka_unit_test_teardown(test_close__keeps_back_nothing_that_was_sent, tcp_rig_end),
        sentence(test_disconnect__gives_tickets_back_and_leaves_what_has_come),
        sentence(test_disconnect__keeps_back_nothing_that_was_sent),
        sentence(test_disconnect__before_there_is_a_connection),
        sentence(test_close__of_the_receiver_breaks_the_way),
        sentence(test_close__with_everything_under_way),
        sentence(test_close__with_data_of_who_is_gone),
        sentence(test_disconnect__inside_of_a_packet),
        sentence(test_disconnect__inside_of_a_ticket),
        sentence(test_disconnect__inside_of_a_ticket_of_written_data),
        sentence(test_disconnect__inside_of_bad_news),
        sentence(test_send__inside_of_a_ticket),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
