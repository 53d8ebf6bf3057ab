#include "value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#define BAD_VALUE "BAD_VALUE"
#define DIMS_MAX 64 /* of a shape, and of a tensor */

/* ------------------------------------------------------------------------------ arguments */

static size_t
bytes_of(const DLTensor *tensor)
{
    size_t count = 1;
    int32_t d;

    for (d = 0; d < tensor->ndim; d++) {
        count *= (size_t)tensor->shape[d];
    }
    return (count * tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
}

static void
copy_tensor_head(tvm_args *args, int32_t i, int64_t *strides)
{
    const DLTensor *from = args->from[i].u.tensor;
    DLTensor *to = &args->tensors[i];
    int64_t stride = 1;
    int32_t d;

    *to = *from;
    for (d = from->ndim - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= from->shape[d];
    }
    to->strides = strides;
    args->anys[i].u.tensor = to;
}

/* TVM-FFI has shapes as objects, which a function of its own makes of ints. */
static bool
make_shape(tvm_any *ret_any, const tutti_dims *dims)
{
    tvm_object *make = tvm_function_find("ffi.Shape");
    tvm_any ints[DIMS_MAX];
    bool fine;
    size_t i;

    for (i = 0; i < dims->size && i < DIMS_MAX; i++) {
        ints[i] = tvm_any_of(TUTTI_ANY_INT);
        ints[i].u.integer = dims->data[i];
    }
    *ret_any = tvm_any_of(TUTTI_ANY_NULL);
    fine = make != NULL && tvm_library.call(make, ints, (int32_t)i, ret_any) == 0;
    if (make != NULL) {
        (void)tvm_library.unref(make);
    }
    return fine;
}

static bool
read_arg(tvm_args *args, int32_t i, int64_t **strides)
{
    const tutti_any *from = &args->from[i];
    tvm_any *to = &args->anys[i];

    if (from->kind == TUTTI_ANY_SHAPE) {
        return make_shape(to, from->u.shape);
    }
    to->kind = from->kind;
    memcpy(&to->u, &from->u, sizeof(to->u));
    if (from->kind == TUTTI_ANY_TENSOR) {
        copy_tensor_head(args, i, *strides);
        *strides += from->u.tensor->ndim;
    }
    return true;
}

static bool
read_args(tvm_args *args, const tutti_env *env)
{
    int64_t *strides = args->strides;
    char text[512];
    int32_t i;

    for (i = 0; i < args->count; i++) {
        if (!read_arg(args, i, &strides)) {
            tvm_error_take(text, sizeof(text));
            (void)env->fail(env, BAD_VALUE, text);
            return false;
        }
    }
    return true;
}

static size_t
count_strides(const tutti_any *from, int32_t count)
{
    size_t sum = 0;
    int32_t i;

    for (i = 0; i < count; i++) {
        sum += from[i].kind == TUTTI_ANY_TENSOR ? (size_t)from[i].u.tensor->ndim : 0;
    }
    return sum;
}

bool
tvm_args_open(tvm_args *args, const tutti_env *env, const tutti_any *from, int32_t count)
{
    const size_t room = (size_t)count + 1; /* calloc(0) may give NULL */

    *args = (tvm_args){.from = from, .count = count};
    args->anys = calloc(room, sizeof(*args->anys));
    args->tensors = calloc(room, sizeof(*args->tensors));
    args->strides = calloc(count_strides(from, count) + 1, sizeof(*args->strides));
    if (args->anys == NULL || args->tensors == NULL || args->strides == NULL) {
        (void)env->fail(env, "NO_MEMORY", "no memory for the arguments");
    } else if (read_args(args, env)) {
        return true;
    }
    tvm_args_close(args);
    return false;
}

void
tvm_args_close(tvm_args *args)
{
    int32_t i;

    for (i = 0; args->anys != NULL && i < args->count; i++) {
        tvm_any_free(&args->anys[i]);
    }
    free(args->anys);
    free(args->tensors);
    free(args->strides);
}

/* ------------------------------------------------------------------------------ copies */

#define ALIGNMENT 64 /* kAllocAlignment, which kernels count on */

static void
free_managed(tvm_managed *self)
{
    free(self->tensor.data);
    free(self->owner);
    free(self);
}

/* Its shape and strides are behind `owner`. NULL: no memory. */
static tvm_managed *
copy_tensor(const DLTensor *from)
{
    const size_t dims = (size_t)from->ndim;
    const size_t bytes = bytes_of(from);
    tvm_managed *made = calloc(1, sizeof(*made));
    int64_t *numbers = calloc(2 * dims + 1, sizeof(*numbers));
    void *data = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);

    if (made == NULL || numbers == NULL || data == NULL) {
        free(made);
        free(numbers);
        free(data);
        return NULL;
    }
    if (bytes > 0) {
        memcpy(data, (const char *)from->data + from->byte_offset, bytes);
    }
    memcpy(numbers, from->shape, dims * sizeof(*numbers));
    memcpy(numbers + dims, from->strides, dims * sizeof(*numbers));
    *made = (tvm_managed){.tensor = *from, .owner = numbers, .free = free_managed};
    made->tensor.data = data;
    made->tensor.byte_offset = 0;
    made->tensor.shape = numbers;
    made->tensor.strides = numbers + dims;
    return made;
}

