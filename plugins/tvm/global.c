#include "global.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "function.h"

#define NAME_MAX_SIZE 128 /* with its NUL, as registry->add takes it */

/* ------------------------------------------------------------------------------ what is named */

static bool
is_under(const char *prefix, size_t size, const char *name)
{
    if (size == 1 && prefix[0] == '*') {
        return true;
    }
    return size > 0 && strncmp(name, prefix, size) == 0 &&
           (name[size] == '\0' || name[size] == '.');
}

static const char *
named(void)
{
    const char *list = getenv("TUTTI_TVM_FUNCTIONS");

    return list == NULL ? "" : list;
}

static bool
is_named(const char *name)
{
    const char *list = named();

    while (list[0] != '\0') {
        const size_t size = strcspn(list, ",");

        if (is_under(list, size, name)) {
            return true;
        }
        list += size + (list[size] == ',' ? 1 : 0);
    }
    return false;
}

/* ------------------------------------------------------------------------------ tvm.call */

static int
call_global(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    tvm_object *function;
    char text[256];
    int status;

    if (count < 1 || args[0].kind != TUTTI_ANY_TEXT) {
        return env->fail(env, "BAD_ARGS",
                         "tvm.call takes the name of a function and its arguments");
    }
    if (!is_named(args[0].u.text)) {
        (void)snprintf(text, sizeof(text), "\"%.100s\" is not under TUTTI_TVM_FUNCTIONS",
                       args[0].u.text);
        return env->fail(env, "UNKNOWN_FUNC", text);
    }
    function = tvm_function_find(args[0].u.text);
    if (function == NULL) {
        (void)snprintf(text, sizeof(text), "TVM-FFI has no function \"%.100s\"", args[0].u.text);
        return env->fail(env, "UNKNOWN_FUNC", text);
    }
    status = tvm_function_run(function, env, args + 1, count - 1, ret);
    (void)tvm_library.unref(function);
    return status;
}

/* ------------------------------------------------------------------------------ tvm.NAME */

/* Of a text that TVM-FFI has given. False: it is too long, or no name for registry->add. */
static bool
copy_name(tvm_any *text, char ret_name[NAME_MAX_SIZE])
{
    tutti_span span = {text->u.small, text->small_size};

    if (text->kind == TVM_TEXT) {
        span = *(tutti_span *)tvm_object_content(text->u.object);
    } else if (text->kind != TVM_SMALL_TEXT) {
        return false;
    }
    if (span.size + sizeof("tvm.") > NAME_MAX_SIZE) {
        return false;
    }
    memcpy(ret_name, span.data, span.size);
    ret_name[span.size] = '\0';
    return strspn(ret_name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-") ==
           span.size;
}

static int
add_global(const tutti_registry *registry, const char *name)
{
    tvm_object *function = tvm_function_find(name);
    char ours[NAME_MAX_SIZE + sizeof("tvm.")];

    (void)snprintf(ours, sizeof(ours), "tvm.%s", name);
    if (function == NULL || strcmp(ours, "tvm.call") == 0) {
        if (function != NULL) {
            (void)tvm_library.unref(function);
        }
        return 0;
    }
    return tvm_function_add(registry, ours, function);
}

/* list(-1) is their number, list(i) a name. */
static int
add_listed(const tutti_registry *registry, tvm_object *list)
{
    tvm_any index = tvm_any_of(TUTTI_ANY_INT);
    tvm_any found = tvm_any_of(TUTTI_ANY_NULL);
    char name[NAME_MAX_SIZE];
    int64_t count;
    int status = 0;

    index.u.integer = -1;
    if (tvm_library.call(list, &index, 1, &found) != 0 || found.kind != TUTTI_ANY_INT) {
        return registry->fail(registry, "TVM-FFI does not list its functions");
    }
    count = found.u.integer;
    for (index.u.integer = 0; index.u.integer < count && status == 0; index.u.integer++) {
        found = tvm_any_of(TUTTI_ANY_NULL);
        if (tvm_library.call(list, &index, 1, &found) != 0) {
            return registry->fail(registry, "TVM-FFI does not list its functions");
        }
        if (copy_name(&found, name) && is_named(name)) {
            status = add_global(registry, name);
        }
        tvm_any_free(&found);
    }
    return status;
}

static int
add_all(const tutti_registry *registry)
{
    tvm_object *lister = tvm_function_find("ffi.FunctionListGlobalNamesFunctor");
    tvm_any list = tvm_any_of(TUTTI_ANY_NULL);
    int status;

    if (lister == NULL || tvm_library.call(lister, NULL, 0, &list) != 0 || list.kind < TVM_OBJECT) {
        return registry->fail(registry, "TVM-FFI does not list its functions");
    }
    (void)tvm_library.unref(lister);
    status = add_listed(registry, list.u.object);
    tvm_any_free(&list);
    return status;
}

int
tvm_globals_add(const tutti_registry *registry)
{
    if (named()[0] == '\0') {
        return 0;
    }
    return registry->add(registry, "tvm.call", call_global, NULL, "text, any ... -> any") != 0
               ? -1
               : add_all(registry);
}
