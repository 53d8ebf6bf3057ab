/* Private to client: a completion queue, and what is submitted to it. */
#ifndef TUTTI_CLIENT_QUEUE_QUEUE_H
#define TUTTI_CLIENT_QUEUE_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/data/map.h"
#include "client/conn/command_stream.h"
#include "client/conn/conn_pool.h"
#include "client/op/list_data.h"
#include "client/op/op.h"
#include "client/op/place.h"
#include "client/pipeline/pipeline.h"
#include "client/queue/ready.h"
#include "tutti/queue.h"

typedef struct queue_item queue_item;

/* A message that waits until it can be written. */
typedef struct queue_message {
    tutti_list_node link;     /* in the queue's outbox */
    const bool *held;         /* it may not leave yet; NULL = it may */
    tutti_rpc_packed *packed; /* [owned] NULL = it has left, or was never made */
} queue_message;

#define QUEUE_STAGERS 2 /* threads: one may upload while another one downloads */

/* Memory that is too large for a message, and finds no room in the arena: it goes through temporary tensors. */
typedef struct queue_stage {
    tutti_list_node link; /* in the queue's uploads or downloads */
    queue_item *item;
    tutti_error failed; /* of the upload: the op was called in vain. Code OK = it was not */
    bool two;           /* the result is a tensor of its own */
    bool gives;
    bool takes;
    tutti_spec spec;
    const void *data;
    void *result;
    uint64_t result_bytes;
    char input[CLIENT_DRAWN_NAME_SIZE];
    char output[CLIENT_DRAWN_NAME_SIZE];
} queue_stage;

/*
 * A submission. It is in the queue's by_id from its submission until it is complete, then in
 * `ready` until it is taken. From the submission on it belongs to whoever takes it out of by_id,
 * which happens once, under the queue's lock.
 */
struct queue_item {
    pipeline_call call; /* its id, its memory and its result */
    tutti_list_node link;
    queue_message message;
    queue_message cancel;
    bool cancelled;     /* behind the queue's lock */
    bool held;          /* its message waits for its upload; behind the queue's lock */
    client_list *list;  /* [owned] NULL = one array, or tensors */
    queue_stage *stage; /* [owned] NULL = its data travels inside of messages, or is in the arena */
    bool placed;        /* in the arena: it names ranges of it */
    client_blocks blocks; /* [owned] of the arena, from which its result is copied */
    void *result;         /* where to, if there are blocks */
    uint64_t result_bytes;
    void *user;
};

struct tutti_queue {
    tutti_client *client;
    client_conn *conn;
    client_lane *lane; /* [owned] by which messages go; NULL = by gRPC */
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
    size_t incomplete;  /* until they can be taken */
    size_t bytes;       /* of payload, of what is not complete */
    tutti_error ended;

    pthread_cond_t work;     /* something is in uploads or downloads, or it is over */
    tutti_list_node uploads; /* stages, in the order of their submissions */
    tutti_list_node downloads;
    pthread_t stagers[QUEUE_STAGERS];
    unsigned stager_count;
    bool staging_over;
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

/* An item that was claimed has its answer: it is complete, or its download is still to be done. */
void queue_finish(tutti_queue *queue, queue_item *item);

/* An item that was claimed is complete: its result is in item->call. */
void queue_complete(tutti_queue *queue, queue_item *item);

void queue_item_free(tutti_queue *queue, queue_item *item); /* NULL is fine */

/* ------------------------------------------------------------------ source.c */

extern const queue_source queue_stream_source;

/* The answers make no sense, or the stream has ended: all that is outstanding ends with it. */
void queue_break(tutti_queue *queue, const tutti_error *why);

/* Nothing is outstanding any more, and nothing will be: tell who waits. */
void queue_end_when_empty(tutti_queue *queue);

/* ------------------------------------------------------------------ stage.c */

/* May the result overwrite the input? */
bool queue_stage_in_place(tutti_op_kind kind, const client_inline *memory);

/*
 * Is the memory too large for a message? Then its op is to run on tensors: `op` gets their names,
 * and the item its stage, with `memory` emptied.
 *
 * [out, owned] ret_stage  NULL = it fits
 * TUTTI_INVALID_ARGUMENT  BAD_DTYPE, SIZE_MISMATCH; TUTTI_RESOURCE_EXHAUSTED
 */
tutti_code queue_stage_make(tutti_op_kind kind, tutti_op *op, client_inline *memory,
                            queue_stage **ret_stage, tutti_error *err);

/* The same of a list that is too large for a message; `op` names its ranges. NULL: no memory */
queue_stage *queue_stage_make_list(tutti_op *op, client_list *list);

/* With the queue's lock: an item that has a stage begins. TUTTI_RESOURCE_EXHAUSTED  no thread */
tutti_code queue_stage_begin(tutti_queue *queue, queue_item *item, tutti_error *err);

/* An item with a stage that was claimed is done at the agent: the rest is done by a thread. */
void queue_stage_finish(tutti_queue *queue, queue_item *item);

/* With the queue's lock: is it still with a thread, which will see that the stream has ended? */
bool queue_stage_is_busy(const queue_item *item);

/* Join the threads: all items are complete. */
void queue_stage_stop(tutti_queue *queue);

/* ------------------------------------------------------------------ queue_pb.c */

/* Open the stream, and say what it is for. */
tutti_code queue_open_stream(tutti_queue *queue, tutti_error *err);

/* [in, moved] message. TUTTI_DATA_LOSS: the answer is none of ours */
tutti_code queue_read_answer(tutti_queue *queue, tutti_rpc_message *message, tutti_error *err);

/* A message that cancels the command. NULL: no memory */
tutti_rpc_packed *queue_pack_cancel(uint64_t id);

#endif
