/*
 * Packets over UCX's active messages, and connections (endpoints). Engine's thread, all of it: the
 * worker is used by one thread at a time (UCS_THREAD_MODE_SERIALIZED), and callbacks run inside of
 * ucp_worker_progress, or inside of the call that begins a request.
 *
 * A ticket that is out is in self->tickets until UCX ends its request; its memory is UCX's until
 * then. A dead peer ends all requests on its endpoint with an error. disconnect closes the endpoint
 * by force: requests on it come back as cancelled, from a later progress.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/ucx/ucx_private.h"

transport_ucx *
tutti_transport_ucx_from(tutti_transport *transport)
{
    assert(transport->ops == &tutti_transport_ucx_ops);
    return tutti_container_of(transport, transport_ucx, base);
}

/* ------------------------------------------------------------------------------ packets in */

/*
 * A packet has come, inside of progress. UCX_OK ends the rndv: UCX tells its sender that it is
 * over; UCS_INPROGRESS keeps it for the engine, which pulls or releases it later. A drop inside of
 * on_packet is remembered instead of done: UCX does not allow a release of the message that it is
 * handing over.
 */
ucs_status_t
tutti_transport_ucx_on_message(void *arg, const void *header, size_t header_size, void *data,
                               size_t size, const ucp_am_recv_param_t *param)
{
    transport_ucx *self = arg;
    const bool waits = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;

    if (self->events == NULL) {
        return UCS_OK; /* UCX tells the sender that it is over */
    }
    if (!waits) {
        self->events->on_packet(self->arg, header, header_size, data, size, NULL);
        return UCS_OK;
    }
    self->arriving = data;
    self->dropped = false;
    self->events->on_packet(self->arg, header, header_size, NULL, size, data);
    self->arriving = NULL;
    return self->dropped ? UCS_OK : UCS_INPROGRESS; /* OK: as above */
}

/*
 * UCX may end a request inside the call that begins it, if it finds the peer dead there. The ticket
 * is not in a list yet then (hand_out adds it): how it ended is left in its link, as a `next` of
 * NULL, and hand_out answers with that. on_done does not run, as transport.h promises for results
 * other than LATER.
 */
static void
finish_ticket(tutti_transport_ticket *ticket, ucs_status_t status)
{
    if (tutti_list_empty(&ticket->link)) {
        ticket->link.next = NULL;
        ticket->link.before = status == UCS_OK ? &ticket->link : NULL;
        return;
    }
    tutti_list_remove(&ticket->link);
    ticket->on_done(ticket, status == UCS_OK);
}

static void
on_sent(void *request, ucs_status_t status, void *user_data)
{
    ucp_request_free(request);
    finish_ticket(user_data, status);
}

static void
on_pulled(void *request, ucs_status_t status, size_t size, void *user_data)
{
    (void)size;
    ucp_request_free(request);
    finish_ticket(user_data, status);
}

static tutti_transport_result
hand_out(transport_ucx *self, ucs_status_ptr_t request, tutti_transport_ticket *ticket)
{
    if (ticket->link.next == NULL) { /* it has ended inside: the request is gone */
        const bool ok = ticket->link.before != NULL;

        tutti_list_init(&ticket->link);
        return ok ? TUTTI_TRANSPORT_DONE : TUTTI_TRANSPORT_FAILED;
    }
    if (request == NULL) {
        return TUTTI_TRANSPORT_DONE;
    }
    if (UCS_PTR_IS_ERR(request)) {
        return TUTTI_TRANSPORT_FAILED;
    }
    tutti_list_add(&self->tickets, &ticket->link);
    return TUTTI_TRANSPORT_LATER;
}

static tutti_transport_result
transport_ucx_fetch(tutti_transport *transport, tutti_transport_rndv *rndv, void *dest, size_t size,
                    tutti_transport_ticket *ticket)
{
    transport_ucx *self = tutti_transport_ucx_from(transport);
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.recv_am = on_pulled,
        .user_data = ticket,
    };

    tutti_list_init(&ticket->link);
    return hand_out(self, ucp_am_recv_data_nbx(self->worker, rndv, dest, size, &param), ticket);
}

static void
transport_ucx_drop(tutti_transport *transport, tutti_transport_rndv *rndv)
{
    transport_ucx *self = tutti_transport_ucx_from(transport);

    if (rndv == self->arriving) {
        self->dropped = true;
    } else {
        ucp_am_data_release(self->worker, rndv);
    }
}

/* ------------------------------------------------------------------------------ packets out */

static tutti_transport_result
transport_ucx_send(tutti_transport_conn *link, const void *header, size_t header_size,
                   const void *data, size_t size, tutti_transport_ticket *ticket)
{
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = size > TUTTI_TRANSPORT_EAGER_MAX ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER,
        .cb.send = on_sent,
        .user_data = ticket,
    };

    if (link->status != UCS_OK) {
        return TUTTI_TRANSPORT_FAILED;
    }
    tutti_list_init(&ticket->link);
    return hand_out(link->transport,
                    ucp_am_send_nbx(link->endpoint, AM_ID, header, header_size, data, size, &param),
                    ticket);
}

