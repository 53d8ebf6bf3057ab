/*
 * Goal: a socket that is never empty is left after a turn and is announced again; no byte is lost
 * over it, and sockets that are in no epoll set are read as ever. A client that does not read is
 * not read, and is ended. A listener that cannot accept goes on.
 * Method: pairs of sockets; recvmsg, sendmsg, accept4, epoll_ctl and close are the file's own here,
 * too. The table is made for few descriptors.
 */
#include "support/testing.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "server/fair_reads.h"

#define ROOM (128u << 10)
#define STUCK_NS (3 * TUTTI_NS_PER_S)
#define DESCRIPTORS 64
#define CLIENTS (DESCRIPTORS - DESCRIPTORS / FAIR_READS_SPARE)
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

/* ------------------------------------------------------------------------------ clients */

/* A listener in the set of the pair, as gRPC has it. */
static int
listen_for(pair *self, struct sockaddr_un *ret_address)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof(*ret_address);

    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)ret_address, sizeof(sa_family_t)), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)ret_address, &size), 0);
    assert_int_equal(listen(listener, DESCRIPTORS), 0);
    assert_int_equal(epoll_ctl(self->set, EPOLL_CTL_ADD, listener, &event), 0);
    return listener;
}

static int
make_client(void)
{
    const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    assert_true(client >= 0);
    return client;
}

/* An abstract name has its zeros, and the kernel made it five digits long. */
static void
call(int client, const struct sockaddr_un *address)
{
    assert_int_equal(connect(client, (const struct sockaddr *)address, sizeof(sa_family_t) + 1 + 5),
                     0);
}

static int
take(int listener)
{
    return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* The pair becomes a client and what was accepted for it. */
static void
become_client(pair *self)
{
    struct sockaddr_un address;
    const int listener = listen_for(self, &address);

    (void)close(self->ours);
    (void)close(self->theirs);
    self->theirs = make_client();
    call(self->theirs, &address);
    self->ours = take(listener);
    assert_true(self->ours >= 0);
    assert_int_equal(close(listener), 0);
    watch(self);
}

/* Send until there is no room; how many bytes that took. */
static size_t
send_all(pair *self)
{
    static char bytes[FILLED];
    struct iovec piece = {.iov_base = bytes, .iov_len = 4096};
    const struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    size_t total = 0;
    ssize_t sent = 0;

    for (; sent >= 0; total += sent > 0 ? (size_t)sent : 0) {
        sent = sendmsg(self->ours, &message, MSG_NOSIGNAL);
    }
    assert_int_equal(errno, EAGAIN);
    return total;
}

/* They read that much. */
static void
empty(pair *self, size_t size)
{
    static char bytes[FILLED];

    while (size > 0) {
        const ssize_t got = recv(self->theirs, bytes, size < FILLED ? size : FILLED, 0);

        assert_true(got > 0);
        size -= (size_t)got;
    }
}

static void
test_fair_reads__who_does_not_read_is_not_read(void **state)
{
    pair *self = *state;
    size_t sent;

    become_client(self);
    sent = send_all(self);
    fill(self, 10);
    assert_true(is_announced(self, 1000));
    assert_int_equal(receive(self, 0, ROOM), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(left(self), 10);
    /* When it has read, and something was sent again, the rest is announced. */
    empty(self, sent);
    (void)epoll_wait(self->set, &(struct epoll_event){0}, 1, 0); /* that there is room */
    assert_true(send_all(self) > 0);
    assert_true(is_announced(self, 1000));
    empty(self, sent / 2);
    assert_int_equal(receive(self, 0, ROOM), 10);
}

static void
test_fair_reads__who_reads_slowly_is_read(void **state)
{
    pair *self = *state;

    become_client(self);
    assert_true(send_all(self) > FILLED / 10);
    fill(self, 10);
    empty(self, 8192);
    assert_int_equal(receive(self, 0, ROOM), 10); /* though nothing was sent since */
    fill(self, 10);
    assert_int_equal(receive(self, 0, ROOM), -1);
    assert_int_equal(errno, EAGAIN);
}

static void
test_fair_reads__who_was_called_by_us_is_read(void **state)
{
    pair *self = *state;

    watch(self);
    (void)send_all(self);
    fill(self, 10);
    assert_int_equal(receive(self, 0, ROOM), 10);
}

static void
test_fair_reads__who_does_not_read_is_ended(void **state)
{
    pair *self = *state;
    const struct iovec piece = {.iov_base = "x", .iov_len = 1};
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)&piece, .msg_iovlen = 1};
    struct pollfd end = {.events = POLLRDHUP};
    const uint64_t began_ns = tutti_clock_ns();

    become_client(self);
    (void)send_all(self);
    end.fd = self->theirs;
    assert_int_equal(poll(&end, 1, 20000), 1);
    assert_true(tutti_clock_ns() - began_ns >= STUCK_NS);
    assert_int_equal(sendmsg(self->ours, &message, MSG_NOSIGNAL), -1);
    assert_int_equal(errno, EPIPE);
}

