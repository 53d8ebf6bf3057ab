/*
 * A client's options: what the caller says, then the environment, then defaults.
 *
 * Structs of callers begin with their size, so a program may be older or newer than the library:
 * what an older one does not have keeps its default; what a newer one has beyond our struct must
 * be zero, or it asks for something that this library cannot do.
 */
#include "client/conn/options.h"

#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/client.h"

void
tutti_client_options_init(tutti_client_options *options)
{
    *options = (tutti_client_options){.size = sizeof(*options)};
}

/* Is all of it zero? */
static bool
is_silent(const unsigned char *bytes, size_t size)
{
    size_t i;

    for (i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

tutti_code
client_take_struct(void *own, size_t own_size, const void *given, size_t given_size,
                   const char *what, tutti_error *err)
{
    const size_t common = given_size < own_size ? given_size : own_size;

    if (given_size < sizeof(size_t) || given_size > 4096) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_STRUCT",
            "%s of %zu bytes: not a size that this struct can have, call its init function first",
            what, given_size);
    }
    if (!is_silent((const unsigned char *)given + common, given_size - common)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_STRUCT",
            "%s of %zu bytes has fields that this library (%zu bytes) does not know: "
            "use the library that belongs to the header",
            what, given_size, own_size);
    }
    memcpy(own, given, common);
    return TUTTI_OK;
}

/* [out, owned] a copy of the first that says something. */
static tutti_code
choose_options(const char *stated, const char *variable, const char *fallback, char **ret,
               tutti_error *err)
{
    const char *chosen = stated;

    if (chosen == NULL && variable != NULL) {
        chosen = getenv(variable);
    }
    if (chosen == NULL) {
        chosen = fallback;
    }
    *ret = strdup(chosen);
    if (*ret == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a client's options");
    }
    return TUTTI_OK;
}

static tutti_code
fill_options(const tutti_client_options *options, client_settings *settings, tutti_error *err)
{
    TUTTI_TRY(choose_options(options->agent, "TUTTI_AGENT", "", &settings->agent, err));

    TUTTI_TRY(choose_options(options->coordinator, NULL, "", &settings->coordinator, err));
    TUTTI_TRY(choose_options(options->job, "TUTTI_JOB", "default", &settings->job, err));
    TUTTI_TRY(choose_options(options->tls_ca, "TUTTI_TLS_CA", "", &settings->tls_ca, err));
    TUTTI_TRY(choose_options(options->tls_cert, "TUTTI_TLS_CERT", "", &settings->tls_cert, err));
    TUTTI_TRY(choose_options(options->tls_key, "TUTTI_TLS_KEY", "", &settings->tls_key, err));
    TUTTI_TRY(choose_options(options->tls_name, "TUTTI_TLS_NAME", "", &settings->tls_name, err));
    TUTTI_TRY(
        choose_options(options->token_file, "TUTTI_TOKEN_FILE", "", &settings->token_file, err));
    return choose_options(options->traceparent, "TRACEPARENT", "", &settings->trace, err);
}

tutti_code
client_settings_read(const tutti_client_options *options, client_settings *ret_settings,
                     tutti_error *err)
{
    client_settings settings = {0};
    tutti_client_options own;
    tutti_code code = TUTTI_OK;

    tutti_client_options_init(&own);
    if (options != NULL) {
        code = client_take_struct(&own, sizeof(own), options, options->size, "client options", err);
    }
    if (code == TUTTI_OK) {
        code = fill_options(&own, &settings, err);
    }
    if (code != TUTTI_OK) {
        client_settings_fini(&settings);
        return code;
    }
    settings.timeout_ms = own.timeout_ms != 0 ? own.timeout_ms : CLIENT_TIMEOUT_MS;
    settings.wait = own.wait;
    *ret_settings = settings;
    return TUTTI_OK;
}

void
client_settings_fini(client_settings *settings)
{
    free(settings->agent);
    free(settings->coordinator);
    free(settings->job);
    free(settings->tls_ca);
    free(settings->tls_cert);
    free(settings->tls_key);
    free(settings->tls_name);
    free(settings->token_file);
    free(settings->trace);
    *settings = (client_settings){0};
}
