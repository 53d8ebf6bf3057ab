/*
 * The inside of channel.h: what all kinds of calls share.
 *
 * Any thread may use a channel. Without files that may change (`secrets.changing` is false)
 * `grpc`, `options` and the bearer are read only once the channel is open, and no call takes the
 * lock for them. With such files, `grpc` and the bearers are behind `lock`. `known` only grows:
 * its entries are written under the lock before `known_count` is raised (release), and readers
 * look at the count first (acquire), without the lock.
 */
#ifndef TUTTI_RPC_CHANNEL_CHANNEL_PRIVATE_H
#define TUTTI_RPC_CHANNEL_CHANNEL_PRIVATE_H

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/config/address.h"
#include "rpc/channel.h"
#include "rpc/loop/token.h"
#include "rpc/util/stamp.h"

#define TUTTI_RPC_STUBS_MAX 128      /* different methods called on one channel */
#define TUTTI_RPC_BEARERS 8          /* tokens kept: seconds until one that was replaced is freed */
#define TUTTI_RPC_IDLE_QUEUES_MAX 16 /* queues kept for the next blocking call */
#define TUTTI_RPC_CONNECTION_CALLS                                                                 \
    80 /* on one connection; servers take 100, and see an end later than we */
#define TUTTI_RPC_CONNECTIONS_MORE 255 /* beside the first one */

struct ProtobufCMessageDescriptor;

/* A method that was called on this channel. Never changes once `known_count` covers it. */
typedef struct rpc_known {
    const tutti_rpc_stub *stub;
    char *path;   /* owned */
    void *handle; /* gRPC's; NULL if `secrets.changing`: it belongs to one gRPC channel */
    const struct ProtobufCMessageDescriptor *output;
} rpc_known;

/*
 * What a channel trusts and shows. Files are looked at once a second, when a call is made. Calls
 * that run keep the connection they are on; later ones get one with the new certificates.
 *
 * A bearer must stay until gRPC has copied it, in the batch that begins a call, which happens
 * after the lock is let go. So a new token takes the next of TUTTI_RPC_BEARERS places, and the
 * place is used again only that many changes later: with one look a second, some seconds.
 */
typedef struct rpc_secrets {
    bool changing; /* some of it is in files, or the channel follows; does not change */
    bool tls;
    atomic_uint_fast64_t look_ns; /* when to look at the files again */
    size_t metadata_count;        /* of a call: trace and token, 0 to 2 */
    size_t metadata_at;           /* 0 with a trace, else 1 */
    /* Behind the channel's lock, once `changing`. */
    rpc_stamps seen;
    grpc_channel *retired; /* before the last change: streams may still wait for their connection */
    rpc_token *token;      /* NULL = not from a file */
    char shown[TUTTI_RPC_TOKEN_MAX + 1]; /* the newest bearer's token */
    unsigned bearer;                     /* the newest of: */
    /* The trace, and the token; a call reads an older one just when it begins. */
    grpc_metadata bearers[TUTTI_RPC_BEARERS][2];
} rpc_secrets;

/* A connection beside the first one. Behind the channel's lock. */
typedef struct rpc_connection {
    grpc_channel *grpc; /* NULL = not there */
    size_t calls;
} rpc_connection;

struct tutti_rpc_channel {
    grpc_channel *grpc; /* behind the lock when there are files that may change, or it follows */
    /* Of `targets`; another one after a move. What it points to stays, but for told ones. */
    _Atomic(const tutti_address *) address;
    tutti_address *targets; /* [owned] those of the list, then TOLD_MAX that were told */
    size_t target_count;    /* of the list */
    size_t told; /* how many were told; the place of the next one is this modulo the room */
    atomic_size_t moves;
    atomic_bool others; /* a server has said that there are others */
    /* Behind the lock: whether the servers behind a name are called in turns; by which address others tell
     * the server that is called, "" = not known; that of a silent one, and until when it is not gone back to. */
    bool spread;
    char leader[TUTTI_ADDRESS_MAX];
    char left[TUTTI_ADDRESS_MAX];
    uint64_t left_until_ns;
    tutti_rpc_channel_options options; /* its texts are owned, `token` is not kept */
    rpc_secrets secrets;
    atomic_size_t calls; /* on the first connection */
    rpc_connection more[TUTTI_RPC_CONNECTIONS_MORE];
    atomic_size_t known_count;
    rpc_known known[TUTTI_RPC_STUBS_MAX];
    pthread_mutex_t lock; /* guards the end of `known`, and below */
    grpc_completion_queue *idle[TUTTI_RPC_IDLE_QUEUES_MAX];
    size_t idle_count;
};

