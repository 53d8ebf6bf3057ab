/* Private to client: streams of commands that stay open, for calls that would be unary. */
#ifndef TUTTI_CLIENT_CONN_COMMAND_STREAM_H
#define TUTTI_CLIENT_CONN_COMMAND_STREAM_H

#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "lane/lane.h"
#include "rpc/channel.h"
#include "rpc/lane.h"
#include "share/share.h"

/* ------------------------------------------------------------------ whose streams */

/* What a server says of a lane that it has made. */
typedef struct client_lane_offer {
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    char socket[TUTTI_SHARE_NAME_MAX + 1];
} client_lane_offer;

/* An answer to a command; points into its message. */
typedef struct client_command_answer {
    uint64_t id;
    uint32_t number; /* of the response, which is that of the command; 0 = it failed */
    const struct ProtobufCMessage *response;
    const void *error; /* if it failed: the wire's, for client_read_error */
} client_command_answer;

/*
 * A service with a stream that carries calls: messages with an `id` and a oneof of requests, answered
 * with the id and a oneof of responses of the same numbers, or an Error.
 */
typedef struct client_stream_service {
    client_stream_kind kind;    /* its streams in the client */
    client_conn_kind conn_kind; /* the connection to its server */
    const char *server;         /* "the agent" */
    const tutti_rpc_stub *run;
    const struct ProtobufCMessageDescriptor *request; /* of the stream */
    tutti_code (*pack)(uint64_t id, uint32_t number, const struct ProtobufCMessage *request,
                       const tutti_rpc_blob *payload, tutti_rpc_packed **ret_packed,
                       tutti_error *err);
    client_command_answer (*read)(const void *message);
    tutti_code (*open_lane)(tutti_client *client, const char *host_id, uint32_t wait_ms,
                            client_lane_offer *ret_offer, tutti_error *err);
} client_stream_service;

extern const client_stream_service client_commands; /* the agent's: command_stream_pb.c */

/* The number of the command that a request is; 0 = the service's streams carry no such call. */
uint32_t client_command_number(const client_stream_service *service,
                               const struct ProtobufCMessage *request);

/* An offer as the wire has it. TUTTI_DATA_LOSS  it makes no sense */
tutti_code client_read_lane_offer(const client_stream_service *service, tutti_bytes token,
                                  const char *socket, client_lane_offer *ret, tutti_error *err);

/* ------------------------------------------------------------------ lane.c */

/* One lane, for one stream. Whoever has the stream has it. */
typedef struct client_lane {
    tutti_share_view view; /* its memory, and the lease */
    tutti_lane rings;
    char name[TUTTI_RPC_LANE_NAME_SIZE];
    tutti_rpc_lane_end end; /* points into this */
} client_lane;

/*
 * A lane of the service's server, when that is on this machine and makes lanes. NULL: the stream goes
 * by gRPC; the server is not asked again then, or for a while, if it may have one later
 * (client_streams.lane_again_ns).
 */
client_lane *client_lane_open(tutti_client *client, const client_stream_service *service);

/* Is it time to ask for one? Cheap while there are lanes, and when there never will be. */
bool client_lane_may_ask(const tutti_client *client, const client_stream_service *service);

/* A stream has not found its lane: the next ones go by gRPC for a while. */
void client_lane_put_off(client_streams *streams);

/* Behind the end of its stream. NULL is fine. */
void client_lane_close(client_lane *lane);

/* ------------------------------------------------------------------ command_stream.c */

/*
 * A command stream ("shuttle", decision 0022): a stream that stays open and carries one call at a
 * time, which costs two thirds of a unary call. It is idle (in the client's list) or owned by the one
 * call that has acquired it. A call takes an idle one or makes a new one; no thread waits for
 * another's. Each has a use of its connection.
 */
typedef struct client_command_stream {
    tutti_list_node link; /* in the client's idle ones */
    const client_stream_service *service;
    client_conn *conn;
    tutti_rpc_stream *stream;
    client_lane *lane; /* [owned] by which its messages go; NULL = by gRPC */
    uint64_t last_id;  /* of the calls it has carried; 0 = none yet */
    uint64_t lease;    /* of all that it carries */
    uint64_t idle_ns;  /* since when it is idle */
} client_command_stream;

/* One that is idle and whole, or a new one; NULL: the call shall go by itself. */
client_command_stream *client_command_stream_acquire(tutti_client *client,
                                                     const client_stream_service *service);
/* The call has its answer: the stream is idle again. */
void client_command_stream_release(tutti_client *client, client_command_stream *commands);

/*
 * Finish and free the stream, which is not idle. Cancel it before if an answer may still come.
 * Returns how it ended, OK included. [out] err  NULL = not wanted
 */
tutti_code client_command_stream_drop(tutti_client *client, client_command_stream *commands,
                                      tutti_error *err);

/* Of a new client. */
void client_shuttles_init(tutti_client *client);

/* All that are idle. */
void client_shuttles_close(tutti_client *client);

/* ------------------------------------------------------------------ command_stream_pb.c */

/*
 * A call by a command stream, in the words of client_invoke. False: it has not been made and shall go
 * by itself.
 */
bool client_command_stream_call(tutti_client *client, const client_call *call,
                                const struct ProtobufCMessage *request,
                                tutti_rpc_message **ret_response, tutti_code *ret_code,
                                tutti_error *err);

#endif
