/* Private to lib/coll/ucx: what the wire is made of. */
#ifndef TUTTI_COLL_UCX_COLL_UCX_WIRE_H
#define TUTTI_COLL_UCX_COLL_UCX_WIRE_H

#include <ucp/api/ucp.h>

#include "coll/wire.h"

#define AM_ID 7
#define UCX_MAGIC "tuttiucx"
#define UCX_MAGIC_BYTES 8

typedef struct wire_ucx {
    tutti_wire base;
    ucp_context_h context;
    ucp_worker_h worker;
    unsigned char *address; /* UCX_MAGIC, and what UCX calls its address */
    size_t address_size;
    int descriptor;
    const tutti_wire_events *events;
    void *arg;
    tutti_link links;           /* connected */
    tutti_link broken;          /* among them: to be told of after progress */
    tutti_link closing;         /* disconnected, their endpoints not gone yet */
    tutti_link tickets;         /* out */
    void *arriving;             /* the parcel of the packet that is being handed over */
    bool dropped;               /* ... and whether it was dropped there and then */
    struct wire_ucx *abandoned; /* the next of those that could not be closed */
} wire_ucx;

struct tutti_wire_link {
    wire_ucx *wire;
    void *owner;
    ucp_ep_h endpoint;
    ucs_status_t status;
    tutti_link link;        /* in links or closing */
    tutti_link broken_link; /* in broken */
};

/* coll_ucx_open.c: its lifetime */

/* The one place where UCX's numbers become ours. */
tutti_code tutti_wire_ucx_fail(tutti_error *err, ucs_status_t status, const char *doing);
void tutti_wire_ucx_close(tutti_wire *wire); /* half open is fine */

/* coll_ucx.c: what it does */

extern const tutti_wire_ops tutti_wire_ucx_ops;

wire_ucx *tutti_wire_ucx_from(tutti_wire *wire);
ucs_status_t tutti_wire_ucx_on_message(void *arg, const void *header, size_t header_size,
                                       void *data, size_t size, const ucp_am_recv_param_t *param);

#endif
