/*
 * Goal: where there is no memory for it, a transport over TCP says so or hangs up: no ticket is
 * lost, no connection is left half made, and with memory again everything works. Method: two
 * transports talk; the n-th allocation fails, for every n.
 */
#include "tcp_rig.h"

#include "support/sweep.h"

#define SENDS 6
#define TURNS 400

static unsigned char room[SENDS][2 * TCP_RIG_MIB];

static void
test_open__without_memory_fails(void **state)
{
    const tutti_transport_tcp_options options = {.devices = "lo"};
    tutti_transport *transport = NULL;
    bool failed = true;
    size_t n;

    (void)state;
    tcp_rig_data(0);
    for (n = 0; failed; n++) {
        tutti_error err;
        tutti_code code;

        sweep_fail_at(n);
        code = tutti_transport_tcp_open(&options, &transport, &err);
        failed = sweep_stop();
        assert_int_equal(code == TUTTI_OK, !failed);
        assert_true(code == TUTTI_OK || code == TUTTI_RESOURCE_EXHAUSTED);
        if (code == TUTTI_OK) {
            transport->ops->close(transport);
        }
    }
    assert_true(n > 1);
}

/* What a test has out, on both sides. */
typedef struct talk {
    tcp_mail out[SENDS];
    tcp_mail in[SENDS];
    size_t sent;
    size_t pulled;
} talk;

static void
fetch_or_drop(tcp_node *node, uint64_t number, size_t size, tutti_transport_rndv *rndv)
{
    talk *self = node->arg;

    if (rndv == NULL) {
        return;
    }
    if (number % 3 == 2) {
        node->transport->ops->drop(node->transport, rndv);
    } else {
        const size_t at = self->pulled++;

        (void)tcp_rig_fetch(node, rndv, &self->in[at], room[at], size);
    }
}

static bool
is_over(const tcp_rig *self, const talk *it)
{
    size_t i;

    for (i = 0; i < it->sent; i++) {
        if (it->out[i].came == 0) {
            return self->conn.broken > 0;
        }
    }
    return self->nodes[1].packets == it->sent;
}

/* Some of each kind. False: it failed, and is disconnected; all tickets have come back there. */
static bool
converse(tcp_rig *self, talk *it)
{
    static const size_t sizes[SENDS] = {100, 500000, 1500000, 8192, 900000, 2000000};
    tutti_transport *there = self->nodes[1].transport, *here = self->nodes[0].transport;
    unsigned turns = 0;
    tutti_error err;

    if (here->ops->connect(here, there->ops->address(there), &self->conn, &self->conn.link, &err) !=
        TUTTI_OK) {
        self->conn.link = NULL;
        return false;
    }
    for (it->sent = 0; it->sent < SENDS; it->sent++) {
        (void)tcp_rig_send(&self->conn, &it->out[it->sent], it->sent, sizes[it->sent]);
    }
    while (!is_over(self, it) && turns++ < TURNS) {
        tcp_rig_turn(self);
    }
    return is_over(self, it) && self->conn.broken == 0;
}

static void
check_tickets(tcp_rig *self, const talk *it, bool well)
{
    size_t i;

    tcp_rig_disconnect(&self->nodes[0], &self->conn);
    tcp_rig_until(self, tutti_list_empty(&tutti_tcp_from(self->nodes[1].transport)->sources) &&
                            tutti_list_empty(&tutti_tcp_from(self->nodes[1].transport)->strangers));
    for (i = 0; i < it->sent; i++) {
        assert_int_equal(it->out[i].came, 1);
        assert_true(!well || it->out[i].ok);
    }
    for (i = 0; i < it->pulled; i++) {
        assert_int_equal(it->in[i].came, 1);
        assert_true(!well || it->in[i].ok);
    }
}

static bool
try_talk(size_t n, bool once)
{
    talk it = {0};
    tcp_rig *self;
    bool failed, well;
    void *state;

    (void)tcp_rig_begin(&state);
    self = state;
    self->nodes[1].on_packet = fetch_or_drop;
    self->nodes[1].arg = &it;
    (once ? sweep_fail_once : sweep_fail_at)(n);
    well = converse(self, &it);
    failed = sweep_stop();
    check_tickets(self, &it, well);
    assert_true(failed || well);
    (void)tcp_rig_end(&state);
    return failed;
}

static void
test_talk__without_memory_ends_with_all_tickets(void **state)
{
    size_t n;

    (void)state;
    for (n = 0; try_talk(n, false); n++) {
    }
    assert_true(n > SENDS);
}

static void
test_talk__without_memory_for_a_moment(void **state)
{
    size_t n;

    (void)state;
    for (n = 0; try_talk(n, true); n++) {
    }
    assert_true(n > SENDS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open__without_memory_fails),
        cmocka_unit_test(test_talk__without_memory_ends_with_all_tickets),
        cmocka_unit_test(test_talk__without_memory_for_a_moment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
