/*
 * Clients: how many ops each has in flight, so that no client takes the places of all; and when each
 * came, so that a new one does not inherit the ends of another's ops. Control loop.
 *
 * A client is told from others by what each call shows: its identity and, if its user agent is one
 * of Tutti's clients ("tutti/0.1.0 1f0c...", with a number of the process), that; else its
 * connection. On a Unix socket all foreign clients of one identity are one.
 *
 * AGENT_CLIENTS_IDLE clients without an op in flight or a stream are remembered, those that called last.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_CLIENTS_H
#define TUTTI_SERVER_AGENT_STATE_CLIENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/data/list.h"
#include "base/data/map.h"
#include "rpc/server.h"
#include "tutti/error.h"

#define AGENT_CLIENTS_IDLE 1024

typedef struct agent_clients {
    tutti_map by_key;
    tutti_list_node idle; /* without an op in flight or a stream; who called last is the last */
    uint32_t idle_count;
    uint64_t ops_max; /* of one client */
    uint64_t last;    /* the number of the client that came last */
} agent_clients;

typedef struct agent_client agent_client;

void agent_clients_init(agent_clients *clients, uint64_t ops_max);

/* When no client has an op in flight. */
void agent_clients_fini(agent_clients *clients);

/* A client shows itself by a call that is no op: it is there from now on. Returns its number; 0: no
 * memory. */
uint64_t agent_clients_note(agent_clients *clients, const tutti_rpc_call *call);

/* Its program has ended: ops of it that come late are not the word of somebody who lives. */
void agent_clients_lose(agent_clients *clients, uint64_t number);

/*
 * Likewise, by a stream: it is there until the stream ends, at least.
 *
 * Returns [borrowed] until agent_client_release(); NULL = no memory.
 */
agent_client *agent_clients_hold(agent_clients *clients, const tutti_rpc_call *call);

/*
 * Such a stream has ended. Returns when the client came, if it was its last one: it has gone, as far
 * as an agent can know; else 0. NULL is fine.
 */
uint64_t agent_client_release(agent_clients *clients, agent_client *client);

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

/* When it made its first call, on tutti_clock_ns(). One that was forgotten has come anew. */
uint64_t agent_client_came_ns(const agent_client *client);

/* Never 0, and never that of another one. */
uint64_t agent_client_number(const agent_client *client);

/* Is it there: has it a stream, or an op in flight? The end of one without a stream is not noticed. */
bool agent_clients_has(agent_clients *clients, uint64_t number);

bool agent_client_is_lost(const agent_client *client);

#endif
