/*
 * Grant: what somebody may do, as text "ROLE[@JOB][#RANKS]": "agent@train#0-3,7". In tokens it
 * comes as claims, in certificates as the URI "tutti:agent@train#0-3,7". Any thread.
 */
#ifndef TUTTI_AUTH_GRANT_H
#define TUTTI_AUTH_GRANT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/error.h"
#include "tutti/types.h"

#define TUTTI_AUTH_IDENTITY_MAX 255 /* bytes of a name */
#define TUTTI_AUTH_RANGES_MAX 64    /* runs of ranks in one grant */

typedef enum tutti_auth_role {
    TUTTI_AUTH_CLIENT = 1, /* works with tensors, keys and groups */
    TUTTI_AUTH_AGENT = 2,  /* takes a seat */
    TUTTI_AUTH_ADMIN = 4,  /* all of it */
} tutti_auth_role;

typedef struct tutti_auth_range {
    uint32_t first;
    uint32_t last;
} tutti_auth_range;

typedef struct tutti_auth_grant {
    atomic_uint refs;
    unsigned roles;                             /* of tutti_auth_role */
    char identity[TUTTI_AUTH_IDENTITY_MAX + 1]; /* who it is, for logs */
    char job[TUTTI_NAME_MAX + 1];               /* "" = every job */
    size_t range_count;                         /* 0 = every rank */
    tutti_auth_range ranges[TUTTI_AUTH_RANGES_MAX];
    int64_t expires_s; /* Unix time; INT64_MAX = never */
} tutti_auth_grant;

/* "client", "agent", "admin"; 0 = none of them. */
unsigned tutti_auth_role_from(const char *name);

/* "agent", "client or agent". */
void tutti_auth_roles_print(unsigned roles, char *ret_text, size_t size);

/*
 * "0-3,7" into the grant. TUTTI_INVALID_ARGUMENT: not of that form, or more than
 * TUTTI_AUTH_RANGES_MAX runs
 */
tutti_code tutti_auth_ranks_parse(const char *text, tutti_auth_grant *grant, tutti_error *err);

/* The whole text. Identity and expiry are the caller's. TUTTI_INVALID_ARGUMENT: what is wrong */
tutti_code tutti_auth_grant_parse(const char *text, tutti_auth_grant *ret_grant, tutti_error *err);

bool tutti_auth_grant_has_rank(const tutti_auth_grant *grant, uint32_t rank);

/* "rank 2", "ranks 0-3, 7". */
void tutti_auth_ranks_print(const tutti_auth_grant *grant, char *ret_text, size_t size);

#endif
