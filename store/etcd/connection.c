/*
 * The members of an etcd, and what is shown to them. A call goes to `current`; the first call that
 * finds it gone moves it on, so that all later ones begin at the next member.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/file.h"
#include "base/os/thread.h"
#include "store/etcd/etcd_private.h"

#define PORT_DEFAULT "2379"
#define PASSWORD_MAX 1024
#define LEASE_NS_DEFAULT (5 * TUTTI_NS_PER_S)
#define LEASE_NS_MIN (2 * TUTTI_NS_PER_S) /* etcd grants no shorter ones */
#define BACKOFF_NS (300 * TUTTI_NS_PER_MS)

static tutti_code
fail_where(tutti_error *err, const char *where, const char *what)
{
    return TUTTI_FAIL_FOR(
        err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
        "\"etcd:%s\": %s, need etcd:HOST[:PORT],HOST[:PORT]/PREFIX with 1 to %d hosts", where, what,
        ETCD_MEMBERS_MAX);
}

static tutti_code
open_member(tutti_etcd *self, const tutti_etcd_options *options, const char *host, size_t size,
            tutti_error *err)
{
    const tutti_rpc_channel_options channel = {.tls_ca = options->tls_ca,
                                               .tls_cert = options->tls_cert,
                                               .tls_key = options->tls_key,
                                               .tls_name = options->tls_name,
                                               .backoff_max_ns = BACKOFF_NS};
    char address[TUTTI_ADDRESS_MAX];
    const char *close = memchr(host, ']', size);
    const bool has_port = memchr(close == NULL ? host : close, ':',
                                 size - (close == NULL ? 0 : (size_t)(close - host))) != NULL;

    if (size == 0 || size > TUTTI_ADDRESS_MAX - 8 || self->member_count == ETCD_MEMBERS_MAX) {
        return fail_where(err, options->where, "hosts");
    }
    (void)snprintf(address, sizeof(address), "%.*s%s", (int)size, host,
                   has_port ? "" : ":" PORT_DEFAULT);
    TUTTI_TRY(tutti_rpc_channel_open(address, &channel, &self->members[self->member_count], err));
    self->member_count++;
    return TUTTI_OK;
}

static tutti_code
parse_where(tutti_etcd *self, const tutti_etcd_options *options, tutti_error *err)
{
    const char *at = options->where;
    const char *slash = strchr(at, '/');
    const char *end = slash == NULL ? at + strlen(at) : slash;
    const char *prefix = slash == NULL || slash[1] == '\0' ? "tutti" : slash + 1;

    if (strlen(prefix) >= ETCD_PREFIX_MAX) {
        return fail_where(err, options->where, "the prefix is too long");
    }
    (void)snprintf(self->prefix, sizeof(self->prefix), "%s", prefix);
    for (;;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma == NULL ? end : comma;

        TUTTI_TRY(open_member(self, options, at, (size_t)(stop - at), err));
        if (comma == NULL) {
            return TUTTI_OK;
        }
        at = comma + 1;
    }
}

static tutti_code
read_user(tutti_etcd *self, const tutti_etcd_options *options, tutti_error *err)
{
    if (options->user == NULL || options->user[0] == '\0') {
        return TUTTI_OK;
    }
    if (options->password_file == NULL || options->password_file[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "--etcd-user %.100s without --etcd-password-file", options->user);
    }
    TUTTI_TRY(tutti_file_read(options->password_file, PASSWORD_MAX, &self->password, NULL, err));
    self->password[strcspn(self->password, "\r\n")] = '\0';
    self->user = strdup(options->user);
    return self->user != NULL ? TUTTI_OK
                              : TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY",
                                               "no memory for a connection to etcd");
}

static tutti_code
check_lease(const tutti_etcd *self, tutti_error *err)
{
    return self->lease_ns >= LEASE_NS_MIN
               ? TUTTI_OK
               : TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                                "--leader-lease is %llu ms, need at least %llu ms",
                                (unsigned long long)(self->lease_ns / TUTTI_NS_PER_MS),
                                (unsigned long long)(LEASE_NS_MIN / TUTTI_NS_PER_MS));
}

