/*
 * Goal: strangers at the socket get nothing and hold nobody up; who lies behind it makes nobody
 * fault.
 * Method: strangers and liars speak by hand; another user is a process of its own.
 */
#include "share_rig.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/local.h"
#include "share/share_private.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* of Linux 6.16 */
#endif

/* ------------------------------------------------------------------------------ who lies */

/* One caller's answer: what it says, how much of it, and a descriptor. */
typedef struct liar {
    int listener;
    share_answer answer;
    size_t size;
    int fd; /* -1 = none */
    size_t fd_count;
} liar;

static void *
run_liar(void *arg)
{
    const liar *self = arg;
    const int fds[2] = {self->fd, self->fd};
    struct pollfd look = {.fd = self->listener, .events = POLLIN};
    char hello[64];
    int socket;

    assert_int_equal(poll(&look, 1, RIG_WAIT_MS), 1);
    socket = accept(self->listener, NULL, NULL);
    look.fd = socket;
    assert_int_equal(poll(&look, 1, RIG_WAIT_MS), 1);
    assert_true(recv(socket, hello, sizeof(hello), 0) > 0); /* else closing it says reset */
    if (self->size > 0) {
        (void)tutti_local_send(socket, &self->answer, self->size, fds, self->fd_count);
    }
    (void)close(socket);
    return NULL;
}

static tutti_code
take_from(liar *self, tutti_error *err)
{
    char name[TUTTI_LOCAL_NAME_MAX]; /* other tests may run beside this one */
    const unsigned char token[TUTTI_SHARE_TOKEN_BYTES] = {0};
    tutti_share_view view;
    pthread_t thread;
    tutti_code code;

    (void)snprintf(name, sizeof(name), "tutti-liar-of-%ld", (long)getpid());
    memcpy(self->answer.magic, SHARE_ANSWER, SHARE_MAGIC_BYTES);
    self->listener = tutti_local_listen(tutti_bytes_of(name));
    assert_true(self->listener >= 0);
    assert_int_equal(pthread_create(&thread, NULL, run_liar, self), 0);
    code = tutti_share_take(name, (tutti_bytes){token, sizeof(token)}, RIG_WAIT_MS, &view, err);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(close(self->listener), 0);
    if (code == TUTTI_OK) {
        tutti_share_drop(&view);
    }
    return code;
}

static void
test_share_take__from_who_lies_maps_nothing_that_could_end(void **state)
{
    const size_t all = sizeof(share_answer);
    const int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    tutti_error err;
    share_rig self;
    size_t i;
    liar good;
    liar bad[6];

    (void)state;
    assert_int_equal(ftruncate(loose, RIG_BYTES), 0);
    share_rig_open(&self, 4, 0);
    good = (liar){.answer = {.bytes = RIG_BYTES}, .size = all, .fd = self.fd, .fd_count = 1};
    assert_ok(take_from(&good, &err));
    for (i = 0; i < COUNT_OF(bad); i++) {
        bad[i] = good;
    }
    bad[0].fd = loose;                   /* it could be cut under us */
    bad[1].answer.bytes = RIG_BYTES + 1; /* more than it holds */
    bad[2].answer.bytes = UINT64_MAX;    /* far more */
    bad[3].answer.bytes = 0;
    bad[4].fd_count = 0;
    bad[5].fd_count = 2;
    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_fails(take_from(&bad[i], &err), TUTTI_DATA_LOSS);
    }
    good.size = all - 1;
    assert_fails(take_from(&good, &err), TUTTI_DATA_LOSS);
    good.size = 0;
    assert_fails(take_from(&good, &err), TUTTI_UNAVAILABLE);
    assert_string_equal(err.reason, "NO_SHARE_SOCKET");
    assert_int_equal(close(loose), 0);
    share_rig_close(&self);
}

static long
read_one(int socket, share_answer *ret_answer)
{
    struct pollfd look = {.fd = socket, .events = POLLIN};
    int fds[TUTTI_LOCAL_FDS_MAX];
    size_t count = 0;

    assert_int_equal(poll(&look, 1, RIG_WAIT_MS), 1);
    return tutti_local_receive(socket, ret_answer, sizeof(*ret_answer), fds, &count);
}

/* What a stranger sends, and the answer's size: 0 = it was hung up on. */
static long
speak(const share_rig *self, const void *words, size_t size)
{
    const int socket = tutti_local_connect(tutti_bytes_of(tutti_share_socket(self->share)));
    struct pollfd look = {.fd = socket, .events = POLLIN};
    int fds[TUTTI_LOCAL_FDS_MAX];
    unsigned char answer[100];
    size_t count = 0;
    long got;

    assert_true(socket >= 0);
    assert_true(tutti_local_send(socket, words, size, NULL, 0));
    assert_int_equal(poll(&look, 1, RIG_WAIT_MS), 1);
    got = tutti_local_receive(socket, answer, sizeof(answer), fds, &count);
    assert_int_equal(count, 0);
    assert_int_equal(close(socket), 0);
    return got;
}

