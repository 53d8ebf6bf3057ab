/*
 * Servers: requests that are posted for methods, and calls that come for them. And what little else lib/rpc asks of
 * gRPC: its beginning, quotas, credentials and peers of connections in the clear.
 */
#include <assert.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/util/process.h"
#include "sim/core/core_private.h"

#define ADDRESSES_MAX 4

typedef struct method {
    tutti_list_node link;
    char *path; /* NULL: of all that have none */
    bool wants_message;
    tutti_list_node requests;
    tutti_list_node asking; /* calls */
} method;

typedef struct request {
    tutti_list_node link;
    grpc_call **call;
    gpr_timespec *deadline;
    grpc_call_details *details;
    grpc_metadata_array *metadata;
    grpc_byte_buffer **payload;
    grpc_completion_queue *bound;
    grpc_completion_queue *told;
    void *tag;
} request;

struct grpc_server {
    tutti_list_node link;
    int process;
    tutti_list_node methods;
    method others;
    char addresses[ADDRESSES_MAX][96];
    size_t address_count;
    unsigned streams_max;
    uint64_t keepalive_ns;
    uint64_t patience_ns;
    bool started;
    bool closing;
    bool destroyed;
    grpc_completion_queue *closed_to; /* NULL: told, or not asked */
    void *closed_tag;
};

static struct {
    tutti_list_node servers;
    int ports;
} ours;

static void
init_method(method *self)
{
    tutti_list_init(&self->requests);
    tutti_list_init(&self->asking);
}

grpc_server *
grpc_server_create(const grpc_channel_args *args, void *reserved)
{
    grpc_server *self = calloc(1, sizeof(*self));
    const int keepalive_ms = core_arg(args, GRPC_ARG_KEEPALIVE_TIME_MS, INT32_MAX);

    (void)reserved;
    assert(self != NULL);
    self->process = sim_process();
    self->streams_max = (unsigned)core_arg(args, GRPC_ARG_MAX_CONCURRENT_STREAMS, INT32_MAX);
    self->keepalive_ns = keepalive_ms == INT32_MAX ? 0 : (unsigned)keepalive_ms * TUTTI_NS_PER_MS;
    self->patience_ns =
        (unsigned)core_arg(args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000) * TUTTI_NS_PER_MS;
    tutti_list_init(&self->methods);
    init_method(&self->others);
    tutti_list_add(&ours.servers, &self->link);
    return self;
}

void
grpc_server_register_completion_queue(grpc_server *server, grpc_completion_queue *cq,
                                      void *reserved)
{
    (void)server;
    (void)cq;
    (void)reserved;
}

void *
grpc_server_register_method(grpc_server *server, const char *path, const char *host,
                            grpc_server_register_method_payload_handling payload_handling,
                            uint32_t flags)
{
    method *self = calloc(1, sizeof(*self));

    (void)host;
    (void)flags;
    assert(self != NULL);
    self->path = strdup(path);
    self->wants_message = payload_handling == GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER;
    init_method(self);
    tutti_list_add(&server->methods, &self->link);
    return self;
}

static bool
has_address(const grpc_server *self, const char *address)
{
    size_t i;

    for (i = 0; i < self->address_count; i++) {
        if (strcmp(self->addresses[i], address) == 0) {
            return true;
        }
    }
    return false;
}

/* The newest: one that was started anew has the address of the one before. */
grpc_server *
core_server_find(const char *address)
{
    grpc_server *found = NULL;
    tutti_list_node *at;

    for (at = ours.servers.next; at != &ours.servers; at = at->next) {
        grpc_server *self = tutti_container_of(at, grpc_server, link);

        if (has_address(self, address)) {
            found = self;
        }
    }
    return found;
}

int
grpc_server_add_http2_port(grpc_server *server, const char *addr, grpc_server_credentials *creds)
{
    const char *colon = strrchr(addr, ':');
    int port = colon == NULL ? 0 : atoi(colon + 1);

    (void)creds;
    if (port == 0) {
        port = ++ours.ports;
    }
    assert(server->address_count < ADDRESSES_MAX && colon != NULL);
    (void)snprintf(server->addresses[server->address_count++], sizeof(server->addresses[0]),
                   "%.*s:%d", (int)(colon - addr), addr, port);
    return port;
}

void
grpc_server_start(grpc_server *server)
{
    server->started = true;
}

int
core_server_process(const grpc_server *server)
{
    return server->process;
}

bool
core_server_listens(const grpc_server *server)
{
    return server->started && !server->closing;
}

