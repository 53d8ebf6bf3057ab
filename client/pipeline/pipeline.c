/*
 * A pipeline's life, and its calls by their ids. One thread uses a pipeline at a time; there is
 * no thread of its own. Answers are read when the caller waits for one, or when there is no room
 * for another call. The agent reads all that we have unanswered (in_flight_max,
 * PAYLOAD_BYTES_MAX), so writing never waits for our reading: otherwise both sides could wait for
 * each other for ever.
 *
 * One packed command is held back (`held`) until the next one or a wait, so that commands that
 * are submitted one after the other leave in one packet.
 *
 * If the stream ends, `ended` keeps the reason and every further call fails with it; calls that
 * were unanswered may or may not have been done.
 */
#include "client/pipeline/pipeline.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/options.h"
#include "tutti/pipeline.h"

#define IN_FLIGHT_DEFAULT 256                /* the agent's default */
#define PAYLOAD_BYTES_MAX ((size_t)16 << 20) /* less than what the agent reads of one stream */

void
tutti_pipeline_options_init(tutti_pipeline_options *options)
{
    *options = (tutti_pipeline_options){.size = sizeof(*options)};
}

static uint32_t
choose_in_flight(const tutti_client *client, uint32_t wanted)
{
    const uint32_t agent_max = client->agent.commands_max;
    const uint32_t most = agent_max != 0 ? agent_max : IN_FLIGHT_DEFAULT;

    return wanted != 0 && wanted < most ? wanted : most;
}

static tutti_code
new_pipeline(tutti_client *client, const tutti_pipeline_options *options, tutti_pipeline **ret,
             tutti_error *err)
{
    tutti_pipeline *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "no memory for a pipeline");
    }
    self->client = client;
    self->in_flight_max = choose_in_flight(client, options->in_flight_max);
    self->stop_on_error = options->stop_on_error;
    tutti_map_init(&self->by_id);
    tutti_list_init(&self->done);
    code = client_conn_take(client, CLIENT_CONTROL, &self->conn, err);
    if (code == TUTTI_OK) {
        code = pipeline_open_stream(self, err);
        if (code != TUTTI_OK) {
            client_lane_close(self->lane);
            client_conn_give(client, self->conn);
        }
    }
    if (code != TUTTI_OK) {
        free(self);
        return code;
    }
    *ret = self;
    return TUTTI_OK;
}

tutti_code
tutti_pipeline_open(tutti_client *client, const tutti_pipeline_options *options,
                    tutti_pipeline **ret_pipeline, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_pipeline, err);

    tutti_pipeline_options own;

    tutti_pipeline_options_init(&own);
    if (options != NULL) {
        TUTTI_TRY(
            client_take_struct(&own, sizeof(own), options, options->size, "pipeline options", err));
    }
    return new_pipeline(client, &own, ret_pipeline, err);
}

static void
free_call(tutti_pipeline *pipeline, pipeline_call *call)
{
    tutti_map_remove(&pipeline->by_id, &call->by_id);
    tutti_list_remove(&call->done);
    tutti_rpc_message_free(call->message);
    tutti_op_more_free(&call->result.more);
    free(call);
}

tutti_code
pipeline_end(tutti_pipeline *pipeline, tutti_error *err)
{
    if (pipeline->stream != NULL) {
        if (tutti_rpc_stream_finish(pipeline->stream, &pipeline->ended) == TUTTI_OK) {
            (void)TUTTI_FAIL_FOR(&pipeline->ended, TUTTI_UNAVAILABLE, "CONNECTION_LOST",
                                 "the agent has ended the stream of commands");
        }
        pipeline->stream = NULL;
    }
    return tutti_error_pass(err, &pipeline->ended);
}

static tutti_code
end_well(tutti_pipeline *pipeline, tutti_error *err)
{
    tutti_code code;

    if (pipeline->stream == NULL) {
        return tutti_error_pass(err, &pipeline->ended);
    }
    code = pipeline_write(pipeline, NULL, err);
    if (code == TUTTI_OK) {
        code = tutti_rpc_stream_finish(pipeline->stream, err); /* reads all that comes */
    }
    return code;
}

tutti_code
tutti_pipeline_close(tutti_pipeline *pipeline, tutti_error *err)
{
    tutti_map_node *node;
    tutti_code code;

    if (pipeline == NULL) {
        return TUTTI_OK;
    }
    code = end_well(pipeline, err);
    while ((node = tutti_map_first(&pipeline->by_id)) != NULL) {
        free_call(pipeline, tutti_container_of(node, pipeline_call, by_id));
    }
    client_lane_close(pipeline->lane); /* behind the stream's end */
    client_conn_give(pipeline->client, pipeline->conn);
    free(pipeline);
    return code;
}

void
tutti_pipeline_cancel(tutti_pipeline *pipeline)
{
    if (pipeline->stream != NULL) {
        tutti_rpc_stream_cancel(pipeline->stream);
    }
}

/* ------------------------------------------------------------------------------ writing */

