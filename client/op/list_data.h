/* Private to client: several arrays of the caller's as one list of an op, packed into one memory. */
#ifndef TUTTI_CLIENT_OP_LIST_DATA_H
#define TUTTI_CLIENT_OP_LIST_DATA_H

#include "client/op/collectives.h"
#include "client/op/op.h"
#include "client/op/place.h"
#include "tutti/list.h"
#include "tutti/op_data.h"
#include "tutti/tensor.h"

/*
 * The arrays. Where there is an arena each is a range of it, unless all of them are short: then, and where there is no
 * arena, their bytes are packed one behind the other. Small lists travel inside the call, as a list of inline tensors;
 * large ones become ranges of one temporary tensor of bytes, which is uploaded once.
 */
typedef struct client_list {
    tutti_client *client;
    client_blocks *places; /* [owned] of the arena, one for each array; NULL = they are packed */
    size_t count;
    tutti_op_data *arrays; /* [owned] a copy */
    tutti_spec *specs;     /* [owned] of what is given */
    tutti_spec *rooms;     /* [owned] of what fits into the results; of small ones that are taken */
    bool gives;
    bool takes;
    bool small;
    bool in_place;                      /* the results overwrite the inputs: `out` is `in` */
    uint64_t in_bytes;                  /* of all, packed */
    uint64_t out_bytes;                 /* of all results, packed */
    char *in;                           /* [owned] NULL = nothing is given */
    char *out;                          /* [owned] unless in_place; NULL = nothing is taken */
    char (*texts)[TUTTI_RANGE_MAX + 1]; /* [owned] of inputs, then of outputs; for large ones */
    const char **names;                 /* [owned] likewise */
} client_list;

/*
 * Copy the arrays, and copy what is given to the arena or pack it.
 *
 * [in]         op  complete; its form and lists are looked at
 * [out, owned] ret_list  client_list_free it
 *
 * TUTTI_INVALID_ARGUMENT  NO_OP, LIST_SIZE, EMPTY_LIST, BAD_FORM, BAD_LIST, BAD_DTYPE, BAD_SHAPE, SIZE_MISMATCH
 * TUTTI_RESOURCE_EXHAUSTED
 */
tutti_code client_list_make(tutti_client *client, tutti_op_kind kind, const tutti_op *op,
                            const tutti_op_data *arrays, size_t count, client_list **ret_list,
                            tutti_error *err);

/* Of small ones: the memory of the op. It borrows from the list. */
client_inline client_list_memory(const client_list *self);

/*
 * Of large ones: the op is one on ranges of the tensors of these names, which it borrows from the list. Of those in the
 * arena: of its ranges; the names are not looked at.
 */
void client_list_write(client_list *self, const char *input, const char *output, tutti_op *op);

/*
 * Write the results to the caller's memory. `more`: what the op has told of them; NULL = nothing, their sizes were
 * checked by the agent. TUTTI_INVALID_ARGUMENT SIZE_MISMATCH, DTYPE_MISMATCH: nothing was written
 */
tutti_code client_list_unpack(const client_list *self, const tutti_op_more *more, tutti_error *err);

/* What it holds of the arena goes back, after its results were written; doubt: as client_blocks_free. Again is fine. */
void client_list_leave(client_list *self, bool doubt);

void client_list_free(client_list *self); /* NULL is fine */

#endif
