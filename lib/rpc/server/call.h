/*
 * The inside of a call on the server.
 *
 * A call consists of parts, counted in `parts`: CLOSE (gRPC has told that the client is done),
 * the status (it has left, or cannot any more), the handler (until it answers), and each read,
 * write and task that is under way. The call ends when the count is 0; rpc_call_drop and
 * rpc_call_drop_later count down.
 *
 * All callbacks run on the loop's thread. Answers and writes may come from any thread. What these
 * share is behind `lock`, which is a leaf: nothing is called with it held.
 *
 * States, by flags: posted (nothing set) -> came -> handed (the handler has it; a refused call
 * skips this) -> ending (the last word is claimed) -> ended. `answered` belongs to the handler:
 * it may be set before or after `ending`, because a call can be refused in the handler's stead
 * (malformed message) while the handler still works on it. `cancelled` may rise at any time after
 * `came`.
 *
 * A nested call (nested.h) uses the same struct without gRPC's part: `call` is NULL, parts are
 * not counted, and tutti_rpc_nested_end ends it.
 */
#ifndef TUTTI_RPC_SERVER_CALL_H
#define TUTTI_RPC_SERVER_CALL_H

#include <grpc/grpc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "rpc/lane.h"
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
    rpc_route *route;     /* NULL: the method has no handler here */
    tutti_list_node link; /* in the loop's calls */
    grpc_call *call;
    atomic_uint refs;  /* the struct's: one until the call ends, one for each ref */
    atomic_uint parts; /* what has to be over before the call ends */

    /* Written by gRPC before `arrived`, `read` or `closed` is told. */
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_call_details details; /* of a method without a handler */
    grpc_byte_buffer *first;   /* the request, when the client does not stream */
    grpc_byte_buffer *received;
    int gone; /* CLOSE: the client left before its status */

    uint64_t came_ns; /* for the duration in the metrics */

    tutti_rpc_tag arrived;
    tutti_rpc_task enter; /* it arrived on another thread than its loop's */
    bool came;            /* false: posted in vain, the server shuts down */
    tutti_rpc_tag closed;
    tutti_rpc_tag read;
    tutti_rpc_tag written;
    tutti_rpc_tag finished;
    tutti_rpc_tag opened; /* of a stream with a lane: its initial metadata have left */
    tutti_rpc_task end;
    tutti_rpc_task tell; /* runs on_cancel: the call was answered in the handler's stead, or the
                            stream it is nested in is over */

    /* The loop's thread only. */
    tutti_rpc_message *request; /* owned; of a client's stream: the message being handed over */
    tutti_rpc_unary_fn on_cancel;
    tutti_rpc_unary_fn on_end;
    tutti_rpc_lane *lane; /* by which its messages go; NULL = gRPC. lane.c */
    bool beginning;       /* the handler is being called for the first time */
    bool handed;          /* the handler has it */
    bool told;            /* on_cancel has run */
    bool close_started;   /* CLOSE has been asked for, ... */
    bool close_joined;    /* ... in one batch with the status */
    char *identity;       /* NULL = "" */
    void *grant;          /* owned, the guard's; NULL = no limits */

    /* What waits for the gate of its service (gate.c). */
    tutti_list_node held;
    uint64_t held_number;
    grpc_byte_buffer *held_message; /* owned; NULL = the last word is what waits */
    bool held_first;                /* the message takes the initial metadata with it */

    void *user; /* the handler's own */
    atomic_bool cancelled;

    /* Of a nested call, which gRPC does not know: `call` is NULL and the parts are not counted. */
    tutti_rpc_call *stream; /* [ref] whose it is; NULL: not nested */
    tutti_rpc_nested_fn on_answer;
    void *on_answer_arg;
    char lease[24]; /* digits; "" = as the stream's metadata says */

    pthread_mutex_t lock; /* guards all below; nothing is called with it held */
    char *peer;           /* NULL until somebody asks */
    bool initial_sent;
    bool writing;
    bool answered;          /* the handler has had its last word */
    bool ending;            /* the last word is under way, or waits for the write before it */
    grpc_byte_buffer *last; /* owned: the response that leaves with the status; NULL = none */
    size_t unsent;          /* of the server's unsent_bytes; of the one who sends */
    rpc_status status;
};

/*
 * Make a call for one request that gRPC will fill in, or for a nested call; NULL without memory.
 * Any thread. It holds a life of the server until it has ended or is discarded.
 */
tutti_rpc_call *rpc_call_new(rpc_server_loop *server_loop, rpc_route *route);

