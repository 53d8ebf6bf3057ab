/* Private to client: what a caller's options become, with their defaults. */
#ifndef TUTTI_CLIENT_CONN_OPTIONS_H
#define TUTTI_CLIENT_CONN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"

/* Options with their defaults filled in from the environment. Strings are owned, "" = none. */
typedef struct client_settings {
    char *agent;
    char *coordinator;
    char *job;
    char *tls_ca;
    char *tls_cert;
    char *tls_key;
    char *tls_name;
    char *token_file;
    char *trace;
    uint32_t timeout_ms;
    bool wait;
} client_settings;

/*
 * [in] options  NULL = defaults
 *
 * TUTTI_INVALID_ARGUMENT    options that were not initialised, or of a newer library
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code client_settings_read(const tutti_client_options *options, client_settings *ret_settings,
                                tutti_error *err);
void client_settings_fini(client_settings *settings);

/*
 * Take a struct the caller filled, which may be of an older or newer library: what it does not
 * have keeps `own`'s value.
 *
 * TUTTI_INVALID_ARGUMENT  its size was not set by init, or it says things we do not know
 */
tutti_code client_take_struct(void *own, size_t own_size, const void *given, size_t given_size,
                              const char *what, tutti_error *err);

#endif
