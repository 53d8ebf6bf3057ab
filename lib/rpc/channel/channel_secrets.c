/*
 * What a channel trusts and shows: authority, certificate, token; and what happens when their
 * files change.
 *
 * Open and close run on the owner's thread. rpc_channel_renew runs on the thread of any call: one
 * of them gets the lock, looks at the files, and the others wait for it for as long as that
 * takes, since the files are local and small. Files that cannot be used are logged; the channel
 * goes on with what it has.
 *
 * New certificates make a new gRPC channel. The one before it is kept as `retired` until the next
 * change, because streams that were just begun may still wait for its connection; destroying a
 * gRPC channel does not end the calls that run on it. All copies of a token are overwritten
 * before they are freed, except those inside gRPC.
 */
#include <assert.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "rpc/channel.h"
#include "rpc/channel/channel_private.h"
#include "rpc/loop/token.h"
#include "rpc/util/pem.h"
#include "rpc/util/process.h"
#include "rpc/util/stamp.h"

#define LOOK_EVERY_NS TUTTI_NS_PER_S
#define TRACE_BYTES_MAX 512

static tutti_code
check_tls(const tutti_rpc_channel_options *options, tutti_error *err)
{
    if (rpc_is_given(options->tls_cert) != rpc_is_given(options->tls_key)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
            "a client's certificate and key belong together, only the %s is given",
            rpc_is_given(options->tls_cert) ? "certificate" : "key");
    }
    if (rpc_is_given(options->tls_cert) && !rpc_is_given(options->tls_ca)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
            "a client's certificate is given without the authority that signed the "
            "server's certificate, need both");
    }
    return TUTTI_OK;
}

tutti_code
rpc_channel_credentials(const tutti_rpc_channel *channel, grpc_channel_credentials **ret,
                        tutti_error *err)
{
    const tutti_rpc_channel_options *options = &channel->options;
    rpc_pems pems = {0};
    grpc_ssl_pem_key_cert_pair pair;

    if (!channel->secrets.tls) {
        *ret = grpc_insecure_credentials_create();
        return TUTTI_OK;
    }
    TUTTI_TRY(rpc_pems_read(options->tls_cert, options->tls_key, options->tls_ca, &pems, err));
    pair = (grpc_ssl_pem_key_cert_pair){.private_key = pems.key, .cert_chain = pems.cert};
    *ret = grpc_ssl_credentials_create_ex(pems.ca, pems.cert == NULL ? NULL : &pair, NULL, NULL);
    rpc_pems_fini(&pems);
    if (*ret == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "gRPC refused the authority in %s", options->tls_ca);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ tokens */

/*
 * Write the metadata that the next calls show, in the next place of the ring, and make it the
 * newest. With the lock held, or before the channel is open. gRPC aborts on header values that
 * are not legal, so that is checked here.
 */
static tutti_code
put_bearer(rpc_secrets *secrets, const char *token, tutti_error *err)
{
    static const char scheme[] = "Bearer ";
    const size_t size = sizeof(scheme) - 1 + strlen(token);
    const unsigned next = (secrets->bearer + 1) % TUTTI_RPC_BEARERS;
    grpc_metadata *bearer = &secrets->bearers[next][1];
    grpc_slice value = grpc_slice_malloc(size);

    memcpy(GRPC_SLICE_START_PTR(value), scheme, sizeof(scheme) - 1);
    memcpy(GRPC_SLICE_START_PTR(value) + sizeof(scheme) - 1, token, strlen(token));
    if (strlen(token) > TUTTI_RPC_TOKEN_MAX || grpc_header_nonbin_value_is_legal(value) == 0) {
        grpc_slice_unref(value);
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_CREDENTIALS",
                              "token of %zu bytes, need at most %d of printable ASCII",
                              strlen(token), TUTTI_RPC_TOKEN_MAX);
    }
    grpc_slice_unref(bearer->value);
    *bearer =
        (grpc_metadata){.key = grpc_slice_from_static_string("authorization"), .value = value};
    secrets->bearer = next;
    secrets->metadata_count = 2 - secrets->metadata_at;
    return TUTTI_OK;
}

