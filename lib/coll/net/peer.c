/*
 * Other ranks: their addresses, connections, deaths and returns.
 *
 * tutti_coll_set_peer and tutti_coll_lose_peer run on any thread (the control loop, with the
 * coordinator's events) and push an item; everything else is the engine's thread.
 *
 * A death is noticed in two ways. The transport says that the connection broke: ops that need the
 * peer fail at once, but the peer is not lost, and a next op connects anew. The coordinator says
 * that the rank is lost: its groups look (LOSS_GRACE_NS later their ops fail), new ops that need it
 * fail, and after the same time nothing that the process says is heard any more (revoke). A new
 * incarnation for the rank fails what still waits for the old process, and starts afresh.
 */
#include "coll/net/peer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/net/io.h"
#include "coll/net/unexpected.h"
#include "coll/packet/packet.h"
#include "coll/state/engine.h"
#include "coll/state/events.h"
#include "coll/state/group.h"
#include "coll/state/inbox.h"
#include "coll/state/lookup.h"

#define ASK_MAX 256
#define RETRACTS_KEPT 32 /* of each peer; older ones stay there until their epoch ends */

static void
revoke_peer(coll_peer *peer)
{
    tutti_transport *transport = peer->engine->transport;

    if (transport->ops->revoke != NULL && peer->incarnation != 0) {
        transport->ops->revoke(transport, peer->rank, peer->incarnation);
    }
}

/* Its last messages have had their time. If it is not lost any more, another process has taken its
 * place, and the old one was revoked then. */
static void
on_expulsion(tutti_timer *timer)
{
    coll_peer *peer = tutti_container_of(timer, coll_peer, expulsion);

    if (peer->lost) {
        revoke_peer(peer);
    }
}

coll_peer *
tutti_coll_peer_of(tutti_coll_engine *engine, uint32_t rank)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&engine->peers, tutti_map_key_u64(key, rank));
    coll_peer *peer;

    if (node != NULL) {
        return tutti_container_of(node, coll_peer, node);
    }
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory for the state of rank %u", rank);
        return NULL;
    }
    peer->engine = engine;
    peer->rank = rank;
    tutti_list_init(&peer->ios);
    tutti_list_init(&peer->waiting);
    tutti_list_init(&peer->ask);
    peer->expulsion.on_expiry = on_expulsion;
    peer->node.key = tutti_map_key_u64(peer->key, rank);
    (void)tutti_map_add(&engine->peers, &peer->node);
    return peer;
}

static void fail_needing(coll_peer *peer, const char *reason);

/* conn is cleared first: disconnect gives tickets back inside, and an op that fails by them must
 * not send on it. torn counts for tell_reset. */
void
tutti_coll_peer_drop_conn(coll_peer *peer)
{
    tutti_transport_conn *conn = peer->conn;

    peer->conn = NULL;
    if (conn != NULL) {
        peer->torn++;
        peer->engine->transport->ops->disconnect(conn);
    }
}

/*
 * Where only one side tears a connection down, UCX lets the other go on with an end that leads
 * nowhere: small packets arrive, large data never does. So the rank that connects anew says how
 * often it was torn down, and a rank that has not torn it as often does so too. Comparing counts,
 * not flags, lets both sides connect anew at the same time without tearing each other's new
 * connection down.
 */
static void
tell_reset(coll_peer *peer)
{
    tutti_coll_engine *engine = peer->engine;
    const tutti_packet packet = {.kind = TUTTI_PACKET_RESET,
                                 .from = engine->rank,
                                 .job_id = engine->job_id,
                                 .incarnation = engine->incarnation,
                                 .extra = peer->torn};

    tutti_coll_note(engine, peer->rank, &packet, NULL, 0);
}

void
tutti_coll_peer_keep_retract(coll_peer *peer, const tutti_packet *packet)
{
    if (peer->retracts == NULL) {
        peer->retracts = calloc(RETRACTS_KEPT, sizeof(*peer->retracts));
    }
    if (peer->retracts != NULL) {
        peer->retracts[peer->retract_count++ % RETRACTS_KEPT] = *packet;
    }
}

