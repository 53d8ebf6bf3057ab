/*
 * Submissions become commands, answers become completions. The functions that write requests
 * (client_wire_<op>) run with a request hook of their own for each submission, so that threads do
 * not meet here: an item is packed before the queue's lock is taken.
 *
 * The first message of the stream brings the options; it cancels command 0, which does not exist,
 * and so needs no answer.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/command_stream_pb.h"
#include "client/op/collectives.h"
#include "client/op/op.h"
#include "client/queue/queue.h"

static const tutti_rpc_stub stub_run = {&tutti__v1__commands_service__descriptor, "Run"};

/* ------------------------------------------------------------------------------ the stream */

static tutti_rpc_packed *
pack_opening(void)
{
    Tutti__V1__RunRequest message = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__RunOptions options = TUTTI__V1__RUN_OPTIONS__INIT;
    tutti_rpc_packed *packed = NULL;

    options.queue = true;
    message.options = &options;
    message.cancel = true;
    return tutti_rpc_pack(&message.base, NULL, &packed, NULL) == TUTTI_OK ? packed : NULL;
}

tutti_code
queue_open_stream(tutti_queue *queue, tutti_error *err)
{
    tutti_rpc_call_options options = client_stream_options(queue->client);
    tutti_rpc_packed *opening = pack_opening();
    tutti_code code;

    if (opening == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a stream");
    }
    queue->lane = client_lane_open(queue->client, &client_commands);
    options.lane = queue->lane == NULL ? NULL : &queue->lane->end;
    code = tutti_rpc_duplex_open(queue->conn->channel, &stub_run, &options, &queue->duplex, err);
    if (code != TUTTI_OK) {
        tutti_rpc_packed_free(opening);
        return code;
    }
    queue->writing = !tutti_rpc_duplex_write(queue->duplex, opening, false);
    return TUTTI_OK;
}

tutti_rpc_packed *
queue_pack_cancel(uint64_t id)
{
    Tutti__V1__RunRequest message = TUTTI__V1__RUN_REQUEST__INIT;
    tutti_rpc_packed *packed = NULL;

    message.id = id;
    message.cancel = true;
    return tutti_rpc_pack(&message.base, NULL, &packed, NULL) == TUTTI_OK ? packed : NULL;
}

/* ------------------------------------------------------------------------------ answers */

tutti_code
queue_read_answer(tutti_queue *queue, tutti_rpc_message *message, tutti_error *err)
{
    const Tutti__V1__RunResponse *answer = tutti_rpc_message_get(message);
    queue_item *item = queue_claim(queue, answer->id);
    tutti_code code;

    if (item == NULL) {
        code = TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent answered op %" PRIu64 ", which is not outstanding",
                              answer->id);
        tutti_rpc_message_free(message);
        return code;
    }
    code = pipeline_read_call(message, &item->call, err);
    if (code != TUTTI_OK) {
        item->call.result.error = *err;
    } else if (item->call.message != NULL) {
        tutti_rpc_message_read(message, item->call.memory.result,
                               (size_t)item->call.memory.result_bytes);
        item->call.message = NULL;
    }
    if (code == TUTTI_OK && item->list != NULL && item->stage == NULL &&
        item->call.result.error.code == TUTTI_OK) {
        (void)client_list_unpack(item->list, &item->call.result.more, &item->call.result.error);
        tutti_op_more_free(&item->call.result.more); /* they have no handles */
    }
    if (item->placed) {
        item->call.result.op.output = (tutti_handle){0};
    }
    tutti_rpc_message_free(message);
    queue_finish(queue, item);
    return code;
}

/* ------------------------------------------------------------------------------ submitting */

/* Takes the request of one submission. */
typedef struct queue_hook {
    client_request_hook hook;
    tutti_queue *queue;
    queue_item *item;
} queue_hook;

static tutti_code
take_queue_request(client_request_hook *hook, const ProtobufCMessage *request, const void *payload,
                   size_t payload_bytes, tutti_error *err)
{
    queue_hook *self = tutti_container_of(hook, queue_hook, hook);
    const tutti_rpc_blob blob = {.data = payload, .size = payload_bytes};
    Tutti__V1__RunRequest message = TUTTI__V1__RUN_REQUEST__INIT;
    queue_item *item = self->item;

    item->call.id = atomic_fetch_add(&self->queue->last_id, 1) + 1;
    item->call.payload_bytes = payload_bytes;
    message.id = item->call.id;
    client_set_command(&message, client_command_of(request), request);
    return tutti_rpc_pack(&message.base, payload_bytes > 0 ? &blob : NULL, &item->message.packed,
                          err);
}

static queue_item *
new_item(const client_inline *memory, void *user)
{
    queue_item *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    tutti_list_init(&self->call.done);
    tutti_list_init(&self->link);
    tutti_list_init(&self->message.link);
    tutti_list_init(&self->cancel.link);
    self->user = user;
    self->call.memory = *memory;
    self->call.spec = memory->spec == NULL ? (tutti_spec){0} : *memory->spec;
    self->call.memory.spec = &self->call.spec;
    return self;
}

/* What an item brings along; all zero = nothing. */
typedef struct queue_load {
    queue_stage *stage;   /* [owned] */
    client_list *list;    /* [owned] */
    client_blocks blocks; /* [owned] */
    bool placed;          /* in the arena */
    void *result;
    uint64_t result_bytes;
} queue_load;

