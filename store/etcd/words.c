/*
 * etcd's errors in words that say what to do. They are known by fragments of its texts (its Go client
 * knows them the same way), since their codes alone do not tell a full quota from too many requests.
 */
#include <stdio.h>
#include <string.h>

#include "base/error/fail.h"
#include "store/etcd/etcd_private.h"

typedef struct phrase {
    const char *etcd;
    tutti_code code;
    const char *reason;
    const char *ours;
} phrase;

static const phrase phrases[] = {
    {"database space exceeded", TUTTI_RESOURCE_EXHAUSTED, "STORE_FULL",
     "etcd is full (its quota is exceeded): compact and defragment it, clear its alarm by "
     "\"etcdctl "
     "alarm disarm\", or raise --quota-backend-bytes"},
    {"has been compacted", TUTTI_OUT_OF_RANGE, "ETCD_LOST",
     "etcd has compacted the revision that was being read"},
    {"authentication failed", TUTTI_PERMISSION_DENIED, "ETCD_REFUSED",
     "etcd refuses the user or its password (--etcd-user, --etcd-password-file)"},
    {"user name is empty", TUTTI_PERMISSION_DENIED, "ETCD_REFUSED",
     "etcd wants a user and a password, or a client certificate (--etcd-user, --etcd-cert)"},
    {"permission denied", TUTTI_PERMISSION_DENIED, "ETCD_REFUSED",
     "the user of etcd may not read and write the keys below the prefix: grant it a role with "
     "both"},
    {"authentication is not enabled", TUTTI_PERMISSION_DENIED, "ETCD_REFUSED",
     "etcd has no users (its authentication is off): leave --etcd-user out, or turn it on"},
    {"invalid auth token", TUTTI_UNAUTHENTICATED, "ETCD_REFUSED", "the token of etcd is over"},
    {"request is too large", TUTTI_INVALID_ARGUMENT, "STORE_LIMIT",
     "etcd refuses a request as too large: set its --max-request-bytes to 1572864 (the default) or "
     "more"},
    {"too many operations", TUTTI_INVALID_ARGUMENT, "STORE_LIMIT",
     "etcd refuses a transaction of 128 changes: set its --max-txn-ops to 128 (the default) or "
     "more"},
    {"lease not found", TUTTI_NOT_FOUND, "NOT_LEADER", "the lease of the leader is over"},
    {"too many requests", TUTTI_UNAVAILABLE, "ETCD_LOST", "etcd has more to do than it can"},
    {"no leader", TUTTI_UNAVAILABLE, "ETCD_LOST",
     "etcd has no leader: fewer than half of its members can talk to each other"},
    {"request timed out", TUTTI_UNAVAILABLE, "ETCD_LOST",
     "etcd did not agree in time: its members or their disks are slow, or most of them are gone"},
};

tutti_code
etcd_explain(const tutti_error *said, tutti_error *err)
{
    size_t i;

    for (i = 0; i < sizeof(phrases) / sizeof(phrases[0]); i++) {
        if (strstr(said->text, phrases[i].etcd) != NULL) {
            return TUTTI_FAIL_FOR(err, phrases[i].code, phrases[i].reason, "%s", phrases[i].ours);
        }
    }
    switch (said->code) {
    case TUTTI_UNAVAILABLE:
    case TUTTI_ABORTED:
    case TUTTI_CANCELLED:
    case TUTTI_INTERNAL:
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "ETCD_LOST", "etcd: %s", said->text);
    case TUTTI_DEADLINE_EXCEEDED:
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "ETCD_LOST", "etcd is slow or silent: %s",
                              said->text);
    default:
        return tutti_error_pass(err, said);
    }
}