tutti_code
tutti_etcd_open(const tutti_etcd_options *options, tutti_etcd **ret_etcd, tutti_error *err)
{
    tutti_etcd *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY",
                              "no memory for a connection to etcd");
    }
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_cond_init(&self->changed);
    self->lease_ns = options->lease_ns == 0 ? LEASE_NS_DEFAULT : options->lease_ns;
    code = check_lease(self, err);
    code = code == TUTTI_OK ? parse_where(self, options, err) : code;
    code = code == TUTTI_OK ? read_user(self, options, err) : code;
    if (code != TUTTI_OK) {
        tutti_etcd_close(self);
        return code;
    }
    *ret_etcd = self;
    return TUTTI_OK;
}

void
tutti_etcd_close(tutti_etcd *etcd)
{
    size_t i;

    if (etcd == NULL) {
        return;
    }
    tutti_etcd_stop(etcd);
    if (etcd->keeper_starts) {
        (void)pthread_join(etcd->keeper, NULL);
    }
    etcd_lease_revoke(etcd, etcd->lease);
    for (i = 0; i < etcd->member_count; i++) {
        tutti_rpc_channel_close(etcd->members[i]);
    }
    (void)pthread_cond_destroy(&etcd->changed);
    (void)pthread_mutex_destroy(&etcd->lock);
    free(etcd->user);
    free(etcd->password);
    free(etcd);
}

void
tutti_etcd_stop(tutti_etcd *etcd)
{
    (void)pthread_mutex_lock(&etcd->lock);
    atomic_store(&etcd->stopping, true);
    (void)pthread_cond_broadcast(&etcd->changed);
    (void)pthread_mutex_unlock(&etcd->lock);
}

bool
etcd_pause(tutti_etcd *etcd, uint64_t until_ns)
{
    bool stopping;

    (void)pthread_mutex_lock(&etcd->lock);
    while (!atomic_load(&etcd->stopping) &&
           tutti_cond_wait_until(&etcd->changed, &etcd->lock, until_ns)) {
    }
    stopping = atomic_load(&etcd->stopping);
    (void)pthread_mutex_unlock(&etcd->lock);
    return !stopping;
}

tutti_rpc_channel *
etcd_member(tutti_etcd *etcd, size_t *ret_number)
{
    *ret_number = atomic_load(&etcd->current);
    return etcd->members[*ret_number];
}

void
etcd_member_failed(tutti_etcd *etcd, size_t number)
{
    size_t expected = number;

    (void)atomic_compare_exchange_strong(&etcd->current, &expected,
                                         (number + 1) % etcd->member_count);
}

void
etcd_token_get(tutti_etcd *etcd, char ret_token[ETCD_TOKEN_MAX])
{
    (void)pthread_mutex_lock(&etcd->lock);
    memcpy(ret_token, etcd->token, ETCD_TOKEN_MAX);
    (void)pthread_mutex_unlock(&etcd->lock);
}

void
etcd_token_set(tutti_etcd *etcd, const char *token)
{
    (void)pthread_mutex_lock(&etcd->lock);
    (void)snprintf(etcd->token, sizeof(etcd->token), "%s", token);
    (void)pthread_mutex_unlock(&etcd->lock);
}

tutti_bytes
etcd_key(const tutti_etcd *etcd, const char *kind, tutti_bytes name, unsigned char *key)
{
    const size_t prefix = strlen(etcd->prefix);
    const size_t head = prefix + 1 + strlen(kind);

    memcpy(key, etcd->prefix, prefix);
    key[prefix] = '/';
    memcpy(key + prefix + 1, kind, strlen(kind));
    if (name.size > 0) {
        memcpy(key + head, name.data, name.size);
    }
    return (tutti_bytes){key, head + name.size};
}

tutti_bytes
etcd_key_end(unsigned char *key, tutti_bytes first)
{
    memmove(key, first.data, first.size);
    key[first.size - 1]++; /* it is '/' always */
    return (tutti_bytes){key, first.size};
}
