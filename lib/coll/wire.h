/*
 * Wire: moves packets between engines. The door for transports: coll/shm, coll/tcp, coll/ucx, and a
 * fake one in tests.
 *
 * A packet is a header of at most TUTTI_WIRE_HEADER_MAX bytes and any amount of data. Small data
 * arrives with the header; large data stays with the sender until the receiver pulls it, or waits
 * in memory that the wire bounds, so a receiver that is not ready costs little. Packets between two
 * engines may overtake each other.
 *
 * Everything here is called on the engine's thread, and calls back on it.
 */
#ifndef TUTTI_COLL_WIRE_H
#define TUTTI_COLL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/bytes.h"
#include "base/data/list.h"
#include "tutti/error.h"

#define TUTTI_WIRE_HEADER_MAX 288
#define TUTTI_WIRE_EAGER_MAX 8192 /* data up to this size travels with its header */

typedef struct tutti_wire tutti_wire;
typedef struct tutti_wire_link tutti_wire_link;     /* the way to one peer */
typedef struct tutti_wire_parcel tutti_wire_parcel; /* data waiting at its sender */

/*
 * Embed one per send or pull; on_done runs once for each that returned TUTTI_WIRE_LATER. Until then
 * the header, the data and the ticket itself stay where they are.
 */
typedef struct tutti_wire_ticket tutti_wire_ticket;
struct tutti_wire_ticket {
    void (*on_done)(tutti_wire_ticket *ticket, bool ok);
    tutti_link link; /* the wire's while it is out */
    bool unfinished; /* of a loan: it came back, but its borrower did not do its part */
    bool patient;    /* of a send: see arm */
};

/*
 * A loan: memory of ours that a peer of this host may read (input) and write (output) until it
 * gives it back. NULL and 0: nothing of the kind.
 */
typedef struct tutti_wire_loan {
    const void *input;
    uint64_t input_size;
    void *output;
    uint64_t output_size;
} tutti_wire_loan;

#define TUTTI_WIRE_KEY_BYTES 32
#define TUTTI_WIRE_PROOF_BYTES 32

/* What the coordinator tells the members of a job, and nobody else, with each epoch. */
typedef struct tutti_wire_key {
    uint64_t job_id;
    uint64_t epoch;
    unsigned char bytes[TUTTI_WIRE_KEY_BYTES];
} tutti_wire_key;

/* That somebody who has the key of an epoch said something to somebody. */
typedef struct tutti_wire_proof {
    unsigned char bytes[TUTTI_WIRE_PROOF_BYTES];
} tutti_wire_proof;

typedef enum tutti_wire_verdict {
    TUTTI_WIRE_MEMBER,
    TUTTI_WIRE_AHEAD,   /* of an epoch that we have not heard of yet: ask again after rekey */
    TUTTI_WIRE_OVER,    /* a member no longer, or of an epoch that ended long ago */
    TUTTI_WIRE_REFUSED, /* a stranger */
} tutti_wire_verdict;

typedef enum tutti_wire_result {
    TUTTI_WIRE_DONE,   /* over: the memory is free again, on_done does not run */
    TUTTI_WIRE_LATER,  /* on_done follows, from progress or disconnect */
    TUTTI_WIRE_FAILED, /* the way is broken; on_done does not run */
} tutti_wire_result;

typedef struct tutti_wire_events {
    /*
     * A packet came. `parcel` NULL: `data` is all of it, borrowed until return. Else the data
     * waits: pull or drop the parcel, now or later.
     */
    void (*on_packet)(void *arg, const void *header, size_t header_size, const void *data,
                      size_t size, tutti_wire_parcel *parcel);
    /* The way to a peer broke: its sends fail. `owner` as given to connect. disconnect it. */
    void (*on_broken)(void *arg, void *owner, const char *why);
} tutti_wire_events;

