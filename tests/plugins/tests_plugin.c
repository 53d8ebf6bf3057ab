/* Functions that tests call: values in and out, tensors, collectives, and all ways to misbehave. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tutti/plugin.h"

#define BAD_ARGS "BAD_ARGS"
#define TEXT_MAX 4096
#define DIMS_MAX 64

/* ------------------------------------------------------------------------------ values */

static int
add_one(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    if (count != 1 || args[0].kind != TUTTI_ANY_INT) {
        return env->fail(env, BAD_ARGS, "add_one takes one int");
    }
    *ret = tutti_any_int(args[0].u.integer + 1);
    return 0;
}

static int
add_half(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    if (count != 1 || args[0].kind != TUTTI_ANY_FLOAT) {
        return env->fail(env, BAD_ARGS, "add_half takes one float");
    }
    *ret = tutti_any_float(args[0].u.real + 0.5);
    return 0;
}

static int
suffix(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    static _Thread_local char text[TEXT_MAX];

    if (count != 1 || args[0].kind != TUTTI_ANY_TEXT) {
        return env->fail(env, BAD_ARGS, "suffix takes one text");
    }
    (void)snprintf(text, sizeof(text), "%.4000s_suffix", args[0].u.text);
    *ret = tutti_any_text(text);
    return 0;
}

static int
shape_append(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    static _Thread_local int64_t dims[DIMS_MAX];
    static _Thread_local tutti_dims shape;

    if (count != 1 || args[0].kind != TUTTI_ANY_SHAPE || args[0].u.shape->size > DIMS_MAX - 2) {
        return env->fail(env, BAD_ARGS, "shape_append takes one shape");
    }
    shape = (tutti_dims){dims, args[0].u.shape->size};
    if (shape.size > 0) {
        memcpy(dims, args[0].u.shape->data, shape.size * sizeof(dims[0]));
    }
    dims[shape.size++] = 4;
    dims[shape.size++] = 5;
    ret->kind = TUTTI_ANY_SHAPE;
    ret->u.shape = &shape;
    return 0;
}

/* What the argument is, as the function sees it. */
static int
kind_of(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    if (count != 1) {
        return env->fail(env, BAD_ARGS, "kind takes one argument");
    }
    *ret = tutti_any_int(args[0].kind);
    return 0;
}

static int
identity(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    if (count != 1) {
        return env->fail(env, BAD_ARGS, "identity takes one argument");
    }
    *ret = args[0];
    return 0;
}

/* ------------------------------------------------------------------------------ failing */

static int
fail_with(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    const char *reason = count > 0 && args[0].kind == TUTTI_ANY_TEXT ? args[0].u.text : NULL;
    const char *text =
        count > 1 && args[1].kind == TUTTI_ANY_TEXT ? args[1].u.text : "it was asked to";

    (void)ret;
    return env->fail(env, reason, text);
}

static int
fail_mutely(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)env;
    (void)args;
    (void)count;
    (void)ret;
    return 3;
}

static int
give_nonsense(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    static DLTensor nobodys;
    const int64_t which = count == 1 && args[0].kind == TUTTI_ANY_INT ? args[0].u.integer : 0;

    (void)env;
    if (which == 0) {
        ret->kind = 77;
    } else if (which == 1) {
        *ret = tutti_any_tensor(&nobodys);
    } else if (which == 2) {
        *ret = tutti_any_text("\xff\xfe");
    } else {
        *ret = tutti_any_text(NULL);
    }
    return 0;
}

/* Milliseconds; with a second argument it ends early when nobody waits any more. */
static int
sleep_for(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    const struct timespec step = {.tv_nsec = 1000000};
    int64_t left = count > 0 && args[0].kind == TUTTI_ANY_INT ? args[0].u.integer : 0;

    while (left-- > 0 && (count < 2 || *env->cancelled == 0)) {
        (void)nanosleep(&step, NULL);
    }
    *ret = tutti_any_int(*env->cancelled);
    return 0;
}

/* ------------------------------------------------------------------------------ tensors */

static int64_t
count_of(const DLTensor *tensor)
{
    int64_t count = 1;
    int32_t i;

    for (i = 0; i < tensor->ndim; i++) {
        count *= tensor->shape[i];
    }
    return count;
}

static int
is_floats(const tutti_any *any)
{
    return any->kind == TUTTI_ANY_TENSOR && any->u.tensor->dtype.code == 2 &&
           any->u.tensor->dtype.bits == 32 && any->u.tensor->device.device_type == 1;
}

