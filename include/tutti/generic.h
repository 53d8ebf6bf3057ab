/*
 * Generic calls: any method of an agent or a coordinator by its name, with messages as bytes, after
 * gRPC's generic stubs. They are for bindings of languages that have protobuf of their own; C programs
 * use the functions of the other headers.
 *
 *     tutti_generic *server;
 *     tutti_generic_message *answer;
 *
 *     code = tutti_generic_open("127.0.0.1:7001", NULL, &server, &err);
 *     code = tutti_generic_unary(server, "/tutti.v1.AgentService/DescribeAgent", "", 0, NULL, &answer,
 *                                NULL, &err);
 *     bytes = malloc(tutti_generic_message_bytes(answer));
 *     tutti_generic_message_take(answer, bytes);      // a DescribeAgentResponse
 *     tutti_generic_close(server);
 *
 * The methods and their messages are those of proto/tutti/v1; docs/rpc.md describes them. A connection
 * is one channel of gRPC to one address: no lane, no other coordinator when this one does not lead, and no
 * call is made again. Whoever wants these has them in the other headers.
 *
 * A call that is started (tutti_generic_start) is one of any kind, also a unary one that nobody waits for. What
 * it brings is taken by tutti_generic_next, by a thread that waits there, or by an event loop that waits for
 * tutti_generic_fd to be readable, and then asks tutti_generic_ready which calls have something.
 *
 * At most 16 messages or 4 MiB of a call are read ahead, so a server that streams waits for who is slow.
 *
 * Threads. Any thread may use a connection and a call; of one call one thread at a time takes messages.
 * Messages that several threads send to one call go in the order in which they were given. A
 * connection has one thread of libtutti from the first call that is started until it is closed.
 *
 * Caveats
 *
 * - Bytes are sent as they are. How it looks if they are no request: INVALID_ARGUMENT MALFORMED_MESSAGE
 *   of the server.
 * - Metadata are sent as they are, also a token in them, and in plaintext if there is no TLS. What to do: give
 *   tutti_generic_options.token or token_file, which are refused then (TOKEN_IN_PLAINTEXT).
 * - What is sent with tutti_generic_send waits in this process until the connection takes it. How it looks:
 *   memory grows. What to do: tutti_generic_wait_sent.
 */
#ifndef TUTTI_GENERIC_H
#define TUTTI_GENERIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/code.h"
#include "tutti/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A connection to one server. */
typedef struct tutti_generic tutti_generic;

/* A call that was started. */
typedef struct tutti_generic_call tutti_generic_call;

/* A message that was received. */
typedef struct tutti_rpc_message tutti_generic_message;

#define TUTTI_GENERIC_METADATA_MAX 4
#define TUTTI_GENERIC_DETAILS_MAX 8192

/* As timeout_ms of the functions that wait. */
#define TUTTI_GENERIC_FOREVER UINT32_MAX

/* The google.rpc.Status of a call that failed, packed; size 0 = the server sent none. */
typedef struct tutti_generic_details {
    size_t size;
    unsigned char data[TUTTI_GENERIC_DETAILS_MAX];
} tutti_generic_details;

/* How to connect. Begin with tutti_generic_options_init. NULL or "" = none; nothing is taken from the environment. */
typedef struct tutti_generic_options {
    /* Bytes of this struct. Set by init; do not change it. */
    size_t size;
    /* As in tutti_client_options. */
    const char *tls_ca;
    const char *tls_cert;
    const char *tls_key;
    const char *tls_name;
    /* A bearer token, or the file that holds it, which is read again when it changes. */
    const char *token;
    const char *token_file;
    /* ms between pings of a connection, also of one without calls; 0, the default, = 330 s, while there are calls. */
    uint32_t keepalive_ms;
    /* How long a ping may be unanswered, in ms; 0, the default, = 20 s. */
    uint32_t keepalive_timeout_ms;
    /* Bytes of one received message; 0, the default, = 16 MiB. */
    uint64_t receive_bytes_max;
} tutti_generic_options;

/* [out] options  every field as its comment calls default */
TUTTI_API void tutti_generic_options_init(tutti_generic_options *options);

/* How to make one call. Begin with tutti_generic_call_options_init. */
typedef struct tutti_generic_call_options {
    /* Bytes of this struct. Set by init; do not change it. */
    size_t size;
    /* Of the whole call, in ms; 0, the default, = none. */
    uint32_t timeout_ms;
    /* Keep trying to connect until then. Default false: UNREACHABLE at once. */
    bool wait;
    /* Key, value, key, value ...: at most TUTTI_GENERIC_METADATA_MAX pairs of ASCII texts. */
    const char *const *metadata;
    /* Pairs; 0, the default, = none. */
    size_t metadata_count;
    /* Of a call that is started: for tutti_generic_ready; not looked at. NULL, the default, = it is not told there. */
    void *user;
} tutti_generic_call_options;

/* [out] options  every field as its comment calls default */
TUTTI_API void tutti_generic_call_options_init(tutti_generic_call_options *options);

/*
 * Nothing is connected yet: the first call does that.
 *
 * [in]          address      "host:port", "[v6]:port" or "unix:/path"
 * [in]          options      NULL = defaults; copied
 * [out, owned]  ret_generic  tutti_generic_close it
 *
 * TUTTI_INVALID_ARGUMENT     BAD_ADDRESS; BAD_CREDENTIALS; TOKEN_IN_PLAINTEXT; BAD_STRUCT: options that were not
 *                            initialised
 * TUTTI_NOT_FOUND, ...       a certificate or token file could not be read
 * TUTTI_FAILED_PRECONDITION  FORKED
 * TUTTI_RESOURCE_EXHAUSTED   no memory
 */
