/*
 * Goal: packets that no member of this epoch has sealed, or that come a second time, reach nobody;
 * the others do, in any order, also while members learn of an epoch one after the other.
 * Method: a transport that keeps what is sent, so that a test can change it and hand it on; and a
 * stranger over real UCX.
 */
#include "support/testing.h"

#include <openssl/evp.h>

#include "base/os/clock.h"
#include "coll/transport_auth/transport_auth.h"
#include "coll/ucx/ucx.h"

#define KEPT_MAX 8192
#define DATA_MAX 16 /* bytes of data that are kept */

typedef struct packet {
    unsigned char header[TUTTI_TRANSPORT_HEADER_MAX];
    size_t header_size;
    unsigned char data[DATA_MAX];
    size_t size;
} packet;

/* The transport inside: keeps packets, and hands over what a test says. */
typedef struct post {
    tutti_transport base;
    const tutti_transport_events *events;
    void *arg;
    packet kept[KEPT_MAX];
    size_t count;
    size_t dropped;
    bool later; /* sends and fetches stay out until the test ends them */
    tutti_transport_ticket *out;
    unsigned char at_sender[DATA_MAX]; /* what a fetch gives */
} post;

struct tutti_transport_conn {
    post *transport;
};

static tutti_bytes
post_address(tutti_transport *transport)
{
    (void)transport;
    return (tutti_bytes){"inner address", 13};
}

static void
post_listen(tutti_transport *transport, const tutti_transport_events *events, void *arg)
{
    post *self = tutti_container_of(transport, post, base);

    self->events = events;
    self->arg = arg;
}

static tutti_code
post_connect(tutti_transport *transport, tutti_bytes address, void *owner,
             tutti_transport_conn **ret_link, tutti_error *err)
{
    (void)owner;
    (void)err;
    assert_int_equal(address.size, 13);
    assert_memory_equal(address.data, "inner address", 13);
    *ret_link = calloc(1, sizeof(**ret_link));
    assert_non_null(*ret_link);
    (*ret_link)->transport = tutti_container_of(transport, post, base);
    return TUTTI_OK;
}

static void
post_disconnect(tutti_transport_conn *link)
{
    free(link);
}

static tutti_transport_result
post_send(tutti_transport_conn *link, const void *header, size_t header_size, const void *data,
          size_t size, tutti_transport_ticket *ticket)
{
    post *self = link->transport;
    packet *kept = &self->kept[self->count++];

    if (data != NULL) {
        memcpy(kept->data, data, size);
    }
    assert_true(header_size <= sizeof(kept->header) && self->count <= KEPT_MAX);
    memcpy(kept->header, header, header_size);
    kept->header_size = header_size;
    kept->size = size;
    self->out = ticket;
    return self->later ? TUTTI_TRANSPORT_LATER : TUTTI_TRANSPORT_DONE;
}

static tutti_transport_result
post_fetch(tutti_transport *transport, tutti_transport_rndv *rndv, void *dest, size_t size,
           tutti_transport_ticket *ticket)
{
    post *self = tutti_container_of(transport, post, base);

    (void)rndv;
    assert_true(size <= DATA_MAX);
    memcpy(dest, self->at_sender, size);
    self->out = ticket;
    return self->later ? TUTTI_TRANSPORT_LATER : TUTTI_TRANSPORT_DONE;
}

static void
post_drop(tutti_transport *transport, tutti_transport_rndv *rndv)
{
    (void)rndv;
    tutti_container_of(transport, post, base)->dropped++;
}

static void
post_close(tutti_transport *transport)
{
    free(tutti_container_of(transport, post, base));
}

static const tutti_transport_ops post_ops = {.size = sizeof(post_ops),
                                             .address = post_address,
                                             .listen = post_listen,
                                             .connect = post_connect,
                                             .disconnect = post_disconnect,
                                             .send = post_send,
                                             .fetch = post_fetch,
                                             .drop = post_drop,
                                             .close = post_close};

