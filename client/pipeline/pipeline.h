/* Private to client: a pipeline, and the commands in it. */
#ifndef TUTTI_CLIENT_PIPELINE_PIPELINE_H
#define TUTTI_CLIENT_PIPELINE_PIPELINE_H

#include "base/data/map.h"
#include "client/conn/call.h"
#include "client/conn/command_stream.h"
#include "client/conn/conn_pool.h"
#include "client/op/collectives.h"
#include "tutti/pipeline.h"

/*
 * A call that was submitted, until its result is taken. States: submitted (in `by_id`) ->
 * answered (also in the pipeline's `done`) -> taken (freed).
 */
typedef struct pipeline_call {
    tutti_map_node by_id;
    unsigned char key[8];
    tutti_list_node done; /* in the pipeline's done, once it is answered */
    uint64_t id;
    size_t payload_bytes;
    client_inline memory; /* where its bytes go; `spec` is the one below */
    tutti_spec spec;
    bool answered;
    tutti_pipeline_result result;
    tutti_rpc_message *message; /* [owned] while it still holds bytes for the caller */
} pipeline_call;

struct tutti_pipeline {
    client_request_hook request_hook; /* ops are written as calls, and become commands */
    tutti_client *client;
    client_conn *conn;
    client_lane *lane;        /* [owned] by which messages go; NULL = by gRPC */
    tutti_rpc_stream *stream; /* NULL = it has ended, and `ended` says how */
    tutti_error ended;
    tutti_rpc_packed *held; /* packed, and to be written with the next one or when we wait */
    pipeline_call *next;    /* what the call that is being submitted will be */
    tutti_map by_id;        /* results that were not taken */
    tutti_list_node done;   /* answered, in the order of the answers */
    uint64_t last_id;
    size_t unanswered;
    size_t payload_bytes; /* of the unanswered */
    uint32_t in_flight_max;
    bool stop_on_error;
};

/* pipeline.c */

/* The stream has ended: remember how. Returns that. */
tutti_code pipeline_end(tutti_pipeline *pipeline, tutti_error *err);

/* There is room for one more call of so many bytes; answers are read until there is. */
tutti_code pipeline_make_room(tutti_pipeline *pipeline, size_t payload_bytes, tutti_error *err);

/* Write what is packed behind what is held; [in, moved] packed, NULL = nothing more is to come now
 */
tutti_code pipeline_write(tutti_pipeline *pipeline, tutti_rpc_packed *packed, tutti_error *err);

/* Of a call that is not answered yet; NULL = none. */
pipeline_call *pipeline_find(const tutti_pipeline *pipeline, uint64_t id);

/* Its answer has come. */
void pipeline_answered(tutti_pipeline *pipeline, pipeline_call *call);

/* pipeline_answer_pb.c. Which call is answered, and how: TUTTI_DATA_LOSS when it is none of ours.
 * [in, moved] message */
tutti_code pipeline_read_answer(tutti_pipeline *pipeline, tutti_rpc_message *message,
                                tutti_error *err);

/*
 * How a call has ended: call->result, and call->message, which is `message` if the call's memory
 * takes the bytes that are in it; the caller keeps the message in any case. TUTTI_DATA_LOSS
 */
tutti_code pipeline_read_call(tutti_rpc_message *message, pipeline_call *call, tutti_error *err);

/* pipeline_pb.c: open the stream. */
tutti_code pipeline_open_stream(tutti_pipeline *pipeline, tutti_error *err);

#endif
