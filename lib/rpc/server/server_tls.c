/*
 * Certificates of one TLS port, read again when the files change.
 *
 * gRPC asks for news (on_fetch) on its own threads for every new connection, so `seen` and
 * `fresh` are behind a lock. `fresh` is what gRPC has not been given yet: certificates that were
 * read at start, or read again since. Connections that stand keep the certificates they began
 * with. Files that do not fit together (a rotation that has replaced one of two) are logged once
 * for each change, and the old certificates stay.
 */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "rpc/server/tls.h"
#include "rpc/util/pem.h"
#include "rpc/util/stamp.h"

struct rpc_tls {
    const char *cert_path;
    const char *key_path;
    const char *ca_path;
    pthread_mutex_t lock; /* guards all below */
    rpc_stamps seen;      /* of the files as last read, also if they were bad */
    rpc_pems fresh;       /* read and good, but not handed to gRPC yet */
};

static rpc_stamps
take_stamps(const rpc_tls *self)
{
    return rpc_stamps_take(self->cert_path, self->key_path, self->ca_path);
}

tutti_code
rpc_tls_open(const char *cert_path, const char *key_path, const char *ca_path, rpc_tls **ret_tls,
             tutti_error *err)
{
    rpc_tls *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for certificates");
    }
    self->cert_path = cert_path;
    self->key_path = key_path;
    self->ca_path = ca_path;
    (void)pthread_mutex_init(&self->lock, NULL);
    self->seen = take_stamps(self); /* before reading: a change in between is seen later */
    code = rpc_pems_read(cert_path, key_path, ca_path, &self->fresh, err);
    if (code != TUTTI_OK) {
        rpc_tls_close(self);
        return code;
    }
    *ret_tls = self;
    return TUTTI_OK;
}

void
rpc_tls_close(rpc_tls *tls)
{
    if (tls != NULL) {
        rpc_pems_fini(&tls->fresh);
        (void)pthread_mutex_destroy(&tls->lock);
        free(tls);
    }
}

/*
 * With the lock held. The stamps are taken before the files are read: a change in between is seen
 * at the next connection.
 */
static void
reload_certs(rpc_tls *self)
{
    const rpc_stamps now = take_stamps(self);
    rpc_pems pems;
    tutti_error err;

    if (rpc_stamps_equal(&now, &self->seen)) {
        return;
    }
    self->seen = now;
    if (rpc_pems_read(self->cert_path, self->key_path, self->ca_path, &pems, &err) != TUTTI_OK) {
        TUTTI_LOG("rpc/tls", WARN,
                  "could not read certificates again, the old ones stay in use: %s", err.text);
        return;
    }
    rpc_pems_fini(&self->fresh);
    self->fresh = pems;
    TUTTI_LOG("rpc/tls", INFO, "certificates read again from %s", self->cert_path);
}

/* gRPC takes the config over, and copies the texts. Debian's build aborts without roots, so a
 * server that asks for no client certificates gives its own: they are not looked at then. */
static grpc_ssl_server_certificate_config *
make_config(const rpc_pems *pems)
{
    const grpc_ssl_pem_key_cert_pair pair = {.private_key = pems->key, .cert_chain = pems->cert};

    return grpc_ssl_server_certificate_config_create(pems->ca != NULL ? pems->ca : pems->cert,
                                                     &pair, 1);
}

/* For every new connection, on gRPC's threads: a few stat() calls, seldom more. */
static grpc_ssl_certificate_config_reload_status
on_fetch(void *arg, grpc_ssl_server_certificate_config **config)
{
    rpc_tls *self = arg;
    grpc_ssl_certificate_config_reload_status status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;

    (void)pthread_mutex_lock(&self->lock);
    reload_certs(self);
    if (self->fresh.cert != NULL) {
        *config = make_config(&self->fresh);
        rpc_pems_fini(&self->fresh);
        status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
    }
    (void)pthread_mutex_unlock(&self->lock);
    return status;
}

grpc_server_credentials *
rpc_tls_credentials(rpc_tls *tls)
{
    const grpc_ssl_client_certificate_request_type wish =
        tls->ca_path[0] == '\0' ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;

    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(wish, on_fetch, tls));
}

/*
 * How often a property occurs; its value, if it occurs once, fits and holds no NUL. Of several
 * names none is taken: nobody could say which one is meant, and an attacker could add the second.
 */
static size_t
find_property(const grpc_auth_context *context, const char *name, char *ret_value, size_t size)
{
    grpc_auth_property_iterator at = grpc_auth_context_find_properties_by_name(context, name);
    const grpc_auth_property *first = grpc_auth_property_iterator_next(&at);
    size_t count = first == NULL ? 0 : 1;

    while (count > 0 && grpc_auth_property_iterator_next(&at) != NULL) {
        count++;
    }
    if (count == 1 && first->value_length < size &&
        memchr(first->value, '\0', first->value_length) == NULL) {
        memcpy(ret_value, first->value, first->value_length);
        ret_value[first->value_length] = '\0';
    }
    return count;
}

static void
read_names(grpc_call *call, bool also_dns, char *ret_name, size_t size)
{
    grpc_auth_context *context = grpc_call_auth_context(call);

    ret_name[0] = '\0';
    if (context == NULL) {
        return;
    }
    if (grpc_auth_context_peer_is_authenticated(context) &&
        find_property(context, GRPC_PEER_URI_PROPERTY_NAME, ret_name, size) == 0 && also_dns) {
        (void)find_property(context, GRPC_PEER_DNS_PROPERTY_NAME, ret_name, size);
    }
    grpc_auth_context_release(context);
}

void
rpc_tls_identity(grpc_call *call, char *ret_identity, size_t size)
{
    read_names(call, true, ret_identity, size);
}

void
rpc_tls_uri(grpc_call *call, char *ret_uri, size_t size)
{
    read_names(call, false, ret_uri, size);
}
