/*
 * Modules: parts of the program that need libraries which not every machine has, such as CUDA and
 * NCCL. They are loaded when they are first wanted, so one program runs with and without them.
 */
#include "base/os/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* ------------------------------------------------------------------------------ files that are named */

/* The process's own group is as good as its user: it is often that user's alone. The sticky bit
 * excuses nothing: it keeps others from taking a file away, but not from adding one. */
static bool
others_may_write(const struct stat *info)
{
    const bool group = (info->st_mode & S_IWGRP) != 0 && info->st_gid != getegid();

    return group || (info->st_mode & S_IWOTH) != 0;
}

/* Who can write the file can run code with all rights of this process. */
static tutti_code
check_owner(const char *path, const struct stat *info, tutti_error *err)
{
    if (info->st_uid != 0 && info->st_uid != geteuid()) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_MODULE",
                              "%.500s belongs to user %u: it has to be root's, or of the user that "
                              "loads it (%u)",
                              path, (unsigned)info->st_uid, (unsigned)geteuid());
    }
    if (others_may_write(info)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_MODULE",
                              "%.500s can be written by others (mode %o): chmod go-w", path,
                              (unsigned)info->st_mode & 07777U);
    }
    return TUTTI_OK;
}

static tutti_code
fail_open(const char *path, int number, tutti_error *err)
{
    return number == ENOENT || number == ENOTDIR
               ? TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_MODULE", "there is no %.500s", path)
               : TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_MODULE", "%.500s: %s", path,
                                strerror(number));
}

/*
 * The folder of a file. What is looked for in the descriptor from here on is there by nobody's hand
 * but root's and this user's, whatever becomes of the path.
 */
static tutti_code
open_folder(const char *path, int *ret_folder, tutti_error *err)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    struct stat info;
    int descriptor;
    tutti_code code;

    (void)snprintf(folder, sizeof(folder), "%.*s", slash == NULL ? 1 : (int)(slash - path) + 1,
                   slash == NULL ? "." : path);
    descriptor = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &info) != 0) {
        return fail_open(path, errno, err);
    }
    code = check_owner(folder, &info, err);
    if (code == TUTTI_OK) {
        *ret_folder = descriptor;
    } else {
        (void)close(descriptor);
    }
    return code;
}

/* Where the path leads, over links or not, others may not put anything. */
static tutti_code
check_folder(const char *path, tutti_error *err)
{
    int folder = -1;

    TUTTI_TRY(open_folder(path, &folder, err));
    (void)close(folder);
    return TUTTI_OK;
}

static tutti_code
check_file(int folder, const char *path, tutti_error *err)
{
    const int file = openat(folder, strrchr(path, '/') + 1, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;
    tutti_code code;

    if (file < 0 || fstat(file, &info) != 0) {
        return fail_open(path, errno, err);
    }
    code = S_ISREG(info.st_mode) ? check_owner(path, &info, err)
                                 : TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_MODULE",
                                                  "%.500s is no file", path);
    (void)close(file);
    return code;
}

/* The loader's words, with the folder's name in them instead of the descriptor's. */
static tutti_code
fail_load(const char *path, const char *name, tutti_error *err)
{
    const char *words = dlerror();
    const size_t size = strlen(name);
    const bool named = strncmp(words, name, size) == 0;

    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_MODULE", "cannot load: %.700s%.700s",
                          named ? path : "", named ? words + size : words);
}

/*
 * Load from the folder that was judged, by its descriptor: the path may lead to another one by now.
 * By the descriptor of the file itself the library would not find what it looks for in $ORIGIN.
 *
 * ret_kept  The library's name is that of the descriptor, which has to stay open; it is not if the
 *           same file was loaded before
 */
static tutti_code
load_from(int folder, const char *path, tutti_module_file *ret_file, bool *ret_kept,
          tutti_error *err)
{
    char name[PATH_MAX];
    struct link_map *map = NULL;

    (void)snprintf(name, sizeof(name), "/proc/self/fd/%d%s", folder, strrchr(path, '/'));
    ret_file->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (ret_file->library == NULL) {
        return fail_load(path, name, err);
    }
    *ret_kept = dlinfo(ret_file->library, RTLD_DI_LINKMAP, &map) != 0 || map == NULL ||
                strcmp(map->l_name, name) == 0;
    return TUTTI_OK;
}

tutti_code
tutti_module_open(const char *path, const char *symbol, tutti_module_file *ret_file,
                  tutti_error *err)
{
    const char *real = ret_file->path;
    bool kept = false;
    int folder = -1;
    tutti_code code;

    if (realpath(path, ret_file->path) == NULL) {
        return fail_open(path, errno, err);
    }
    TUTTI_TRY(check_folder(path, err));
    TUTTI_TRY(open_folder(real, &folder, err));
    code = check_file(folder, real, err);
    if (code == TUTTI_OK) {
        code = load_from(folder, real, ret_file, &kept, err);
    }
    if (!kept) {
        (void)close(folder);
    }
    if (code == TUTTI_OK) {
        ret_file->symbol = dlsym(ret_file->library, symbol);
    }
    return code;
}
