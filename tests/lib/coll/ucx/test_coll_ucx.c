/*
 * Goal: a transport over UCX can be closed at any moment, whatever its peers are doing.
 * Method: a peer in a process of its own (Debian's UCX 1.13 checks its assertions, and a failed one
 * is the end of a process) that says hello and is then stopped, so that nothing answers it.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "coll/ucx/ucx.h"
#include "support/testing.h"

#define ADDRESS_MAX 4096
#define HELLO "hello"
#define TURN_NS (100 * TUTTI_NS_PER_MS)
#define TRIES 10

static void
on_packet(void *arg, const void *header, size_t header_size, const void *data, size_t size,
          tutti_transport_rndv *rndv)
{
    int *heard = arg;

    (void)header;
    (void)data;
    (void)size;
    (void)rndv;
    *heard += header_size == sizeof(HELLO);
}

static void
on_broken(void *arg, void *owner, const char *why)
{
    (void)arg;
    (void)owner;
    (void)why;
}

static const tutti_transport_events events = {on_packet, on_broken};

static void
on_done(tutti_transport_ticket *ticket, bool ok)
{
    (void)ticket;
    (void)ok;
}

static tutti_transport *
open_transport(int *heard)
{
    const tutti_transport_ucx_options options = {.transports = "tcp", .devices = "lo"};
    tutti_transport *transport;
    tutti_error err;

    assert_ok(tutti_transport_ucx_open(&options, &transport, &err));
    transport->ops->listen(transport, &events, heard);
    return transport;
}

static void
work(tutti_transport *transport, uint64_t for_ns)
{
    const uint64_t until = tutti_clock_ns() + for_ns;

    while (tutti_clock_ns() < until) {
        (void)transport->ops->progress(transport);
    }
}

static void
rest(uint64_t for_ns)
{
    const struct timespec time = {.tv_nsec = (long)for_ns};

    (void)nanosleep(&time, NULL);
}

/*
 * The peer: reads an address, says hello to whoever is there, and stops. It and the test work in
 * turns: it connects; the test accepts; it asks to be connected to; and nobody answers the test.
 */
static void
say_hello(int source)
{
    static tutti_transport_ticket ticket;
    char address[ADDRESS_MAX];
    const ssize_t size = read(source, address, sizeof(address));
    int heard = 0;
    tutti_transport *transport = open_transport(&heard);
    tutti_transport_conn *link;
    tutti_error err;

    ticket.on_done = on_done;
    assert_true(size > 0);
    assert_ok(transport->ops->connect(transport, (tutti_bytes){address, (size_t)size}, &ticket,
                                      &link, &err));
    (void)transport->ops->send(link, HELLO, sizeof(HELLO), NULL, 0, &ticket);
    work(transport, TURN_NS);
    rest(2 * TURN_NS);
    work(transport, TURN_NS);
    (void)raise(SIGSTOP);
    _exit(0);
}

static pid_t
start_peer(int *ret_pipe)
{
    int ends[2];
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(ends[1]);
        say_hello(ends[0]);
    }
    (void)close(ends[0]);
    *ret_pipe = ends[1];
    return child;
}

/* Returns what was heard: not 0 = the machine was busy, and the turns were not taken in order. */
static int
close_beside_a_stopped_peer(void)
{
    int heard = 0, status = 0, end;
    const pid_t peer = start_peer(&end); /* before UCX has threads here */
    tutti_transport *transport = open_transport(&heard);
    const tutti_bytes address = transport->ops->address(transport);

    assert_int_equal(write(end, address.data, address.size), address.size);
    (void)close(end);
    rest(3 * TURN_NS / 2);
    work(transport, TURN_NS);
    assert_int_equal(waitpid(peer, &status, WUNTRACED), peer);
    assert_true(WIFSTOPPED(status));
    work(transport, TURN_NS);
    transport->ops->close(transport);
    assert_int_equal(kill(peer, SIGKILL), 0);
    assert_int_equal(waitpid(peer, &status, 0), peer);
    return heard;
}

static void
test_close__while_a_stopped_peer_waits_for_an_answer(void **state)
{
    int heard = 1;
    int i;

    (void)state;
    for (i = 0; i < TRIES && heard != 0; i++) {
        heard = close_beside_a_stopped_peer();
    }
    assert_int_equal(heard, 0);
}

static void
test_open__says_which_device_is_not_there(void **state)
{
    const tutti_transport_ucx_options options = {.transports = "tcp", .devices = "nowhere0"};
    tutti_transport *transport = NULL;
    tutti_error err;

    (void)state;
    assert_fails(tutti_transport_ucx_open(&options, &transport, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "TRANSPORT_FAILED");
    assert_text_has(err.text, "ucx could not ");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open__says_which_device_is_not_there),
        cmocka_unit_test(test_close__while_a_stopped_peer_waits_for_an_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
