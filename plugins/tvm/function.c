#include "function.h"

#include "value.h"

#include <stdatomic.h>
#include <stdlib.h>

#define WORDS_MAX 512

/* One that was added: in a list, so that a look for leaks finds what it holds. */
typedef struct added {
    tvm_object *function;
    struct added *next;
} added;

static int
fail_call(const tutti_env *env)
{
    char text[WORDS_MAX];

    tvm_error_take(text, sizeof(text));
    return env->fail(env, NULL, text);
}

int
tvm_function_call(tvm_object *function, const tutti_env *env, const tvm_args *args, tutti_any *ret)
{
    tvm_any returned = tvm_any_of(TUTTI_ANY_NULL);

    if (tvm_library.call(function, args->anys, args->count, &returned) != 0) {
        return fail_call(env);
    }
    return tvm_value_return(env, args, &returned, ret);
}

int
tvm_function_run(tvm_object *function, const tutti_env *env, const tutti_any *args, int32_t count,
                 tutti_any *ret)
{
    tvm_args opened;
    int status;

    if (!tvm_args_open(&opened, env, args, count)) {
        return -1;
    }
    status = tvm_function_call(function, env, &opened, ret);
    tvm_args_close(&opened);
    return status;
}

static int
run_added(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    const added *self = env->context;

    return tvm_function_run(self->function, env, args, count, ret);
}

int
tvm_function_add(const tutti_registry *registry, const char *name, tvm_object *function)
{
    static added *_Atomic all;
    added *self = calloc(1, sizeof(*self));

    if (self == NULL || registry->add(registry, name, run_added, self, "of TVM-FFI") != 0) {
        free(self);
        (void)tvm_library.unref(function);
        return registry->fail(registry, "no memory for a function");
    }
    self->function = function;
    self->next = all;
    while (!atomic_compare_exchange_weak(&all, &self->next, self)) {
    }
    return 0;
}
