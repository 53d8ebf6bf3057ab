/*
 * Lanes: streams of a server whose messages go through shared memory (lane/lane.h) instead of
 * HTTP/2. To a handler such a stream is like any other.
 *
 * The client opens the stream as any stream, with credentials and all, and names the lane in the
 * metadata `tutti-lane`. The gRPC stream stays open beneath: by it the server authorizes, and
 * either side learns that the other one is gone. A message that is too large for the lane goes by
 * gRPC, and a note in the lane keeps its place.
 *
 * One thread serves all lanes. It sleeps until a client rings, and then has the loop's turn
 * (tutti_rpc_loop_enter), so a message is handled on the thread that was woken for it.
 */
#ifndef TUTTI_RPC_LANE_H
#define TUTTI_RPC_LANE_H

#include <stddef.h>
#include <stdint.h>

#include "rpc/loop.h"
#include "rpc/server.h"
#include "tutti/error.h"

#define TUTTI_RPC_LANE_NAME_BYTES 16
#define TUTTI_RPC_LANE_NAME_SIZE (2 * TUTTI_RPC_LANE_NAME_BYTES + 1) /* in hexadecimal digits */

/* What a message in a lane is; the writer's kind of lane/lane.h. */
enum tutti_rpc_lane_kind {
    TUTTI_RPC_LANE_BYTES,     /* the message itself, as protobuf */
    TUTTI_RPC_LANE_ELSEWHERE, /* the next message of the gRPC stream */
    TUTTI_RPC_LANE_END,       /* the client has half-closed */
};

typedef struct tutti_rpc_lanes tutti_rpc_lanes;
typedef struct tutti_rpc_lane tutti_rpc_lane;

/*
 * [in] loop      of the services whose streams may have lanes; it runs until the lanes are closed
 * [in] busy_ns   how long the thread looks for a next message before it sleeps; 0 = not at all
 *
 * TUTTI_RESOURCE_EXHAUSTED, ...  from the system: no thread, no descriptors
 */
tutti_code tutti_rpc_lanes_open(tutti_rpc_loop *loop, uint64_t busy_ns, tutti_rpc_lanes **ret_lanes,
                                tutti_error *err);

/* Behind the end of all streams that have one; not in the loop's turn. NULL is fine. */
void tutti_rpc_lanes_close(tutti_rpc_lanes *lanes);

/* Streams of this server may have lanes. Before start. */
void tutti_rpc_server_lanes(tutti_rpc_server *server, tutti_rpc_lanes *lanes);

/* Lanes that exist: with a stream, or waiting for theirs. Any thread. */
size_t tutti_rpc_lanes_count(tutti_rpc_lanes *lanes);

/* Messages of clients that came by lanes since they were opened, large ones too. Any thread. */
uint64_t tutti_rpc_lanes_messages(tutti_rpc_lanes *lanes);

/*
 * A lane that waits for its stream. Any thread.
 *
 * [in]             identity    of who may use it (tutti_rpc_call_identity)
 * [out, owned]     ret_memory  for the client; close() it when it was sent
 * [out, borrowed]  ret_bell    likewise, good as long as the lane
 * [out, owned]     ret_lane    tutti_rpc_lane_drop it
 *
 * TUTTI_RESOURCE_EXHAUSTED, ...  from the system
 */
tutti_code tutti_rpc_lane_new(tutti_rpc_lanes *lanes, const char *identity, int *ret_memory,
                              int *ret_bell, tutti_rpc_lane **ret_lane, tutti_error *err);

/*
 * Before its name: the client waits in its own event loop, and is woken by an eventfd instead of a futex.
 *
 * [out, borrowed] ret_bell  for the client, good as long as the lane
 *
 * TUTTI_RESOURCE_EXHAUSTED  from the system: no descriptors
 */
tutti_code tutti_rpc_lane_add_client_bell(tutti_rpc_lane *lane, int *ret_bell, tutti_error *err);

/* The name by which the client's stream asks for it: random, known to the client alone. Once. */
void tutti_rpc_lane_name(tutti_rpc_lane *lane, const unsigned char name[TUTTI_RPC_LANE_NAME_BYTES]);

/* The client has gone, or did not come; a stream that has the lane ends by its own means. */
void tutti_rpc_lane_drop(tutti_rpc_lane *lane);

#endif