/* Those that it has heard match nothing there: an id of a send is never used twice. */
static void
tell_retracts(coll_peer *peer)
{
    const size_t count = peer->retract_count < RETRACTS_KEPT ? peer->retract_count : RETRACTS_KEPT;
    unsigned char bytes[TUTTI_PACKET_ERROR_BYTES];
    tutti_error err;
    size_t i;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "RANK_LOST",
                         "rank %" PRIu32 " has given the send up, and the connection to it broke",
                         peer->engine->rank);
    for (i = 0; i < count; i++) {
        tutti_coll_note(peer->engine, peer->rank, &peer->retracts[i], bytes,
                        tutti_packet_write_error(&err, bytes));
    }
}

static void
forget_retracts(coll_peer *peer)
{
    free(peer->retracts);
    peer->retracts = NULL;
    peer->retract_count = 0;
}

static void
forget_address(coll_peer *peer)
{
    free(peer->learned);
    peer->learned = NULL;
    peer->address = NULL;
}

/* What we have sent and it has not taken fails; what it sends comes by its new connection. */
void
tutti_coll_recv_reset(tutti_coll_engine *engine, const tutti_packet *packet)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&engine->peers, tutti_map_key_u64(key, packet->from));
    coll_peer *peer = node == NULL ? NULL : tutti_container_of(node, coll_peer, node);

    if (peer != NULL && peer->incarnation == packet->incarnation && packet->extra > peer->torn) {
        TUTTI_LOG("coll", DEBUG, "rank %u has made the way to us anew", peer->rank);
        tutti_coll_peer_drop_conn(peer);
        peer->torn = packet->extra;
    }
}

void
tutti_coll_peer_ask(coll_peer *peer)
{
    tutti_list_remove(&peer->ask);
    tutti_list_add(&peer->engine->asks, &peer->ask);
}

/* The connection to a peer, made when it is first needed. */
bool
tutti_coll_peer_connect(coll_peer *peer, const char **ret_why)
{
    tutti_transport *transport = peer->engine->transport;
    tutti_error err;

    if (peer->lost) {
        *ret_why = peer->reason;
        return false;
    }
    if (peer->conn != NULL) {
        return true;
    }
    if (transport->ops->connect(transport, (tutti_bytes){peer->address, peer->address_size}, peer,
                                &peer->conn, &err) != TUTTI_OK) {
        TUTTI_LOG("coll", DEBUG, "rank %u: %s", peer->rank, err.text);
        (void)snprintf(peer->reason, sizeof(peer->reason), "%.190s", err.text);
        *ret_why = peer->reason;
        return false;
    }
    if (peer->torn > 0) {
        tell_reset(peer);
        tell_retracts(peer);
    }
    return true;
}

/* This rank only waits for the peer: without a connection of its own nobody would tell it that the
 * peer has died. */
void
tutti_coll_peer_watch(coll_peer *peer)
{
    const char *why;

    if (peer->lost || peer->conn != NULL) {
        return;
    }
    if (peer->address == NULL) {
        tutti_coll_peer_ask(peer);
    } else if (!tutti_coll_peer_connect(peer, &why)) {
        fail_needing(peer, why);
    }
}

/* An op that still needs this peer; NULL if none does. Looked for anew after each failure, which
 * may end others. */
static tutti_coll_op *
find_needing(const coll_peer *peer)
{
    tutti_list_node *link;

    for (link = peer->ios.next; link != &peer->ios; link = link->next) {
        const coll_io *io = tutti_container_of(link, coll_io, in_peer);

        if (io->op != NULL && !io->op->failed) {
            return io->op;
        }
    }
    return NULL;
}

static void
fail_needing_for(coll_peer *peer, uint32_t culprit, const char *reason)
{
    tutti_coll_op *op;
    tutti_error err;

    while ((op = find_needing(peer)) != NULL) {
        tutti_coll_lost_words(op, culprit, reason, &err);
        tutti_coll_op_fail(op, &err, true);
    }
}

static void
fail_needing(coll_peer *peer, const char *reason)
{
    fail_needing_for(peer, peer->rank, reason);
}

/* It is the others who have broken the connection: they have given up this process, which did not run. */
static bool
word_own_fault(const tutti_coll_engine *engine, char *ret_reason, size_t size)
{
    const uint64_t still_ns = engine->options.stood_still_ns == NULL
                                  ? 0
                                  : engine->options.stood_still_ns(engine->options.arg);

    (void)snprintf(ret_reason, size, "it stood still for %.3g s, and the others have given it up",
                   (double)still_ns / TUTTI_NS_PER_S);
    return still_ns > 0;
}

/* The conn is taken down before ops fail: their aborts to this peer then go by a new connection, or
 * not at all. `why` may belong to the conn, so it is copied first. */
