/* Private to client: a completion queue, and what is submitted to it. */
#ifndef TUTTI_CLIENT_QUEUE_QUEUE_H
#define TUTTI_CLIENT_QUEUE_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/data/map.h"
#include "client/conn/conn_pool.h"
#include "client/pipeline/pipeline.h"
#include "client/queue/ready.h"
#include "tutti/queue.h"

/* A message that waits until it can be written. */
typedef struct queue_message {
    tutti_list_node link;     /* in the queue's outbox */
    tutti_rpc_packed *packed; /* [owned] NULL = it has left, or was never made */
} queue_message;

/*
 * A submission. It is in the queue's by_id from its submission until it is complete, then in
 * `ready` until it is taken. From the submission on it belongs to whoever takes it out of by_id,
 * which happens once, under the queue's lock.
 */
typedef struct queue_item {
    pipeline_call call; /* its id, its memory and its result */
    tutti_list_node link;
    queue_message message;
    queue_message cancel;
    bool cancelled; /* behind the queue's lock */
    void *user;
} queue_item;

struct tutti_queue {
    tutti_client *client;
    client_conn *conn;
    tutti_rpc_duplex *duplex;
    queue_ready ready;
    tutti_queue_options options;
    uint32_t outstanding_max;
    atomic_uint_fast64_t last_id;
    pthread_t thread; /* if `served` */

    pthread_mutex_t lock; /* guards all below; before that of `ready` */
    tutti_map by_id;      /* what is not complete */
    tutti_list_node outbox;
    bool writing;       /* a message is on its way into gRPC */
    bool served;        /* by a thread of its own */
    bool shut;          /* nothing more may be submitted */
    bool broken;        /* the stream has ended, and `ended` says how */
    size_t outstanding; /* until completions are taken */
    size_t bytes;       /* of payload, of what is not complete */
    tutti_error ended;
};

/* ------------------------------------------------------------------ queue.c */

/* An item that was packed is on its way. TUTTI_RESOURCE_EXHAUSTED QUEUE_FULL, ... : it is still
 * the caller's. */
tutti_code queue_enter(tutti_queue *queue, queue_item *item, tutti_error *err);

/* Write what can be written. Any thread, without the lock. */
void queue_flush(tutti_queue *queue);

/* The same, and see that it leaves although nobody polls. Not inside the source. */
void queue_send(tutti_queue *queue);

/* Whose completion the answer is; NULL = of none. It is out of by_id then. */
queue_item *queue_claim(tutti_queue *queue, uint64_t id);

/* An item that was claimed is complete: its result is in item->call. */
void queue_complete(tutti_queue *queue, queue_item *item);

void queue_item_free(queue_item *item); /* NULL is fine */

/* ------------------------------------------------------------------ source.c */

extern const queue_source queue_stream_source;

/* The answers make no sense, or the stream has ended: all that is outstanding ends with it. */
void queue_break(tutti_queue *queue, const tutti_error *why);

/* ------------------------------------------------------------------ queue_pb.c */

/* Open the stream, and say what it is for. */
tutti_code queue_open_stream(tutti_queue *queue, tutti_error *err);

/* [in, moved] message. TUTTI_DATA_LOSS: the answer is none of ours */
tutti_code queue_read_answer(tutti_queue *queue, tutti_rpc_message *message, tutti_error *err);

/* A message that cancels the command. NULL: no memory */
tutti_rpc_packed *queue_pack_cancel(uint64_t id);

#endif
