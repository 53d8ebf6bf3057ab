/*
 * Server: answers calls of any protobuf-c service, one line per method.
 *
 *     static const tutti_rpc_method methods[] = {
 *         TUTTI_RPC_UNARY("Get", on_get),
 *         TUTTI_RPC_STREAM("Watch", &watch_ops),
 *     };
 *
 * A handler runs on its service's loop and may answer at once, or keep the call and answer later
 * from any thread: a waiting call is a struct, not a thread. Every call is answered exactly once,
 * also when it was cancelled. Unknown methods, malformed requests and missing credentials are
 * answered here and never reach a handler.
 */
#ifndef TUTTI_RPC_SERVER_H
#define TUTTI_RPC_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config/address.h"
#include "base/config/config.h"
#include "base/data/bytes.h"
#include "base/os/meter.h"
#include "rpc/gate.h"
#include "rpc/loop.h"
#include "rpc/message.h"
#include "tutti/error.h"

typedef struct tutti_rpc_server tutti_rpc_server;
typedef struct tutti_rpc_call tutti_rpc_call;

/* ------------------------------------------------------------------------------ handlers */

/* A unary call has come in: tutti_rpc_call_request() is what was asked. */
typedef void (*tutti_rpc_unary_fn)(tutti_rpc_call *call, void *self);

/*
 * A streaming call. All callbacks run on the service's loop, one at a time; those left NULL do
 * nothing. on_open, then any of the middle ones, then on_end as the last of all.
 */
typedef struct tutti_rpc_stream_ops {
    /*
     * The call is there. For a server-streaming method its one request has been read
     * (tutti_rpc_call_request); for the others call tutti_rpc_call_read to get the first message.
     */
    void (*on_open)(tutti_rpc_call *call, void *self);
    /* One message for one tutti_rpc_call_read. Borrowed until it returns. */
    void (*on_message)(tutti_rpc_call *call, void *self, tutti_rpc_message *message);
    /* The client will send no more. Instead of on_message, once. */
    void (*on_half_close)(tutti_rpc_call *call, void *self);
    /*
     * The last tutti_rpc_call_write has left; the next may be made. Not for one that cannot leave
     * any more, unless on_cancel has told already and so will not tell again.
     */
    void (*on_written)(tutti_rpc_call *call, void *self);
    /*
     * The client went away, its deadline passed, it sent something malformed (that is answered
     * already), or the server drains: finish soon. At most once, and not behind a finish made on
     * the loop. What is written or finished in vain is dropped.
     */
    void (*on_cancel)(tutti_rpc_call *call, void *self);
    /* Finished and gone: free what tutti_rpc_call_user points to. */
    void (*on_end)(tutti_rpc_call *call, void *self);
} tutti_rpc_stream_ops;

typedef struct tutti_rpc_method {
    const char *name; /* as in the .proto */
    tutti_rpc_unary_fn on_call;
    const tutti_rpc_stream_ops *stream;
    bool open;  /* answered without credentials */
    bool quiet; /* runs on the service's quiet_loop */
} tutti_rpc_method;

#define TUTTI_RPC_UNARY(name, on_call)                                                             \
    {                                                                                              \
        (name), (on_call), NULL, false, false                                                      \
    }
#define TUTTI_RPC_STREAM(name, ops)                                                                \
    {                                                                                              \
        (name), NULL, (ops), false, false                                                          \
    }

/* A stream that stays open and says hardly anything. */
#define TUTTI_RPC_QUIET_STREAM(name, ops)                                                          \
    {                                                                                              \
        (name), NULL, (ops), false, true                                                           \
    }

/* ------------------------------------------------------------------------------ one call */

/* The request of a unary or server-streaming call, as its struct. Borrowed until the call is
 * answered. */
const void *tutti_rpc_call_request(const tutti_rpc_call *call);

/* The same with its payload. */
tutti_rpc_message *tutti_rpc_call_message(const tutti_rpc_call *call);