/*
 * A token is never sent over plaintext TCP that leaves this machine; the server refuses it there,
 * too.
 */
static tutti_code
check_way(const tutti_rpc_channel *channel, tutti_error *err)
{
    if (channel->secrets.tls || tutti_address_is_local(channel->address)) {
        return TUTTI_OK;
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "TOKEN_IN_PLAINTEXT",
                          "a token for %s would travel in plaintext: give the authority of the "
                          "server's certificate",
                          channel->address->text);
}

static tutti_code
open_token(tutti_rpc_channel *self, const char *token, tutti_error *err)
{
    rpc_secrets *secrets = &self->secrets;
    const bool file = rpc_is_given(self->options.token_file);

    if (!file && !rpc_is_given(token)) {
        return TUTTI_OK;
    }
    TUTTI_TRY(check_way(self, err));
    if (file) {
        TUTTI_TRY(rpc_token_open(self->options.token_file, &secrets->token, err));
    }
    if (file) {
        (void)rpc_token_renew(secrets->token, tutti_clock_ns(), secrets->shown);
    }
    return put_bearer(secrets, file ? secrets->shown : token, err);
}

grpc_metadata *
rpc_channel_bearer(tutti_rpc_channel *channel)
{
    rpc_secrets *secrets = &channel->secrets;
    grpc_metadata *bearer;

    if (!secrets->changing) {
        return &secrets->bearers[secrets->bearer][secrets->metadata_at];
    }
    (void)pthread_mutex_lock(&channel->lock);
    bearer = &secrets->bearers[secrets->bearer][secrets->metadata_at];
    (void)pthread_mutex_unlock(&channel->lock);
    return bearer;
}

/* A trace that gRPC would not send is left out and is no error: tracing must not hinder work. */
static void
open_trace(rpc_secrets *secrets, const char *trace)
{
    size_t i;

    secrets->metadata_at = 1;
    if (!rpc_is_given(trace) || strlen(trace) > TRACE_BYTES_MAX) {
        return;
    }
    for (i = 0; i < TUTTI_RPC_BEARERS; i++) {
        secrets->bearers[i][0] =
            (grpc_metadata){.key = grpc_slice_from_static_string("traceparent"),
                            .value = grpc_slice_from_copied_string(trace)};
    }
    if (grpc_header_nonbin_value_is_legal(secrets->bearers[0][0].value) != 0) {
        secrets->metadata_at = 0;
        secrets->metadata_count = 1;
    }
}

/* ------------------------------------------------------------------------------ open and close */

static tutti_code
own_text(const char **text, tutti_error *err)
{
    if (!rpc_is_given(*text)) {
        *text = NULL;
        return TUTTI_OK;
    }
    *text = strdup(*text);
    return *text != NULL ? TUTTI_OK : TUTTI_FAIL_MEMORY(err, "no memory for a channel");
}

static tutti_code
own_options(tutti_rpc_channel_options *own, const tutti_rpc_channel_options *given,
            tutti_error *err)
{
    const char **const texts[] = {&own->tls_ca, &own->tls_cert, &own->tls_key, &own->tls_name,
                                  &own->token_file};
    tutti_code code = TUTTI_OK;
    size_t i;

    *own = *given;
    own->token = NULL;
    own->trace = NULL;
    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (code == TUTTI_OK) {
            code = own_text(texts[i], err);
        } else {
            *texts[i] = NULL; /* the caller's, not ours to free */
        }
    }
    return code;
}

tutti_code
rpc_channel_secrets_open(tutti_rpc_channel *channel, const tutti_rpc_channel_options *options,
                         tutti_error *err)
{
    rpc_secrets *secrets = &channel->secrets;
    tutti_rpc_channel_options *own = &channel->options;
    tutti_code code;
    size_t i;

    for (i = 0; i < TUTTI_RPC_BEARERS; i++) {
        secrets->bearers[i][0].value = grpc_empty_slice();
        secrets->bearers[i][1].value = grpc_empty_slice();
    }
    open_trace(secrets, options->trace);
    code = own_options(own, options, err);
    code = code == TUTTI_OK ? check_tls(own, err) : code;
    if (code != TUTTI_OK) {
        return code;
    }
    secrets->tls = own->tls_ca != NULL && channel->address->path[0] == '\0';
    secrets->changing = secrets->tls || own->token_file != NULL || own->follow;
    secrets->seen = rpc_stamps_take(own->tls_cert, own->tls_key, own->tls_ca);
    atomic_init(&secrets->look_ns, tutti_clock_add(tutti_clock_ns(), LOOK_EVERY_NS));
    return open_token(channel, options->token, err);
}

