/*
 * Goal: a ring is had by members of this epoch alone: with a fresh proof, and as long as they are
 * members. Who is ahead of us waits; who is refused has the inner transport, which refuses it, too.
 * Method: two transports of one thread, sealed; a relay between them that hears and repeats hellos.
 */
#include "support/testing.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "coll/shm/shm_private.h"
#include "coll/transport_auth/transport_auth.h"
#include "support/hostile_bell.h"
#include "support/transport_fake.h"

typedef struct side {
    tutti_transport *seal;
    tutti_transport *transport;
    size_t heard;
    bool broken;
    tutti_transport_conn **cuts; /* NULL = nothing; what it disconnects when it hears something */
} side;

typedef struct pair {
    fake_network *network;
    side sides[2]; /* 0 connects to 1 */
    tutti_transport_conn *conn;
} pair;

static void
on_packet(void *arg, const void *header, size_t header_size, const void *data, size_t size,
          tutti_transport_rndv *rndv)
{
    side *self = arg;

    (void)header;
    (void)header_size;
    (void)data;
    (void)size;
    (void)rndv;
    self->heard++;
    if (self->cuts != NULL && *self->cuts != NULL) {
        self->transport->ops->disconnect(*self->cuts);
        *self->cuts = NULL;
    }
}

static void
on_broken(void *arg, void *owner, const char *why)
{
    side *self = arg;

    (void)owner;
    (void)why;
    self->broken = true;
}

static const tutti_transport_events events = {on_packet, on_broken};

static void
rekey(pair *self, int which, uint64_t epoch)
{
    tutti_transport_key key = {.job_id = 7, .epoch = epoch};
    tutti_transport *transport = self->sides[which].transport;

    memset(key.bytes, (int)epoch, sizeof(key.bytes));
    transport->ops->rekey(transport, &key);
}

static void
open_side(pair *self, size_t i)
{
    tutti_transport_shm_options options = {.host_id = "this host", .memory = -1, .inside = true};
    side *it = &self->sides[i];
    tutti_error err;

    assert_ok(tutti_transport_auth_open(fake_transport_new(self->network), 100 + i, &options.inner,
                                        &err));
    it->seal = options.inner;
    assert_ok(tutti_transport_shm_open(&options, &it->transport, &err));
    it->transport->ops->listen(it->transport, &events, it);
    rekey(self, (int)i, 1);
}

static int
begin(void **state)
{
    pair *self = calloc(1, sizeof(*self));

    self->network = fake_network_new();
    open_side(self, 0);
    open_side(self, 1);
    *state = self;
    return 0;
}

static int
end(void **state)
{
    pair *self = *state;

    if (self->conn != NULL) {
        self->sides[0].transport->ops->disconnect(self->conn);
    }
    self->sides[0].transport->ops->close(self->sides[0].transport);
    self->sides[1].transport->ops->close(self->sides[1].transport);
    fake_network_free(self->network);
    free(self);
    return 0;
}

static void
turn(pair *self)
{
    size_t i;

    for (i = 0; i < 2; i++) {
        tutti_transport *transport = self->sides[i].transport;

        while (transport->ops->progress(transport) > 0) {
        }
        if (transport->ops->arm(transport, false)) {
            transport->ops->disarm(transport);
        }
    }
}

static void
turns(pair *self, int count)
{
    while (count-- > 0) {
        turn(self);
    }
}

static void
connect_to(pair *self, tutti_bytes address)
{
    tutti_error err;

    assert_ok(self->sides[0].transport->ops->connect(self->sides[0].transport, address, self,
                                                     &self->conn, &err));
}

static tutti_bytes
address_of(const pair *self, size_t i)
{
    return self->sides[i].transport->ops->address(self->sides[i].transport);
}

static bool
is_same_host(const pair *self)
{
    return self->sides[0].transport->ops->same_host(self->conn);
}

static void
ignore(tutti_transport_ticket *ticket, bool ok)
{
    (void)ticket;
    (void)ok;
}

