/*
 * What an op asks of the device, as lists; nothing is launched here. Engine's thread, in start.
 *
 * Stages come from the backend's pool in the stream's order, so memory that an op in front still
 * uses cannot be given out twice, and giving a stage back needs no waiting (tutti_nccl_plan_fini,
 * behind all that was launched).
 *
 * Reductions that NCCL lacks are done in slices: each rank gets its share of the elements from all
 * ranks, reduces it by a kernel in the order of ranks, and gives it to all, or to the root.
 */
#include "coll/nccl/plan.h"

#include "base/error/fail.h"
#include "coll/nccl/fail.h"

#define LIST_BYTES_MAX (64u << 20) /* of one list of a plan; more is a mistake */

void
tutti_nccl_plan_init(nccl_plan *plan, cudaStream_t stream, cudaMemPool_t pool)
{
    plan->stream = stream;
    plan->pool = pool;
    tutti_buf_init(&plan->packs, LIST_BYTES_MAX);
    tutti_buf_init(&plan->first, LIST_BYTES_MAX);
    tutti_buf_init(&plan->kernels, LIST_BYTES_MAX);
    tutti_buf_init(&plan->second, LIST_BYTES_MAX);
    tutti_buf_init(&plan->unpacks, LIST_BYTES_MAX);
    tutti_buf_init(&plan->stages, LIST_BYTES_MAX);
}

void
tutti_nccl_plan_fini(nccl_plan *plan)
{
    void *const *stages = (void *const *)(const void *)plan->stages.data;
    size_t i;

    for (i = 0; i < plan->stages.size / sizeof(*stages); i++) {
        (void)cudaFreeAsync(stages[i], plan->stream);
    }
    tutti_buf_fini(&plan->packs);
    tutti_buf_fini(&plan->first);
    tutti_buf_fini(&plan->kernels);
    tutti_buf_fini(&plan->second);
    tutti_buf_fini(&plan->unpacks);
    tutti_buf_fini(&plan->stages);
}

tutti_code
tutti_nccl_plan_stage(nccl_plan *plan, uint64_t bytes, unsigned char **ret_stage, tutti_error *err)
{
    void *stage = NULL;
    cudaError_t said;
    tutti_code code;

    said = cudaMallocFromPoolAsync(&stage, bytes > 0 ? bytes : 1, plan->pool, plan->stream);
    if (said != cudaSuccess) {
        return tutti_nccl_fail_cuda(err, "cudaMallocFromPoolAsync", said);
    }
    code = tutti_buf_add(&plan->stages, &stage, sizeof(stage), err);
    if (code != TUTTI_OK) {
        (void)cudaFreeAsync(stage, plan->stream);
        return code;
    }
    *ret_stage = stage;
    return TUTTI_OK;
}

tutti_code
tutti_nccl_plan_copy(tutti_buf *where, const tutti_strided *to, const tutti_strided *from,
                     tutti_error *err)
{
    const nccl_copy copy = {.to = *to, .from = *from};

    if (tutti_strided_bytes(to) == 0 || to->base == from->base) {
        return TUTTI_OK;
    }
    return tutti_buf_add(where, &copy, sizeof(copy), err);
}

/*
 * A call without elements is left out. All ranks leave it out alike, since counts were agreed on.
 */
tutti_code
tutti_nccl_plan_call(tutti_buf *where, const nccl_call *call, tutti_error *err)
{
    return call->count == 0 ? TUTTI_OK : tutti_buf_add(where, call, sizeof(*call), err);
}

tutti_code
tutti_nccl_plan_move(tutti_buf *where, nccl_call_kind kind, const tutti_strided *piece,
                     uint32_t peer, tutti_error *err)
{
    const nccl_call call = {.kind = kind,
                            .input = piece->base,
                            .output = piece->base,
                            .count = tutti_strided_bytes(piece),
                            .dtype = TUTTI_DTYPE_UINT8,
                            .peer = peer};

    return tutti_nccl_plan_call(where, &call, err);
}

tutti_code
tutti_nccl_plan_kernel(nccl_plan *plan, const nccl_kernel *kernel, tutti_error *err)
{
    return tutti_buf_add(&plan->kernels, kernel, sizeof(*kernel), err);
}

