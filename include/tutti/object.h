/*
 * Objects: bytes of any length with a content type, between ranks. Each is a tensor that holds a
 * message tutti.v1.Object while it travels, so ranks in any language understand each other; what
 * the bytes mean is the callers' business.
 *
 *     tutti_object mine = {.content_type = "application/json", .data = text, .size = strlen(text)};
 *     tutti_object *all;
 *     size_t count;
 *
 *     code = tutti_object_all_gather(client, NULL, &mine, &all, &count, &err);
 *     ...
 *     tutti_objects_free(all, count);
 *
 * Of `op`, group, root, global, peer, tag and timeout_ms are looked at; NULL = as tutti_op_init.
 * Codes as those of the op in tutti/client.h, and:
 *
 *   TUTTI_INVALID_ARGUMENT  BAD_NAME: a content type of more than 127 bytes
 *   TUTTI_DATA_LOSS         what came is no object
 */
#ifndef TUTTI_OBJECT_H
#define TUTTI_OBJECT_H

#include <stddef.h>

#include "tutti/op.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_CONTENT_TYPE_MAX 127

typedef struct tutti_object {
    char content_type[TUTTI_CONTENT_TYPE_MAX + 1];
    void *data; /* [in] not written; [out, owned] see tutti_objects_free */
    size_t size;
} tutti_object;

/* The bytes of `count` of them, and then the array itself. NULL is fine. */
TUTTI_API void tutti_objects_free(tutti_object *objects, size_t count);

/* The bytes of one that stands in the caller's memory; it is empty then. */
TUTTI_API void tutti_object_clear(tutti_object *object);

/* [in] object  of the root; NULL on the others. [out] ret_object  on the root too */
TUTTI_API tutti_code tutti_object_broadcast(tutti_client *client, const tutti_op *op,
                                            const tutti_object *object, tutti_object *ret_object,
                                            tutti_error *err);

/* [out, owned] ret_objects  one of each group rank, in their order */
TUTTI_API tutti_code tutti_object_all_gather(tutti_client *client, const tutti_op *op,
                                             const tutti_object *object, tutti_object **ret_objects,
                                             size_t *ret_count, tutti_error *err);

/* The same for the root alone; on the others *ret_objects is NULL, *ret_count 0. */
TUTTI_API tutti_code tutti_object_gather(tutti_client *client, const tutti_op *op,
                                         const tutti_object *object, tutti_object **ret_objects,
                                         size_t *ret_count, tutti_error *err);

/* [in] objects  of the root, one for each group rank; NULL on the others */
TUTTI_API tutti_code tutti_object_scatter(tutti_client *client, const tutti_op *op,
                                          const tutti_object *objects, size_t count,
                                          tutti_object *ret_object, tutti_error *err);

TUTTI_API tutti_code tutti_object_send(tutti_client *client, const tutti_op *op,
                                       const tutti_object *object, tutti_error *err);

/* [out] ret_source  the sender's rank in the job; NULL = not wanted */
TUTTI_API tutti_code tutti_object_recv(tutti_client *client, const tutti_op *op,
                                       tutti_object *ret_object, uint32_t *ret_source,
                                       tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
