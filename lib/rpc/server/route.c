#include <assert.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "rpc/loop.h"
#include "rpc/message/descriptors_pb.h"
#include "rpc/message/service.h"
#include "rpc/server.h"
#include "rpc/server/server_private.h"

static rpc_server_loop *
find_server_loop(tutti_rpc_server *server, tutti_rpc_loop *loop)
{
    size_t i;

    for (i = 0; i < server->server_loop_count; i++) {
        if (server->server_loops[i].loop == loop) {
            return &server->server_loops[i];
        }
    }
    assert(server->server_loop_count < TUTTI_RPC_LANES_MAX);
    rpc_server_loop_init(&server->server_loops[server->server_loop_count], server, loop);
    return &server->server_loops[server->server_loop_count++];
}

/* A streaming method needs stream operations, any other a function: the .proto decides. */
static tutti_code
check_kind(const rpc_route *route, tutti_error *err)
{
    const bool streams = route->client_streams || route->server_streams;

    if (streams ? route->method->stream == NULL || route->method->on_call != NULL
                : route->method->on_call == NULL || route->method->stream != NULL) {
        return TUTTI_FAIL(err, TUTTI_INVALID_ARGUMENT, "%s is %s in its .proto, its handler is not",
                          route->path, streams ? "streaming" : "unary");
    }
    return TUTTI_OK;
}

static tutti_code
make_route(tutti_rpc_server *server, const tutti_rpc_service *service,
           const tutti_rpc_method *method, rpc_route *route, tutti_error *err)
{
    const char *name = rpc_service_name(service->descriptor);
    const size_t number = rpc_service_find(service->descriptor, method->name);

    route->server_loop = find_server_loop(server, service->loop);
    route->method = method;
    route->self = service->self;
    route->path = rpc_service_path(service->descriptor, method->name);
    if (route->path == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a method");
    }
    if (number == SIZE_MAX ||
        !rpc_descriptors_method(server->descriptors, name, method->name, &route->client_streams,
                                &route->server_streams)) {
        return TUTTI_FAIL(err, TUTTI_INVALID_ARGUMENT, "%s is in no .proto of the descriptor set",
                          route->path);
    }
    route->input = rpc_service_input(service->descriptor, number);
    route->open_enums = service->open_enums;
    return check_kind(route, err);
}

tutti_code
rpc_routes_make(tutti_rpc_server *server, tutti_error *err)
{
    size_t total = 0;
    size_t s;
    size_t m;
    tutti_code code = TUTTI_OK;

    for (s = 0; s < server->service_count; s++) {
        total += server->services[s].method_count;
    }
    server->routes = calloc(total, sizeof(*server->routes));
    if (server->routes == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for %zu methods", total);
    }
    (void)find_server_loop(server, server->loop);
    for (s = 0; s < server->service_count; s++) {
        const tutti_rpc_service *service = &server->services[s];

        for (m = 0; m < service->method_count && code == TUTTI_OK; m++) {
            code = make_route(server, service, &service->methods[m],
                              &server->routes[server->route_count++], err);
        }
    }
    return code;
}

void
rpc_routes_free(tutti_rpc_server *server)
{
    size_t i;

    for (i = 0; i < server->route_count; i++) {
        free(server->routes[i].path);
    }
    free(server->routes);
    server->routes = NULL;
    server->route_count = 0;
}
