#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/util/process.h"
#include "sim/core/core_private.h"

typedef struct queued {
    tutti_list_node link;
    void *tag;
    bool ok;
} queued;

struct grpc_completion_queue {
    tutti_list_node events;
    unsigned expected;
    bool closed;
};

grpc_completion_queue *
grpc_completion_queue_create_for_next(void *reserved)
{
    grpc_completion_queue *self = calloc(1, sizeof(*self));

    (void)reserved;
    assert(self != NULL);
    tutti_list_init(&self->events);
    return self;
}

grpc_completion_queue *
grpc_completion_queue_create_for_pluck(void *reserved)
{
    return grpc_completion_queue_create_for_next(reserved);
}

void
grpc_completion_queue_shutdown(grpc_completion_queue *cq)
{
    cq->closed = true;
}

void
grpc_completion_queue_destroy(grpc_completion_queue *cq)
{
    if (!cq->closed || cq->expected > 0 || !tutti_list_empty(&cq->events)) {
        sim_fail("a completion queue is destroyed with %u events to come", cq->expected);
    }
    free(cq);
}

void
core_queue_expect(grpc_completion_queue *queue)
{
    if (queue->closed) {
        sim_fail("a batch is started on a queue that is shut down");
    }
    queue->expected++;
}

void
core_queue_put(grpc_completion_queue *queue, void *tag, bool ok)
{
    queued *event = malloc(sizeof(*event));

    assert(event != NULL && queue->expected > 0);
    *event = (queued){.tag = tag, .ok = ok};
    queue->expected--;
    tutti_list_add(&queue->events, &event->link);
}

core_batch *
core_batch_new(grpc_completion_queue *queue, void *tag, unsigned parts)
{
    core_batch *self = malloc(sizeof(*self));

    assert(self != NULL);
    core_queue_expect(queue);
    *self = (core_batch){.queue = queue, .tag = tag, .left = parts, .ok = true};
    return self;
}

void
core_batch_drop(core_batch *self, bool ok)
{
    self->ok = self->ok && ok;
    if (--self->left == 0) {
        core_queue_put(self->queue, self->tag, self->ok);
        free(self);
    }
}

/* ------------------------------------------------------------------------------ waiting */

typedef struct look {
    grpc_completion_queue *queue;
    void *tag; /* NULL: any */
    queued *found;
} look;

static bool
finds_event(void *arg)
{
    look *self = arg;
    tutti_list_node *at;

    for (at = self->queue->events.next; at != &self->queue->events; at = at->next) {
        queued *event = tutti_container_of(at, queued, link);

        if (self->tag == NULL || event->tag == self->tag) {
            tutti_list_remove(at);
            self->found = event;
            return true;
        }
    }
    return self->tag == NULL && self->queue->closed && self->queue->expected == 0;
}

static grpc_event
await_event(look *self, gpr_timespec deadline)
{
    grpc_event event = {.type = GRPC_QUEUE_TIMEOUT};
    const uint64_t at_ns = rpc_time_from(deadline);

    if (!sim_in_task() ? !finds_event(self) : !sim_wait(finds_event, self, at_ns)) {
        return event;
    }
    event.type = GRPC_QUEUE_SHUTDOWN;
    if (self->found != NULL) {
        event = (grpc_event){.type = GRPC_OP_COMPLETE, self->found->ok, self->found->tag};
        free(self->found);
    }
    return event;
}

grpc_event
grpc_completion_queue_next(grpc_completion_queue *cq, gpr_timespec deadline, void *reserved)
{
    look self = {.queue = cq};

    (void)reserved;
    return await_event(&self, deadline);
}

grpc_event
grpc_completion_queue_pluck(grpc_completion_queue *cq, void *tag, gpr_timespec deadline,
                            void *reserved)
{
    look self = {.queue = cq, .tag = tag};

    (void)reserved;
    return await_event(&self, deadline);
}