typedef struct tutti_wire_ops {
    size_t size;
    /* Where others reach us. Borrowed for the wire's life. */
    tutti_bytes (*address)(tutti_wire *wire);
    /* Who hears of packets. Once, before progress. */
    void (*listen)(tutti_wire *wire, const tutti_wire_events *events, void *arg);
    /* TUTTI_UNAVAILABLE  no such address, from what can be told at once */
    tutti_code (*connect)(tutti_wire *wire, tutti_bytes address, void *owner,
                          tutti_wire_link **ret_link, tutti_error *err);
    /* Tickets of sends on it come back with ok = false, here or from progress. The link is gone. */
    void (*disconnect)(tutti_wire_link *link);
    tutti_wire_result (*send)(tutti_wire_link *link, const void *header, size_t header_size,
                              const void *data, size_t size, tutti_wire_ticket *ticket);
    /* Fetch all of a parcel's bytes; the parcel is gone. */
    tutti_wire_result (*pull)(tutti_wire *wire, tutti_wire_parcel *parcel, void *dest, size_t size,
                              tutti_wire_ticket *ticket);
    /* Its sender learns nothing: to it the data has left. */
    void (*drop)(tutti_wire *wire, tutti_wire_parcel *parcel);
    /* Do what can be done now; how many things were done. */
    unsigned (*progress)(tutti_wire *wire);
    /* Readable when progress has work, once arm has returned true; -1 when there is none. */
    int (*descriptor)(tutti_wire *wire);
    /*
     * false: there is work already. `idle`: nothing runs here, so what peers send with a patient
     * ticket is of no use yet: it need not wake anybody, and is found by the next progress.
     */
    bool (*arm)(tutti_wire *wire, bool idle);
    /* Tickets that are still out come back with ok = false, inside. All links are disconnected. */
    void (*close)(tutti_wire *wire);

    /* NULL where that is nothing: somebody looks without being woken, until the next arm. */
    void (*disarm)(tutti_wire *wire);

    /* What follows is NULL where no peer can touch our memory. */

    /* Can the peer touch memory of ours that `holds` says yes to? May become true, and false when
     * the way breaks. */
    bool (*near)(const tutti_wire_link *link);
    /* May an address be that of a near one? */
    bool (*maybe_near)(tutti_wire *wire, tutti_bytes address);
    /* Is this memory that can be lent? */
    bool (*holds)(tutti_wire *wire, const void *data, uint64_t size);
    /*
     * Send a packet with a loan, over a near link. The ticket comes back when the peer has given
     * the memory back or is dead, and not before, whatever happens to the link: a peer that is
     * stopped may go on writing when it wakes up. Never DONE.
     */
    tutti_wire_result (*lend)(tutti_wire_link *link, const void *header, size_t header_size,
                              const tutti_wire_loan *loan, tutti_wire_ticket *ticket);
    /* The memory of a loan that came as a parcel, as we see it. False: it is not a loan. */
    bool (*view)(tutti_wire *wire, tutti_wire_parcel *parcel, tutti_wire_loan *ret_loan);
    /* Not touched any more; the parcel is gone. `done`: we did our part. */
    void (*give_back)(tutti_wire *wire, tutti_wire_parcel *parcel, bool done);

    /* What follows is NULL where nobody is kept out. */

    /* An epoch begins: its key seals from now on. What the one before it has sealed is heard for a
     * while: the others learn of it when they do. */
    void (*rekey)(tutti_wire *wire, const tutti_wire_key *key);
    /* A process is not a member any more: nothing it says is heard, whatever keys it knows. */
    void (*expel)(tutti_wire *wire, uint32_t rank, uint64_t incarnation);
    /* Say `words` to who has this address. False: no key yet. */
    bool (*prove)(tutti_wire *wire, tutti_bytes address, tutti_bytes words,
                  tutti_wire_proof *ret_proof);
    /* Were `words` said to us? By which process: of a member and of who is ahead. */
    tutti_wire_verdict (*check)(tutti_wire *wire, tutti_bytes words, const tutti_wire_proof *proof,
                                uint64_t *ret_incarnation);
    /* A number of this host, for those that are on it; 0 = not known. May be NULL. */
    uint64_t (*host)(const tutti_wire *wire);
} tutti_wire_ops;

struct tutti_wire {
    const tutti_wire_ops *ops;
};

static inline void
tutti_wire_disarm(tutti_wire *wire)
{
    if (wire->ops->disarm != NULL) {
        wire->ops->disarm(wire);
    }
}

#endif
