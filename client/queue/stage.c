/*
 * Data too large for messages, through temporary tensors: an upload before the op, a download behind
 * it, both by threads of the queue, started with the first such op. While an upload runs, the op's
 * message is held in the outbox, and all behind it: so the order of the ops needs no other rule. An
 * upload waits for nobody but the agent.
 *
 * An item whose upload failed calls its op nevertheless, with a tensor that is not there: the agent
 * refuses it, and the other ranks hear of it. Its completion has the upload's error.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/thread.h"
#include "client/queue/queue.h"
#include "client/tensor/tensor.h"
#include "client/tensor/tensors.h"

bool
queue_stage_in_place(tutti_op_kind kind, const client_inline *memory)
{
    return !memory->takes || (memory->bytes == memory->result_bytes &&
                              (kind == TUTTI_OP_ALL_REDUCE || kind == TUTTI_OP_REDUCE_TO_ROOT ||
                               kind == TUTTI_OP_PERMUTE));
}

static bool
is_small(const client_inline *memory)
{
    return (!memory->gives || memory->bytes <= TUTTI_INLINE_BYTES_MAX) &&
           (!memory->takes || memory->result_bytes <= TUTTI_INLINE_BYTES_MAX);
}

static tutti_code
check_large(const client_inline *memory, tutti_error *err)
{
    const size_t bytes = memory->spec == NULL ? 0 : tutti_dtype_bytes(memory->spec->dtype);

    if (bytes == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_DTYPE",
                              "a result of %" PRIu64
                              " bytes needs a dtype in tutti_queue_data.spec",
                              memory->result_bytes);
    }
    if (memory->takes && (memory->result_bytes > INT64_MAX || memory->result_bytes % bytes != 0)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                              "the result has room for %" PRIu64
                              " bytes, need a multiple of the size of a %s element",
                              memory->result_bytes, tutti_dtype_name(memory->spec->dtype));
    }
    return TUTTI_OK;
}

tutti_code
queue_stage_make(tutti_op_kind kind, tutti_op *op, client_inline *memory, queue_stage **ret_stage,
                 tutti_error *err)
{
    queue_stage *self;

    if (is_small(memory)) {
        *ret_stage = NULL;
        return TUTTI_OK;
    }
    TUTTI_TRY(check_large(memory, err));
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for an op");
    }
    tutti_list_init(&self->link);
    self->spec = *memory->spec;
    self->gives = memory->gives;
    self->takes = memory->takes;
    self->data = memory->data;
    self->result = memory->result;
    self->result_bytes = memory->result_bytes;
    self->two = memory->gives && !queue_stage_in_place(kind, memory);
    client_draw_name(self->input);
    client_draw_name(self->output);
    op->input = memory->gives ? self->input : NULL;
    op->output = self->two || !memory->gives ? self->output : self->input;
    *memory = (client_inline){0};
    *ret_stage = self;
    return TUTTI_OK;
}

queue_stage *
queue_stage_make_list(tutti_op *op, client_list *list)
{
    queue_stage *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    tutti_list_init(&self->link);
    self->spec = (tutti_spec){TUTTI_DTYPE_UINT8, 1, {(int64_t)list->in_bytes}};
    self->gives = list->gives;
    self->takes = list->takes;
    self->data = list->in;
    self->result = list->out;
    self->result_bytes = list->out_bytes;
    self->two = list->gives && list->takes && !list->in_place;
    client_draw_name(self->input);
    client_draw_name(self->output);
    client_list_write(list, self->input, self->output, op);
    return self;
}

/* ------------------------------------------------------------------------------ the work */

static tutti_code
make_result(tutti_client *client, const queue_stage *stage, tutti_error *err)
{
    const tutti_dtype dtype = stage->spec.dtype;
    const tutti_spec spec = {
        .dtype = dtype,
        .dim_count = 1,
        .dims = {(int64_t)(stage->result_bytes / tutti_dtype_bytes(dtype))},
    };
    tutti_handle handle;

    return tutti_tensor_create(client, &spec, stage->output, &handle, err);
}

static void
drop_tensors(tutti_client *client, const queue_stage *stage)
{
    const char *input = stage->input;
    const char *output = stage->output;

    if (stage->gives) {
        (void)client_wire_delete(client, &input, 1, NULL);
    }
    if (stage->two || !stage->gives) {
        (void)client_wire_delete(client, &output, 1, NULL);
    }
}

static tutti_code
bring_result(tutti_client *client, const queue_stage *stage, tutti_error *err)
{
    const client_put put = {.spec = &stage->spec, .data = stage->data, .name = stage->input};
    tutti_handle handle;

    if (stage->gives) {
        TUTTI_TRY(client_put_any(client, &put, NULL, &handle, err));
    }
    return stage->two || !stage->gives ? make_result(client, stage, err) : TUTTI_OK;
}

