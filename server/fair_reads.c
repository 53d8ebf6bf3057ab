/*
 * recvmsg, sendmsg, accept4, epoll_ctl and close of this program, in front of libc's. fair_reads.h
 * says what they do, and docs/decisions/0026 why.
 *
 * Threads: any thread of gRPC's calls them, one more (run_pauses) announces sockets whose pause is
 * over, and ends those that are stuck. `known` publishes an entry: it is stored with release behind
 * the writes of the other fields, and recvmsg loads it with acquire. `limit` to `since_ns` belong
 * to the thread that reads the socket; gRPC reads a socket by one thread at a time and orders these
 * threads itself. `set` to `end_ns`, and the lists, are guarded by the mutex; `stuck` changes only
 * with it. The mutex is never held in a read or a send of a socket that is neither put off nor
 * stuck.
 *
 * These functions run inside of gRPC, where nothing may fail: they allocate nothing, and where an
 * entry is missing (a descriptor above the table, before the start) they do what libc's do. A
 * descriptor's number is given again by the kernel as soon as it is closed, so close forgets the
 * entry before the system call.
 */
#include "server/fair_reads.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/data/list.h"
#include "base/error/fail.h"
#include "base/os/local.h"
#include "base/os/log.h"
#include "base/os/thread.h"

#define DESCRIPTORS_MAX (1u << 20)
#define PIECES_MAX 64  /* gRPC reads into that many slices at once, at most */
#define ACCEPTS_MAX 64 /* turned away before others have a turn */

/* Found by libraries, too, whatever the program's other symbols are. */
#define INSTEAD_OF_LIBC __attribute__((visibility("default")))

/*
 * A descriptor. gRPC reads a socket by one thread at a time and one after the other, which is all
 * that guards what is not behind the lock.
 */
typedef struct watched {
    atomic_bool known;    /* is in an edge-triggered epoll set */
    atomic_bool accepted; /* a client's, and counted in `clients` */
    atomic_bool stuck;    /* the last send found no room */
    atomic_int unsent;    /* bytes that the client had not taken at the last look */
    uint32_t limit;       /* of one read */
    uint32_t got;         /* by the last read, if it left something; else 0 */
    const char *rest;     /* where gRPC goes on when it wants more into the same buffer */
    uint64_t read_ns;     /* the end of the last read */
    uint64_t since_ns;    /* of the turn; 0 = it was empty */
    int set;              /* guarded by `lock`, as all below */
    struct epoll_event event;
    tutti_list_node link; /* among the paused */
    uint64_t due_ns;
    bool unread;                /* a read was refused while it was stuck */
    tutti_list_node stuck_link; /* among the stuck */
    uint64_t end_ns;
} watched;

static watched *table; /* NULL = not begun */
static size_t table_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stirred;
static tutti_list_node paused;     /* by when they are due */
static tutti_list_node stuck_ones; /* by when they end */
static uint64_t patience_ns;
static unsigned clients_max;
static atomic_uint clients;
static int reserve = -1; /* a descriptor to let go of where none is left; guarded by `lock` */
static unsigned ended;   /* of the stuck, and not yet told of; guarded by `lock` */

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

/* With the lock. No longer among the stuck. */
static void
mark_unstuck(watched *self)
{
    atomic_store(&self->stuck, false);
    tutti_list_remove(&self->stuck_link);
}

/*
 * With the lock, so the number is still this socket's. gRPC closes it when it reads or sends next,
 * which is at once: the kernel announces the end.
 */
static void
end_stuck(watched *self)
{
    mark_unstuck(self);
    (void)shutdown((int)(self - table), SHUT_RDWR);
    ended++;
}

/* With the lock. Do what is due, and say when the next one is; UINT64_MAX = none. */
static uint64_t
work_off(uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;

    while (!tutti_list_empty(&paused)) {
        watched *first = tutti_container_of(paused.next, watched, link);

        if (now_ns < first->due_ns) {
            next_ns = first->due_ns;
            break;
        }
        tutti_list_remove(&first->link);
        announce_reads(first);
    }
    while (!tutti_list_empty(&stuck_ones)) {
        watched *first = tutti_container_of(stuck_ones.next, watched, stuck_link);

        if (now_ns < first->end_ns) {
            return first->end_ns < next_ns ? first->end_ns : next_ns;
        }
        end_stuck(first);
    }
    return next_ns;
}