/* Runs inside of progress, when UCX still uses the endpoint: only noted here. progress tells the
 * owner when UCX has returned. */
static void
on_endpoint_error(void *arg, ucp_ep_h endpoint, ucs_status_t status)
{
    tutti_transport_conn *link = arg;

    (void)endpoint;
    if (link->status == UCS_OK && link->owner != NULL) {
        link->status = status;
        tutti_list_add(&link->transport->broken, &link->broken_link);
    }
}

static tutti_code
transport_ucx_connect(tutti_transport *transport, tutti_bytes address, void *owner,
                      tutti_transport_conn **ret_link, tutti_error *err)
{
    transport_ucx *self = tutti_transport_ucx_from(transport);
    tutti_transport_conn *link;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {on_endpoint_error, NULL},
    };
    ucs_status_t status;

    if (address.size <= UCX_MAGIC_BYTES || memcmp(address.data, UCX_MAGIC, UCX_MAGIC_BYTES) != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "CONNECTION_LOST",
                              "its data address is not one of UCX: it was started with other "
                              "--transports than this rank; give all agents of a job the same");
    }
    link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a connection");
    }
    params.address = (const ucp_address_t *)((const unsigned char *)address.data + UCX_MAGIC_BYTES);
    params.err_handler.arg = link;
    link->transport = self;
    link->owner = owner;
    tutti_list_init(&link->link);
    tutti_list_init(&link->broken_link);
    status = ucp_ep_create(self->worker, &params, &link->endpoint);
    if (status != UCS_OK) {
        free(link);
        return tutti_transport_ucx_fail(err, status, "connect");
    }
    tutti_list_add(&self->links, &link->link);
    *ret_link = link;
    return TUTTI_OK;
}

static void
on_closed(void *request, ucs_status_t status, void *user_data)
{
    tutti_transport_conn *link = user_data;

    (void)status;
    ucp_request_free(request);
    tutti_list_remove(&link->link);
    free(link);
}

/*
 * Close it by force, at once: what is in flight on it comes back as cancelled. The link is freed
 * when UCX has closed the endpoint (on_closed); until then it is in `closing`, and no longer has an
 * owner to be told.
 */
static void
transport_ucx_disconnect(tutti_transport_conn *link)
{
    transport_ucx *self = link->transport;
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
        .cb.send = on_closed,
        .user_data = link,
    };
    ucs_status_ptr_t request;

    link->owner = NULL;
    tutti_list_remove(&link->link);
    tutti_list_remove(&link->broken_link);
    tutti_list_add(&self->closing, &link->link);
    request = ucp_ep_close_nbx(link->endpoint, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        tutti_list_remove(&link->link);
        free(link);
    }
}

/* ------------------------------------------------------------------------------ the loop */

static unsigned
transport_ucx_progress(tutti_transport *transport)
{
    transport_ucx *self = tutti_transport_ucx_from(transport);
    tutti_list_node *first;
    unsigned did;

    did = ucp_worker_progress(self->worker);
    while ((first = tutti_list_pop(&self->broken)) != NULL) {
        tutti_transport_conn *link = tutti_container_of(first, tutti_transport_conn, broken_link);

        did++;
        self->events->on_broken(self->arg, link->owner, ucs_status_string(link->status));
    }
    return did;
}

static int
transport_ucx_descriptor(tutti_transport *transport)
{
    return tutti_transport_ucx_from(transport)->descriptor;
}

static bool
transport_ucx_arm(tutti_transport *transport, bool idle)
{
    (void)idle;
    return ucp_worker_arm(tutti_transport_ucx_from(transport)->worker) == UCS_OK;
}

static tutti_bytes
transport_ucx_address(tutti_transport *transport)
{
    const transport_ucx *self = tutti_transport_ucx_from(transport);

    return (tutti_bytes){self->address, self->address_size};
}

static void
transport_ucx_listen(tutti_transport *transport, const tutti_transport_events *events, void *arg)
{
    transport_ucx *self = tutti_transport_ucx_from(transport);

    self->events = events;
    self->arg = arg;
}

const tutti_transport_ops tutti_transport_ucx_ops = {
    .size = sizeof(tutti_transport_ops),
    .address = transport_ucx_address,
    .listen = transport_ucx_listen,
    .connect = transport_ucx_connect,
    .disconnect = transport_ucx_disconnect,
    .send = transport_ucx_send,
    .fetch = transport_ucx_fetch,
    .drop = transport_ucx_drop,
    .progress = transport_ucx_progress,
    .descriptor = transport_ucx_descriptor,
    .arm = transport_ucx_arm,
    .close = tutti_transport_ucx_close,
};
