/*
 * Opening and closing of the UCX transport. Open runs on the caller's thread, before the engine's
 * exists; close runs when the engine's has ended.
 *
 * Close first lets endpoints close and pending answers leave, for a bounded time, then gives all
 * tickets back. A worker that still owes a peer an answer is not destroyed but abandoned, with the
 * memory that its requests may touch: destroying it would end the process
 * (docs/decisions/0003-ucx-active-messages.md).
 */
#include "coll/ucx/ucx.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/ucx/log.h"
#include "coll/ucx/ucx_private.h"

#define DEFAULT_TLS "^shm" /* what shares a host shares memory by other means */
#define CLOSE_NS (2 * TUTTI_NS_PER_S)
#define SETTLE_NS (20 * TUTTI_NS_PER_MS) /* it takes about half a one */

tutti_code
tutti_transport_ucx_fail(tutti_error *err, ucs_status_t status, const char *doing)
{
    tutti_code code = TUTTI_INTERNAL;

    if (status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE) {
        code = TUTTI_RESOURCE_EXHAUSTED;
    } else if (status == UCS_ERR_NO_DEVICE || status == UCS_ERR_UNSUPPORTED) {
        code = TUTTI_FAILED_PRECONDITION;
    } else if (status == UCS_ERR_UNREACHABLE || status == UCS_ERR_CONNECTION_RESET ||
               status == UCS_ERR_REJECTED || status == UCS_ERR_NOT_CONNECTED ||
               status == UCS_ERR_ENDPOINT_TIMEOUT) {
        code = TUTTI_UNAVAILABLE;
    }
    (void)TUTTI_FAIL_FOR(err, code, "TRANSPORT_FAILED", "ucx could not %s: %s", doing,
                         ucs_status_string(status));
    tutti_error_set_cause(err, "ucx", (int)status);
    return code;
}

/* Has the worker sent all that it wants to, and made all connections that it has begun? A peer that
 * is stopped can keep it from that for ever, so for SETTLE_NS at most. */
static bool
finish_ucx_open(ucp_worker_h worker)
{
    const ucp_request_param_t param = {0};
    const uint64_t until = tutti_clock_ns() + SETTLE_NS;
    ucs_status_ptr_t request = ucp_worker_flush_nbx(worker, &param);

    /* NULL: at this moment. A request that ends has seen a moment that is over. */
    while (UCS_PTR_IS_PTR(request) && tutti_clock_ns() < until) {
        (void)ucp_worker_progress(worker);
        if (ucp_request_check_status(request) != UCS_INPROGRESS) {
            ucp_request_free(request);
            request = ucp_worker_flush_nbx(worker, &param);
        }
    }
    return request == NULL;
}

static transport_ucx *abandoned;

#if defined(__SANITIZE_ADDRESS__)
/* The leak checker asks before it looks: what is abandoned was meant to be. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

int
__lsan_is_turned_off(void)
{
    return abandoned != NULL;
}
#endif

/*
 * UCX 1.13 ends the process when a worker is destroyed that still has to answer a peer's request
 * for a connection ("got REP message"). Such a worker is left as it is: agents close when they end.
 */
static void
abandon_ucx_open(transport_ucx *self)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    (void)pthread_mutex_lock(&lock);
    self->abandoned = abandoned;
    abandoned = self;
    (void)pthread_mutex_unlock(&lock);
    TUTTI_LOG("coll/ucx", DEBUG,
              "a peer did not answer: its connection is left to the end of the process");
}

/* Requests that did not end by themselves: their callbacks cannot come any more. */
static void
take_back_tickets(transport_ucx *self)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&self->tickets)) != NULL) {
        tutti_transport_ticket *ticket = tutti_container_of(link, tutti_transport_ticket, link);

        ticket->on_done(ticket, false);
    }
}

void
tutti_transport_ucx_close(tutti_transport *transport)
{
    transport_ucx *self = tutti_transport_ucx_from(transport);
    const uint64_t until = tutti_clock_ns() + CLOSE_NS;
    tutti_list_node *link;
    bool settled;

    self->events = NULL; /* nobody hears of packets any more */
    while (self->worker != NULL && !tutti_list_empty(&self->closing) && tutti_clock_ns() < until) {
        (void)ucp_worker_progress(self->worker);
    }
    settled = self->worker == NULL || finish_ucx_open(self->worker);
    take_back_tickets(self);
    if (!settled) {
        abandon_ucx_open(self);
        return;
    }
    free(self->address);
    if (self->worker != NULL) {
        ucp_worker_destroy(self->worker);
    }
    if (self->context != NULL) {
        ucp_cleanup(self->context);
    }
    while ((link = tutti_list_pop(&self->closing)) != NULL) {
        free(tutti_container_of(link, tutti_transport_conn, link));
    }
    free(self);
}