/* One who sends, one who receives. */
typedef struct pair {
    post *inner[2];
    tutti_transport *transport[2];
    tutti_transport_conn *conn; /* from 0 to 1 */
    size_t heard;
    unsigned char last[TUTTI_TRANSPORT_HEADER_MAX];
    size_t last_size;
    tutti_transport_rndv *rndv; /* of the last one, until it is fetched */
    size_t ended;
} pair;

static void
on_packet(void *arg, const void *header, size_t header_size, const void *data, size_t size,
          tutti_transport_rndv *rndv)
{
    pair *self = arg;

    (void)data;
    (void)size;
    self->rndv = rndv;
    self->heard++;
    memcpy(self->last, header, header_size);
    self->last_size = header_size;
}

static void
on_broken(void *arg, void *owner, const char *why)
{
    (void)arg;
    (void)owner;
    (void)why;
}

static const tutti_transport_events events = {on_packet, on_broken};

static void
rekey(tutti_transport *transport, uint64_t epoch)
{
    tutti_transport_key key = {.job_id = 7, .epoch = epoch};

    memset(key.bytes, (int)epoch, sizeof(key.bytes));
    transport->ops->rekey(transport, &key);
}

static tutti_transport_auth_stats
stats_of(const tutti_transport *transport)
{
    tutti_transport_auth_stats stats;

    tutti_transport_auth_stat(transport, &stats);
    return stats;
}

static int
begin(void **state)
{
    pair *self = calloc(1, sizeof(*self));
    tutti_error err;
    size_t i;

    for (i = 0; i < 2; i++) {
        self->inner[i] = calloc(1, sizeof(post));
        self->inner[i]->base.ops = &post_ops;
        assert_ok(
            tutti_transport_auth_open(&self->inner[i]->base, 100 + i, &self->transport[i], &err));
        self->transport[i]->ops->listen(self->transport[i], &events, self);
        rekey(self->transport[i], 1);
    }
    assert_ok(self->transport[0]->ops->connect(self->transport[0],
                                               self->transport[1]->ops->address(self->transport[1]),
                                               self, &self->conn, &err));
    *state = self;
    return 0;
}

static int
end(void **state)
{
    pair *self = *state;
    size_t i;

    if (self->rndv != NULL) {
        self->transport[1]->ops->drop(self->transport[1], self->rndv);
    }
    self->transport[0]->ops->disconnect(self->conn);
    for (i = 0; i < 2; i++) {
        self->transport[i]->ops->close(self->transport[i]);
    }
    free(self);
    return 0;
}

static void
send_one(pair *self, const char *header, size_t size)
{
    static tutti_transport_ticket ticket;

    assert_int_equal(
        self->transport[0]->ops->send(self->conn, header, strlen(header), NULL, size, &ticket),
        TUTTI_TRANSPORT_DONE);
}

static void
hand_over(pair *self, const packet *what, tutti_transport_rndv *rndv)
{
    post *inner = self->inner[1];

    inner->events->on_packet(inner->arg, what->header, what->header_size,
                             rndv == NULL ? what->data : NULL, what->size, rndv);
}

static void
test_connect__needs_the_key_in_the_address(void **state)
{
    const pair *self = *state;
    const tutti_bytes bare = self->inner[1]->base.ops->address(&self->inner[1]->base);
    tutti_transport_conn *conn = NULL;
    tutti_error err;

    assert_fails(self->transport[0]->ops->connect(self->transport[0], bare, NULL, &conn, &err),
                 TUTTI_UNAVAILABLE);
    assert_string_equal(err.reason, "NO_JOB_SECRET");
    assert_text_has(err.text, "a data address of 13 bytes without a key");
    assert_null(conn);
}

static void
test_open__says_what_openssl_does_not_have(void **state)
{
    post *inner = calloc(1, sizeof(*inner));
    tutti_transport *transport = NULL;
    tutti_error err;

    (void)state;
    assert_non_null(inner);
    inner->base.ops = &post_ops;
    assert_int_equal(EVP_set_default_properties(NULL, "provider=none"), 1);
    assert_fails(tutti_transport_auth_open(&inner->base, 100, &transport, &err), TUTTI_INTERNAL);
    assert_int_equal(EVP_set_default_properties(NULL, ""), 1);
    assert_string_equal(err.reason, "CRYPTO_FAILED");
    assert_text_has(err.text, "SipHash");
}