/* Accept while no descriptor from this number on may be opened. */
static void
take_in_vain(int listener, int limit)
{
    const struct rlimit none = {.rlim_cur = (rlim_t)limit, .rlim_max = DESCRIPTORS};
    const struct rlimit all = {.rlim_cur = DESCRIPTORS, .rlim_max = DESCRIPTORS};
    int taken;
    int number;

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    taken = take(listener);
    number = errno;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    assert_int_equal(taken, -1);
    assert_int_equal(number, EAGAIN); /* for all else gRPC would give the listener up */
}

static void
test_fair_reads__no_descriptor_ends_no_listener(void **state)
{
    pair *self = *state;
    struct sockaddr_un address;
    const int listener = listen_for(self, &address);
    const int first = make_client();
    const int second = make_client();
    const int free_one = dup(first);
    char byte;
    int taken;

    (void)close(free_one);
    call(first, &address);
    assert_true(is_announced(self, 1000));
    take_in_vain(listener, free_one);
    assert_int_equal(recv(first, &byte, 1, 0), 0); /* there is one in reserve to tell it */
    call(second, &address);
    assert_true(is_announced(self, 1000));
    take_in_vain(listener, 0);
    assert_true(is_announced(self, 1000)); /* it waits */
    taken = take(listener);
    assert_true(taken >= 0);
    (void)close(taken);
    (void)close(first);
    (void)close(second);
    (void)close(listener);
}

static void
test_fair_reads__clients_leave_descriptors_to_others(void **state)
{
    pair *self = *state;
    struct sockaddr_un address;
    const int listener = listen_for(self, &address);
    int taken[DESCRIPTORS];
    char byte;
    int count = 0;
    int client = -1;

    do {
        if (client >= 0) {
            (void)close(client);
        }
        client = make_client();
        call(client, &address);
        taken[count] = take(listener);
    } while (taken[count] >= 0 && ++count < DESCRIPTORS);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(count, CLIENTS);
    assert_int_equal(recv(client, &byte, 1, 0), 0); /* the newest one is closed at once */
    /* When one goes, one may come. */
    assert_int_equal(close(taken[--count]), 0);
    (void)close(client);
    client = make_client();
    call(client, &address);
    taken[count] = take(listener);
    assert_true(taken[count] >= 0);
    for (; count >= 0; count--) {
        (void)close(taken[count]);
    }
    (void)close(client);
    (void)close(listener);
}

static int
begin(void **state)
{
    const struct rlimit few = {.rlim_cur = DESCRIPTORS, .rlim_max = DESCRIPTORS};
    tutti_error err;

    (void)state;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_ok(server_fair_reads_start(STUCK_NS, &err));
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
        TEST(who_does_not_read_is_not_read),
        TEST(who_reads_slowly_is_read),
        TEST(who_was_called_by_us_is_read),
        TEST(who_does_not_read_is_ended),
        TEST(no_descriptor_ends_no_listener),
        TEST(clients_leave_descriptors_to_others),
    };

    return cmocka_run_group_tests(tests, begin, NULL);
}