/* When the client stops waiting, on tutti_clock_ns(); TUTTI_TIMERS_NEVER when it never does. */
uint64_t tutti_rpc_call_deadline(const tutti_rpc_call *call);

/* Has the client gone away, or given up? Not set by draining. Any thread. */
bool tutti_rpc_call_cancelled(const tutti_rpc_call *call);

/* "/tutti.v1.StoreService/Get"; "ipv4:127.0.0.1:55012", "unix:". Borrowed until the call ends. */
const char *tutti_rpc_call_method(const tutti_rpc_call *call);
const char *tutti_rpc_call_peer(const tutti_rpc_call *call);

/* A metadata value the client sent; size 0 when there is none. Borrowed until the call ends. */
tutti_bytes tutti_rpc_call_metadata(const tutti_rpc_call *call, const char *key);

#define TUTTI_RPC_TRACE_SIZE 33 /* 32 digits and the NUL */

/*
 * The trace this call belongs to: the trace-id of a W3C `traceparent` that the client sent as
 * metadata, 32 lower-case digits; "" when there is none, or it is malformed. Before the call ends.
 */
void tutti_rpc_call_trace(const tutti_rpc_call *call, char ret_trace[TUTTI_RPC_TRACE_SIZE]);

/* Who called: what `authorize` wrote, else the one URI name of the client's certificate, else its
 * one DNS name, else "". Borrowed as long as the call. */
const char *tutti_rpc_call_identity(const tutti_rpc_call *call);

/* Might he call this method as well? For answers that say more to some. */
bool tutti_rpc_call_may(const tutti_rpc_call *call, const char *method);

/*
 * May he speak for this rank? For a call that is made for ranks that no message of it names.
 *
 * TUTTI_PERMISSION_DENIED  as the guard says
 */
tutti_code tutti_rpc_call_check_rank(const tutti_rpc_call *call, uint32_t rank, tutti_error *err);

/* Whatever the handler wants to find again. Only one thread may use it at a time. */
void tutti_rpc_call_set_user(tutti_rpc_call *call, void *user);
void *tutti_rpc_call_user(const tutti_rpc_call *call);

/*
 * For unary calls: tell the handler when the client goes away or the server drains. Set it inside
 * the handler. It runs on the loop, at most once, and never behind an answer given on the loop; the
 * call still has to be answered. tutti_rpc_call_cancelled says which of the two it was.
 */
void tutti_rpc_call_on_cancel(tutti_rpc_call *call, tutti_rpc_unary_fn on_cancel);

/*
 * For unary calls: tell the handler when the call is over in every sense. Set it inside the
 * handler. It runs on the loop, once, behind the answer; tutti_rpc_call_cancelled says now whether
 * the client left before the answer had gone out.
 */
void tutti_rpc_call_on_end(tutti_rpc_call *call, tutti_rpc_unary_fn on_end);

/* Keep the struct beyond the answer. Any thread. */
void tutti_rpc_call_ref(tutti_rpc_call *call);
void tutti_rpc_call_unref(tutti_rpc_call *call);

/*
 * Answer a call: one response and OK. For unary and client-streaming methods. Any thread.
 *
 * [in] response  packed before it returns
 * [in] payload   NULL = none
 */
void tutti_rpc_call_reply(tutti_rpc_call *call, const struct ProtobufCMessage *response,
                          const tutti_rpc_blob *payload);

/* Answer any call with an error: code, text, and google.rpc.ErrorInfo in the details. Any thread.
 */
void tutti_rpc_call_fail(tutti_rpc_call *call, const tutti_error *err);

/*
 * Streams. read: ask for one more message (one at a time; on_message or on_half_close answers); as
 * the first thing in on_message, the next one travels while this one is worked on. write: send one
 * message; the next only after on_written. finish: the last word, NULL = OK; a write in flight
 * leaves first. Any thread, but not two at once.
 */
void tutti_rpc_call_read(tutti_rpc_call *call);
void tutti_rpc_call_write(tutti_rpc_call *call, const struct ProtobufCMessage *response,
                          const tutti_rpc_blob *payload);
