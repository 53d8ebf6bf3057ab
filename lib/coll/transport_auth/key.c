/*
 * Keys: one of each epoch from the coordinator, and one of each way made of it by HKDF (RFC 5869).
 * Engine's thread.
 *
 * Epochs are counted by `turn`, from 1; the ring epochs[] keeps the last AUTH_EPOCHS_MAX of them. A
 * packet names its epoch by a number that is derived from the key, so no number of an epoch has to
 * be the same on all ranks. The keys before the present one are good until ends_ns, since members
 * learn of an epoch at different times; a revoked process may know them, so its packets are refused
 * by its incarnation.
 */
#include <inttypes.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/transport_auth/transport_auth_private.h"

/* ------------------------------------------------------------------------------ opening */

static EVP_KDF_CTX *
new_derivation(void)
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, OSSL_KDF_NAME_HKDF, NULL);
    EVP_KDF_CTX *context = kdf == NULL ? NULL : EVP_KDF_CTX_new(kdf);

    EVP_KDF_free(kdf); /* the context holds it */
    return context;
}

tutti_code
auth_make_address(auth *self, tutti_error *err)
{
    const tutti_bytes inner = self->inner->ops->address(self->inner);

    ERR_clear_error();
    self->derive = new_derivation();
    self->mac = EVP_MAC_fetch(NULL, OSSL_MAC_NAME_SIPHASH, NULL);
    self->context = self->mac == NULL ? NULL : EVP_MAC_CTX_new(self->mac);
    self->address_size = TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES + inner.size;
    self->address = malloc(self->address_size);
    if (self->address == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the data plane");
    }
    if (self->context == NULL || self->derive == NULL ||
        RAND_bytes(self->address, TUTTI_TRANSPORT_AUTH_KEY_BYTES) != 1) {
        return TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "CRYPTO_FAILED",
                              "OpenSSL has no SipHash, no HKDF or no random numbers");
    }
    auth_put_u64(self->address + TUTTI_TRANSPORT_AUTH_KEY_BYTES, self->incarnation);
    memcpy(self->address + TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES, inner.data, inner.size);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ deriving */

static bool
derive_key(auth *self, const tutti_transport_key *key, tutti_bytes salt, tutti_bytes info,
           void *ret, size_t size)
{
    static char digest[] = "SHA256";
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)key->bytes,
                                          sizeof(key->bytes)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)salt.data,
                                          salt.size),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)info.data,
                                          info.size),
        OSSL_PARAM_construct_end(),
    };

    EVP_KDF_CTX_reset(self->derive);
    return EVP_KDF_derive(self->derive, ret, size, params) == 1;
}

/*
 * The salt is the random number of the receiver's address, which only members are told; the info
 * binds job, epoch, sender's and receiver's incarnation. So a key is good for one direction between
 * two processes, in one epoch.
 */
bool
auth_derive(auth *self, const auth_epoch *epoch, uint64_t from,
            const unsigned char to[TUTTI_TRANSPORT_AUTH_ADDRESS_BYTES],
            unsigned char ret_key[TUTTI_TRANSPORT_AUTH_KEY_BYTES])
{
    unsigned char info[16 + 4 * 8] = "tutti way 1";

    auth_put_u64(info + 16, epoch->key.job_id);
    auth_put_u64(info + 24, epoch->key.epoch);
    auth_put_u64(info + 32, from);
    memcpy(info + 40, to + TUTTI_TRANSPORT_AUTH_KEY_BYTES, 8);
    return derive_key(self, &epoch->key, (tutti_bytes){to, TUTTI_TRANSPORT_AUTH_KEY_BYTES},
                      (tutti_bytes){info, sizeof(info)}, ret_key, TUTTI_TRANSPORT_AUTH_KEY_BYTES);
}

/*
 * Derived with another salt than keys, so a name, which travels in the clear, says nothing of them.
 */
static bool
derive_name(auth *self, auth_epoch *epoch)
{
    static const char salt[] = "tutti name 1";
    unsigned char info[16];
    unsigned char name[8];

    auth_put_u64(info, epoch->key.job_id);
    auth_put_u64(info + 8, epoch->key.epoch);
    if (!derive_key(self, &epoch->key, (tutti_bytes){salt, sizeof(salt)},
                    (tutti_bytes){info, sizeof(info)}, name, sizeof(name))) {
        return false;
    }
    epoch->name = auth_get_u64(name);
    return true;
}

/* ------------------------------------------------------------------------------ epochs */

const auth_epoch *
auth_present(const auth *self)
{
    return self->turn == 0 ? NULL : &self->epochs[self->turn % AUTH_EPOCHS_MAX];
}