void
tutti_coll_peer_broke(void *engine, void *owner, const char *why)
{
    coll_peer *peer = owner;
    char reason[192];
    char own[128];

    (void)engine;
    (void)snprintf(reason, sizeof(reason), "the connection to it broke (%s)", why);
    TUTTI_LOG("coll", DEBUG, "rank %u: %s", peer->rank, reason);
    tutti_coll_peer_drop_conn(peer);
    if (word_own_fault(peer->engine, own, sizeof(own))) {
        fail_needing_for(peer, peer->engine->rank, own);
    } else {
        fail_needing(peer, reason);
    }
}

void
tutti_coll_peer_give_up(coll_peer *peer)
{
    fail_needing(peer, peer->reason);
    tutti_coll_peer_drop_conn(peer);
}

/* Tell the owner which ranks we need to know, in few calls. */
void
tutti_coll_peers_ask(tutti_coll_engine *engine)
{
    uint32_t ranks[ASK_MAX];
    tutti_list_node *link;
    size_t count;

    while (!tutti_list_empty(&engine->asks)) {
        count = 0;
        while (count < ASK_MAX && (link = tutti_list_pop(&engine->asks)) != NULL) {
            ranks[count++] = tutti_container_of(link, coll_peer, ask)->rank;
        }
        engine->options.on_need_peers(engine->options.arg, ranks, count);
    }
}

typedef struct peer_item {
    tutti_coll_item item;
    uint32_t rank;
    uint64_t incarnation;
    bool lost;
    size_t size;
    char data[]; /* an address, or the reason of a loss */
} peer_item;

static void
look_at_groups(tutti_coll_engine *engine, uint32_t rank)
{
    tutti_map_node *node;

    for (node = tutti_map_first(&engine->groups); node != NULL; node = tutti_map_next(node)) {
        tutti_coll_group *group = tutti_container_of(node, tutti_coll_group, node);

        if (tutti_coll_group_rank_of(group, rank) != NO_RANK) {
            tutti_coll_group_look(group);
        }
    }
}

/* The list is taken whole: a send that fails may put others into it. Receives that wait for the
 * peer have had no connection to watch; now they can. */
static void
flush_waiting(coll_peer *peer)
{
    tutti_list_node mine;
    tutti_list_node *link;

    tutti_list_init(&mine);
    tutti_list_splice(&mine, &peer->waiting);
    while ((link = tutti_list_pop(&mine)) != NULL) {
        tutti_coll_io_submit(tutti_container_of(link, coll_io, queue));
    }
    if (!tutti_list_empty(&peer->ios)) {
        tutti_coll_peer_watch(peer);
    }
}

/* The same process again: news are repeated after a reconnect of the session. Another one: what was
 * sent to its predecessor is lost, so ops that need it fail before the new address is in place. What these tell
 * it makes a new connection to the predecessor, which goes, too: of a silent host nothing would break it.
 *
 * The address stays where the news has it: a copy could find no memory, and nobody asks for a rank that is lost.
 * Returns whether the news is kept. */
static bool
learn_peer(tutti_coll_engine *engine, coll_peer *peer, peer_item *news)
{
    if (news->incarnation == peer->dead && peer->dead != 0) {
        return false; /* an answer from before the loss, by another way */
    }
    if (peer->incarnation == news->incarnation && peer->address != NULL) {
        flush_waiting(peer);
        return false;
    }
    if (peer->incarnation != 0 && peer->incarnation != news->incarnation) {
        revoke_peer(peer);
        tutti_coll_peer_drop_conn(peer);
        fail_needing(peer, "another process has taken its seat");
        tutti_coll_peer_drop_conn(peer);
        tutti_coll_unpark_stale(engine, peer->rank, news->incarnation);
        forget_retracts(peer);
    }
    forget_address(peer);
    peer->learned = news;
    peer->address = news->data;
    peer->address_size = news->size;
    peer->torn = peer->incarnation == news->incarnation ? peer->torn : 0;
    peer->incarnation = news->incarnation;
    peer->lost = false;
    flush_waiting(peer);
    look_at_groups(engine, peer->rank);
    return true;
}

/* A loss of incarnation 0 means whichever process is there. The address goes: a returning process
 * has another. */
