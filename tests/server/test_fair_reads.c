/*
 * Goal: a socket that is never empty is left after a turn and is announced again; no byte is lost
 * over it, and sockets that are in no epoll set are read as ever.
 * Method: pairs of sockets; recvmsg, epoll_ctl and close are the file's own here, too.
 */
#include "support/testing.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "server/fair_reads.h"

#define ROOM (128u << 10)
#define FILLED (100u << 10)

typedef struct pair {
    int ours;
    int theirs;
    int set;
    char buffer[ROOM];
} pair;

static int
set_up(void **state)
{
    pair *self = calloc(1, sizeof(*self));
    const int size = 512 << 10;
    int both[2];

    assert_non_null(self);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both), 0);
    self->ours = both[0];
    self->theirs = both[1];
    assert_int_equal(setsockopt(self->theirs, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    self->set = epoll_create1(EPOLL_CLOEXEC);
    assert_true(self->set >= 0);
    *state = self;
    return 0;
}

static int
tear_down(void **state)
{
    pair *self = *state;

    (void)close(self->ours);
    (void)close(self->theirs);
    (void)close(self->set);
    free(self);
    return 0;
}

static void
watch(pair *self)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = self->ours};

    assert_int_equal(epoll_ctl(self->set, EPOLL_CTL_ADD, self->ours, &event), 0);
}

/* Has the kernel said, within that time, that there is something to read? */
static bool
is_announced(pair *self, int timeout_ms)
{
    struct epoll_event event = {0};

    return epoll_wait(self->set, &event, 1, timeout_ms) == 1 && (event.events & EPOLLIN) != 0;
}

static void
fill(pair *self, size_t size)
{
    static char bytes[FILLED];
    size_t i;

    assert_true(size <= sizeof(bytes));
    for (i = 0; i < size; i++) {
        bytes[i] = (char)(i * 7 + i / 256);
    }
    assert_int_equal(send(self->theirs, bytes, size, 0), size);
}

static ssize_t
receive(pair *self, size_t at, size_t size)
{
    /* As gRPC does: many small pieces. */
    struct iovec pieces[4];
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = COUNT_OF(pieces)};
    size_t i;

    for (i = 0; i < COUNT_OF(pieces); i++) {
        pieces[i].iov_base = self->buffer + at + i * (size / COUNT_OF(pieces));
        pieces[i].iov_len = size / COUNT_OF(pieces);
    }
    return recvmsg(self->ours, &message, 0);
}

static int
left(const pair *self)
{
    int bytes = 0;

    assert_int_equal(ioctl(self->ours, FIONREAD, &bytes), 0);
    return bytes;
}

static void
work(unsigned ms)
{
    const struct timespec length = {.tv_nsec = (long)ms * 1000000};

    (void)nanosleep(&length, NULL);
}

static void
test_fair_reads__leave_others_alone(void **state)
{
    pair *self = *state;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = self->ours};

    fill(self, FILLED);
    assert_int_equal(receive(self, 0, ROOM), FILLED);
    assert_int_equal(epoll_ctl(self->set, EPOLL_CTL_ADD, self->ours, &event), 0); /* as levels */
    fill(self, FILLED);
    assert_int_equal(receive(self, 0, ROOM), FILLED);
}

static void
test_fair_reads__one_read_is_limited(void **state)
{
    pair *self = *state;

    watch(self);
    fill(self, FILLED);
    assert_true(is_announced(self, 1000));
    assert_int_equal(receive(self, 0, ROOM), FAIR_READS_FIRST);
    /* It wants more into the same buffer: no. And once it has worked on that: yes. */
    assert_int_equal(receive(self, FAIR_READS_FIRST, ROOM - FAIR_READS_FIRST), -1);
    assert_int_equal(errno, EAGAIN);
    assert_true(receive(self, FAIR_READS_FIRST, ROOM - FAIR_READS_FIRST) > 0);
    /* Whoever waits for news instead of asking again hears of it as well. */
    assert_true(is_announced(self, 1000));
}

static void
test_fair_reads__a_turn_ends(void **state)
{
    pair *self = *state;
    size_t got = 0;
    unsigned turns = 0;
    uint64_t put_off_ns = 0;
    static char all[FILLED];
    size_t i;

    watch(self);
    fill(self, FILLED);
    while (got < FILLED) {
        ssize_t size = 0;

        assert_true(is_announced(self, 5000)); /* else it would wait for ever */
        if (put_off_ns != 0) {
            assert_true(tutti_clock_ns() - put_off_ns >= FAIR_READS_PAUSE_NS);
        }
        for (;;) {
            put_off_ns = tutti_clock_ns(); /* at the earliest */
            size = receive(self, 0, ROOM);
            if (size <= 0) {
                break;
            }
            memcpy(all + got, self->buffer, (size_t)size);
            got += (size_t)size;
            work(9); /* for so few bytes: costly */
        }
        assert_int_equal(size, -1);
        assert_int_equal(errno, EAGAIN);
        if (left(self) == 0 || turns <= 2) { /* its limit has to fall first */
            put_off_ns = 0;
        }
        turns++;
    }
    print_message("%u turns for %u bytes\n", turns, FILLED);
    assert_true(turns > 4);
    for (i = 0; i < FILLED; i++) {
        assert_int_equal(all[i], (char)(i * 7 + i / 256));
    }
}

static void
test_fair_reads__an_empty_socket_ends_a_turn(void **state)
{
    pair *self = *state;
    int i;

    watch(self);
    for (i = 0; i < 5; i++) { /* longer than a turn, but it was empty in between */
        fill(self, 1000);
        assert_int_equal(receive(self, 0, ROOM), 1000);
        work(5);
    }
}

static void
test_fair_reads__a_number_is_another_file_s_later(void **state)
{
    pair *self = *state;
    const int number = self->ours;
    int both[2];

    watch(self);
    assert_int_equal(close(self->ours), 0);
    (void)close(self->theirs);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both), 0);
    assert_int_equal(both[0], number);
    self->ours = both[0];
    self->theirs = both[1];
    fill(self, FILLED);
    assert_int_equal(receive(self, 0, ROOM), FILLED);
}

static int
begin(void **state)
{
    tutti_error err;

    (void)state;
    assert_ok(server_fair_reads_start(&err));
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_fair_reads__##name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(leave_others_alone),
        TEST(one_read_is_limited),
        TEST(a_turn_ends),
        TEST(an_empty_socket_ends_a_turn),
        TEST(a_number_is_another_file_s_later),
    };

    return cmocka_run_group_tests(tests, begin, NULL);
}
