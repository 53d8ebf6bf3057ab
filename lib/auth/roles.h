/*
 * Roles: who may call what. One table, one row for every method of every service; a method without
 * a row may be called by nobody who shows a token. Static; any thread.
 */
#ifndef TUTTI_AUTH_ROLES_H
#define TUTTI_AUTH_ROLES_H

#include <stdbool.h>
#include <stddef.h>

/* What a grant's job and ranks are compared with. */
typedef enum tutti_auth_scope {
    TUTTI_AUTH_SCOPE_NONE = 1, /* nothing: it shows nothing of any job */
    TUTTI_AUTH_SCOPE_REQUEST,  /* the job, and the member, that the request names */
    TUTTI_AUTH_SCOPE_SEAT,     /* also the rank it asks for, or the number for which it stands */
    TUTTI_AUTH_SCOPE_SERVER,   /* the job and the rank of the agent that is called */
    TUTTI_AUTH_SCOPE_EARLY, /* as SERVER, but before an agent has a rank, its job alone: who waits
                             * until it has joined asks this */
    TUTTI_AUTH_SCOPE_ALL,   /* it shows all jobs: not for who is bound to one */
} tutti_auth_scope;

typedef struct tutti_auth_row {
    const char *method; /* "/tutti.v1.StoreService/Get" */
    unsigned roles;     /* of tutti_auth_role; an admin may call everything that has a row */
    tutti_auth_scope scope;
    bool open; /* answered without credentials: the server knows that by itself */
} tutti_auth_row;

/* NULL = nobody may. */
const tutti_auth_row *tutti_auth_row_find(const char *method);

#endif
