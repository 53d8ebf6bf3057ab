/*
 * Modules: parts of the program that need libraries which not every machine has, such as CUDA and
 * NCCL. They are loaded when they are first wanted, so one program runs with and without them.
 */
#include "base/os/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"

#define PLACES 2

/* The folder of the program, without a slash behind; "." when /proc does not say. */
static void
find_program(char *ret_folder, size_t size)
{
    const ssize_t got = readlink("/proc/self/exe", ret_folder, size - 1);
    char *slash;

    ret_folder[got > 0 ? got : 0] = '\0';
    slash = strrchr(ret_folder, '/');
    if (slash == NULL) {
        (void)snprintf(ret_folder, size, ".");
    } else {
        *slash = '\0';
    }
}

/* The first place where the file is, or the last one. */
static void
find_file(const char *name, char *ret_path, size_t size)
{
    static const char *const places[PLACES] = {"", "/../lib/tutti"};
    const char *stated = getenv("TUTTI_MODULES");
    char folder[PATH_MAX];
    size_t i;

    if (stated != NULL && stated[0] != '\0') {
        (void)snprintf(ret_path, size, "%.3800s/tutti-%.100s.so", stated, name);
        return;
    }
    find_program(folder, sizeof(folder));
    for (i = 0; i < PLACES; i++) {
        (void)snprintf(ret_path, size, "%.3800s%s/tutti-%.100s.so", folder, places[i], name);
        if (access(ret_path, R_OK) == 0) {
            return;
        }
    }
}

/* A module is never unloaded: its code may have threads and handlers that nobody could stop. */
tutti_code
tutti_module_load(const char *name, const char *symbol, const void **ret_symbol, tutti_error *err)
{
    char path[PATH_MAX];
    void *module;
    const void *found;

    find_file(name, path, sizeof(path));
    if (access(path, R_OK) != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_MODULE",
                              "there is no %s: this build has no GPU support, rebuild where CUDA "
                              "and NCCL are (-DTUTTI_CUDA=ON), use the image for GPUs, or set "
                              "TUTTI_MODULES to the folder of the modules",
                              path);
    }
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_MODULE", "cannot load: %s",
                              dlerror());
    }
    found = dlsym(module, symbol);
    if (found == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_MODULE",
                              "%s has no %s: it is of another version than this program", path,
                              symbol);
    }
    *ret_symbol = found;
    return TUTTI_OK;
}
