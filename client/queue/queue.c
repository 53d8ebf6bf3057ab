/*
 * A queue's life, and its submissions on their way.
 *
 * Two locks: the queue's (`lock`) and that of its completions (in `ready`), which is taken inside of
 * it at most. gRPC is called with neither held, but for what only wakes.
 *
 * Writing. A message that was submitted is in the outbox until it is written. One thread writes at a
 * time: who sets `writing` under the lock, until the message has left. By a lane that is so at once,
 * unless the ring is full; else the stream says so by an event (source.c), which is seen by whoever polls; if
 * nobody does, the next submission looks.
 */
#include "client/queue/queue.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/thread.h"
#include "client/conn/client.h"
#include "client/conn/options.h"

#define BYTES_MAX ((size_t)48 << 20) /* less than what the agent reads of one stream */
#define PAST_NS 1                    /* take what is there */
#define CLOSE_MS 100                 /* for the agent to say that it has heard */
#define GLANCES 64                   /* events that may stand before the one that makes room */

void
tutti_queue_options_init(tutti_queue_options *options)
{
    *options = (tutti_queue_options){.size = sizeof(*options)};
}

/* ------------------------------------------------------------------------------ items */

void
queue_item_free(tutti_queue *queue, queue_item *item)
{
    if (item != NULL) {
        client_blocks_free(queue->client, &item->blocks, false);
        tutti_rpc_packed_free(item->message.packed);
        tutti_rpc_packed_free(item->cancel.packed);
        tutti_op_more_free(&item->call.result.more);
        client_list_free(item->list);
        free(item->stage);
        free(item);
    }
}

/* With the lock. */
static tutti_code
check_room(const tutti_queue *queue, const queue_item *item, tutti_error *err)
{
    if (queue->ended.code != TUTTI_OK) {
        if (queue->shut) {
            return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "QUEUE_SHUT",
                                  "the queue was shut down: open another one");
        }
        return tutti_error_pass(err, &queue->ended);
    }
    if (queue->outstanding >= queue->outstanding_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "QUEUE_FULL",
                              "%zu ops are outstanding in the queue, at most %" PRIu32
                              ": take completions, then submit again",
                              queue->outstanding, queue->outstanding_max);
    }
    if (queue->bytes > 0 && queue->bytes + item->call.payload_bytes > BYTES_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "QUEUE_FULL",
                              "%zu bytes are outstanding in the queue, and %zu more would be more "
                              "than %zu: take completions, then submit again",
                              queue->bytes, item->call.payload_bytes, BYTES_MAX);
    }
    return TUTTI_OK;
}

tutti_code
queue_enter(tutti_queue *queue, queue_item *item, tutti_error *err)
{
    tutti_code code;

    (void)pthread_mutex_lock(&queue->lock);
    code = check_room(queue, item, err);
    if (code == TUTTI_OK && item->stage != NULL) {
        code = queue_stage_begin(queue, item, err);
    }
    if (code == TUTTI_OK) {
        item->call.by_id.key = tutti_map_key_u64(item->call.key, item->call.id);
        (void)tutti_map_add(&queue->by_id, &item->call.by_id);
        queue->outstanding++;
        queue->incomplete++;
        queue->bytes += item->call.payload_bytes;
        tutti_list_add(&queue->outbox, &item->message.link);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return code;
}

/* With the lock. */
static queue_item *
find_item(const tutti_queue *queue, uint64_t id)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&queue->by_id, tutti_map_key_u64(key, id));

    return node == NULL ? NULL : tutti_container_of(node, queue_item, call.by_id);
}

