/* The streams of commands that stay open: who has one, and when they end. */
#include "client/conn/command_stream.h"

#include <stdlib.h>

#include "base/os/clock.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"

#define COMMAND_STREAMS_MAX 16 /* of one client: more calls at once go by themselves */
#define CLOSE_MS 100           /* for the agent to say that it has heard */
#define NOW_NS 1               /* a time that has passed */

/* With a line of its own use. */
static client_command_stream *
new_stream(tutti_client *client)
{
    client_command_stream *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    tutti_list_init(&self->link);
    if (client_conn_take(client, CLIENT_CONTROL, &self->conn, NULL) != TUTTI_OK) {
        free(self);
        return NULL;
    }
    if (client_command_stream_open(self, NULL) != TUTTI_OK) {
        client_conn_give(client, self->conn);
        free(self);
        return NULL;
    }
    return self;
}

static void
forget_command_stream(tutti_client *client)
{
    (void)pthread_mutex_lock(&client->lock);
    client->command_stream_count--;
    (void)pthread_mutex_unlock(&client->lock);
}

/* [out] ret_new  there is none, and one more may be made: it is counted */
static client_command_stream *
take_idle(tutti_client *client, bool *ret_new)
{
    tutti_list_node *link;

    (void)pthread_mutex_lock(&client->lock);
    link = tutti_list_pop(&client->shuttles);
    *ret_new = link == NULL && client->command_stream_count < COMMAND_STREAMS_MAX;
    client->command_stream_count += *ret_new ? 1 : 0;
    (void)pthread_mutex_unlock(&client->lock);
    return link == NULL ? NULL : tutti_container_of(link, client_command_stream, link);
}

/* Not while it was idle: the agent went away, or said that it stops, or its connection is given up.
 */
static bool
is_whole(tutti_client *client, const client_command_stream *self)
{
    bool current;

    (void)pthread_mutex_lock(&client->lock);
    current = client->conns[CLIENT_CONTROL] == self->conn;
    (void)pthread_mutex_unlock(&client->lock);
    return current && !tutti_rpc_stream_wait(self->stream, NOW_NS);
}

client_command_stream *
client_command_stream_acquire(tutti_client *client)
{
    client_command_stream *commands;
    bool is_new;

    if (client_check_process(client, NULL) != TUTTI_OK) {
        return NULL;
    }
    while ((commands = take_idle(client, &is_new)) != NULL) {
        if (is_whole(client, commands)) {
            return commands;
        }
        tutti_rpc_stream_cancel(commands->stream);
        (void)client_command_stream_drop(client, commands, NULL);
    }
    commands = is_new ? new_stream(client) : NULL;
    if (is_new && commands == NULL) {
        forget_command_stream(client);
    }
    return commands;
}

void
client_command_stream_release(tutti_client *client, client_command_stream *commands)
{
    (void)pthread_mutex_lock(&client->lock);
    tutti_list_add(client->shuttles.next, &commands->link); /* first: it is warm */
    (void)pthread_mutex_unlock(&client->lock);
}

tutti_code
client_command_stream_drop(tutti_client *client, client_command_stream *commands, tutti_error *err)
{
    const tutti_code code = tutti_rpc_stream_finish(commands->stream, err);

    client_conn_give(client, commands->conn);
    free(commands);
    forget_command_stream(client);
    return code;
}

/* So that the agent need not count it among the calls that broke. */
static void
close_gracefully(client_command_stream *commands)
{
    const uint64_t until_ns = tutti_clock_add(tutti_clock_ns(), CLOSE_MS * TUTTI_NS_PER_MS);

    (void)tutti_rpc_stream_writes_done(commands->stream, NULL);
    if (!tutti_rpc_stream_wait(commands->stream, until_ns)) {
        tutti_rpc_stream_cancel(commands->stream);
    }
}

void
client_shuttles_close(tutti_client *client)
{
    client_command_stream *commands;
    bool is_new;

    while ((commands = take_idle(client, &is_new)) != NULL) {
        close_gracefully(commands);
        (void)client_command_stream_drop(client, commands, NULL);
    }
    client->command_stream_count -= is_new ? 1 : 0;
}