unsigned
core_server_streams_max(const grpc_server *server)
{
    return server->streams_max;
}

void
core_server_keepalive(const grpc_server *server, uint64_t *ret_time_ns, uint64_t *ret_patience_ns)
{
    *ret_time_ns = server->keepalive_ns;
    *ret_patience_ns = server->patience_ns;
}

/* ------------------------------------------------------------------------------ calls */

static method *
find_method(grpc_server *self, const char *path)
{
    tutti_list_node *at;

    for (at = self->methods.next; at != &self->methods; at = at->next) {
        if (strcmp(tutti_container_of(at, method, link)->path, path) == 0) {
            return tutti_container_of(at, method, link);
        }
    }
    return &self->others;
}

/* [in, moved] one */
static void
give(request *one, grpc_call *call)
{
    call->headed = true;
    call->queue = one->bound;
    *one->call = call;
    if (one->details != NULL) {
        one->details->method = grpc_slice_from_copied_string(call->method);
        one->details->deadline = rpc_time_to(call->deadline_ns);
    } else {
        *one->deadline = rpc_time_to(call->deadline_ns);
    }
    one->metadata->count = call->initial.count;
    one->metadata->capacity = call->initial.count;
    one->metadata->metadata = NULL;
    if (call->initial.count > 0) {
        one->metadata->metadata =
            gpr_malloc(call->initial.count * sizeof(one->metadata->metadata[0]));
        memcpy(one->metadata->metadata, call->initial.metadata,
               call->initial.count * sizeof(one->metadata->metadata[0]));
    }
    if (one->payload != NULL) {
        *one->payload = core_call_take(call);
    }
    core_queue_put(one->told, one->tag, true);
    free(one);
}

void
core_server_offer(grpc_call *call)
{
    method *to = find_method(call->conn->server, call->method);
    const bool ready = !to->wants_message || !tutti_list_empty(&call->in) || call->half_closed;

    if (call->headed || call->ended || !ready) {
        return;
    }
    tutti_list_remove(&call->asking);
    tutti_list_init(&call->asking);
    if (tutti_list_empty(&to->requests)) {
        tutti_list_add(&to->asking, &call->asking);
    } else {
        give(tutti_container_of(tutti_list_pop(&to->requests), request, link), call);
    }
}

void
core_server_take(core_conn *conn, core_frame *headers)
{
    grpc_call *from = headers->from;
    grpc_call *call = core_call_new(CORE_SERVER, conn->process[CORE_SERVER], NULL, from->method,
                                    strlen(from->method), from->deadline_ns);

    call->conn = conn;
    call->peer = from;
    from->peer = call;
    call->initial = headers->metadata;
    memset(&headers->metadata, 0, sizeof(headers->metadata));
    core_frame_free(headers);
    tutti_list_add(&conn->all[CORE_SERVER], &call->link);
    core_server_offer(call);
}

static grpc_call_error
post(grpc_server *server, method *to, request wanted)
{
    request *one = malloc(sizeof(*one));

    assert(one != NULL);
    *one = wanted;
    core_queue_expect(one->told);
    if (server->closing) {
        core_queue_put(one->told, one->tag, false);
        free(one);
    } else if (!tutti_list_empty(&to->asking)) {
        tutti_list_node *node = tutti_list_pop(&to->asking);

        tutti_list_init(node);
        give(one, tutti_container_of(node, grpc_call, asking));
    } else {
        tutti_list_add(&to->requests, &one->link);
    }
    return GRPC_CALL_OK;
}

grpc_call_error
grpc_server_request_call(grpc_server *server, grpc_call **call, grpc_call_details *details,
                         grpc_metadata_array *request_metadata,
                         grpc_completion_queue *cq_bound_to_call,
                         grpc_completion_queue *cq_for_notification, void *tag_new)
{
    return post(server, &server->others,
                (request){.call = call,
                          .details = details,
                          .metadata = request_metadata,
                          .bound = cq_bound_to_call,
                          .told = cq_for_notification,
                          .tag = tag_new});
}

grpc_call_error
grpc_server_request_registered_call(grpc_server *server, void *registered_method, grpc_call **call,
                                    gpr_timespec *deadline, grpc_metadata_array *request_metadata,
                                    grpc_byte_buffer **optional_payload,
                                    grpc_completion_queue *cq_bound_to_call,
                                    grpc_completion_queue *cq_for_notification, void *tag_new)
{
    return post(server, registered_method,
                (request){.call = call,
                          .deadline = deadline,
                          .metadata = request_metadata,
                          .payload = optional_payload,
                          .bound = cq_bound_to_call,
                          .told = cq_for_notification,
                          .tag = tag_new});
}