static void
free_load(tutti_queue *queue, queue_load *load)
{
    client_blocks_free(queue->client, &load->blocks, false);
    client_list_free(load->list);
    free(load->stage);
}

static void
take_load(queue_item *item, const queue_load *load)
{
    item->stage = load->stage;
    item->list = load->list;
    item->blocks = load->blocks;
    item->placed = load->placed;
    item->result = load->result;
    item->result_bytes = load->result_bytes;
}

/* [in] op  complete; [in, moved] load */
static tutti_code
submit_item(tutti_queue *queue, tutti_op_kind kind, const tutti_op *op, client_inline *memory,
            queue_load *load, void *user, uint64_t *ret_id, tutti_error *err)
{
    const client_op_fn fn = client_op_of(kind);
    queue_hook hook = {.hook.take = take_queue_request, .queue = queue};
    tutti_op_result none;
    uint64_t id;
    tutti_code code;

    if (fn == NULL) {
        free_load(queue, load);
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_OP", "kind of op %d is unknown",
                              (int)kind);
    }
    hook.item = new_item(memory, user);
    if (hook.item == NULL) {
        free_load(queue, load);
        return TUTTI_FAIL_MEMORY(err, "no memory for an op");
    }
    take_load(hook.item, load);
    memory->request_hook = &hook.hook;
    code = fn(queue->client, op, memory, &none, err);
    id = hook.item->call.id;
    if (code == TUTTI_OK) {
        code = queue_enter(queue, hook.item, err);
    }
    if (code != TUTTI_OK) {
        queue_item_free(queue, hook.item);
        return code;
    }
    if (ret_id != NULL) {
        *ret_id = id;
    }
    queue_send(queue);
    return TUTTI_OK;
}

tutti_code
tutti_queue_submit(tutti_queue *queue, tutti_op_kind kind, const tutti_op *op, void *user,
                   uint64_t *ret_id, tutti_error *err)
{
    TUTTI_NEED(queue, err);

    queue_load load = {0};
    client_inline memory = {0};
    tutti_op own;

    TUTTI_TRY(client_check_process(queue->client, err));
    TUTTI_TRY(client_take_op(op, &own, err));
    return submit_item(queue, kind, &own, &memory, &load, user, ret_id, err);
}

static tutti_code
take_queue_data(const tutti_queue_data *data, client_inline *ret_memory, tutti_error *err)
{
    *ret_memory = (client_inline){.spec = NULL};
    if (data != NULL) {
        *ret_memory = (client_inline){.spec = &data->spec,
                                      .data = data->data,
                                      .result = data->result,
                                      .result_bytes = data->result_bytes};
    }
    return client_take_memory(ret_memory, err);
}

/* An async op ends before it is done, and is refused; so its memory is not looked for. */
static bool
place_load(tutti_queue *queue, tutti_op_kind kind, client_inline *memory, client_place *place,
           tutti_op *op, queue_load *load)
{
    load->placed = !op->async && client_place_find(queue->client, memory, CLIENT_STAGE_BYTES_MIN,
                                                   queue_stage_in_place(kind, memory), place);
    if (load->placed) {
        op->input = memory->gives ? place->give : NULL;
        op->output = memory->takes ? place->take : NULL;
        load->blocks = place->blocks;
        load->result = memory->result;
        load->result_bytes = memory->result_bytes;
        *memory = (client_inline){0};
    }
    return load->placed;
}

tutti_code
tutti_queue_submit_data(tutti_queue *queue, tutti_op_kind kind, const tutti_op *op,
                        const tutti_queue_data *data, void *user, uint64_t *ret_id,
                        tutti_error *err)
{
    TUTTI_NEED(queue, err);

    queue_load load = {0};
    client_place place; /* the texts are written where they are used */
    client_inline memory;
    tutti_op own;

    TUTTI_TRY(client_check_process(queue->client, err));
    TUTTI_TRY(client_take_op(op, &own, err));
    TUTTI_TRY(take_queue_data(data, &memory, err));
    own.input = NULL;
    own.output = NULL;
    if (!place_load(queue, kind, &memory, &place, &own, &load)) {
        TUTTI_TRY(queue_stage_make(kind, &own, &memory, &load.stage, err));
    }
    return submit_item(queue, kind, &own, &memory, &load, user, ret_id, err);
}

tutti_code
tutti_queue_submit_list(tutti_queue *queue, tutti_op_kind kind, const tutti_op *op,
                        const tutti_op_data *arrays, size_t count, void *user, uint64_t *ret_id,
                        tutti_error *err)
{
    TUTTI_NEED(queue, err);

    queue_load load = {0};
    client_inline memory = {0};
    tutti_op own;

    TUTTI_TRY(client_check_process(queue->client, err));
    TUTTI_TRY(client_take_op(op, &own, err));
    own.input = NULL;
    own.output = NULL;
    own.coalesced = true;
    TUTTI_TRY(client_list_make(queue->client, kind, &own, arrays, count, &load.list, err));
    load.placed = load.list->places != NULL;
    if (load.placed) {
        client_list_write(load.list, NULL, NULL, &own);
    } else if (load.list->small) {
        memory = client_list_memory(load.list);
    } else if ((load.stage = queue_stage_make_list(&own, load.list)) == NULL) {
        client_list_free(load.list);
        return TUTTI_FAIL_MEMORY(err, "no memory for an op");
    }
    return submit_item(queue, kind, &own, &memory, &load, user, ret_id, err);
}
