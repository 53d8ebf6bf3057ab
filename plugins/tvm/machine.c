/*
 * A machine runs one call at a time: its frames are its own. It takes tensors that it may keep while it runs,
 * so it is given copies: those of a call are the caller's only until the call has returned.
 */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "function.h"
#include "value.h"

#define CPU 1
#define POOLED 2 /* AllocatorType::kPooled */
#define NAME_SIZE 128

typedef struct machine {
    mtx_t lock;
} machine;

/* A function of a machine; both stay until the process ends, as all that is loaded does. */
typedef struct program {
    machine *owner;
    tvm_object *function;
} program;

/* ------------------------------------------------------------------------------ calls */

static int
run_program(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    const program *self = env->context;
    tvm_args opened;
    int status = -1;

    if (!tvm_args_open(&opened, env, args, count)) {
        return -1;
    }
    if (tvm_args_own(&opened, env)) {
        (void)mtx_lock(&self->owner->lock);
        status = tvm_function_call(self->function, env, &opened, ret);
        (void)mtx_unlock(&self->owner->lock);
    }
    tvm_args_close(&opened);
    return status;
}

/* ------------------------------------------------------------------------------ making */

/* A function of a module by its name, owned; NULL if it has none. */
static tvm_object *
find_in(tvm_object *find, const tvm_any *module, const char *name)
{
    tvm_any args[3] = {*module, tvm_any_of(TUTTI_ANY_TEXT), tvm_any_of(TUTTI_ANY_BOOL)};
    tvm_any found = tvm_any_of(TUTTI_ANY_NULL);

    args[1].u.text = name;
    if (tvm_library.call(find, args, 3, &found) != 0) {
        tvm_error_drop();
        return NULL;
    }
    if (found.kind < TVM_OBJECT) {
        return NULL;
    }
    return found.u.object;
}

/* Call a function of a module, which is given up. False: there is none, or it failed. */
static bool
call_in(tvm_object *find, const tvm_any *module, const char *name, const tvm_any *args,
        int32_t count, tvm_any *ret)
{
    tvm_object *function = find_in(find, module, name);
    bool fine;

    *ret = tvm_any_of(TUTTI_ANY_NULL);
    if (function == NULL) {
        return false;
    }
    fine = tvm_library.call(function, args, count, ret) == 0;
    if (!fine) {
        tvm_error_drop();
    }
    (void)tvm_library.unref(function);
    return fine;
}

static bool
make_machine(tvm_object *find, const tvm_any *module, tvm_any *ret_machine)
{
    tvm_any where[3] = {tvm_any_of(TUTTI_ANY_INT), tvm_any_of(TUTTI_ANY_INT),
                        tvm_any_of(TUTTI_ANY_INT)};
    tvm_any nothing;

    where[0].u.integer = CPU;
    where[2].u.integer = POOLED;
    if (!call_in(find, module, "vm_load_executable", NULL, 0, ret_machine)) {
        return false;
    }
    if (ret_machine->kind < TVM_OBJECT ||
        !call_in(find, ret_machine, "vm_initialization", where, 3, &nothing)) {
        tvm_any_free(ret_machine);
        return false;
    }
    tvm_any_free(&nothing);
    return true;
}

/* ------------------------------------------------------------------------------ names */

static int
add_program(const tutti_registry *registry, machine *owner, const char *name, tvm_object *function)
{
    program *self = calloc(1, sizeof(*self));

    if (self == NULL ||
        registry->add(registry, name, run_program, self, "of TVM's virtual machine") != 0) {
        free(self);
        (void)tvm_library.unref(function);
        return registry->fail(registry, "no memory for a function");
    }
    *self = (program){.owner = owner, .function = function};
    return 0;
}

/* "Globals (#3): [main, add, vm.builtin.reshape]": what its code calls is among them, and no function of it. */
static int
add_listed(const tutti_registry *registry, machine *owner, const tvm_any *made, tvm_object *find,
           const char *stats)
{
    const char *at = strstr(stats, "Globals (#");
    char name[NAME_SIZE];
    int status = 0;

    at = at == NULL ? NULL : strchr(at, '[');
    while (at != NULL && status == 0) {
        const size_t size = strcspn(++at, ",]");
        tvm_object *function = NULL;

        if (size > 0 && size < sizeof(name)) {
            (void)snprintf(name, sizeof(name), "%.*s", (int)size, at);
            function = find_in(find, made, name);
        }
        if (function != NULL) {
            status = add_program(registry, owner, name, function);
        }
        at += size;
        at = *at == ',' ? at + (at[1] == ' ' ? 1 : 0) : NULL;
    }
    return status;
}

static int
add_all(const tutti_registry *registry, const tvm_any *module, tvm_object *find,
        const tvm_any *made)
{
    machine *owner = calloc(1, sizeof(*owner));
    tvm_any stats;
    int status = 0;

    if (owner == NULL || mtx_init(&owner->lock, mtx_plain) != thrd_success) {
        free(owner);
        return registry->fail(registry, "no memory for a virtual machine");
    }
    if (call_in(find, module, "stats", NULL, 0, &stats) && stats.kind == TVM_TEXT) {
        status = add_listed(registry, owner, made, find,
                            ((const tutti_span *)tvm_object_content(stats.u.object))->data);
    }
    tvm_any_free(&stats);
    return status;
}

int
tvm_machine_add(const tutti_registry *registry, const tvm_any *module, tvm_object *find)
{
    tvm_any made;
    int status;

    if (tvm_library.from_dlpack == NULL || !make_machine(find, module, &made)) {
        return 0;
    }
    status = add_all(registry, module, find, &made);
    tvm_any_free(&made); /* its functions keep it */
    return status;
}
