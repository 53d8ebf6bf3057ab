/* Private to client: several arrays of the caller's as one list of an op, packed into one memory. */
#ifndef TUTTI_CLIENT_OP_LIST_DATA_H
#define TUTTI_CLIENT_OP_LIST_DATA_H

#include "client/op/collectives.h"
#include "client/op/op.h"
#include "tutti/list.h"
#include "tutti/op_data.h"
#include "tutti/tensor.h"

/*
 * The arrays, and their bytes one behind the other. Small ones travel inside the call, as a list of inline tensors;
 * large ones become ranges of one temporary tensor of bytes, which is uploaded once.
 */
typedef struct client_list {
    size_t count;
    tutti_op_data *arrays; /* [owned] a copy */
    tutti_spec *specs;     /* [owned] of what is given */
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
 * Copy the arrays and pack what is given.
 *
 * [in]         op  complete; its form and lists are looked at
 * [out, owned] ret_list  client_list_free it
 *
 * TUTTI_INVALID_ARGUMENT  NO_OP, LIST_SIZE, EMPTY_LIST, BAD_FORM, BAD_LIST, BAD_DTYPE, BAD_SHAPE, SIZE_MISMATCH
 * TUTTI_RESOURCE_EXHAUSTED
 */
tutti_code client_list_make(tutti_op_kind kind, const tutti_op *op, const tutti_op_data *arrays,
                            size_t count, client_list **ret_list, tutti_error *err);

/* Of small ones: the memory of the op. It borrows from the list. */
client_inline client_list_memory(const client_list *self);

/* Of large ones: the op is one on ranges of the tensors of these names, which it borrows from the list. */
void client_list_write(client_list *self, const char *input, const char *output, tutti_op *op);

/*
 * Write the results to the caller's memory. `more`: what the op has told of them; NULL = nothing, their sizes were
 * checked by the agent. TUTTI_INVALID_ARGUMENT SIZE_MISMATCH, DTYPE_MISMATCH: nothing was written
 */
tutti_code client_list_unpack(const client_list *self, const tutti_op_more *more, tutti_error *err);

void client_list_free(client_list *self); /* NULL is fine */

#endif
