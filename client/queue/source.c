/*
 * The stream as the source of completions: one thread at a time is in here (queue_ready). An event
 * of the stream is an answer, room for the next message, or the end.
 */
#include "base/error/fail.h"
#include "client/queue/queue.h"

static tutti_queue *
queue_of(queue_ready *ready)
{
    return tutti_container_of(ready, tutti_queue, ready);
}

/* Any of those that are not complete, claimed; NULL = none is left. */
static queue_item *
claim_any(tutti_queue *queue)
{
    tutti_map_node *node;
    uint64_t id = 0;

    (void)pthread_mutex_lock(&queue->lock);
    node = tutti_map_first(&queue->by_id);
    while (node != NULL && queue_stage_is_busy(tutti_container_of(node, queue_item, call.by_id))) {
        node = tutti_map_next(node); /* its upload sees that the stream has ended */
    }
    if (node != NULL) {
        id = tutti_container_of(node, queue_item, call.by_id)->call.id;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return node == NULL ? NULL : queue_claim(queue, id);
}

/* The first reason stays: what was shut down by the caller ends with that. */
static tutti_error
note_queue_end(tutti_queue *queue, const tutti_error *why)
{
    tutti_error ended;

    (void)pthread_mutex_lock(&queue->lock);
    if (queue->ended.code == TUTTI_OK) {
        queue->ended = *why;
    }
    queue->broken = true;
    ended = queue->ended;
    (void)pthread_mutex_unlock(&queue->lock);
    return ended;
}

void
queue_break(tutti_queue *queue, const tutti_error *why)
{
    const tutti_error ended = note_queue_end(queue, why);
    queue_item *item;

    while ((item = claim_any(queue)) != NULL) {
        item->call.result.error = ended;
        queue_finish(queue, item);
    }
    queue_end_when_empty(queue);
}

void
queue_end_when_empty(tutti_queue *queue)
{
    bool empty;

    (void)pthread_mutex_lock(&queue->lock);
    empty = queue->broken && queue->incomplete == 0;
    (void)pthread_mutex_unlock(&queue->lock);
    if (empty) {
        queue_ready_end(&queue->ready);
    }
}

/* Its own words, unless the stream ended well, which it does only when the agent stops. */
static void
end_source(tutti_queue *queue, const tutti_error *failure)
{
    tutti_error err;
    const tutti_code code = tutti_rpc_duplex_end(queue->duplex, &err);

    if (code == TUTTI_OK) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "CONNECTION_LOST",
                             "the agent has ended the stream of commands: open another queue");
    }
    queue_ready_dry(&queue->ready);
    queue_break(queue, failure->code == TUTTI_OK ? &err : failure);
}

static void
take_queue_answer(tutti_queue *queue, tutti_rpc_message *message)
{
    tutti_error err;

    if (queue_read_answer(queue, message, &err) != TUTTI_OK) {
        tutti_rpc_duplex_cancel(queue->duplex);
        (void)note_queue_end(queue, &err);
    }
}

static void
write_next_message(tutti_queue *queue)
{
    (void)pthread_mutex_lock(&queue->lock);
    queue->writing = false;
    (void)pthread_mutex_unlock(&queue->lock);
    queue_flush(queue);
}

/* One event, besides those that only make room for a message. */
static void
poll_stream(queue_ready *ready, uint64_t deadline_ns)
{
    tutti_queue *queue = queue_of(ready);
    tutti_rpc_message *message = NULL;
    tutti_rpc_event event;
    tutti_error err;

    do {
        event = tutti_rpc_duplex_poll(queue->duplex, deadline_ns, &message, &err);
        if (event == TUTTI_RPC_MESSAGE) {
            take_queue_answer(queue, message);
        } else if (event == TUTTI_RPC_WRITTEN) {
            write_next_message(queue);
        } else if (event == TUTTI_RPC_ENDED) {
            end_source(queue, &err);
        }
    } while (event == TUTTI_RPC_WRITTEN);
}

static void
wake_stream(queue_ready *ready)
{
    tutti_rpc_duplex_wake(queue_of(ready)->duplex);
}

const queue_source queue_stream_source = {.poll = poll_stream, .wake = wake_stream};
