/*
 * The command streams of a client: which are idle, how many there are, when they end. Any thread;
 * the list and the count are behind the client's lock, a stream itself belongs to the call that
 * acquired it.
 *
 * If the agent restarts, stops or closes its connections while a stream is idle, the stream has
 * ended: is_whole finds that out without waiting, and another one is made. COMMAND_STREAMS_MAX
 * bounds the streams at the agent; further calls at the same time are unary.
 */
#include "client/conn/command_stream.h"

#include <stdlib.h>

#include "base/os/clock.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"

#define COMMAND_STREAMS_MAX 16 /* of one client: more calls at once go by themselves */
#define CLOSE_MS 100           /* for the agent to say that it has heard */
#define NOW_NS 1               /* a time long past: look, do not wait */

/*
 * Make a stream, with a use of the control connection. NULL: no memory or no connection; the call
 * is then made as a unary one, which reports why.
 */
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
    self->lane = client_lane_open(client);
    if (client_command_stream_open(client, self, NULL) != TUTTI_OK) {
        client_lane_close(self->lane);
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

/*
 * Is the stream still good? Nothing can be read from an idle stream but its end, so a read that
 * would not block means that it has ended. A stream on a connection that was given up
 * (client_conn_break) is not used either, nor one of another lease than the client's.
 */
static bool
is_whole(tutti_client *client, const client_command_stream *self)
{
    bool current;

    (void)pthread_mutex_lock(&client->lock);
    current = client->conns[CLIENT_CONTROL] == self->conn;
    (void)pthread_mutex_unlock(&client->lock);
    return current && self->lease == atomic_load(&client->lease) &&
           !tutti_rpc_stream_wait(self->stream, NOW_NS);
}

/*
 * Half-close and wait a moment for the agent's OK, so that the agent does not count the stream
 * among the calls that broke.
 */
static void
close_gracefully(client_command_stream *commands)
{
    const uint64_t until_ns = tutti_clock_add(tutti_clock_ns(), CLOSE_MS * TUTTI_NS_PER_MS);

    (void)tutti_rpc_stream_writes_done(commands->stream, NULL);
    if (!tutti_rpc_stream_wait(commands->stream, until_ns)) {
        tutti_rpc_stream_cancel(commands->stream);
    }
}

/* A stream by gRPC, that another one could replace by a lane. */
static bool
may_be_faster(const tutti_client *client, const client_command_stream *self)
{
    return self->lane == NULL && client_lane_may_ask(client);
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
        if (!is_whole(client, commands)) {
            tutti_rpc_stream_cancel(commands->stream);
        } else if (may_be_faster(client, commands)) {
            close_gracefully(commands);
        } else {
            return commands;
        }
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
    /* To the front: the last one used is in the caches. */
    tutti_list_add(client->shuttles.next, &commands->link);
    (void)pthread_mutex_unlock(&client->lock);
}

tutti_code
client_command_stream_drop(tutti_client *client, client_command_stream *commands, tutti_error *err)
{
    const tutti_code code = tutti_rpc_stream_finish(commands->stream, err);

    client_lane_close(commands->lane);
    client_conn_give(client, commands->conn);
    free(commands);
    forget_command_stream(client);
    return code;
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
