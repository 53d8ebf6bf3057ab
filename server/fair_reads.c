/*
 * recvmsg, epoll_ctl and close of this program, in front of libc's. fair_reads.h says what they do,
 * and docs/decisions/0026 why.
 *
 * Threads: any thread of gRPC's calls them, one more (run_pauses) announces sockets whose pause is
 * over. `known` publishes an entry: it is stored with release behind the writes of the other
 * fields, and recvmsg loads it with acquire. `limit` to `since_ns` belong to the thread that reads
 * the socket; gRPC reads a socket by one thread at a time and orders these threads itself. `set` to
 * `due_ns`, and the list, are guarded by the mutex. The mutex is never held in a read of a socket
 * that is not put off.
 *
 * These functions run inside of gRPC, where nothing may fail: they allocate nothing, and where an
 * entry is missing (a descriptor above the table, before the start) they do what libc's do. A
 * descriptor's number is given again by the kernel as soon as it is closed, so close forgets the
 * entry before the system call.
 */
#include "server/fair_reads.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/data/list.h"
#include "base/error/fail.h"
#include "base/os/thread.h"

#define DESCRIPTORS_MAX (1u << 20)
#define PIECES_MAX 64 /* gRPC reads into that many slices at once, at most */

/* Found by libraries, too, whatever the program's other symbols are. */
#define INSTEAD_OF_LIBC __attribute__((visibility("default")))

/*
 * A descriptor. gRPC reads a socket by one thread at a time and one after the other, which is all
 * that guards what is not behind the lock.
 */
typedef struct watched {
    atomic_bool known; /* is in an edge-triggered epoll set */
    uint32_t limit;    /* of one read */
    uint32_t got;      /* by the last read, if it left something; else 0 */
    const char *rest;  /* where gRPC goes on when it wants more into the same buffer */
    uint64_t read_ns;  /* the end of the last read */
    uint64_t since_ns; /* of the turn; 0 = it was empty */
    int set;           /* guarded by `lock`, as all below */
    struct epoll_event event;
    tutti_list_node link; /* among the paused */
    uint64_t due_ns;
} watched;

static watched *table; /* NULL = not begun */
static size_t table_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stirred;
static tutti_list_node paused; /* by when they are due */

/* NULL before the start, and for descriptors above the table's end. */
static watched *
find_fd(int descriptor)
{
    return table != NULL && descriptor >= 0 && (size_t)descriptor < table_count ? &table[descriptor]
                                                                                : NULL;
}

/*
 * With the lock. EPOLL_CTL_MOD makes the kernel report an edge again if the socket has something to
 * read. The result is ignored: a socket that was closed meanwhile needs no announcement.
 */
static void
announce_reads(watched *self)
{
    struct epoll_event event = self->event;

    if (atomic_load(&self->known)) {
        (void)syscall(SYS_epoll_ctl, self->set, EPOLL_CTL_MOD, (int)(self - table), &event);
    }
}

/*
 * The thread of the pauses. The list is in the order of due times, as each pause has the same
 * length.
 */
static void *
run_pauses(void *arg)
{
    (void)arg;
    (void)pthread_mutex_lock(&lock);
    for (;;) {
        watched *first;

        while (tutti_list_empty(&paused)) {
            (void)pthread_cond_wait(&stirred, &lock);
        }
        first = tutti_container_of(paused.next, watched, link);
        if (tutti_clock_ns() >= first->due_ns) {
            tutti_list_remove(&first->link);
            announce_reads(first);
        } else {
            (void)tutti_cond_wait_until(&stirred, &lock, first->due_ns);
        }
    }
    return NULL;
}

/* With the lock. A socket that pauses already keeps its time. */
static void
pause_reads(watched *self)
{
    if (tutti_list_empty(&self->link)) {
        self->due_ns = tutti_clock_ns() + FAIR_READS_PAUSE_NS;
        if (tutti_list_empty(&paused)) {
            (void)pthread_cond_signal(&stirred);
        }
        tutti_list_add(&paused, &self->link);
    }
}

/*
 * Say that the socket is empty (EAGAIN), and see to it that what is left is read later. gRPC then
 * waits for an edge: without the announcement none would come, as the bytes are in the socket
 * already.
 */
static ssize_t
put_off(watched *self, bool later)
{
    self->since_ns = 0;
    self->got = 0;
    (void)pthread_mutex_lock(&lock);
    if (later) {
        pause_reads(self);
    } else {
        announce_reads(self);
    }
    (void)pthread_mutex_unlock(&lock);
    errno = EAGAIN;
    return -1;
}

/*
 * The last read did not empty the socket, so gRPC worked on its bytes and came back: the time since
 * then is what these bytes cost. The new limit is how many bytes cost FAIR_READS_READ_NS. It grows
 * to twice or falls to a quarter at most: a thread that had to wait for a processor says little.
 */
static void
judge_reads(watched *self, uint64_t now_ns)
{
    const uint64_t took = now_ns > self->read_ns ? now_ns - self->read_ns : 1;
    uint64_t limit = (uint64_t)self->got * FAIR_READS_READ_NS / took;

    limit = limit > 2 * (uint64_t)self->limit ? 2 * (uint64_t)self->limit : limit;
    limit = limit < self->limit / 4 ? self->limit / 4 : limit;
    limit = limit > FAIR_READS_MAX ? FAIR_READS_MAX : limit;
    self->limit = limit < FAIR_READS_MIN ? FAIR_READS_MIN : (uint32_t)limit;
}

