/*
 * Metadata: small values between the members of a group, by way of the coordinator. Shapes, names,
 * addresses: what ranks tell each other before they can call an op.
 *
 *     void **values;
 *     size_t *sizes;
 *     size_t count;
 *
 *     code = tutti_metadata_all_gather(client, NULL, hostname, strlen(hostname), &values, &sizes,
 *                                      &count, &err);
 *     for (i = 0; code == TUTTI_OK && i < count; i++) {
 *         printf("rank %zu is on %.*s\n", i, (int)sizes[i], (const char *)values[i]);
 *     }
 *     tutti_metadata_free(values, sizes, count);
 *
 * Calls match by order: the first call of each member on a group and key belongs together, and so
 * the second, and so on. Every call waits for the members that it needs and ends by its time at the
 * latest; the text names those that did not come. Then that meeting is over for all, and the next
 * call begins the next one. Different keys are independent of each other.
 *
 * No agent moves these values, and no tensor is made. Values are for programs to read; for data use
 * an op of tutti/op.h.
 *
 * Threads, errors, outputs and common statuses are those of tutti/client.h. The client needs an
 * agent, which says who it is. If the connection to the coordinator breaks in the middle, libtutti
 * calls again until the time is over; the call counts once.
 *
 * Statuses common to the functions of this header
 *
 *   TUTTI_FAILED_PRECONDITION  METHOD_MISMATCH: one member called broadcast, another all_gather.
 *                              NOT_IN_GROUP: the client's rank is not in the group.
 *                              STALE_INCARNATION: the client's agent was replaced: connect again.
 *                              NO_AGENT, NO_COORDINATOR
 *   TUTTI_INVALID_ARGUMENT     BAD_KEY: more than 127 bytes; BAD_NAME: of the group; VALUE_LIMIT:
 *                              more than 1 MiB, or of all_gather more than 3 MiB together
 *   TUTTI_DEADLINE_EXCEEDED    MISSING_RANKS: the text names them. Look what their programs do, or
 *                              give a longer time
 *   TUTTI_UNAVAILABLE          RANK_LOST: a rank that is waited for is gone
 *   TUTTI_NOT_FOUND            NO_JOB, NO_RANK, NO_GROUP
 *   TUTTI_RESOURCE_EXHAUSTED   WAITER_LIMIT, METADATA_LIMIT: of the coordinator; MEETING_LIMIT: the
 *                              client is too many calls ahead of another member
 *
 * Caveats
 *
 * - One member that makes a call more than the others is one call ahead for good. How it looks:
 *   values of another meeting. What to do: a key for each purpose.
 */
#ifndef TUTTI_METADATA_H
#define TUTTI_METADATA_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begin with tutti_metadata_options_init. */
typedef struct tutti_metadata_options {
    /* Bytes of this struct, set by init. */
    size_t size;
    /* NULL (default) or "" = "world". */
    const char *group;
    /* Tells independent sequences of calls apart: 0 to 127 bytes. NULL (default) = "". */
    const char *key;
    /* Milliseconds to wait for the others; 0 (default) = the client's timeout_ms. */
    uint32_t timeout_ms;
} tutti_metadata_options;

/* [out] options  every field as its comment calls default */
TUTTI_API void tutti_metadata_options_init(tutti_metadata_options *options);

/*
 * The root's value, for all members.
 *
 * [in]         options     NULL = defaults
 * [in]         root        its group rank, the same at all members
 * [in]         value       of the root: `value_size` bytes, at most 1 MiB; not looked at on others
 * [out, owned] ret_value   the root's, with a NUL behind it; tutti_free it; NULL = not wanted
 * [out]        ret_size    bytes without that NUL; NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT     BAD_ROOT: no group rank
 * TUTTI_FAILED_PRECONDITION  ROOT_MISMATCH: members name different roots
 * and the statuses common to this header
 */
TUTTI_API tutti_code tutti_metadata_broadcast(tutti_client *client,
                                              const tutti_metadata_options *options, uint32_t root,
                                              const void *value, size_t value_size,
                                              void **ret_value, size_t *ret_size, tutti_error *err);

/*
 * The values of all members, for all members.
 *
 * [in]         options     NULL = defaults
 * [in]         value       `value_size` bytes of this member; NULL is fine for 0
 * [out, owned] ret_values  an array of `ret_count`, by group rank, each with a NUL behind it
 * [out, owned] ret_sizes   an array of `ret_count`: bytes of each without that NUL
 * [out]        ret_count   members of the group; tutti_metadata_free all three
 *
 * The statuses are those common to this header.
 */
TUTTI_API tutti_code tutti_metadata_all_gather(tutti_client *client,
                                               const tutti_metadata_options *options,
                                               const void *value, size_t value_size,
                                               void ***ret_values, size_t **ret_sizes,
                                               size_t *ret_count, tutti_error *err);

/* Free what tutti_metadata_all_gather has given. [in, moved] values, sizes  NULL is fine */
TUTTI_API void tutti_metadata_free(void **values, size_t *sizes, size_t count);

#ifdef __cplusplus
}
#endif

#endif
