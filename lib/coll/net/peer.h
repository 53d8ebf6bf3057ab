/* Private to lib/coll: who the other ranks are, and the connections to them. */
#ifndef TUTTI_COLL_NET_PEER_H
#define TUTTI_COLL_NET_PEER_H

#include "coll/coll.h"
#include "coll/packet/packet.h"
#include "coll/transport.h"

#define PEER_ADDRESS_MAX 4096

/* Another rank. */
typedef struct coll_peer {
    tutti_map_node node;
    unsigned char key[8];
    tutti_coll_engine *engine;
    uint32_t rank;
    uint64_t incarnation; /* 0 = not known yet */
    unsigned char *address;
    size_t address_size;
    tutti_transport_conn *conn;
    uint64_t torn;           /* how often the way between us has been torn, as far as we know */
    tutti_list_node ios;     /* of ops, that need this peer */
    tutti_list_node waiting; /* sends that wait for the address: by their `queue` */
    tutti_list_node ask;     /* in engine->asks */
    bool lost;
    tutti_timer expulsion; /* when what it still says is not heard any more */
    char reason[192];
} coll_peer;

coll_peer *tutti_coll_peer_of(tutti_coll_engine *engine, uint32_t rank); /* NULL: no memory */
void tutti_coll_peer_broke(void *engine, void *peer, const char *why);
void tutti_coll_peers_ask(tutti_coll_engine *engine);
void tutti_coll_peer_watch(coll_peer *peer); /* have a way, so that its death is noticed */
bool tutti_coll_peer_connect(coll_peer *peer, const char **ret_why);
void tutti_coll_peer_ask(coll_peer *peer);     /* where is it? */
void tutti_coll_peer_give_up(coll_peer *peer); /* fail the ops that need it, tear down the way */
void tutti_coll_peer_drop_conn(coll_peer *peer);
void tutti_coll_recv_reset(tutti_coll_engine *engine, const tutti_packet *packet);
void tutti_coll_peers_drop_conns(tutti_coll_engine *engine);
void tutti_coll_peers_free(tutti_coll_engine *engine); /* after the transport is closed */

#endif
