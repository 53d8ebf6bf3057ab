/*
 * The inside of a call on the server.
 *
 * A call ends when its parts are over: gRPC has told that the client is done (CLOSE), the status
 * has left, the handler has answered, and no read or write is under way. Everything happens on the
 * lane's thread but answers and writes, which may come from any.
 */
#ifndef TUTTI_RPC_SERVER_CALL_H
#define TUTTI_RPC_SERVER_CALL_H

#include <grpc/grpc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "rpc/loop.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message.h"
#include "rpc/message/status_pb.h"
#include "rpc/nested.h"
#include "rpc/server.h"
#include "rpc/server/server_private.h"

struct ProtobufCMessage;

struct tutti_rpc_call {
    rpc_server_loop *server_loop;
    rpc_route *route;     /* NULL: nobody knows the method */
    tutti_list_node link; /* in the lane's calls */
    grpc_call *call;
    atomic_uint refs;
    atomic_uint parts;

    /* Written by gRPC. */
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_call_details details; /* when nobody knows the method */
    grpc_byte_buffer *first;   /* the request, when the client does not stream */
    grpc_byte_buffer *received;
    int gone; /* CLOSE: the client left before its status */

    uint64_t came_ns;

    tutti_rpc_tag arrived;
    tutti_rpc_task enter; /* it arrived on another thread than its lane's */
    bool came;            /* ... and is none of those that a server's end brings */
    tutti_rpc_tag closed;
    tutti_rpc_tag read;
    tutti_rpc_tag written;
    tutti_rpc_tag finished;
    tutti_rpc_task end;
    tutti_rpc_task tell; /* on_cancel, when the call was answered in the handler's stead, or the
                            stream it is nested in is over */

    /* The lane's thread. */
    tutti_rpc_message *request;
    tutti_rpc_unary_fn on_cancel;
    tutti_rpc_unary_fn on_end;
    bool beginning;     /* the handler is being called for the first time */
    bool handed;        /* the handler has it */
    bool told;          /* on_cancel has run */
    bool close_started; /* CLOSE has been asked for, ... */
    bool close_joined;  /* ... in one batch with the status */
    char *identity;     /* NULL = "" */
    void *grant;        /* the guard's; NULL = no limits */

    void *user;
    atomic_bool cancelled;

    /* Of a nested call, which gRPC does not know: `call` is NULL and the parts are not counted. */
    tutti_rpc_call *stream; /* [ref] whose it is; NULL: not nested */
    tutti_rpc_nested_fn on_answer;
    void *on_answer_arg;

    pthread_mutex_t lock; /* guards all below; nothing is called with it held */
    char *peer;           /* NULL until somebody asks */
    bool initial_sent;
    bool writing;
    bool answered; /* the handler has had its last word */
    bool ending;   /* the last word is under way, or waits for the write before it */
    grpc_byte_buffer *last;
    rpc_status status;
};

/* For one request that gRPC will fill in; NULL without memory. Holds a life of the server. */
tutti_rpc_call *rpc_call_new(rpc_server_loop *server_loop, rpc_route *route);

/* It was never announced. */
void rpc_call_discard(tutti_rpc_call *call);

/* It was announced: check it, and hand it to its handler or answer it. */
void rpc_call_begin(tutti_rpc_call *call);

/*
 * Answer in the handler's stead; if it has the call already it is told in an event of its own. Any
 * thread, while the call has not ended; an answer that was given before stays.
 */
void rpc_call_refuse(tutti_rpc_call *call, const tutti_error *err);

/* Tell the handler, once, unless it has answered. Lane's thread. */
void rpc_call_tell(tutti_rpc_call *call);

/* So many parts are over. In an event of the call: it may be gone when this returns. */
void rpc_call_drop(tutti_rpc_call *call, unsigned parts);

/* One part is over; if it was the last one the call ends in an event of its own. Any thread. */
void rpc_call_drop_later(tutti_rpc_call *call);

/* Send what `last` and `status` hold; nothing may be in flight. The call may be gone on return. */
void rpc_call_send_last(tutti_rpc_call *call);

/* authorize.c: who is it, and may he? Writes identity and grant. */
tutti_code rpc_call_authorize(tutti_rpc_call *call, tutti_error *err);

/* And may he do this, too? His token is looked at again for it, and so is what he says. */
tutti_code rpc_call_authorize_nested(const tutti_rpc_call *stream, const rpc_route *route,
                                     const struct ProtobufCMessage *request, tutti_error *err);

/* nested.c: the handler's last word, to who made the call. `response` or `err`. */
void rpc_nested_answer(tutti_rpc_call *call, const struct ProtobufCMessage *response,
                       const tutti_rpc_blob *payload, const tutti_error *err);
/* May he say this? For every message that has been unpacked. */
tutti_code rpc_call_check(const tutti_rpc_call *call, const tutti_rpc_message *message,
                          tutti_error *err);

/* authorize.c: whom a message speaks for. Borrows from it. */
tutti_rpc_subject rpc_subject_of(const struct ProtobufCMessage *message);

#endif
