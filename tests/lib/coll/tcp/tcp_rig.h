/*
 * Rig: two transports over TCP in one thread, a way from the first to the second, and sockets
 * without a transport that say whatever a test likes. What is sent is a number (the header) and a
 * piece of a pattern that the number tells.
 */
#ifndef TUTTI_TESTS_TCP_RIG_H
#define TUTTI_TESTS_TCP_RIG_H

#include "support/testing.h"

#include "base/os/clock.h"
#include "coll/tcp/tcp_private.h"

#define TCP_RIG_LATE_NS (60 * TUTTI_NS_PER_S) /* whatever takes so long never comes */
#define TCP_RIG_MIB ((size_t)1 << 20)
#define TCP_RIG_DATA_MAX (6 * TCP_RIG_MIB)

typedef struct tcp_node tcp_node;
struct tcp_node {
    tutti_transport *transport;
    /* NULL: the rndv is kept. `data` was looked at already. */
    void (*on_packet)(tcp_node *node, uint64_t number, size_t size, tutti_transport_rndv *rndv);
    void (*on_broken)(tcp_node *node);
    uint64_t packets; /* that came, rendezvous messages too */
    uint64_t bytes;   /* of data that came with them */
    uint64_t number;  /* of the last */
    tutti_transport_rndv *kept[64];
    uint64_t kept_numbers[64];
    size_t kept_count;
    void *arg; /* the test's */
};

typedef struct tcp_way {
    tutti_transport_conn *link;
    unsigned broken; /* times we were told */
    char why[128];
} tcp_way;

/* A send or a pull. */
typedef struct tcp_mail {
    tutti_transport_ticket ticket;
    uint64_t number; /* the header */
    unsigned came;   /* times it was over; 1 is right */
    bool ok;
    void (*on_done)(struct tcp_mail *mail); /* or NULL */
    void *arg;
} tcp_mail;

typedef struct tcp_rig {
    tcp_node nodes[2];
    tcp_way conn; /* from the first to the second */
} tcp_rig;

/* For cmocka: the state is a tcp_rig. */
int tcp_rig_begin(void **state);
int tcp_rig_begin_way(void **state); /* and the first has begun to connect to the second */
int tcp_rig_end(void **state);

tcp_node *tcp_rig_there(tcp_rig *rig); /* where the way leads */
void tcp_rig_open_way(tcp_rig *rig);   /* let it be made */

void tcp_rig_open(tcp_node *node);
void tcp_rig_connect(tcp_node *node, tutti_bytes address, tcp_way *conn);
void tcp_rig_disconnect(tcp_node *node, tcp_way *conn);
void tcp_rig_turn(tcp_rig *rig);

/* Let both work until it is so. */
#define tcp_rig_until(rig, condition)                                                              \
    do {                                                                                           \
        const uint64_t late_ = tutti_clock_ns() + TCP_RIG_LATE_NS;                                 \
        while (!(condition)) {                                                                     \
            tcp_rig_turn(rig);                                                                     \
            if (tutti_clock_ns() > late_) {                                                        \
                fail_msg("never: %s", #condition);                                                 \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* The data of a number. */
const unsigned char *tcp_rig_data(uint64_t number);
tutti_transport_result tcp_rig_send(tcp_way *conn, tcp_mail *mail, uint64_t number, size_t size);
tutti_transport_result tcp_rig_fetch(tcp_node *node, tutti_transport_rndv *rndv, tcp_mail *mail,
                                     void *dest, size_t size);

/* ------------------------------------------------------------------------------ bare sockets */

/* One that listens on loopback, and where. */
int tcp_rig_listen(uint16_t *ret_port);
/* One that is connected to the transport of a node, and has said nothing. */
int tcp_rig_call(const tcp_node *node);
/* The same, and it is welcome: `ret_credit` may be NULL. */
int tcp_rig_call_known(tcp_rig *rig, tcp_node *node, uint64_t *ret_credit);

/* An address of some ports of loopback, with the token of `node` or, when that is NULL, of nulls.
 */
size_t tcp_rig_address(const tcp_node *node, const uint16_t *ports, size_t count,
                       unsigned char ret_bytes[TCP_ADDRESS_MAX]);

/* The way of the first node, to a bare socket: what it is connected to. */
int tcp_rig_connect_bare(tcp_rig *rig, uint64_t credit);

/* False: the connection is over. The nodes go on meanwhile. */
bool tcp_rig_say(tcp_rig *rig, int fd, const void *bytes, size_t size);
bool tcp_rig_say_head(tcp_rig *rig, int fd, tcp_kind kind, size_t header_size, uint64_t id,
                      uint64_t size);
bool tcp_rig_hear(tcp_rig *rig, int fd, void *ret_bytes, size_t size);
bool tcp_rig_hear_head(tcp_rig *rig, int fd, tcp_head *ret_head);
/* What still comes is read away, until the other side hangs up. */
void tcp_rig_await_end(tcp_rig *rig, int fd);

#endif
