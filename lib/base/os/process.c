/*
 * What a server needs to know or to set about its own process, and who holds a port that it
 * wanted.
 */
#include "base/os/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/file.h"

#define TCP_LISTEN 0x0A
#define COMM_MAX 15 /* bytes of a name that the kernel keeps */

/*
 * The limit is raised to the hard one, which needs no rights. Only what is still too little is an
 * error.
 */
tutti_code
tutti_process_raise_files(uint64_t least, tutti_error *err)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not read the limit of open files");
    }
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not raise the limit of open files to %" PRIu64,
                                (uint64_t)limit.rlim_max);
    }
    if (limit.rlim_cur < least) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "at most %" PRIu64 " open files are allowed, need %" PRIu64
                              ": raise it with ulimit -n, LimitNOFILE= or --ulimit nofile=",
                              (uint64_t)limit.rlim_cur, least);
    }
    return TUTTI_OK;
}

/*
 * Large blocks come and go with each op. With malloc's usual thresholds each of them would be
 * mapped and unmapped again, and its pages cleared each time.
 */
void
tutti_process_tune_malloc(void)
{
    (void)mallopt(M_TRIM_THRESHOLD, 256 << 20);
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
}

/*
 * Without this, another process of the same user could read private keys and tokens through
 * ptrace or /proc, and a core dump would hold them.
 */
tutti_code
tutti_process_hide_memory(tutti_error *err)
{
    if (prctl(PR_SET_DUMPABLE, 0L, 0L, 0L, 0L) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not hide the memory of this process");
    }
    return TUTTI_OK;
}

/* A number alone in a file, "max" or absent = no limit. */
static uint64_t
read_limit(const char *path)
{
    char *text = NULL;
    uint64_t limit = UINT64_MAX;

    if (tutti_file_read(path, 4096, &text, NULL, NULL) == TUTTI_OK) {
        if (isdigit((unsigned char)text[0])) {
            limit = strtoull(text, NULL, 10);
        }
        free(text);
    }
    return limit;
}

/* ulimit -v: whoever has set it means all of this process. */
static uint64_t
read_address_space(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX
                                                                                : limit.rlim_cur;
}

/*
 * The smallest of what the machine has, what the container may use, in version 2 or 1 of cgroups, and
 * what this process may map.
 */
uint64_t
tutti_process_memory(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    const uint64_t machine = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 1ULL << 30;
    const uint64_t v2 = read_limit("/sys/fs/cgroup/memory.max");
    const uint64_t v1 = read_limit("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    const uint64_t cgroup = v2 < v1 ? v2 : v1;
    const uint64_t space = read_address_space();
    const uint64_t least = machine < cgroup ? machine : cgroup;

    return least < space ? least : space;
}

/* The inode of the socket that listens on the port, from one of the kernel's tables; 0 = none. */
static uint64_t
find_listener(const char *table, uint16_t port)
{
    char line[512];
    uint64_t inode = 0;
    FILE *file = fopen(table, "re");

    while (file != NULL && inode == 0 && fgets(line, sizeof(line), file) != NULL) {
        unsigned local = 0;
        unsigned state = 0;
        uint64_t candidate = 0;

        if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*s %*s %" SCNu64,
                   &local, &state, &candidate) == 3 &&
            local == port && state == TCP_LISTEN) {
            inode = candidate;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return inode;
}

/* Does one of the process's descriptors lead to `wanted`, "socket:[123]"? */
static bool
process_holds(const char *pid, const char *wanted)
{
    char path[300];
    char target[64];
    struct dirent *entry;
    bool found = false;
    DIR *directory;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    directory = opendir(path);
    while (directory != NULL && !found && (entry = readdir(directory)) != NULL) {
        ssize_t size;

        (void)snprintf(path, sizeof(path), "/proc/%.20s/fd/%.20s", pid, entry->d_name);
        size = readlink(path, target, sizeof(target) - 1);
        if (size > 0) {
            target[size] = '\0';
            found = strcmp(target, wanted) == 0;
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return found;
}

static bool
find_holder(const char *wanted, char *ret_pid, size_t size)
{
    struct dirent *entry;
    bool found = false;
    DIR *directory = opendir("/proc");

    while (directory != NULL && !found && (entry = readdir(directory)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0]) && process_holds(entry->d_name, wanted)) {
            (void)snprintf(ret_pid, size, "%.20s", entry->d_name);
            found = true;
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return found;
}

/* The first line, or the first string, of a file of a process; "" when it cannot be read. */
static void
read_word(const char *pid, const char *file, char *ret, size_t size)
{
    char path[64];
    char *text = NULL;

    ret[0] = '\0';
    (void)snprintf(path, sizeof(path), "/proc/%.20s/%.20s", pid, file);
    if (tutti_file_read(path, 65536, &text, NULL, NULL) == TUTTI_OK) {
        (void)snprintf(ret, size, "%.*s", (int)strcspn(text, "\n"), text);
        free(text);
    }
}

/*
 * The kernel keeps 15 bytes of a name. Where it has cut one, the command line has the rest, and
 * it is taken only if it begins in the same way: a program may write anything there.
 */
void
tutti_process_name(const char *pid, char *ret_name, size_t size)
{
    char called[PATH_MAX];
    const char *base;

    read_word(pid, "comm", ret_name, size);
    if (strlen(ret_name) == COMM_MAX) { /* the kernel cuts what is longer */
        read_word(pid, "cmdline", called, sizeof(called));
        base = strrchr(called, '/') != NULL ? strrchr(called, '/') + 1 : called;
        if (strncmp(base, ret_name, COMM_MAX) == 0) {
            (void)snprintf(ret_name, size, "%.*s", (int)size - 1, base);
        }
    }
    if (ret_name[0] == '\0') {
        (void)snprintf(ret_name, size, "a process");
    }
}

/* For a message to a person only. The answer may be out of date when it is read. */
void
tutti_process_who_listens(uint16_t port, char *ret_text, size_t size)
{
    uint64_t inode = find_listener("/proc/net/tcp", port);
    char wanted[64];
    char pid[32];
    char name[64];

    if (inode == 0) {
        inode = find_listener("/proc/net/tcp6", port);
    }
    (void)snprintf(wanted, sizeof(wanted), "socket:[%" PRIu64 "]", inode);
    if (inode == 0) {
        (void)snprintf(ret_text, size, "a process that has gone");
        return;
    }
    if (!find_holder(wanted, pid, sizeof(pid))) {
        /* or one of ours that has called tutti_process_hide_memory */
        (void)snprintf(ret_text, size, "a process that this user may not look into");
        return;
    }
    tutti_process_name(pid, name, sizeof(name));
    (void)snprintf(ret_text, size, "%s (pid %s)", name, pid);
}