TUTTI_API tutti_code tutti_generic_open(const char *address, const tutti_generic_options *options,
                                        tutti_generic **ret_generic, tutti_error *err);

/*
 * Cancel its calls, wait until they have ended, and close the connection. The calls that were started must still be
 * freed.
 *
 * [in, moved] generic  NULL is fine. No other thread is in a function of the connection
 */
TUTTI_API void tutti_generic_close(tutti_generic *generic);

/*
 * A unary call that blocks.
 *
 * [in]          method       "/tutti.v1.StoreService/Get"
 * [in]          request      the packed message; copied
 * [in]          options      NULL = defaults
 * [out, owned]  ret_message  the response: tutti_generic_message_take or _free it
 * [out]         ret_details  of a failure; NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT    BAD_METHOD, BAD_METADATA: not what gRPC takes; BAD_STRUCT: options that were
 *                           not initialised
 * TUTTI_RESOURCE_EXHAUSTED  more than 128 methods on one connection; a request of more than 2 GiB; no memory
 * ...                       what the server answers, and what is common to all calls (tutti/client.h)
 */
TUTTI_API tutti_code tutti_generic_unary(tutti_generic *generic, const char *method,
                                         const void *request, size_t request_bytes,
                                         const tutti_generic_call_options *options,
                                         tutti_generic_message **ret_message,
                                         tutti_generic_details *ret_details, tutti_error *err);

/*
 * Start a call. It does not wait.
 *
 * [in]          request   the first message, packed; copied. NULL = none yet
 * [in]          last      no more is sent
 * [in]          options   NULL = defaults
 * [out, owned]  ret_call  tutti_generic_free it
 *
 * Codes as of tutti_generic_unary; TUTTI_RESOURCE_EXHAUSTED  no thread, too
 */
TUTTI_API tutti_code tutti_generic_start(tutti_generic *generic, const char *method,
                                         const void *request, size_t request_bytes, bool last,
                                         const tutti_generic_call_options *options,
                                         tutti_generic_call **ret_call, tutti_error *err);

/*
 * Send another message. It does not wait: what the connection does not take at once is kept. A call that has
 * ended takes nothing, which is no error: tutti_generic_next tells how it ended. Not after `last`.
 *
 * [in] message  packed; copied. NULL = none, only that nothing more comes
 *
 * TUTTI_FAILED_PRECONDITION  after `last`
 * TUTTI_RESOURCE_EXHAUSTED   no memory; larger than 2 GiB
 */
TUTTI_API tutti_code tutti_generic_send(tutti_generic_call *call, const void *message,
                                        size_t message_bytes, bool last, tutti_error *err);

/* Bytes that were given to tutti_generic_send and have not left. */
TUTTI_API size_t tutti_generic_unsent(const tutti_generic_call *call);

/*
 * Wait until at most 2 MiB are unsent, or the call has ended; tutti_generic_ready tells the call then, too.
 * TUTTI_DEADLINE_EXCEEDED  neither was in that time
 */
TUTTI_API tutti_code tutti_generic_wait_sent(tutti_generic_call *call, uint32_t timeout_ms,
                                             tutti_error *err);

typedef enum tutti_generic_event {
    TUTTI_GENERIC_NOTHING = 0, /* in that time */
    TUTTI_GENERIC_MESSAGE = 1,
    TUTTI_GENERIC_ENDED = 2, /* `err` says how: TUTTI_OK = well. Again it is the same */
} tutti_generic_event;

/*
 * The next thing that has come of a call.
 *
 * [in]          timeout_ms   0 = look, do not wait; TUTTI_GENERIC_FOREVER
 * [out, owned]  ret_message  of MESSAGE: tutti_generic_message_take or _free it; else untouched
 * [out]         ret_details  of ENDED; NULL = not wanted
 * [out]         err          of ENDED: what tutti_generic_unary returns, or code TUTTI_OK; not NULL
 */
TUTTI_API tutti_generic_event tutti_generic_next(tutti_generic_call *call, uint32_t timeout_ms,
                                                 tutti_generic_message **ret_message,
                                                 tutti_generic_details *ret_details,
                                                 tutti_error *err);

/* Give up: it ends with CANCELLED, unless it has ended. */
TUTTI_API void tutti_generic_cancel(tutti_generic_call *call);

/* Give up and free. [in, moved] call  NULL is fine */
TUTTI_API void tutti_generic_free(tutti_generic_call *call);

/*
 * A descriptor that is readable while tutti_generic_ready would give a call. Always the same; the connection's.
 * TUTTI_RESOURCE_EXHAUSTED  there is none
 */
TUTTI_API tutti_code tutti_generic_fd(tutti_generic *generic, int *ret_fd, tutti_error *err);

/*
 * A call, by its `user`, of which something has come since it was told last: take with timeout 0 until there is
 * nothing. Calls without a `user` are not told. False: none.
 */
TUTTI_API bool tutti_generic_ready(tutti_generic *generic, void **ret_user);

/* ------------------------------------------------------------------ messages */

/* Bytes that have not been taken. */
TUTTI_API size_t tutti_generic_message_bytes(const tutti_generic_message *message);

/* [in, moved] message. [out] ret_bytes  tutti_generic_message_bytes of it */
TUTTI_API void tutti_generic_message_take(tutti_generic_message *message, void *ret_bytes);

/* NULL is fine. */
TUTTI_API void tutti_generic_message_free(tutti_generic_message *message);

#ifdef __cplusplus
}
#endif

#endif
