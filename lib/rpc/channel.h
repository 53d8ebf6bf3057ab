/*
 * Channel: calls methods of any protobuf-c service, one line per method.
 *
 *     static const tutti_rpc_stub store_get = {&tutti__v1__store_service__descriptor, "Get"};
 *
 * Blocking calls run on the caller's thread with a queue of their own; asynchronous ones come back
 * on a loop. An error carries the code, the text and the ErrorInfo that the server sent.
 */
#ifndef TUTTI_RPC_CHANNEL_H
#define TUTTI_RPC_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/loop.h"
#include "rpc/message.h"
#include "tutti-rpc/stub.h"
#include "tutti/error.h"

typedef struct tutti_rpc_channel tutti_rpc_channel;

typedef struct tutti_rpc_channel_options {
    const char *tls_ca;     /* PEM file; "" or NULL = plaintext */
    const char *tls_cert;   /* the client's own, for mutual TLS; "" or NULL = none */
    const char *tls_key;    /* likewise */
    const char *tls_name;   /* what the server's certificate must say instead of its address */
    const char *token;      /* bearer token; never sent over plaintext TCP beyond loopback */
    const char *token_file; /* instead: the file that holds it, read again when it changes */
    const char *trace;      /* W3C traceparent that calls carry; NULL, or none = nothing */
    /*
     * Between pings. 0 = every 330 s while calls are in flight: servers in Go, Python and C send
     * clients away that ping more often than every five minutes. Another number also pings when
     * idle; the server must allow it (ours: --ping-interval-min). TUTTI_TIMERS_NEVER = none.
     */
    uint64_t keepalive_ns;
    uint64_t keepalive_timeout_ns; /* how long a ping may be unanswered; 0 = 20 s */
    uint64_t backoff_max_ns;       /* between attempts to connect; 0 = 5 s */
    uint64_t receive_bytes_max;    /* of one message; 0 = 8 MiB */
    bool bulk;                     /* a connection of its own, buffers freed as they leave */
    /*
     * The target is a list "HOST:PORT,HOST:PORT" of servers of which one leads, or a name behind which
     * there are several. Calls go to one of them. After a call that did not reach it, that lost the
     * connection, got no answer in time, or was answered NOT_LEADER, further calls go to the server
     * that was named by that answer, else to the next of the list. The call itself fails: its caller
     * repeats it. Calls fail at once where there is no connection: `wait_for_ready` is ignored, once
     * several are known.
     */
    bool follow;
} tutti_rpc_channel_options;

/*
 * [in] target   an address as base/config/address.h takes it; with `follow` a list of them
 * [in] options  NULL = plaintext, no token; copied. A Unix socket is plaintext always
 *
 * TUTTI_INVALID_ARGUMENT     bad address; a certificate that cannot be used; a token on plaintext
 *                            TCP that leaves this machine
 * TUTTI_NOT_FOUND, ...       a certificate or token file could not be read
 * TUTTI_RESOURCE_EXHAUSTED   no memory
 * TUTTI_FAILED_PRECONDITION  this process was forked off the one that started gRPC
 *
 * Nothing is connected yet: the first call does that. Certificates and the token file are read now,
 * and again when they have changed: calls that begin a second later use them, calls that run keep
 * their connection. Files that cannot be used are logged, and all stays as it was.
 */
tutti_code tutti_rpc_channel_open(const char *target, const tutti_rpc_channel_options *options,
                                  tutti_rpc_channel **ret_channel, tutti_error *err);

/* Its calls must have ended. NULL is fine. */
void tutti_rpc_channel_close(tutti_rpc_channel *channel);

typedef struct tutti_rpc_stub tutti_rpc_stub;

/* The client's end of a lane (rpc/lane.h), for one stream that blocks or is polled. */
typedef struct tutti_rpc_lane_end {
    struct tutti_lane *lane; /* [borrowed] until the stream is finished, or freed */
    const char *name;        /* as the server knows it */
    int lease;               /* a descriptor that is readable when the server is gone; -1 = none */
} tutti_rpc_lane_end;

#define TUTTI_RPC_EXTRA_MAX 4

/* A piece of metadata. */
typedef struct tutti_rpc_pair {
    const char *key; /* lower case */
    const char *value;
} tutti_rpc_pair;

