/*
 * Which of a channel's connections a call takes. A server takes so many calls on one connection (ours: --streams-max, 100),
 * and gRPC lets further ones wait, without a word, until another one has ended. If all of these wait for something that
 * one of the further ones would bring, they wait for ever. So a channel opens more connections when one is nearly full.
 *
 * The first connection is counted by an atomic, because most channels never have another one. The others are behind the
 * channel's lock.
 */
#include "rpc/channel/channel_private.h"
#include "rpc/util/process.h"

size_t
rpc_connection_take(tutti_rpc_channel *channel)
{
    size_t i;

    if (atomic_fetch_add_explicit(&channel->calls, 1, memory_order_relaxed) <
        TUTTI_RPC_CONNECTION_CALLS) {
        return 0;
    }
    (void)pthread_mutex_lock(&channel->lock);
    for (i = 0; i < TUTTI_RPC_CONNECTIONS_MORE; i++) {
        rpc_connection *more = &channel->more[i];

        if (more->calls < TUTTI_RPC_CONNECTION_CALLS &&
            (more->grpc != NULL || rpc_channel_make(channel, &more->grpc, NULL) == TUTTI_OK)) {
            more->calls++;
            break;
        }
    }
    (void)pthread_mutex_unlock(&channel->lock);
    if (i == TUTTI_RPC_CONNECTIONS_MORE) {
        return 0; /* it waits for the end of another one */
    }
    (void)atomic_fetch_sub_explicit(&channel->calls, 1, memory_order_relaxed);
    return i + 1;
}

void
rpc_connection_give(tutti_rpc_channel *channel, size_t connection)
{
    if (connection == 0) {
        (void)atomic_fetch_sub_explicit(&channel->calls, 1, memory_order_relaxed);
        return;
    }
    (void)pthread_mutex_lock(&channel->lock);
    channel->more[connection - 1].calls--;
    (void)pthread_mutex_unlock(&channel->lock);
}

grpc_call *
rpc_connection_call(tutti_rpc_channel *channel, size_t connection, const char *path,
                    grpc_completion_queue *queue, uint64_t deadline_ns)
{
    const grpc_slice method = grpc_slice_from_static_string(path);
    grpc_channel *grpc;
    grpc_call *call;

    (void)pthread_mutex_lock(&channel->lock);
    grpc = connection == 0 ? NULL : channel->more[connection - 1].grpc;
    call =
        grpc_channel_create_call(grpc == NULL ? channel->grpc : grpc, NULL, GRPC_PROPAGATE_DEFAULTS,
                                 queue, method, NULL, rpc_time_to(deadline_ns), NULL);
    (void)pthread_mutex_unlock(&channel->lock);
    return call;
}

/* Calls on the others run on; the next one makes a connection anew. */
static void
forget_more(tutti_rpc_channel *channel)
{
    size_t i;

    for (i = 0; i < TUTTI_RPC_CONNECTIONS_MORE; i++) {
        if (channel->more[i].grpc != NULL) {
            grpc_channel_destroy(channel->more[i].grpc);
            channel->more[i].grpc = NULL;
        }
    }
}

void
rpc_connections_replace(tutti_rpc_channel *channel, grpc_channel *fresh)
{
    if (channel->secrets.retired != NULL) {
        grpc_channel_destroy(channel->secrets.retired); /* its calls run on */
    }
    channel->secrets.retired = channel->grpc;
    channel->grpc = fresh;
    forget_more(channel);
}

void
rpc_connections_close(tutti_rpc_channel *channel)
{
    if (channel->grpc != NULL) {
        grpc_channel_destroy(channel->grpc);
    }
    forget_more(channel);
}
