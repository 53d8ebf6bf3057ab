/*
 * Transport auth: a transport around a transport, which drops what does not come from a member.
 *
 * The coordinator gives the members of a job a key for each epoch. What goes from one process to
 * another is sealed with a key made of that (HKDF), of a number that the receiver drew and puts
 * before its address, and of the incarnations of both; so a tag is good for one sender, one
 * receiver and one epoch. A packet carries the number of its way, a count, the name of its epoch,
 * its sender's incarnation, a digest of its data if that is words of the engine, and a tag (SipHash-2-4
 * of 128 bits) over these, its header and the size of its data. One that does not fit, or comes a second
 * time, is dropped before the engine sees a byte of it, and data that waits at its sender is not fetched.
 * Words that were fetched are compared with their digest. Tensors are not covered, and nothing is hidden:
 * this is about who may speak, not about who may listen on the way.
 *
 * Members learn of an epoch at different times. What is sealed for the one before is heard for
 * TUTTI_TRANSPORT_AUTH_GRACE_NS more, but not from a revoked process; what is sealed for one that
 * we do not know yet waits for its key, if its sender has been told our address.
 */
#ifndef TUTTI_COLL_TRANSPORT_AUTH_TRANSPORT_AUTH_H
#define TUTTI_COLL_TRANSPORT_AUTH_TRANSPORT_AUTH_H

#include "coll/transport.h"

#define TUTTI_TRANSPORT_AUTH_KEY_BYTES 16
#define TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES                                                         \
    (TUTTI_TRANSPORT_AUTH_KEY_BYTES + 8)                              /* before the inner one */
#define TUTTI_TRANSPORT_AUTH_BYTES (40 + TUTTI_TRANSPORT_PROOF_BYTES) /* behind a header */

#define TUTTI_TRANSPORT_AUTH_GRACE_NS 2000000000ULL

/*
 * [in, moved] inner        closed with the authentication tag, also when this fails
 * [in]        incarnation  of this process
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 * TUTTI_INTERNAL            OpenSSL has no random numbers, no SipHash or no HKDF
 */
tutti_code tutti_transport_auth_open(tutti_transport *inner, uint64_t incarnation,
                                     tutti_transport **ret_transport, tutti_error *err);

/* TUTTI_TRANSPORT_AUTH_GRACE_NS else. Before the first packet. */
void tutti_transport_auth_set_grace(tutti_transport *transport, uint64_t grace_ns);

typedef struct tutti_transport_auth_stats {
    uint64_t strange; /* packets and hellos that no member sealed, or that came twice */
    uint64_t over;    /* ... that were sealed by a process that is no member any more */
    uint64_t waiting; /* packets that wait for the key of their epoch, now */
} tutti_transport_auth_stats;

/* Engine's thread. */
void tutti_transport_auth_stat(const tutti_transport *transport,
                               tutti_transport_auth_stats *ret_stats);

#endif
