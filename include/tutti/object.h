/*
 * Objects: bytes of any length with a content type, between ranks, as the object collectives of
 * PyTorch. What the bytes mean is the callers' business; the library runs and unpickles nothing.
 *
 *     const char *text = "{\"loss\": 0.5}";
 *     tutti_object mine = {"application/json", (void *)text, strlen(text)};
 *     tutti_object *all;
 *     size_t count;
 *
 *     code = tutti_object_all_gather(client, NULL, &mine, &all, &count, &err);
 *     if (code == TUTTI_OK) {
 *         printf("%s\n", (const char *)all[0].data);           // of group rank 0
 *         tutti_objects_free(all, count);
 *     }
 *
 * How. While an object travels it is a UINT8 tensor that holds a message tutti.v1.Object, moved by
 * the op of the same name in tutti/op.h; so ranks whose programs are in other languages understand
 * it. The functions delete their tensors before they return.
 *
 * Parameters of all functions here:
 *
 * [in]  client  connected to an agent
 * [in]  op      group, root, peer, global, tag and timeout_ms are looked at, as in tutti/op.h; all
 *               else is ignored, step and token too. NULL = as tutti_op_init
 * [out] err     NULL = not wanted
 *
 * Outputs are written on success only. Threads: as tutti/op.h; each function blocks.
 *
 * Statuses of all functions here: those of the op (tutti/op.h), of an upload and a download
 * (tutti/tensor.h), and:
 *
 * TUTTI_INVALID_ARGUMENT    BAD_NAME: a content type without a NUL in its 128 bytes
 *                           NULL_ARGUMENT: NULL, where an object must be given
 * TUTTI_RESOURCE_EXHAUSTED  no memory for a copy of the object: in this process, or MEMORY_LIMIT in
 *                           the agent
 * TUTTI_DATA_LOSS           what came is no object but a plain tensor, which is deleted
 *
 * Caveats
 *
 * - If putting the object into the agent fails, the op is still called, with a tensor that is not
 *   there: the agent refuses it, and the other ranks hear of it at once. Only a send is not called:
 *   its receiver waits until its time is over.
 * - An object is copied several times on its way, and all objects of a scatter are one tensor of
 *   the root's agent. Large arrays belong into tensors (tutti/tensor.h).
 * - The tensors are made where tutti_set_device says. For a client whose device is a GPU, objects
 *   go through that GPU.
 */
#ifndef TUTTI_OBJECT_H
#define TUTTI_OBJECT_H

#include <stddef.h>

#include "tutti/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a content type, without the final NUL. */
#define TUTTI_CONTENT_TYPE_MAX 127

/* Bytes that say what they are. */
typedef struct tutti_object {
    /* "application/json", "application/x-npy": 0 to 127 bytes of UTF-8 and a NUL. Not checked. */
    char content_type[TUTTI_CONTENT_TYPE_MAX + 1];
    /*
     * [in]         borrowed until the function returns, not written; NULL is fine if size is 0
     * [out, owned] freed by tutti_objects_free or tutti_object_clear; a NUL is behind the bytes
     */
    void *data;
    /* Bytes of data, without that NUL; 0 is fine. */
    size_t size;
} tutti_object;

/*
 * Frees the bytes of `count` objects, and then the array itself. Any thread.
 *
 * [in, moved] objects  as tutti_object_all_gather or tutti_object_gather gave it; NULL is fine
 */
TUTTI_API void tutti_objects_free(tutti_object *objects, size_t count);

/*
 * Frees the bytes of one object that stands in the caller's memory, and empties it. For a
 * ret_object of the functions below. Any thread.
 *
 * [in] object  not NULL
 */
TUTTI_API void tutti_object_clear(tutti_object *object);

/*
 * Every rank gets the root's object (tutti_broadcast).
 *
 * [in]         object      of the root; NULL on the others
 * [out, owned] ret_object  a copy, on the root too; tutti_object_clear it. NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT  BAD_ROOT: op->root is no rank of the group; ROOT_INPUT_MISSING: the root
 *                         gave NULL: all ranks get it
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_object_broadcast(tutti_client *client, const tutti_op *op,
                                            const tutti_object *object, tutti_object *ret_object,
                                            tutti_error *err);

/*
 * Every rank gets the objects of all ranks (tutti_all_gather).
 *
 * [in]         object       this rank's, not NULL; lengths and content types may differ
 * [out, owned] ret_objects  one of each group rank, in their order; tutti_objects_free them
 * [out]        ret_count    the group's size
 */
TUTTI_API tutti_code tutti_object_all_gather(tutti_client *client, const tutti_op *op,
                                             const tutti_object *object, tutti_object **ret_objects,
                                             size_t *ret_count, tutti_error *err);

/*
 * The root gets the objects of all ranks (tutti_gather).
 *
 * [in]         object       this rank's, not NULL
 * [out, owned] ret_objects  on the root: one of each group rank, in their order; tutti_objects_free
 *                           them. On the others: NULL
 * [out]        ret_count    on the root: the group's size. On the others: 0
 *
 * TUTTI_INVALID_ARGUMENT  BAD_ROOT
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_object_gather(tutti_client *client, const tutti_op *op,
                                         const tutti_object *object, tutti_object **ret_objects,
                                         size_t *ret_count, tutti_error *err);

/*
 * Each rank gets one of the root's objects: group rank i gets object i (tutti_scatter).
 *
 * [in]         objects     of the root, one for each group rank; NULL on the others
 * [in]         count       of the root: the group's size. Not looked at where objects is NULL
 * [out, owned] ret_object  this rank's, a copy on the root too; tutti_object_clear it. NULL = not
 *                          wanted
 *
 * TUTTI_INVALID_ARGUMENT  SPLITS_MISMATCH: count is not the group's size; BAD_ROOT;
 *                         ROOT_INPUT_MISSING: the root gave no objects: all ranks get these
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_object_scatter(tutti_client *client, const tutti_op *op,
                                          const tutti_object *objects, size_t count,
                                          tutti_object *ret_object, tutti_error *err);

/*
 * Give an object to one rank; returns when that rank has taken it (tutti_send).
 *
 * [in] op      `peer` must be set
 * [in] object  not NULL
 *
 * TUTTI_INVALID_ARGUMENT  RANK_NOT_IN_GROUP: no peer, or no rank of the group; SELF_PEER; BAD_TAG
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_object_send(tutti_client *client, const tutti_op *op,
                                       const tutti_object *object, tutti_error *err);

/*
 * Take an object from one rank, or from whichever sends first (tutti_recv).
 *
 * [in]         op          `peer` = TUTTI_ANY_SOURCE, the default, takes any
 * [out, owned] ret_object  tutti_object_clear it. NULL = not wanted: it is taken and forgotten
 * [out]        ret_source  the sender's rank in the job, not its group rank; NULL = not wanted. It
 *                          is undefined if the function fails
 *
 * TUTTI_INVALID_ARGUMENT  RANK_NOT_IN_GROUP, SELF_PEER, BAD_TAG
 * TUTTI_DATA_LOSS         what came is no object; its sender has been told that it was taken
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_object_recv(tutti_client *client, const tutti_op *op,
                                       tutti_object *ret_object, uint32_t *ret_source,
                                       tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
