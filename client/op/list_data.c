/*
 * Lists of the caller's memory. They are packed, because one message with one blob, or one upload, costs less than one
 * for each array; a copy of the bytes costs little beside either. The op is the same as on handles (a coalesced list),
 * so ranks that differ in what they call are in one op all the same.
 */
#include "client/op/list_data.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "client/conn/client.h"
#include "client/tensor/tensor.h"
#include "client/tensor/tensors.h"

#define LIST_MAX 1024        /* the agent's */
#define ALIGN 64             /* of ranges: no less than any element */
#define PLACED_BYTES_MIN 512 /* of an array and its result, on the average */

/* ------------------------------------------------------------------------------ checks */

static bool
has_lists(tutti_op_kind kind)
{
    return client_op_of(kind) != NULL && kind != TUTTI_OP_ALL_TO_ALL && kind != TUTTI_OP_BARRIER &&
           kind != TUTTI_OP_SEND && kind != TUTTI_OP_RECV;
}

static tutti_code
check_list_op(tutti_op_kind kind, const tutti_op *op, size_t count, tutti_error *err)
{
    if (!has_lists(kind)) {
        const char *name = tutti_op_kind_name(kind);

        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_OP",
                              "kind of op %d (%s) takes no list of arrays", (int)kind,
                              name == NULL ? "unknown" : name);
    }
    if (op->form == TUTTI_FORM_LIST) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_FORM",
                              "a list of arrays has one result for each array, and form is LIST: "
                              "use tensors (tutti/list.h)");
    }
    if (count == 0 || count > LIST_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, count == 0 ? "EMPTY_LIST" : "LIST_SIZE",
                              "a list of %zu arrays, need 1 to %d", count, LIST_MAX);
    }
    return TUTTI_OK;
}

static tutti_code
check_list_array(const client_list *self, size_t at, uint64_t *ret_bytes, tutti_error *err)
{
    const tutti_op_data *array = &self->arrays[at];
    const size_t unit = tutti_dtype_bytes(array->spec.dtype);

    if ((array->data != NULL) != self->gives || (array->result != NULL) != self->takes) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_LIST",
                              "array %zu of the list has %s data and %s result, unlike the first "
                              "one: all arrays are given or none, and taken or none",
                              at, array->data == NULL ? "no" : "a",
                              array->result == NULL ? "no" : "a");
    }
    TUTTI_TRY(tutti_spec_size(&array->spec, NULL, ret_bytes, err));
    if (self->takes && (array->result_bytes > INT64_MAX || array->result_bytes % unit != 0)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                              "result %zu of the list has room for %" PRIu64
                              " bytes, need a multiple of the size of a %s element",
                              at, array->result_bytes, tutti_dtype_name(array->spec.dtype));
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ layout */

static uint64_t
align_array(const client_list *self, uint64_t bytes)
{
    return self->small ? bytes : (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Where the next array begins. False: no memory is that large. */
static bool
add_bytes(const client_list *self, uint64_t bytes, uint64_t *total)
{
    if (bytes > INT64_MAX / 2 || *total > INT64_MAX / 2) {
        return false;
    }
    *total += align_array(self, bytes);
    return true;
}

static tutti_code
measure_list(client_list *self, tutti_error *err)
{
    bool same = true;
    size_t i;

    self->in_bytes = 0;
    self->out_bytes = 0;
    for (i = 0; i < self->count; i++) {
        const uint64_t out = self->takes ? self->arrays[i].result_bytes : 0;
        uint64_t bytes = 0;

        TUTTI_TRY(check_list_array(self, i, &bytes, err));
        if (!add_bytes(self, self->gives ? bytes : 0, &self->in_bytes) ||
            !add_bytes(self, out, &self->out_bytes)) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_SHAPE",
                                  "array %zu makes the list longer than 2^62 bytes", i);
        }
        same = same && bytes == out;
    }
    self->in_place = self->in_place && self->gives && self->takes && same;
    return TUTTI_OK;
}

/* A result's shape does not matter: the agent compares dtype and number of elements. */
static tutti_spec
result_spec(const tutti_op_data *array)
{
    const tutti_dtype dtype = array->spec.dtype;

    return (tutti_spec){
        .dtype = dtype,
        .dim_count = 1,
        .dims = {(int64_t)(array->result_bytes / tutti_dtype_bytes(dtype))},
    };
}

/* Small ones lie close together, as the agent reads them. */
static tutti_code
lay_out(client_list *self, tutti_error *err)
{
    self->small = true;
    TUTTI_TRY(measure_list(self, err));
    if (self->in_bytes > TUTTI_INLINE_BYTES_MAX || self->out_bytes > TUTTI_INLINE_BYTES_MAX) {
        self->small = false;
        TUTTI_TRY(measure_list(self, err));
    }
    return TUTTI_OK;
}