/* ------------------------------------------------------------------------------ reductions */

/* NCCL has these with our rules; FP8, BOOL, 16-bit integers and bits it has not, or otherwise. */
bool
tutti_nccl_is_native(tutti_reduce reduce, tutti_dtype dtype)
{
    switch (dtype) {
    case TUTTI_DTYPE_UINT8:
    case TUTTI_DTYPE_UINT32:
    case TUTTI_DTYPE_UINT64:
    case TUTTI_DTYPE_INT8:
    case TUTTI_DTYPE_INT32:
    case TUTTI_DTYPE_INT64:
        return reduce == TUTTI_REDUCE_SUM || reduce == TUTTI_REDUCE_PROD ||
               reduce == TUTTI_REDUCE_MIN || reduce == TUTTI_REDUCE_MAX;
    case TUTTI_DTYPE_FP16:
    case TUTTI_DTYPE_BF16:
    case TUTTI_DTYPE_FP32:
    case TUTTI_DTYPE_FP64:
        return true; /* bit ops were refused before */
    case TUTTI_DTYPE_COMPLEX64:
    case TUTTI_DTYPE_COMPLEX128:
        return true; /* SUM, AVG, PREMUL_SUM: of the parts, as if they were elements */
    default:
        return false;
    }
}

static nccl_call
is_reducing(const tutti_coll_op *op, nccl_call_kind kind, const void *input, void *output,
            uint64_t count)
{
    return (nccl_call){.kind = kind,
                       .input = input,
                       .output = output,
                       .count = count,
                       .dtype = op->args.spec.dtype,
                       .reduce = op->args.reduce,
                       .factor = op->args.factor,
                       .peer = op->args.root};
}

/* ------------------------------------------------------------------------------ slices
 *
 * What NCCL cannot reduce: each rank gets its share of the elements from all, reduces it with a
 * kernel, and gives the result to all, or to the root.
 */

typedef struct slices {
    nccl_plan *plan;
    const tutti_coll_op *op;
    uint64_t count;
    uint64_t element;
    uint32_t size;
    uint32_t me;
    unsigned char *output; /* of all elements; for a share of ours that goes to a root: a stage */
} slices;

static tutti_strided
slice_of(const slices *self, const void *base, uint32_t i)
{
    const uint64_t share = self->count / self->size;
    const uint64_t more = self->count % self->size;
    const uint64_t begin = i * share + (i < more ? i : more);

    return tutti_strided_view((const unsigned char *)base + begin * self->element,
                              (share + (i < more ? 1 : 0)) * self->element);
}

static tutti_code
collect_share(slices *self, tutti_error *err)
{
    const tutti_strided own = slice_of(self, self->op->input, self->me);
    const tutti_strided result = slice_of(self, self->output, self->me);
    const uint64_t bytes = tutti_strided_bytes(&own);
    nccl_kernel kernel = {.stride = bytes,
                          .input_count = self->size,
                          .reduce = self->op->args.reduce,
                          .dtype = self->op->args.spec.dtype,
                          .count = bytes / self->element,
                          .output = result.base};
    unsigned char *stage = NULL;
    tutti_code code = tutti_nccl_plan_stage(self->plan, bytes * self->size, &stage, err);
    uint32_t i;

    for (i = 0; i < self->size && code == TUTTI_OK; i++) {
        const tutti_strided theirs = slice_of(self, self->op->input, i);
        const tutti_strided room = tutti_strided_view(stage + i * bytes, bytes);

        if (i == self->me) {
            code = tutti_nccl_plan_copy(&self->plan->packs, &room, &own, err);
            continue;
        }
        code = tutti_nccl_plan_move(&self->plan->first, NCCL_CALL_SEND, &theirs, i, err);
        if (code == TUTTI_OK) {
            code = tutti_nccl_plan_move(&self->plan->first, NCCL_CALL_RECV, &room, i, err);
        }
    }
    kernel.inputs = stage;
    return code == TUTTI_OK && bytes > 0 ? tutti_nccl_plan_kernel(self->plan, &kernel, err) : code;
}

