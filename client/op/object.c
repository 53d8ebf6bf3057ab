/*
 * Objects between ranks: serialised into a tensor of bytes, moved by an op, read back; the
 * tensors are deleted again in every case. Only group, root, peer, tag and timeout of the
 * caller's op count: the rest is about tensors that the caller does not see.
 */
#include "client/op/object.h"

#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/conn/client.h"
#include "client/op/op.h"
#include "tutti/list.h"
#include "tutti/object.h"

void
tutti_object_clear(tutti_object *object)
{
    tutti_free(object->data);
    *object = (tutti_object){.size = 0};
}

void
tutti_objects_free(tutti_object *objects, size_t count)
{
    size_t i;

    for (i = 0; i < count && objects != NULL; i++) {
        tutti_object_clear(&objects[i]);
    }
    free(objects);
}

/* What of the caller's op concerns objects. [in] given  NULL = nothing */
static tutti_op
own_op(const tutti_op *given, tutti_op_more *more)
{
    tutti_op op;

    tutti_op_init(&op);
    if (given != NULL) {
        op.group = given->group;
        op.root = given->root;
        op.peer = given->peer;
        op.global = given->global;
        op.tag = given->tag;
        op.timeout_ms = given->timeout_ms;
    }
    op.more = more;
    return op;
}

/* ------------------------------------------------------------------------------ as tensors */

static tutti_code
check_object(const tutti_object *object, tutti_error *err)
{
    TUTTI_NEED(object, err);

    if (memchr(object->content_type, '\0', sizeof(object->content_type)) == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME",
                              "a content type of more than %d bytes", TUTTI_CONTENT_TYPE_MAX);
    }
    return TUTTI_OK;
}

/* All of them in one tensor, one behind the other. [out] ret_sizes  of each; may be NULL */
static tutti_code
put_object(tutti_client *client, const tutti_object *objects, size_t count, int64_t *ret_sizes,
           tutti_handle *ret_handle, tutti_error *err)
{
    tutti_spec spec = {.dtype = TUTTI_DTYPE_UINT8, .dim_count = 1};
    unsigned char *bytes;
    size_t total = 0;
    size_t at = 0;
    size_t i;
    tutti_code code = TUTTI_OK;

    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = check_object(&objects[i], err);
        total += code == TUTTI_OK ? client_object_size(&objects[i]) : 0;
    }
    if (code != TUTTI_OK) {
        return code;
    }
    bytes = malloc(total + 1);
    if (bytes == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for objects of %zu bytes", total);
    }
    for (i = 0; i < count; i++) {
        const size_t size = client_object_write(&objects[i], bytes + at);

        at += size;
        if (ret_sizes != NULL) {
            ret_sizes[i] = (int64_t)size;
        }
    }
    spec.dims[0] = (int64_t)total;
    code = tutti_tensor_put(client, &spec, bytes, NULL, NULL, ret_handle, err);
    free(bytes);
    return code;
}

static tutti_code
get_object(tutti_client *client, const tutti_handle *handle, tutti_object *ret_object,
           tutti_error *err)
{
    unsigned char *bytes;
    uint64_t size = 0;
    tutti_code code;

    TUTTI_TRY(tutti_spec_size(&handle->spec, NULL, &size, err));
    bytes = malloc((size_t)size + 1);
    if (bytes == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for an object of %zu bytes", (size_t)size);
    }
    code = tutti_tensor_read(client, handle->text, bytes, size, NULL, err);
    if (code == TUTTI_OK) {
        code = client_object_read(bytes, (size_t)size, ret_object, err);
    }
    free(bytes);
    return code;
}

/*
 * Delete a tensor of ours. An error is ignored: what came before is worth more, and the agent's
 * lease ends the tensor anyway.
 */
static void
take_away(tutti_client *client, const tutti_handle *handle)
{
    tutti_error unsaid;

    if (handle->text[0] != '\0') {
        (void)tutti_tensor_delete(client, handle->text, &unsaid);
    }
}

/* ------------------------------------------------------------------------------ ops */

typedef tutti_code (*op_fn)(tutti_client *client, const tutti_op *op, tutti_op_result *ret_result,
                            tutti_error *err);

/*
 * This rank has nothing to give, and the others wait: the op is called with a tensor that is not
 * there, is refused, and takes its turn in the group (decision 0002), so the others hear of it at
 * once. Of a refused send only the caller hears.
 */
static void
call_in_vain(tutti_client *client, op_fn fn, const tutti_op *given)
{
    char name[CLIENT_DRAWN_NAME_SIZE];
    tutti_op op = *given;

    if (fn == tutti_send) {
        return;
    }
    client_draw_name(name);
    op.input = name;
    op.output = name;
    (void)fn(client, &op, NULL, NULL);
}

