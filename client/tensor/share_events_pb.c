/* ShareEvents: events of CUDA are lent as long as a stream to the agent is open. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/types_pb.h"
#include "tutti/share.h"
#include "tutti/v1/tensors_service.pb-c.h"

#define EVENTS_MAX 256 /* the agent's limit of a call */

static const tutti_rpc_stub stub_share_events = {&tutti__v1__tensors_service__descriptor,
                                                 "ShareEvents"};

struct tutti_gpu_events {
    tutti_client *client;
    client_conn *conn;
    tutti_rpc_stream *stream;
    char gpu_uuid[64];
    uint32_t count;
    tutti_gpu_event list[];
};

static tutti_code
read_events(const Tutti__V1__ShareEventsResponse *response, tutti_gpu_events *events,
            tutti_error *err)
{
    uint32_t i;

    if (response->n_events != events->count) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent sent %zu events, need %" PRIu32, response->n_events,
                              events->count);
    }
    for (i = 0; i < events->count; i++) {
        const Tutti__V1__SharedEvent *event = response->events[i];

        if (event->id == 0 || event->ipc_handle.len != sizeof(events->list[i].ipc_handle)) {
            return TUTTI_FAIL_FOR(
                err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                "the agent sent event %" PRIu64 " with a handle of %zu bytes, need "
                "%zu",
                event->id, event->ipc_handle.len, sizeof(events->list[i].ipc_handle));
        }
        events->list[i].id = event->id;
        memcpy(events->list[i].ipc_handle, event->ipc_handle.data, event->ipc_handle.len);
    }
    client_read_text(response->gpu_uuid, events->gpu_uuid, sizeof(events->gpu_uuid));
    return TUTTI_OK;
}

/* [out, owned] ret_message  the first one; else the stream has ended */
static tutti_code
receive_events(tutti_gpu_events *events, tutti_rpc_message **ret_message, tutti_error *err)
{
    tutti_code code;

    if (!tutti_rpc_stream_wait(events->stream, client_deadline(events->client, 0))) {
        tutti_rpc_stream_cancel(events->stream);
        (void)tutti_rpc_stream_finish(events->stream, NULL);
        events->stream = NULL;
        return TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                              "the agent has made no events in %" PRIu32 " ms",
                              events->client->settings.timeout_ms);
    }
    code = tutti_rpc_stream_read(events->stream, ret_message, err);
    if (code == TUTTI_OK && *ret_message != NULL) {
        return TUTTI_OK;
    }
    code = tutti_rpc_stream_finish(events->stream, err);
    events->stream = NULL;
    return code != TUTTI_OK
               ? code
               : TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER", "the agent lent nothing");
}

static tutti_code
open_events(tutti_gpu_events *events, const char *device, tutti_error *err)
{
    Tutti__V1__ShareEventsRequest request = TUTTI__V1__SHARE_EVENTS_REQUEST__INIT;
    tutti_rpc_message *message = NULL;
    tutti_code code;

    TUTTI_TRY(client_conn_take(events->client, CLIENT_BULK, &events->conn, err));
    TUTTI_TRY(tutti_rpc_stream_open(events->conn->channel, &stub_share_events, NULL,
                                    &events->stream, err));
    request.device = client_write_text(device);
    request.count = events->count;
    (void)tutti_rpc_stream_write(events->stream, &request.base, NULL, NULL); /* reading tells */
    (void)tutti_rpc_stream_writes_done(events->stream, NULL);
    TUTTI_TRY(receive_events(events, &message, err));
    code = read_events(tutti_rpc_message_get(message), events, err);
    tutti_rpc_message_free(message);
    return code;
}

tutti_code
tutti_gpu_events_open(tutti_client *client, const char *device, uint32_t count,
                      tutti_gpu_events **ret_events, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_events, err);

    tutti_gpu_events *events;
    tutti_code code;

    if (count == 0 || count > EVENTS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_EVENT",
                              "%" PRIu32 " events, need 1 to %d", count, EVENTS_MAX);
    }
    events = calloc(1, sizeof(*events) + count * sizeof(events->list[0]));
    if (events == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for events");
    }
    events->client = client;
    events->count = count;
    code = open_events(events, device, err);
    if (code != TUTTI_OK) {
        tutti_gpu_events_end(events);
        return code;
    }
    *ret_events = events;
    return TUTTI_OK;
}

const tutti_gpu_event *
tutti_gpu_events_list(const tutti_gpu_events *events)
{
    return events->list;
}

const char *
tutti_gpu_events_uuid(const tutti_gpu_events *events)
{
    return events->gpu_uuid;
}

void
tutti_gpu_events_end(tutti_gpu_events *events)
{
    if (events == NULL) {
        return;
    }
    if (events->stream != NULL) {
        tutti_rpc_stream_cancel(events->stream);
        (void)tutti_rpc_stream_finish(events->stream, NULL);
    }
    if (events->conn != NULL) {
        client_conn_give(events->client, events->conn);
    }
    free(events);
}