static tutti_code
give_share(slices *self, tutti_error *err)
{
    const bool to_root = self->op->args.kind == TUTTI_COLL_REDUCE;
    const tutti_strided mine = slice_of(self, self->output, self->me);
    uint32_t i;

    for (i = 0; i < self->size; i++) {
        const tutti_strided theirs = slice_of(self, self->output, i);

        if (i != self->me && (!to_root || i == self->op->args.root)) {
            TUTTI_TRY(tutti_nccl_plan_move(&self->plan->second, NCCL_CALL_SEND, &mine, i, err));
        }
        if (i != self->me && (!to_root || self->me == self->op->args.root)) {
            TUTTI_TRY(tutti_nccl_plan_move(&self->plan->second, NCCL_CALL_RECV, &theirs, i, err));
        }
    }
    return TUTTI_OK;
}

static tutti_code
plan_slices(nccl_plan *plan, const tutti_coll_op *op, tutti_error *err)
{
    slices self = {.plan = plan,
                   .op = op,
                   .count = tutti_spec_count(&op->args.spec),
                   .element = tutti_dtype_bytes(op->args.spec.dtype),
                   .size = tutti_coll_group_size(op->group),
                   .me = tutti_coll_group_rank(op->group),
                   .output = op->output};

    if (op->args.kind == TUTTI_COLL_REDUCE && self.me != op->args.root) {
        TUTTI_TRY(tutti_nccl_plan_stage(plan, self.count * self.element, &self.output, err));
    }
    TUTTI_TRY(collect_share(&self, err));
    return give_share(&self, err);
}

static tutti_code
plan_reduce(nccl_plan *plan, const tutti_coll_op *op, tutti_error *err)
{
    const nccl_call call = is_reducing(
        op, op->args.kind == TUTTI_COLL_REDUCE ? NCCL_CALL_REDUCE : NCCL_CALL_ALL_REDUCE, op->input,
        op->output, tutti_spec_count(&op->args.spec));

    return tutti_nccl_is_native(op->args.reduce, op->args.spec.dtype)
               ? tutti_nccl_plan_call(&plan->first, &call, err)
               : plan_slices(plan, op, err);
}

/* A tensor for each rank, of its own length: as many reductions in one group. */
static tutti_code
plan_reduce_list(nccl_plan *plan, const tutti_coll_op *op, tutti_error *err)
{
    uint32_t i;

    for (i = 0; i < op->args.list_count; i++) {
        const tutti_coll_tensor *tensor = &op->args.list[i];
        nccl_call call = is_reducing(op, NCCL_CALL_REDUCE, tensor->data, op->output,
                                     tutti_spec_count(&tensor->spec));

        call.peer = i;
        TUTTI_TRY(tutti_nccl_plan_call(&plan->first, &call, err));
    }
    return TUTTI_OK;
}

static tutti_code
plan_reduce_scatter(nccl_plan *plan, const tutti_coll_op *op, tutti_error *err)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    uint32_t axis;
    const tutti_spec view = tutti_nccl_view_of(op, &axis);
    const uint64_t bytes = tutti_spec_bytes(&view);
    nccl_call call = is_reducing(op, NCCL_CALL_REDUCE_SCATTER, op->input, op->output,
                                 tutti_spec_count(&view) / size);
    unsigned char *stage = NULL;
    tutti_code code = TUTTI_OK;
    uint32_t i;

    if (tutti_strided_cut(op->input, &view, axis, 0, size).rows > 1 && bytes > 0) {
        code = tutti_nccl_plan_stage(plan, bytes, &stage, err);
        call.input = stage;
    }
    for (i = 0; i < size && stage != NULL && code == TUTTI_OK; i++) {
        const tutti_strided to = tutti_strided_view(stage + i * (bytes / size), bytes / size);
        const tutti_strided from = tutti_strided_cut(op->input, &view, axis, i, size);

        code = tutti_nccl_plan_copy(&plan->packs, &to, &from, err);
    }
    return code == TUTTI_OK ? tutti_nccl_plan_call(&plan->first, &call, err) : code;
}

/* ------------------------------------------------------------------------------ the others */