static void
send_one(pair *self)
{
    static tutti_transport_ticket ticket = {.on_done = ignore};

    assert_int_not_equal(
        self->sides[0].transport->ops->send(self->conn, "header", 6, "data", 4, &ticket),
        TUTTI_TRANSPORT_FAILED);
}

static tutti_transport_auth_stats
stats_of(const pair *self)
{
    tutti_transport_auth_stats stats;

    tutti_transport_auth_stat(self->sides[1].seal, &stats);
    return stats;
}

static void
test_meeting__of_members_gives_a_ring(void **state)
{
    pair *self = *state;

    connect_to(self, address_of(self, 1));
    send_one(self); /* waits for the meeting */
    turns(self, 10);
    assert_true(is_same_host(self));
    assert_int_equal(self->sides[1].heard, 1);
}

/* Is there reason to look? */
static bool
is_woken(const pair *self, size_t i)
{
    tutti_transport *transport = self->sides[i].transport;
    struct pollfd one = {.fd = transport->ops->descriptor(transport), .events = POLLIN};

    return poll(&one, 1, 0) == 1;
}

/* One to a sleeper: did it wake it? It is found in either case. */
static bool
wakes(pair *self, bool idle, bool patient)
{
    static tutti_transport_ticket ticket = {.on_done = ignore};
    tutti_transport *sleeper = self->sides[1].transport;
    const unsigned heard = (unsigned)self->sides[1].heard;
    bool woken;

    while (!sleeper->ops->arm(sleeper, idle)) {
        (void)sleeper->ops->progress(sleeper);
    }
    ticket.patient = patient;
    assert_int_equal(
        self->sides[0].transport->ops->send(self->conn, "header", 6, "data", 4, &ticket),
        TUTTI_TRANSPORT_DONE);
    woken = is_woken(self, 1);
    turns(self, 2);
    assert_int_equal(self->sides[1].heard, heard + 1);
    return woken;
}

static void
test_doorbell__of_an_idle_one_is_not_rung_by_the_patient(void **state)
{
    pair *self = *state;

    connect_to(self, address_of(self, 1));
    turns(self, 10);
    assert_true(is_same_host(self));
    assert_true(wakes(self, false, false));
    assert_true(wakes(self, false, true));
    assert_true(wakes(self, true, false));
    assert_false(wakes(self, true, true));
}

/* Each member has the doorbells of the others. */
static void
test_doorbell__that_somebody_has_spoilt_holds_up_nobody(void **state)
{
    pair *self = *state;

    connect_to(self, address_of(self, 1));
    turns(self, 10);
    assert_true(is_same_host(self));
    spoil_bell(tutti_transport_shm_from(self->sides[0].transport)->doorbell);
    spoil_bell(tutti_transport_shm_from(self->sides[1].transport)->doorbell);
    (void)alarm(60);
    assert_true(wakes(self, false, false));
    assert_true(wakes(self, false, false));
    (void)alarm(0);
}

/* It does not hear us any more, and that is seen first: its packet is one of its last words. */
static void
test_last_words__may_have_the_connection_to_their_sender_disconnected(void **state)
{
    static tutti_transport_ticket ticket = {.on_done = ignore};
    pair *self = *state;
    tutti_transport *dying = self->sides[1].transport;
    tutti_transport *left = self->sides[0].transport;
    tutti_transport_conn *back = NULL;
    tutti_error err;

    connect_to(self, address_of(self, 1));
    assert_ok(dying->ops->connect(dying, address_of(self, 0), self, &back, &err));
    turns(self, 20);
    assert_true(is_same_host(self) && dying->ops->same_host(back));
    self->sides[0].cuts = &self->conn;
    assert_int_equal(dying->ops->send(back, "header", 6, "data", 4, &ticket), TUTTI_TRANSPORT_DONE);
    dying->ops->revoke(dying, 0, 100);
    assert_false(left->ops->arm(left, false));
    assert_int_equal(self->sides[0].heard, 1);
    assert_null(self->conn);
    assert_false(self->sides[0].broken);
    dying->ops->disconnect(back);
}

