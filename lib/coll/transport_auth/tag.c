/*
 * Tags: what shows that a member says something, to us, for the first time. Engine's thread.
 *
 * Behind each header: id of the way (8), count (8), pass (8), digest (16), name of the epoch (8),
 * incarnation (8), tag (16). The tag (SipHash-2-4, Aumasson and Bernstein 2012) covers all before it and
 * the size of the data; through the digest also the data, where that is words of the engine. A digest of
 * zeros says that it is not: a tensor. Checks are in the order of their cost, and nothing of a packet is kept before
 * its tag has proved it, so a stranger can cost us time but no memory. What waits for a key is the
 * exception: it has to show the pass, which needs our address.
 */
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/log.h"
#include "coll/transport_auth/transport_auth_private.h"

#define ID_AT 0 /* of what stands behind a header */
#define COUNT_AT 8
#define PASS_AT 16
#define DIGEST_AT 24
#define PROOF_AT 40

void
auth_put_u64(unsigned char at[8], uint64_t number)
{
    (void)tutti_map_key_u64(at, number);
}

/* The highest byte first, as tutti_map_key_u64 writes. */
uint64_t
auth_get_u64(const unsigned char at[8])
{
    uint64_t number = 0;
    size_t i;

    for (i = 0; i < 8; i++) {
        number = number << 8 | at[i];
    }
    return number;
}

static auth_proof
read_proof(const unsigned char bytes[TUTTI_TRANSPORT_PROOF_BYTES])
{
    return (auth_proof){auth_get_u64(bytes), auth_get_u64(bytes + 8), bytes + 16};
}

/* The size of the data is appended as 8 bytes, so no two pairs of words and size give the same
 * input. */
bool
auth_tag(auth *self, const unsigned char key[TUTTI_TRANSPORT_AUTH_KEY_BYTES], const void *words,
         size_t size, uint64_t data_size, unsigned char ret_tag[AUTH_TAG_BYTES])
{
    unsigned char length[8];
    size_t done = 0;

    auth_put_u64(length, data_size);
    return EVP_MAC_init(self->context, key, TUTTI_TRANSPORT_AUTH_KEY_BYTES, NULL) == 1 &&
           EVP_MAC_update(self->context, words, size) == 1 &&
           EVP_MAC_update(self->context, length, sizeof(length)) == 1 &&
           EVP_MAC_final(self->context, ret_tag, &done, AUTH_TAG_BYTES) == 1 &&
           done == AUTH_TAG_BYTES;
}

/* The label keeps it apart from tags: users choose some of these words, and a tag over what they chose
 * would let them speak as this process. A packet's header begins with the version, 1. */
bool
auth_digest(auth *self, const unsigned char key[TUTTI_TRANSPORT_AUTH_KEY_BYTES], const void *data,
            size_t size, unsigned char ret_digest[AUTH_TAG_BYTES])
{
    static const char label[16] = "tutti words 1";
    size_t done = 0;

    return EVP_MAC_init(self->context, key, TUTTI_TRANSPORT_AUTH_KEY_BYTES, NULL) == 1 &&
           EVP_MAC_update(self->context, (const unsigned char *)label, sizeof(label)) == 1 &&
           EVP_MAC_update(self->context, data, size) == 1 &&
           EVP_MAC_final(self->context, ret_digest, &done, AUTH_TAG_BYTES) == 1 &&
           done == AUTH_TAG_BYTES;
}

bool
auth_pass(auth *self, const unsigned char to[TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES],
          const unsigned char id[8], unsigned char ret_pass[8])
{
    unsigned char tag[AUTH_TAG_BYTES];

    if (!auth_tag(self, to, id, 8, 0, tag)) {
        return false;
    }
    memcpy(ret_pass, tag, 8);
    return true;
}

/* ------------------------------------------------------------------------------ senders */

/* NULL: we have not heard it. */
static auth_sender *
find_sender(auth *self, const unsigned char id[8])
{
    tutti_map_node *node = tutti_map_find(&self->senders, (tutti_bytes){id, 8});

    return node == NULL ? NULL : tutti_container_of(node, auth_sender, node);
}

/* A member that reconnects has a new id each time. At the limit all are forgotten: then packets of
 * before could be heard a second time, which the engine bears (it drops what is for ended ops). */
