/*
 * Nested calls: unary methods of a server, called by a message of a stream.
 *
 * To its handler a nested call is a call like any other: it has a request and a payload, the
 * caller, metadata and deadline of the stream, hears when the caller goes away, and is answered
 * once. The answer goes to who made the nested call instead of to gRPC. So a method need not know
 * that it can be called this way.
 */
#ifndef TUTTI_RPC_NESTED_H
#define TUTTI_RPC_NESTED_H

#include <stdbool.h>

#include "rpc/loop.h"
#include "rpc/message.h"
#include "rpc/server.h"

/*
 * The handler's answer: a response with its payload (NULL = none), or an error. Any thread, once,
 * possibly inside tutti_rpc_nested_start. All is borrowed until it returns, but
 *
 * [in, moved] payload  on_release has to run, as behind tutti_rpc_pack
 */
typedef void (*tutti_rpc_nested_fn)(void *arg, const struct ProtobufCMessage *response,
                                    const tutti_rpc_blob *payload, const tutti_error *err);

typedef struct tutti_rpc_nested {
    tutti_rpc_call *stream;                 /* it lives until all that is nested in it has ended */
    tutti_rpc_message *message;             /* [in, moved] its payload is the nested call's */
    const struct ProtobufCMessage *request; /* inside the message; its type says which method */
    tutti_rpc_nested_fn on_answer;
    void *arg;
    uint64_t lease; /* in place of the stream's metadata `tutti-lease`; 0 = that */
} tutti_rpc_nested;

/*
 * Make a nested call. Whatever happens then, tutti_rpc_nested_end is called on it.
 *
 * TUTTI_INVALID_ARGUMENT    COMMAND_PAYLOAD: the request has payload bytes of its own
 * TUTTI_UNIMPLEMENTED       no unary method of this server takes such a request
 * TUTTI_UNAUTHENTICATED, TUTTI_PERMISSION_DENIED  the caller may not call that method
 * what tutti_rpc_service.admit says
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code tutti_rpc_nested_new(const tutti_rpc_nested *nested, tutti_rpc_call **ret_call,
                                tutti_error *err);

/* The loop on which the handler runs: the loop of the method's service. */
tutti_rpc_loop *tutti_rpc_nested_loop(const tutti_rpc_call *call);

/* Call the handler. On its loop, once. */
void tutti_rpc_nested_start(tutti_rpc_call *call);

/*
 * Tell the handler that the caller has gone, or (not `gone`) that the server drains: in an event
 * of its own, unless it has answered by then. Any thread, at most once, before end.
 */
void tutti_rpc_nested_cancel(tutti_rpc_call *call, bool gone);

/*
 * The nested call is over: it was never started, or it was answered and the answer has gone out
 * (`delivered`) or never will. on_end of the handler follows. Any thread, once; the call may be
 * gone on return.
 */
void tutti_rpc_nested_end(tutti_rpc_call *call, bool delivered);

#endif