/* The same past the service's gate: for what tells of nothing that could be lost. */
void tutti_rpc_call_write_now(tutti_rpc_call *call, const struct ProtobufCMessage *response);
/* The same with what is packed already [in, moved]. `more`: another write follows at once, so this
 * one may wait for it. False: the call is ending, nothing leaves any more and on_written will not
 * run. */
bool tutti_rpc_call_write_packed(tutti_rpc_call *call, tutti_rpc_packed *packed, bool more);
/* Inside on_message: keep the message beyond it; tutti_rpc_message_free. */
tutti_rpc_message *tutti_rpc_call_take(tutti_rpc_call *call);
bool tutti_rpc_call_writable(const tutti_rpc_call *call);
void tutti_rpc_call_finish(tutti_rpc_call *call, const tutti_error *err);

/* End a stream whose client reads no more: what is in flight is dropped, the client is told `why`
 * past it, and on_cancel follows as if it had gone. Loop's thread, before a finish. */
void tutti_rpc_call_cut(tutti_rpc_call *call, const tutti_error *why);

/* ------------------------------------------------------------------------------ server */

/*
 * Decide on a call before its handler sees it. `token` is what followed "Bearer " ("" = none).
 * Write who it is (for tutti_rpc_call_identity) and return TUTTI_OK, or refuse with
 * TUTTI_UNAUTHENTICATED or TUTTI_PERMISSION_DENIED. Runs on the loop of the method's service, so on
 * several at once when services have several; must not block.
 *
 * [out] ret_identity  of `size` 256 bytes with the NUL; "" before
 */
typedef tutti_code (*tutti_rpc_authorize_fn)(void *arg, const char *method, const char *token,
                                             char *ret_identity, size_t size, tutti_error *err);

/* ------------------------------------------------------------------------------ guards */

/* What a call shows. */
typedef struct tutti_rpc_visit {
    const char *method;
    const char *token;       /* "" = none */
    const char *certificate; /* the one URI of the client's certificate; "" = none */
} tutti_rpc_visit;

/*
 * Whom a message speaks for, by its fields: `job`, `member` (with `job` and `rank`; also inside of
 * a message in it), `rank` or `group_rank`. Where there is a place for a member and none in it, the
 * job is "": handlers take that for nobody of the job "default".
 */
typedef struct tutti_rpc_subject {
    bool has_job;
    const char *job; /* may be "" */
    bool has_rank;   /* of `member` */
    uint32_t rank;
    bool has_seat; /* `rank`, `group_rank` */
    uint32_t seat;
} tutti_rpc_subject;

/* Roles, jobs and ranks: more than `authorize` can say. Called as that one. */
typedef struct tutti_rpc_guard {
    /*
     * May the method be called at all?
     *
     * [out, owned]     ret_grant     NULL = no limits
     * [out, borrowed]  ret_identity  as long as the grant; NULL = nobody in particular
     */
    tutti_code (*admit)(void *arg, const tutti_rpc_visit *visit, void **ret_grant,
                        const char **ret_identity, tutti_error *err);
    /* Does a message keep to the grant? Before a handler sees it. */
    tutti_code (*check)(const void *grant, const char *method, const tutti_rpc_subject *subject,
                        tutti_error *err);
    /* Might he call another method, too? */
    bool (*may)(const void *grant, const char *method);
    /* May he speak for this rank? */
    tutti_code (*check_rank)(const void *grant, uint32_t rank, tutti_error *err);
    void (*release)(void *grant);
} tutti_rpc_guard;

#define TUTTI_RPC_SERVER_OPTION_COUNT 17

/*
 * How to serve. Filled by tutti_config_load through tutti_rpc_server_option_set, or by
 * tutti_rpc_server_options_init.
 *
 * TLS is for TCP: a Unix socket stays plaintext, its file's permissions guard it.
 */
