/* Private to coll/tcp: what the transport is made of. The engine's thread, all of it. */
#ifndef TUTTI_COLL_TCP_TCP_PRIVATE_H
#define TUTTI_COLL_TCP_TCP_PRIVATE_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "base/data/bytes.h"
#include "base/data/list.h"
#include "coll/tcp/frame.h"
#include "coll/tcp/tcp.h"

#define TCP_TARGETS_MAX 16 /* addresses of one process */
#define TCP_TARGET_BYTES 20
#define TCP_ADDRESS_MAX (8 + TCP_TOKEN_BYTES + 1 + TCP_TARGETS_MAX * TCP_TARGET_BYTES)

typedef struct transport_tcp transport_tcp;

/* A descriptor in the poller. What is about it may be closed, never freed, by another's handler. */
typedef struct tcp_watch tcp_watch;
struct tcp_watch {
    int fd; /* -1 = closed */
    uint32_t events;
    void (*on_ready)(tcp_watch *watch, uint32_t events);
};

/* One of the addresses by which a process can be reached. */
typedef struct tcp_target {
    struct sockaddr_storage address;
    uint8_t prefix; /* bits of its network */
    uint8_t rank;   /* the smaller, the sooner we try it */
} tcp_target;

typedef struct tcp_address {
    unsigned char token[TCP_TOKEN_BYTES];
    tcp_target targets[TCP_TARGETS_MAX];
    size_t count;
} tcp_address;

typedef struct tcp_listener {
    tcp_watch watch;
    transport_tcp *transport;
} tcp_listener;

struct transport_tcp {
    tutti_transport base;
    int poller;   /* of all sockets */
    int doorbell; /* of the poller, while we are armed: a thread that polls is not woken
                   */
    bool armed;
    int alarm; /* rings the doorbell some time after we became idle */
    bool alarm_set;
    uint64_t alarm_ns;    /* when it rings, if it is set */
    uint64_t lull_end_ns; /* LULL_NS behind the last op */
    bool stirred;         /* not idle all the time: the next idleness begins a new lull */
    tcp_listener listeners[TCP_TARGETS_MAX];
    size_t listener_count;
    char congestion[16]; /* "" = the system's */
    tcp_address own;     /* also: which networks are ours */
    unsigned char address[TCP_ADDRESS_MAX];
    size_t address_size;
    const tutti_transport_events *events;
    void *arg;
    tutti_list_node links;        /* not disconnected */
    tutti_list_node broken;       /* among them: to be told of */
    tutti_list_node leaving;      /* disconnected, and the peer has not got all that was sent */
    tutti_list_node gone_links;   /* to be freed before the next turn */
    tutti_list_node sources;      /* that said the token */
    tutti_list_node strangers;    /* that did not yet, the oldest first */
    size_t stranger_count;        /* ... of them */
    tutti_list_node gone_sources; /* to be freed before the next turn */
    tutti_list_node
        orphans;      /* rendezvous messages whose source is gone, and that nobody asked for yet */
    bool hurry;       /* there are strangers, or links that are being made */
    uint64_t look_ns; /* when to see whose time is over */
    uint64_t accept_again_ns; /* no descriptors are left: when to try again; 0 = they are */
    uint64_t credit;          /* bytes that sources may still be given */
};

/* ------------------------------------------------------------------------------ outgoing */

typedef enum tcp_link_state {
    TCP_CONNECTING,
    TCP_GREETING, /* said hello */
    TCP_OPEN,
    TCP_BROKEN,
} tcp_link_state;

/* A packet that is not all in the kernel, or data that is not all with the peer. */
typedef struct tcp_send {
    tutti_list_node link; /* in packets, offered or pulled of the link */
    tutti_transport_ticket *ticket;
    const void *header;
    const void *data;
    uint64_t size;
    uint64_t sent; /* of the data of a pulled one */
    uint64_t id;   /* of an offer */
    uint16_t header_size;
    tcp_kind kind; /* PACKET or PUSH; OFFER, and DATA when it is asked for */
    unsigned char head[TCP_HEAD_BYTES];
    struct iovec parts[3]; /* of the frame that is being written */
    unsigned part;         /* the first that is not written */
} tcp_send;