/* y += a x, in place. */
static int
axpy(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    int64_t i;

    if (count != 3 || args[0].kind != TUTTI_ANY_FLOAT || !is_floats(&args[1]) ||
        !is_floats(&args[2]) || count_of(args[1].u.tensor) != count_of(args[2].u.tensor)) {
        return env->fail(env, BAD_ARGS, "axpy takes a float and two float32 tensors alike");
    }
    for (i = 0; i < count_of(args[1].u.tensor); i++) {
        ((float *)args[2].u.tensor->data)[i] +=
            (float)args[0].u.real * ((const float *)args[1].u.tensor->data)[i];
    }
    *ret = tutti_any_null();
    return 0;
}

/* 0, 1, 2 ... of a shape. */
static int
make(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    const DLDataType fp32 = {2, 32, 1};
    DLTensor *made;
    int64_t i;

    if (count != 1 || args[0].kind != TUTTI_ANY_SHAPE) {
        return env->fail(env, BAD_ARGS, "make takes one shape");
    }
    made = env->make(env, fp32, args[0].u.shape->data, (int32_t)args[0].u.shape->size, NULL);
    if (made == NULL) {
        return -1;
    }
    for (i = 0; i < count_of(made); i++) {
        ((float *)made->data)[i] = (float)i;
    }
    *ret = tutti_any_tensor(made);
    return 0;
}

/* Makes some, and gives none of them: they are gone with the call. */
static int
waste(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    const DLDataType fp32 = {2, 32, 1};
    const int64_t shape[] = {1024};
    int i;

    (void)args;
    (void)count;
    for (i = 0; i < 8; i++) {
        if (env->make(env, fp32, shape, 1, NULL) == NULL) {
            return -1;
        }
    }
    *ret = tutti_any_int(i);
    return 0;
}

/* ------------------------------------------------------------------------------ collectives */

/* all_reduce(tensor, reduce): the sum over the group, as a new tensor. */
static int
all_reduce(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    tutti_env_op op = {.size = sizeof(op), .op = "all_reduce"};
    DLTensor *made;

    if (count < 1 || args[0].kind != TUTTI_ANY_TENSOR) {
        return env->fail(env, BAD_ARGS, "all_reduce takes a tensor");
    }
    made = env->make(env, args[0].u.tensor->dtype, args[0].u.tensor->shape, args[0].u.tensor->ndim,
                     &args[0].u.tensor->device);
    op.input = args[0].u.tensor;
    op.output = made;
    op.reduce = count > 1 ? args[1].u.text : NULL;
    if (made == NULL || env->op(env, &op) != 0) {
        return -1;
    }
    *ret = tutti_any_tensor(made);
    return 0;
}

/* op(name, input, output, peer): whatever is asked for; of a barrier milliseconds, not a peer. */
static int
run_op(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    tutti_env_op op = {.size = sizeof(op)};

    if (count != 4 || args[0].kind != TUTTI_ANY_TEXT || args[3].kind != TUTTI_ANY_INT) {
        return env->fail(env, BAD_ARGS, "op takes a name, two tensors or null, and a peer");
    }
    op.op = args[0].u.text;
    op.input = args[1].kind == TUTTI_ANY_TENSOR ? args[1].u.tensor : NULL;
    op.output = args[2].kind == TUTTI_ANY_TENSOR ? args[2].u.tensor : NULL;
    if (strcmp(op.op, "barrier") == 0) {
        op.timeout_ms = (uint32_t)args[3].u.integer;
    } else {
        op.peer = (int32_t)args[3].u.integer;
    }
    *ret = tutti_any_int(env->rank);
    return env->op(env, &op);
}

/* ------------------------------------------------------------------------------ all of them */

TUTTI_PLUGIN_EXPORT int
tutti_plugin_1(const tutti_registry *registry)
{
    static const struct {
        const char *name;
        tutti_function function;
        const char *signature;
    } rows[] = {
        {"tests.add_one", add_one, "int -> int"},
        {"tests.add_half", add_half, "float -> float"},
        {"tests.suffix", suffix, "text -> text"},
        {"tests.shape_append", shape_append, "shape -> shape"},
        {"tests.kind", kind_of, "any -> int"},
        {"tests.identity", identity, "any -> any"},
        {"tests.fail", fail_with, "text, text -> nothing"},
        {"tests.fail_mutely", fail_mutely, NULL},
        {"tests.nonsense", give_nonsense, "int -> nonsense"},
        {"tests.sleep", sleep_for, "int -> int"},
        {"tests.axpy", axpy, "float, tensor, tensor -> null"},
        {"tests.make", make, "shape -> tensor"},
        {"tests.waste", waste, "-> int"},
        {"tests.all_reduce", all_reduce, "tensor, text -> tensor"},
        {"tests.op", run_op, "text, tensor, tensor, int -> int"},
    };
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (registry->add(registry, rows[i].name, rows[i].function, NULL, rows[i].signature) != 0) {
            return -1;
        }
    }
    return 0;
}
