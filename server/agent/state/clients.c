/*
 * How many ops each client has in flight. Control loop: both kinds of callers, ops and Backwards,
 * enter and leave there. An entry lives while its client has an op in flight, so clients that come
 * and go leave nothing behind.
 */
#include "server/agent/state/clients.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"

#define KEY_SIZE 384  /* an identity of 255, and as much of the rest as fits */
#define SHOWN_MAX 100 /* bytes of the user agent */

struct agent_client {
    tutti_map_node node;
    char key[KEY_SIZE];
    uint64_t ops;
};

void
agent_clients_init(agent_clients *clients, uint64_t ops_max)
{
    tutti_map_init(&clients->by_key);
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

tutti_code
agent_client_enter(agent_clients *clients, const tutti_rpc_call *call, agent_client **ret_client,
                   tutti_error *err)
{
    char key[KEY_SIZE];
    tutti_map_node *found;
    agent_client *client;

    write_key(call, key);
    found = tutti_map_find(&clients->by_key, tutti_bytes_of(key));
    client =
        found == NULL ? calloc(1, sizeof(*client)) : tutti_container_of(found, agent_client, node);
    if (client == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a client");
    }
    if (found == NULL) {
        memcpy(client->key, key, sizeof(key));
        client->node.key = tutti_bytes_of(client->key);
        (void)tutti_map_add(&clients->by_key, &client->node);
    } else if (client->ops >= clients->ops_max) {
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
    if (client->ops == 0) {
        tutti_map_remove(&clients->by_key, &client->node);
        free(client);
    }
}
