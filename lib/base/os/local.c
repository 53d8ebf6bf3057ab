/*
 * What two processes of one machine need for sharing memory: a name for the machine, a socket
 * that carries descriptors, and memory that cannot be taken away.
 */
#include "base/os/local.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/os/file.h"

#define BACKLOG 4096
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* of Linux 6.16 */
#endif
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/*
 * Two containers of one machine are only the same host to each other if they share an IPC
 * namespace. The boot id tells machines apart, even those with the same name.
 */
void
tutti_local_host_id(const char *stated, char ret_id[TUTTI_LOCAL_HOST_MAX + 1])
{
    char *boot = NULL;
    char ipc[64] = "";
    ssize_t size;

    if (stated != NULL && stated[0] != '\0') {
        (void)snprintf(ret_id, TUTTI_LOCAL_HOST_MAX + 1, "%s", stated);
        return;
    }
    size = readlink("/proc/self/ns/ipc", ipc, sizeof(ipc) - 1);
    ipc[size > 0 ? size : 0] = '\0';
    if (tutti_file_read("/proc/sys/kernel/random/boot_id", 64, &boot, NULL, NULL) == TUTTI_OK) {
        boot[strcspn(boot, "\n")] = '\0';
    }
    (void)snprintf(ret_id, TUTTI_LOCAL_HOST_MAX + 1, "%s/%s", boot == NULL ? "" : boot, ipc);
    free(boot);
}

/* In the abstract namespace: nothing is left in any file system, and a name needs no place. */
static socklen_t
fill_name(tutti_bytes name, struct sockaddr_un *ret)
{
    assert(name.size > 0 && name.size <= TUTTI_LOCAL_NAME_MAX);
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret->sun_path + 1, name.data, name.size);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + name.size);
}

static int
open_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int
tutti_local_listen(tutti_bytes name)
{
    struct sockaddr_un address;
    const socklen_t size = fill_name(name, &address);
    const int fd = open_socket();

    if (fd >= 0 &&
        (bind(fd, (const struct sockaddr *)&address, size) != 0 || listen(fd, BACKLOG) != 0)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

int
tutti_local_connect(tutti_bytes name)
{
    struct sockaddr_un address;
    const socklen_t size = fill_name(name, &address);
    const int fd = open_socket();

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, size) != 0) {
        const int number = errno;

        (void)close(fd);
        errno = number;
        return -1;
    }
    return fd;
}

/* Sockets that are accepted have it from the listener, also for what came before accept. */
void
tutti_local_refuse_descriptors(int listener)
{
    const int none = 0;

    (void)setsockopt(listener, SOL_SOCKET, SO_PASSRIGHTS, &none, sizeof(none));
}

/* The kernel says who the other side is; the other side cannot. */
bool
tutti_local_peer(int socket, uid_t *ret_user)
{
    struct ucred who = {0};
    socklen_t size = sizeof(who);

    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
        return false;
    }
    *ret_user = who.uid;
    return true;
}

bool
tutti_local_is_same_user(int socket)
{
    uid_t user = 0;

    return tutti_local_peer(socket, &user) && user == geteuid();
}

/* SOCK_SEQPACKET keeps messages whole: this sends all of it or nothing. */
bool
tutti_local_send(int socket, const void *data, size_t size, const int *fds, size_t count)
{
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(TUTTI_LOCAL_FDS_MAX * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    memset(&control, 0, sizeof(control));
    if (count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&control.head), fds, count * sizeof(int));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

static size_t
take_fds(struct msghdr *message, int fds[TUTTI_LOCAL_FDS_MAX])
{
    struct cmsghdr *head;
    size_t count = 0;
    size_t i;

    for (head = CMSG_FIRSTHDR(message); head != NULL; head = CMSG_NXTHDR(message, head)) {
        const size_t here = head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS
                                ? (head->cmsg_len - CMSG_LEN(0)) / sizeof(int)
                                : 0;

        for (i = 0; i < here && count < TUTTI_LOCAL_FDS_MAX; i++) {
            memcpy(&fds[count++], CMSG_DATA(head) + i * sizeof(int), sizeof(int));
        }
    }
    return count;
}

/*
 * A message that was cut, or that lost descriptors, is answered like an end: such a peer does not
 * keep to the protocol. The descriptors that came with it are in `fds` all the same, and the
 * caller closes them.
 */
long
tutti_local_receive(int socket, void *data, size_t size, int fds[TUTTI_LOCAL_FDS_MAX],
                    size_t *ret_count)
{
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(TUTTI_LOCAL_FDS_MAX *
                              sizeof(int))]; /* the kernel closes what has no room */
    } control;
    struct iovec part = {.iov_base = data, .iov_len = size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    ssize_t got;

    *ret_count = 0;
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0) {
        return errno == EAGAIN || errno == EINTR ? -1 : 0;
    }
    *ret_count = take_fds(&message, fds);
    return (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ? 0 : (long)got;
}

/*
 * The size is sealed before anybody else gets the descriptor. So no peer can shrink the memory
 * under us, which would make our next access a SIGBUS.
 */
void *
tutti_local_create(const char *name, size_t size, int *ret_fd)
{
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *memory = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0) {
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (memory == MAP_FAILED) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return NULL;
    }
    *ret_fd = fd;
    return memory;
}

/*
 * The memory is somebody else's. It is mapped only if it can never shrink and is as large as was
 * said.
 */
void *
tutti_local_map(int fd, uint64_t size)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat about;
    void *memory;

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &about) != 0 || about.st_size < 0 ||
        (uint64_t)about.st_size < size) {
        return NULL;
    }
    memory = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(memory, (size_t)size, MADV_DONTDUMP);
    (void)madvise(memory, (size_t)size, MADV_HUGEPAGE);
    return memory;
}

void
tutti_local_close_all(const int *fds, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        (void)close(fds[i]);
    }
}

/* A count that is full takes no more: then it rings already. */
void
tutti_local_ring(int eventfd)
{
    const uint64_t one = 1;
    const ssize_t put = write(eventfd, &one, sizeof(one));

    (void)put;
}

/* Of count 0 or 1 it neither fills up nor blocks. */
void
tutti_local_show(int eventfd, bool was, bool is)
{
    uint64_t count = 0;

    if (eventfd < 0 || was == is) {
        return;
    }
    if (is) {
        tutti_local_ring(eventfd);
    } else {
        (void)!read(eventfd, &count, sizeof(count));
    }
}
