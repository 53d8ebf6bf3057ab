/* Private to client: streams of commands that stay open, for calls that would be unary. */
#ifndef TUTTI_CLIENT_CONN_COMMAND_STREAM_H
#define TUTTI_CLIENT_CONN_COMMAND_STREAM_H

#include "client/conn/call.h"
#include "client/conn/conn_pool.h"
#include "lane/lane.h"
#include "rpc/channel.h"
#include "rpc/lane.h"
#include "share/share.h"

/* ------------------------------------------------------------------ lane.c */

/* One lane, for one stream. Whoever has the stream has it. */
typedef struct client_lane {
    tutti_share_view view; /* its memory, and the lease */
    tutti_lane rings;
    char name[TUTTI_RPC_LANE_NAME_SIZE];
    tutti_rpc_lane_end end; /* points into this */
} client_lane;

/*
 * A lane of the agent, when it is on this machine and makes lanes. NULL: the stream goes by gRPC;
 * the agent is not asked again then, or for a while, if it may have one later (client->lane_again_ns).
 */
client_lane *client_lane_open(tutti_client *client);

/* Is it time to ask the agent for one? Cheap while there are lanes, and when there never will be. */
bool client_lane_may_ask(const tutti_client *client);

/* Behind the end of its stream. NULL is fine. */
void client_lane_close(client_lane *lane);

/* ------------------------------------------------------------------ command_stream_pb.c, too */

/* What an agent says of a lane that it has made. */
typedef struct client_lane_offer {
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    char socket[TUTTI_SHARE_NAME_MAX + 1];
} client_lane_offer;

tutti_code client_wire_open_lane(tutti_client *client, const char *host_id, uint32_t wait_ms,
                                 client_lane_offer *ret_offer, tutti_error *err);

/* ------------------------------------------------------------------ command_stream.c */

/*
 * A command stream ("shuttle", decision 0022): a stream of CommandsService that stays open and
 * carries one call at a time, which costs two thirds of a unary call. It is idle (in the client's
 * list) or owned by the one call that has acquired it. A call takes an idle one or makes a new
 * one; no thread waits for another's. Each has a use of its connection.
 */
typedef struct client_command_stream {
    tutti_list_node link; /* in the client's idle ones */
    client_conn *conn;
    tutti_rpc_stream *stream;
    client_lane *lane; /* [owned] by which its messages go; NULL = by gRPC */
    uint64_t last_id;  /* of the calls it has carried; 0 = none yet */
    uint64_t lease;    /* of all that it carries */
} client_command_stream;

/* One that is idle and whole, or a new one; NULL: the call shall go by itself. */
client_command_stream *client_command_stream_acquire(tutti_client *client);
/* The call has its answer: the stream is idle again. */
void client_command_stream_release(tutti_client *client, client_command_stream *commands);

/*
 * Finish and free the stream, which is not idle. Cancel it before if an answer may still come.
 * Returns how it ended, OK included. [out] err  NULL = not wanted
 */
tutti_code client_command_stream_drop(tutti_client *client, client_command_stream *commands,
                                      tutti_error *err);

/* All that are idle. */
void client_shuttles_close(tutti_client *client);

/* ------------------------------------------------------------------ command_stream_pb.c */

tutti_code client_command_stream_open(const tutti_client *client, client_command_stream *commands,
                                      tutti_error *err);

/*
 * A call of the agent by a command stream, in the words of client_invoke. False: it has not been
 * made and shall go by itself.
 */
bool client_command_stream_call(tutti_client *client, const client_call *call,
                                const struct ProtobufCMessage *request,
                                tutti_rpc_message **ret_response, tutti_code *ret_code,
                                tutti_error *err);

#endif