/* How one call is made. Zeros are good defaults. */
typedef struct tutti_rpc_call_options {
    uint64_t deadline_ns; /* on tutti_clock_ns(); 0 = none */
    bool wait_for_ready;  /* keep trying to connect until the deadline */
    uint64_t lease;       /* sent as metadata `tutti-lease`, in decimal digits; 0 = not sent */
    /* More metadata. The texts are borrowed until the call has returned, or is begun. */
    tutti_rpc_pair extra[TUTTI_RPC_EXTRA_MAX];
    size_t extra_count;
    /* [moved, also on failure] What is sent, if the request (of a flow: `first`) is NULL. */
    tutti_rpc_packed *packed;
    /* Where the server's google.rpc.Status is added if the call fails, before its end is told; NULL = not
     * wanted. Good until then. Of tutti_rpc_invoke and tutti_rpc_flow_start. */
    tutti_buf *details;
    /* Of tutti_rpc_stream_open and tutti_rpc_duplex_open: how messages go; NULL = by gRPC. */
    const tutti_rpc_lane_end *lane;
} tutti_rpc_call_options;

/*
 * A unary call that blocks. Any thread.
 *
 * [in]          request       packed before anything is sent
 * [in]          payload       NULL = none; on_release has run, or will
 * [out, owned]  ret_response  free with tutti_rpc_message_free; NULL when the caller wants none
 *
 * TUTTI_UNAVAILABLE        UNREACHABLE: no connection, the text names the target and says why;
 *                          CONNECTION_LOST: it broke during the call
 * TUTTI_DEADLINE_EXCEEDED  no answer in time; UNREACHABLE when there was not even a connection
 * TUTTI_DATA_LOSS          the response is malformed
 * ...                      all else as the server answered, with its reason, group and rank
 */
tutti_code tutti_rpc_invoke(tutti_rpc_channel *channel, const tutti_rpc_stub *stub,
                            const struct ProtobufCMessage *request, const tutti_rpc_blob *payload,
                            const tutti_rpc_call_options *options, tutti_rpc_message **ret_response,
                            tutti_error *err);

/*
 * Asked every 50 ms by a thread that waits in a blocking call or for a stream's message; true: the
 * call, or the stream, is cancelled. On the thread that waits; it must not make calls of its own.
 */
typedef bool (*tutti_rpc_interrupt_fn)(void);

/* Of all channels of the process; calls that wait already do not ask it. NULL = none, the default.
 * Any thread. */
void tutti_rpc_set_interrupt(tutti_rpc_interrupt_fn hook);

/* Ask it, between slices of a wait that is not in this room. Without locks. */
bool tutti_rpc_interrupted(void);

/*
 * Did a call fail because no server is there, by the word of its host, of a proxy, or of the name
 * service? False: it was reached, or nothing at all answered, as when the network is cut.
 */
bool tutti_rpc_nobody_there(const tutti_error *err);

/* ------------------------------------------------------------------ unary, on a loop */

typedef struct tutti_rpc_request tutti_rpc_request;

/*
 * Runs once, on the loop; after tutti_rpc_request_start has returned when that was called on the
 * loop's thread, from another thread possibly before. `err` NULL = OK; else `response` is NULL.
 * Both borrowed until it returns; the request is gone afterwards.
 */
typedef void (*tutti_rpc_reply_fn)(void *arg, tutti_rpc_message *response, const tutti_error *err);

/*
 * Any thread.
 *
 * [in]             request      packed before it returns
 * [out, borrowed]  ret_request  good until on_reply has run; NULL when the caller never cancels
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory; on_reply will not run
 */
tutti_code tutti_rpc_request_start(tutti_rpc_channel *channel, tutti_rpc_loop *loop,
                                   const tutti_rpc_stub *stub,
                                   const struct ProtobufCMessage *request,
                                   const tutti_rpc_call_options *options,
                                   tutti_rpc_reply_fn on_reply, void *arg,
                                   tutti_rpc_request **ret_request, tutti_error *err);

/* on_reply then comes with TUTTI_CANCELLED, or with whatever had arrived. Loop's thread. */
void tutti_rpc_request_cancel(tutti_rpc_request *request);

/* ------------------------------------------------------------------ streams that block */

typedef struct tutti_rpc_stream tutti_rpc_stream;