queue_item *
queue_claim(tutti_queue *queue, uint64_t id)
{
    queue_item *item;

    (void)pthread_mutex_lock(&queue->lock);
    item = find_item(queue, id);
    if (item != NULL) {
        tutti_map_remove(&queue->by_id, &item->call.by_id);
        tutti_list_remove(&item->message.link);
        tutti_list_remove(&item->cancel.link);
        queue->bytes -= item->call.payload_bytes;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return item;
}

/* An op that has failed may write its blocks still: the arena finds out when it does not any more. */
static void
leave_arena(tutti_queue *queue, queue_item *item)
{
    const bool good = item->call.result.error.code == TUTTI_OK;

    if (item->list != NULL) {
        client_list_leave(item->list, !good);
    }
    if (good) {
        client_blocks_take(queue->client, &item->blocks, item->result, item->result_bytes);
    }
    client_blocks_free(queue->client, &item->blocks, !good);
}

void
queue_finish(tutti_queue *queue, queue_item *item)
{
    if (item->stage != NULL) {
        queue_stage_finish(queue, item);
    } else {
        leave_arena(queue, item);
        queue_complete(queue, item);
    }
}

void
queue_complete(tutti_queue *queue, queue_item *item)
{
    item->call.result.id = item->call.id;
    queue_ready_put(&queue->ready, &item->link);
    (void)pthread_mutex_lock(&queue->lock);
    queue->incomplete--; /* behind the put: what ends the queue must not overtake it */
    (void)pthread_mutex_unlock(&queue->lock);
}

/* ------------------------------------------------------------------------------ writing */

/* With the lock: the first message of the outbox is not held for its upload. */
static bool
is_first_free(const tutti_queue *queue)
{
    const queue_message *first = tutti_container_of(queue->outbox.next, queue_message, link);

    return !tutti_list_empty(&queue->outbox) && (first->held == NULL || !*first->held);
}

static bool
may_write_message(const tutti_queue *queue)
{
    return !queue->writing && !queue->broken && is_first_free(queue);
}

/*
 * The next message, and the right to write it; NULL: there is none, or another thread writes.
 *
 * [in] left  this thread has the right already, and what it wrote has left
 */
static tutti_rpc_packed *
next_message(tutti_queue *queue, bool left, bool *ret_more)
{
    tutti_rpc_packed *packed = NULL;
    tutti_list_node *link;

    (void)pthread_mutex_lock(&queue->lock);
    queue->writing = queue->writing && !left;
    link = may_write_message(queue) ? tutti_list_pop(&queue->outbox) : NULL;
    if (link != NULL) {
        queue_message *message = tutti_container_of(link, queue_message, link);

        packed = message->packed;
        message->packed = NULL;
        queue->writing = true;
    }
    *ret_more = is_first_free(queue);
    (void)pthread_mutex_unlock(&queue->lock);
    return packed;
}

void
queue_flush(tutti_queue *queue)
{
    tutti_rpc_packed *packed;
    bool left = false;
    bool more;

    do {
        packed = next_message(queue, left, &more);
        left = packed != NULL && tutti_rpc_duplex_write(queue->duplex, packed, more);
    } while (left);
}

static bool
is_held_back(tutti_queue *queue)
{
    bool held;

    (void)pthread_mutex_lock(&queue->lock);
    held = !queue->broken && is_first_free(queue);
    (void)pthread_mutex_unlock(&queue->lock);
    return held;
}

void
queue_send(tutti_queue *queue)
{
    int i = 0;

    queue_flush(queue);
    while (i < GLANCES && is_held_back(queue) && queue_ready_glance(&queue->ready)) {
        i++;
    }
}

/* ------------------------------------------------------------------------------ cancelling */

/* With the lock. TUTTI_OK without taking `packed`: it was cancelled before. */
static tutti_code
add_cancel(tutti_queue *queue, uint64_t id, tutti_rpc_packed **packed, tutti_error *err)
{
    queue_item *item = find_item(queue, id);

    if (item == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NOTHING_SUBMITTED",
                              "op %" PRIu64
                              " is not outstanding in the queue, or its completion is "
                              "there already",
                              id);
    }
    if (!item->cancelled) {
        item->cancelled = true;
        item->cancel.packed = *packed;
        *packed = NULL;
        tutti_list_add(&queue->outbox, &item->cancel.link);
    }
    return TUTTI_OK;
}

tutti_code
tutti_queue_cancel(tutti_queue *queue, uint64_t id, tutti_error *err)
{
    TUTTI_NEED(queue, err);

    tutti_rpc_packed *packed;
    tutti_code code;

    TUTTI_TRY(client_check_process(queue->client, err));
    packed = queue_pack_cancel(id);
    if (packed == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory to cancel an op");
    }
    (void)pthread_mutex_lock(&queue->lock);
    code = add_cancel(queue, id, &packed, err);
    (void)pthread_mutex_unlock(&queue->lock);
    tutti_rpc_packed_free(packed);
    queue_send(queue);
    return code;
}

/* ------------------------------------------------------------------------------ taking */

static void
hand_over_item(tutti_queue *queue, tutti_list_node *link, tutti_queue_completion *ret_done)
{
    queue_item *item = tutti_container_of(link, queue_item, link);

    *ret_done = (tutti_queue_completion){.id = item->call.id,
                                         .user = item->user,
                                         .error = item->call.result.error,
                                         .op = item->call.result.op,
                                         .more = item->call.result.more};
    item->call.result.more = (tutti_op_more){0};
    (void)pthread_mutex_lock(&queue->lock);
    queue->outstanding--;
    (void)pthread_mutex_unlock(&queue->lock);
    queue_item_free(queue, item);
}