static auth_sender *
add_sender(auth *self, const unsigned char id[8])
{
    auth_sender *sender;

    if (self->senders.count == AUTH_SENDERS_MAX) { /* members reconnected that often */
        TUTTI_LOG("coll", WARN,
                  "more than %d connections from other ranks: packets that were recorded and sent "
                  "again may be accepted",
                  AUTH_SENDERS_MAX);
        auth_forget(self, UINT64_MAX);
    }
    sender = calloc(1, sizeof(*sender));
    if (sender != NULL) {
        memcpy(sender->id, id, sizeof(sender->id));
        sender->node.key = (tutti_bytes){sender->id, sizeof(sender->id)};
        (void)tutti_map_add(&self->senders, &sender->node);
    }
    return sender;
}

void
auth_forget(auth *self, uint64_t before_turn)
{
    tutti_map_node *node = tutti_map_first(&self->senders);

    while (node != NULL) {
        auth_sender *sender = tutti_container_of(node, auth_sender, node);

        node = tutti_map_next(node);
        if (sender->turn < before_turn) {
            tutti_map_remove(&self->senders, &sender->node);
            OPENSSL_cleanse(sender->key, sizeof(sender->key));
            free(sender);
        }
    }
}

/*
 * A sliding window over counts, as IPsec's (RFC 4303), since packets overtake each other. Counts
 * begin at 1. False: seen before, or so old that nobody knows. Bits between the newest and this
 * count are cleared first: they are left from counts one window ago.
 */
static bool
mark_tag_seen(auth_sender *sender, uint64_t count)
{
    uint64_t *word = &sender->seen[count % AUTH_WINDOW / 64];
    const uint64_t bit = 1ULL << count % 64;
    uint64_t at;

    if (count == 0 || (count <= sender->newest && sender->newest - count >= AUTH_WINDOW)) {
        return false;
    }
    if (count > sender->newest && count - sender->newest >= AUTH_WINDOW) {
        memset(sender->seen, 0, sizeof(sender->seen));
        sender->newest = count;
    }
    for (at = sender->newest + 1; at <= count; at++) { /* what lies between has not been seen */
        sender->seen[at % AUTH_WINDOW / 64] &= ~(1ULL << at % 64);
    }
    sender->newest = count > sender->newest ? count : sender->newest;
    if ((*word & bit) != 0) {
        return false;
    }
    *word |= bit;
    return true;
}

/* ------------------------------------------------------------------------------ packets */

/* Compared in constant time, as all secrets here: the time of a comparison would tell a stranger
 * how many bytes were right. */
static bool
has_pass(auth *self, const unsigned char *behind)
{
    unsigned char pass[8];

    return auth_pass(self, self->address, behind + ID_AT, pass) &&
           CRYPTO_memcmp(pass, behind + PASS_AT, sizeof(pass)) == 0;
}

/* The key of the way that a packet says it has come by. Deriving costs much more than a tag, so a
 * known sender's is kept. */
static bool
find_key(auth *self, const auth_sender *sender, const auth_epoch *epoch, uint64_t incarnation,
         unsigned char ret_key[TUTTI_TRANSPORT_AUTH_KEY_BYTES])
{
    if (sender != NULL && sender->turn == epoch->turn && sender->incarnation == incarnation) {
        memcpy(ret_key, sender->key, TUTTI_TRANSPORT_AUTH_KEY_BYTES);
        return true;
    }
    return auth_derive(self, epoch, incarnation, self->address, ret_key);
}

static bool
is_tag_in_window(auth *self, const unsigned char *key, tutti_bytes words, uint64_t data_size,
                 const unsigned char *claimed)
{
    unsigned char tag[AUTH_TAG_BYTES];

    return auth_tag(self, key, words.data, words.size, data_size, tag) &&
           CRYPTO_memcmp(tag, claimed, sizeof(tag)) == 0;
}

/* Behind the tag, which covers the digest. True of what waits at its sender: that is looked at when it
 * was fetched. */
static bool
are_words_good(auth *self, const auth_seal *seal, const void *data, uint64_t data_size)
{
    unsigned char digest[AUTH_TAG_BYTES];

    return !seal->covered || data == NULL ||
           (auth_digest(self, seal->key, data, (size_t)data_size, digest) &&
            CRYPTO_memcmp(digest, seal->digest, sizeof(digest)) == 0);
}

static void
read_seal(const unsigned char *behind, const unsigned char *key, auth_seal *ret_seal)
{
    static const unsigned char zeros[AUTH_TAG_BYTES];

    memcpy(ret_seal->digest, behind + DIGEST_AT, sizeof(ret_seal->digest));
    memcpy(ret_seal->key, key, sizeof(ret_seal->key));
    ret_seal->covered = memcmp(ret_seal->digest, zeros, sizeof(zeros)) != 0;
}

/* It has proved itself. A sender is remembered by the id that it draws for each connection, so a
 * member cannot use up another's counts without its key. */
