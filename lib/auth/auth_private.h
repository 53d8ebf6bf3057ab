/*
 * The inside of auth.h. The object is shared by all threads of a server. Options, rules and job
 * never change after the start; keys and remembered tokens are guarded by the lock.
 */
#ifndef TUTTI_AUTH_AUTH_PRIVATE_H
#define TUTTI_AUTH_AUTH_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

#include "auth/auth.h"
#include "auth/token.h"

#define AUTH_DIGEST_BYTES 32
#define AUTH_REMEMBERED 256 /* tokens whose signature need not be checked again */

typedef struct remembered {
    unsigned char digest[AUTH_DIGEST_BYTES];
    tutti_auth_grant *grant; /* NULL = free */
} remembered;

struct tutti_auth {
    const tutti_auth_options *options; /* borrowed */
    tutti_auth_rules rules;
    tutti_auth_subject_rule *subjects;
    char job[TUTTI_NAME_MAX + 1]; /* "" = not an agent's */
    atomic_int_least64_t rank;    /* -1 = not known yet */
    pthread_mutex_t lock;         /* guards all below */
    tutti_auth_keys *keys;        /* NULL = no tokens are asked for */
    struct timespec changed;      /* of the keys' file, when it was read */
    ino_t inode;
    uint64_t look_ns; /* when to look at it again */
    remembered places[AUTH_REMEMBERED];
};

/* auth.c: what a token says. Codes as tutti_auth_token_read. [out, owned] ret_grant */
tutti_code auth_find_token(tutti_auth *self, const char *token, tutti_auth_grant **ret_grant,
                           tutti_error *err);

/* A copy with one reference; NULL without memory, which `err` says. */
tutti_auth_grant *auth_grant_dup(const tutti_auth_grant *from, tutti_error *err);

#endif