static void
lose_peer(tutti_coll_engine *engine, coll_peer *peer, const peer_item *news)
{
    tutti_list_node *link;

    if (news->incarnation != 0 && peer->incarnation != 0 &&
        peer->incarnation != news->incarnation) {
        return; /* news of a predecessor */
    }
    peer->lost = true;
    peer->dead = news->incarnation != 0 ? news->incarnation : peer->dead;
    peer->incarnation = news->incarnation;
    forget_address(peer);
    (void)snprintf(peer->reason, sizeof(peer->reason), "%s", news->data);
    TUTTI_LOG("coll", DEBUG, "rank %u is gone: %s", peer->rank, peer->reason);
    tutti_timers_start(&engine->timers, &peer->expulsion, engine->now_ns + LOSS_GRACE_NS);
    while ((link = tutti_list_pop(&peer->waiting)) != NULL) {
        tutti_coll_io_submit(
            tutti_container_of(link, coll_io, queue)); /* fails, the peer is lost */
    }
    look_at_groups(engine, peer->rank);
}

static void
run_peer_item(tutti_coll_engine *engine, tutti_coll_item *item)
{
    peer_item *news = tutti_container_of(item, peer_item, item);
    coll_peer *peer = tutti_coll_peer_of(engine, news->rank);
    bool kept = false;

    if (peer != NULL && news->lost) {
        lose_peer(engine, peer, news);
    } else if (peer != NULL) {
        kept = learn_peer(engine, peer, news);
    }
    if (!kept) {
        free(news);
    }
}

static void
push_news(tutti_coll_engine *engine, uint32_t rank, uint64_t incarnation, bool lost,
          const void *data, size_t size)
{
    peer_item *news = calloc(1, sizeof(*news) + size);

    if (news == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory to note that the membership of rank %u has changed",
                  rank);
        return;
    }
    news->item.run = run_peer_item;
    news->rank = rank;
    news->incarnation = incarnation;
    news->lost = lost;
    news->size = size;
    if (size > 0) {
        memcpy(news->data, data, size);
    }
    tutti_coll_engine_push(engine, &news->item);
}

void
tutti_coll_set_peer(tutti_coll_engine *engine, uint32_t rank, uint64_t incarnation,
                    tutti_bytes address)
{
    assert(address.size <= PEER_ADDRESS_MAX);
    push_news(engine, rank, incarnation, false, address.data, address.size);
}

void
tutti_coll_lose_peer(tutti_coll_engine *engine, uint32_t rank, uint64_t incarnation,
                     const char *reason)
{
    push_news(engine, rank, incarnation, true, reason, strlen(reason) + 1);
}

/* One that is known and has not changed is told the same again; one that was lost, or replaced, has an
 * incarnation that differs, which ends what still waits for the old process (learn_peer). */
static void
run_renewal(tutti_coll_engine *engine, tutti_coll_item *item)
{
    tutti_map_node *node;

    for (node = tutti_map_first(&engine->peers); node != NULL; node = tutti_map_next(node)) {
        coll_peer *peer = tutti_container_of(node, coll_peer, node);

        peer->lost = false;
        peer->dead = 0; /* for another coordinator the process may be alive */
        tutti_coll_peer_ask(peer);
    }
    free(item);
}

void
tutti_coll_peers_renew(tutti_coll_engine *engine)
{
    tutti_coll_item *item = calloc(1, sizeof(*item));

    if (item == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory to ask anew where the ranks are");
        return;
    }
    item->run = run_renewal;
    tutti_coll_engine_push(engine, item);
}

/* Sends that wait for an address will not leave any more; their ends are needed for engine->notes
 * and op->pending to come to 0. */
void
tutti_coll_peers_drop_conns(tutti_coll_engine *engine)
{
    tutti_map_node *node;
    tutti_list_node *link;

    for (node = tutti_map_first(&engine->peers); node != NULL; node = tutti_map_next(node)) {
        coll_peer *peer = tutti_container_of(node, coll_peer, node);

        while ((link = tutti_list_pop(&peer->waiting)) != NULL) {
            tutti_coll_io_end(tutti_container_of(link, coll_io, queue));
        }
        tutti_coll_peer_drop_conn(peer);
    }
}

void
tutti_coll_peers_free(tutti_coll_engine *engine)
{
    tutti_map_node *node;

    while ((node = tutti_map_first(&engine->peers)) != NULL) {
        coll_peer *peer = tutti_container_of(node, coll_peer, node);

        tutti_map_remove(&engine->peers, node);
        forget_address(peer);
        forget_retracts(peer);
        free(peer);
    }
}