/* What the user has set in the environment wins: UCX has read it into `config` already. */
static void
configure_ucx(ucp_config_t *config, const tutti_transport_ucx_options *options)
{
    const char *transports = options != NULL ? options->transports : NULL;
    const char *devices = options != NULL ? options->devices : NULL;

    if (getenv("UCX_TLS") == NULL) {
        (void)ucp_config_modify(
            config, "TLS", transports != NULL && transports[0] != '\0' ? transports : DEFAULT_TLS);
    }
    if (getenv("UCX_TCP_CONN_NB") == NULL) {
        /* A host that is cut off would hold up the engine, and all its ops, for minutes. */
        (void)ucp_config_modify(config, "CONN_NB", "y");
    }
    if (getenv("UCX_NET_DEVICES") == NULL && devices != NULL && devices[0] != '\0') {
        (void)ucp_config_modify(config, "NET_DEVICES", devices);
    }
}

static tutti_code
open_context(transport_ucx *self, const tutti_transport_ucx_options *options, tutti_error *err)
{
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .name = "tutti",
    };
    ucp_config_t *config = NULL;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK) {
        return tutti_transport_ucx_fail(err, status, "read its configuration");
    }
    configure_ucx(config, options);
    status = ucp_init(&params, config, &self->context);
    ucp_config_release(config);
    return status == UCS_OK ? TUTTI_OK : tutti_transport_ucx_fail(err, status, "find a transport");
}

static tutti_code
open_worker(transport_ucx *self, tutti_error *err)
{
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED, /* opened here, used on the engine's thread */
    };
    ucs_status_t status = ucp_worker_create(self->context, &params, &self->worker);

    if (status != UCS_OK) {
        self->worker = NULL;
        return tutti_transport_ucx_fail(err, status, "create a worker");
    }
    status = ucp_worker_get_efd(self->worker, &self->descriptor);
    return status == UCS_OK ? TUTTI_OK : tutti_transport_ucx_fail(err, status, "give a descriptor");
}

static bool
keep_address(transport_ucx *self, const ucp_worker_attr_t *attributes)
{
    self->address_size = UCX_MAGIC_BYTES + attributes->address_length;
    self->address = malloc(self->address_size);
    if (self->address == NULL) {
        return false;
    }
    memcpy(self->address, UCX_MAGIC, UCX_MAGIC_BYTES);
    memcpy(self->address + UCX_MAGIC_BYTES, attributes->address, attributes->address_length);
    return true;
}

static tutti_code
open_address(transport_ucx *self, tutti_error *err)
{
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = AM_ID,
        .cb = tutti_transport_ucx_on_message,
        .arg = self,
    };
    ucp_worker_attr_t attributes = {
        .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
        .address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY,
    };
    ucs_status_t status = ucp_worker_set_am_recv_handler(self->worker, &handler);

    if (status == UCS_OK) {
        status = ucp_worker_query(self->worker, &attributes);
    }
    if (status != UCS_OK) {
        return tutti_transport_ucx_fail(err, status, "say its address");
    }
    status = keep_address(self, &attributes) ? UCS_OK : UCS_ERR_NO_MEMORY;
    ucp_worker_release_address(self->worker, attributes.address);
    return status == UCS_OK ? TUTTI_OK : tutti_transport_ucx_fail(err, status, "keep its address");
}

tutti_code
tutti_transport_ucx_open(const tutti_transport_ucx_options *options,
                         tutti_transport **ret_transport, tutti_error *err)
{
    transport_ucx *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the data plane");
    }
    tutti_transport_ucx_take_log();
    self->base.ops = &tutti_transport_ucx_ops;
    tutti_list_init(&self->links);
    tutti_list_init(&self->broken);
    tutti_list_init(&self->closing);
    tutti_list_init(&self->tickets);
    code = open_context(self, options, err);
    if (code == TUTTI_OK) {
        code = open_worker(self, err);
    }
    if (code == TUTTI_OK) {
        code = open_address(self, err);
    }
    if (code != TUTTI_OK) {
        tutti_transport_ucx_close(&self->base);
        return code;
    }
    *ret_transport = &self->base;
    return TUTTI_OK;
}
