/*
 * A lease: a stream of TensorsService.Lease that stays open. Nothing is read from it behind its
 * number, so it needs no thread; that it has ended shows in the calls under it (LEASE_OVER).
 *
 * The agent takes an end without CloseLease for the death of this program, and tells the ranks that
 * wait for its next op.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/tensor/lease.h"
#include "tutti/tensor.h"
#include "tutti/v1/tensors_service.pb-c.h"

static const tutti_rpc_stub stub_lease = {&tutti__v1__tensors_service__descriptor, "Lease"};
static const tutti_rpc_stub stub_close = {&tutti__v1__tensors_service__descriptor, "CloseLease"};

#define PROGRAM_SIZE 64
#define CLOSE_MS 1000 /* for the agent to hear of it; else it ends as after a death */

struct tutti_lease {
    tutti_client *client;
    client_conn *conn;
    tutti_rpc_stream *stream;
    uint64_t number; /* 0 = not known yet */
};

/* How the stream ended, though it should stay open. */
static tutti_code
finish_lease(tutti_lease *lease, tutti_error *err)
{
    tutti_rpc_stream *stream = lease->stream;

    lease->stream = NULL;
    TUTTI_TRY(tutti_rpc_stream_finish(stream, err));
    return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "STOPPING",
                          "the agent has ended the lease: it stops");
}

static tutti_code
read_lease(tutti_lease *lease, uint64_t *ret_number, tutti_error *err)
{
    tutti_rpc_message *message = NULL;
    const Tutti__V1__LeaseResponse *response;

    if (!tutti_rpc_stream_wait(lease->stream, client_deadline(lease->client, 0))) {
        return TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                              "%s has not opened a lease within %" PRIu32 " ms",
                              lease->client->settings.agent, lease->client->settings.timeout_ms);
    }
    TUTTI_TRY(tutti_rpc_stream_read(lease->stream, &message, err));
    if (message == NULL) {
        return finish_lease(lease, err);
    }
    response = tutti_rpc_message_get(message);
    *ret_number = response->lease;
    lease->number = response->lease;
    tutti_rpc_message_free(message);
    return *ret_number != 0
               ? TUTTI_OK
               : TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER", "the agent opened lease 0");
}

static tutti_code
open_lease_stream(tutti_lease *lease, uint64_t *ret_number, tutti_error *err)
{
    Tutti__V1__LeaseRequest request = TUTTI__V1__LEASE_REQUEST__INIT;
    char program[PROGRAM_SIZE];

    (void)snprintf(program, sizeof(program), "%.40s (pid %ld)", program_invocation_short_name,
                   (long)getpid());
    request.program = program;
    TUTTI_TRY(client_conn_take(lease->client, CLIENT_CONTROL, &lease->conn, err));
    TUTTI_TRY(tutti_rpc_stream_open(lease->conn->channel, &stub_lease, NULL, &lease->stream, err));
    (void)tutti_rpc_stream_write(lease->stream, &request.base, NULL, NULL); /* reading tells */
    (void)tutti_rpc_stream_writes_done(lease->stream, NULL);
    return read_lease(lease, ret_number, err);
}

/* Errors are ignored: an agent may have ended or may not know the call, and the stream ends anyway. */
static void
close_lease(const tutti_lease *lease)
{
    const client_call call = {.stub = &stub_close,
                              .kind = CLIENT_CONTROL,
                              .deadline_ns = client_deadline(lease->client, CLOSE_MS)};
    Tutti__V1__CloseLeaseRequest request = TUTTI__V1__CLOSE_LEASE_REQUEST__INIT;

    request.lease = lease->number;
    (void)client_invoke(lease->client, &call, &request.base, NULL, NULL);
}

void
client_lease_drop(tutti_lease *lease)
{
    if (lease == NULL) {
        return;
    }
    if (lease->stream != NULL) {
        if (lease->number != 0) {
            close_lease(lease);
        }
        tutti_rpc_stream_cancel(lease->stream);
        (void)tutti_rpc_stream_finish(lease->stream, NULL);
    }
    if (lease->conn != NULL) {
        client_conn_give(lease->client, lease->conn);
    }
    free(lease);
}

tutti_code
client_lease_take(tutti_client *client, tutti_lease **ret_lease, uint64_t *ret_number,
                  tutti_error *err)
{
    tutti_lease *lease = calloc(1, sizeof(*lease));
    tutti_code code;

    if (lease == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a lease");
    }
    lease->client = client;
    code = open_lease_stream(lease, ret_number, err);
    if (code != TUTTI_OK) {
        client_lease_drop(lease);
        return code;
    }
    *ret_lease = lease;
    return TUTTI_OK;
}

tutti_code
tutti_lease_open(tutti_client *client, tutti_lease **ret_lease, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_lease, err);

    uint_fast64_t none = 0;
    uint64_t number = 0;
    tutti_lease *lease = NULL;

    TUTTI_TRY(client_lease_take(client, &lease, &number, err));
    if (!atomic_compare_exchange_strong(&client->lease, &none, number)) {
        client_lease_drop(lease);
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "LEASE_OPEN",
                              "the client has a lease already: close it before, or use another "
                              "client");
    }
    *ret_lease = lease;
    return TUTTI_OK;
}

void
tutti_lease_close(tutti_lease *lease)
{
    if (lease != NULL) {
        atomic_store(&lease->client->lease, 0);
        client_lease_drop(lease);
    }
}