/* Idle or not: who has to make room hears of it. */
static void
test_doorbell__is_rung_when_there_is_no_room(void **state)
{
    static tutti_transport_ticket ticket = {.on_done = ignore, .patient = true};
    static const char data[4096];
    pair *self = *state;
    tutti_transport *sleeper;

    connect_to(self, address_of(self, 1));
    turns(self, 10);
    sleeper = self->sides[1].transport;
    while (!sleeper->ops->arm(sleeper, true)) {
        (void)sleeper->ops->progress(sleeper);
    }
    while (self->sides[0].transport->ops->send(self->conn, "header", 6, data, sizeof(data),
                                               &ticket) == TUTTI_TRANSPORT_DONE) {
        assert_false(is_woken(self, 1));
    }
    assert_true(is_woken(self, 1));
    turns(self, 10);
}

static void
test_meeting__with_who_has_not_heard_of_our_epoch_waits(void **state)
{
    pair *self = *state;

    rekey(self, 0, 2);
    connect_to(self, address_of(self, 1));
    send_one(self);
    turns(self, 50);
    assert_false(is_same_host(self));
    assert_int_equal(self->sides[1].heard, 0);
    rekey(self, 1, 2);
    turns(self, 10);
    assert_true(is_same_host(self));
    assert_int_equal(self->sides[1].heard, 1);
}

static void
test_meeting__ends_with_who_goes_while_it_waits(void **state)
{
    pair *self = *state;

    rekey(self, 0, 2);
    connect_to(self, address_of(self, 1));
    turns(self, 10);
    self->sides[0].transport->ops->disconnect(self->conn);
    self->conn = NULL;
    turns(self, 10);
    rekey(self, 1, 2); /* its descriptors are closed: valgrind and asan know */
    turns(self, 10);
}

static void
test_meeting__with_a_key_that_is_over_is_refused(void **state)
{
    pair *self = *state;

    tutti_transport_auth_set_grace(self->sides[1].seal, 0);
    rekey(self, 1, 2);
    connect_to(self, address_of(self, 1));
    send_one(self);
    turns(self, 20);
    assert_false(is_same_host(self));
    assert_int_equal(self->sides[1].heard, 0);
    assert_int_equal(stats_of(self).over, 2); /* the hello, and what went by the inner transport */
}

static void
test_meeting__is_over_for_who_is_expelled(void **state)
{
    pair *self = *state;
    tutti_transport *transport = self->sides[1].transport;

    connect_to(self, address_of(self, 1));
    turns(self, 10);
    assert_true(is_same_host(self));
    rekey(self, 0, 2);
    rekey(self, 1, 2);
    turns(self, 10);
    assert_true(is_same_host(self)); /* members stay */
    transport->ops->revoke(transport, 3, 555);
    turns(self, 10);
    assert_true(is_same_host(self)); /* somebody else */
    send_one(self);
    transport->ops->revoke(transport, 0, 100);
    turns(self, 10);
    assert_int_equal(self->sides[1].heard, 1); /* its last words */
    assert_true(self->sides[0].broken);
    assert_false(is_same_host(self));
}

/* ------------------------------------------------------------------------------ a relay */

#define RELAY_NAME "tutti-sh-test-relay-0001"

typedef struct words {
    unsigned char bytes[512];
    long size;
    int fds[TUTTI_LOCAL_FDS_MAX];
    size_t fd_count;
} words;

static words
hear(int socket)
{
    struct pollfd event = {.fd = socket, .events = POLLIN};
    words it = {.size = -1};

    assert_int_equal(poll(&event, 1, 60000), 1);
    it.size = tutti_local_receive(socket, it.bytes, sizeof(it.bytes), it.fds, &it.fd_count);
    return it;
}

static void
say(int socket, const words *it)
{
    assert_true(tutti_local_send(socket, it->bytes, (size_t)it->size, it->fds, it->fd_count));
}

