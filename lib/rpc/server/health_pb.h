/*
 * Health: grpc.health.v1.Health of a server. "" is the server as a whole; every service has a name.
 */
#ifndef TUTTI_RPC_SERVER_HEALTH_PB_H
#define TUTTI_RPC_SERVER_HEALTH_PB_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/data/list.h"
#include "rpc/loop.h"
#include "rpc/server.h"

#define TUTTI_RPC_HEALTH_MAX 64    /* names */
#define TUTTI_RPC_WATCHES_MAX 1024 /* clients that watch at the same time */
#define TUTTI_RPC_HEALTH_NAME_MAX 128

typedef struct rpc_health {
    tutti_rpc_loop *loop;
    tutti_rpc_task changed;
    tutti_list_node watches; /* loop's thread */
    size_t watch_count;      /* likewise */
    pthread_mutex_t lock;    /* guards all below */
    bool live;               /* between start and drain: changes are told */
    bool posted;             /* `changed` is under way */
    bool draining;
    size_t count;
    struct {
        char name[TUTTI_RPC_HEALTH_NAME_MAX];
        bool serving;
    } services[TUTTI_RPC_HEALTH_MAX];
} rpc_health;

/* Knows "" as NOT_SERVING. [in] loop  where its calls are served */
void rpc_health_init(rpc_health *health, tutti_rpc_loop *loop);
void rpc_health_fini(rpc_health *health);

/* Any thread. More than TUTTI_RPC_HEALTH_MAX names, or one too long, assert. */
void rpc_health_set(rpc_health *health, const char *service, bool serving);

/* As a Check would be told. Any thread. */
bool rpc_health_serves(rpc_health *health, const char *service);

/* Watchers may come. */
void rpc_health_start(rpc_health *health);

/* From now on nothing serves, and nothing is posted. Loop's thread. */
void rpc_health_drain(rpc_health *health);

/* The service, for tutti_rpc_server_add. */
tutti_rpc_service rpc_health_service(rpc_health *health);

#endif
