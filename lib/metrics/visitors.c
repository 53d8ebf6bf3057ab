/*
 * Who is connected. Whoever may connect could hold all connections by saying nothing, and the probe
 * that decides about the life of this server comes through the same port: so it is never the
 * newcomer that is turned away, but the one that has been idle for longest.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "metrics/metrics_private.h"

struct metrics_visitor {
    tutti_list_node link;
    int socket;   /* of our own: the number that HTTP has may be another's by the time it is used */
    bool busy;    /* a request of it is being answered */
    bool leaving; /* was hung up on; HTTP has not noticed yet */
};

void
metrics_visitors_init(metrics_visitors *self)
{
    tutti_list_init(&self->all);
    self->count = 0;
    (void)pthread_mutex_init(&self->lock, NULL);
}

void
metrics_visitors_fini(metrics_visitors *self)
{
    (void)pthread_mutex_destroy(&self->lock);
}

/*
 * With the lock held. Hangs up on the first of the list for which `busy` fits; the list is sorted
 * by when each was last heard of. The socket is only shut down here: the connection's own thread
 * reads its end, and closes and frees everything.
 */
static bool
hang_up_on_first(metrics_visitors *self, bool busy)
{
    tutti_list_node *at;
    tutti_list_node *spare;

    tutti_list_each(at, spare, &self->all)
    {
        metrics_visitor *visitor = tutti_container_of(at, metrics_visitor, link);

        if (!visitor->leaving && visitor->busy == busy && visitor->socket >= 0) {
            (void)shutdown(visitor->socket,
                           SHUT_RDWR); /* HTTP's thread hears the end, and closes */
            visitor->leaving = true;
            self->count--;
            return true;
        }
    }
    return false;
}

/*
 * The newcomer is let in before anything is asked of it. If all others are busy, the one whose
 * request began first goes.
 */
metrics_visitor *
metrics_visitors_come(metrics_visitors *self, int socket)
{
    metrics_visitor *visitor = calloc(1, sizeof(*visitor));

    if (visitor == NULL) {
        return NULL;
    }
    visitor->socket = fcntl(socket, F_DUPFD_CLOEXEC, 0);
    (void)pthread_mutex_lock(&self->lock);
    if (self->count >= TUTTI_METRICS_CONNECTIONS_MAX && !hang_up_on_first(self, false)) {
        (void)hang_up_on_first(self, true);
    }
    tutti_list_add(&self->all, &visitor->link);
    self->count++;
    (void)pthread_mutex_unlock(&self->lock);
    return visitor;
}

/* Moves the visitor to the end of the list, as it was just heard of. */
void
metrics_visitors_turn(metrics_visitors *self, metrics_visitor *visitor, bool busy)
{
    if (visitor == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&self->lock);
    visitor->busy = busy;
    tutti_list_remove(&visitor->link);
    tutti_list_add(&self->all, &visitor->link);
    (void)pthread_mutex_unlock(&self->lock);
}

void
metrics_visitors_go(metrics_visitors *self, metrics_visitor *visitor)
{
    if (visitor == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&self->lock);
    tutti_list_remove(&visitor->link);
    self->count -= visitor->leaving ? 0 : 1;
    (void)pthread_mutex_unlock(&self->lock);
    if (visitor->socket >= 0) {
        (void)close(visitor->socket);
    }
    free(visitor);
}
