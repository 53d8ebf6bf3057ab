/*
 * Transport: moves packets between engines. The door for transports: coll/shm, coll/tcp, coll/ucx,
 * and a fake one in tests.
 *
 * A packet is a header of at most TUTTI_TRANSPORT_HEADER_MAX bytes and any amount of data. Small
 * data arrives with the header; large data stays with the sender until the receiver pulls it, or
 * waits in memory that the transport bounds, so a receiver that is not ready costs little. Packets
 * between two engines may overtake each other.
 *
 * Everything here is called on the engine's thread, and calls back on it.
 */
#ifndef TUTTI_COLL_TRANSPORT_H
#define TUTTI_COLL_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/bytes.h"
#include "base/data/list.h"
#include "tutti/error.h"

#define TUTTI_TRANSPORT_HEADER_MAX 288
#define TUTTI_TRANSPORT_EAGER_MAX 8192 /* data up to this size travels with its header */

typedef struct tutti_transport tutti_transport;
typedef struct tutti_transport_conn tutti_transport_conn; /* the connection to one peer */
typedef struct tutti_transport_rndv tutti_transport_rndv; /* data waiting at its sender */

/*
 * Embed one per send or pull; on_done runs once for each that returned TUTTI_TRANSPORT_LATER. Until
 * then the header, the data and the ticket itself stay where they are.
 */
typedef struct tutti_transport_ticket tutti_transport_ticket;
struct tutti_transport_ticket {
    void (*on_done)(tutti_transport_ticket *ticket, bool ok);
    tutti_list_node link; /* the transport's while it is out */
    bool unfinished; /* of an exposed region: it came back, but its borrower did not do its part */
    bool patient;    /* of a send: see arm */
    bool
        words; /* of a send: the data is what the engine says, and no tensor. A transport that authenticates
                        covers it */
    bool forged; /* of a fetch that came back with ok = false: the words were changed on the way */
};

/*
 * An exposed region: memory of ours that a peer of this host may read (input) and write (output)
 * until it gives it back. NULL and 0: nothing of the kind.
 */
typedef struct tutti_transport_region {
    const void *input;
    uint64_t input_size;
    void *output;
    uint64_t output_size;
} tutti_transport_region;

#define TUTTI_TRANSPORT_KEY_BYTES 32
#define TUTTI_TRANSPORT_PROOF_BYTES 32

/* What the coordinator tells the members of a job, and nobody else, with each epoch. */
typedef struct tutti_transport_key {
    uint64_t job_id;
    uint64_t epoch;
    unsigned char bytes[TUTTI_TRANSPORT_KEY_BYTES];
} tutti_transport_key;

/* Proves that a holder of an epoch's key said certain words to a certain address. */
typedef struct tutti_transport_proof {
    unsigned char bytes[TUTTI_TRANSPORT_PROOF_BYTES];
} tutti_transport_proof;

typedef enum tutti_transport_verdict {
    TUTTI_TRANSPORT_MEMBER,
    TUTTI_TRANSPORT_AHEAD,   /* of an epoch that we have not heard of yet: ask again after rekey */
    TUTTI_TRANSPORT_OVER,    /* a member no longer, or of an epoch that ended long ago */
    TUTTI_TRANSPORT_REFUSED, /* a stranger */
} tutti_transport_verdict;

typedef enum tutti_transport_result {
    TUTTI_TRANSPORT_DONE,   /* over: the memory is free again, on_done does not run */
    TUTTI_TRANSPORT_LATER,  /* on_done follows, from progress or disconnect */
    TUTTI_TRANSPORT_FAILED, /* the connection is broken; on_done does not run */
} tutti_transport_result;

typedef struct tutti_transport_events {
    /*
     * A packet came. `rndv` NULL: `data` is all of it, borrowed until return. Else the data
     * waits: pull or drop the rndv, now or later.
     */
    void (*on_packet)(void *arg, const void *header, size_t header_size, const void *data,
                      size_t size, tutti_transport_rndv *rndv);
    /*
     * The connection to a peer broke: its sends fail. `owner` as given to connect; disconnect it.
     */
    void (*on_broken)(void *arg, void *owner, const char *why);
} tutti_transport_events;

