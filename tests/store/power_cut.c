/*
 * A library for LD_PRELOAD that writes down what a process writes to the files of a folder and what it
 * waits for, so that a test can play a power cut: power_cut.py makes the folder anew with what a disk must
 * have, and any part of what it need not have.
 *
 * TUTTI_CUT_FOLDER  the folder; TUTTI_CUT_LOG  the file of what was done, one struct done behind the other
 * TUTTI_CUT_HOLD    while this file is there, the disk ends nothing that is waited for
 *
 * What is written down is with the kernel, and so survives SIGKILL of the process. Files are made and
 * renamed for good at once: cuts of these are not played.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    WROTE = 1,
    SYNCED = 2,
    CUT = 3,
    WROTE_FOR_GOOD = 4,
    WAITS = 5 /* for a disk that is held */
};

/* Behind it: the file's name, and the bytes. */
typedef struct done {
    uint32_t kind;
    uint32_t name_size;
    uint64_t offset; /* CUT: the new length */
    uint64_t size;
} done;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The name of the file within the folder; NULL = it is elsewhere. */
static const char *
find_name(int fd, char path[PATH_MAX])
{
    const char *folder = getenv("TUTTI_CUT_FOLDER");
    const size_t size = folder == NULL ? 0 : strlen(folder);
    char link[64];
    ssize_t got;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    got = size == 0 ? -1 : readlink(link, path, PATH_MAX - 1);
    if (got <= (ssize_t)size) {
        return NULL;
    }
    path[got] = '\0';
    return strncmp(path, folder, size) == 0 && path[size] == '/' ? path + size + 1 : NULL;
}

static void
note(uint32_t kind, int fd, uint64_t offset, const void *data, size_t size)
{
    static int log_fd = -1;
    char path[PATH_MAX];
    const char *name = find_name(fd, path);
    done one = {.kind = kind, .offset = offset, .size = size};
    struct iovec parts[3];

    if (name == NULL) {
        return;
    }
    one.name_size = (uint32_t)strlen(name);
    parts[0] = (struct iovec){&one, sizeof(one)};
    parts[1] = (struct iovec){(void *)(uintptr_t)name, one.name_size};
    parts[2] = (struct iovec){(void *)(uintptr_t)data, size};
    (void)pthread_mutex_lock(&lock);
    if (log_fd < 0) {
        log_fd = open(getenv("TUTTI_CUT_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    if (REAL(writev)(log_fd, parts, 3) < 0) {
        abort();
    }
    (void)pthread_mutex_unlock(&lock);
}

static uint32_t
kind_of(int fd)
{
    return (fcntl(fd, F_GETFL) & O_DSYNC) != 0 ? WROTE_FOR_GOOD : WROTE;
}

ssize_t
pwrite(int fd, const void *data, size_t size, off_t offset)
{
    const uint32_t kind = kind_of(fd);

    if (kind == WROTE) {
        note(kind, fd, (uint64_t)offset, data, size);
    }
    size = (size_t)REAL(pwrite)(fd, data, size, offset);
    if (kind != WROTE && (ssize_t)size > 0) {
        note(kind, fd, (uint64_t)offset, data, size);
    }
    return (ssize_t)size;
}

ssize_t
pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite(fd, data, size, offset);
}

ssize_t
write(int fd, const void *data, size_t size)
{
    const off_t at = lseek(fd, 0, SEEK_CUR);

    if (at >= 0) {
        note(kind_of(fd), fd, (uint64_t)at, data, size);
    }
    return REAL(write)(fd, data, size);
}

ssize_t
writev(int fd, const struct iovec *parts, int count)
{
    off_t at = lseek(fd, 0, SEEK_CUR);
    int i;

    for (i = 0; i < count && at >= 0; i++) {
        note(kind_of(fd), fd, (uint64_t)at, parts[i].iov_base, parts[i].iov_len);
        at += (off_t)parts[i].iov_len;
    }
    return REAL(writev)(fd, parts, count);
}

static int
synced(int fd, int failed)
{
    if (failed == 0) {
        note(SYNCED, fd, 0, NULL, 0);
    }
    return failed;
}

/* A test that has it wait knows that something can be lost. */
static void
wait_for_disk(int fd)
{
    const char *hold = getenv("TUTTI_CUT_HOLD");

    if (hold != NULL && access(hold, F_OK) == 0) {
        note(WAITS, fd, 0, NULL, 0);
    }
    while (hold != NULL && access(hold, F_OK) == 0) {
        (void)usleep(1000);
    }
}

int
fdatasync(int fd)
{
    wait_for_disk(fd);
    return synced(fd, REAL(fdatasync)(fd));
}

int
fsync(int fd)
{
    wait_for_disk(fd);
    return synced(fd, REAL(fsync)(fd));
}

int
ftruncate(int fd, off_t length)
{
    note(CUT, fd, (uint64_t)length, NULL, 0);
    return REAL(ftruncate)(fd, length);
}

int
ftruncate64(int fd, off_t length)
{
    return ftruncate(fd, length);
}
