/*
 * The object that decides about calls: its options, its keys, and the tokens it has checked
 * before.
 *
 * Checking a signature costs much more than the rest of a decision, and a client sends the same
 * token with each call. So a token that was good is remembered by its SHA-256 until it expires or
 * the keys change. The first byte of the digest is the place: there is no search, and nobody can
 * fill the memory.
 */
#include "auth/auth_private.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"

#define AT(member) offsetof(tutti_auth_options, member)
#define LOOK_EVERY_NS TUTTI_NS_PER_S

static const tutti_option table[] = {
    {"token-keys", TUTTI_OPTION_FILE, AT(keys), "", 0, 0, NULL,
     "file of the keys that check tokens: a JWKS, PEM of public keys, or a secret; every call then "
     "needs a token; read again when it changes"},
    {"token-issuer", TUTTI_OPTION_NAME, AT(issuer), "", 0, 0, NULL,
     "what a token's \"iss\" must be; empty = any"},
    {"token-audience", TUTTI_OPTION_NAME, AT(audience), "tutti", 0, 0, NULL,
     "what must be in a token's \"aud\"; empty = it must have none"},
    {"token-subjects", TUTTI_OPTION_LIST, AT(subjects), "", 0, 0, NULL,
     "roles by a token's \"sub\": SUBJECT=ROLE[@JOB][#RANKS] ..., ROLE client, agent or admin"},
    {"token-claim-prefix", TUTTI_OPTION_TEXT, AT(prefix), "", 0, 0, NULL,
     "prefix of the names of the claims role, job and ranks in a token"},
    {"token-skew", TUTTI_OPTION_NS, AT(skew_ns), "30s", 0, 3600 * TUTTI_NS_PER_S, NULL,
     "how much the clock of the machine that makes tokens may differ from the clock of this one"},
    {"core-dumps", TUTTI_OPTION_BOOL, AT(core_dumps), "false", 0, 0, NULL,
     "allow core dumps and debuggers although this process holds private keys or tokens"},
};

tutti_option_set
tutti_auth_option_set(tutti_auth_options *target)
{
    return (tutti_option_set){"tokens", table, sizeof(table) / sizeof(table[0]), target};
}

/* ------------------------------------------------------------------------------ open and close */

/*
 * Keys that cannot be read are an error here, at the start. Later they are only a warning, and
 * the old ones stay.
 */
tutti_code
tutti_auth_open(const tutti_auth_options *options, tutti_auth **ret_auth, tutti_error *err)
{
    tutti_auth *self = calloc(1, sizeof(*self));
    size_t count = 0;
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for tokens");
    }
    self->options = options;
    atomic_init(&self->rank, -1);
    (void)pthread_mutex_init(&self->lock, NULL);
    code = tutti_auth_subjects_parse(options->subjects, &self->subjects, &count, err);
    if (code == TUTTI_OK && options->keys[0] != '\0') {
        code = tutti_auth_keys_read(options->keys, &self->keys, err);
    }
    if (code != TUTTI_OK) {
        tutti_auth_close(self);
        return code;
    }
    self->rules = (tutti_auth_rules){.issuer = options->issuer,
                                     .audience = options->audience,
                                     .prefix = options->prefix,
                                     .skew_s = (int64_t)(options->skew_ns / TUTTI_NS_PER_S),
                                     .subjects = self->subjects,
                                     .subject_count = count};
    *ret_auth = self;
    return TUTTI_OK;
}

static void
forget_all(tutti_auth *self)
{
    size_t i;

    for (i = 0; i < AUTH_REMEMBERED; i++) {
        tutti_auth_grant_unref(self->places[i].grant);
        self->places[i].grant = NULL;
    }
}

void
tutti_auth_close(tutti_auth *auth)
{
    if (auth != NULL) {
        forget_all(auth);
        tutti_auth_keys_unref(auth->keys);
        free(auth->subjects);
        (void)pthread_mutex_destroy(&auth->lock);
        free(auth);
    }
}

void
tutti_auth_set_job(tutti_auth *auth, const char *job)
{
    assert(strlen(job) < sizeof(auth->job));
    memcpy(auth->job, job, strlen(job) + 1);
}

/* The coordinator may give the agent a rank while calls are being decided, hence the atomic. */
void
tutti_auth_set_rank(tutti_auth *auth, uint32_t rank)
{
    atomic_store(&auth->rank, (int_least64_t)rank);
}

void
tutti_auth_grant_unref(tutti_auth_grant *grant)
{
    if (grant != NULL && atomic_fetch_sub(&grant->refs, 1) == 1) {
        free(grant);
    }
}

/* ------------------------------------------------------------------------------ keys that change
 */

/*
 * Reads the keys again when their file has changed, and looks at most once a second. With the
 * lock held.
 *
 * A new inode counts as a change as well: Kubernetes replaces a mounted file by another one,
 * whose time may be older. Keys that cannot be read leave the old ones in place: the file may
 * just be half written, and refusing all calls until then would be worse. All remembered tokens
 * are forgotten with the old keys, so a key that is withdrawn stops working at once.
 */
