/*
 * Errors: what went wrong, in words.
 *
 * A function that can fail returns a tutti_code and takes `tutti_error *err` last; NULL means
 * "the code will do". The struct sits on the caller's stack: nothing is allocated, nothing is
 * thread-local, so it survives hopping between threads and works when memory is gone. It is
 * written only when the code is not TUTTI_OK.
 */
#ifndef TUTTI_ERROR_H
#define TUTTI_ERROR_H

#include <stdint.h>

#include "tutti/code.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_ERROR_TEXT_MAX 1024  /* bytes with the final NUL; longer text is cut */
#define TUTTI_ERROR_REASON_MAX 40  /* likewise */
#define TUTTI_ERROR_GROUP_MAX 128  /* likewise; as long as a group's name can be */
#define TUTTI_ERROR_RANK_NONE (-1) /* no single rank is the culprit */

/* What is broken, and so what the caller has to replace before it can go on. */
typedef enum tutti_scope {
    TUTTI_SCOPE_CALL = 0,  /* this call only: mend the arguments, or try again */
    TUTTI_SCOPE_GROUP = 1, /* the group: its members have to agree again */
    TUTTI_SCOPE_AGENT = 2, /* the agent or the way to it: reconnect */
} tutti_scope;

typedef struct tutti_error {
    tutti_code code;
    tutti_scope scope;
    int cause;          /* errno, ucs_status_t, ...: `domain` says which */
    const char *domain; /* static: "errno", "ucx", "grpc"; NULL when there is no cause */
    const char *where;  /* static: "store/store.c:61" */
    uint64_t sequence;  /* the op's number in its group; 0 = none */
    int32_t rank;       /* the culprit's rank; TUTTI_ERROR_RANK_NONE = no single one */
    char reason[TUTTI_ERROR_REASON_MAX]; /* for programs: "SHAPE_MISMATCH"; "" = the code says it */
    char group[TUTTI_ERROR_GROUP_MAX];   /* the group's name; "" = none */
    char text[TUTTI_ERROR_TEXT_MAX];     /* for people: lower case, value, limit, what to do */
} tutti_error;

#ifdef __cplusplus
}
#endif

#endif
