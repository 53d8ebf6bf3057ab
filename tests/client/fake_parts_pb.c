/* Ops of the fake agent that cut, join or have a root. Two ranks that give the same. */
#include "fake_pb.h"

/* ------------------------------------------------------------------------------ answers */

static void
note_form(fake_agent *self, int axis, Tutti__V1__Form form, const int64_t *shape, size_t count)
{
    size_t i;

    assert_true(count <= TUTTI_DIMS_MAX);
    self->op_axis = axis;
    self->op_form = (tutti_form)form;
    self->op_dim_count = count;
    for (i = 0; i < count; i++) {
        self->op_dims[i] = shape[i];
    }
}

static void
note_root(fake_agent *self, bool global, int root, int root_global)
{
    self->op_root_global = global;
    self->op_root = global ? root_global : root;
}

static bool
is_root(const fake_agent *self)
{
    return self->op_root == (int)self->script.rank;
}

/* What an op makes of the bytes that it is given: as much, half of it, or twice. */
static void
give(fake_agent *self, tutti_rpc_call *call, size_t twice)
{
    if (self->op_inline) {
        fake_store(self, tutti_rpc_call_message(call), 0);
    }
    self->bytes = realloc(self->bytes, 2 * self->size + 1);
    assert_non_null(self->bytes);
    memcpy(self->bytes + self->size, self->bytes, self->size);
    self->size = self->size * twice / 2;
}

/* The bytes of an inline result. */
static const tutti_rpc_blob *
blob_of(const fake_agent *self, tutti_rpc_blob *blob)
{
    *blob = (tutti_rpc_blob){.data = self->bytes, .size = self->size};
    return (self->op_inline || self->op_inline_result) && blob->size > 0 ? blob : NULL;
}

/* ------------------------------------------------------------------------------ reducing */

static void
on_reduce(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__ReduceResponse response = TUTTI__V1__REDUCE_RESPONSE__INIT;
    const Tutti__V1__ReduceRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    Tutti__V1__OpInfo info;
    tutti_rpc_blob blob;
    wire_tensor tensor;

    fake_note_op(self, call, request->group, request->input, request->output, request->options);
    self->op_reduce = (tutti_reduce)request->reduce_op;
    self->op_factor = request->factor;
    note_root(self,
              request->opt_root_global_case ==
                  TUTTI__V1__REDUCE_REQUEST__OPT_ROOT_GLOBAL_ROOT_GLOBAL,
              request->root, request->root_global);
    if (fake_scripted(self, call, "Reduce")) {
        return;
    }
    give(self, call, 2);
    fake_write_info(self, &info);
    response.info = &info;
    response.output = is_root(self) ? fake_describe(self, &tensor) : NULL;
    tutti_rpc_call_reply(call, &response.base, is_root(self) ? blob_of(self, &blob) : NULL);
}

static void
on_reduce_scatter(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__ReduceScatterResponse response = TUTTI__V1__REDUCE_SCATTER_RESPONSE__INIT;
    const Tutti__V1__ReduceScatterRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    Tutti__V1__OpInfo info;
    tutti_rpc_blob blob;
    wire_tensor tensor;

    fake_note_op(self, call, request->group, request->input, request->output, request->options);
    self->op_reduce = (tutti_reduce)request->reduce_op;
    self->op_factor = request->factor;
    note_form(self, request->axis, request->form, request->out_shape, request->n_out_shape);
    if (fake_scripted(self, call, "ReduceScatter")) {
        return;
    }
    give(self, call, 1);
    fake_write_info(self, &info);
    response.info = &info;
    response.output = fake_describe(self, &tensor);
    tutti_rpc_call_reply(call, &response.base, blob_of(self, &blob));
}

/* ------------------------------------------------------------------------------ with a root */