static int
own_tensor(const tutti_env *env, tvm_any *any)
{
    tvm_managed *made;
    tvm_object *object = NULL;
    char text[256];

    if (any->u.tensor->device.device_type != 1) {
        return env->fail(env, BAD_VALUE,
                         "TVM's virtual machine runs on the CPU here: copy the tensor to cpu");
    }
    made = copy_tensor(any->u.tensor);
    if (made == NULL) {
        return env->fail(env, "NO_MEMORY", "no memory for the arguments");
    }
    if (tvm_library.from_dlpack(made, 0, 1, &object) != 0) {
        free_managed(made);
        tvm_error_take(text, sizeof(text));
        return env->fail(env, BAD_VALUE, text);
    }
    *any = tvm_any_of(TVM_TENSOR);
    any->u.object = object;
    return 0;
}

bool
tvm_args_own(tvm_args *args, const tutti_env *env)
{
    int32_t i;

    for (i = 0; i < args->count; i++) {
        if (args->anys[i].kind == TUTTI_ANY_TENSOR && own_tensor(env, &args->anys[i]) != 0) {
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------------------ tensors that are returned */

/* One of the arguments, or one that the function has made. */
static const DLTensor *
find_arg(const tvm_args *args, const DLTensor *tensor)
{
    int32_t i;

    for (i = 0; i < args->count; i++) {
        if (&args->tensors[i] == tensor) {
            return args->from[i].u.tensor;
        }
    }
    return NULL;
}

static bool
is_row_major(const DLTensor *tensor)
{
    int64_t stride = 1;
    int32_t d;

    for (d = tensor->ndim - 1; d >= 0; d--) {
        if (tensor->strides != NULL && tensor->shape[d] != 1 && tensor->strides[d] != stride) {
            return false;
        }
        stride *= tensor->shape[d];
    }
    return true;
}

/* TVM-FFI owns its memory: the agent gets a copy. */
static int
return_tensor(const tutti_env *env, const DLTensor *tensor, tutti_any *ret)
{
    DLTensor *made;

    if (tensor->device.device_type != 1 || !is_row_major(tensor)) {
        return env->fail(
            env, BAD_VALUE,
            "it returned a tensor of a GPU, or one that is not row-major: let it write "
            "into an argument");
    }
    made = env->make(env, tensor->dtype, tensor->shape, tensor->ndim, &tensor->device);
    if (made == NULL) {
        return -1;
    }
    if (bytes_of(tensor) > 0) {
        memcpy(made->data, (const char *)tensor->data + tensor->byte_offset, bytes_of(tensor));
    }
    *ret = tutti_any_tensor(made);
    return 0;
}

static int
return_view(const tutti_env *env, const tvm_args *args, const DLTensor *tensor, tutti_any *ret)
{
    const DLTensor *arg = find_arg(args, tensor);

    if (arg == NULL) {
        return env->fail(env, BAD_VALUE,
                         "it returned a view of a tensor that is no argument of it");
    }
    *ret = tutti_any_tensor((DLTensor *)arg);
    return 0;
}

/* ------------------------------------------------------------------------------ plain values */

/* What a thread has returned last: the agent reads it when the function has returned. */
typedef struct kept {
    tvm_any any;
    tutti_span bytes;
    tutti_dims shape;
} kept;

static tss_t kept_key;
static bool has_kept_key;

static void
free_kept(void *memory)
{
    kept *self = memory;

    tvm_any_free(&self->any);
    free(self);
}

static void
make_kept_key(void)
{
    has_kept_key = tss_create(&kept_key, free_kept) == thrd_success;
}

/* NULL: no memory. */
static kept *
keep(tvm_any *any)
{
    static once_flag once = ONCE_FLAG_INIT;
    kept *self;

    call_once(&once, make_kept_key);
    self = has_kept_key ? tss_get(kept_key) : NULL;
    if (self == NULL) {
        self = has_kept_key ? calloc(1, sizeof(*self)) : NULL;
        if (self == NULL || tss_set(kept_key, self) != thrd_success) {
            free(self);
            return NULL;
        }
    }
    tvm_any_free(&self->any);
    self->any = *any;
    *any = tvm_any_of(TUTTI_ANY_NULL);
    return self;
}

static int
return_text(const tutti_env *env, const tutti_span *text, tutti_any *ret)
{
    if (memchr(text->data, '\0', text->size) != NULL) {
        return env->fail(env, BAD_VALUE, "it returned a text with a NUL inside: return bytes");
    }
    *ret = tutti_any_text(text->data);
    return 0;
}

static int
return_object(const tutti_env *env, kept *self, tutti_any *ret)
{
    void *content = tvm_object_content(self->any.u.object);

    switch (self->any.kind) {
    case TVM_TEXT:
        return return_text(env, content, ret);
    case TVM_BYTES:
        ret->kind = TUTTI_ANY_BYTES;
        ret->u.bytes = content;
        return 0;
    default:
        ret->kind = TUTTI_ANY_SHAPE;
        ret->u.shape = content; /* TVMFFIShapeCell has the layout of tutti_dims */
        return 0;
    }
}

static int
return_small(const tutti_env *env, kept *self, tutti_any *ret)
{
    self->bytes = (tutti_span){self->any.u.small, self->any.small_size};
    if (self->any.kind == TVM_SMALL_TEXT) {
        return return_text(env, &self->bytes, ret);
    }
    ret->kind = TUTTI_ANY_BYTES;
    ret->u.bytes = &self->bytes;
    return 0;
}

static int
return_nothing_of_ours(const tutti_env *env, int32_t kind)
{
    const tvm_type *type = kind >= TVM_OBJECT ? tvm_library.type(kind) : NULL;
    char text[256];

    (void)snprintf(
        text, sizeof(text),
        "it returned a value of TVM-FFI's kind %d (%.*s): null, a number, a text, bytes, "
        "a dtype, a device, a shape or a tensor can be returned",
        (int)kind, type == NULL ? 1 : (int)type->name.size, type == NULL ? "?" : type->name.data);
    return env->fail(env, BAD_VALUE, text);
}

static int
return_kept(const tutti_env *env, tvm_any *returned, tutti_any *ret)
{
    const int32_t kind = returned->kind;
    kept *self;

    if (kind != TVM_SMALL_TEXT && kind != TVM_SMALL_BYTES && kind != TVM_TEXT &&
        kind != TVM_BYTES && kind != TVM_SHAPE) {
        return return_nothing_of_ours(env, kind);
    }
    self = keep(returned);
    if (self == NULL) {
        return env->fail(env, "NO_MEMORY", "no memory for what it returned");
    }
    return kind < TVM_OBJECT ? return_small(env, self, ret) : return_object(env, self, ret);
}

int
tvm_value_return(const tutti_env *env, const tvm_args *args, tvm_any *returned, tutti_any *ret)
{
    int status = 0;

    switch (returned->kind) {
    case TUTTI_ANY_NULL:
    case TUTTI_ANY_INT:
    case TUTTI_ANY_BOOL:
    case TUTTI_ANY_FLOAT:
    case TUTTI_ANY_DTYPE:
    case TUTTI_ANY_DEVICE:
    case TUTTI_ANY_TEXT:
    case TUTTI_ANY_BYTES:
        ret->kind = returned->kind;
        memcpy(&ret->u, &returned->u, sizeof(ret->u));
        return 0;
    case TUTTI_ANY_TENSOR:
        return return_view(env, args, returned->u.tensor, ret);
    case TVM_TENSOR:
        status = return_tensor(env, tvm_object_content(returned->u.object), ret);
        break;
    default:
        status = return_kept(env, returned, ret);
        break;
    }
    tvm_any_free(returned);
    return status;
}
