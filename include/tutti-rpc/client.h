/*
 * Client: calls methods of any protobuf-c service; each call blocks its thread, and no other.
 *
 *     static const tuttirpc_stub say_hello = {&greeter__v1__greeter__descriptor, "SayHello"};
 *
 *     tuttirpc_channel_open("127.0.0.1:50051", NULL, &channel, &status);
 *     tuttirpc_call(channel, &say_hello, &request.base, 5000, &answer, &status);
 *
 * A channel may be used by any number of threads at the same time. gRPC is started by the first
 * channel or server of a process, and stays until the process ends. It does not survive fork(): a
 * child that calls something here gets FAILED_PRECONDITION, unless it runs another program.
 */
#ifndef TUTTI_RPC_PUBLIC_CLIENT_H
#define TUTTI_RPC_PUBLIC_CLIENT_H

#include <stdint.h>

#include "tutti-rpc/message.h"
#include "tutti-rpc/status.h"
#include "tutti-rpc/stub.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_rpc_channel tuttirpc_channel;

/* Zeros and NULL are good defaults. Copied. */
typedef struct tuttirpc_channel_options {
    const char *tls_ca;     /* PEM file of the authority to trust; NULL = plaintext */
    const char *tls_cert;   /* PEM files of the client's own certificate, for mutual TLS */
    const char *tls_key;    /* likewise */
    const char *tls_name;   /* what the server's certificate must say instead of its address */
    const char *token;      /* bearer token; never sent over plaintext TCP beyond this machine */
    const char *token_file; /* instead: the file that holds it, read again when it changes */
    uint64_t receive_bytes_max; /* bytes of one message; 0 = 8 MiB */
} tuttirpc_channel_options;

/*
 * Nothing is connected yet: the first call does that. A connection that broke is made anew by the next
 * call.
 *
 * [in]          target       "host:port", "[v6]:port", "unix:/path"
 * [in]          options      NULL = defaults
 * [out, owned]  ret_channel  tuttirpc_channel_close()
 *
 * INVALID_ARGUMENT     bad address; a certificate that cannot be used; a token on plaintext TCP
 *                      that leaves this machine
 * NOT_FOUND, ...       a certificate or token file could not be read
 * RESOURCE_EXHAUSTED   no memory
 * FAILED_PRECONDITION  this process was forked off the one that started gRPC
 */
TUTTIRPC_API tuttirpc_code tuttirpc_channel_open(const char *target,
                                                 const tuttirpc_channel_options *options,
                                                 tuttirpc_channel **ret_channel,
                                                 tuttirpc_status *status);

/* Its calls must have ended. NULL is fine. */
TUTTIRPC_API void tuttirpc_channel_close(tuttirpc_channel *channel);

/*
 * A unary call. Any thread.
 *
 * [in]          timeout_ms    0 = the call may wait for ever
 * [out, owned]  ret_response  tuttirpc_message_free(); NULL = not wanted
 *
 * UNAVAILABLE        no connection, the text says why (reason UNREACHABLE), or it broke during the
 *                    call (CONNECTION_LOST)
 * DEADLINE_EXCEEDED  no answer in time
 * DATA_LOSS          the response is malformed
 * ...                all else as the server answered
 */
TUTTIRPC_API tuttirpc_code tuttirpc_call(tuttirpc_channel *channel, const tuttirpc_stub *stub,
                                         const struct ProtobufCMessage *request,
                                         uint64_t timeout_ms, tuttirpc_message **ret_response,
                                         tuttirpc_status *status);

typedef struct tutti_rpc_stream tuttirpc_stream;

/*
 * Begin a call of a method that streams in either direction. One thread may write while another one
 * reads. The first read or write, or finish, tells whether the server could be reached.
 *
 * [in]          timeout_ms  of the whole stream; 0 = it may last for ever
 * [out, owned]  ret_stream  tuttirpc_stream_finish()
 *
 * RESOURCE_EXHAUSTED   no memory
 * FAILED_PRECONDITION  this process was forked off the one that started gRPC
 */
TUTTIRPC_API tuttirpc_code tuttirpc_stream_open(tuttirpc_channel *channel,
                                                const tuttirpc_stub *stub, uint64_t timeout_ms,
                                                tuttirpc_stream **ret_stream,
                                                tuttirpc_status *status);

/*
 * Send one message; for a server-streaming method the request. It returns when gRPC's flow control has
 * let the message through.
 *
 * ABORTED             the stream has ended: read what has come, finish says why
 * RESOURCE_EXHAUSTED  no memory, or larger than gRPC can frame (2 GiB - 1)
 */
TUTTIRPC_API tuttirpc_code tuttirpc_stream_write(tuttirpc_stream *stream,
                                                 const struct ProtobufCMessage *message,
                                                 tuttirpc_status *status);

/* Say that no more will be written. ABORTED: as for write, also if the server has ended the stream
 * with OK as soon as it heard of this: what it sent before can still be read. */
TUTTIRPC_API tuttirpc_code tuttirpc_stream_writes_done(tuttirpc_stream *stream,
                                                       tuttirpc_status *status);

/*
 * [out, owned]  ret_message  tuttirpc_message_free(); NULL at the end of the stream: finish says how
 *                            it ended
 *
 * DATA_LOSS, RESOURCE_EXHAUSTED  the message is malformed; it would take too much memory
 */
TUTTIRPC_API tuttirpc_code tuttirpc_stream_read(tuttirpc_stream *stream,
                                                tuttirpc_message **ret_message,
                                                tuttirpc_status *status);

/* Give up: whoever blocks in the functions above returns. Any thread, before finish. */
TUTTIRPC_API void tuttirpc_stream_cancel(tuttirpc_stream *stream);

/*
 * The status of the call; frees the stream in any case. It waits for the server's end: what was not
 * read is read and forgotten. Cancel before, to leave early.
 */
TUTTIRPC_API tuttirpc_code tuttirpc_stream_finish(tuttirpc_stream *stream, tuttirpc_status *status);

#ifdef __cplusplus
}
#endif

#endif
