/*
 * Clients: how many ops each has in flight, so that no client takes the places of all. Control
 * loop.
 *
 * A client is told from others by what each call shows: its identity and, if its user agent is one
 * of Tutti's clients ("tutti/0.1.0 1f0c...", with a number of the process), that; else its
 * connection. On a Unix socket all foreign clients of one identity are one.
 *
 */
#ifndef TUTTI_SERVER_AGENT_STATE_CLIENTS_H
#define TUTTI_SERVER_AGENT_STATE_CLIENTS_H

#include <stdint.h>

#include "base/data/map.h"
#include "rpc/server.h"
#include "tutti/error.h"

typedef struct agent_clients {
    tutti_map by_key;
    uint64_t ops_max; /* of one client */
} agent_clients;

typedef struct agent_client agent_client; /* with an op in flight */

void agent_clients_init(agent_clients *clients, uint64_t ops_max);

/*
 * One more op of the client that made the call.
 *
 * [out, borrowed] ret_client  until agent_client_leave()
 *
 * TUTTI_RESOURCE_EXHAUSTED  OP_LIMIT: it has ops_max in flight; no memory
 */
tutti_code agent_client_enter(agent_clients *clients, const tutti_rpc_call *call,
                              agent_client **ret_client, tutti_error *err);

/* An op of that client has ended; the client may be freed with its last one. NULL is fine. */
void agent_client_leave(agent_clients *clients, agent_client *client);

#endif
