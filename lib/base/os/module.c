/*
 * Modules: parts of the program that need libraries which not every machine has, such as CUDA and
 * NCCL. They are loaded when they are first wanted, so one program runs with and without them.
 */
#include "base/os/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
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

/* The process's own group is as good as its user: it is often that user's alone. */
static bool
others_may_write(const struct stat *info)
{
    const bool group = (info->st_mode & S_IWGRP) != 0 && info->st_gid != getegid();

    return (group || (info->st_mode & S_IWOTH) != 0) && (info->st_mode & S_ISVTX) == 0;
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
check_file(const char *path, tutti_error *err)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        return errno == ENOENT || errno == ENOTDIR
                   ? TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_MODULE", "there is no %.500s", path)
                   : TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_MODULE", "%.500s: %s",
                                    path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_MODULE", "%.500s is no file",
                              path);
    }
    return check_owner(path, &info, err);
}

/* In a folder that others may write, a file of any owner can be replaced. */
static tutti_code
check_folder(const char *path, tutti_error *err)
{
    char folder[PATH_MAX];
    struct stat info;
    char *slash;

    (void)snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (slash == NULL) {
        (void)snprintf(folder, sizeof(folder), ".");
    } else {
        slash[slash == folder ? 1 : 0] = '\0';
    }
    return stat(folder, &info) == 0 ? check_owner(folder, &info, err) : TUTTI_OK;
}

tutti_code
tutti_module_open(const char *path, const char *symbol, tutti_module_file *ret_file,
                  tutti_error *err)
{
    char *real = ret_file->path;
    void *module;

    TUTTI_TRY(check_file(path, err));

    if (realpath(path, real) == NULL) {
        return TUTTI_FAIL_ERRNO(err, errno, "%.500s", path);
    }
    TUTTI_TRY(check_folder(real, err));
    module = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_MODULE", "cannot load: %.700s",
                              dlerror());
    }
    ret_file->library = module;
    ret_file->symbol = dlsym(module, symbol);
    return TUTTI_OK;
}