static void
test_share__hangs_up_on_what_makes_no_sense(void **state)
{
    const share_hello no_magic = {.magic = "tthello"};
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    unsigned char much[4096] = {0};
    tutti_share_view view;
    tutti_error err;
    share_rig self;

    (void)state;
    share_rig_open(&self, 4, 0);
    assert_int_equal(speak(&self, "x", 1), 0);
    assert_int_equal(speak(&self, &no_magic, sizeof(no_magic)), 0);
    assert_int_equal(speak(&self, much, sizeof(much)), 0);
    assert_ok(share_rig_offer(&self, true, token, &err));
    assert_ok(share_rig_take(&self, token, &view, &err));
    tutti_share_drop(&view);
    share_rig_close(&self);
}

#define CROWD (3 * SHARE_STRANGERS_MAX) /* fewer than wait in line at a listener */

static void
come_in_a_crowd(const share_rig *self, int sockets[CROWD])
{
    size_t i;

    for (i = 0; i < CROWD; i++) {
        sockets[i] = tutti_local_connect(tutti_bytes_of(tutti_share_socket(self->share)));
        assert_true(sockets[i] >= 0);
    }
}

/* Of all these none keeps the one out that has a token: the oldest make room. */
static void
test_share__outlives_a_crowd_of_strangers(void **state)
{
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    int sockets[CROWD];
    tutti_share_view view;
    tutti_error err;
    size_t i;
    share_rig self;

    (void)state;
    share_rig_open(&self, 4, 0);
    assert_ok(share_rig_offer(&self, true, token, &err));
    come_in_a_crowd(&self, sockets);
    assert_ok(share_rig_take(&self, token, &view, &err));
    tutti_share_drop(&view);
    for (i = 0; i < CROWD; i++) {
        assert_int_equal(close(sockets[i]), 0);
    }
    share_rig_close(&self);
}

/* Whoever closes a descriptor waits for what its sender has made of it, such as a socket with SO_LINGER. */
static void
test_share__takes_no_descriptors_of_guests(void **state)
{
    const share_hello hello = {.magic = {'t', 't', 'h', 'e', 'l', 'l', 'o', '1'}};
    const int none = 0;
    share_answer answer;
    share_rig self;
    int socket;

    (void)state;
    share_rig_open(&self, 4, 0);
    socket = tutti_local_connect(tutti_bytes_of(tutti_share_socket(self.share)));
    assert_true(socket >= 0);
    if (setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &none, sizeof(none)) != 0) {
        assert_int_equal(close(socket), 0);
        share_rig_close(&self);
        SKIP("Linux before 6.16 lets a guest send descriptors");
    }
    assert_false(tutti_local_send(socket, &hello, sizeof(hello), &socket, 1));
    assert_int_equal(errno, EPERM);
    assert_true(tutti_local_send(socket, &hello, sizeof(hello), NULL, 0));
    assert_int_equal(read_one(socket, &answer), sizeof(answer));
    assert_int_equal(answer.refusal, SHARE_BAD_TOKEN);
    assert_int_equal(close(socket), 0);
    share_rig_close(&self);
}