static void
test_seal__of_a_member_is_taken_off(void **state)
{
    pair *self = *state;

    send_one(self, "header", 5);
    hand_over(self, &self->inner[0]->kept[0], NULL);
    assert_int_equal(self->heard, 1);
    assert_int_equal(self->last_size, 6);
    assert_memory_equal(self->last, "header", 6);
    assert_int_equal(stats_of(self->transport[1]).strange, 0);
}

static void
test_seal__covers_every_bit_of_the_header(void **state)
{
    pair *self = *state;
    packet changed;
    size_t bit;

    send_one(self, "header", 5);
    for (bit = 0; bit < 8 * self->inner[0]->kept[0].header_size; bit++) {
        changed = self->inner[0]->kept[0];
        changed.header[bit / 8] ^= (unsigned char)(1u << bit % 8);
        hand_over(self, &changed, NULL);
    }
    for (changed = self->inner[0]->kept[0]; changed.header_size > 0;) {
        changed.header_size--;
        hand_over(self, &changed, NULL);
    }
    changed = self->inner[0]->kept[0];
    changed.size++;
    hand_over(self, &changed, NULL);
    assert_int_equal(self->heard, 0);
    /* But a name of 64 bits: an epoch that we have not heard of. */
    assert_int_equal(stats_of(self->transport[1]).waiting, 64);
    assert_int_equal(stats_of(self->transport[1]).strange, 8 * 78 - 64 + 78 + 1);
    hand_over(self, &self->inner[0]->kept[0], NULL);
    assert_int_equal(self->heard, 1);
}

/* What the engine says, and no tensor. */
static const packet *
send_words(pair *self)
{
    static tutti_transport_ticket ticket = {.words = true};

    assert_int_equal(
        self->transport[0]->ops->send(self->conn, "header", 6, "signatures", 10, &ticket),
        TUTTI_TRANSPORT_DONE);
    return &self->inner[0]->kept[self->inner[0]->count - 1];
}

static void
test_seal__covers_every_bit_of_words(void **state)
{
    pair *self = *state;
    const packet *sent = send_words(self);
    packet changed;
    size_t bit;

    for (bit = 0; bit < 8 * sent->size; bit++) {
        changed = *sent;
        changed.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        hand_over(self, &changed, NULL);
    }
    assert_int_equal(self->heard, 0);
    assert_int_equal(stats_of(self->transport[1]).strange, 8 * sent->size);
    hand_over(self, sent, NULL);
    assert_int_equal(self->heard, 1);
}

static size_t fetched_well;
static size_t fetched_ill;

static void
note_fetch(tutti_transport_ticket *ticket, bool ok)
{
    assert_int_equal(ticket->forged, !ok);
    fetched_well += ok;
    fetched_ill += !ok;
}

static void
check_fetch(pair *self, bool later, bool change)
{
    tutti_transport_ticket ticket = {.on_done = note_fetch};
    const packet *sent = send_words(self);
    post *inner = self->inner[1];
    unsigned char room[DATA_MAX];
    tutti_transport_result result;
    int theirs;

    fetched_well = fetched_ill = 0;
    hand_over(self, sent, (tutti_transport_rndv *)(void *)&theirs);
    memcpy(inner->at_sender, sent->data, sent->size);
    inner->at_sender[sent->size - 1] ^= change ? 1 : 0;
    inner->later = later;
    result =
        self->transport[1]->ops->fetch(self->transport[1], self->rndv, room, sent->size, &ticket);
    self->rndv = NULL;
    if (later) {
        assert_int_equal(result, TUTTI_TRANSPORT_LATER);
        inner->out->on_done(inner->out, true);
    } else {
        note_fetch(&ticket, result == TUTTI_TRANSPORT_DONE);
    }
    assert_int_equal(fetched_well, change ? 0 : 1);
    assert_int_equal(fetched_ill, change ? 1 : 0);
}