/* A connection out. In transport->links until disconnect; then in leaving or gone_links. Each send
 * is in one of three lists, or is `now`. */
struct tutti_transport_conn {
    tcp_watch watch;
    transport_tcp *transport;
    void *owner;
    tcp_link_state state;
    tcp_address to;
    size_t next;          /* target to try */
    uint64_t patience;    /* until when to wait for the one that is tried; leaving: for the peer */
    uint64_t shortage_ns; /* until when to wait for a descriptor; 0 = none was missing */
    char why[160];        /* it broke */
    tutti_list_node link; /* in links, leaving or gone_links */
    tutti_list_node broken;  /* in broken */
    tutti_list_node packets; /* to be written, offers among them */
    tutti_list_node offered; /* the peer has to say */
    tutti_list_node pulled;  /* to be written, a chunk of each in turn */
    tcp_send *now;           /* whose frame is being written; in none of the three */
    uint64_t last_id;        /* of offers */
    uint64_t credit;         /* bytes that may go unasked */
    size_t heard_size;
    unsigned char heard[64 * TCP_HEAD_BYTES];
};

/* ------------------------------------------------------------------------------ incoming */

typedef enum tcp_rndv_state {
    TCP_OFFERED, /* nobody has asked for it */
    TCP_PULLED,
    TCP_DROPPED, /* it comes all the same */
} tcp_rndv_state;

/* Data that waits at its sender, or that is coming, or that came unasked. */
struct tutti_transport_rndv {
    tutti_list_node link;      /* in offers or coming of its source, or in orphans */
    struct tcp_source *source; /* NULL = gone */
    uint64_t id;
    uint64_t size;
    unsigned char *dest;       /* NULL = nobody has asked for it */
    unsigned char *unexpected; /* what came before somebody did */
    uint64_t got;
    tcp_rndv_state state;
    bool pushed; /* it comes unasked */
    tutti_transport_ticket *ticket;
};

/* A connection in. In strangers, then sources, then gone_sources. Credit: pushed <= credit, and
 * owed is a part of pushed. `body` is one of offers or coming. */
typedef struct tcp_source {
    tcp_watch watch;
    transport_tcp *transport;
    tutti_list_node link; /* in sources, strangers or gone_sources */
    uint64_t patience;    /* of a stranger */
    bool known;
    tutti_list_node offers;     /* nobody has asked for them yet */
    tutti_list_node coming;     /* asked for, or dropped and coming all the same */
    uint64_t credit;            /* that the peer was given in all */
    uint64_t pushed;            /* ... of it used */
    uint64_t owed;              /* ... of that free again, and not said yet */
    tutti_transport_rndv *body; /* whose data is coming just now */
    uint64_t body_left;         /* of the chunk */
    tutti_buf out;              /* WELCOME, FETCH, DROP, CREDIT: not written yet */
    size_t fill;                /* of buffer: frames that are not whole yet */
    unsigned char buffer[2 * TCP_FRAME_MAX];
} tcp_source;

/* address.c */

/* TUTTI_FAILED_PRECONDITION as tutti_transport_tcp_open. Ports are 0. */
tutti_code tutti_tcp_find_own(const char *devices, tcp_address *ret_own, tutti_error *err);
size_t tutti_tcp_address_write(const tcp_address *address,
                               unsigned char ret_bytes[TCP_ADDRESS_MAX]);
bool tutti_tcp_address_read(tutti_bytes bytes, tcp_address *ret_address);
/* The likeliest first: of a network of ours, then routed ones, then what may mean ourselves. */
void tutti_tcp_address_sort(tcp_address *address, const tcp_address *own);
void tutti_tcp_set_port(struct sockaddr_storage *address, uint16_t port);
uint16_t tutti_tcp_port(const struct sockaddr_storage *address);
socklen_t tutti_tcp_address_size(const struct sockaddr_storage *address);
/* "10.0.0.1:4711", "[::1]:4711" */
void tutti_tcp_address_text(const struct sockaddr_storage *address, char *ret_text, size_t size);

/* socket.c */