static tutti_code
fail_empty(tutti_queue *queue, uint32_t timeout_ms, tutti_error *err)
{
    tutti_code code;

    (void)pthread_mutex_lock(&queue->lock);
    if (queue->shut && queue->broken) {
        code = TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "QUEUE_SHUT",
                              "the queue was shut down, and all completions were taken");
    } else if (queue->broken) {
        code = tutti_error_pass(err, &queue->ended);
    } else {
        code = TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "NOTHING_DONE",
                              "nothing was completed in %" PRIu32 " ms; %zu ops are outstanding",
                              timeout_ms, queue->outstanding);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return code;
}

static tutti_code
check_taker(const tutti_queue *queue, tutti_error *err)
{
    TUTTI_TRY(client_check_process(queue->client, err));
    if (queue->options.on_done != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "QUEUE_CALLBACK",
                              "the completions of this queue go to its callback on_done");
    }
    return TUTTI_OK;
}

tutti_code
tutti_queue_next(tutti_queue *queue, uint32_t timeout_ms, tutti_queue_completion *ret_done,
                 tutti_error *err)
{
    TUTTI_NEED(queue, err);
    TUTTI_NEED(ret_done, err);

    const uint64_t deadline_ns =
        timeout_ms == TUTTI_QUEUE_FOREVER
            ? QUEUE_NEVER
            : tutti_clock_add(tutti_clock_ns(), timeout_ms * TUTTI_NS_PER_MS);
    tutti_list_node *link;

    TUTTI_TRY(check_taker(queue, err));
    link = queue_ready_take(&queue->ready, deadline_ns);
    if (link == NULL) {
        return fail_empty(queue, timeout_ms, err);
    }
    hand_over_item(queue, link, ret_done);
    return TUTTI_OK;
}

size_t
tutti_queue_count(tutti_queue *queue)
{
    size_t count;

    (void)pthread_mutex_lock(&queue->lock);
    count = queue->outstanding;
    (void)pthread_mutex_unlock(&queue->lock);
    return count;
}

/* ------------------------------------------------------------------------------ its thread */

static void
call_back(queue_ready *ready)
{
    tutti_queue *queue = tutti_container_of(ready, tutti_queue, ready);
    tutti_queue_completion done;
    tutti_list_node *link;

    while ((link = queue_ready_take(ready, PAST_NS)) != NULL) {
        hand_over_item(queue, link, &done);
        queue->options.on_done(queue->options.context, &done);
        tutti_op_more_free(&done.more);
    }
}

static void *
run_queue(void *arg)
{
    tutti_queue *queue = arg;

    queue_ready_serve(&queue->ready, queue->options.on_done == NULL ? NULL : call_back);
    return NULL;
}

static tutti_code
start_serving(tutti_queue *queue, tutti_error *err)
{
    int failed = 0;

    (void)pthread_mutex_lock(&queue->lock);
    if (!queue->served) {
        failed = tutti_thread_start(&queue->thread, run_queue, queue);
        queue->served = failed == 0;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    if (failed != 0) {
        (void)TUTTI_FAIL_ERRNO(err, failed, "could not start a thread for a queue");
        if (err != NULL) {
            err->code = TUTTI_RESOURCE_EXHAUSTED;
        }
        return TUTTI_RESOURCE_EXHAUSTED;
    }
    return TUTTI_OK;
}

tutti_code
tutti_queue_fd(tutti_queue *queue, int *ret_fd, tutti_error *err)
{
    TUTTI_NEED(queue, err);
    TUTTI_NEED(ret_fd, err);

    int fd = -1;

    TUTTI_TRY(check_taker(queue, err));
    TUTTI_TRY(queue_ready_fd(&queue->ready, &fd, err));
    TUTTI_TRY(start_serving(queue, err));
    *ret_fd = fd;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ life */

static void
free_queue(tutti_queue *queue)
{
    tutti_list_node *link;

    queue_stage_stop(queue);
    if (queue->duplex != NULL) {
        tutti_rpc_duplex_free(queue->duplex);
    }
    client_lane_close(queue->lane);
    while ((link = tutti_list_pop(&queue->ready.done)) != NULL) {
        queue_item_free(queue, tutti_container_of(link, queue_item, link));
    }
    if (queue->conn != NULL) {
        client_conn_give(queue->client, queue->conn);
    }
    queue_ready_fini(&queue->ready);
    (void)pthread_cond_destroy(&queue->work);
    (void)pthread_mutex_destroy(&queue->lock);
    free(queue);
}

static tutti_code
check_agent(const tutti_client *client, tutti_error *err)
{
    if (client->agent.queue_commands_max < 2) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_UNIMPLEMENTED, "OLD_AGENT",
            "the agent (version %s) is older than completion queues: update it, or "
            "use tutti_pipeline_open",
            client->agent.version);
    }
    return TUTTI_OK;
}

