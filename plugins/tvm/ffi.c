#include "ffi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARIES_MAX 16
#define PATH_BYTES_MAX 4096

tvm_ffi tvm_library;

/* ------------------------------------------------------------------------------ loading */

typedef struct libraries {
    void *handles[LIBRARIES_MAX];
    size_t count;
    char *text; /* why the last one could not be loaded */
    size_t text_size;
} libraries;

/* Modules take their symbols from it, so it is global. */
static bool
load_library(libraries *self, const char *path)
{
    void *handle = self->count == LIBRARIES_MAX ? NULL : dlopen(path, RTLD_NOW | RTLD_GLOBAL);

    if (handle == NULL) {
        (void)snprintf(self->text, self->text_size, "%s",
                       self->count == LIBRARIES_MAX ? "more than 16 libraries" : dlerror());
        return false;
    }
    self->handles[self->count++] = handle;
    return true;
}

static bool
load_named(libraries *self, const char *list)
{
    char path[PATH_BYTES_MAX];

    while (list[0] != '\0') {
        const size_t size = strcspn(list, ",");

        (void)snprintf(path, sizeof(path), "%.*s", (int)size, list);
        if (size > 0 && !load_library(self, path)) {
            return false;
        }
        list += size + (list[size] == ',' ? 1 : 0);
    }
    return true;
}

static bool
load_libraries(libraries *self, const char *list)
{
    char why[512];

    if (list != NULL && list[0] != '\0') {
        if (load_named(self, list)) {
            return true;
        }
        (void)snprintf(why, sizeof(why), "%s", self->text);
        (void)snprintf(self->text, self->text_size, "TUTTI_TVM_LIBRARIES: %s", why);
        return false;
    }
    if (!load_library(self, "libtvm_ffi.so")) {
        (void)snprintf(self->text, self->text_size,
                       "no TVM-FFI: tried libtvm_ffi.so. PyPI's apache-tvm-ffi has it: set "
                       "TUTTI_TVM_LIBRARIES to its lib/libtvm_ffi.so");
        return false;
    }
    (void)load_library(self, "libtvm_runtime.so");
    return true;
}

/* ------------------------------------------------------------------------------ symbols */

static bool
find_symbol(const libraries *self, const char *name, void *ret_function)
{
    size_t i;

    for (i = 0; i < self->count; i++) {
        void *found = dlsym(self->handles[i], name);

        if (found != NULL) {
            memcpy(ret_function, &found, sizeof(found)); /* POSIX has it that they are alike */
            return true;
        }
    }
    (void)snprintf(self->text, self->text_size,
                   "no TVM-FFI: none of the libraries has %s, as those of apache-tvm-ffi 0.1.0 and "
                   "later do",
                   name);
    return false;
}

static bool
find_symbols(const libraries *self)
{
    tvm_ffi found = {0};

    if (!find_symbol(self, "TVMFFIFunctionGetGlobal", &found.find) ||
        !find_symbol(self, "TVMFFIFunctionCall", &found.call) ||
        !find_symbol(self, "TVMFFIObjectDecRef", &found.unref) ||
        !find_symbol(self, "TVMFFIErrorMoveFromRaised", &found.take_error) ||
        !find_symbol(self, "TVMFFIGetTypeInfo", &found.type)) {
        return false;
    }
    if (!find_symbol(self, "TVMFFITensorFromDLPack", &found.from_dlpack)) {
        self->text[0] = '\0'; /* kernels do without it */
    }
    tvm_library = found;
    return true;
}

/* tutti_plugin_1 of --plugin and of a LoadModule may both come here. */
bool
tvm_ffi_open(char *ret_text, size_t size)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    libraries self = {.text = ret_text, .text_size = size};
    bool fine;

    (void)pthread_mutex_lock(&lock);
    fine = tvm_library.find != NULL ||
           (load_libraries(&self, getenv("TUTTI_TVM_LIBRARIES")) && find_symbols(&self));
    (void)pthread_mutex_unlock(&lock);
    return fine;
}

/* ------------------------------------------------------------------------------ helpers */

void
tvm_any_free(tvm_any *any)
{
    if (any->kind >= TVM_OBJECT && any->u.object != NULL) {
        (void)tvm_library.unref(any->u.object);
    }
    *any = tvm_any_of(TUTTI_ANY_NULL);
}

tvm_object *
tvm_function_find(const char *name)
{
    const tutti_span span = {name, strlen(name)};
    tvm_object *function = NULL;

    return tvm_library.find(&span, &function) == 0 ? function : NULL;
}

void
tvm_error_drop(void)
{
    char text[64];

    tvm_error_take(text, sizeof(text));
}

void
tvm_error_take(char *ret_text, size_t size)
{
    tvm_object *object = NULL;
    const tvm_error *error;

    tvm_library.take_error(&object);
    if (object == NULL) {
        (void)snprintf(ret_text, size, "it failed, and did not say why");
        return;
    }
    error = tvm_object_content(object);
    (void)snprintf(ret_text, size, "%.*s: %.*s", (int)error->kind.size, error->kind.data,
                   (int)error->message.size, error->message.data);
    (void)tvm_library.unref(object);
}