/*
 * One thread may write while another one reads; finish when both are done. Nothing is said about
 * the server yet: the first read or write, or finish, tells whether it could be reached.
 */
tutti_code tutti_rpc_stream_open(tutti_rpc_channel *channel, const tutti_rpc_stub *stub,
                                 const tutti_rpc_call_options *options,
                                 tutti_rpc_stream **ret_stream, tutti_error *err);

/*
 * One message. Returns when gRPC's flow control has let it through. TUTTI_ABORTED: the stream has
 * ended; tutti_rpc_stream_finish says why.
 */
tutti_code tutti_rpc_stream_write(tutti_rpc_stream *stream, const struct ProtobufCMessage *message,
                                  const tutti_rpc_blob *payload, tutti_error *err);

/* The same with what is packed already [in, moved]. `more`: another write follows, and this one may
 * wait for it. */
tutti_code tutti_rpc_stream_write_packed(tutti_rpc_stream *stream, tutti_rpc_packed *packed,
                                         bool more, tutti_error *err);

/*
 * The same without waiting until it has left: an answer to it says that it has. The next write
 * waits for this one.
 */
void tutti_rpc_stream_post(tutti_rpc_stream *stream, tutti_rpc_packed *packed);

/* Say that no more will be written. */
tutti_code tutti_rpc_stream_writes_done(tutti_rpc_stream *stream, tutti_error *err);

/* [out, owned] ret_message  NULL at the end of the stream: call finish to learn how it ended */
tutti_code tutti_rpc_stream_read(tutti_rpc_stream *stream, tutti_rpc_message **ret_message,
                                 tutti_error *err);

/*
 * Wait until a read will not block: a message is there, or the end. False: neither was by the
 * deadline (0 = none, the past = now); nothing is lost by that. For who reads.
 */
bool tutti_rpc_stream_wait(tutti_rpc_stream *stream, uint64_t deadline_ns);

/* Give up: whoever blocks in the others returns. Any thread. */
void tutti_rpc_stream_cancel(tutti_rpc_stream *stream);

/*
 * The same for a stream that carries calls, when the deadline of one has passed: says what the call
 * would have said as a unary one, and a channel that follows goes on to the next server. Finish the
 * stream then.
 *
 * [in] stub  of that call
 *
 * TUTTI_DEADLINE_EXCEEDED  always; UNREACHABLE: it had no connection
 */
tutti_code tutti_rpc_stream_late(tutti_rpc_stream *stream, const tutti_rpc_stub *stub,
                                 tutti_error *err);

/*
 * The status of the call; frees the stream in any case. Says that no more will be written, if that
 * was not said; what was not read is read and forgotten. Cancel before, to leave early.
 */
tutti_code tutti_rpc_stream_finish(tutti_rpc_stream *stream, tutti_error *err);

/* ------------------------------------------------------------------ streams that are polled */

/*
 * A stream without a thread of its own, which threads share: one at a time polls it, and any may
 * write to it, one at a time.
 */
typedef struct tutti_rpc_duplex tutti_rpc_duplex;

typedef enum tutti_rpc_event {
    TUTTI_RPC_NOTHING, /* by the deadline, or it was woken */
    TUTTI_RPC_MESSAGE,
    TUTTI_RPC_WRITTEN, /* another message may be written */
    TUTTI_RPC_ENDED,   /* by the server or the connection, once: tutti_rpc_duplex_end tells how */
} tutti_rpc_event;

/* Codes as tutti_rpc_stream_open. */
tutti_code tutti_rpc_duplex_open(tutti_rpc_channel *channel, const tutti_rpc_stub *stub,
                                 const tutti_rpc_call_options *options,
                                 tutti_rpc_duplex **ret_duplex, tutti_error *err);

/*
 * Write, without waiting.
 *
 * [in, moved] packed
 * [in]        more    another write follows at once, and this one may wait for it
 *
 * Returns true: it has left, and the next one may be written at once; there is no event. So it is
 * with a lane that has room. False: nobody writes until the event WRITTEN.
 */
bool tutti_rpc_duplex_write(tutti_rpc_duplex *duplex, tutti_rpc_packed *packed, bool more);