static void
look_at_keys(tutti_auth *self, uint64_t now_ns)
{
    struct stat found;
    tutti_auth_keys *keys = NULL;
    tutti_error err;
    const bool first = self->look_ns == 0;

    if (now_ns < self->look_ns) {
        return;
    }
    self->look_ns = tutti_clock_add(now_ns, LOOK_EVERY_NS);
    if (stat(self->options->keys, &found) != 0 ||
        (!first && found.st_ino == self->inode && found.st_mtim.tv_sec == self->changed.tv_sec &&
         found.st_mtim.tv_nsec == self->changed.tv_nsec)) {
        return;
    }
    self->inode = found.st_ino;
    self->changed = found.st_mtim;
    if (tutti_auth_keys_read(self->options->keys, &keys, &err) != TUTTI_OK) {
        TUTTI_LOG("auth", WARN,
                  "could not read the keys of tokens again, the old ones stay in use: %s",
                  err.text);
        return;
    }
    tutti_auth_keys_unref(self->keys);
    self->keys = keys;
    forget_all(self);
    if (!first) {
        TUTTI_LOG("auth", INFO, "keys of tokens read again from %s", self->options->keys);
    }
}

/* ------------------------------------------------------------------------------ tokens */

tutti_auth_grant *
auth_grant_dup(const tutti_auth_grant *from, tutti_error *err)
{
    tutti_auth_grant *grant = malloc(sizeof(*grant));

    if (grant == NULL) {
        (void)TUTTI_FAIL_MEMORY(err, "no memory for a grant");
        return NULL;
    }
    /* A grant never changes from here on; only its count of references does. */
    memcpy(grant, from, sizeof(*grant));
    atomic_init(&grant->refs, 1);
    return grant;
}

/*
 * With the lock held. A full place is given to the newest: two tokens that take turns there only
 * cost a signature each.
 */
static void
cache_token(tutti_auth *self, const unsigned char digest[AUTH_DIGEST_BYTES],
            tutti_auth_grant *grant)
{
    remembered *place = &self->places[digest[0]];

    (void)atomic_fetch_add(&grant->refs, 1);
    tutti_auth_grant_unref(place->grant);
    place->grant = grant;
    memcpy(place->digest, digest, AUTH_DIGEST_BYTES);
}

/* With the lock held; NULL = it has to be checked. */
static tutti_auth_grant *
find_cached_token(const tutti_auth *self, const unsigned char digest[AUTH_DIGEST_BYTES],
                  int64_t now_s)
{
    const remembered *place = &self->places[digest[0]];

    if (place->grant == NULL || place->grant->expires_s <= now_s ||
        memcmp(place->digest, digest, AUTH_DIGEST_BYTES) != 0) {
        return NULL;
    }
    (void)atomic_fetch_add(&place->grant->refs, 1);
    return place->grant;
}

/* Without the lock: a flood of bad tokens must not stop those whose token is known. */
static tutti_code
check_token(tutti_auth *self, tutti_auth_keys *keys, const char *token,
            const unsigned char digest[AUTH_DIGEST_BYTES], tutti_auth_grant **ret_grant,
            tutti_error *err)
{
    tutti_auth_grant grant;
    tutti_auth_grant *kept;

    TUTTI_TRY(tutti_auth_token_read(keys, &self->rules, token, (int64_t)time(NULL), &grant, err));
    kept = auth_grant_dup(&grant, err);
    if (kept == NULL) {
        return TUTTI_RESOURCE_EXHAUSTED;
    }
    (void)pthread_mutex_lock(&self->lock);
    if (self->keys == keys) { /* else they have changed meanwhile */
        cache_token(self, digest, kept);
    }
    (void)pthread_mutex_unlock(&self->lock);
    *ret_grant = kept;
    return TUTTI_OK;
}

/*
 * Both the keys and the grant are taken with a reference, so that they stay valid after the lock
 * is released, even when another thread reads new keys meanwhile.
 */
tutti_code
auth_find_token(tutti_auth *self, const char *token, tutti_auth_grant **ret_grant, tutti_error *err)
{
    unsigned char digest[AUTH_DIGEST_BYTES] = {0};
    tutti_auth_keys *keys;
    tutti_auth_grant *grant;
    tutti_code code = TUTTI_OK;

    if (EVP_Digest(token, strlen(token), digest, NULL, EVP_sha256(), NULL) != 1) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a token");
    }
    (void)pthread_mutex_lock(&self->lock);
    look_at_keys(self, tutti_clock_ns());
    grant = find_cached_token(self, digest, (int64_t)time(NULL));
    keys = self->keys;
    (void)atomic_fetch_add(&keys->refs, 1);
    (void)pthread_mutex_unlock(&self->lock);
    if (grant == NULL) {
        code = check_token(self, keys, token, digest, &grant, err);
    }
    tutti_auth_keys_unref(keys);
    if (code == TUTTI_OK) {
        *ret_grant = grant;
    }
    return code;
}
