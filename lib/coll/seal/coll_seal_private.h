/* The inside of the seal: keys of epochs, tags, which counts have been seen, and what waits. */
#ifndef TUTTI_COLL_SEAL_COLL_SEAL_PRIVATE_H
#define TUTTI_COLL_SEAL_COLL_SEAL_PRIVATE_H

#include <openssl/evp.h>
#include <openssl/kdf.h>

#include "base/data/map.h"
#include "coll/seal/coll_seal.h"

#define SEAL_WINDOW 4096 /* how far packets of one sender may overtake each other */
#define SEAL_SENDERS_MAX 65536
#define SEAL_TAG_BYTES 16
#define SEAL_EPOCHS_MAX 8     /* that can still be named */
#define SEAL_EXPELLED_MAX 256 /* the keys they know are over before more have gone */
#define SEAL_NEW_JOB_NS                                                                            \
    15000000000ULL /* nobody was expelled, and they ask a coordinator slowly                       \
                    */
#define SEAL_WAITING_MAX 65536
#define SEAL_WAITING_BYTES_MAX (64U << 20)

/* An epoch, with what its packets call it: no secret, and no other epoch has it. */
typedef struct seal_epoch {
    tutti_wire_key key;
    uint64_t name;
    uint64_t turn; /* counts the epochs that we hear of; 0 = none */
    uint64_t ends_ns;
} seal_epoch;

typedef struct seal_expelled {
    uint64_t incarnation;
    uint32_t rank;
    uint64_t turn; /* it may know the keys up to this one */
} seal_expelled;

/* A sender we have heard: a way from one process to us. */
typedef struct seal_sender {
    tutti_map_node node;
    unsigned char id[8];
    unsigned char key[TUTTI_WIRE_SEAL_KEY_BYTES];
    uint64_t turn; /* of the key */
    uint64_t incarnation;
    uint64_t newest;
    uint64_t seen[SEAL_WINDOW / 64]; /* bit n: a count that is n modulo the window */
} seal_sender;

typedef struct seal {
    tutti_wire base;
    tutti_wire *inner;
    const tutti_wire_events *events;
    void *arg;
    unsigned char *address; /* our number, our incarnation and the inner address */
    size_t address_size;
    uint64_t incarnation;
    uint64_t grace_ns;
    EVP_MAC *mac;
    EVP_MAC_CTX *context;
    EVP_KDF_CTX *derive;
    seal_epoch epochs[SEAL_EPOCHS_MAX];
    uint64_t turn; /* of the present epoch */
    seal_expelled expelled[SEAL_EXPELLED_MAX];
    size_t expelled_count; /* ever */
    tutti_map senders;
    tutti_link waiting; /* for the key of their epoch */
    size_t waiting_bytes;
    tutti_link spare; /* of sends */
    tutti_wire_seal_stats stats;
} seal;

/* The way to a peer, and the key that it has in an epoch. */
struct tutti_wire_link {
    seal *wire;
    tutti_wire_link *inner;
    void *owner;
    unsigned char to[TUTTI_WIRE_SEAL_ADDRESS_BYTES];
    unsigned char key[TUTTI_WIRE_SEAL_KEY_BYTES];
    uint64_t turn; /* of the key */
    unsigned char id[8];
    unsigned char pass[8];
    uint64_t count;
};

/* A proof, and the end of what stands behind a header: name of the epoch, sender's incarnation. */
typedef struct seal_proof {
    uint64_t name;
    uint64_t incarnation;
    const unsigned char *tag;
} seal_proof;

/* coll_seal_key.c */

/* Draw our number, build the address. Codes as tutti_wire_seal_open. */
tutti_code seal_make_address(seal *self, tutti_error *err);

/* NULL before the first one. */
const seal_epoch *seal_present(const seal *self);

/* NULL: we have not heard of it, or it is too long ago. */
const seal_epoch *seal_find_epoch(const seal *self, uint64_t name);

/* Of a way from one process to another. False: OpenSSL could not. */
bool seal_derive(seal *self, const seal_epoch *epoch, uint64_t from,
                 const unsigned char to[TUTTI_WIRE_SEAL_ADDRESS_BYTES],
                 unsigned char ret_key[TUTTI_WIRE_SEAL_KEY_BYTES]);

/* Is it too late for who knows this epoch's key? Says so, and counts. */
bool seal_is_over(seal *self, const seal_epoch *epoch, uint64_t incarnation);

void seal_wire_rekey(tutti_wire *wire, const tutti_wire_key *key);
void seal_wire_expel(tutti_wire *wire, uint32_t rank, uint64_t incarnation);

/* coll_seal_tag.c */

void seal_put_u64(unsigned char at[8], uint64_t number);
uint64_t seal_get_u64(const unsigned char at[8]);
seal_proof seal_read_proof(const unsigned char bytes[TUTTI_WIRE_PROOF_BYTES]);

/* The tag over words and the size of the data. */
bool seal_tag(seal *self, const unsigned char key[TUTTI_WIRE_SEAL_KEY_BYTES], const void *words,
              size_t size, uint64_t data_size, unsigned char ret_tag[SEAL_TAG_BYTES]);

/* What shows that a way's sender has been told an address: good for waiting, and no more. */
bool seal_pass(seal *self, const unsigned char to[TUTTI_WIRE_SEAL_ADDRESS_BYTES],
               const unsigned char id[8], unsigned char ret_pass[8]);

/* Is it a packet of a member, and for the first time? */
tutti_wire_verdict seal_accept(seal *self, const unsigned char *header, size_t size,
                               uint64_t data_size);

bool seal_wire_prove(tutti_wire *wire, tutti_bytes address, tutti_bytes words,
                     tutti_wire_proof *ret_proof);
tutti_wire_verdict seal_wire_check(tutti_wire *wire, tutti_bytes words,
                                   const tutti_wire_proof *proof, uint64_t *ret_incarnation);

/* Senders whose keys are over. */
void seal_forget(seal *self, uint64_t before_turn);

/* coll_seal_wait.c */

/* False: there is no room; the parcel is the caller's. */
bool seal_wait(seal *self, const void *header, size_t header_size, const void *data, size_t size,
               tutti_wire_parcel *parcel);

/* There is a new key: what it opens is heard, and what has waited too long is dropped. */
void seal_wait_over(seal *self);

void seal_wait_fini(seal *self);

/* coll_seal_link.c */
tutti_code seal_wire_connect(tutti_wire *wire, tutti_bytes address, void *owner,
                             tutti_wire_link **ret_link, tutti_error *err);
void seal_wire_disconnect(tutti_wire_link *link);
tutti_wire_result seal_wire_send(tutti_wire_link *link, const void *header, size_t header_size,
                                 const void *data, size_t size, tutti_wire_ticket *ticket);
void seal_links_fini(seal *self);

/* coll_seal.c */
seal *seal_from(tutti_wire *wire);
void seal_hear(seal *self, const void *header, size_t header_size, const void *data, size_t size,
               tutti_wire_parcel *parcel);
void seal_drop(seal *self, tutti_wire_parcel *parcel);
void seal_refuse(seal *self, tutti_wire_parcel *parcel); /* ... of a stranger: it counts */

#endif