const auth_epoch *
auth_find_epoch(const auth *self, uint64_t name)
{
    size_t i;

    for (i = 0; i < AUTH_EPOCHS_MAX && i < self->turn; i++) { /* the present one first */
        const auth_epoch *epoch = &self->epochs[(self->turn - i) % AUTH_EPOCHS_MAX];

        if (epoch->name == name) {
            return epoch;
        }
    }
    return NULL;
}

/* An old epoch's key, or the present one again, changes nothing. The same epoch with another key is
 * new: the coordinator has begun its job anew. Compared in constant time. */
static bool
is_known(const auth *self, const tutti_transport_key *key)
{
    const auth_epoch *present = auth_present(self);

    return present != NULL && present->key.job_id == key->job_id &&
           (key->epoch < present->key.epoch ||
            (key->epoch == present->key.epoch &&
             CRYPTO_memcmp(present->key.bytes, key->bytes, sizeof(key->bytes)) == 0));
}

/*
 * The epoch before gets an end; a new job (the coordinator has lost the old one) gets more time, as
 * its members come back slowly. Senders whose key is out of the ring are forgotten: none of their
 * packets can be accepted again. Last, what waited for this key is heard.
 */
void
auth_transport_rekey(tutti_transport *transport, const tutti_transport_key *key)
{
    auth *self = auth_from(transport);
    const auth_epoch *present = auth_present(self);
    uint64_t grace_ns = self->grace_ns;
    auth_epoch next = {.key = *key, .turn = self->turn + 1, .ends_ns = UINT64_MAX};

    if (is_known(self, key)) {
        return;
    }
    if (!derive_name(self, &next)) {
        TUTTI_LOG("coll", ERROR, "OpenSSL could not use the key of epoch %" PRIu64, key->epoch);
        return;
    }
    if (present != NULL) {
        grace_ns = present->key.job_id == key->job_id ? grace_ns : AUTH_NEW_JOB_NS;
        self->epochs[self->turn % AUTH_EPOCHS_MAX].ends_ns =
            tutti_clock_add(tutti_clock_ns(), grace_ns);
    }
    self->turn = next.turn;
    self->epochs[next.turn % AUTH_EPOCHS_MAX] = next;
    OPENSSL_cleanse(&next, sizeof(next));
    auth_forget(self, self->turn < AUTH_EPOCHS_MAX ? 0 : self->turn - AUTH_EPOCHS_MAX + 1);
    auth_wait_over(self);
}

/* ------------------------------------------------------------------------------ the end */

/* The list is a ring: when it is full, the oldest entries, whose epochs have ended long ago, are
 * overwritten. */
void
auth_transport_revoke(tutti_transport *transport, uint32_t rank, uint64_t incarnation)
{
    auth *self = auth_from(transport);

    self->expelled[self->expelled_count++ % AUTH_REVOKED_MAX] =
        (auth_revoked){.incarnation = incarnation, .rank = rank, .turn = self->turn};
}

/* The newest first. A process that was revoked before the epoch began does not know its key, so
 * nothing further down can matter; the same incarnation may have become a member again since. */
static const auth_revoked *
find_expelled(const auth *self, const auth_epoch *epoch, uint64_t incarnation)
{
    size_t i;

    for (i = 1; i <= AUTH_REVOKED_MAX && i <= self->expelled_count; i++) {
        const auth_revoked *who = &self->expelled[(self->expelled_count - i) % AUTH_REVOKED_MAX];

        if (who->turn < epoch->turn) {
            return NULL;
        }
        if (who->incarnation == incarnation) {
            return who;
        }
    }
    return NULL;
}

/* Asked after the tag has proved that this process knew the key. */
bool
auth_is_over(auth *self, const auth_epoch *epoch, uint64_t incarnation)
{
    const auth_revoked *who = find_expelled(self, epoch, incarnation);
    char name[32] = "a process";

    if (who == NULL && (epoch->turn == self->turn || tutti_clock_ns() < epoch->ends_ns)) {
        return false;
    }
    self->stats.over++;
    if ((self->stats.over & (self->stats.over - 1)) == 0) { /* as often as it likes: say less */
        if (who != NULL) {
            (void)snprintf(name, sizeof(name), "rank %" PRIu32, who->rank);
        }
        TUTTI_LOG("coll", WARN,
                  "refused a packet that %s (incarnation %016" PRIx64 ") sealed for epoch %" PRIu64
                  ": %s; %" PRIu64 " refused so far",
                  name, incarnation, epoch->key.epoch,
                  who != NULL ? "it is no member any more" : "that epoch is over",
                  self->stats.over);
    }
    return true;
}
