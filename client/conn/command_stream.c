/* The streams of commands that stay open: who has one, and when they end. */
#include "client/conn/command_stream.h"

#include <stdlib.h>

#include "base/os/clock.h"
#include "client/conn/channel_pool.h"
#include "client/conn/client.h"

#define SHUTTLES_MOST 16 /* of one client: more calls at once go by themselves */
#define GOODBYE_MS 100   /* for the agent to say that it has heard */
#define NOW_NS 1         /* a time that has passed */

/* With a line of its own use. */
static client_shuttle *
new_shuttle(tutti_client *client)
{
    client_shuttle *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    tutti_list_init(&self->link);
    if (client_line_take(client, CLIENT_CONTROL, &self->line, NULL) != TUTTI_OK) {
        free(self);
        return NULL;
    }
    if (client_shuttle_open(self, NULL) != TUTTI_OK) {
        client_line_give(client, self->line);
        free(self);
        return NULL;
    }
    return self;
}

static void
forget(tutti_client *client)
{
    (void)pthread_mutex_lock(&client->lock);
    client->shuttle_count--;
    (void)pthread_mutex_unlock(&client->lock);
}

/* [out] ret_new  there is none, and one more may be made: it is counted */
static client_shuttle *
take_idle(tutti_client *client, bool *ret_new)
{
    tutti_link *link;

    (void)pthread_mutex_lock(&client->lock);
    link = tutti_list_pop(&client->shuttles);
    *ret_new = link == NULL && client->shuttle_count < SHUTTLES_MOST;
    client->shuttle_count += *ret_new ? 1 : 0;
    (void)pthread_mutex_unlock(&client->lock);
    return link == NULL ? NULL : tutti_container_of(link, client_shuttle, link);
}

/* Not while it was idle: the agent went away, or said that it stops, or its connection is given up.
 */
static bool
is_whole(tutti_client *client, const client_shuttle *self)
{
    bool current;

    (void)pthread_mutex_lock(&client->lock);
    current = client->lines[CLIENT_CONTROL] == self->line;
    (void)pthread_mutex_unlock(&client->lock);
    return current && !tutti_rpc_stream_wait(self->stream, NOW_NS);
}

client_shuttle *
client_shuttle_take(tutti_client *client)
{
    client_shuttle *shuttle;
    bool is_new;

    if (client_check_process(client, NULL) != TUTTI_OK) {
        return NULL;
    }
    while ((shuttle = take_idle(client, &is_new)) != NULL) {
        if (is_whole(client, shuttle)) {
            return shuttle;
        }
        tutti_rpc_stream_cancel(shuttle->stream);
        (void)client_shuttle_drop(client, shuttle, NULL);
    }
    shuttle = is_new ? new_shuttle(client) : NULL;
    if (is_new && shuttle == NULL) {
        forget(client);
    }
    return shuttle;
}

void
client_shuttle_give(tutti_client *client, client_shuttle *shuttle)
{
    (void)pthread_mutex_lock(&client->lock);
    tutti_list_add(client->shuttles.next, &shuttle->link); /* first: it is warm */
    (void)pthread_mutex_unlock(&client->lock);
}

tutti_code
client_shuttle_drop(tutti_client *client, client_shuttle *shuttle, tutti_error *err)
{
    const tutti_code code = tutti_rpc_stream_finish(shuttle->stream, err);

    client_line_give(client, shuttle->line);
    free(shuttle);
    forget(client);
    return code;
}

/* So that the agent need not count it among the calls that broke. */
static void
say_goodbye(client_shuttle *shuttle)
{
    const uint64_t until_ns = tutti_clock_add(tutti_clock_ns(), GOODBYE_MS * TUTTI_NS_PER_MS);

    (void)tutti_rpc_stream_writes_done(shuttle->stream, NULL);
    if (!tutti_rpc_stream_wait(shuttle->stream, until_ns)) {
        tutti_rpc_stream_cancel(shuttle->stream);
    }
}

void
client_shuttles_close(tutti_client *client)
{
    client_shuttle *shuttle;
    bool is_new;

    while ((shuttle = take_idle(client, &is_new)) != NULL) {
        say_goodbye(shuttle);
        (void)client_shuttle_drop(client, shuttle, NULL);
    }
    client->shuttle_count -= is_new ? 1 : 0;
}
