/*
 * Server: answers calls of any protobuf-c service, one row for each method.
 *
 *     static const tuttirpc_method methods[] = {
 *         {.name = "SayHello", .on_call = say_hello},
 *         {.name = "Count", .stream = &count_ops},
 *     };
 *
 * Handlers run on the threads of the server, those of one service on one thread, one at a time. They must not
 * block: a handler may answer at once, or keep the call and answer later from any thread. A waiting
 * call is a struct, not a thread. Every call is answered exactly once (reply, finish or fail), also if it
 * was cancelled. Unknown methods, malformed requests and missing credentials are answered before a
 * handler sees them. grpc.health.v1.Health is always served, reflection unless it is turned off.
 */
#ifndef TUTTI_RPC_PUBLIC_SERVER_H
#define TUTTI_RPC_PUBLIC_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti-rpc/message.h"
#include "tutti-rpc/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tuttirpc_server tuttirpc_server;
typedef struct tutti_rpc_call tuttirpc_server_call;

/* A unary call has come in: tuttirpc_call_request() is what was asked. `self` is the service's. */
typedef void (*tuttirpc_unary_fn)(tuttirpc_server_call *call, void *self);

/* A streaming call: on_open, then any of the middle ones, then on_end. Those left NULL do nothing. */
typedef struct tuttirpc_stream_ops {
    /* The call is there. The request of a server-streaming method has been read; for other methods
     * call tuttirpc_call_read to get the first message. */
    void (*on_open)(tuttirpc_server_call *call, void *self);
    /* One message for one tuttirpc_call_read. Borrowed until it returns. */
    void (*on_message)(tuttirpc_server_call *call, void *self, tuttirpc_message *message);
    /* Instead of on_message, once: the client will send no more. */
    void (*on_half_close)(tuttirpc_server_call *call, void *self);
    /* The last tuttirpc_call_write has left: the next may be made. */
    void (*on_written)(tuttirpc_server_call *call, void *self);
    /* The client went away, its deadline passed, or the server stops: finish or fail soon. At most
     * once. What is written afterwards is dropped. */
    void (*on_cancel)(tuttirpc_server_call *call, void *self);
    /* The call is over: free what tuttirpc_call_user points to. The last. */
    void (*on_end)(tuttirpc_server_call *call, void *self);
} tuttirpc_stream_ops;

/* One of on_call and stream. */
typedef struct tuttirpc_method {
    const char *name; /* as in the .proto */
    tuttirpc_unary_fn on_call;
    const tuttirpc_stream_ops *stream; /* static */
    bool open;                         /* answered without the token */
} tuttirpc_method;

/* ------------------------------------------------------------------------------ one call */

/* The struct of the request of a unary or server-streaming call. Borrowed until it is answered. */
TUTTIRPC_API const void *tuttirpc_call_request(const tuttirpc_server_call *call);

/* The same with its field 100 (message.h). */
TUTTIRPC_API tuttirpc_message *tuttirpc_call_message(const tuttirpc_server_call *call);

/* Milliseconds until the client stops waiting; 0 = it has; UINT64_MAX = it never does. */
TUTTIRPC_API uint64_t tuttirpc_call_time_left_ms(const tuttirpc_server_call *call);

/* Has the client gone away or given up? Any thread. */
TUTTIRPC_API bool tuttirpc_call_cancelled(const tuttirpc_server_call *call);

/* "/greeter.v1.Greeter/SayHello"; "ipv4:127.0.0.1:55012", "unix:". Borrowed until the call ends. */
TUTTIRPC_API const char *tuttirpc_call_method(const tuttirpc_server_call *call);
TUTTIRPC_API const char *tuttirpc_call_peer(const tuttirpc_server_call *call);

/* The one URI name of the client's certificate, else its one DNS name, else "". Borrowed. */
TUTTIRPC_API const char *tuttirpc_call_identity(const tuttirpc_server_call *call);

/* A metadata value of the client, not terminated by a NUL; NULL = none. Borrowed until the call
 * ends. */
TUTTIRPC_API const void *tuttirpc_call_metadata(const tuttirpc_server_call *call, const char *key,
                                                size_t *ret_size);

/* Whatever the handler wants to find again. One thread at a time. */
TUTTIRPC_API void tuttirpc_call_set_user(tuttirpc_server_call *call, void *user);
TUTTIRPC_API void *tuttirpc_call_user(const tuttirpc_server_call *call);

/*
 * For unary calls that are answered later, inside of the handler: `on_cancel` runs on the service's
 * thread, at most once, if the client goes away or the server stops. The call still has to be answered.
 */
TUTTIRPC_API void tuttirpc_call_on_cancel(tuttirpc_server_call *call, tuttirpc_unary_fn on_cancel);

/* Keep the struct beyond the answer. Any thread. */
TUTTIRPC_API void tuttirpc_call_ref(tuttirpc_server_call *call);
TUTTIRPC_API void tuttirpc_call_unref(tuttirpc_server_call *call);