static inline bool
rpc_is_given(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/*
 * Make gRPC's channel with the certificates as they are now. Nothing is connected by it. Codes as
 * tutti_rpc_channel_open.
 */
tutti_code rpc_channel_make(tutti_rpc_channel *channel, grpc_channel **ret_grpc, tutti_error *err);

/*
 * channel_secrets.c. open copies the options' texts and reads the token; close takes what is
 * zeroed as well. renew: look at the files when it is time to; what cannot be used is logged, and
 * all stays as it was. Any thread.
 */
tutti_code rpc_channel_secrets_open(tutti_rpc_channel *channel,
                                    const tutti_rpc_channel_options *options, tutti_error *err);
void rpc_channel_secrets_close(tutti_rpc_channel *channel);
tutti_code rpc_channel_credentials(const tutti_rpc_channel *channel,
                                   grpc_channel_credentials **ret_credentials, tutti_error *err);
void rpc_channel_renew(tutti_rpc_channel *channel);

/* The metadata that shows the token; good for the batch that is started next. */
grpc_metadata *rpc_channel_bearer(tutti_rpc_channel *channel);

/* The state of the newest connection: connected, failing ... Any thread. */
grpc_connectivity_state rpc_channel_state(tutti_rpc_channel *channel);

/* connections.c: the number of the connection for another call, which is counted until it is given back. Any thread. */
size_t rpc_connection_take(tutti_rpc_channel *channel);
void rpc_connection_give(tutti_rpc_channel *channel, size_t connection);

/* A call of a method that gRPC does not know beforehand. [in] connection  0 = the first */
grpc_call *rpc_connection_call(tutti_rpc_channel *channel, size_t connection, const char *path,
                               grpc_completion_queue *queue, uint64_t deadline_ns);

/* [in, moved] fresh  stands for all from now on. With the lock. */
void rpc_connections_replace(tutti_rpc_channel *channel, grpc_channel *fresh);
void rpc_connections_close(tutti_rpc_channel *channel);

/*
 * TUTTI_FAILED_PRECONDITION  a forked process
 * TUTTI_RESOURCE_EXHAUSTED   too many methods, or no memory
 */
tutti_code rpc_channel_find(tutti_rpc_channel *channel, const tutti_rpc_stub *stub,
                            const rpc_known **ret_known, tutti_error *err);

/* Memory for the metadata of one call, until its first batch is started; then rpc_call_metadata_fini. */
typedef struct rpc_call_metadata {
    grpc_metadata list[4 + TUTTI_RPC_EXTRA_MAX]; /* trace, token, lease, lane, extra */
    size_t extra_at;
    size_t extra_count;
} rpc_call_metadata;

void rpc_call_metadata_fini(rpc_call_metadata *metadata);

/* The first operation of every call: its metadata. */
grpc_op rpc_channel_first_op(tutti_rpc_channel *channel, const tutti_rpc_call_options *options,
                             rpc_call_metadata *ret_metadata);

/*
 * A pluck queue with nothing in it, and back when all its events have come. Any thread. Queues
 * are kept, so that a blocking call need not make one.
 */
grpc_completion_queue *rpc_channel_take_queue(tutti_rpc_channel *channel);
void rpc_channel_give_queue(tutti_rpc_channel *channel, grpc_completion_queue *queue);

/*
 * Wait for one batch on a pluck queue, for ever: a batch always ends, at the latest with its
 * call's deadline or cancel. True: it did what it was for.
 */
bool rpc_channel_pluck(grpc_completion_queue *queue, void *tag);

/* How a call ended. Written by gRPC. */
typedef struct rpc_outcome {
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_status_code status;
    grpc_slice text;
    size_t moves;               /* of the channel, when it began */
    tutti_rpc_channel *channel; /* NULL = it has left */
    size_t connection;          /* that it has taken */
    atomic_bool cancelled;      /* by this program */
} rpc_outcome;

/*
 * interrupt.c: the same until a deadline (TUTTI_TIMERS_NEVER = for ever), asking the program between
 * slices whether to give up: then the call is cancelled, and its batch ends by that. Not yet
 * rpc_tag_acquire'd.
 */
grpc_event rpc_channel_pluck_until(grpc_completion_queue *queue, void *tag, rpc_outcome *outcome,
                                   grpc_call *call, uint64_t deadline_ns);

/* Before the call is made: it takes a connection until fini. [in] channel  NULL = it is not counted */
void rpc_outcome_init(rpc_outcome *outcome, tutti_rpc_channel *channel);
void rpc_outcome_fini(rpc_outcome *outcome);

/* Give the call up: it ends with CANCELLED, unless it has ended. Any thread. */
void rpc_outcome_cancel(rpc_outcome *outcome, grpc_call *call);

/* Give the connection back now: before who may close the channel hears of the end. */
void rpc_outcome_leave(rpc_outcome *outcome);
grpc_op rpc_outcome_initial_op(rpc_outcome *outcome);
grpc_op rpc_outcome_status_op(rpc_outcome *outcome);

/*
 * A call bound to a queue, not begun; grpc_call_unref() it. `options` NULL = defaults. Looks at
 * the files first when it is time to. [in] outcome  initialised
 */
grpc_call *rpc_channel_call(tutti_rpc_channel *channel, const rpc_known *known,
                            grpc_completion_queue *queue, const tutti_rpc_call_options *options,
                            const rpc_outcome *outcome);

/*
 * Begin the call of a stream: its metadata are sent, and what the server says first and last is asked
 * for. `outcome` is initialised; each tag comes back once.
 */
void rpc_channel_begin(tutti_rpc_channel *channel, grpc_call *call,
                       const tutti_rpc_call_options *options, rpc_outcome *outcome,
                       void *opened_tag, void *status_tag);

/* Add the google.rpc.Status that the server sent with an error, if it did. [in] ret_details  NULL = not wanted */
void rpc_outcome_details(const rpc_outcome *outcome, tutti_buf *ret_details);

/* What a call sends first: the message, or what its options have packed. [out, owned] ret_buffer  NULL = nothing */
tutti_code rpc_channel_pack(const struct ProtobufCMessage *message, const tutti_rpc_blob *payload,
                            const tutti_rpc_call_options *options, grpc_byte_buffer **ret_buffer,
                            tutti_error *err);

/* TUTTI_OK, or the error that the server sent, or what kept gRPC from asking it. Before the call is
 * unref'd: it owns what was received. */
tutti_code rpc_outcome_read(const rpc_outcome *outcome, tutti_rpc_channel *channel,
                            const rpc_known *known, tutti_error *err);

/* connect_error.c: put gRPC's own errors into words that a person understands. */
void rpc_connect_error_explain(tutti_rpc_channel *channel, const rpc_known *known,
                               tutti_error *err);

/* When a wait for the server ended with the deadline, find out why it is not there. Blocks shortly;
 * `queue` is a pluck queue. */
void rpc_connect_error_ask(tutti_rpc_channel *channel, grpc_completion_queue *queue,
                           tutti_error *err);

/* channel_stream.c: of a lane, has the server's process ended, or does it write no more? Any thread. */
bool rpc_lane_is_gone(const tutti_rpc_lane_end *end);

/*
 * targets.c: the addresses of a channel, which of them is called, and the change to another one.
 */
#define TUTTI_RPC_TOLD_MAX 4
tutti_code rpc_channel_targets_open(tutti_rpc_channel *channel, const char *target, bool follow,
                                    tutti_error *err);

/* Does it follow, and knows several? Then a call must not wait for one of them. */
static inline bool
rpc_channel_has_others(const tutti_rpc_channel *channel)
{
    return channel->target_count > 1 || atomic_load(&channel->moves) > 0 ||
           atomic_load(&channel->others);
}

/*
 * The name that the certificate of the present target has to have; NULL = that of its address. With the lock, or before
 * the channel is open.
 */
const char *rpc_channel_certified_name(const tutti_rpc_channel *channel);

/* A call has failed: shall later ones go elsewhere? [in] moves  when the call began */
void rpc_channel_follow(tutti_rpc_channel *channel, const tutti_error *err, bool from_peer,
                        size_t moves);

/* channel_call.c: unpack a response; malformed ones are TUTTI_DATA_LOSS here. [in, moved] received
 */
tutti_code rpc_response_unpack(const rpc_known *known, grpc_byte_buffer *received,
                               tutti_rpc_message **ret_message, tutti_error *err);

#endif
