/*
 * Share: a tensor's memory mapped into this process, where agent and program are on one host.
 *
 *     tutti_view *view;
 *     float *x;
 *
 *     tutti_tensor_map(client, "weights", TUTTI_MAP_WRITE | TUTTI_MAP_OR_COPY, &view, &err);
 *     x = tutti_view_data(view);
 *     x[0] = 1;
 *     tutti_view_push(view, &err);                         // nothing to do when it is shared
 *     tutti_all_reduce(client, &op, &result, &err);        // in place on "weights"
 *     tutti_view_pull(view, &err);                         // likewise
 *     tutti_tensor_unmap(view);
 *
 * Nothing is uploaded or downloaded: the program and the ops work on the same bytes. Where that
 * cannot be, on another host, in another network namespace, at an agent with --no-share, mapping
 * fails and says why; with TUTTI_MAP_OR_COPY it gives a copy instead and says so once (a line of
 * the log, on standard error). A program that pushes and pulls is right in both cases.
 *
 * Any thread may use a view, one at a time.
 *
 * Caveats
 *
 * - Nobody keeps the program's reads and writes apart from ops: what it reads while an op writes,
 *   or writes while an op runs, may be of before or after. Touch the memory between ops.
 * - After tutti_tensor_delete, or when the agent has ended, the memory stays mapped, but no op sees
 *   it any more: tutti_view_is_revoked. The agent counts it until it is unmapped.
 * - A child of fork has the memory too, and so keeps it from the agent until it ends or execs.
 */
#ifndef TUTTI_SHARE_H
#define TUTTI_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_view tutti_view;

#define TUTTI_MAP_WRITE 1u   /* to write it, too; else writing ends the program with SIGSEGV */
#define TUTTI_MAP_OR_COPY 2u /* a copy where there can be no mapping */

/*
 * Map all of a tensor. Waits for the ops that use it, for the client's time at most.
 *
 * [in]          client    outlives the view
 * [in]          handle    or name
 * [in]          flags     TUTTI_MAP_...
 * [out, owned]  ret_view  tutti_tensor_unmap it
 *
 * TUTTI_FAILED_PRECONDITION  SHARE_OFF, OTHER_HOST, CANNOT_SHARE: no bytes; and as a handle may be
 * TUTTI_UNAVAILABLE          NO_SHARE_SOCKET
 * TUTTI_PERMISSION_DENIED    OTHER_USER
 * TUTTI_RESOURCE_EXHAUSTED   SHARE_LIMIT
 * TUTTI_UNIMPLEMENTED        the agent is older than that
 * TUTTI_INVALID_ARGUMENT     flags that are none
 *
 * All of these but bad handles and flags lead to a copy where one is fine.
 */
TUTTI_API tutti_code tutti_tensor_map(tutti_client *client, const char *handle, uint32_t flags,
                                      tutti_view **ret_view, tutti_error *err);

/* Let go of it; what was written to a copy and not pushed is lost. NULL is fine. */
TUTTI_API void tutti_tensor_unmap(tutti_view *view);

/* The bytes; 64-byte aligned at least. Borrowed for the view's life. */
TUTTI_API void *tutti_view_data(const tutti_view *view);
TUTTI_API uint64_t tutti_view_bytes(const tutti_view *view);
TUTTI_API const tutti_handle *tutti_view_handle(const tutti_view *view); /* with its spec */

/* Is it the tensor's memory? Else it is a copy. */
TUTTI_API bool tutti_view_is_shared(const tutti_view *view);

/* Of a copy: why it is one. Borrowed for the view's life; NULL of a shared one. */
TUTTI_API const tutti_error *tutti_view_why(const tutti_view *view);

/* Of a shared one: nobody else sees these bytes any more. */
TUTTI_API bool tutti_view_is_revoked(const tutti_view *view);

/*
 * Of a copy: to the tensor, or from it. Of a shared one nothing is to do.
 *
 * TUTTI_FAILED_PRECONDITION  READ_ONLY: pushed without TUTTI_MAP_WRITE
 * others                     as tutti_tensor_write and tutti_tensor_read
 */
TUTTI_API tutti_code tutti_view_push(tutti_view *view, tutti_error *err);
TUTTI_API tutti_code tutti_view_pull(tutti_view *view, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
