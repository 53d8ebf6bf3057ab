/*
 * Ringing by the kernel's asynchronous I/O: an op that is over at once, with IOCB_FLAG_RESFD, makes
 * the kernel itself count the eventfd up. It does so as for an interrupt: it never waits, a full
 * count stays full, and who polls is woken in any case. pwritev2 with RWF_NOWAIT is refused for an
 * eventfd (EOPNOTSUPP), and a timerfd needs 15 us. A socket with MSG_DONTWAIT costs as much, but has
 * to be read, and what reads (or closes) a Unix socket may block: the other side can have put a
 * descriptor into it of which ours is then the last one, such as a TCP socket with SO_LINGER.
 *
 * One context for the process, made when it is first needed. Its ops are over when io_submit returns,
 * and their events are of no use: they are thrown away when there is no room for more. The child of a
 * fork has no context, though it has our number of one: its first ring gets EINVAL and makes one.
 */
#include "base/os/bell.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CONTEXT_SIZE 1 /* of fs.aio-max-nr, 65536 of a machine; its page has room for more */
#define EVENTS 128     /* thrown away at once: as many as that page holds */
#define TRIES                                                                                      \
    1000 /* each makes room, so the second is enough unless others ring at the same time */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic(aio_context_t) context; /* 0 = none */
static _Atomic(pid_t) owner;           /* the process whose it is */
static int always = -1;                /* an eventfd of ours, which can always be written */
static int failure;                    /* errno; 0 = none */

/* Instead of one that is no good; another thread may have been faster. */
static bool
renew_context(aio_context_t old)
{
    aio_context_t fresh = 0;

    if (syscall(SYS_io_setup, CONTEXT_SIZE, &fresh) != 0) {
        return false;
    }
    if (atomic_compare_exchange_strong(&context, &old, fresh)) {
        atomic_store(&owner, getpid());
    } else {
        (void)syscall(SYS_io_destroy, fresh);
    }
    return true;
}

static void
open_aio(void)
{
    always = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (always < 0 || !renew_context(0)) {
        failure = errno;
    }
}

bool
tutti_bell_can_ring(void)
{
    (void)pthread_once(&once, open_aio);
    errno = failure;
    return failure == 0;
}

int
tutti_bell_open(void)
{
    return tutti_bell_can_ring() ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
}

static void
make_room(aio_context_t in)
{
    struct timespec now = {0};
    struct io_event events[EVENTS];

    (void)syscall(SYS_io_getevents, in, 0L, (long)EVENTS, events, &now);
}

/* Behind EINVAL: is there another context to try? If it is ours, the bell is no eventfd. */
static bool
has_another(aio_context_t in)
{
    return atomic_load(&context) != in || (atomic_load(&owner) != getpid() && renew_context(in));
}

void
tutti_bell_ring(int bell)
{
    struct iocb op = {.aio_lio_opcode = IOCB_CMD_POLL,
                      .aio_fildes = (uint32_t)always,
                      .aio_buf = POLLOUT,
                      .aio_flags = IOCB_FLAG_RESFD,
                      .aio_resfd = (uint32_t)bell};
    struct iocb *list[] = {&op};
    int tries;

    for (tries = 0; tries < TRIES; tries++) {
        const aio_context_t in = atomic_load(&context);

        if (syscall(SYS_io_submit, in, 1L, list) == 1) {
            return;
        }
        if (errno == EAGAIN) {
            make_room(in);
        } else if (errno != EINVAL || !has_another(in)) {
            return;
        }
    }
}