/* An op that gives one object. [in] objects  count 0 = this rank gives none */
static tutti_code
run_one(tutti_client *client, op_fn fn, tutti_op *op, const tutti_object *objects, size_t count,
        tutti_object *ret_object, uint32_t *ret_source, tutti_error *err)
{
    int64_t *sizes = count == 0 ? NULL : calloc(count, sizeof(*sizes));
    tutti_handle input = {.text = ""};
    tutti_op_result result = {.output = {.text = ""}};
    tutti_code code = TUTTI_OK;

    if (count > 0 && sizes == NULL) {
        code = TUTTI_FAIL_MEMORY(err, "no memory for %zu objects", count);
    } else if (count > 0) {
        code = put_object(client, objects, count, sizes, &input, err);
    }
    if (code != TUTTI_OK) {
        call_in_vain(client, fn, op);
        free(sizes);
        return code;
    }
    if (count > 0) {
        op->input = input.text;
    }
    if (fn == tutti_scatter && count > 0) {
        op->splits = sizes;
        op->split_count = count;
    }
    code = fn(client, op, &result, err);
    if (code == TUTTI_OK && ret_object != NULL) {
        code = get_object(client, &result.output, ret_object, err);
    }
    if (code == TUTTI_OK && ret_source != NULL) {
        *ret_source = result.source_global;
    }
    /* A broadcast's root gets its own input back as the result: not twice. */
    if (strcmp(result.output.text, input.text) != 0) {
        take_away(client, &result.output);
    }
    take_away(client, &input);
    free(sizes);
    return code;
}

tutti_code
tutti_object_broadcast(tutti_client *client, const tutti_op *op, const tutti_object *object,
                       tutti_object *ret_object, tutti_error *err)
{
    TUTTI_NEED(client, err);

    tutti_op own = own_op(op, NULL);

    return run_one(client, tutti_broadcast, &own, object, object == NULL ? 0 : 1, ret_object, NULL,
                   err);
}

tutti_code
tutti_object_scatter(tutti_client *client, const tutti_op *op, const tutti_object *objects,
                     size_t count, tutti_object *ret_object, tutti_error *err)
{
    TUTTI_NEED(client, err);

    tutti_op own = own_op(op, NULL);

    return run_one(client, tutti_scatter, &own, objects, objects == NULL ? 0 : count, ret_object,
                   NULL, err);
}

tutti_code
tutti_object_send(tutti_client *client, const tutti_op *op, const tutti_object *object,
                  tutti_error *err)
{
    TUTTI_NEED(client, err);

    tutti_op own = own_op(op, NULL);

    return run_one(client, tutti_send, &own, object, 1, NULL, NULL, err);
}

tutti_code
tutti_object_recv(tutti_client *client, const tutti_op *op, tutti_object *ret_object,
                  uint32_t *ret_source, tutti_error *err)
{
    TUTTI_NEED(client, err);

    tutti_op own = own_op(op, NULL);

    return run_one(client, tutti_recv, &own, NULL, 0, ret_object, ret_source, err);
}

static tutti_code
get_all(tutti_client *client, const tutti_op_more *more, tutti_object **ret_objects,
        size_t *ret_count, tutti_error *err)
{
    tutti_object *objects = calloc(more->output_count + 1, sizeof(*objects));
    tutti_code code = TUTTI_OK;
    size_t i;

    if (objects == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for %zu objects", more->output_count);
    }
    for (i = 0; i < more->output_count && code == TUTTI_OK; i++) {
        code = get_object(client, &more->outputs[i], &objects[i], err);
    }
    if (code != TUTTI_OK || more->output_count == 0) {
        tutti_objects_free(objects, more->output_count);
        objects = NULL;
    }
    if (code == TUTTI_OK) {
        *ret_objects = objects;
        *ret_count = more->output_count;
    }
    return code;
}

/* An op that gives the objects of all ranks. */
static tutti_code
run_all_object(tutti_client *client, op_fn fn, const tutti_op *given, const tutti_object *object,
               tutti_object **ret_objects, size_t *ret_count, tutti_error *err)
{
    tutti_op_more more = {0};
    tutti_op op = own_op(given, &more);
    tutti_handle input = {.text = ""};
    tutti_code code = put_object(client, object, 1, NULL, &input, err);
    size_t i;

    op.form = TUTTI_FORM_LIST;
    if (code != TUTTI_OK) {
        call_in_vain(client, fn, &op);
        tutti_op_more_free(&more);
        return code;
    }
    op.input = input.text;
    code = fn(client, &op, NULL, err);
    if (code == TUTTI_OK) {
        code = get_all(client, &more, ret_objects, ret_count, err);
    }
    for (i = 0; i < more.output_count; i++) {
        take_away(client, &more.outputs[i]);
    }
    take_away(client, &input);
    tutti_op_more_free(&more);
    return code;
}

tutti_code
tutti_object_all_gather(tutti_client *client, const tutti_op *op, const tutti_object *object,
                        tutti_object **ret_objects, size_t *ret_count, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_objects, err);
    TUTTI_NEED(ret_count, err);

    return run_all_object(client, tutti_all_gather, op, object, ret_objects, ret_count, err);
}

tutti_code
tutti_object_gather(tutti_client *client, const tutti_op *op, const tutti_object *object,
                    tutti_object **ret_objects, size_t *ret_count, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_count, err);

    return run_all_object(client, tutti_gather, op, object, ret_objects, ret_count, err);
}