/* Answer a unary or client-streaming call with one response and OK. Any thread. */
TUTTIRPC_API void tuttirpc_call_reply(tuttirpc_server_call *call,
                                      const struct ProtobufCMessage *response);

/*
 * Answer any call with an error. Any thread.
 *
 * [in] code    not TUTTIRPC_OK
 * [in] reason  a word for programs, at most 39 bytes, sent as google.rpc.ErrorInfo; NULL = none
 * [in] format  of a sentence for people, as printf takes it
 */
TUTTIRPC_API void tuttirpc_call_fail(tuttirpc_server_call *call, tuttirpc_code code,
                                     const char *reason, const char *format, ...)
    TUTTIRPC_FORMAT(4, 5);

/*
 * Streams. read: ask for one message; on_message or on_half_close answers. write: send one message; the next
 * only after on_written, or if writable. finish: the end, with OK; a write in flight leaves first.
 * Any thread, but not two at once.
 */
TUTTIRPC_API void tuttirpc_call_read(tuttirpc_server_call *call);
TUTTIRPC_API void tuttirpc_call_write(tuttirpc_server_call *call,
                                      const struct ProtobufCMessage *message);
TUTTIRPC_API bool tuttirpc_call_writable(const tuttirpc_server_call *call);
TUTTIRPC_API void tuttirpc_call_finish(tuttirpc_server_call *call);

/* ------------------------------------------------------------------------------ server */

#define TUTTIRPC_THREADS_MAX 64
#define TUTTIRPC_SERVICES_MAX 24

/* Zeros and NULL are good defaults, except for `listen`. Borrowed until the server is freed. */
typedef struct tuttirpc_server_options {
    /* Addresses, separated by commas: "host:port", "[v6]:port", "unix:/path"; port 0 = any. */
    const char *listen;
    bool insecure;        /* allow plaintext on addresses that other machines can reach */
    const char *tls_cert; /* PEM files, read again when they change; NULL = plaintext */
    const char *tls_key;
    const char *tls_client_ca; /* clients need a certificate of this authority; NULL = none */
    const char *token_file;    /* clients need this bearer token; NULL = none */
    bool no_reflection;
    uint64_t receive_bytes_max; /* bytes of one message; 0 = 8 MiB */
    uint64_t grace_ms;          /* for calls in flight when the server stops; 0 = 10 s */
    unsigned threads;           /* that run handlers, at most TUTTIRPC_THREADS_MAX; 0 = 1 */
} tuttirpc_server_options;

/*
 * A server that answers nothing yet.
 *
 * [in]          set         a FileDescriptorSet of the services' .proto files, as protoc makes it
 *                           (--include_imports --descriptor_set_out); copied
 * [out, owned]  ret_server  tuttirpc_server_free()
 *
 * INVALID_ARGUMENT     addresses that do not parse; a plaintext address that other machines can
 *                      reach, without `insecure`; TLS options that do not fit together; too many
 *                      threads; a set that cannot be read
 * RESOURCE_EXHAUSTED   no memory, or no thread
 * FAILED_PRECONDITION  this process was forked off the one that started gRPC
 */
TUTTIRPC_API tuttirpc_code tuttirpc_server_new(const tuttirpc_server_options *options,
                                               const void *set, size_t set_bytes,
                                               tuttirpc_server **ret_server,
                                               tuttirpc_status *status);

/*
 * Before start. The services get the threads in turn. A method without a row answers UNIMPLEMENTED.
 *
 * [in] methods  static
 * [in] self     given to the handlers
 *
 * RESOURCE_EXHAUSTED  no memory, or more than TUTTIRPC_SERVICES_MAX services
 */
TUTTIRPC_API tuttirpc_code tuttirpc_server_add(tuttirpc_server *server,
                                               const struct ProtobufCServiceDescriptor *service,
                                               const tuttirpc_method *methods, size_t method_count,
                                               void *self, tuttirpc_status *status);

/*
 * Bind, and serve on the server's own threads. Health says SERVING. After a failure the server can
 * only be freed.
 *
 * FAILED_PRECONDITION  an address is in use: the text says by whom
 * INVALID_ARGUMENT     an address cannot be bound; certificate and key do not fit; a service is not in
 *                      the descriptor set; a row is for a unary method and has a stream, or the
 *                      reverse
 * NOT_FOUND, ...       a certificate, key or token file could not be read
 */
TUTTIRPC_API tuttirpc_code tuttirpc_server_start(tuttirpc_server *server, tuttirpc_status *status);

/* Address number `index` with its real port, between start and stop; NULL = no more. Borrowed. */
TUTTIRPC_API const char *tuttirpc_server_address(const tuttirpc_server *server, size_t index);

/*
 * Health says NOT_SERVING, listeners close, each on_cancel is told, calls have the grace. Returns when all calls
 * are over and the server's threads have ended. Not from a handler. Stopped before, or never
 * started, is fine.
 */
TUTTIRPC_API void tuttirpc_server_stop(tuttirpc_server *server);

TUTTIRPC_API void tuttirpc_server_free(tuttirpc_server *server); /* stops it; NULL is fine */

#ifdef __cplusplus
}
#endif

#endif