tutti_code
pipeline_write(tutti_pipeline *pipeline, tutti_rpc_packed *packed, tutti_error *err)
{
    tutti_rpc_packed *held = pipeline->held;

    pipeline->held = packed;
    if (held == NULL) {
        return TUTTI_OK;
    }
    /* With another one behind it, this one may wait in gRPC's buffer for it. */
    if (tutti_rpc_stream_write_packed(pipeline->stream, held, packed != NULL, NULL) == TUTTI_OK) {
        return TUTTI_OK;
    }
    tutti_rpc_packed_free(packed);
    pipeline->held = NULL;
    return pipeline_end(pipeline, err);
}

tutti_code
tutti_pipeline_flush(tutti_pipeline *pipeline, tutti_error *err)
{
    TUTTI_NEED(pipeline, err);

    return pipeline->stream == NULL ? tutti_error_pass(err, &pipeline->ended)
                                    : pipeline_write(pipeline, NULL, err);
}

/* ------------------------------------------------------------------------------ reading */

pipeline_call *
pipeline_find(const tutti_pipeline *pipeline, uint64_t id)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&pipeline->by_id, tutti_map_key_u64(key, id));

    return node == NULL ? NULL : tutti_container_of(node, pipeline_call, by_id);
}

void
pipeline_answered(tutti_pipeline *pipeline, pipeline_call *call)
{
    call->answered = true;
    pipeline->unanswered--;
    pipeline->payload_bytes -= call->payload_bytes;
    tutti_list_add(&pipeline->done, &call->done);
}

/* One answer; what is held goes out first. */
static tutti_code
read_one_pipeline(tutti_pipeline *pipeline, tutti_error *err)
{
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(tutti_pipeline_flush(pipeline, err));
    if (tutti_rpc_stream_read(pipeline->stream, &message, NULL) != TUTTI_OK || message == NULL) {
        return pipeline_end(pipeline, err);
    }
    code = pipeline_read_answer(pipeline, message, &pipeline->ended);
    if (code != TUTTI_OK) { /* the answers make no sense: give the stream up */
        tutti_rpc_stream_cancel(pipeline->stream);
        (void)tutti_rpc_stream_finish(pipeline->stream, NULL);
        pipeline->stream = NULL;
        return tutti_error_pass(err, &pipeline->ended);
    }
    return TUTTI_OK;
}

static tutti_code
make_room_for_bytes(tutti_pipeline *pipeline, size_t payload_bytes, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    while (code == TUTTI_OK && pipeline->unanswered > 0 &&
           pipeline->payload_bytes + payload_bytes > PAYLOAD_BYTES_MAX) {
        code = read_one_pipeline(pipeline, err);
    }
    return code;
}

tutti_code
pipeline_make_room(tutti_pipeline *pipeline, size_t payload_bytes, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (pipeline->stream == NULL) {
        return tutti_error_pass(err, &pipeline->ended);
    }
    if (pipeline->unanswered < pipeline->in_flight_max) {
        return make_room_for_bytes(pipeline, payload_bytes, err);
    }
    /* Read half of the answers, not one: the next calls then travel together. */
    while (code == TUTTI_OK && pipeline->unanswered > pipeline->in_flight_max / 2) {
        code = read_one_pipeline(pipeline, err);
    }
    return code == TUTTI_OK ? make_room_for_bytes(pipeline, payload_bytes, err) : code;
}

/*
 * The caller takes the result; its bytes are copied to the caller's memory now, not when they
 * came, because only now the caller expects them to change.
 */
static void
hand_over_pipeline(tutti_pipeline *pipeline, pipeline_call *call, tutti_pipeline_result *ret_result)
{
    if (call->message != NULL) {
        tutti_rpc_message_read(call->message, call->memory.result,
                               (size_t)call->memory.result_bytes);
    }
    *ret_result = call->result;
    call->result.more = (tutti_op_more){0};
    free_call(pipeline, call);
}

tutti_code
tutti_pipeline_next(tutti_pipeline *pipeline, tutti_pipeline_result *ret_result, tutti_error *err)
{
    TUTTI_NEED(pipeline, err);
    TUTTI_NEED(ret_result, err);

    tutti_code code = TUTTI_OK;

    while (code == TUTTI_OK && tutti_list_empty(&pipeline->done)) {
        if (pipeline->unanswered == 0) {
            return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NOTHING_SUBMITTED",
                                  "all results of the pipeline have been taken");
        }
        code = read_one_pipeline(pipeline, err);
    }
    if (code == TUTTI_OK) {
        hand_over_pipeline(pipeline, tutti_container_of(pipeline->done.next, pipeline_call, done),
                           ret_result);
    }
    return code;
}

tutti_code
tutti_pipeline_take(tutti_pipeline *pipeline, uint64_t id, tutti_pipeline_result *ret_result,
                    tutti_error *err)
{
    TUTTI_NEED(pipeline, err);
    TUTTI_NEED(ret_result, err);

    pipeline_call *call = pipeline_find(pipeline, id);
    tutti_code code = TUTTI_OK;

    if (call == NULL) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_NOT_FOUND, "NOTHING_SUBMITTED",
            "there is no call %" PRIu64 " in the pipeline, or its result was taken already", id);
    }
    while (code == TUTTI_OK && !call->answered) {
        code = read_one_pipeline(pipeline, err);
    }
    if (code == TUTTI_OK) {
        hand_over_pipeline(pipeline, call, ret_result);
    }
    return code;
}

size_t
tutti_pipeline_count(const tutti_pipeline *pipeline)
{
    return pipeline->by_id.count;
}
