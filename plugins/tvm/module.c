#include "module.h"

#include <stdio.h>
#include <string.h>

#include "ffi.h"
#include "function.h"
#include "machine.h"
#include "symbols.h"

#define PREFIX "__tvm_ffi_"
#define WORDS_MAX 512

typedef struct module {
    const tutti_registry *registry;
    const char *path;
    tvm_any any;      /* the module as TVM-FFI has it; nothing before its first function is found */
    tvm_object *find; /* ffi.ModuleGetFunction */
} module;

static int
fail_load(const module *self)
{
    char text[WORDS_MAX];

    tvm_error_take(text, sizeof(text));
    return self->registry->fail(self->registry, text);
}

/*
 * TVM-FFI opens the file once more, which is free. So it knows the modules inside of it, and tells
 * the code where it finds what it needs.
 */
static int
open_module(module *self)
{
    tvm_object *load = tvm_function_find("ffi.ModuleLoadFromFile");
    tvm_any path = tvm_any_of(TUTTI_ANY_TEXT);
    int status;

    path.u.text = self->path;
    self->find = tvm_function_find("ffi.ModuleGetFunction");
    if (load == NULL || self->find == NULL) {
        return self->registry->fail(self->registry, "this TVM-FFI has no modules");
    }
    status = tvm_library.call(load, &path, 1, &self->any);
    (void)tvm_library.unref(load);
    return status == 0 ? 0 : fail_load(self);
}

/* Also in modules inside of it: Relax puts its kernels below a program of its virtual machine. */
static int
add_function(module *self, const char *name)
{
    tvm_any args[3] = {self->any, tvm_any_of(TUTTI_ANY_TEXT), tvm_any_of(TUTTI_ANY_BOOL)};
    tvm_any found = tvm_any_of(TUTTI_ANY_NULL);

    args[1].u.text = name;
    args[2].u.integer = 1;
    if (tvm_library.call(self->find, args, 3, &found) != 0) {
        return fail_load(self);
    }
    if (found.kind < TVM_OBJECT) {
        return self->registry->fail(self->registry, "TVM-FFI does not find a function that it has");
    }
    return tvm_function_add(self->registry, name, found.u.object);
}

/* What begins with one more _ is no function: metadata, the module's context. */
static int
on_symbol(void *context, const char *symbol)
{
    module *self = context;
    const char *name = symbol + sizeof(PREFIX) - 1;

    if (strncmp(symbol, PREFIX, sizeof(PREFIX) - 1) != 0 || name[0] == '_' || name[0] == '\0') {
        return 0;
    }
    if (self->any.kind == TUTTI_ANY_NULL && open_module(self) != 0) {
        return -1;
    }
    return add_function(self, name);
}

/* Functions keep their module. */
int
tvm_module_load(const tutti_registry *registry, const char *path, void *library)
{
    module self = {.registry = registry, .path = path, .any = tvm_any_of(TUTTI_ANY_NULL)};
    int status = tvm_symbols_list(library, on_symbol, &self);
    const bool is_ours = self.any.kind != TUTTI_ANY_NULL;

    if (status == 0 && is_ours) {
        status = tvm_machine_add(registry, &self.any, self.find);
    }
    tvm_any_free(&self.any);
    if (self.find != NULL) {
        (void)tvm_library.unref(self.find);
    }
    return status == 0 && !is_ours ? 1 : status;
}
