/* The inside of transport auth: keys of epochs, tags, which counts have been seen, and what waits.
 * Engine's thread. */
#ifndef TUTTI_COLL_TRANSPORT_AUTH_TRANSPORT_AUTH_PRIVATE_H
#define TUTTI_COLL_TRANSPORT_AUTH_TRANSPORT_AUTH_PRIVATE_H

#include <openssl/evp.h>
#include <openssl/kdf.h>

#include "base/data/map.h"
#include "coll/transport_auth/transport_auth.h"

#define AUTH_WINDOW 4096 /* how far packets of one sender may overtake each other */
#define AUTH_SENDERS_MAX 65536
#define AUTH_TAG_BYTES 16
#define AUTH_EPOCHS_MAX 8    /* that can still be named */
#define AUTH_REVOKED_MAX 256 /* the keys they know are over before more have gone */
#define AUTH_NEW_JOB_NS                                                                            \
    15000000000ULL /* nobody was revoked, and they ask a coordinator slowly                        \
                    */
#define AUTH_WAITING_MAX 65536
#define AUTH_WAITING_BYTES_MAX (64U << 20)

/* An epoch, with what its packets call it: no secret, and no other epoch has it. */
typedef struct auth_epoch {
    tutti_transport_key key;
    uint64_t name;
    uint64_t turn; /* counts the epochs that we hear of; 0 = none */
    uint64_t ends_ns;
} auth_epoch;

typedef struct auth_revoked {
    uint64_t incarnation;
    uint32_t rank;
    uint64_t turn; /* it may know the keys up to this one */
} auth_revoked;

/* A sender we have heard: a connection from one process to us. Made only for a packet with a good
 * tag. `seen` is good for counts in (newest - AUTH_WINDOW, newest]. */
typedef struct auth_sender {
    tutti_map_node node;
    unsigned char id[8];
    unsigned char key[TUTTI_TRANSPORT_AUTH_KEY_BYTES];
    uint64_t turn; /* of the key */
    uint64_t incarnation;
    uint64_t newest;
    uint64_t seen[AUTH_WINDOW / 64]; /* bit n: a count that is n modulo the window */
} auth_sender;

typedef struct auth {
    tutti_transport base;
    tutti_transport *inner;
    const tutti_transport_events *events;
    void *arg;
    unsigned char *address; /* our number, our incarnation and the inner address */
    size_t address_size;
    uint64_t incarnation;
    uint64_t grace_ns;
    EVP_MAC *mac;
    EVP_MAC_CTX *context;
    EVP_KDF_CTX *derive;
    auth_epoch epochs[AUTH_EPOCHS_MAX];
    uint64_t turn; /* of the present epoch */
    auth_revoked expelled[AUTH_REVOKED_MAX];
    size_t expelled_count; /* ever */
    tutti_map senders;
    tutti_list_node waiting; /* for the key of their epoch */
    size_t waiting_bytes;
    tutti_list_node spare; /* of sends */
    tutti_transport_auth_stats stats;
} auth;

/* The connection to a peer, and its key in the epoch in which something was last sent on it. */
struct tutti_transport_conn {
    auth *transport;
    tutti_transport_conn *inner;
    void *owner;
    unsigned char to[TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES];
    unsigned char key[TUTTI_TRANSPORT_AUTH_KEY_BYTES];
    uint64_t turn; /* of the key; 0 = none yet */
    unsigned char id[8];
    unsigned char pass[8];
    uint64_t count;
};

/* What a packet has shown when it was accepted: for its data, if that still has to be fetched. */
typedef struct auth_seal {
    bool covered; /* by this digest */
    unsigned char digest[AUTH_TAG_BYTES];
    unsigned char key[TUTTI_TRANSPORT_AUTH_KEY_BYTES];
} auth_seal;

/* One of the engine's: freed by its end as a fetch, or by a drop. */
struct tutti_transport_rndv {
    auth *transport;
    tutti_transport_rndv *inner;
    auth_seal seal;
    tutti_transport_ticket ticket; /* the inner transport's, of a fetch */
    tutti_transport_ticket *theirs;
    const void *fetched;
    size_t size;
};

/* A proof, and the end of what stands behind a header: name of the epoch, sender's incarnation. */
typedef struct auth_proof {
    uint64_t name;
    uint64_t incarnation;
    const unsigned char *tag;
} auth_proof;

/* key.c */

/* Draw our number, build the address. Codes as tutti_transport_auth_open. */
tutti_code auth_make_address(auth *self, tutti_error *err);

