/*
 * CollectivesService: the ops that cut tensors into parts, join parts, or have a root. As
 * collectives_pb.c.
 */
#include "base/error/fail.h"
#include "server/agent/service/op_pb.h"
#include "server/agent/state/request.h"

/* ------------------------------------------------------------------------------ reducing */

void
agent_read_reduce(const Tutti__V1__ReduceRequest *message, tutti_rpc_call *call,
                  agent_request *request, tutti_spec *flat)
{
    (void)flat;
    request->group = message->group;
    request->output = message->output;
    request->args.kind = TUTTI_COLL_REDUCE;
    request->args.reduce = (tutti_reduce)message->reduce_op;
    request->args.factor = message->factor;
    AGENT_READ_ROOT(message, REDUCE, request);
    agent_read_input(message->input, call, request);
    AGENT_READ_LIST(message, call, request);
    agent_read_coalesced(message->coalesced, request);
    agent_need_input(request);
    agent_read_options(message->options, request);
}

AGENT_OP_METHOD(reduce, Reduce, REDUCE)

void
agent_read_reduce_scatter(const Tutti__V1__ReduceScatterRequest *message, tutti_rpc_call *call,
                          agent_request *request, tutti_spec *flat)
{
    request->group = message->group;
    request->output = message->output;
    request->options.axis = message->axis;
    request->args.kind = TUTTI_COLL_REDUCE_SCATTER;
    request->args.reduce = (tutti_reduce)message->reduce_op;
    request->args.factor = message->factor;
    agent_read_form(message->form, message->n_out_shape, message->out_shape, flat, request);
    agent_read_input(message->input, call, request);
    AGENT_READ_LIST(message, call, request);
    AGENT_READ_AXES(message, request);
    agent_read_coalesced(message->coalesced, request);
    agent_need_input(request);
    agent_read_options(message->options, request);
}

AGENT_OP_METHOD(reduce_scatter, ReduceScatter, REDUCE_SCATTER)

/* ------------------------------------------------------------------------------ with a root */

void
agent_read_gather(const Tutti__V1__GatherRequest *message, tutti_rpc_call *call,
                  agent_request *request, tutti_spec *flat)
{
    request->group = message->group;
    request->output = message->output;
    request->options.axis = message->axis;
    request->args.kind = TUTTI_COLL_GATHER;
    AGENT_READ_ROOT(message, GATHER, request);
    agent_read_form(message->form, message->n_out_shape, message->out_shape, flat, request);
    agent_read_input(message->input, call, request);
    AGENT_READ_LIST(message, call, request);
    AGENT_READ_AXES(message, request);
    agent_read_coalesced(message->coalesced, request);
    agent_need_input(request);
    agent_read_options(message->options, request);
}

AGENT_OP_METHOD(gather, Gather, GATHER)

void
agent_read_scatter(const Tutti__V1__ScatterRequest *message, tutti_rpc_call *call,
                   agent_request *request, tutti_spec *flat)
{
    request->group = message->group;
    request->output = message->output;
    request->options.axis = message->axis;
    request->options.inline_result = message->inline_result;
    request->device = message->device;
    request->args.kind = TUTTI_COLL_SCATTER;
    AGENT_READ_ROOT(message, SCATTER, request);
    agent_read_form(message->form, message->n_out_shape, message->out_shape, flat, request);
    agent_read_input(message->input, call, request);
    AGENT_READ_LIST(message, call, request);
    AGENT_READ_AXES(message, request);
    agent_read_coalesced(message->coalesced, request);
    agent_read_meta(message->user_meta, request);
    request->args.keep_shape = message->keep_shape != 0;
    request->args.root_splits = message->n_splits > 0 ? message->splits : NULL;
    request->args.split_count = (uint32_t)message->n_splits;
    agent_read_options(message->options, request);
}

AGENT_OP_METHOD_AND(scatter, Scatter, SCATTER, response.user_meta = parts.meta)

/* ------------------------------------------------------------------------------ among all */

static void
read_splits(const Tutti__V1__AllToAllRequest *message, agent_request *request)
{
    tutti_error err;

    request->args.has_splits = message->n_input_splits > 0 || message->n_output_splits > 0;
    if (message->n_input_splits != message->n_output_splits) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "SPLITS_MISMATCH",
                             "%zu input splits, %zu output splits: give both, one for each rank",
                             message->n_input_splits, message->n_output_splits);
        agent_request_refuse(request, &err);
        return;
    }
    request->args.split_count = (uint32_t)message->n_input_splits;
    request->args.send_splits = message->input_splits;
    request->args.recv_splits = message->output_splits;
}

void
agent_read_all_to_all(const Tutti__V1__AllToAllRequest *message, tutti_rpc_call *call,
                      agent_request *request, tutti_spec *flat)
{
    tutti_error err;

    (void)flat;
    request->group = message->group;
    request->output = message->output;
    request->options.axis = message->split_axis;
    request->options.concat_axis = message->concat_axis;
    request->args.kind = TUTTI_COLL_ALL_TO_ALL;
    if (message->form != TUTTI__V1__FORM__FORM_CONCAT &&
        message->form != TUTTI__V1__FORM__FORM_LIST) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "BAD_FORM",
                             "form %d of an all-to-all: leave it out, or give lists",
                             (int)message->form);
        agent_request_refuse(request, &err);
    }
    request->args.form = (tutti_form)message->form;
    read_splits(message, request);
    agent_read_input(message->input, call, request);
    AGENT_READ_LIST(message, call, request);
    agent_need_input(request);
    agent_read_options(message->options, request);
}

AGENT_OP_METHOD(all_to_all, AllToAll, ALL_TO_ALL)

void
agent_read_permute(const Tutti__V1__PermuteRequest *message, tutti_rpc_call *call,
                   agent_request *request, tutti_spec *flat)
{
    (void)flat;
    request->group = message->group;
    request->output = message->output;
    request->args.kind = TUTTI_COLL_PERMUTE;
    request->args.to = (const uint32_t *)message->src_dst;
    request->args.to_count = (uint32_t)message->n_src_dst;
    agent_read_input(message->input, call, request);
    AGENT_READ_LIST(message, call, request);
    agent_read_coalesced(message->coalesced, request);
    agent_need_input(request);
    agent_read_options(message->options, request);
}

AGENT_OP_METHOD(permute, Permute, PERMUTE)