/* One less than the agent takes: so it always reads what cancels. */
static uint32_t
choose_outstanding(const tutti_client *client, uint32_t wanted)
{
    const uint32_t most = client->agent.queue_commands_max - 1;

    return wanted != 0 && wanted < most ? wanted : most;
}

static tutti_code
open_queue(tutti_queue *self, tutti_error *err)
{
    TUTTI_TRY(client_conn_take(self->client, CLIENT_CONTROL, &self->conn, err));
    TUTTI_TRY(check_agent(self->client, err));
    self->outstanding_max = choose_outstanding(self->client, self->options.outstanding_max);
    return queue_open_stream(self, err);
}

tutti_code
tutti_queue_open(tutti_client *client, const tutti_queue_options *options, tutti_queue **ret_queue,
                 tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_queue, err);

    tutti_queue_options own;
    tutti_queue *self;
    tutti_code code;

    tutti_queue_options_init(&own);
    if (options != NULL) {
        TUTTI_TRY(
            client_take_struct(&own, sizeof(own), options, options->size, "queue options", err));
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a queue");
    }
    self->client = client;
    self->options = own;
    (void)pthread_mutex_init(&self->lock, NULL);
    queue_ready_init(&self->ready, &queue_stream_source);
    tutti_map_init(&self->by_id);
    tutti_list_init(&self->outbox);
    tutti_list_init(&self->uploads);
    tutti_list_init(&self->downloads);
    tutti_cond_init(&self->work);
    code = open_queue(self, err);
    if (code != TUTTI_OK) {
        free_queue(self);
        return code;
    }
    if (own.on_done != NULL && (code = start_serving(self, err)) != TUTTI_OK) {
        (void)tutti_queue_close(self, NULL);
        return code;
    }
    *ret_queue = self;
    return TUTTI_OK;
}

void
tutti_queue_shutdown(tutti_queue *queue)
{
    bool first;

    if (client_check_process(queue->client, NULL) != TUTTI_OK) {
        return;
    }
    (void)pthread_mutex_lock(&queue->lock);
    first = queue->ended.code == TUTTI_OK;
    queue->shut = true;
    if (first) {
        (void)TUTTI_FAIL_FOR(&queue->ended, TUTTI_CANCELLED, "QUEUE_SHUT",
                             "the queue was shut down before the op had ended");
    }
    (void)pthread_mutex_unlock(&queue->lock);
    if (first) {
        tutti_rpc_duplex_cancel(queue->duplex);
    }
}

/* True: nothing is outstanding, nobody writes, and nothing can be submitted from here on. */
static bool
shut_idle(tutti_queue *queue)
{
    bool idle;

    (void)pthread_mutex_lock(&queue->lock);
    idle = queue->ended.code == TUTTI_OK && !queue->writing && queue->incomplete == 0 &&
           tutti_list_empty(&queue->outbox);
    if (idle) {
        queue->shut = true;
        queue->writing = true;
        (void)TUTTI_FAIL_FOR(&queue->ended, TUTTI_CANCELLED, "QUEUE_SHUT",
                             "the queue was shut down");
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return idle;
}

/* The agent hears that no more will come, and does not count the stream among the calls that broke;
 * but it is not waited for long. */
static void
end_stream(tutti_queue *queue)
{
    queue_ready_glance(&queue->ready); /* the last message may have left */
    if (shut_idle(queue)) {
        tutti_rpc_duplex_close(queue->duplex);
        queue_ready_wait_over(&queue->ready,
                              tutti_clock_add(tutti_clock_ns(), CLOSE_MS * TUTTI_NS_PER_MS));
        tutti_rpc_duplex_cancel(queue->duplex);
    }
    tutti_queue_shutdown(queue);
}

tutti_code
tutti_queue_close(tutti_queue *queue, tutti_error *err)
{
    if (queue == NULL) {
        return TUTTI_OK;
    }
    TUTTI_TRY(client_check_process(queue->client, err));
    if (queue->served && pthread_equal(queue->thread, pthread_self())) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "QUEUE_CALLBACK",
                              "a queue cannot be closed inside its callback: let another thread do "
                              "it");
    }
    end_stream(queue);
    if (queue->served) {
        (void)pthread_join(queue->thread, NULL);
    } else {
        queue_ready_serve(&queue->ready, NULL);
    }
    free_queue(queue);
    return TUTTI_OK;
}
