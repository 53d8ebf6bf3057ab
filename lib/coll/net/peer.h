/*
 * Private to lib/coll: what is known of other ranks, and the connections to them. Engine's thread.
 *
 * A peer is unknown (no address), known, or lost; news from the control loop move it between these.
 * A new incarnation makes a lost peer known again. At most one connection leads to it, made when it
 * is first needed.
 */
#ifndef TUTTI_COLL_NET_PEER_H
#define TUTTI_COLL_NET_PEER_H

#include "coll/coll.h"
#include "coll/packet/packet.h"
#include "coll/transport.h"

#define PEER_ADDRESS_MAX 4096

/* Another rank. Lives until the engine ends. conn is NULL unless the peer has an address and is not
 * lost; a lost peer keeps its conn for LOSS_GRACE_NS, for messages that are on their way. */
typedef struct coll_peer {
    tutti_map_node node;
    unsigned char key[8];
    tutti_coll_engine *engine;
    uint32_t rank;
    uint64_t incarnation; /* 0 = not known yet */
    uint64_t dead;        /* the process that was lost last; 0 = none */
    void *learned;        /* [owned] the news that the address is in */
    const char *address;
    size_t address_size;
    tutti_transport_conn *conn;
    uint64_t torn;           /* how often the connection was torn down, as far as we know */
    tutti_list_node ios;     /* of ops, that need this peer */
    tutti_list_node waiting; /* sends that wait for the address: by their `queue` */
    tutti_list_node ask;     /* in engine->asks */
    /* Of the last sends to it that have failed here: [owned] RETRACTS_KEPT of them, NULL = none. */
    tutti_packet *retracts;
    size_t retract_count; /* that ever were */
    bool lost;
    /* After a loss: when the transport stops hearing that process. */
    tutti_timer expulsion;
    char reason[192];
} coll_peer;

coll_peer *tutti_coll_peer_of(tutti_coll_engine *engine, uint32_t rank); /* NULL: no memory */
/* The on_broken of the transport's events: `peer` as given to connect. */
void tutti_coll_peer_broke(void *engine, void *peer, const char *why);
/* Pass the peers in engine->asks to the owner's on_need_peers. */
void tutti_coll_peers_ask(tutti_coll_engine *engine);
/* Have a connection, so that its death is noticed; ask for the address if there is none. A failure
 * fails all ops that need the peer. */
void tutti_coll_peer_watch(coll_peer *peer);
/* Have a connection. False: there is none, and *ret_why (borrowed) says why. */
bool tutti_coll_peer_connect(coll_peer *peer, const char **ret_why);
/* Ask for its address, with the next tutti_coll_peers_ask. */
void tutti_coll_peer_ask(coll_peer *peer);
void tutti_coll_peer_give_up(coll_peer *peer); /* fail the ops that need it, disconnect */
/* A send to it has failed, and `packet` says so. What was said by a connection that is torn down may be
 * lost, and the peer would keep the send for ever: it is said again by the next connection. */
void tutti_coll_peer_keep_retract(coll_peer *peer, const tutti_packet *packet);
/* Disconnect: tickets of sends on it come back as failed, inside. Ops may fail and be released. */
void tutti_coll_peer_drop_conn(coll_peer *peer);
/*
 * The agent has joined again, and no news come of who was lost or replaced before, or counted as lost while not all had
 * joined: the owner is asked again for all ranks that are known. Any thread.
 */
void tutti_coll_peers_renew(tutti_coll_engine *engine);
/* A RESET has come: the peer has made its connection to us anew. */
void tutti_coll_recv_reset(tutti_coll_engine *engine, const tutti_packet *packet);
/* At the end: end what waits for addresses, and disconnect from all. */
void tutti_coll_peers_drop_conns(tutti_coll_engine *engine);
void tutti_coll_peers_free(tutti_coll_engine *engine); /* after the transport is closed */

#endif