/* Free a call that was posted and never arrived: the server has shut down. Loop's thread. */
void rpc_call_discard(tutti_rpc_call *call);

/*
 * A call has arrived: check it, and hand it to its handler or answer it with the error. Loop's
 * thread, once.
 */
void rpc_call_begin(tutti_rpc_call *call);

/*
 * Answer in the handler's stead; if it has the call already it is told in an event of its own. Any
 * thread, while the call has not ended; an answer that was given before stays.
 */
void rpc_call_refuse(tutti_rpc_call *call, const tutti_error *err);

/* Tell the handler, once, unless it has answered. Loop's thread. */
void rpc_call_tell(tutti_rpc_call *call);

/* gRPC has said that the client or the call has ended. In the turn, once. */
void rpc_call_closed(tutti_rpc_call *call);

/* So many parts are over. In an event of the call: it may be gone when this returns. */
void rpc_call_drop(tutti_rpc_call *call, unsigned parts);

/* One part is over; if it was the last one the call ends in an event of its own. Any thread. */
void rpc_call_drop_later(tutti_rpc_call *call);

/*
 * Send what `last` and `status` hold. Called by the one that has claimed the last word, or by
 * on_written for it; no write may be under way. The call may be gone on return.
 */
void rpc_call_send_last(tutti_rpc_call *call);

/*
 * A message is about to go to gRPC: count what it keeps of memory until the client has read it.
 * gRPC's quota counts only what comes in. False: so much waits already that this one must not wait
 * as well; *err tells the client. rpc_call_count_sent, once gRPC is through with it. Any thread,
 * one message of a call at a time.
 *
 * TUTTI_RESOURCE_EXHAUSTED  UNSENT_LIMIT
 */
bool rpc_call_count_unsent(tutti_rpc_call *call, const grpc_byte_buffer *message, tutti_error *err);
void rpc_call_count_sent(tutti_rpc_call *call);

/*
 * gate.c: does what would leave now wait for a gate? Then it is sent later. [in, moved] message  of
 * a write that is claimed; NULL = the last word, which is claimed. Without a gate: any thread.
 */
bool rpc_gate_hold(tutti_rpc_call *call, grpc_byte_buffer *message, bool first);

/* server_stream.c: make a write that is claimed. `more` as in tutti_rpc_call_write_packed. */
void rpc_call_start_write(tutti_rpc_call *call, grpc_byte_buffer *message, bool first, bool more);

/*
 * server_stream.c, for streams whose messages go by a lane: what gRPC's events do for others. In
 * the loop's turn.
 */
void rpc_call_deliver(tutti_rpc_call *call, grpc_byte_buffer *received); /* [in, moved] */
void rpc_call_half_closed(tutti_rpc_call *call);
void rpc_call_on_written(tutti_rpc_call *call, bool ok); /* gives a part back */

/* ... and what goes by gRPC all the same. */
void rpc_call_read_grpc(tutti_rpc_call *call);
void rpc_call_write_grpc(tutti_rpc_call *call, grpc_byte_buffer *message, bool first, bool more);

/*
 * authorize.c: find out who calls, and whether the method may be called. Writes identity and
 * grant. Loop's thread, before the handler.
 *
 * TUTTI_UNAUTHENTICATED, TUTTI_PERMISSION_DENIED refused; TUTTI_RESOURCE_EXHAUSTED no memory
 */
tutti_code rpc_call_authorize(tutti_rpc_call *call, tutti_error *err);

/*
 * May the caller of this stream call this method, too, with this request? The token that the
 * stream showed is looked at again, so a token that has expired since lets nothing more in. Any
 * thread.
 */
tutti_code rpc_call_authorize_nested(const tutti_rpc_call *stream, const rpc_route *route,
                                     const struct ProtobufCMessage *request, tutti_error *err);

/*
 * nested.c: the handler's last word goes to the maker of the nested call. `response` or `err`,
 * the other is NULL. Any thread, once.
 */
void rpc_nested_answer(tutti_rpc_call *call, const struct ProtobufCMessage *response,
                       const tutti_rpc_blob *payload, const tutti_error *err);
/*
 * Does a message keep to the call's grant (job, rank)? For every message that has been unpacked,
 * before the handler sees it.
 */
tutti_code rpc_call_check(const tutti_rpc_call *call, const tutti_rpc_message *message,
                          tutti_error *err);

/*
 * authorize.c: whom a message speaks for, by its fields. The texts are borrowed from the message.
 */
tutti_rpc_subject rpc_subject_of(const struct ProtobufCMessage *message);

#endif