/* Have on_ready called for these events; again: changes them. False: closed, or no memory. */
bool tutti_tcp_watch(transport_tcp *transport, tcp_watch *watch, uint32_t events);
/* ... no more, and close the descriptor. Harmless when it is closed. */
void tutti_tcp_unwatch(transport_tcp *transport, tcp_watch *watch);
/* No delay, congestion control, keepalives, and an end of patience with data that nobody
 * acknowledges. */
void tutti_tcp_tune(const transport_tcp *transport, int fd);
/* Find our addresses, choose the congestion control, listen. Codes as tutti_transport_tcp_open;
 * what was opened is closed with the transport. */
tutti_code tutti_tcp_listen(transport_tcp *transport, const tutti_transport_tcp_options *options,
                            tutti_error *err);
/* If descriptors had run out and the time is over, the listeners are in the poller again. */
void tutti_tcp_accept_again(transport_tcp *transport, uint64_t now_ns);

/* conn.c */

tutti_code tutti_tcp_connect(tutti_transport *transport, tutti_bytes address, void *owner,
                             tutti_transport_conn **ret_link, tutti_error *err);
void tutti_tcp_disconnect(tutti_transport_conn *link);
/* It is broken; on_broken tells the engine at the end of the turn. Once; `why` is copied. */
void tutti_tcp_link_break(tutti_transport_conn *link, const char *why);
/* If the time of the address that is tried is over, try the next one. */
void tutti_tcp_link_hurry(tutti_transport_conn *link, uint64_t now_ns);
/* Of one in `leaving`: if the peer has all, or the time is over, it ends. */
void tutti_tcp_link_leave(tutti_transport_conn *link, uint64_t now_ns);
void tutti_tcp_link_free(tutti_transport_conn *link);

/* send.c */

tutti_transport_result tutti_tcp_send(tutti_transport_conn *link, const void *header,
                                      size_t header_size, const void *data, size_t size,
                                      tutti_transport_ticket *ticket);
/* Write what can be written now. The link may be broken then. */
void tutti_tcp_flush(tutti_transport_conn *link);
/* Read FETCH, DROP and CREDIT of the peer, if there are any. The link may be broken then. */
void tutti_tcp_heard(tutti_transport_conn *link);
/* All tickets come back as failed, inside. Of a link that is disconnected. */
void tutti_tcp_fail_sends(tutti_transport_conn *link);

/* source.c */

/* A connection was accepted; takes the descriptor, also on failure. */
void tutti_tcp_source_new(transport_tcp *transport, int fd, uint64_t now_ns);
/* Close it, fail what is being pulled. `why` for the log; NULL: nothing to log. */
void tutti_tcp_source_end(tcp_source *source, const char *why);
/* know: it said the token. say: send it a frame without data. False: the connection is shut down,
 * and ends in a next turn; not inside, since the caller may hold a rndv of it. */
bool tutti_tcp_source_know(tcp_source *source);
bool tutti_tcp_source_say(tcp_source *source, tcp_kind kind, uint64_t id, uint64_t size);
void tutti_tcp_source_answer(tcp_source *source); /* as much of what is to be said as can be */
void tutti_tcp_source_free(tcp_source *source);

/* rndv.c */

tutti_transport_rndv *tutti_tcp_rndv_new(tcp_source *source, const tcp_head *head); /* or NULL */
void tutti_tcp_rndv_free(tutti_transport_rndv *rndv);
void tutti_tcp_rndv_end(tutti_transport_rndv *rndv, bool ok);
/* Where its next bytes go; NULL = no memory. */
unsigned char *tutti_tcp_rndv_place(tutti_transport_rndv *rndv);
/* They are there. The rndv may be gone then. */
void tutti_tcp_rndv_count(tutti_transport_rndv *rndv, uint64_t size);
tutti_transport_result tutti_tcp_fetch(tutti_transport *transport, tutti_transport_rndv *rndv,
                                       void *dest, size_t size, tutti_transport_ticket *ticket);
void tutti_tcp_drop(tutti_transport *transport, tutti_transport_rndv *rndv);

/* recv.c */

/* There is something to read. */
void tutti_tcp_source_hear(tcp_source *source);

/* tcp.c */

transport_tcp *tutti_tcp_from(tutti_transport *transport);

#endif