/* The first `limit` bytes of what a message has room for. Returns how many those are. */
static size_t
shorten_reads(struct msghdr *message, struct iovec ret_pieces[PIECES_MAX], size_t limit)
{
    size_t room = 0;
    size_t i;

    for (i = 0; i < message->msg_iovlen && i < PIECES_MAX && room < limit; i++) {
        ret_pieces[i] = message->msg_iov[i];
        if (ret_pieces[i].iov_len > limit - room) {
            ret_pieces[i].iov_len = limit - room;
        }
        room += ret_pieces[i].iov_len;
    }
    message->msg_iov = ret_pieces;
    message->msg_iovlen = i;
    return room;
}

/*
 * Read no more than the limit. A read that filled what was asked for may have left something
 * (`got`). If it was cut by the limit, `rest` is where gRPC's own buffer goes on, so that recvmsg
 * can tell a call that only fills the same buffer from a new turn.
 */
static ssize_t
read_some(watched *self, int descriptor, struct msghdr *message, int flags)
{
    struct iovec pieces[PIECES_MAX];
    struct msghdr less = *message;
    const size_t room = shorten_reads(&less, pieces, self->limit);
    const ssize_t got = syscall(SYS_recvmsg, descriptor, &less, flags);
    const struct iovec *last = &pieces[less.msg_iovlen - 1];

    message->msg_namelen = less.msg_namelen;
    message->msg_controllen = less.msg_controllen;
    message->msg_flags = less.msg_flags;
    self->read_ns = tutti_clock_ns();
    if (got > 0 && (size_t)got == room) {
        self->got = (uint32_t)room;
        self->rest = room == self->limit ? (const char *)last->iov_base + last->iov_len : NULL;
    } else {
        self->got = 0;
        self->rest = NULL;
        self->since_ns = 0;
    }
    return got;
}

INSTEAD_OF_LIBC ssize_t
recvmsg(int descriptor, struct msghdr *message, int flags)
{
    watched *self = find_fd(descriptor);
    uint64_t now_ns;

    if (self == NULL || message == NULL || message->msg_iovlen == 0 || flags != 0 ||
        !atomic_load_explicit(&self->known, memory_order_acquire)) {
        return syscall(SYS_recvmsg, descriptor, message, flags);
    }
    if (self->rest != NULL && message->msg_iov[0].iov_base == self->rest) {
        const uint32_t got = self->got;
        const uint64_t since_ns = self->since_ns;
        const ssize_t refused = put_off(self, true);

        /* It only fills its buffer, and works on that before it reads on: the turn is not over. */
        self->got = got;
        self->since_ns = since_ns;
        self->rest = NULL;
        return refused;
    }
    now_ns = tutti_clock_ns();
    /* A new read of what was left: the bytes of the last one have been worked on. */
    if (self->got != 0) {
        judge_reads(self, now_ns);
    }
    if (self->since_ns == 0) {
        self->since_ns = now_ns;
    } else if (now_ns - self->since_ns > FAIR_READS_TURN_NS) {
        return put_off(self, self->limit < FAIR_READS_CHEAP);
    }
    return read_some(self, descriptor, message, flags);
}

/*
 * With the lock. known is cleared first: a reader on another thread must not take the entry for
 * good.
 */
static void
forget_fd(watched *self)
{
    if (atomic_load(&self->known)) {
        atomic_store(&self->known, false);
        tutti_list_remove(&self->link);
    }
}

/*
 * gRPC adds each socket once, edge-triggered (EPOLLET). A descriptor that is added in another way,
 * or removed, is not watched any more.
 */
INSTEAD_OF_LIBC int
epoll_ctl(int set, int what, int descriptor, struct epoll_event *event)
{
    watched *self = find_fd(descriptor);

    if (self != NULL) {
        (void)pthread_mutex_lock(&lock);
        forget_fd(self);
        if (what != EPOLL_CTL_DEL && event != NULL && (event->events & EPOLLET) != 0) {
            *self = (watched){.limit = FAIR_READS_FIRST, .set = set, .event = *event};
            tutti_list_init(&self->link);
            atomic_store_explicit(&self->known, true, memory_order_release);
        }
        (void)pthread_mutex_unlock(&lock);
    }
    return (int)syscall(SYS_epoll_ctl, set, what, descriptor, event);
}

INSTEAD_OF_LIBC int
close(int descriptor)
{
    watched *self = find_fd(descriptor);

    if (self != NULL && atomic_load(&self->known)) { /* the number may be another file's at once */
        (void)pthread_mutex_lock(&lock);
        forget_fd(self);
        (void)pthread_mutex_unlock(&lock);
    }
    return (int)syscall(SYS_close, descriptor);
}

/*
 * `table` is set last, by the one thread that there is besides run_pauses: from then on the
 * functions above act. The thread is never joined, as gRPC may read until the process ends.
 */
tutti_code
server_fair_reads_start(tutti_error *err)
{
    struct rlimit limit = {0};
    pthread_t thread;
    watched *made;
    int failed;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not read the limit of descriptors");
    }
    table_count = limit.rlim_cur < DESCRIPTORS_MAX ? (size_t)limit.rlim_cur : DESCRIPTORS_MAX;
    made = calloc(table_count, sizeof(*made)); /* its pages come as they are used */
    if (made == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a table of %zu descriptors",
                          table_count);
    }
    tutti_list_init(&paused);
    tutti_cond_init(&stirred);
    failed = tutti_thread_start(&thread, run_pauses, NULL);
    if (failed != 0) {
        free(made);
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "could not start a thread: %s",
                          strerror(failed));
    }
    (void)pthread_setname_np(thread, "tutti-turns");
    (void)pthread_detach(thread);
    table = made;
    return TUTTI_OK;
}