typedef struct tutti_rpc_server_options {
    const char *listen;    /* comma-separated addresses; port 0 = any */
    const char *port_file; /* "" = none; gets the addresses after binding, one a line */
    bool insecure;         /* allow plaintext beyond loopback and Unix sockets */
    const char *tls_cert;  /* PEM files; "" = plaintext. Read again when they change */
    const char *tls_key;
    const char *tls_client_ca; /* "" = clients need no certificate */
    const char *token_file;    /* "" = none; every call then needs this bearer token */
    bool reflection;
    uint64_t receive_bytes_max; /* of one message */
    uint64_t memory_quota;      /* of all buffers of all connections; 0 = a quarter of memory */
    uint64_t streams_max;       /* calls on one connection */
    uint64_t handshake_ns;      /* until a connection has shown its preface */
    uint64_t keepalive_ns;      /* pings on an idle connection */
    uint64_t keepalive_timeout_ns;
    uint64_t ping_interval_min_ns; /* clients that ping more often are sent away */
    uint64_t grace_ns;             /* for calls in flight when draining */
    uint64_t self_check_ns;        /* between two looks whether listeners still answer; 0 = never */
    tutti_option table[TUTTI_RPC_SERVER_OPTION_COUNT]; /* of tutti_rpc_server_option_set */
} tutti_rpc_server_options;

/*
 * The table for tutti_config_load: listen, port-file, insecure, tls-cert, tls-key, tls-client-ca,
 * token-file, reflection, receive-bytes-max, memory-quota, streams-max, handshake-timeout,
 * keepalive, keepalive-timeout, ping-interval-min, drain-grace, self-check.
 *
 * [in] target          filled by tutti_config_load; also holds the table, so it lives as long
 * [in] default_listen  of --listen, "127.0.0.1:7070" say; static
 */
tutti_option_set tutti_rpc_server_option_set(tutti_rpc_server_options *target,
                                             const char *default_listen);

/* All defaults, for those who read no configuration. `listen` is borrowed. */
void tutti_rpc_server_options_init(tutti_rpc_server_options *options, const char *listen);

typedef struct tutti_rpc_service {
    const struct ProtobufCServiceDescriptor *descriptor;
    const tutti_rpc_method *methods; /* static; every method of the descriptor, in any order */
    size_t method_count;
    void *self;                 /* handed to the handlers */
    tutti_rpc_loop *loop;       /* where they run */
    tutti_rpc_loop *quiet_loop; /* where those run that are `quiet`; needed if there is one */
    tutti_rpc_gate *gate;       /* borrowed; answers wait for it. NULL = they do not */
    /* Does the service serve now? Asked on the loop for each call, behind its credentials; an error
     * is the answer. NULL = it always does. */
    tutti_code (*admit)(void *self, tutti_error *err);
    /*
     * Enum numbers that the .proto does not know reach the handlers, as proto3 has it: for those
     * who have to tell others why they refuse a call. Without it such a request is answered here,
     * with TUTTI_INVALID_ARGUMENT and the reason BAD_ENUM.
     */
    bool open_enums;
} tutti_rpc_service;

/*
 * A server that answers nothing yet. grpc.health.v1.Health is always served; reflection (v1alpha
 * and v1) when the options say so.
 *
 * [in] options         borrowed until the server is freed
 * [in] descriptor_set  the FileDescriptorSet of all services, static, as tutti_protos() of
 *                      cmake/protos.cmake makes it: which methods stream is read from it
 * [in] loop            for health, reflection, unknown methods and draining
 *
 * TUTTI_INVALID_ARGUMENT    addresses that do not parse; a plaintext address that strangers can
 *                           reach; TLS options that do not fit together
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 * TUTTI_FAILED_PRECONDITION this process was forked off the one that started gRPC
 */
tutti_code tutti_rpc_server_new(const tutti_rpc_server_options *options, tutti_bytes descriptor_set,
                                tutti_rpc_loop *loop, tutti_rpc_server **ret_server,
                                tutti_error *err);