void
rpc_channel_secrets_close(tutti_rpc_channel *channel)
{
    rpc_secrets *secrets = &channel->secrets;
    tutti_rpc_channel_options *own = &channel->options;
    size_t i;

    if (secrets->retired != NULL) {
        grpc_channel_destroy(secrets->retired);
    }
    for (i = 0; i < TUTTI_RPC_BEARERS; i++) {
        grpc_slice_unref(secrets->bearers[i][0].value);
        grpc_slice_unref(secrets->bearers[i][1].value);
    }
    rpc_token_close(secrets->token);
    OPENSSL_cleanse(secrets->shown, sizeof(secrets->shown));
    free((char *)(uintptr_t)own->tls_ca);
    free((char *)(uintptr_t)own->tls_cert);
    free((char *)(uintptr_t)own->tls_key);
    free((char *)(uintptr_t)own->tls_name);
    free((char *)(uintptr_t)own->token_file);
}

/* ------------------------------------------------------------------------------ changes */

/* With the lock held. */
static void
renew_token(tutti_rpc_channel *self, uint64_t now_ns)
{
    rpc_secrets *secrets = &self->secrets;
    tutti_error err;

    if (secrets->token != NULL && rpc_token_renew(secrets->token, now_ns, secrets->shown) &&
        put_bearer(secrets, secrets->shown, &err) != TUTTI_OK) {
        TUTTI_LOG("rpc/channel", WARN,
                  "could not read the token again, the old one stays in use: %s", err.text);
    }
}

/* With the lock held. */
static void
renew_certificates(tutti_rpc_channel *self)
{
    rpc_secrets *secrets = &self->secrets;
    const tutti_rpc_channel_options *own = &self->options;
    const rpc_stamps now = rpc_stamps_take(own->tls_cert, own->tls_key, own->tls_ca);
    grpc_channel *fresh = NULL;
    tutti_error err;

    if (!secrets->tls || rpc_stamps_equal(&now, &secrets->seen)) {
        return;
    }
    secrets->seen = now;
    if (rpc_channel_make(self, &fresh, &err) != TUTTI_OK) {
        TUTTI_LOG("rpc/channel", WARN,
                  "could not read certificates again, the old ones stay in use: %s", err.text);
        return;
    }
    rpc_connections_replace(self, fresh);
    TUTTI_LOG("rpc/channel", INFO, "certificates for %s read again", self->address->text);
}

void
rpc_channel_renew(tutti_rpc_channel *channel)
{
    rpc_secrets *secrets = &channel->secrets;
    const uint64_t now_ns = tutti_clock_ns();

    /*
     * Without the lock, for the calls of one second. Looked at again under it: of many threads
     * one does the work.
     */
    if (now_ns < atomic_load(&secrets->look_ns)) {
        return;
    }
    (void)pthread_mutex_lock(&channel->lock);
    if (now_ns >= atomic_load(&secrets->look_ns)) {
        atomic_store(&secrets->look_ns, tutti_clock_add(now_ns, LOOK_EVERY_NS));
        renew_token(channel, now_ns);
        renew_certificates(channel);
    }
    (void)pthread_mutex_unlock(&channel->lock);
}

/* ------------------------------------------------------------------------------ under the lock */

grpc_connectivity_state
rpc_channel_state(tutti_rpc_channel *channel)
{
    grpc_connectivity_state state;

    (void)pthread_mutex_lock(&channel->lock);
    state = grpc_channel_check_connectivity_state(channel->grpc, 0);
    (void)pthread_mutex_unlock(&channel->lock);
    return state;
}
