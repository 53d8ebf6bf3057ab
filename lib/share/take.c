/*
 * The other side: a token in, memory out. Any thread; it blocks for the timeout at most. All state
 * is in the caller's view, and the connection in it is the lease. What comes is checked before it
 * is mapped: sealed against shrinking, and as long as was said; the agent is trusted with no more
 * than that.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/local.h"
#include "share/share_private.h"

/* A refused caller is told so at once, and the lender reads nothing more of it: then the send fails
 * with EPIPE, and the answer is there to be read. */
static bool
say_hello(int socket, const share_hello *hello)
{
    return tutti_local_send(socket, hello, sizeof(*hello), NULL, 0) || errno == EPIPE;
}

static tutti_code
show_token(const char *name, tutti_bytes token, int *ret_socket, tutti_error *err)
{
    share_hello hello;
    const size_t size = strlen(name);
    int socket;

    if (size == 0 || size > TUTTI_LOCAL_NAME_MAX || token.size != sizeof(hello.token)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_DATA_LOSS, "BAD_ANSWER",
            "the agent sent a socket's name of %zu bytes and a token of %zu bytes, "
            "which are not valid",
            size, token.size);
    }
    socket = tutti_local_connect(tutti_bytes_of(name));
    memcpy(hello.magic, SHARE_HELLO, SHARE_MAGIC_BYTES);
    memcpy(hello.token, token.data, sizeof(hello.token));
    if (socket < 0 || !say_hello(socket, &hello)) {
        const int number = errno;

        if (socket >= 0) {
            (void)close(socket);
        }
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "NO_SHARE_SOCKET",
                              "could not connect to the agent's socket for shared memory: %s; this "
                              "program and the agent need one network namespace",
                              strerror(number));
    }
    *ret_socket = socket;
    return TUTTI_OK;
}

static tutti_code
fail_refused(uint32_t refusal, tutti_error *err)
{
    if (refusal == SHARE_OTHER_USER) {
        return TUTTI_FAIL_FOR(err, TUTTI_PERMISSION_DENIED, "OTHER_USER",
                              "the agent shares memory with processes of its own user only: run as "
                              "that user, or give the agent --share-any-user");
    }
    return TUTTI_FAIL_FOR(err, TUTTI_PERMISSION_DENIED, "SHARE_TOKEN",
                          "the agent does not know this token: a token is good once, for 30 s, and "
                          "until the tensor is deleted");
}

/* [out, owned] ret_fd, ret_second  NULL = one descriptor is wanted, and no more */
static tutti_code
hear_answer(int socket, uint32_t timeout_ms, share_answer *ret_answer, int *ret_fd, int *ret_second,
            tutti_error *err)
{
    struct pollfd look = {.fd = socket, .events = POLLIN};
    int fds[TUTTI_LOCAL_FDS_MAX];
    size_t count = 0;
    bool sense;
    long size;

    if (poll(&look, 1, timeout_ms > INT32_MAX ? -1 : (int)timeout_ms) != 1) {
        return TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                              "the agent's socket for shared memory did not answer in %u ms",
                              timeout_ms);
    }
    size = tutti_local_receive(socket, ret_answer, sizeof(*ret_answer), fds, &count);
    sense = size == sizeof(*ret_answer) &&
            memcmp(ret_answer->magic, SHARE_ANSWER, SHARE_MAGIC_BYTES) == 0;
    if (sense && ret_answer->refusal == SHARE_WELCOME && count == (ret_second == NULL ? 1 : 2)) {
        *ret_fd = fds[0];
        if (ret_second != NULL) {
            *ret_second = fds[1];
        }
        return TUTTI_OK;
    }
    tutti_local_close_all(fds, count);
    if (sense && ret_answer->refusal != SHARE_WELCOME) {
        return fail_refused(ret_answer->refusal, err);
    }
    return size == 0
               ? TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "NO_SHARE_SOCKET",
                                "the agent closed the connection of its socket for shared memory")
               : TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                                "the agent's socket for shared memory sent a malformed answer");
}

/* Only what cannot shrink: a process that touches memory that a file no longer has is killed
 * (SIGBUS). MADV_DONTDUMP: tensors are data of others and have no place in core files. */
static tutti_code
map_share(int fd, uint64_t bytes, bool writable, tutti_share_view *view, tutti_error *err)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat about;
    void *data;

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &about) != 0 || bytes == 0 ||
        about.st_size < 0 || bytes > (uint64_t)about.st_size) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_DATA_LOSS, "BAD_ANSWER",
            "the memory that the agent sent cannot be mapped safely: it may become smaller");
    }
    data =
        mmap(NULL, (size_t)bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        const int number = errno;

        return TUTTI_FAIL_ERRNO(err, number, "could not map shared memory");
    }
    (void)madvise(data, (size_t)bytes, MADV_DONTDUMP);
    view->data = data;
    view->bytes = bytes;
    view->mapped_bytes = bytes;
    view->writable = writable;
    return TUTTI_OK;
}

static tutti_code
take_offer(const char *socket_name, tutti_bytes token, uint32_t timeout_ms, bool two,
           tutti_share_view *ret_view, tutti_error *err)
{
    tutti_share_view view = {.lease = -1, .second = -1};
    share_answer answer = {0};
    int fd = -1;
    tutti_code code;

    TUTTI_TRY(show_token(socket_name, token, &view.lease, err));
    code = hear_answer(view.lease, timeout_ms, &answer, &fd, two ? &view.second : NULL, err);
    if (code == TUTTI_OK) {
        code = map_share(fd, answer.bytes, answer.writable != 0, &view, err);
        (void)close(fd);
    }
    if (code != TUTTI_OK) {
        if (view.second >= 0) {
            (void)close(view.second);
        }
        (void)close(view.lease);
        return code;
    }
    *ret_view = view;
    return TUTTI_OK;
}

tutti_code
tutti_share_take(const char *socket_name, tutti_bytes token, uint32_t timeout_ms,
                 tutti_share_view *ret_view, tutti_error *err)
{
    return take_offer(socket_name, token, timeout_ms, false, ret_view, err);
}

tutti_code
tutti_share_take_two(const char *socket_name, tutti_bytes token, uint32_t timeout_ms,
                     tutti_share_view *ret_view, tutti_error *err)
{
    return take_offer(socket_name, token, timeout_ms, true, ret_view, err);
}

/* Nothing but the notice is ever sent after the answer, so anything to read, or the end, means that
 * it is over. */
bool
tutti_share_is_revoked(const tutti_share_view *view)
{
    struct pollfd look = {.fd = view->lease, .events = POLLIN};

    return poll(&look, 1, 0) != 0; /* nothing but that is ever said */
}

void
tutti_share_drop(tutti_share_view *view)
{
    if (view->data == NULL) {
        return;
    }
    (void)munmap(view->data, (size_t)view->mapped_bytes);
    (void)close(view->lease);
    if (view->second >= 0) {
        (void)close(view->second);
    }
    *view = (tutti_share_view){.lease = -1, .second = -1};
}
