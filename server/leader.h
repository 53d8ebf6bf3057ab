/*
 * Leader: several coordinators on one etcd. This process waits until it leads, loads the store and
 * begins to serve; until then its services answer NOT_LEADER. When it leads no more it ends: what it
 * has in memory is not what the next one goes on with.
 */
#ifndef TUTTI_SERVER_LEADER_H
#define TUTTI_SERVER_LEADER_H

#include "base/config/config.h"
#include "rpc/server.h"
#include "server/coordinator/service/service_loop.h"
#include "store/etcd/etcd.h"

typedef struct server_leader server_leader;

typedef struct server_leader_options {
    tutti_etcd_options etcd; /* `where` is not an option of its own: --store etcd:... */
    const char *advertise;   /* "" = where it listens */
} server_leader_options;

tutti_option_set server_leader_option_set(server_leader_options *target);

/* What it leads. All borrowed until server_leader_free. */
typedef struct server_leader_parts {
    const server_leader_options *options;
    const tutti_coordinator_options *coordinating;
    tutti_rpc_loop *loop;
    tutti_rpc_server *server; /* it listens */
    tutti_service_loop *service_loop;
} server_leader_parts;

/*
 * Take part in the election from now on.
 *
 * TUTTI_INVALID_ARGUMENT  as tutti_etcd_open
 */
tutti_code server_leader_start(const server_leader_parts *parts, server_leader **ret_leader,
                               tutti_error *err);

/* No more election; the loop still runs. Blocks until a load that is under way has ended. NULL is
 * fine. */
void server_leader_stop(server_leader *leader);

/* Write what is left, and let another one lead. The service loop is freed. NULL is fine. */
void server_leader_free(server_leader *leader);

#endif
