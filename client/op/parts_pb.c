/* CollectivesService: the ops that cut tensors into parts, join parts, or have a root. */
#include "client/conn/types_pb.h"
#include "client/op/collectives.h"
#include "client/op/op_pb.h"

/* protobuf-c's pointers are not const. */
static int64_t *
shape_of(const tutti_op *op)
{
    return (int64_t *)(uintptr_t)op->out_shape;
}

/* ------------------------------------------------------------------------------ reducing */

static void
write_reduce(const tutti_op *op, const client_inline *memory, Tutti__V1__ReduceRequest *request)
{
    (void)memory;
    request->reduce_op = (Tutti__V1__ReduceOp)op->reduce;
    request->factor = op->factor;
    request->coalesced = op->coalesced;
    CLIENT_WRITE_ROOT(request, REDUCE, op);
}

CLIENT_OP_METHOD(reduce, Reduce, REDUCE)

static void
write_reduce_scatter(const tutti_op *op, const client_inline *memory,
                     Tutti__V1__ReduceScatterRequest *request)
{
    (void)memory;
    request->reduce_op = (Tutti__V1__ReduceOp)op->reduce;
    request->factor = op->factor;
    request->axis = op->axis;
    request->form = (Tutti__V1__Form)op->form;
    request->out_shape = shape_of(op);
    request->n_out_shape = op->out_shape_count;
    CLIENT_WRITE_AXES(request, op);
}

CLIENT_OP_METHOD(reduce_scatter, ReduceScatter, REDUCE_SCATTER)

/* ------------------------------------------------------------------------------ with a root */

static void
write_gather(const tutti_op *op, const client_inline *memory, Tutti__V1__GatherRequest *request)
{
    (void)memory;
    request->axis = op->axis;
    request->form = (Tutti__V1__Form)op->form;
    request->out_shape = shape_of(op);
    request->n_out_shape = op->out_shape_count;
    CLIENT_WRITE_AXES(request, op);
    CLIENT_WRITE_ROOT(request, GATHER, op);
}

CLIENT_OP_METHOD(gather, Gather, GATHER)

static void
write_scatter(const tutti_op *op, const client_inline *memory, Tutti__V1__ScatterRequest *request)
{
    request->inline_result = memory != NULL && memory->takes;
    request->axis = op->axis;
    request->form = (Tutti__V1__Form)op->form;
    request->out_shape = shape_of(op);
    request->n_out_shape = op->out_shape_count;
    request->splits = (int64_t *)(uintptr_t)op->splits;
    request->n_splits = op->split_count;
    request->user_meta = client_write_bytes(op->user_meta, op->user_meta_size);
    CLIENT_WRITE_AXES(request, op);
    request->device = client_write_text(op->device);
    CLIENT_WRITE_ROOT(request, SCATTER, op);
}

CLIENT_OP_METHOD_AND(scatter, Scatter, SCATTER, response->user_meta)

/* ------------------------------------------------------------------------------ rank to rank */

static void
write_all_to_all(const tutti_op *op, const client_inline *memory,
                 Tutti__V1__AllToAllRequest *request)
{
    (void)memory;
    request->split_axis = op->split_axis;
    request->concat_axis = op->concat_axis;
    request->form = (Tutti__V1__Form)op->form;
    request->input_splits =
        (int64_t *)(uintptr_t)op->input_splits; /* protobuf-c's pointers are not const */
    request->n_input_splits = op->input_split_count;
    request->output_splits = (int64_t *)(uintptr_t)op->output_splits;
    request->n_output_splits = op->output_split_count;
}

CLIENT_OP_METHOD(all_to_all, AllToAll, ALL_TO_ALL)

static void
write_permute(const tutti_op *op, const client_inline *memory, Tutti__V1__PermuteRequest *request)
{
    (void)memory;
    request->src_dst = (int32_t *)(uintptr_t)op->src_dst; /* protobuf-c's pointers are not const */
    request->n_src_dst = op->src_dst_count;
    request->coalesced = op->coalesced;
}

CLIENT_OP_METHOD(permute, Permute, PERMUTE)
