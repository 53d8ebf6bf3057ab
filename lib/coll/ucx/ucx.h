/*
 * The transport over UCX's active messages: TCP everywhere, RDMA where there is some.
 *
 * Small packets are eager messages; large data is a rendezvous that the receiver starts, so it
 * stays with its sender until it is wanted. Every endpoint has peer error handling: a dead peer is
 * noticed by its connection, and a connection that is torn down cancels what is in flight on it.
 */
#ifndef TUTTI_COLL_UCX_UCX_H
#define TUTTI_COLL_UCX_UCX_H

#include "coll/transport.h"

typedef struct tutti_transport_ucx_options {
    const char *transports; /* UCX_TLS, for instance "tcp"; "" = all but shared memory */
    const char *devices;    /* UCX_NET_DEVICES, for instance "eth0"; "" = all */
} tutti_transport_ucx_options;

/*
 * A transport over UCX's active messages.
 *
 * [in] options  NULL = defaults. The environment's UCX_TLS and UCX_NET_DEVICES win over both
 *
 * TUTTI_FAILED_PRECONDITION  UCX found no transport that fits: the text says what was asked for
 * TUTTI_RESOURCE_EXHAUSTED   no memory
 * TUTTI_INTERNAL             anything else UCX says
 */
tutti_code tutti_transport_ucx_open(const tutti_transport_ucx_options *options,
                                    tutti_transport **ret_transport, tutti_error *err);

#endif
