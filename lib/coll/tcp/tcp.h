/*
 * The transport over TCP of our own: sockets of the kernel, nothing between them and a tensor.
 *
 * We send to a peer by a connection that we make; the peer sends to us by one that it makes.
 * Small packets go at once. Large data is offered and stays with its sender until the receiver
 * asks for it; then it goes in chunks, from the tensor into the socket and from the socket into
 * the tensor, and other packets pass between the chunks. A dead peer is noticed by its
 * connection; a host that fell silent by keepalives and by data that nobody acknowledges.
 *
 * A process that connects says a number that stands in our address; others get no answer.
 */
#ifndef TUTTI_COLL_TCP_TCP_H
#define TUTTI_COLL_TCP_TCP_H

#include "coll/transport.h"

typedef struct tutti_transport_tcp_options {
    const char *devices; /* "eth0,eth1"; "" = all but loopback, or that when there is no other */
    uint16_t port;       /* 0 = any that is free */
    /*
     * Of the kernel's: "cubic", "bbr" ...; "" = what the system has, but cubic or reno instead of a
     * bbr, whose pacing keeps a network from carrying what it can when nobody else is on it.
     */
    const char *congestion;
} tutti_transport_tcp_options;

/*
 * A transport over TCP.
 *
 * [in] options  NULL = defaults
 *
 * TUTTI_FAILED_PRECONDITION  no such interface, or none that has an address, or the port is taken,
 *                            or no such congestion control: the text says which
 * TUTTI_RESOURCE_EXHAUSTED   no memory or no descriptors
 * TUTTI_INTERNAL             anything else the kernel says
 */
tutti_code tutti_transport_tcp_open(const tutti_transport_tcp_options *options,
                                    tutti_transport **ret_transport, tutti_error *err);

#define TUTTI_TRANSPORT_TCP_TEXT_MAX 256

/* Where it listens, for a log: "10.0.0.1:4711, [fd00::1]:4711". Returns `ret_text`. */
const char *tutti_transport_tcp_describe(tutti_transport *transport, char *ret_text, size_t size);

/* Is it the address of a transport like this one? Any thread. */
bool tutti_transport_tcp_is_address(tutti_bytes address);

#endif
