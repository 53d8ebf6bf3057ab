/* Private to lib/rpc/server: what calls ask of their lane. */
#ifndef TUTTI_RPC_SERVER_LANE_H
#define TUTTI_RPC_SERVER_LANE_H

#include <stdbool.h>

#include "rpc/lane.h"
#include "rpc/server/call.h"

/*
 * A stream has come: if it names a lane, it gets it. In the loop's turn, behind authorization.
 *
 * TUTTI_FAILED_PRECONDITION  NO_LANE: there is no such lane, or another stream has it, or it is
 *                            another caller's
 */
tutti_code rpc_lane_bind(tutti_rpc_call *call, tutti_error *err);

/* The call is over. In the turn. */
void rpc_lane_unbind(tutti_rpc_call *call);

/* Ask for one message, which comes in the turn. Any thread. */
void rpc_lane_read(tutti_rpc_call *call);

/*
 * Send a message; `written` of the call is told in the turn. Any thread, one at a time.
 *
 * Returns false: it shall go by gRPC, and its place is kept.
 */
bool rpc_lane_write(tutti_rpc_call *call, grpc_byte_buffer *message);

/*
 * gRPC says that the stream has ended. In the turn. True: rpc_call_closed is called later in the turn, behind
 * `written` of a message that has left already. False: it is the caller's to call, now.
 */
bool rpc_lane_close_later(tutti_rpc_call *call);

/* The client has gone, and so what waits for room will not leave: `written` of the call is told, as failed. In the turn. */
void rpc_lane_lose(tutti_rpc_call *call);

/* Nothing more will be written: the status goes by gRPC. */
void rpc_lane_shut(tutti_rpc_call *call);

#endif