static void
end_stage(tutti_queue *queue, queue_item *item)
{
    queue_complete(queue, item);
    queue_end_when_empty(queue);
}

/* The upload is over: the op may leave; or, behind the stream's end, it is complete. */
static void
release_item(tutti_queue *queue, queue_item *item)
{
    bool broken;

    (void)pthread_mutex_lock(&queue->lock);
    item->held = false;
    broken = queue->broken;
    if (broken) {
        item->call.result.error = queue->ended;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    if (!broken) {
        queue_send(queue);
    } else if (queue_claim(queue, item->call.id) != NULL) {
        drop_tensors(queue->client, item->stage);
        end_stage(queue, item);
    }
}

static void
upload_stage(tutti_queue *queue, queue_stage *stage)
{
    tutti_error err;

    if (bring_result(queue->client, stage, &err) != TUTTI_OK) {
        stage->failed = err;
        drop_tensors(queue->client, stage); /* so that the op is refused */
    }
    release_item(queue, stage->item);
}

static void
download_stage(tutti_queue *queue, queue_stage *stage)
{
    tutti_pipeline_result *result = &stage->item->call.result;
    const char *name = stage->two || !stage->gives ? stage->output : stage->input;

    if (stage->failed.code != TUTTI_OK) {
        result->error = stage->failed;
    } else if (result->error.code == TUTTI_OK && stage->takes) {
        (void)tutti_tensor_read(queue->client, name, stage->result, stage->result_bytes, NULL,
                                &result->error);
    }
    if (result->error.code == TUTTI_OK && stage->item->list != NULL) {
        (void)client_list_unpack(stage->item->list, NULL, &result->error);
    }
    drop_tensors(queue->client, stage);
    result->op.output = (tutti_handle){0}; /* it was a temporary one, and so are those of a list */
    tutti_op_more_free(&result->more);
    end_stage(queue, stage->item);
}

/* With the lock. Downloads first: they are nearer to their end. */
static queue_stage *
next_stage(tutti_queue *queue, bool *ret_download)
{
    tutti_list_node *link = tutti_list_pop(&queue->downloads);

    *ret_download = link != NULL;
    if (link == NULL) {
        link = tutti_list_pop(&queue->uploads);
    }
    return link == NULL ? NULL : tutti_container_of(link, queue_stage, link);
}

static void *
run_stager(void *arg)
{
    tutti_queue *queue = arg;
    queue_stage *stage;
    bool download;

    (void)pthread_mutex_lock(&queue->lock);
    while ((stage = next_stage(queue, &download)) != NULL || !queue->staging_over) {
        if (stage == NULL) {
            (void)tutti_cond_wait_until(&queue->work, &queue->lock, QUEUE_NEVER);
            continue;
        }
        (void)pthread_mutex_unlock(&queue->lock);
        if (download) {
            download_stage(queue, stage);
        } else {
            upload_stage(queue, stage);
        }
        (void)pthread_mutex_lock(&queue->lock);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return NULL;
}

/* ------------------------------------------------------------------------------ its threads */

/* With the lock. One thread is enough to go on. */
static tutti_code
start_stagers(tutti_queue *queue, tutti_error *err)
{
    int failed = 0;

    while (queue->stager_count < QUEUE_STAGERS && failed == 0) {
        failed = tutti_thread_start(&queue->stagers[queue->stager_count], run_stager, queue);
        queue->stager_count += failed == 0 ? 1 : 0;
    }
    return queue->stager_count > 0
               ? TUTTI_OK
               : TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                                "could not start a thread to upload for a queue: %s",
                                strerror(failed));
}

tutti_code
queue_stage_begin(tutti_queue *queue, queue_item *item, tutti_error *err)
{
    TUTTI_TRY(start_stagers(queue, err));
    item->stage->item = item;
    item->held = true;
    item->message.held = &item->held;
    tutti_list_add(&queue->uploads, &item->stage->link);
    (void)pthread_cond_signal(&queue->work);
    return TUTTI_OK;
}

void
queue_stage_finish(tutti_queue *queue, queue_item *item)
{
    (void)pthread_mutex_lock(&queue->lock);
    tutti_list_add(&queue->downloads, &item->stage->link);
    (void)pthread_cond_signal(&queue->work);
    (void)pthread_mutex_unlock(&queue->lock);
}

bool
queue_stage_is_busy(const queue_item *item)
{
    return item->stage != NULL && item->held;
}

void
queue_stage_stop(tutti_queue *queue)
{
    unsigned i;

    (void)pthread_mutex_lock(&queue->lock);
    queue->staging_over = true;
    (void)pthread_cond_broadcast(&queue->work);
    (void)pthread_mutex_unlock(&queue->lock);
    for (i = 0; i < queue->stager_count; i++) {
        (void)pthread_join(queue->stagers[i], NULL);
    }
}
