/*
 * Leases: does a lease end neither early nor late, and for good?
 *
 * The store counts its time from when it has handled the call that kept it, which is between the call and its answer; and
 * anew when it has started, or has not run for a while. It ends once that time is over, and at most a slack later.
 */
#ifndef TUTTI_TESTS_SIM_LEASES_H
#define TUTTI_TESTS_SIM_LEASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum leases_kind {
    LEASES_GRANT,
    LEASES_KEEP,
    LEASES_REVOKE,
    LEASES_RESTART, /* of the store: times begin anew */
    LEASES_GONE,    /* a key has gone with it */
    LEASES_MISSED,  /* a caller was told that there is none */
} leases_kind;

/* What has happened to one lease, between two times. */
typedef struct leases_event {
    leases_kind kind;
    uint64_t begin_ns;
    uint64_t end_ns; /* without an answer: until when it may have happened */
    bool answered;   /* it has happened; else it may have */
    uint64_t ttl_ns; /* of GRANT */
} leases_event;

/*
 * [in] events  in the order of begin_ns, the first a GRANT that was answered
 * [in] end_ns  until when the history was looked at
 *
 * False: broken, and ret_words says why.
 */
bool leases_check(const leases_event *events, size_t count, uint64_t slack_ns, uint64_t end_ns,
                  char *ret_words, size_t size);

#endif