static bool
note_tag(auth *self, auth_sender *sender, const auth_sender *proved, const unsigned char *behind)
{
    if (sender == NULL) {
        sender = add_sender(self, behind + ID_AT);
    }
    if (sender == NULL) {
        return false;
    }
    memcpy(sender->key, proved->key, sizeof(sender->key));
    sender->turn = proved->turn;
    sender->incarnation = proved->incarnation;
    return mark_tag_seen(sender, auth_get_u64(behind + COUNT_AT));
}

static tutti_transport_verdict
accept_of(auth *self, const auth_epoch *epoch, const unsigned char *header, size_t size,
          const void *data, uint64_t data_size, auth_seal *ret_seal)
{
    const unsigned char *behind = header + size - TUTTI_TRANSPORT_AUTH_BYTES;
    const auth_proof proof = read_proof(behind + PROOF_AT);
    auth_sender *sender = find_sender(self, behind + ID_AT);
    auth_sender proved;

    proved.turn = epoch->turn;
    proved.incarnation = proof.incarnation;
    if (!find_key(self, sender, epoch, proof.incarnation, proved.key) ||
        !is_tag_in_window(self, proved.key, (tutti_bytes){header, size - AUTH_TAG_BYTES}, data_size,
                          proof.tag)) {
        return TUTTI_TRANSPORT_REFUSED;
    }
    if (auth_is_over(self, epoch, proof.incarnation)) {
        return TUTTI_TRANSPORT_OVER;
    }
    read_seal(behind, proved.key, ret_seal);
    if (!are_words_good(self, ret_seal, data, data_size)) {
        return TUTTI_TRANSPORT_REFUSED;
    }
    return note_tag(self, sender, &proved, behind) ? TUTTI_TRANSPORT_MEMBER
                                                   : TUTTI_TRANSPORT_REFUSED;
}

/* The size is looked at first: without enough bytes `behind` would point in front of the header. */
tutti_transport_verdict
auth_accept(auth *self, const unsigned char *header, size_t size, const void *data,
            uint64_t data_size, auth_seal *ret_seal)
{
    const unsigned char *behind;
    const auth_epoch *epoch;

    if (size < TUTTI_TRANSPORT_AUTH_BYTES) {
        return TUTTI_TRANSPORT_REFUSED;
    }
    behind = header + size - TUTTI_TRANSPORT_AUTH_BYTES;
    epoch = auth_find_epoch(self, read_proof(behind + PROOF_AT).name);
    if (epoch == NULL) {
        return has_pass(self, behind) ? TUTTI_TRANSPORT_AHEAD : TUTTI_TRANSPORT_REFUSED;
    }
    return accept_of(self, epoch, header, size, data, data_size, ret_seal);
}

/* ------------------------------------------------------------------------------ other words */

bool
auth_transport_sign(tutti_transport *transport, tutti_bytes address, tutti_bytes words,
                    tutti_transport_proof *ret_proof)
{
    auth *self = auth_from(transport);
    const auth_epoch *epoch = auth_present(self);
    unsigned char key[TUTTI_TRANSPORT_AUTH_KEY_BYTES];

    if (epoch == NULL || address.size <= TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES ||
        !auth_derive(self, epoch, self->incarnation, address.data, key)) {
        return false;
    }
    auth_put_u64(ret_proof->bytes, epoch->name);
    auth_put_u64(ret_proof->bytes + 8, self->incarnation);
    return auth_tag(self, key, words.data, words.size, 0, ret_proof->bytes + 16);
}

/*
 * Words are not counted: coll/shm puts a random number of its own into them, so they are good once.
 */
tutti_transport_verdict
auth_transport_verify(tutti_transport *transport, tutti_bytes words,
                      const tutti_transport_proof *proof, uint64_t *ret_incarnation)
{
    auth *self = auth_from(transport);
    const auth_proof it = read_proof(proof->bytes);
    const auth_epoch *epoch = auth_find_epoch(self, it.name);
    unsigned char key[TUTTI_TRANSPORT_AUTH_KEY_BYTES];

    *ret_incarnation = it.incarnation;
    if (epoch == NULL) {
        return TUTTI_TRANSPORT_AHEAD;
    }
    if (!auth_derive(self, epoch, it.incarnation, self->address, key) ||
        !is_tag_in_window(self, key, words, 0, it.tag)) {
        self->stats.strange++;
        return TUTTI_TRANSPORT_REFUSED;
    }
    return auth_is_over(self, epoch, it.incarnation) ? TUTTI_TRANSPORT_OVER
                                                     : TUTTI_TRANSPORT_MEMBER;
}
