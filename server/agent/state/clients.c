/*
 * How many ops each client has in flight, and when it came. Control loop: both kinds of callers, ops
 * and Backwards, enter and leave there. gRPC does not tell when a client goes (docs/decisions/0027),
 * so entries without an op are kept in the order of their last calls, and the oldest one makes room.
 */
#include "server/agent/state/clients.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"

#define KEY_SIZE 384  /* an identity of 255, and as much of the rest as fits */
#define SHOWN_MAX 100 /* bytes of the user agent */

struct agent_client {
    tutti_map_node node;
    tutti_list_node link; /* of clients->idle; alone while ops or streams > 0 */
    char key[KEY_SIZE];
    uint64_t ops;
    uint64_t streams; /* a lease, commands: they end with the client */
    uint64_t came_ns;
    uint64_t number;
    bool lost;
};

void
agent_clients_init(agent_clients *clients, uint64_t ops_max)
{
    tutti_map_init(&clients->by_key);
    tutti_list_init(&clients->idle);
    clients->idle_count = 0;
    clients->last = 0;
    clients->ops_max = ops_max;
}

/* As snprintf would, which costs a fortieth of a small op. */
static void
add_to_key(char key[KEY_SIZE], size_t *used, tutti_bytes text)
{
    const size_t room = KEY_SIZE - 1 - *used;
    const size_t size = text.size < room ? text.size : room;

    memcpy(key + *used, text.data, size);
    *used += size;
}

/*
 * A long identity leaves less room for the rest, and clients of one identity may then share an
 * entry: they share a limit, no more. What a call shows can be made up, so this guards against
 * greedy clients and not against hostile ones, who have --ops-max in common.
 */
static void
write_key(const tutti_rpc_call *call, char ret_key[KEY_SIZE])
{
    static const char ours[] = "tutti";
    const tutti_bytes shown = tutti_rpc_call_metadata(call, "user-agent");
    const char *peer = tutti_rpc_call_peer(call);
    size_t used = 0;

    add_to_key(ret_key, &used, tutti_bytes_of(tutti_rpc_call_identity(call)));
    add_to_key(ret_key, &used, (tutti_bytes){" ", 1});
    if (shown.size >= sizeof(ours) - 1 && memcmp(shown.data, ours, sizeof(ours) - 1) == 0) {
        add_to_key(ret_key, &used,
                   (tutti_bytes){shown.data, shown.size > SHOWN_MAX ? SHOWN_MAX : shown.size});
    } else {
        add_to_key(ret_key, &used, tutti_bytes_of(peer));
    }
    ret_key[used] = '\0';
}

static void
forget_client(agent_clients *clients, agent_client *client)
{
    tutti_list_remove(&client->link);
    clients->idle_count--;
    tutti_map_remove(&clients->by_key, &client->node);
    free(client);
}

void
agent_clients_fini(agent_clients *clients)
{
    while (!tutti_list_empty(&clients->idle)) {
        forget_client(clients, tutti_container_of(clients->idle.next, agent_client, link));
    }
}

static void
rest_client(agent_clients *clients, agent_client *client)
{
    if (client->ops > 0 || client->streams > 0) {
        return;
    }
    tutti_list_add(&clients->idle, &client->link);
    clients->idle_count++;
    if (clients->idle_count > AGENT_CLIENTS_IDLE) {
        forget_client(clients, tutti_container_of(clients->idle.next, agent_client, link));
    }
}

/* The one that made the call, in no list; NULL: no memory. */
static agent_client *
wake_client(agent_clients *clients, const tutti_rpc_call *call)
{
    char key[KEY_SIZE];
    tutti_map_node *found;
    agent_client *client;

    write_key(call, key);
    found = tutti_map_find(&clients->by_key, tutti_bytes_of(key));
    if (found != NULL) {
        client = tutti_container_of(found, agent_client, node);
        if (client->ops == 0 && client->streams == 0) {
            tutti_list_remove(&client->link);
            clients->idle_count--;
        }
        return client;
    }
    client = calloc(1, sizeof(*client));
    if (client != NULL) {
        memcpy(client->key, key, sizeof(key));
        tutti_list_init(&client->link);
        client->came_ns = tutti_clock_ns();
        client->number = ++clients->last;
        client->node.key = tutti_bytes_of(client->key);
        (void)tutti_map_add(&clients->by_key, &client->node);
    }
    return client;
}

uint64_t
agent_clients_note(agent_clients *clients, const tutti_rpc_call *call)
{
    agent_client *client = wake_client(clients, call);

    if (client == NULL) {
        return 0;
    }
    client->lost = false;
    rest_client(clients, client);
    return client->number;
}

void
agent_clients_lose(agent_clients *clients, uint64_t number)
{
    tutti_map_node *node;

    for (node = tutti_map_first(&clients->by_key); node != NULL; node = tutti_map_next(node)) {
        agent_client *client = tutti_container_of(node, agent_client, node);

        client->lost = client->lost || client->number == number;
    }
}

tutti_code
agent_client_enter(agent_clients *clients, const tutti_rpc_call *call, agent_client **ret_client,
                   tutti_error *err)
{
    agent_client *client = wake_client(clients, call);

    if (client == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a client");
    }
    if (client->ops >= clients->ops_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "OP_LIMIT",
                              "%" PRIu64 " ops of this client are in flight, the limit of one "
                              "client (--client-ops-max): wait for some",
                              client->ops);
    }
    client->ops++;
    *ret_client = client;
    return TUTTI_OK;
}

void
agent_client_leave(agent_clients *clients, agent_client *client)
{
    if (client == NULL) {
        return;
    }
    client->ops--;
    rest_client(clients, client);
}

agent_client *
agent_clients_hold(agent_clients *clients, const tutti_rpc_call *call)
{
    agent_client *client = wake_client(clients, call);

    if (client != NULL) {
        client->streams++;
        client->lost = false;
    }
    return client;
}

uint64_t
agent_client_release(agent_clients *clients, agent_client *client)
{
    uint64_t came_ns = 0;

    if (client != NULL) {
        client->streams--;
        came_ns = client->streams == 0 ? client->came_ns : 0;
        rest_client(clients, client);
    }
    return came_ns;
}

bool
agent_clients_has(agent_clients *clients, uint64_t number)
{
    tutti_map_node *node;

    for (node = tutti_map_first(&clients->by_key); node != NULL && number != 0;
         node = tutti_map_next(node)) {
        const agent_client *client = tutti_container_of(node, agent_client, node);

        if (client->number == number) {
            return client->streams + client->ops > 0 && !client->lost;
        }
    }
    return false;
}

uint64_t
agent_client_came_ns(const agent_client *client)
{
    return client->came_ns;
}

uint64_t
agent_client_number(const agent_client *client)
{
    return client->number;
}

bool
agent_client_is_lost(const agent_client *client)
{
    return client->lost;
}