static void
test_seal__covers_words_that_wait_at_their_sender(void **state)
{
    pair *self = *state;

    check_fetch(self, false, false);
    check_fetch(self, true, false);
    check_fetch(self, false, true);
    check_fetch(self, true, true);
    assert_int_equal(stats_of(self->transport[1]).strange, 2);
}

static void
test_seal__for_another_process_is_refused(void **state)
{
    pair *self = *state;
    post *back = self->inner[0];

    send_one(self, "header", 5);
    back->events->on_packet(back->arg, back->kept[0].header, back->kept[0].header_size, "", 5,
                            NULL);
    assert_int_equal(self->heard, 0);
    assert_int_equal(stats_of(self->transport[0]).strange, 1);
}

static void
test_seal__is_good_once(void **state)
{
    pair *self = *state;
    const size_t count = 6000;
    size_t i;

    for (i = 0; i < count; i++) {
        send_one(self, "header", 5);
    }
    for (i = 0; i < count; i += 2) { /* every other one comes late, within the window */
        hand_over(self, &self->inner[0]->kept[i], NULL);
        if (i >= 2000) {
            hand_over(self, &self->inner[0]->kept[i - 1999], NULL);
        }
    }
    assert_int_equal(self->heard, count / 2 + (count - 2000) / 2);
    i = self->heard;
    for (size_t again = 0; again < count - 1999; again++) {
        hand_over(self, &self->inner[0]->kept[again], NULL);
    }
    assert_int_equal(self->heard, i); /* seen, or too old to know */
}

static void
test_seal__that_is_none_leaves_data_at_its_sender(void **state)
{
    pair *self = *state;
    const packet stranger = {.header =
                                 "no seal at all, but long enough for one to be, and so it may "
                                 "well be taken for one",
                             .header_size = 80,
                             .size = 1 << 20};
    int rndv;

    hand_over(self, &stranger, (tutti_transport_rndv *)(void *)&rndv);
    assert_int_equal(self->heard, 0);
    assert_int_equal(self->inner[1]->dropped, 1);
}

static void
note_end(tutti_transport_ticket *ticket, bool ok)
{
    (void)ticket;
    assert_true(ok);
}

static void
test_seal__keeps_its_header_until_the_packet_has_left(void **state)
{
    pair *self = *state;
    tutti_transport_ticket tickets[2] = {{.on_done = note_end}, {.on_done = note_end}};
    tutti_transport_ticket *first;

    self->inner[0]->later = true;
    assert_int_equal(self->transport[0]->ops->send(self->conn, "a", 1, NULL, 0, &tickets[0]),
                     TUTTI_TRANSPORT_LATER);
    first = self->inner[0]->out;
    assert_int_equal(self->transport[0]->ops->send(self->conn, "b", 1, NULL, 0, &tickets[1]),
                     TUTTI_TRANSPORT_LATER);
    assert_ptr_not_equal(first, self->inner[0]->out);
    first->on_done(first, true);
    self->inner[0]->out->on_done(self->inner[0]->out, true);
}

static void
test_seal__needs_a_key_in_the_address(void **state)
{
    pair *self = *state;
    tutti_transport_conn *conn = NULL;
    tutti_error err;

    assert_fails(self->transport[0]->ops->connect(self->transport[0],
                                                  (tutti_bytes){"0123456789abcdef01234567", 24},
                                                  NULL, &conn, &err),
                 TUTTI_UNAVAILABLE);
    assert_null(conn);
}

/* ------------------------------------------------------------------------------ epochs */

static void
send_in(pair *self, size_t number, tutti_transport_rndv *rndv)
{
    assert_int_equal(self->inner[0]->count, number);
    send_one(self, "header", 5);
    hand_over(self, &self->inner[0]->kept[number], rndv);
}

static void
test_seal__of_the_epoch_before_is_heard_for_a_while(void **state)
{
    pair *self = *state;

    rekey(self->transport[1], 2); /* the sender has not heard of it */
    send_in(self, 0, NULL);
    assert_int_equal(self->heard, 1);
    rekey(self->transport[0], 2);
    send_in(self, 1, NULL);
    assert_int_equal(self->heard, 2);
    assert_int_equal(stats_of(self->transport[1]).strange + stats_of(self->transport[1]).over, 0);
}