/*
 * Before start. A method of the descriptor without a handler answers UNIMPLEMENTED. A service that
 * is not in the descriptor set, and a handler of the wrong kind, are errors of
 * tutti_rpc_server_start.
 */
void tutti_rpc_server_add(tutti_rpc_server *server, const tutti_rpc_service *service);

/*
 * Instead of, or before, the token file: `authorize` is asked first; a token that it refuses with
 * TUTTI_UNAUTHENTICATED is good nevertheless when it is the token file's. Before start.
 */
void tutti_rpc_server_authorize(tutti_rpc_server *server, tutti_rpc_authorize_fn authorize,
                                void *arg);

/*
 * Instead of `authorize`. Before start.
 *
 * [in] guard  static
 * [in] asks   it lets nobody in without a token: then the server may serve strangers. A token it
 *             refuses is good nevertheless when it is the token file's
 */
void tutti_rpc_server_guard(tutti_rpc_server *server, const tutti_rpc_guard *guard, bool asks,
                            void *arg);

/*
 * Called once on `loop` when draining begins: end what is parked (waits, watches, sessions).
 * Before start.
 */
void tutti_rpc_server_on_drain(tutti_rpc_server *server, void (*on_drain)(void *arg), void *arg);

/*
 * Called on `loop` when a listener does not answer any more, instead of ending the process.
 *
 * gRPC 1.51 stops accepting for good when it meets an error in accept(): once out of descriptors,
 * deaf for ever, while the process looks alive. So every `self_check_ns` the server connects to
 * each of its addresses and wants to hear something within that time, at most 5 seconds. After
 * three silences in a row it logs an error and calls this; by default the process ends with code
 * 70, and whoever supervises it starts a fresh one. Before start.
 */
void tutti_rpc_server_on_deaf(tutti_rpc_server *server, void (*on_deaf)(void *arg), void *arg);

/*
 * Bind and serve. Loops must be started after this and before clients come, or be running already.
 * On failure the server can only be freed; what was bound before is let go then.
 *
 * TUTTI_FAILED_PRECONDITION  an address is in use: the text says by whom
 * TUTTI_INVALID_ARGUMENT     an address cannot be bound; certificate and key do not fit; a handler
 *                            does not fit its method
 * TUTTI_NOT_FOUND, ...       a certificate, key or token file could not be read
 */
tutti_code tutti_rpc_server_start(tutti_rpc_server *server, tutti_error *err);

/* Where it listens, with the real ports. Borrowed for the server's life. After start. */
const tutti_address *tutti_rpc_server_addresses(const tutti_rpc_server *server, size_t *ret_count);

/* grpc.health.v1: "" is the server as a whole. NOT_SERVING until told. Any thread. */
void tutti_rpc_server_set_health(tutti_rpc_server *server, const char *service, bool serving);

/* Is the server as a whole SERVING, and not draining? Any thread. */
bool tutti_rpc_server_is_serving(tutti_rpc_server *server);

/*
 * What has been called, how it went and how long it took: tutti_rpc_calls_total and the like. Of
 * methods that were called at least once. Any thread.
 */
void tutti_rpc_server_expose(tutti_rpc_server *server, tutti_page *page);

/* Calls that are in the hands of handlers now. Any thread. */
size_t tutti_rpc_server_call_count(const tutti_rpc_server *server);

/*
 * Drain: health says NOT_SERVING, listeners close, on_drain runs, every call's on_cancel is told,
 * calls in flight have the grace, then they are cancelled; on_stopped runs on `loop` when the
 * last one is gone. When no call has been left for a second, connections that are still open are
 * cut, because an idle client may not look at its connection for a long time. A handler that
 * never answers its call keeps the server from stopping: that is logged. Any thread, once, after
 * start.
 */
void tutti_rpc_server_stop(tutti_rpc_server *server, void (*on_stopped)(void *arg), void *arg);

void tutti_rpc_server_free(tutti_rpc_server *server); /* stopped, or never started; NULL is fine */

#endif