/* The other's address, with our socket in it. */
static tutti_bytes
false_address(const pair *self, unsigned char *copy)
{
    const tutti_bytes true_one = address_of(self, 1);
    shm_address parts;

    memcpy(copy, true_one.data, true_one.size);
    assert_true(tutti_shm_address_read((tutti_bytes){copy, true_one.size}, &parts));
    memcpy((unsigned char *)(uintptr_t)parts.name, RELAY_NAME, SHM_NAME_BYTES);
    return (tutti_bytes){copy, true_one.size};
}

static int
call_true_one(const pair *self)
{
    shm_address parts;

    assert_true(tutti_shm_address_read(address_of(self, 1), &parts));
    return tutti_local_connect((tutti_bytes){parts.name, SHM_NAME_BYTES});
}

static void
test_hello__that_was_heard_before_is_refused(void **state)
{
    unsigned char copy[1024];
    pair *self = *state;
    int listener = tutti_local_listen((tutti_bytes){RELAY_NAME, SHM_NAME_BYTES});
    int caller;
    int called;
    words challenge;
    words hello;
    words answer;

    assert_true(listener >= 0);
    connect_to(self, false_address(self, copy));
    caller = accept(listener, NULL, NULL);
    called = call_true_one(self);
    assert_true(caller >= 0 && called >= 0);
    turns(self, 5);
    challenge = hear(called);
    say(caller, &challenge);
    turns(self, 5);
    hello = hear(caller);
    assert_int_equal(hello.size, sizeof(shm_hello));
    say(called, &hello); /* the first time, it is what it says */
    turns(self, 5);
    answer = hear(called);
    assert_int_equal(answer.fd_count, 2);
    tutti_local_close_all(answer.fds, answer.fd_count);
    (void)close(called);

    called = call_true_one(self); /* again, word for word */
    turns(self, 5);
    assert_memory_not_equal(hear(called).bytes, challenge.bytes, (size_t)challenge.size);
    say(called, &hello);
    turns(self, 5);
    answer = hear(called);
    assert_int_equal(answer.fd_count, 0);
    assert_int_equal(stats_of(self).strange, 1);
    (void)close(called);
    (void)close(caller);
    (void)close(listener);
    tutti_local_close_all(hello.fds, hello.fd_count);
}

/* Callers that wait must not keep the engine from sleeping, nor be forgotten. */
static void
test_called__without_descriptors_sleeps_and_answers_when_there_are_some(void **state)
{
    pair *self = *state;
    tutti_transport *transport = self->sides[1].transport;
    const int called = call_true_one(self);
    const int first_free = dup(0);
    struct rlimit was, few;
    int turns_left = 3;

    assert_true(called >= 0 && first_free >= 0);
    (void)close(first_free);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)first_free, .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (!transport->ops->arm(transport, true) && turns_left > 0) {
        turns_left--;
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_not_equal(turns_left, 0);
    assert_false(is_woken(self, 1));
    tutti_transport_shm_from(transport)->knock_again_ns = 1; /* it is time */
    turns(self, 2);
    assert_int_equal(hear(called).size, 3 * sizeof(uint64_t)); /* the challenge */
    (void)close(called);
}

#define MEET_TEST(test) cmocka_unit_test_setup_teardown(test, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        MEET_TEST(test_meeting__of_members_gives_a_ring),
        MEET_TEST(test_called__without_descriptors_sleeps_and_answers_when_there_are_some),
        MEET_TEST(test_doorbell__of_an_idle_one_is_not_rung_by_the_patient),
        MEET_TEST(test_doorbell__is_rung_when_there_is_no_room),
        MEET_TEST(test_doorbell__that_somebody_has_spoilt_holds_up_nobody),
        MEET_TEST(test_last_words__may_have_the_connection_to_their_sender_disconnected),
        MEET_TEST(test_meeting__with_who_has_not_heard_of_our_epoch_waits),
        MEET_TEST(test_meeting__ends_with_who_goes_while_it_waits),
        MEET_TEST(test_meeting__with_a_key_that_is_over_is_refused),
        MEET_TEST(test_meeting__is_over_for_who_is_expelled),
        MEET_TEST(test_hello__that_was_heard_before_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