/* With the lock, which is let go of while the line is written: that may take long. */
static bool
say_ended(void)
{
    const unsigned count = ended;

    ended = 0;
    if (count > 0) {
        (void)pthread_mutex_unlock(&lock);
        TUTTI_LOG_OFTEN("server", WARN,
                        "ended %u connections: their clients have not read what was sent to them "
                        "for %llu ms (--keepalive-timeout)",
                        count, (unsigned long long)(patience_ns / TUTTI_NS_PER_MS));
        (void)pthread_mutex_lock(&lock);
    }
    return count > 0;
}

/*
 * The thread of the pauses. Each list is in the order of due times, as each pause has the same
 * length, and so has the time for which a socket may be stuck.
 */
static void *
run_pauses(void *arg)
{
    (void)arg;
    (void)pthread_mutex_lock(&lock);
    for (;;) {
        const uint64_t next_ns = work_off(tutti_clock_ns());

        if (say_ended()) {
            continue; /* the lists may be others now */
        }
        if (next_ns == UINT64_MAX) {
            (void)pthread_cond_wait(&stirred, &lock);
        } else {
            (void)tutti_cond_wait_until(&stirred, &lock, next_ns);
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

/*
 * The socket has no room for more answers. Is the client taking those that it has? It is if the
 * bytes that it has not taken are fewer than at the last look. If not, what it asks further is left
 * unread until a send finds room; sendmsg then announces the socket.
 */
static bool
refuse_unheard(watched *self, int descriptor)
{
    int unsent = 0;
    bool refused;

    if (ioctl(descriptor, SIOCOUTQ, &unsent) == 0 && unsent < atomic_load(&self->unsent)) {
        atomic_store(&self->unsent, unsent);
        return false;
    }
    (void)pthread_mutex_lock(&lock);
    refused = atomic_load(&self->stuck); /* a send on another thread may just have found room */
    self->unread = refused;
    (void)pthread_mutex_unlock(&lock);
    if (refused) {
        self->since_ns = 0;
        self->got = 0;
        self->rest = NULL;
    }
    return refused;
}

/* A send of a client's socket has found no room, or some again, or the connection has broken. */
static void
note_send(watched *self, int descriptor, bool full)
{
    int unsent = 0;

    (void)pthread_mutex_lock(&lock);
    if (full && !atomic_load(&self->stuck)) {
        (void)ioctl(descriptor, SIOCOUTQ, &unsent);
        atomic_store(&self->unsent, unsent);
        atomic_store(&self->stuck, true);
        self->unread = false;
        self->end_ns = tutti_clock_add(tutti_clock_ns(), patience_ns);
        if (tutti_list_empty(&stuck_ones)) {
            (void)pthread_cond_signal(&stirred);
        }
        tutti_list_add(&stuck_ones, &self->stuck_link);
    } else if (!full && atomic_load(&self->stuck)) {
        mark_unstuck(self);
        if (self->unread) {
            announce_reads(self);
        }
    }
    (void)pthread_mutex_unlock(&lock);
}

/*
 * Only sockets that were accepted count. If a client of the same kind stopped reading as well, the
 * two could wait for each other for ever.
 */
INSTEAD_OF_LIBC ssize_t
sendmsg(int descriptor, const struct msghdr *message, int flags)
{
    watched *self = find_fd(descriptor);
    const ssize_t sent = syscall(SYS_sendmsg, descriptor, message, flags);
    const int number = errno;

    if (self != NULL && atomic_load_explicit(&self->known, memory_order_acquire) &&
        atomic_load(&self->accepted)) {
        const bool full = sent < 0 && number == EAGAIN;

        if (full != atomic_load(&self->stuck)) {
            note_send(self, descriptor, full);
        }
        errno = number;
    }
    return sent;
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
    if (atomic_load(&self->stuck) && refuse_unheard(self, descriptor)) {
        errno = EAGAIN;
        return -1;
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
        mark_unstuck(self);
    }
}

/* gRPC looks at what connect has left in errno only after it has added the socket. */
static void
refuse_descriptors(int descriptor)
{
    const int number = errno;

    tutti_local_refuse_descriptors(descriptor);
    errno = number;
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
            const bool accepted = atomic_load(&self->accepted);

            *self = (watched){
                .accepted = accepted, .limit = FAIR_READS_FIRST, .set = set, .event = *event};
            if (!accepted) { /* those have it from their listener */
                refuse_descriptors(descriptor);
            }
            tutti_list_init(&self->link);
            tutti_list_init(&self->stuck_link);
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
    if (self != NULL && atomic_exchange(&self->accepted, false)) {
        (void)atomic_fetch_sub(&clients, 1);
    }
    return (int)syscall(SYS_close, descriptor);
}

/* ------------------------------------------------------------------------------ accepting */

static void
say_turned_away(const char *why)
{
    TUTTI_LOG_OFTEN("server", WARN,
                    "turned a connection away: %s; raise the limit of open files (ulimit -n, "
                    "LimitNOFILE=, --ulimit nofile=) if these are clients",
                    why);
}

/* A connection that has been accepted, where there may be one more. */
static bool
count_client(int descriptor)
{
    watched *self = find_fd(descriptor);

    if (self == NULL) { /* above the table: no limit that low */
        return true;
    }
    if (atomic_fetch_add(&clients, 1) >= clients_max) {
        (void)atomic_fetch_sub(&clients, 1);
        return false;
    }
    atomic_store(&self->accepted, true);
    return true;
}

/*
 * None is left, so the one in reserve is used to tell a client that it is not served: left in the
 * queue, it would wait, and the self-check would take the listener for deaf. False: the queue was
 * not shortened.
 */
static bool
turn_one_away(int listener)
{
    int descriptor = -1;

    (void)pthread_mutex_lock(&lock);
    if (reserve >= 0) {
        (void)syscall(SYS_close, reserve);
        descriptor = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);
        if (descriptor >= 0) {
            (void)syscall(SYS_close, descriptor);
        }
    }
    reserve = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC);
    (void)pthread_mutex_unlock(&lock);
    return descriptor >= 0;
}

/* Of the connection that was to be accepted, which is gone from the queue; see accept(2). */
static bool
is_of_client(int number)
{
    switch (number) {
    case ECONNABORTED:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETUNREACH:
    case ENONET:
    case ENOPROTOOPT:
    case EOPNOTSUPP:
    case EPERM: /* a rule of the firewall */
    case EPROTO:
    case ETIMEDOUT:
        return true;
    default:
        return false;
    }
}

/*
 * One try. Returns a descriptor that gRPC may have, -1 with errno for gRPC, or -2: the next one,
 * please.
 */
static int
accept_one(int listener, struct sockaddr *address, socklen_t *size, int flags)
{
    const int descriptor = (int)syscall(SYS_accept4, listener, address, size, flags);

    if (descriptor >= 0) {
        if (count_client(descriptor)) {
            return descriptor;
        }
        (void)syscall(SYS_close, descriptor);
        say_turned_away("so many are open that other files need the descriptors that are left");
        return -2;
    }
    if ((errno == EMFILE || errno == ENFILE) && turn_one_away(listener)) {
        say_turned_away("no descriptor is left");
        return -2;
    }
    return is_of_client(errno) ? -2 : -1;
}

/*
 * gRPC never listens again behind any error but EAGAIN, so it sees that one alone, unless the
 * listener itself is bad. What is left in the queue is announced after a pause.
 */
INSTEAD_OF_LIBC int
accept4(int listener, __SOCKADDR_ARG address, socklen_t *size, int flags)
{
    watched *self = find_fd(listener);
    const socklen_t room = size != NULL ? *size : 0;
    int descriptor = -2;
    int i;

    if (self == NULL || !atomic_load_explicit(&self->known, memory_order_acquire)) {
        return (int)syscall(SYS_accept4, listener, address.__sockaddr__, size, flags);
    }
    for (i = 0; i < ACCEPTS_MAX && descriptor == -2; i++) {
        if (size != NULL) {
            *size = room;
        }
        descriptor = accept_one(listener, address.__sockaddr__, size, flags);
    }
    if (descriptor == -2 || (descriptor == -1 && (errno == EMFILE || errno == ENFILE ||
                                                  errno == ENOBUFS || errno == ENOMEM))) {
        (void)pthread_mutex_lock(&lock);
        pause_reads(self);
        (void)pthread_mutex_unlock(&lock);
        errno = EAGAIN;
        return -1;
    }
    return descriptor;
}

/*
 * `table` is set last, by the one thread that there is besides run_pauses: from then on the
 * functions above act. The thread is never joined, as gRPC may read until the process ends.
 */
tutti_code
server_fair_reads_start(uint64_t stuck_ns, tutti_error *err)
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
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "no memory for a table of %zu descriptors", table_count);
    }
    patience_ns = stuck_ns;
    clients_max = (unsigned)(table_count - table_count / FAIR_READS_SPARE);
    reserve = open("/dev/null", O_RDONLY | O_CLOEXEC); /* -1 is as if it had been used up */
    tutti_list_init(&paused);
    tutti_list_init(&stuck_ones);
    tutti_cond_init(&stirred);
    failed = tutti_thread_start(&thread, run_pauses, NULL);
    if (failed != 0) {
        free(made);
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "could not start a thread: %s", strerror(failed));
    }
    (void)pthread_setname_np(thread, "tutti-turns");
    (void)pthread_detach(thread);
    table = made;
    return TUTTI_OK;
}