/* ------------------------------------------------------------------------------ the end */

static void
tell_if_closed(grpc_server *self)
{
    if (self->closed_to != NULL && !core_conns_left(self)) {
        core_queue_put(self->closed_to, self->closed_tag, true);
        self->closed_to = NULL;
    }
}

static void
drop_method(method *self)
{
    tutti_list_node *node;

    while ((node = tutti_list_pop(&self->requests)) != NULL) {
        request *one = tutti_container_of(node, request, link);

        core_queue_put(one->told, one->tag, false);
        free(one);
    }
    while ((node = tutti_list_pop(&self->asking)) != NULL) {
        grpc_call *call = tutti_container_of(node, grpc_call, asking);

        tutti_list_init(node);
        (void)grpc_call_cancel_with_status(call, GRPC_STATUS_UNAVAILABLE, "Server Shutdown", NULL);
    }
}

static void
say_goaway(core_conn *conn)
{
    core_send(conn, CORE_CLIENT, core_frame_new(CORE_GOAWAY));
}

void
grpc_server_shutdown_and_notify(grpc_server *server, grpc_completion_queue *cq, void *tag)
{
    tutti_list_node *at;

    server->closing = true;
    server->closed_to = cq;
    server->closed_tag = tag;
    core_queue_expect(cq);
    drop_method(&server->others);
    for (at = server->methods.next; at != &server->methods; at = at->next) {
        drop_method(tutti_container_of(at, method, link));
    }
    core_conns_each(server, say_goaway);
    tell_if_closed(server);
}

static void
cut_conn(core_conn *conn)
{
    core_conn_end(conn, CORE_SERVER, "Cancelling all calls");
}

void
grpc_server_cancel_all_calls(grpc_server *server)
{
    core_conns_each(server, cut_conn);
}

void
core_server_conn_over(core_conn *conn)
{
    tell_if_closed(conn->server);
}

void
grpc_server_destroy(grpc_server *server)
{
    tutti_list_node *node;

    if (!server->closing || server->closed_to != NULL) {
        sim_fail("a server is destroyed that was not shut down");
    }
    server->destroyed = true;
    while ((node = tutti_list_pop(&server->methods)) != NULL) {
        method *one = tutti_container_of(node, method, link);

        free(one->path);
        free(one);
    }
}

void
core_servers_open(void)
{
    tutti_list_init(&ours.servers);
    ours.ports = 30000;
}

void
core_servers_close(void)
{
    tutti_list_node *node;

    while ((node = tutti_list_pop(&ours.servers)) != NULL) {
        grpc_server *self = tutti_container_of(node, grpc_server, link);

        if (!self->destroyed) {
            sim_fail("the server at %s is left", self->addresses[0]);
        }
        free(self);
    }
}

/* ------------------------------------------------------------------------------ what is left */

void
grpc_init(void)
{
}

void
grpc_shutdown(void)
{
}

static char thing; /* stands for what has no state here */

grpc_resource_quota *
grpc_resource_quota_create(const char *trace_name)
{
    (void)trace_name;
    return (grpc_resource_quota *)&thing;
}

void
grpc_resource_quota_resize(grpc_resource_quota *resource_quota, size_t new_size)
{
    (void)resource_quota;
    (void)new_size;
}

void
grpc_resource_quota_unref(grpc_resource_quota *resource_quota)
{
    (void)resource_quota;
}

grpc_server_credentials *
grpc_insecure_server_credentials_create(void)
{
    return (grpc_server_credentials *)&thing;
}

void
grpc_server_credentials_release(grpc_server_credentials *creds)
{
    (void)creds;
}

grpc_auth_context *
grpc_call_auth_context(grpc_call *call)
{
    (void)call;
    return (grpc_auth_context *)&thing;
}

int
grpc_auth_context_peer_is_authenticated(const grpc_auth_context *ctx)
{
    (void)ctx;
    return 0;
}

grpc_auth_property_iterator
grpc_auth_context_find_properties_by_name(const grpc_auth_context *ctx, const char *name)
{
    (void)ctx;
    (void)name;
    return (grpc_auth_property_iterator){0};
}

const grpc_auth_property *
grpc_auth_property_iterator_next(grpc_auth_property_iterator *it)
{
    (void)it;
    return NULL;
}

void
grpc_auth_context_release(grpc_auth_context *context)
{
    (void)context;
}
