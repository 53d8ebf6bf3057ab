/*
 * Lane offers: where the clients of a server that are on its machine get their lanes (rpc/lane.h).
 *
 * A client asks for a lane by a call, and takes its memory and its bell at a socket (share/share.h),
 * whose connection it keeps: when it dies the offer is over, and its stream ends by gRPC. How many
 * lanes there are at a time is limited here. Agents and coordinators have one of these each.
 */
#ifndef TUTTI_LANE_OFFER_LANE_OFFER_H
#define TUTTI_LANE_OFFER_LANE_OFFER_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/loop.h"
#include "rpc/server.h"
#include "share/share.h"
#include "tutti/error.h"

typedef struct tutti_lane_offers tutti_lane_offers;

typedef struct tutti_lane_offers_options {
    const char *server;  /* what it is, in words for people and as the room of its log: "agent" */
    const char *host_id; /* which machine it is on; "" = boot id and IPC namespace */
    const char *off; /* the option that says that there are none: "--no-lane"; NULL = none does */
    uint64_t lanes_max;
    uint64_t busy_poll_ns; /* how long the lanes' thread looks before it sleeps; 0 = not at all */
    bool any_user;         /* other users than ours and root get lanes, too */
} tutti_lane_offers_options;

/* What a client is told. */
typedef struct tutti_lane_offer {
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES]; /* good once, for 5 s */
    const char *socket;                           /* borrowed for the life of the offers */
    uint64_t bytes;                               /* of the memory */
} tutti_lane_offer;

/*
 * Open the thread that serves lanes, and the socket at which clients get them. Before the server
 * starts. If that fails the log says so, and clients are refused with LANES_OFF, as with `off`.
 *
 * [in] options  borrowed until it returns; its texts for the life of the offers
 * [in] loop     of the services whose streams may have lanes; it runs until the offers are closed
 *
 * NULL: no memory
 */
tutti_lane_offers *tutti_lane_offers_open(const tutti_lane_offers_options *options,
                                          tutti_rpc_loop *loop, tutti_rpc_server *server);

/* Behind the server's end, while the loop runs or has stopped. NULL is fine. */
void tutti_lane_offers_close(tutti_lane_offers *offers);

/*
 * A lane that waits for its client. Any thread. NULL offers are fine: LANES_OFF.
 *
 * [in] call     of the client: the lane is for its identity alone
 * [in] host_id  which machine the client says it is on; "" = it does not say
 * [in] polls    it waits in its own event loop, and gets an eventfd that wakes it
 *
 * TUTTI_FAILED_PRECONDITION  LANES_OFF, OTHER_HOST
 * TUTTI_RESOURCE_EXHAUSTED   LANE_LIMIT; no memory, no descriptors
 */
tutti_code tutti_lane_offers_make(tutti_lane_offers *offers, const tutti_rpc_call *call,
                                  const char *host_id, bool polls, tutti_lane_offer *ret_offer,
                                  tutti_error *err);

/* Lanes that exist, and messages of clients that came by lanes so far. Any thread; NULL is fine. */
uint64_t tutti_lane_offers_count(const tutti_lane_offers *offers);
uint64_t tutti_lane_offers_messages(const tutti_lane_offers *offers);

#endif
