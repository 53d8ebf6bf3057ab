/*
 * The lock of a Unix socket's path: a file PATH.lock, held by flock for the life of the server,
 * with the holder's name in it for error messages. The kernel lets the lock go when the process
 * dies, so a leftover file locks nobody out. One thread, at start and stop.
 *
 * The file is removed while it is still locked. Another process may have opened it just before:
 * it gets the lock on a file that has no name any more, sees that (is_current), and opens the
 * path again. Without this check two servers could each hold "the" lock.
 */
#include "rpc/server/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/process.h"
#include "rpc/message/status_pb.h"

#define HOLDER_BYTES 96

static void
lock_path(const char *path, char ret_path[PATH_MAX])
{
    (void)snprintf(ret_path, PATH_MAX, "%s.lock", path);
}

/* Write "tutti-agent (pid 123)" into the file, for the error message of a second server. */
static void
write_holder(int lock)
{
    char name[64];
    char text[HOLDER_BYTES];
    int size;

    tutti_process_name("self", name, sizeof(name));
    size = snprintf(text, sizeof(text), "%s (pid %ld)\n", name, (long)getpid());
    if (ftruncate(lock, 0) != 0 || pwrite(lock, text, (size_t)size, 0) != size) {
        return; /* the lock counts, not its text */
    }
}

static void
read_holder(int lock, char *ret_text, size_t size)
{
    char text[HOLDER_BYTES];
    const ssize_t got = pread(lock, text, sizeof(text), 0);
    const char *end = got > 0 ? memchr(text, '\n', (size_t)got) : NULL;

    if (end == NULL) {
        (void)snprintf(ret_text, size, "another process");
        return;
    }
    rpc_status_clean(ret_text, size, (tutti_bytes){text, (size_t)(end - text)}, SIZE_MAX);
}

/*
 * Is the locked file still the one at that path? Its holder may have removed it between our open
 * and our lock.
 */
static bool
is_current(int lock, const char *path)
{
    struct stat ours;
    struct stat there;

    return fstat(lock, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

/*
 * Does a process listen there that takes no lock (another program, an older version)? A
 * connection that is accepted says so; SO_PEERCRED names its pid.
 */
static tutti_code
check_listener(const char *path, tutti_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);
    const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool heard;

    if (probe < 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not make a socket");
    }
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.107s", path);
    heard = connect(probe, (struct sockaddr *)&address, sizeof(address)) == 0;
    if (heard) {
        (void)getsockopt(probe, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    }
    (void)close(probe);
    if (heard) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "ADDRESS_IN_USE",
                              "could not listen on unix:%s: in use by pid %ld", path,
                              (long)peer.pid);
    }
    return TUTTI_OK;
}

/*
 * The lock is taken: write our name into it, or give it up if a process without a lock listens at
 * the path.
 */
static tutti_code
take_lock(const char *path, const char *file, int lock, int *ret_lock, tutti_error *err)
{
    const tutti_code code = check_listener(path, err);

    if (code != TUTTI_OK) {
        (void)unlink(file);
        (void)close(lock);
        return code;
    }
    write_holder(lock);
    *ret_lock = lock;
    return TUTTI_OK;
}

tutti_code
rpc_lock_open(const char *path, int *ret_lock, tutti_error *err)
{
    char file[PATH_MAX];
    char holder[HOLDER_BYTES];

    lock_path(path, file);
    for (;;) {
        /*
         * O_NOFOLLOW: in a folder that others can write to, a link must not lead us to a file
         * elsewhere.
         */
        const int lock = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (lock < 0) {
            return TUTTI_FAIL_ERRNO(err, errno, "could not lock %s", file);
        }
        if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
            read_holder(lock, holder, sizeof(holder));
            (void)close(lock);
            return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "ADDRESS_IN_USE",
                                  "could not listen on unix:%s: in use by %s", path, holder);
        }
        if (is_current(lock, file)) {
            return take_lock(path, file, lock, ret_lock, err);
        }
        (void)close(lock);
    }
}

void
rpc_lock_close(const char *path, int lock)
{
    char file[PATH_MAX];

    lock_path(path, file);
    (void)unlink(file); /* ours as long as it is locked */
    (void)close(lock);
}
