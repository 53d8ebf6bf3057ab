/* Lists of tensors in requests, responses and works. */
#include <stdlib.h>

#include "base/error/fail.h"
#include "client/conn/types_pb.h"
#include "client/op/op_pb.h"
#include "tutti/list.h"

tutti_code
client_write_lists(const tutti_op *op, wire_op *ret, tutti_error *err)
{
    const size_t count = op->input_count;
    size_t i;

    ret->memory = count == 0 ? NULL : calloc(count, sizeof(*ret->memory));
    ret->inputs = count == 0 ? NULL : calloc(count, sizeof(Tutti__V1__TensorArg *));
    ret->outputs = (char **)(uintptr_t)op->outputs; /* protobuf-c has no const */
    ret->output_count = op->output_count;
    if (count > 0 && (ret->memory == NULL || ret->inputs == NULL)) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a list of %zu tensors",
                          count);
    }
    for (i = 0; i < count; i++) {
        tutti__v1__tensor_arg__init(&ret->memory[i]);
        ret->memory[i].kind_case = TUTTI__V1__TENSOR_ARG__KIND_HANDLE;
        ret->memory[i].handle = client_write_text(op->inputs[i]);
        ret->inputs[i] = &ret->memory[i];
    }
    ret->input_count = count;
    return TUTTI_OK;
}

void
client_op_fini(wire_op *op)
{
    free(op->memory);
    free(op->inputs);
}

static tutti_code
read_outputs(Tutti__V1__TensorRef *const *outputs, size_t count, tutti_op_more *more,
             tutti_error *err)
{
    size_t i;

    if (count == 0) {
        return TUTTI_OK;
    }
    more->outputs = calloc(count, sizeof(*more->outputs));
    if (more->outputs == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a list of %zu tensors",
                          count);
    }
    more->output_count = count;
    for (i = 0; i < count; i++) {
        TUTTI_TRY(client_read_handle(outputs[i], true, &more->outputs[i], err));
    }
    return TUTTI_OK;
}

tutti_code
client_read_more(Tutti__V1__TensorRef *const *outputs, size_t output_count,
                 ProtobufCBinaryData meta, tutti_op_more *ret_more, tutti_error *err)
{
    tutti_op_more more = {0};
    tutti_code code;

    if (ret_more == NULL) {
        return TUTTI_OK;
    }
    code = read_outputs(outputs, output_count, &more, err);
    if (code == TUTTI_OK && meta.len > 0) {
        code = client_read_value(meta, &more.user_meta, &more.user_meta_size, err);
    }
    if (code != TUTTI_OK) {
        tutti_op_more_free(&more);
        return code;
    }
    *ret_more = more;
    return TUTTI_OK;
}

void
tutti_op_more_free(tutti_op_more *more)
{
    free(more->outputs);
    tutti_free(more->user_meta);
    *more = (tutti_op_more){0};
}