/* NULL before the first one. */
const auth_epoch *auth_present(const auth *self);

/* NULL: we have not heard of it, or it is too long ago. */
const auth_epoch *auth_find_epoch(const auth *self, uint64_t name);

/* The key from one process to another in an epoch. False: OpenSSL could not. */
bool auth_derive(auth *self, const auth_epoch *epoch, uint64_t from,
                 const unsigned char to[TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES],
                 unsigned char ret_key[TUTTI_TRANSPORT_AUTH_KEY_BYTES]);

/* Is the epoch over for this process: by its time, or because the process was revoked? Logs and
 * counts it. */
bool auth_is_over(auth *self, const auth_epoch *epoch, uint64_t incarnation);

void auth_transport_rekey(tutti_transport *transport, const tutti_transport_key *key);
void auth_transport_revoke(tutti_transport *transport, uint32_t rank, uint64_t incarnation);

/* tag.c */

void auth_put_u64(unsigned char at[8], uint64_t number);
uint64_t auth_get_u64(const unsigned char at[8]);

/* The tag over words and the size of the data. */
bool auth_tag(auth *self, const unsigned char key[TUTTI_TRANSPORT_AUTH_KEY_BYTES],
              const void *words, size_t size, uint64_t data_size,
              unsigned char ret_tag[AUTH_TAG_BYTES]);

/* A digest of words of the engine, under the key of the way. No tag is like it, whatever they are. */
bool auth_digest(auth *self, const unsigned char key[TUTTI_TRANSPORT_AUTH_KEY_BYTES],
                 const void *data, size_t size, unsigned char ret_digest[AUTH_TAG_BYTES]);

/* Shows that the sender has been told the address `to`: enough to let its packets wait for a key,
 * not to have them accepted. */
bool auth_pass(auth *self, const unsigned char to[TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES],
               const unsigned char id[8], unsigned char ret_pass[8]);

/* Is it a packet of a member, and for the first time? `header` with all that stands behind it; data
 * NULL: it waits at its sender. Of a member it is remembered, so asking twice gives REFUSED.
 * [out] ret_seal  of a member */
tutti_transport_verdict auth_accept(auth *self, const unsigned char *header, size_t size,
                                    const void *data, uint64_t data_size, auth_seal *ret_seal);

bool auth_transport_sign(tutti_transport *transport, tutti_bytes address, tutti_bytes words,
                         tutti_transport_proof *ret_proof);
tutti_transport_verdict auth_transport_verify(tutti_transport *transport, tutti_bytes words,
                                              const tutti_transport_proof *proof,
                                              uint64_t *ret_incarnation);

/* Forget senders whose keys are of earlier epochs than `before_turn`. */
void auth_forget(auth *self, uint64_t before_turn);

/* data.c: what waits at its sender, of packets that were accepted */

/* NULL: no memory, and the inner one is dropped. */
tutti_transport_rndv *auth_rndv_new(auth *self, tutti_transport_rndv *inner, const auth_seal *seal);
tutti_transport_result auth_transport_fetch(tutti_transport *transport, tutti_transport_rndv *rndv,
                                            void *dest, size_t size,
                                            tutti_transport_ticket *ticket);
void auth_transport_drop(tutti_transport *transport, tutti_transport_rndv *rndv);

/* wait.c */

/* False: there is no room; the rndv is the caller's. */
bool auth_wait(auth *self, const void *header, size_t header_size, const void *data, size_t size,
               tutti_transport_rndv *rndv);

/* There is a new key: what it opens is heard, and what has waited too long is dropped. */
void auth_wait_over(auth *self);

void auth_wait_fini(auth *self);

tutti_code auth_transport_connect(tutti_transport *transport, tutti_bytes address, void *owner,
                                  tutti_transport_conn **ret_link, tutti_error *err);
void auth_transport_disconnect(tutti_transport_conn *link);
tutti_transport_result auth_transport_send(tutti_transport_conn *link, const void *header,
                                           size_t header_size, const void *data, size_t size,
                                           tutti_transport_ticket *ticket);
void auth_links_fini(auth *self);

/* transport_auth.c */
auth *auth_from(tutti_transport *transport);
void auth_hear(auth *self, const void *header, size_t header_size, const void *data, size_t size,
               tutti_transport_rndv *rndv, const auth_seal *seal);
void auth_drop(auth *self, tutti_transport_rndv *rndv);

#endif