static void
test_seal__of_an_epoch_that_is_over_is_refused(void **state)
{
    pair *self = *state;
    int rndv;

    tutti_transport_auth_set_grace(self->transport[1], 0);
    rekey(self->transport[1], 2);
    send_in(self, 0, (tutti_transport_rndv *)(void *)&rndv);
    assert_int_equal(self->heard, 0);
    assert_int_equal(self->inner[1]->dropped, 1);
    assert_int_equal(stats_of(self->transport[1]).over, 1);
    assert_int_equal(stats_of(self->transport[1]).strange, 0);
    rekey(self->transport[0], 2);
    send_in(self, 1, NULL);
    assert_int_equal(self->heard, 1);
}

static void
test_seal__of_who_was_expelled_is_refused_at_once(void **state)
{
    pair *self = *state;

    rekey(self->transport[1], 2);
    self->transport[1]->ops->revoke(self->transport[1], 5, 101); /* somebody else */
    send_in(self, 0, NULL);
    assert_int_equal(self->heard, 1);
    self->transport[1]->ops->revoke(self->transport[1], 0, 100);
    send_in(self, 1, NULL);
    assert_int_equal(self->heard, 1);
    assert_int_equal(stats_of(self->transport[1]).over, 1);
    rekey(self->transport[1], 3); /* told of an epoch after that, it would be a member again */
    rekey(self->transport[0], 3);
    send_in(self, 2, NULL);
    assert_int_equal(self->heard, 2);
}

static void
test_seal__of_an_epoch_to_come_waits_for_its_key(void **state)
{
    pair *self = *state;
    int rndv;

    rekey(self->transport[0], 2);
    send_in(self, 0, NULL);
    send_in(self, 1, (tutti_transport_rndv *)(void *)&rndv);
    assert_int_equal(self->heard, 0);
    assert_int_equal(stats_of(self->transport[1]).waiting, 2);
    rekey(self->transport[1], 2);
    assert_int_equal(self->heard, 2);
    assert_int_equal(stats_of(self->transport[1]).waiting, 0);
    hand_over(self, &self->inner[0]->kept[0], NULL); /* once is enough */
    assert_int_equal(self->heard, 2);
    assert_int_equal(stats_of(self->transport[1]).strange, 1);
}

static void
test_seal__that_waits_shows_that_its_sender_knows_our_address(void **state)
{
    pair *self = *state;
    packet changed;
    size_t byte;

    rekey(self->transport[0], 2);
    send_one(self, "header", 5);
    for (byte = 0; byte < 8;
         byte++) { /* number, count, pass and digest stand in front of the proof */
        changed = self->inner[0]->kept[0];
        changed.header[changed.header_size - TUTTI_TRANSPORT_PROOF_BYTES - 24 + byte] ^= 1;
        hand_over(self, &changed, NULL);
    }
    assert_int_equal(stats_of(self->transport[1]).waiting, 0);
    assert_int_equal(stats_of(self->transport[1]).strange, 8);
}

static void
test_seal__of_a_false_epoch_does_not_pass_when_the_true_one_comes(void **state)
{
    const tutti_transport_key other = {.job_id = 7, .epoch = 2, .bytes = "not the key of epoch 2"};
    pair *self = *state;

    self->transport[0]->ops->rekey(self->transport[0], &other);
    send_in(self, 0, NULL);
    rekey(self->transport[1], 2);
    assert_int_equal(self->heard, 0);
    assert_int_equal(stats_of(self->transport[1]).waiting, 1); /* for an epoch that never comes */
}