/* Another user's process that comes in a crowd, says so, and stays until it is told to go. */
static pid_t
start_foreign_crowd(const share_rig *self, int ends[2])
{
    int come[2];
    int sockets[CROWD];
    pid_t child;
    char word = 0;

    assert_int_equal(pipe(come), 0);
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        (void)close(ends[1]);
        if (setuid(65534) != 0) {
            _exit(1);
        }
        come_in_a_crowd(self, sockets);
        _exit(write(come[1], &word, 1) == 1 && read(ends[0], &word, 1) == 0 ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(read(come[0], &word, 1), 1);
    assert_int_equal(close(come[0]), 0);
    assert_int_equal(close(come[1]), 0);
    assert_int_equal(close(ends[0]), 0);
    return child;
}

/* They are sent away before they count: neither this user's crowd nor his one has to make room. */
static void
test_share__a_crowd_of_another_user_takes_no_place(void **state)
{
    const share_hello hello = {.magic = {'t', 't', 'h', 'e', 'l', 'l', 'o', '1'}};
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    tutti_share_view view;
    share_answer answer;
    tutti_error err;
    share_rig self;
    int status = 0;
    int first;
    int ends[2];
    pid_t child;

    (void)state;
    if (geteuid() != 0) {
        SKIP("only root can become another user");
    }
    share_rig_open(&self, 4, 0);
    assert_ok(share_rig_offer(&self, true, token, &err));
    first = tutti_local_connect(tutti_bytes_of(tutti_share_socket(self.share)));
    child = start_foreign_crowd(&self, ends);
    assert_ok(share_rig_take(&self, token, &view, &err));
    assert_true(tutti_local_send(first, &hello, sizeof(hello), NULL, 0)); /* it is still there */
    assert_int_equal(read_one(first, &answer), sizeof(answer));
    assert_int_equal(answer.refusal, SHARE_BAD_TOKEN);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(close(first), 0);
    tutti_share_drop(&view);
    share_rig_close(&self);
}

/* Another user's process: 1 = refused for that, 2 = got it, else something else. */
static int
take_as_nobody(const share_rig *self, const unsigned char *token)
{
    tutti_share_view view;
    tutti_error err;
    tutti_code code;

    if (setuid(65534) != 0) {
        return 3;
    }
    code = share_rig_take(self, token, &view, &err);
    if (code == TUTTI_OK) {
        return 2;
    }
    return strcmp(err.reason, "OTHER_USER") == 0 ? 1 : 4;
}

static int
status_of_nobody(const share_rig *self, const unsigned char *token)
{
    const pid_t child = fork();
    int status = 0;

    if (child == 0) {
        _exit(take_as_nobody(self, token));
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void
test_share__refuses_other_users_unless_told(void **state)
{
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    tutti_share_view view;
    tutti_error err;
    share_rig self;

    (void)state;
    if (geteuid() != 0) {
        SKIP("only root can become another user");
    }
    share_rig_open(&self, 4, 0);
    assert_ok(share_rig_offer(&self, false, token, &err));
    assert_int_equal(status_of_nobody(&self, token), 1);
    assert_ok(share_rig_take(&self, token, &view, &err)); /* the token is still good */
    tutti_share_drop(&view);
    self.share->options.any_user = true;
    assert_ok(share_rig_offer(&self, false, token, &err));
    assert_int_equal(status_of_nobody(&self, token), 2);
    share_rig_wait_over(&self, 2); /* a process that ends lets go */
    share_rig_close(&self);
}

/* By hand, as clients in other languages do. */
static void
test_share__sends_up_to_three_descriptors_in_their_order(void **state)
{
    share_rig self;
    share_hello hello = {.magic = {'t', 't', 'h', 'e', 'l', 'l', 'o', '1'}};
    int bells[2];
    share_answer answer;
    tutti_share_item item = {.bytes = RIG_BYTES, .writable = true, .owner = &self.over};
    struct pollfd look = {.events = POLLIN};
    int fds[TUTTI_LOCAL_FDS_MAX];
    size_t count = 0;
    tutti_error err;

    (void)state;
    share_rig_open(&self, 4, 0);
    assert_int_equal(pipe(bells), 0);
    item.fd = self.fd;
    item.second = bells[0];
    item.third = bells[1];
    assert_ok(tutti_share_offer(self.share, &item, hello.token, &err));
    look.fd = tutti_local_connect(tutti_bytes_of(tutti_share_socket(self.share)));
    assert_true(look.fd >= 0);
    assert_true(tutti_local_send(look.fd, &hello, sizeof(hello), NULL, 0));
    assert_int_equal(poll(&look, 1, RIG_WAIT_MS), 1);
    assert_int_equal(tutti_local_receive(look.fd, &answer, sizeof(answer), fds, &count),
                     sizeof(answer));
    assert_int_equal(answer.refusal, SHARE_WELCOME);
    assert_int_equal(count, 3);
    assert_int_equal(write(fds[2], "x", 1), 1);
    assert_int_equal(read(fds[1], &hello, sizeof(hello)), 1);
    tutti_local_close_all(fds, count);
    assert_int_equal(close(look.fd), 0);
    tutti_local_close_all(bells, 2);
    share_rig_wait_over(&self, 1);
    share_rig_close(&self);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share_take__from_who_lies_maps_nothing_that_could_end),
        cmocka_unit_test(test_share__sends_up_to_three_descriptors_in_their_order),
        cmocka_unit_test(test_share__hangs_up_on_what_makes_no_sense),
        cmocka_unit_test(test_share__outlives_a_crowd_of_strangers),
        cmocka_unit_test(test_share__takes_no_descriptors_of_guests),
        cmocka_unit_test(test_share__a_crowd_of_another_user_takes_no_place),
        cmocka_unit_test(test_share__refuses_other_users_unless_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
