/*
 * What a server counts about its calls, and how it shows that. One thread writes the page while
 * all loops count: the counters are atomics, read relaxed, so a page may show a call in the total
 * and not yet in the durations.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "rpc/server.h"
#include "rpc/server/health_pb.h"
#include "rpc/server/server_private.h"

#define NAME_BYTES 128

bool
tutti_rpc_server_is_serving(tutti_rpc_server *server)
{
    return rpc_health_serves(&server->health, "");
}

/* "/tutti.v1.StoreService/Get" in its two halves. [in] code  NULL = none */
static void
label_metric(const rpc_route *route, const char *code, char ret_labels[TUTTI_PAGE_LABELS_MAX])
{
    char service[NAME_BYTES];
    const char *method = strrchr(route->path, '/') + 1;
    const int size = (int)(method - route->path) - 2; /* without both slashes */

    (void)snprintf(service, sizeof(service), "%.*s", size, route->path + 1);
    tutti_page_labels(ret_labels, (const char *const[]){"service", service, "method", method,
                                                        code == NULL ? NULL : "code", code, NULL});
}

static void
expose_codes(const rpc_route *route, tutti_page *page)
{
    char labels[TUTTI_PAGE_LABELS_MAX];
    int code;

    for (code = 0; code < TUTTI_RPC_CODES; code++) {
        const uint64_t count = atomic_load_explicit(&route->ended[code], memory_order_relaxed);

        if (count > 0) {
            label_metric(route, tutti_code_name((tutti_code)code), labels);
            tutti_page_number(page, "tutti_rpc_calls_total", labels, count);
        }
    }
}

static void
expose_durations(const tutti_rpc_server *server, tutti_page *page)
{
    char labels[TUTTI_PAGE_LABELS_MAX];
    size_t i;

    tutti_page_family(page, "tutti_rpc_call_duration_seconds", "histogram",
                      "Time from the arrival of a unary call to its end, waiting included.");
    for (i = 0; i < server->route_count; i++) {
        const rpc_route *route = &server->routes[i];

        if (tutti_meter_count(&route->durations) > 0) {
            label_metric(route, NULL, labels);
            tutti_page_meter(page, "tutti_rpc_call_duration_seconds", labels, &route->durations);
        }
    }
}

void
tutti_rpc_server_expose(tutti_rpc_server *server, tutti_page *page)
{
    size_t i;

    tutti_page_family(page, "tutti_rpc_calls_running", "gauge", "Calls in the hands of handlers.");
    tutti_page_number(page, "tutti_rpc_calls_running", "", tutti_rpc_server_call_count(server));
    tutti_page_family(page, "tutti_rpc_unknown_calls_total", "counter",
                      "Calls of methods that this server does not have.");
    tutti_page_number(page, "tutti_rpc_unknown_calls_total", "",
                      atomic_load_explicit(&server->unknown, memory_order_relaxed));
    /* The routes are being made, or there are none: nothing of them may be read. */
    if (!atomic_load(&server->routed)) {
        return;
    }
    tutti_page_family(page, "tutti_rpc_calls_total", "counter",
                      "Calls that ended, by method and status.");
    for (i = 0; i < server->route_count; i++) {
        expose_codes(&server->routes[i], page);
    }
    expose_durations(server, page);
}