static void
test_seal__of_a_job_begun_anew_counts_epochs_from_one(void **state)
{
    const tutti_transport_key again = {.job_id = 8, .epoch = 1, .bytes = "of another job"};
    pair *self = *state;

    rekey(self->transport[0], 5);
    rekey(self->transport[1], 5);
    self->transport[0]->ops->rekey(self->transport[0], &again);
    self->transport[1]->ops->rekey(self->transport[1], &again);
    send_in(self, 0, NULL);
    assert_int_equal(self->heard, 1);
    rekey(self->transport[0], 4); /* late news of the first */
    send_in(self, 1, NULL);
    assert_int_equal(stats_of(self->transport[1]).waiting, 1);
}

static void
test_seal__needs_a_key(void **state)
{
    pair *self = *state;
    tutti_transport *fresh = NULL;
    tutti_transport_conn *conn = NULL;
    post *inner = calloc(1, sizeof(post));
    tutti_transport_ticket ticket = {0};
    tutti_error err;

    inner->base.ops = &post_ops;
    assert_ok(tutti_transport_auth_open(&inner->base, 5, &fresh, &err));
    assert_ok(fresh->ops->connect(fresh, self->transport[1]->ops->address(self->transport[1]), NULL,
                                  &conn, &err));
    assert_int_equal(fresh->ops->send(conn, "a", 1, NULL, 0, &ticket), TUTTI_TRANSPORT_FAILED);
    fresh->ops->disconnect(conn);
    fresh->ops->close(fresh);
}

static void
test_proof__is_for_one_epoch_one_receiver_and_its_words(void **state)
{
    static const tutti_bytes words = {"hello", 5};
    pair *self = *state;
    tutti_transport *a = self->transport[0];
    tutti_transport *b = self->transport[1];
    tutti_transport_proof proof;
    uint64_t who = 0;

    assert_true(a->ops->sign_packet(a, b->ops->address(b), words, &proof));
    assert_int_equal(b->ops->check(b, words, &proof, &who), TUTTI_TRANSPORT_MEMBER);
    assert_int_equal(who, 100);
    assert_int_equal(b->ops->check(b, (tutti_bytes){"hullo", 5}, &proof, &who),
                     TUTTI_TRANSPORT_REFUSED);
    assert_int_equal(a->ops->check(a, words, &proof, &who), TUTTI_TRANSPORT_REFUSED);
    proof.bytes[15] ^= 1; /* in another's name */
    assert_int_equal(b->ops->check(b, words, &proof, &who), TUTTI_TRANSPORT_REFUSED);
    proof.bytes[15] ^= 1;
    b->ops->revoke(b, 0, 100);
    assert_int_equal(b->ops->check(b, words, &proof, &who), TUTTI_TRANSPORT_OVER);
    rekey(a, 2);
    assert_true(a->ops->sign_packet(a, b->ops->address(b), words, &proof));
    assert_int_equal(b->ops->check(b, words, &proof, &who), TUTTI_TRANSPORT_AHEAD);
}

/* ------------------------------------------------------------------------------ over UCX */

static tutti_transport *
open_ucx(void)
{
    const tutti_transport_ucx_options options = {.transports = "tcp", .devices = "lo"};
    tutti_transport *transport = NULL;
    tutti_error err;

    assert_ok(tutti_transport_ucx_open(&options, &transport, &err));
    return transport;
}

static void
ignore(tutti_transport_ticket *ticket, bool ok)
{
    (void)ticket;
    (void)ok;
}