static void
on_gather(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__GatherResponse response = TUTTI__V1__GATHER_RESPONSE__INIT;
    const Tutti__V1__GatherRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    Tutti__V1__OpInfo info;
    tutti_rpc_blob blob;
    wire_tensor tensor;

    fake_note_op(self, call, request->group, request->input, request->output, request->options);
    note_root(self,
              request->opt_root_global_case ==
                  TUTTI__V1__GATHER_REQUEST__OPT_ROOT_GLOBAL_ROOT_GLOBAL,
              request->root, request->root_global);
    note_form(self, request->axis, request->form, request->out_shape, request->n_out_shape);
    if (fake_scripted(self, call, "Gather")) {
        return;
    }
    give(self, call, 4);
    fake_write_info(self, &info);
    response.info = &info;
    response.output = is_root(self) ? fake_describe(self, &tensor) : NULL;
    tutti_rpc_call_reply(call, &response.base, is_root(self) ? blob_of(self, &blob) : NULL);
}

/* Who does not give gets all that is stored. */
static void
on_scatter(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__ScatterResponse response = TUTTI__V1__SCATTER_RESPONSE__INIT;
    const Tutti__V1__ScatterRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    Tutti__V1__OpInfo info;
    tutti_rpc_blob blob;
    wire_tensor tensor;

    fake_note_op(self, call, request->group, request->input, request->output, request->options);
    self->op_inline_result = request->inline_result;
    note_root(self,
              request->opt_root_global_case ==
                  TUTTI__V1__SCATTER_REQUEST__OPT_ROOT_GLOBAL_ROOT_GLOBAL,
              request->root, request->root_global);
    note_form(self, request->axis, request->form, request->out_shape, request->n_out_shape);
    if (fake_scripted(self, call, "Scatter")) {
        return;
    }
    if (is_root(self)) {
        give(self, call, 1);
    }
    fake_write_info(self, &info);
    response.info = &info;
    response.output = fake_describe(self, &tensor);
    tutti_rpc_call_reply(call, &response.base, blob_of(self, &blob));
}

/* ------------------------------------------------------------------------------ rank to rank */

static void
on_all_to_all(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__AllToAllResponse response = TUTTI__V1__ALL_TO_ALL_RESPONSE__INIT;
    const Tutti__V1__AllToAllRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    Tutti__V1__OpInfo info;
    tutti_rpc_blob blob;
    wire_tensor tensor;

    fake_note_op(self, call, request->group, request->input, request->output, request->options);
    self->op_axis = request->split_axis;
    self->op_concat_axis = request->concat_axis;
    if (fake_scripted(self, call, "AllToAll")) {
        return;
    }
    give(self, call, 2);
    fake_write_info(self, &info);
    response.info = &info;
    response.output = fake_describe(self, &tensor);
    tutti_rpc_call_reply(call, &response.base, blob_of(self, &blob));
}

static void
on_permute(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__PermuteResponse response = TUTTI__V1__PERMUTE_RESPONSE__INIT;
    const Tutti__V1__PermuteRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    Tutti__V1__OpInfo info;
    tutti_rpc_blob blob;
    wire_tensor tensor;
    size_t i;

    fake_note_op(self, call, request->group, request->input, request->output, request->options);
    assert_true(request->n_src_dst <= COUNT_OF(self->op_to));
    self->op_to_count = request->n_src_dst;
    for (i = 0; i < request->n_src_dst; i++) {
        self->op_to[i] = request->src_dst[i];
    }
    if (fake_scripted(self, call, "Permute")) {
        return;
    }
    give(self, call, 2);
    fake_write_info(self, &info);
    response.info = &info;
    response.output = fake_describe(self, &tensor);
    tutti_rpc_call_reply(call, &response.base, blob_of(self, &blob));
}

const tutti_rpc_method fake_parts[FAKE_PARTS_COUNT] = {
    TUTTI_RPC_UNARY("Reduce", on_reduce),       TUTTI_RPC_UNARY("ReduceScatter", on_reduce_scatter),
    TUTTI_RPC_UNARY("Gather", on_gather),       TUTTI_RPC_UNARY("Scatter", on_scatter),
    TUTTI_RPC_UNARY("AllToAll", on_all_to_all), TUTTI_RPC_UNARY("Permute", on_permute),
};