typedef struct tutti_transport_ops {
    size_t size;
    /* The address by which others reach this transport. Borrowed for the transport's life. */
    tutti_bytes (*address)(tutti_transport *transport);
    /* The engine's callbacks. Once, before progress. */
    void (*listen)(tutti_transport *transport, const tutti_transport_events *events, void *arg);
    /* TUTTI_UNAVAILABLE  no such address, from what can be told at once */
    tutti_code (*connect)(tutti_transport *transport, tutti_bytes address, void *owner,
                          tutti_transport_conn **ret_link, tutti_error *err);
    /* Tickets of sends on it come back with ok = false, here or from progress. The link is gone. */
    void (*disconnect)(tutti_transport_conn *link);
    tutti_transport_result (*send)(tutti_transport_conn *link, const void *header,
                                   size_t header_size, const void *data, size_t size,
                                   tutti_transport_ticket *ticket);
    /* Fetch all of a rndv's bytes; the rndv is gone. */
    tutti_transport_result (*fetch)(tutti_transport *transport, tutti_transport_rndv *rndv,
                                    void *dest, size_t size, tutti_transport_ticket *ticket);
    /* Its sender learns nothing: to it the data has left. */
    void (*drop)(tutti_transport *transport, tutti_transport_rndv *rndv);
    /* Do what can be done now; how many things were done. */
    unsigned (*progress)(tutti_transport *transport);
    /* Readable when progress has work, once arm has returned true; -1 when there is none. */
    int (*descriptor)(tutti_transport *transport);
    /*
     * false: there is work already. `idle`: nothing runs here, so what peers send with a patient
     * ticket is of no use yet: it need not wake anybody, and is found by the next progress.
     */
    bool (*arm)(tutti_transport *transport, bool idle);
    /* Tickets that are still out come back with ok = false, inside. All links are disconnected. */
    void (*close)(tutti_transport *transport);

    /* From now until the next arm a thread calls progress without being woken: what comes need not
     * make the descriptor readable. May be NULL. */
    void (*disarm)(tutti_transport *transport);

    /* What follows is NULL where no peer can touch our memory. */

    /* Can the peer touch memory of ours that `holds` says yes to? May become true, and false when
     * the way breaks. */
    bool (*same_host)(const tutti_transport_conn *link);
    /* May the process with this address be on our host? By the address alone. */
    bool (*can_map_peer)(tutti_transport *transport, tutti_bytes address);
    /* Is this memory that can be exposed? */
    bool (*holds)(tutti_transport *transport, const void *data, uint64_t size);
    /*
     * Send a packet with an exposed region, over a link of same_host. The ticket comes back when
     * the peer has given the memory back or is dead, and not before, whatever happens to the link:
     * a peer that is stopped may go on writing when it wakes up. Never DONE.
     */
    tutti_transport_result (*expose)(tutti_transport_conn *link, const void *header,
                                     size_t header_size, const tutti_transport_region *region,
                                     tutti_transport_ticket *ticket);
    /* The memory of an exposed region that came as a rndv, as we see it. False: it is not an
     * exposed region. */
    bool (*view)(tutti_transport *transport, tutti_transport_rndv *rndv,
                 tutti_transport_region *ret_region);
    /* Not touched any more; the rndv is gone. `done`: we did our part. */
    void (*give_back)(tutti_transport *transport, tutti_transport_rndv *rndv, bool done);

    /* What follows is NULL in a transport that does not authenticate. */

    /* An epoch begins: its key authentication tags from now on. What the one before it has sealed
     * is heard for a while: the others learn of it when they do. */
    void (*rekey)(tutti_transport *transport, const tutti_transport_key *key);
    /* A process is not a member any more: nothing it says is heard, whatever keys it knows. */
    void (*revoke)(tutti_transport *transport, uint32_t rank, uint64_t incarnation);
    /* Prove that this process says `words` to the process with this address. False: no key yet. */
    bool (*sign_packet)(tutti_transport *transport, tutti_bytes address, tutti_bytes words,
                        tutti_transport_proof *ret_proof);
    /* Were `words` said to us? ret_incarnation: the process that says so; set for a member and for
     * one that is ahead. */
    tutti_transport_verdict (*check)(tutti_transport *transport, tutti_bytes words,
                                     const tutti_transport_proof *proof, uint64_t *ret_incarnation);
    /* A number of this host, for those that are on it; 0 = not known. May be NULL. */
    uint64_t (*host)(const tutti_transport *transport);
} tutti_transport_ops;

struct tutti_transport {
    const tutti_transport_ops *ops;
};

static inline void
tutti_transport_disarm(tutti_transport *transport)
{
    if (transport->ops->disarm != NULL) {
        transport->ops->disarm(transport);
    }
}

#endif