static void
test_seal__keeps_a_stranger_on_the_network_out(void **state)
{
    static const unsigned char data[TUTTI_TRANSPORT_EAGER_MAX];
    pair heard = {.heard = 0};
    tutti_transport *stranger = open_ucx();
    tutti_transport *member = NULL;
    tutti_transport_conn *conn = NULL;
    tutti_transport_ticket tickets[2] = {{.on_done = ignore}, {.on_done = ignore}};
    char header[72] = "what a packet looks like";
    const uint64_t until = tutti_clock_ns() + 20 * TUTTI_NS_PER_S;
    tutti_bytes address;
    tutti_error err;

    (void)state;
    assert_ok(tutti_transport_auth_open(open_ucx(), 1, &member, &err));
    member->ops->listen(member, &events, &heard);
    rekey(member, 1);
    stranger->ops->listen(stranger, &events, &heard);
    address = member->ops->address(member); /* where it is, but not the key */
    assert_ok(stranger->ops->connect(
        stranger,
        (tutti_bytes){(const unsigned char *)address.data + TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES,
                      address.size - TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES},
        NULL, &conn, &err));
    assert_int_not_equal(stranger->ops->send(conn, header, sizeof(header), data, 100, &tickets[0]),
                         TUTTI_TRANSPORT_FAILED);
    assert_int_not_equal(
        stranger->ops->send(conn, header, sizeof(header), data, sizeof(data), &tickets[1]),
        TUTTI_TRANSPORT_FAILED);
    while (stats_of(member).strange < 2) {
        assert_true(tutti_clock_ns() < until);
        (void)stranger->ops->progress(stranger);
        (void)member->ops->progress(member);
    }
    assert_int_equal(heard.heard, 0);
    stranger->ops->disconnect(conn);
    stranger->ops->close(stranger);
    member->ops->close(member);
}

/* A member, and one who speaks to it over UCX. */
typedef struct talk {
    pair heard;
    tutti_transport *member;
    tutti_transport *other;
    tutti_transport_conn *conn;
} talk;

static void
open_talk(talk *self, tutti_transport *other, size_t skip)
{
    tutti_bytes address;
    tutti_error err;

    self->other = other;
    assert_ok(tutti_transport_auth_open(open_ucx(), 1, &self->member, &err));
    self->member->ops->listen(self->member, &events, &self->heard);
    other->ops->listen(other, &events, &self->heard);
    rekey(self->member, 1);
    address = self->member->ops->address(self->member);
    assert_ok(other->ops->connect(
        other, (tutti_bytes){(const unsigned char *)address.data + skip, address.size - skip}, NULL,
        &self->conn, &err));
}

static void
close_talk(talk *self)
{
    self->other->ops->disconnect(self->conn);
    self->other->ops->close(self->other);
    self->member->ops->close(self->member);
}

/* Until the member has heard or refused so many. */
static void
run_talk(talk *self, size_t heard, uint64_t strange, uint64_t over)
{
    const uint64_t until = tutti_clock_ns() + 60 * TUTTI_NS_PER_S;

    while (self->heard.heard < heard || stats_of(self->member).strange < strange ||
           stats_of(self->member).over < over) {
        assert_true(tutti_clock_ns() < until);
        (void)self->other->ops->progress(self->other);
        (void)self->member->ops->progress(self->member);
    }
    assert_int_equal(self->heard.heard, heard);
    assert_int_equal(stats_of(self->member).strange, strange);
    assert_int_equal(stats_of(self->member).over, over);
}

static void
say(talk *self, tutti_transport_ticket *ticket, const void *header, size_t size)
{
    ticket->on_done = ignore;
    ticket->words = false;
    assert_int_not_equal(self->other->ops->send(self->conn, header, size, "data!", 5, ticket),
                         TUTTI_TRANSPORT_FAILED);
}

static void
test_expelled__is_heard_over_ucx_no_more(void **state)
{
    tutti_transport_ticket tickets[3];
    tutti_transport *other = NULL;
    talk self = {.heard = {.heard = 0}};
    tutti_error err;

    (void)state;
    assert_ok(tutti_transport_auth_open(open_ucx(), 2, &other, &err));
    rekey(other, 1);
    open_talk(&self, other, 0);
    say(&self, &tickets[0], "header", 6);
    run_talk(&self, 1, 0, 0);
    rekey(self.member, 2);
    say(&self, &tickets[1], "header", 6);
    run_talk(&self, 2, 0, 0); /* it may not have heard yet */
    self.member->ops->revoke(self.member, 1, 2);
    say(&self, &tickets[2], "header", 6);
    run_talk(&self, 2, 0, 1);
    close_talk(&self);
}

/* A sealed transport with another's number before our address: it signs for that, and sends to us.
 */
