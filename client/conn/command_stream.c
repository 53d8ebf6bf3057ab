/*
 * The command streams of a client: which are idle, how many there are, when they end. Any thread;
 * the list and the count are behind the client's lock, a stream itself belongs to the call that
 * acquired it.
 *
 * If the server restarts, stops or closes its connections while a stream is idle, the stream has
 * ended: is_whole finds that out without waiting, and another one is made. COMMAND_STREAMS_MAX
 * bounds the streams at each server; further calls at the same time are unary.
 */
#include "client/conn/command_stream.h"

#include <stdlib.h>

#include "base/os/clock.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"

#define COMMAND_STREAMS_MAX 16 /* of one client: more calls at once go by themselves */
#define CLOSE_MS 100           /* for the server to say that it has heard */
#define NOW_NS 1               /* a time long past: look, do not wait */
#define FRESH_NS TUTTI_NS_PER_MS

static client_streams *
streams_of(tutti_client *client, const client_stream_service *service)
{
    return &client->streams[service->kind];
}

/* Streams of the coordinator make no tensors. */
static uint64_t
lease_of(const tutti_client *client, const client_stream_service *service)
{
    return service->conn_kind == CLIENT_COORDINATOR ? 0 : atomic_load(&client->lease);
}

static tutti_code
open_command_stream(const tutti_client *client, client_command_stream *self)
{
    const tutti_rpc_call_options options = {.lease = lease_of(client, self->service),
                                            .lane = self->lane == NULL ? NULL : &self->lane->end};

    self->lease = options.lease;
    return tutti_rpc_stream_open(self->conn->channel, self->service->run, &options, &self->stream,
                                 NULL);
}

/*
 * Make a stream, with a use of the server's connection. NULL: no memory or no connection; the call
 * is then made as a unary one, which reports why.
 */
static client_command_stream *
new_stream(tutti_client *client, const client_stream_service *service)
{
    client_command_stream *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    tutti_list_init(&self->link);
    self->service = service;
    if (client_conn_take(client, service->conn_kind, &self->conn, NULL) != TUTTI_OK) {
        free(self);
        return NULL;
    }
    self->lane = client_lane_open(client, service);
    if (open_command_stream(client, self) != TUTTI_OK) {
        client_lane_close(self->lane);
        client_conn_give(client, self->conn);
        free(self);
        return NULL;
    }
    return self;
}

static void
forget_command_stream(tutti_client *client, client_streams *streams)
{
    (void)pthread_mutex_lock(&client->lock);
    streams->count--;
    (void)pthread_mutex_unlock(&client->lock);
}

/* [out] ret_new  there is none, and one more may be made: it is counted */
static client_command_stream *
take_idle(tutti_client *client, client_streams *streams, bool *ret_new)
{
    tutti_list_node *link;

    (void)pthread_mutex_lock(&client->lock);
    link = tutti_list_pop(&streams->idle);
    *ret_new = link == NULL && streams->count < COMMAND_STREAMS_MAX;
    streams->count += *ret_new ? 1 : 0;
    (void)pthread_mutex_unlock(&client->lock);
    return link == NULL ? NULL : tutti_container_of(link, client_command_stream, link);
}

/*
 * Is the stream still good? Nothing can be read from an idle stream but its end, so a read that
 * would not block means that it has ended. A stream on a connection that was given up
 * (client_conn_break) is not used either, nor one of another lease than the client's.
 *
 * Behind an answer of a moment ago nobody looks: a look is a system call, and with many threads one
 * that makes them wait for each other (a third of the calls of 64 threads). A call that finds the
 * server gone then fails as one under way.
 */
static bool
is_whole(tutti_client *client, const client_command_stream *self)
{
    bool current;

    (void)pthread_mutex_lock(&client->lock);
    current = client->conns[self->service->conn_kind] == self->conn;
    (void)pthread_mutex_unlock(&client->lock);
    return current && self->lease == lease_of(client, self->service) &&
           (tutti_clock_ns() - self->idle_ns < FRESH_NS ||
            !tutti_rpc_stream_wait(self->stream, NOW_NS));
}

/*
 * Half-close and wait a moment for the server's OK, so that it does not count the stream
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
    return self->lane == NULL && client_lane_may_ask(client, self->service);
}

client_command_stream *
client_command_stream_acquire(tutti_client *client, const client_stream_service *service)
{
    client_streams *streams = streams_of(client, service);
    client_command_stream *commands;
    bool is_new;

    if (client_check_process(client, NULL) != TUTTI_OK) {
        return NULL;
    }
    while ((commands = take_idle(client, streams, &is_new)) != NULL) {
        if (!is_whole(client, commands)) {
            tutti_rpc_stream_cancel(commands->stream);
        } else if (may_be_faster(client, commands)) {
            close_gracefully(commands);
        } else {
            return commands;
        }
        (void)client_command_stream_drop(client, commands, NULL);
    }
    commands = is_new ? new_stream(client, service) : NULL;
    if (is_new && commands == NULL) {
        forget_command_stream(client, streams);
    }
    return commands;
}

void
client_command_stream_release(tutti_client *client, client_command_stream *commands)
{
    commands->idle_ns = tutti_clock_ns();
    (void)pthread_mutex_lock(&client->lock);
    /* To the front: the last one used is in the caches. */
    tutti_list_add(streams_of(client, commands->service)->idle.next, &commands->link);
    (void)pthread_mutex_unlock(&client->lock);
}

tutti_code
client_command_stream_drop(tutti_client *client, client_command_stream *commands, tutti_error *err)
{
    const tutti_code code = tutti_rpc_stream_finish(commands->stream, err);
    client_streams *streams = streams_of(client, commands->service);

    client_lane_close(commands->lane);
    client_conn_give(client, commands->conn);
    free(commands);
    forget_command_stream(client, streams);
    return code;
}

void
client_shuttles_init(tutti_client *client)
{
    size_t i;

    for (i = 0; i < CLIENT_STREAM_KINDS; i++) {
        tutti_list_init(&client->streams[i].idle);
    }
}

static void
close_idle(tutti_client *client, client_streams *streams)
{
    client_command_stream *commands;
    bool is_new;

    while ((commands = take_idle(client, streams, &is_new)) != NULL) {
        close_gracefully(commands);
        (void)client_command_stream_drop(client, commands, NULL);
    }
    streams->count -= is_new ? 1 : 0;
}

void
client_shuttles_close(tutti_client *client)
{
    size_t i;

    for (i = 0; i < CLIENT_STREAM_KINDS; i++) {
        close_idle(client, &client->streams[i]);
    }
}