/*
 * What has happened. One thread at a time.
 *
 * [in]         deadline_ns  0 = none, the past = look, do not wait
 * [out, owned] ret_message  of MESSAGE; else untouched
 * [out]        err          of ENDED, when what came is no message: TUTTI_DATA_LOSS; else code OK
 */
tutti_rpc_event tutti_rpc_duplex_poll(tutti_rpc_duplex *duplex, uint64_t deadline_ns,
                                      tutti_rpc_message **ret_message, tutti_error *err);

/* Whoever polls, or is the next to do so, gets NOTHING. Any thread. */
void tutti_rpc_duplex_wake(tutti_rpc_duplex *duplex);

/* Say that no more will be written, in the place of a write: WRITTEN follows, and ENDED later. */
void tutti_rpc_duplex_close(tutti_rpc_duplex *duplex);

/* Give up: ENDED follows. Any thread. */
void tutti_rpc_duplex_cancel(tutti_rpc_duplex *duplex);

/*
 * How it ended; before ENDED it is cancelled. Blocks shortly. In the place of a poll. Others may still call write, wake
 * and cancel, which then do nothing.
 */
tutti_code tutti_rpc_duplex_end(tutti_rpc_duplex *duplex, tutti_error *err);

/* Behind tutti_rpc_duplex_end, once nobody else uses it. */
void tutti_rpc_duplex_free(tutti_rpc_duplex *duplex);

/* ------------------------------------------------------------------ streams on a loop */

typedef struct tutti_rpc_flow tutti_rpc_flow;

/* All on the loop; those left NULL do nothing. on_end comes last, once, and frees the flow. */
typedef struct tutti_rpc_flow_ops {
    /* One message; the next is asked for by itself when this returns. Borrowed until then, unless
     * tutti_rpc_flow_take keeps it. */
    void (*on_message)(void *arg, tutti_rpc_message *message);
    /* The last write has left; the next may be made. */
    void (*on_written)(void *arg);
    /* How it ended; NULL = OK. */
    void (*on_end)(void *arg, const tutti_error *err);
} tutti_rpc_flow_ops;

/*
 * Any thread. From another one than the loop's, callbacks may run before it returns.
 *
 * [in] first       sent at once (a server-streaming method's request); NULL = nothing
 * [in] half_close  say at once that no more will be written
 * [in] ops         static
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory; no callback will run
 */
tutti_code tutti_rpc_flow_start(tutti_rpc_channel *channel, tutti_rpc_loop *loop,
                                const tutti_rpc_stub *stub, const struct ProtobufCMessage *first,
                                bool half_close, const tutti_rpc_call_options *options,
                                const tutti_rpc_flow_ops *ops, void *arg, tutti_rpc_flow **ret_flow,
                                tutti_error *err);

/*
 * Inside on_message: do not ask for another message until resume is called. A flow that is held ends only after
 * that, too.
 */
void tutti_rpc_flow_hold(tutti_rpc_flow *flow);
void tutti_rpc_flow_resume(tutti_rpc_flow *flow); /* held. Loop's thread */

/* Inside on_message, once: keep the message beyond it. [out, owned] tutti_rpc_message_free() */
tutti_rpc_message *tutti_rpc_flow_take(tutti_rpc_flow *flow);

/* One at a time, only when writable. Loop's thread. What cannot be packed ends the flow. */
void tutti_rpc_flow_write(tutti_rpc_flow *flow, const struct ProtobufCMessage *message);

/* The same with what is packed already [in, moved]. `more`: another write follows at once, and this
 * one may wait for it. */
void tutti_rpc_flow_write_packed(tutti_rpc_flow *flow, tutti_rpc_packed *packed, bool more);
bool tutti_rpc_flow_writable(const tutti_rpc_flow *flow);

/* Say that no more will be written, when the last write has left. Loop's thread. */
void tutti_rpc_flow_writes_done(tutti_rpc_flow *flow);

/* Loop's thread. on_end follows. */
void tutti_rpc_flow_cancel(tutti_rpc_flow *flow);

/* ------------------------------------------------------------------------------ what went wrong */

/*
 * Say for which names a server's certificate is, where an error of a flow says that it is for
 * another one; other errors stay. Blocking calls do it by themselves. Blocks for a second at most.
 */
void tutti_rpc_channel_name_certificate(const tutti_rpc_channel *channel, tutti_error *err);

#endif