static tutti_code
plan_broadcast(nccl_plan *plan, const tutti_coll_op *op, tutti_error *err)
{
    const bool root = tutti_coll_group_rank(op->group) == op->args.root;
    const nccl_call call = {.kind = NCCL_CALL_BROADCAST,
                            .input = root ? op->input : op->output,
                            .output =
                                op->output != NULL ? op->output : (void *)(uintptr_t)op->input,
                            .count = tutti_spec_bytes(&op->args.spec),
                            .dtype = TUTTI_DTYPE_UINT8,
                            .peer = op->args.root};

    return tutti_nccl_plan_call(&plan->first, &call, err);
}

static tutti_code
plan_all_gather(nccl_plan *plan, const tutti_coll_op *op, tutti_error *err)
{
    const uint32_t size = tutti_coll_group_size(op->group);
    uint32_t axis;
    const tutti_spec view = tutti_nccl_view_of(op, &axis);
    const uint64_t bytes = tutti_spec_bytes(&view);
    nccl_call call = {.kind = NCCL_CALL_ALL_GATHER,
                      .input = op->input,
                      .output = op->output,
                      .count = bytes,
                      .dtype = TUTTI_DTYPE_UINT8};
    unsigned char *stage = NULL;
    tutti_code code = TUTTI_OK;
    uint32_t i;

    if (tutti_strided_join(op->output, &view, axis, 0, size).rows > 1 && bytes > 0) {
        code = tutti_nccl_plan_stage(plan, bytes * size, &stage, err);
        call.output = stage;
    }
    for (i = 0; i < size && stage != NULL && code == TUTTI_OK; i++) {
        const tutti_strided from = tutti_strided_view(stage + i * bytes, bytes);
        const tutti_strided to = tutti_strided_join(op->output, &view, axis, i, size);

        code = tutti_nccl_plan_copy(&plan->unpacks, &to, &from, err);
    }
    return code == TUTTI_OK ? tutti_nccl_plan_call(&plan->first, &call, err) : code;
}

static tutti_code
plan_part(nccl_plan *plan, const tutti_coll_op *op, tutti_error *err)
{
    const bool list = op->args.form == TUTTI_FORM_LIST;
    const bool native = tutti_nccl_is_native(op->args.reduce, op->args.spec.dtype);

    switch (op->args.kind) {
    case TUTTI_COLL_ALL_REDUCE:
    case TUTTI_COLL_REDUCE:
        return plan_reduce(plan, op, err);
    case TUTTI_COLL_BROADCAST:
        return plan_broadcast(plan, op, err);
    case TUTTI_COLL_ALL_GATHER:
        return list ? tutti_nccl_plan_exchange(plan, op, err) : plan_all_gather(plan, op, err);
    case TUTTI_COLL_REDUCE_SCATTER:
        if (native) {
            return list ? plan_reduce_list(plan, op, err) : plan_reduce_scatter(plan, op, err);
        }
        return tutti_nccl_plan_exchange(plan, op, err);
    default:
        return tutti_nccl_plan_exchange(plan, op, err);
    }
}

/* A copy of a whole tensor for an op's `kept`; NULL: nobody has asked. Before the packs, so the
 * input is copied before an op in place writes over it; behind the unpacks for the output. */
static tutti_code
keep_plan_step(tutti_buf *where, const tutti_coll_op *op, void *copy, const void *tensor,
               tutti_error *err)
{
    const uint64_t bytes = tutti_spec_bytes(&op->args.spec);
    const tutti_strided to = tutti_strided_view(copy, bytes);
    const tutti_strided from = tutti_strided_view(tensor, bytes);

    return copy == NULL ? TUTTI_OK : tutti_nccl_plan_copy(where, &to, &from, err);
}

tutti_code
tutti_nccl_plan_op(nccl_plan *plan, tutti_coll_op *op, tutti_error *err)
{
    static const tutti_coll_kept nothing = {0};
    const uint32_t parts = tutti_coll_part_count(op);
    uint32_t k;

    for (k = 0; k < parts; k++) {
        const tutti_coll_kept *kept = op->kept != NULL ? &op->kept[k] : &nothing;

        tutti_coll_take_part(op, k);
        TUTTI_TRY(keep_plan_step(&plan->packs, op, kept->input, op->input, err));
        TUTTI_TRY(plan_part(plan, op, err));
        TUTTI_TRY(keep_plan_step(&plan->unpacks, op, kept->output, op->output, err));
    }
    return TUTTI_OK;
}
