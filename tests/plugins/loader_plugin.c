/* A plug-in with a loader: a file that exports other_kind_numbers has a function for each of them. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tutti/plugin.h"

/* The number that the function was added with. */
static int
give_number(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)args;
    (void)count;
    *ret = tutti_any_int(*(const int *)env->context);
    return 0;
}

static int
load(const tutti_registry *registry, const char *path, void *library)
{
    int *numbers = dlsym(library, "other_kind_numbers");

    if (numbers == NULL) {
        return 1;
    }
    if (strstr(path, "refused") != NULL) {
        return registry->fail(registry, "not this one");
    }
    if (strstr(path, "mute") != NULL) {
        return -1;
    }
    if (strstr(path, "nested") != NULL) {
        return registry->add_loader(registry, load);
    }
    return registry->add(registry, "first", give_number, &numbers[0], NULL) ||
                   registry->add(registry, "second", give_number, &numbers[1], NULL)
               ? -1
               : 0;
}

static int
load_none(const tutti_registry *registry, const char *path, void *library)
{
    (void)registry;
    (void)path;
    (void)library;
    return 1;
}

TUTTI_PLUGIN_EXPORT int
tutti_plugin_1(const tutti_registry *registry)
{
    return registry->add_loader(registry, load_none) || registry->add_loader(registry, load) ? -1
                                                                                             : 0;
}