/* Texts of ranges are large: small lists that are packed need none. */
static bool
make_texts(client_list *self, bool ranges)
{
    const size_t texts = ranges ? 2 * self->count : 1;

    self->texts = calloc(texts, sizeof(*self->texts));
    self->names = calloc(texts, sizeof(*self->names));
    return self->texts != NULL && self->names != NULL;
}

static bool
make_rooms(client_list *self)
{
    const bool texts = self->texts != NULL || make_texts(self, !self->small);

    self->specs = calloc(self->count, sizeof(*self->specs));
    self->rooms = calloc(self->count, sizeof(*self->rooms));
    self->in = self->gives ? malloc((size_t)self->in_bytes + 1) : NULL;
    self->out = self->in_place ? self->in : NULL;
    if (self->takes && !self->in_place) {
        self->out = malloc((size_t)self->out_bytes + 1);
    }
    return texts && self->specs != NULL && self->rooms != NULL &&
           (self->in != NULL || !self->gives) && (self->out != NULL || !self->takes);
}

static uint64_t
array_bytes(const tutti_op_data *array)
{
    uint64_t bytes = 0;

    (void)tutti_spec_size(&array->spec, NULL, &bytes, NULL);
    return bytes;
}

static void
pack_list(client_list *self)
{
    uint64_t at = 0;
    size_t i;

    for (i = 0; i < self->count; i++) {
        const uint64_t bytes = array_bytes(&self->arrays[i]);

        self->specs[i] = self->arrays[i].spec;
        self->rooms[i] = result_spec(&self->arrays[i]);
        if (self->gives && bytes > 0) {
            memcpy(self->in + at, self->arrays[i].data, (size_t)bytes);
        }
        at += align_array(self, bytes);
    }
}

/* ------------------------------------------------------------------------------ the arena */

void
client_list_leave(client_list *self, bool doubt)
{
    size_t i;

    for (i = 0; self->places != NULL && i < self->count; i++) {
        client_blocks_free(self->client, &self->places[i], doubt);
    }
}

/* An array without elements is in no arena: such a list is packed. */
static bool
place_array(client_list *self, size_t at, bool in_place)
{
    const tutti_op_data *array = &self->arrays[at];
    const client_inline memory = {.spec = &array->spec,
                                  .gives = self->gives,
                                  .takes = self->takes,
                                  .data = array->data,
                                  .bytes = self->gives ? array_bytes(array) : 0,
                                  .result = array->result,
                                  .result_bytes = self->takes ? array->result_bytes : 0};
    client_place place;

    if (!client_place_find(self->client, &memory, 0, in_place, &place)) {
        return false;
    }
    self->places[at] = place.blocks;
    self->names[at] = self->gives ? strcpy(self->texts[at], place.give) : NULL;
    if (self->takes) {
        self->names[self->count + at] = strcpy(self->texts[self->count + at], place.take);
    }
    return true;
}

/* False: not all of it finds room there; nothing is held. */
static bool
place_list(client_list *self)
{
    size_t i;

    self->places = calloc(self->count, sizeof(*self->places));
    if (self->places == NULL || !make_texts(self, true)) {
        return false;
    }
    for (i = 0; i < self->count; i++) {
        if (!place_array(self, i, self->in_place)) {
            client_list_leave(self, false);
            return false;
        }
    }
    return true;
}

