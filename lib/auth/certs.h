/*
 * Certs: an authority, and certificates that it signs, in one folder: ca.pem, ca.key, NAME.pem,
 * NAME.key. P-256 keys; keys are for their owner only. What is there is never written over.
 */
#ifndef TUTTI_AUTH_CERTS_H
#define TUTTI_AUTH_CERTS_H

#include <stddef.h>

#include "tutti/error.h"

#define TUTTI_AUTH_NAMES_MAX 32 /* of one certificate */

/*
 * The authority of a folder, which is made when it is not there.
 *
 * TUTTI_ALREADY_EXISTS  there is one
 */
tutti_code tutti_auth_authority_make(const char *folder, unsigned days, tutti_error *err);

typedef struct tutti_auth_certificate {
    const char *name; /* of the files, and the common name */
    unsigned days;
    /* "localhost", "10.0.0.1", "::1": what servers are called. */
    const char *const *addresses;
    size_t address_count; /* 0 = it is for a client only */
    const char *grant;    /* "agent@train#3", in the name "tutti:..."; NULL = none */
} tutti_auth_certificate;

/*
 * A certificate that the folder's authority signs; it does not outlive that.
 *
 * TUTTI_INVALID_ARGUMENT  names that are none, an authority that is none or has expired
 * TUTTI_ALREADY_EXISTS    there is one of that name
 */
tutti_code tutti_auth_certificate_make(const char *folder, const tutti_auth_certificate *wish,
                                       tutti_error *err);

/* What a person wants to know. Any thread. */
typedef struct tutti_auth_shown {
    char subject[256];
    char issuer[256];
    char names[2048]; /* "DNS:localhost, IP:127.0.0.1, URI:tutti:client" */
    char begins[64];  /* "Nov 21 16:19:54 2026 GMT" */
    char ends[64];
    long days_left; /* negative: it has expired */
} tutti_auth_shown;

/* TUTTI_INVALID_ARGUMENT, TUTTI_NOT_FOUND, ...: no certificate in the file; from the system */
tutti_code tutti_auth_certificate_show(const char *path, tutti_auth_shown *ret, tutti_error *err);

#endif
