/* Private to client: one unary call. */
#ifndef TUTTI_CLIENT_CONN_CALL_H
#define TUTTI_CLIENT_CONN_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/conn/conn_pool.h"
#include "rpc/channel.h"
#include "tutti/client.h"

/* Takes requests of ops on their way, to make something else of them. [in] payload  borrowed */
typedef struct client_request_hook client_request_hook;
struct client_request_hook {
    tutti_code (*take)(client_request_hook *self, const struct ProtobufCMessage *request,
                       const void *payload, size_t payload_bytes, tutti_error *err);
};

struct client_stream_service;

/* One unary call. */
typedef struct client_call {
    const tutti_rpc_stub *stub;
    client_conn_kind kind;
    /* Of a call of the coordinator, whose streams may carry it (command_stream.h); NULL = none may. Those of
     * the agent's are known. */
    const struct client_stream_service *streams;
    uint64_t deadline_ns; /* 0 = none */
    uint64_t lease;       /* of the agent, under which it makes tensors; 0 = the client's, if any */
    const void *payload;  /* NULL = none; not looked at after the call */
    size_t payload_bytes;
    client_request_hook
        *request_hook; /* where the request goes instead of on its way; NULL = nowhere */
} client_call;

/* [out, owned] ret_response  NULL = not wanted; untouched when it was diverted */
tutti_code client_invoke(tutti_client *client, const client_call *call,
                         const struct ProtobufCMessage *request, tutti_rpc_message **ret_response,
                         tutti_error *err);

/* The same for a request that may be made twice: it has a token, or it changes nothing. When the
 * connection breaks in the middle, or the server shuts down, again until the call's deadline. */
tutti_code client_invoke_again(tutti_client *client, const client_call *call,
                               const struct ProtobufCMessage *request,
                               tutti_rpc_message **ret_response, tutti_error *err);

/*
 * A stream of the coordinator's has failed before anything came of it: may another coordinator answer it?
 * Then it pauses, and the next one is asked. False: the time is over, or the error is not of that kind.
 *
 * [in, out] until_ns  0 = the client's own time, from the first call on
 * [in, out] pause_ns  0 before the first call
 */
bool client_stream_again(const tutti_client *client, client_conn *conn, const tutti_error *err,
                         uint64_t *until_ns, uint64_t *pause_ns);

/*
 * Of a stream that can go on where it was: it has ended with `err`. True when another one is worth an attempt,
 * after a pause: whoever served it has gone.
 *
 * [in]      until_ns  attempts end then
 * [in, out] pause_ns  0 before the first
 */
bool client_stream_resumes(const tutti_error *err, uint64_t until_ns, uint64_t *pause_ns);

/*
 * Behind the opening of a call with one request and many responses: send the request, hand on what comes,
 * and finish the call. How it ended; TUTTI_OK also if `on_response` said that it is enough: then it is cancelled.
 *
 * [in]  on_response  takes a response, for as long as it runs; false = enough
 * [out] ret_enough   false while it was not said
 */
tutti_code client_stream_hear(tutti_rpc_stream *stream, const struct ProtobufCMessage *request,
                              bool (*on_response)(void *arg, const void *response), void *arg,
                              bool *ret_enough, tutti_error *err);

/* Of a stream: calls of the agent make tensors under the client's lease, if it has one. */
tutti_rpc_call_options client_stream_options(const tutti_client *client);

/* A deadline from now; [in] timeout_ms  0 = the client's timeout_ms. */
uint64_t client_deadline(const tutti_client *client, uint32_t timeout_ms);

/*
 * For a call whose server has a deadline of its own: later by CLIENT_OP_GRACE_MS, so that the
 * server's error, which names the missing rank, comes first. 0 = never.
 */
uint64_t client_op_deadline(uint32_t timeout_ms);

#endif