/* Short ones are faster in the call, and many of them packed into one memory. */
static bool
find_places(client_list *self)
{
    const uint64_t bytes = self->in_bytes + self->out_bytes;

    if (bytes <= 2 * CLIENT_STAGE_BYTES_MIN || bytes / self->count < PLACED_BYTES_MIN) {
        return false;
    }
    if (!place_list(self)) {
        free(self->places);
        self->places = NULL;
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------ life */

void
client_list_free(client_list *self)
{
    if (self != NULL) {
        client_list_leave(self, false);
        free(self->places);
        free(self->in_place ? NULL : self->out);
        free(self->in);
        free(self->texts);
        free(self->names);
        free(self->specs);
        free(self->rooms);
        free(self->arrays);
        free(self);
    }
}

static client_list *
new_list(tutti_client *client, tutti_op_kind kind, const tutti_op_data *arrays, size_t count)
{
    client_list *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    self->arrays = calloc(count, sizeof(*self->arrays));
    if (self->arrays == NULL) {
        free(self);
        return NULL;
    }
    memcpy(self->arrays, arrays, count * sizeof(*arrays));
    self->client = client;
    self->count = count;
    self->gives = arrays[0].data != NULL;
    self->takes = arrays[0].result != NULL;
    self->in_place =
        kind == TUTTI_OP_ALL_REDUCE || kind == TUTTI_OP_REDUCE_TO_ROOT || kind == TUTTI_OP_PERMUTE;
    return self;
}

tutti_code
client_list_make(tutti_client *client, tutti_op_kind kind, const tutti_op *op,
                 const tutti_op_data *arrays, size_t count, client_list **ret_list,
                 tutti_error *err)
{
    TUTTI_NEED_LIST(arrays, count, err);

    client_list *self;
    tutti_code code;

    TUTTI_TRY(check_list_op(kind, op, count, err));
    self = new_list(client, kind, arrays, count);
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a list of %zu arrays", count);
    }
    code = lay_out(self, err);
    if (code == TUTTI_OK && !op->async && find_places(self)) {
        *ret_list = self;
        return TUTTI_OK;
    }
    if (code == TUTTI_OK && !make_rooms(self)) {
        code = TUTTI_FAIL_MEMORY(err,
                                 "no memory to pack %" PRIu64 " bytes of a list, and %" PRIu64
                                 " bytes of its results",
                                 self->in_bytes, self->out_bytes);
    }
    if (code != TUTTI_OK) {
        client_list_free(self);
        return code;
    }
    pack_list(self);
    *ret_list = self;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the op's memory */

client_inline
client_list_memory(const client_list *self)
{
    return (client_inline){.gives = self->gives,
                           .takes = self->takes,
                           .data = self->in,
                           .bytes = self->in_bytes,
                           .result = self->out,
                           .result_bytes = self->out_bytes,
                           .list = self->specs,
                           .list_count = self->count,
                           .list_rooms = self->takes && !self->in_place ? self->rooms : NULL};
}

/* The specs were checked, and ALIGN is a multiple of any element. */
static const char *
write_range(char text[TUTTI_RANGE_MAX + 1], const char *name, uint64_t at, const tutti_spec *spec)
{
    (void)tutti_range_format(name, at, spec, text, NULL);
    return text;
}

static void
write_inputs(client_list *self, const char *input)
{
    uint64_t at = 0;
    size_t i;

    for (i = 0; i < self->count; i++) {
        self->names[i] = write_range(self->texts[i], input, at, &self->specs[i]);
        at += align_array(self, array_bytes(&self->arrays[i]));
    }
}

static void
write_outputs(client_list *self, const char *output)
{
    uint64_t at = 0;
    size_t i;

    for (i = 0; i < self->count; i++) {
        const tutti_op_data *array = &self->arrays[i];
        const tutti_spec spec = result_spec(array);
        char *text = self->texts[self->count + i];

        self->names[self->count + i] =
            self->in_place ? self->names[i] : write_range(text, output, at, &spec);
        at += align_array(self, array->result_bytes);
    }
}

void
client_list_write(client_list *self, const char *input, const char *output, tutti_op *op)
{
    if (self->gives) {
        if (self->places == NULL) {
            write_inputs(self, input);
        }
        op->inputs = self->names;
        op->input_count = self->count;
    }
    if (self->takes) {
        if (self->places == NULL) {
            write_outputs(self, output);
        }
        op->outputs = self->names + self->count;
        op->output_count = self->count;
    }
}

/* ------------------------------------------------------------------------------ results */

static tutti_code
check_told(const client_list *self, size_t at, const tutti_handle *told, tutti_error *err)
{
    const tutti_op_data *array = &self->arrays[at];
    uint64_t bytes = 0;

    TUTTI_TRY(tutti_spec_size(&told->spec, NULL, &bytes, err));
    if (bytes != array->result_bytes) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                              "result %zu of the list has %" PRIu64
                              " bytes, but there is room for %" PRIu64,
                              at, bytes, array->result_bytes);
    }
    if (told->spec.dtype != array->spec.dtype) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "DTYPE_MISMATCH", "result %zu of the list is %s, not %s",
            at, tutti_dtype_name(told->spec.dtype), tutti_dtype_name(array->spec.dtype));
    }
    return TUTTI_OK;
}

static tutti_code
check_results(const client_list *self, const tutti_op_more *more, tutti_error *err)
{
    size_t i;

    if (more->output_count != self->count) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LIST_SIZE",
                              "the op has %zu results, and there is room for %zu",
                              more->output_count, self->count);
    }
    for (i = 0; i < self->count; i++) {
        TUTTI_TRY(check_told(self, i, &more->outputs[i], err));
    }
    return TUTTI_OK;
}

static void
take_results(const client_list *self)
{
    size_t i;

    for (i = 0; i < self->count; i++) {
        client_blocks_take(self->client, &self->places[i], self->arrays[i].result,
                           self->arrays[i].result_bytes);
    }
}