static packet
overhear(tutti_transport *ear, const talk *victim)
{
    const tutti_bytes theirs = victim->member->ops->address(victim->member);
    const tutti_bytes ours = ear->ops->address(ear);
    unsigned char address[4096];
    const uint64_t until = tutti_clock_ns() + 60 * TUTTI_NS_PER_S;
    tutti_transport_ticket ticket = {.on_done = ignore};
    tutti_transport_conn *conn = NULL;
    tutti_transport *member = NULL;
    pair caught = {.heard = 0};
    packet ret = {.size = 5};
    tutti_error err;

    ear->ops->listen(ear, &events, &caught);
    assert_ok(tutti_transport_auth_open(open_ucx(), 2, &member, &err));
    member->ops->listen(member, &events, &caught);
    rekey(member, 1);
    memcpy(address, theirs.data, TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES);
    memcpy(address + TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES, ours.data, ours.size);
    assert_ok(member->ops->connect(
        member, (tutti_bytes){address, TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES + ours.size}, NULL, &conn,
        &err));
    assert_int_not_equal(member->ops->send(conn, "header", 6, "data!", 5, &ticket),
                         TUTTI_TRANSPORT_FAILED);
    while (caught.heard == 0) {
        assert_true(tutti_clock_ns() < until);
        (void)member->ops->progress(member);
        (void)ear->ops->progress(ear);
    }
    memcpy(ret.header, caught.last, caught.last_size);
    ret.header_size = caught.last_size;
    member->ops->disconnect(conn);
    member->ops->close(member);
    return ret;
}

static void
test_packet__that_was_heard_before_is_refused_over_ucx(void **state)
{
    tutti_transport_ticket tickets[2];
    tutti_transport *ear = open_ucx();
    talk self = {.heard = {.heard = 0}};
    packet caught;

    (void)state;
    open_talk(&self, open_ucx(), TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES); /* knows no key at all */
    caught = overhear(ear, &self);
    say(&self, &tickets[0], caught.header, caught.header_size);
    run_talk(&self, 1, 0, 0); /* whoever brings it */
    say(&self, &tickets[1], caught.header, caught.header_size);
    run_talk(&self, 1, 1, 0);
    close_talk(&self);
    ear->ops->close(ear);
}

#define AUTH_TEST(test) cmocka_unit_test_setup_teardown(test, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        AUTH_TEST(test_connect__needs_the_key_in_the_address),
        cmocka_unit_test(test_open__says_what_openssl_does_not_have),
        AUTH_TEST(test_seal__of_a_member_is_taken_off),
        AUTH_TEST(test_seal__covers_every_bit_of_the_header),
        AUTH_TEST(test_seal__covers_every_bit_of_words),
        AUTH_TEST(test_seal__covers_words_that_wait_at_their_sender),
        AUTH_TEST(test_seal__for_another_process_is_refused),
        AUTH_TEST(test_seal__is_good_once),
        AUTH_TEST(test_seal__that_is_none_leaves_data_at_its_sender),
        AUTH_TEST(test_seal__keeps_its_header_until_the_packet_has_left),
        AUTH_TEST(test_seal__needs_a_key_in_the_address),
        AUTH_TEST(test_seal__of_the_epoch_before_is_heard_for_a_while),
        AUTH_TEST(test_seal__of_an_epoch_that_is_over_is_refused),
        AUTH_TEST(test_seal__of_who_was_expelled_is_refused_at_once),
        AUTH_TEST(test_seal__of_an_epoch_to_come_waits_for_its_key),
        AUTH_TEST(test_seal__that_waits_shows_that_its_sender_knows_our_address),
        AUTH_TEST(test_seal__of_a_false_epoch_does_not_pass_when_the_true_one_comes),
        AUTH_TEST(test_seal__of_a_job_begun_anew_counts_epochs_from_one),
        AUTH_TEST(test_seal__needs_a_key),
        AUTH_TEST(test_proof__is_for_one_epoch_one_receiver_and_its_words),
        cmocka_unit_test(test_seal__keeps_a_stranger_on_the_network_out),
        cmocka_unit_test(test_expelled__is_heard_over_ucx_no_more),
        cmocka_unit_test(test_packet__that_was_heard_before_is_refused_over_ucx),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
