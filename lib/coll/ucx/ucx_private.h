/*
 * Private to lib/coll/ucx: what the transport is made of. Engine's thread, except open and close.
 */
#ifndef TUTTI_COLL_UCX_UCX_PRIVATE_H
#define TUTTI_COLL_UCX_UCX_PRIVATE_H

#include <ucp/api/ucp.h>

#include "coll/transport.h"

#define AM_ID 7
#define UCX_MAGIC "tuttiucx"
#define UCX_MAGIC_BYTES 8

typedef struct transport_ucx {
    tutti_transport base;
    ucp_context_h context;
    ucp_worker_h worker;
    unsigned char *address; /* UCX_MAGIC, and what UCX calls its address */
    size_t address_size;
    int descriptor;
    const tutti_transport_events *events;
    void *arg;
    tutti_list_node links;           /* connected */
    tutti_list_node broken;          /* among them: to be told of after progress */
    tutti_list_node closing;         /* disconnected, their endpoints not gone yet */
    tutti_list_node tickets;         /* out */
    void *arriving;                  /* the rndv of the packet that is being handed over */
    bool dropped;                    /* ... and whether it was dropped there and then */
    struct transport_ucx *abandoned; /* the next of those that could not be closed */
} transport_ucx;

struct tutti_transport_conn {
    transport_ucx *transport;
    void *owner; /* NULL: disconnected */
    ucp_ep_h endpoint;
    ucs_status_t status;         /* UCS_OK until it breaks; then nothing is sent on it */
    tutti_list_node link;        /* in links or closing */
    tutti_list_node broken_link; /* in broken */
};

/* open.c: its lifetime */

/* The one place where UCX's numbers become ours. */
tutti_code tutti_transport_ucx_fail(tutti_error *err, ucs_status_t status, const char *doing);
void tutti_transport_ucx_close(tutti_transport *transport); /* half open is fine */

/* ucx.c: what it does */

extern const tutti_transport_ops tutti_transport_ucx_ops;

transport_ucx *tutti_transport_ucx_from(tutti_transport *transport);
ucs_status_t tutti_transport_ucx_on_message(void *arg, const void *header, size_t header_size,
                                            void *data, size_t size,
                                            const ucp_am_recv_param_t *param);

#endif