tutti_code
client_list_unpack(const client_list *self, const tutti_op_more *more, tutti_error *err)
{
    uint64_t at = 0;
    size_t i;

    if (!self->takes) {
        return TUTTI_OK;
    }
    if (self->places != NULL) {
        take_results(self);
        return TUTTI_OK;
    }
    if (more != NULL) {
        TUTTI_TRY(check_results(self, more, err));
    }
    for (i = 0; i < self->count; i++) {
        const tutti_op_data *array = &self->arrays[i];

        if (array->result_bytes > 0) {
            memcpy(array->result, self->out + at, (size_t)array->result_bytes);
        }
        at += align_array(self, array->result_bytes);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the function */

typedef struct list_call {
    tutti_client *client;
    client_op_fn wire;
    client_list *list;
    tutti_op *op;
    tutti_error *err;
} list_call;

static tutti_code
run_small_list(const list_call *self)
{
    const client_inline memory = client_list_memory(self->list);
    tutti_op_result result;
    tutti_op_more more = {0};
    tutti_code code;

    self->op->more = &more;
    code = self->wire(self->client, self->op, &memory, &result, self->err);
    if (code == TUTTI_OK) {
        code = client_list_unpack(self->list, &more, self->err);
    }
    tutti_op_more_free(&more);
    return code;
}

static tutti_code
run_placed_list(const list_call *self)
{
    client_list *list = self->list;
    tutti_op_result result;
    tutti_code code;

    client_list_write(list, NULL, NULL, self->op);
    code = self->wire(self->client, self->op, NULL, &result, self->err);
    if (code == TUTTI_OK) {
        code = client_list_unpack(list, NULL, self->err);
    }
    client_list_leave(list, code != TUTTI_OK);
    return code;
}

/* A tensor of bytes for a list that is given, or for its results. */
static tutti_code
bring_list(const list_call *self, const char *name, uint64_t bytes, const void *data)
{
    const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {(int64_t)bytes}};
    const client_put put = {.spec = &spec, .data = data, .name = name};
    tutti_handle handle;

    return data == NULL ? tutti_tensor_create(self->client, &spec, name, &handle, self->err)
                        : client_put_any(self->client, &put, NULL, &handle, self->err);
}

/* The others hear that this rank's list is not there: its tensors are not. */
static void
call_list_in_vain(const list_call *self)
{
    tutti_op op = *self->op;
    tutti_op_result result;
    char drawn[CLIENT_DRAWN_NAME_SIZE];
    const char *name = drawn;

    client_draw_name(drawn);
    op.inputs = &name;
    op.input_count = 1;
    op.outputs = NULL;
    op.output_count = 0;
    op.more = NULL;
    (void)self->wire(self->client, &op, NULL, &result, NULL);
}

static tutti_code
bring_both(const list_call *self, const char *input, const char *output)
{
    const client_list *list = self->list;

    if (list->gives) {
        TUTTI_TRY(bring_list(self, input, list->in_bytes, list->in));
    }
    return list->takes && !list->in_place ? bring_list(self, output, list->out_bytes, NULL)
                                          : TUTTI_OK;
}

static tutti_code
run_large_list(const list_call *self)
{
    client_list *list = self->list;
    char input[CLIENT_DRAWN_NAME_SIZE];
    char output[CLIENT_DRAWN_NAME_SIZE];
    const char *const names[] = {input, output};
    tutti_op_result result;
    tutti_code code;
    int i;

    client_draw_name(input);
    client_draw_name(output);
    client_list_write(list, input, output, self->op);
    code = bring_both(self, input, output);
    if (code == TUTTI_OK) {
        code = self->wire(self->client, self->op, NULL, &result, self->err);
    } else {
        call_list_in_vain(self);
    }
    if (code == TUTTI_OK && list->takes) {
        code = tutti_tensor_read(self->client, list->in_place ? input : output, list->out,
                                 list->out_bytes, NULL, self->err);
    }
    if (code == TUTTI_OK) {
        code = client_list_unpack(list, NULL, self->err);
    }
    for (i = 0; i < 2; i++) {
        (void)client_wire_delete(self->client, &names[i], 1, NULL);
    }
    return code;
}

tutti_code
tutti_list_data(tutti_client *client, tutti_op_kind kind, const tutti_op *op,
                const tutti_op_data *arrays, size_t count, tutti_error *err)
{
    TUTTI_NEED(client, err);

    tutti_op own;
    list_call self = {.client = client, .wire = client_op_of(kind), .op = &own, .err = err};
    tutti_code code;

    TUTTI_TRY(client_take_op(op, &own, err));
    own.coalesced = true;
    code = client_list_make(client, kind, &own, arrays, count, &self.list, err);
    if (code != TUTTI_OK) {
        if (has_lists(kind)) {
            call_list_in_vain(&self);
        }
        return code;
    }
    if (self.list->places != NULL) {
        code = run_placed_list(&self);
    } else {
        code = self.list->small ? run_small_list(&self) : run_large_list(&self);
    }
    client_list_free(self.list);
    return code;
}
