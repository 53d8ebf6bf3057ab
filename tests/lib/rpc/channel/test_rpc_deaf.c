/*
 * Goal: a listener that gRPC has given up, because the process was out of descriptors, is noticed,
 * and by default the process ends so that a fresh one can be started.
 * Method: few descriptors allowed, all used up by connections, then given back. The process that
 * has to end is a child, forked before gRPC starts.
 */
#include "rig.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/log.h"

#define DESCRIPTORS 48
#define CONNECTIONS 64

static atomic_size_t deaf_count;

static void
on_deaf(void *arg)
{
    (void)arg;
    (void)atomic_fetch_add(&deaf_count, 1);
}

/* Sockets are made first, so that only the server runs out of descriptors. */
static void
use_up(uint16_t port, struct rlimit before)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct rlimit few = {.rlim_cur = rig_descriptors() + CONNECTIONS + 8,
                               .rlim_max = before.rlim_max};
    int sockets[CONNECTIONS];
    size_t i;

    for (i = 0; i < CONNECTIONS; i++) {
        sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    (void)setrlimit(RLIMIT_NOFILE, &few);
    for (i = 0; i < CONNECTIONS; i++) {
        (void)connect(sockets[i], (struct sockaddr *)&address, sizeof(address));
    }
    for (i = 0; i < 200; i++) {
        rig_pause(); /* accept() fails meanwhile */
    }
    for (i = 0; i < CONNECTIONS; i++) {
        (void)close(sockets[i]);
    }
    (void)setrlimit(RLIMIT_NOFILE, &before);
}

static void
run_deaf(void (*callback)(void *arg))
{
    struct rlimit before;
    rig self = {0};
    size_t count = 0;
    tutti_error err;

    (void)getrlimit(RLIMIT_NOFILE, &before);
    tutti_log_set_output(TUTTI_LOG_PEOPLE, STDERR_FILENO);
    (void)tutti_log_set_levels("error", NULL);
    echo_server_init(&self.server, "127.0.0.1:0");
    self.server.options.self_check_ns = 200 * TUTTI_NS_PER_MS;
    self.server.on_deaf = callback;
    rig_start(&self, 1, NULL);
    assert_ok(rig_ask(self.channel, "hi", NULL, &err));
    for (count = 0; count < 600; count++) {
        rig_pause(); /* two checks or three, all well */
    }
    assert_int_equal(deaf_count, 0);
    use_up(tutti_rpc_server_addresses(self.server.server, &count)->port, before);
    rig_await(deaf_count, 1);
    assert_ok(rig_ask(self.channel, "connections that were there live on", NULL, &err));
    rig_stop(&self);
}

static void
test_server__that_became_deaf_ends_the_process(void **state)
{
    int status = 0;
    const pid_t child = fork();

    (void)state;
    if (child == 0) {
        tutti_rpc_init();
        run_deaf(NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 70);
}

static void
test_server__that_became_deaf_says_so(void **state)
{
    (void)state;
    tutti_rpc_init();
    run_deaf(on_deaf);
    tutti_rpc_fini();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server__that_became_deaf_ends_the_process),
        cmocka_unit_test(test_server__that_became_deaf_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
