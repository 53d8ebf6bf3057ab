/*
 * The inside of server.h: a server, the loops it serves on and the methods that have a
 * handler (routes).
 */
#ifndef TUTTI_RPC_SERVER_SERVER_PRIVATE_H
#define TUTTI_RPC_SERVER_SERVER_PRIVATE_H

#include <grpc/grpc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/list.h"
#include "base/os/meter.h"
#include "base/os/timers.h"
#include "rpc/loop.h"
#include "rpc/loop/loop_private.h"
#include "rpc/loop/token.h"
#include "rpc/message/descriptors_pb.h"
#include "rpc/server.h"
#include "rpc/server/health_pb.h"
#include "rpc/server/listen.h"
#include "rpc/server/probe.h"
#include "rpc/server/reflection_pb.h"

#define TUTTI_RPC_LOOPS_MAX 8
#define TUTTI_RPC_SERVICES_MAX 32
#define TUTTI_RPC_CODES 17 /* gRPC has 0 to 16 */

struct ProtobufCMessageDescriptor;

/* A loop that serves calls. Its thread owns all of it once the server has started. */
typedef struct rpc_server_loop {
    tutti_rpc_server *server;
    tutti_rpc_loop *loop;
    tutti_list_node calls; /* handed to us and not ended; without nested ones */
    unsigned waiting;      /* requests posted for methods without a handler */
    tutti_rpc_task fill;   /* post the first requests */
    tutti_rpc_task sweep;  /* draining: tell every call */
    tutti_timer again;     /* post what could not be posted for want of memory */
} rpc_server_loop;

/* A method with a handler. The loop's thread owns `waiting`; all else is read only once started. */
typedef struct rpc_route {
    rpc_server_loop *server_loop;
    const tutti_rpc_method *method;
    void *self;                                        /* the handler's */
    tutti_rpc_gate *gate;                              /* borrowed; NULL = none */
    tutti_code (*admit)(void *self, tutti_error *err); /* NULL = always */
    char *path;
    const struct ProtobufCMessageDescriptor *input;
    bool client_streams;
    bool server_streams;
    bool open_enums;
    void *handle;                            /* gRPC's */
    unsigned waiting;                        /* requests posted */
    _Atomic uint64_t ended[TUTTI_RPC_CODES]; /* calls, by how they were answered */
    tutti_meter durations;                   /* of unary ones */
} rpc_route;

struct tutti_rpc_server {
    const tutti_rpc_server_options *options; /* borrowed */
    tutti_rpc_loop *loop;                    /* borrowed */
    rpc_descriptors *descriptors;
    rpc_listener listeners[TUTTI_ADDRESSES_MAX];
    tutti_address addresses[TUTTI_ADDRESSES_MAX]; /* of the listeners, with the real ports */
    size_t listener_count;
    bool strangers; /* some listener speaks plaintext beyond this machine */
    grpc_resource_quota *quota;
    size_t quota_bytes;          /* of it */
    _Atomic size_t unsent_bytes; /* of structs that wait inside gRPC for their client to read */
    grpc_server *grpc;           /* NULL before start */

    tutti_rpc_service services[TUTTI_RPC_SERVICES_MAX];
    size_t service_count;
    rpc_server_loop server_loops[TUTTI_RPC_LOOPS_MAX];
    size_t server_loop_count;
    rpc_route *routes;
    size_t route_count;

    struct tutti_rpc_lanes *lanes; /* [borrowed] NULL = streams have none */
    rpc_token *token;              /* NULL = none */
    tutti_rpc_authorize_fn authorize;
    void *authorize_arg;
    const tutti_rpc_guard *guard; /* NULL = none */
    void *guard_arg;
    bool guard_asks;
    rpc_health health;
    rpc_reflection reflection;
    rpc_probe probe;

    void (*on_drain)(void *arg);
    void *on_drain_arg;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;

    /*
     * What keeps the server from being stopped: 1 for serving at all (given back when gRPC has
     * closed its connections), and 1 for each request posted, call that has not ended and task
     * under way. When the count is 0 nothing of the server runs on any loop, so on_stopped may
     * free it.
     */
    atomic_size_t lives;
    atomic_size_t call_count;     /* handed to a handler and not ended */
    _Atomic uint64_t answered_ns; /* when a message last left by a connection; 0 = none has */
    _Atomic uint64_t unknown;     /* calls of methods without a handler */
    atomic_bool routed;           /* the routes are made and do not change */
    atomic_bool draining;         /* set on `loop`; loops refuse new calls from then on */
    atomic_bool stopping;         /* tutti_rpc_server_stop was called */
    bool started;
    bool stopped;
    tutti_rpc_task look; /* start the probe */
    tutti_rpc_task stop;
    tutti_rpc_task last; /* posted when `lives` has become 0 */
    tutti_rpc_tag closed;
    tutti_timer grace;
    tutti_timer look_quiet; /* draining: is there still a call? */
    unsigned looks_quiet;   /* in a row that saw none */
    bool cancelled_all;     /* gRPC was told to cut all calls and connections */
};

static inline void
rpc_server_hold(tutti_rpc_server *server)
{
    (void)atomic_fetch_add(&server->lives, 1);
}

/* Give one life back. Any thread. The server may be gone when it returns. */
void rpc_server_release(tutti_rpc_server *server);

/* accept.c: have requests waiting for every method of the loop. Loop's thread. */
void rpc_server_loop_fill(rpc_server_loop *server_loop);
void rpc_server_loop_init(rpc_server_loop *server_loop, tutti_rpc_server *server,
                          tutti_rpc_loop *loop);

/*
 * accept.c: make routes and loops from the services that were added. Before the server starts.
 *
 * TUTTI_INVALID_ARGUMENT a method is not in the descriptor set, or its handler is of the other
 * kind TUTTI_RESOURCE_EXHAUSTED no memory
 */
tutti_code rpc_routes_make(tutti_rpc_server *server, tutti_error *err);
void rpc_routes_free(tutti_rpc_server *server);

/* call.c: a call has ended. */
void rpc_server_note(tutti_rpc_server *server, rpc_route *route, int code, uint64_t duration_ns);

#endif
