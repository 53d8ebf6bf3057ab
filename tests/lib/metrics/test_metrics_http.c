/*
 * Goal: a loop that hangs shows, and what was asked of it in vain harms nobody when it comes back;
 * connections that say nothing, and pages of numbers, keep no probe waiting.
 * Method: a real port and a real loop, which a task or a page holds until the test lets it go.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "support/testing.h"

#include "base/config/address.h"
#include "metrics/metrics_private.h"

static tutti_rpc_loop *loop;
static tutti_metrics *metrics;
static tutti_address where;
static char port_file[64];
static sem_t held;
static sem_t released;
static sem_t asked; /* health was answered: the last pages may follow */
static bool ready;
static size_t lines;  /* of a page */
static bool stepwise; /* each page waits until it is released */
static atomic_uint pages;

#define PROBE_S 8 /* how long a probe waits here: less than what closes idle connections */
#define PAGES 20
#define PAGE_US 20000

static void
on_page(void *arg, tutti_page *page)
{
    size_t i;

    (void)arg;
    atomic_fetch_add(&pages, 1);
    if (stepwise) {
        (void)sem_post(&held);
        (void)sem_wait(&released);
    }
    tutti_page_family(page, "test_lines", "gauge", "Lines.");
    for (i = 0; i < lines; i++) {
        tutti_page_number(page, "test_lines", "", i);
    }
}

static bool
on_ready(void *arg, tutti_text *why)
{
    (void)arg;
    if (!ready) {
        tutti_text_add(why, "not yet");
    }
    return ready;
}

static void
read_address(void)
{
    FILE *file = fopen(port_file, "r");
    char line[TUTTI_ADDRESS_MAX] = "";

    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    (void)fclose(file);
    line[strcspn(line, "\n")] = '\0';
    assert_int_equal(tutti_address_parse(line, &where, NULL), TUTTI_OK);
}

static int
begin(void **state)
{
    const tutti_metrics_source source = {
        .program = "test", .on_page = on_page, .on_ready = on_ready, .loop = NULL};
    tutti_metrics_source all = source;
    const tutti_metrics_options options = {.listen = "127.0.0.1:0", .port_file = port_file};

    (void)state;
    (void)snprintf(port_file, sizeof(port_file), "/tmp/tutti-metrics-%ld", (long)getpid());
    assert_int_equal(sem_init(&held, 0, 0), 0);
    assert_int_equal(sem_init(&released, 0, 0), 0);
    assert_int_equal(sem_init(&asked, 0, 0), 0);
    assert_int_equal(tutti_rpc_loop_new("test", &loop, NULL), TUTTI_OK);
    assert_int_equal(tutti_rpc_loop_start(loop, NULL), TUTTI_OK);
    all.loop = loop;
    assert_int_equal(tutti_metrics_start(&options, &all, &metrics, NULL), TUTTI_OK);
    read_address();
    return 0;
}

static int
end(void **state)
{
    (void)state;
    (void)sem_post(&released); /* where a test failed with the loop in its hands */
    tutti_metrics_stop(metrics);
    metrics = NULL;
    tutti_rpc_loop_stop(loop);
    tutti_rpc_loop_free(loop);
    (void)unlink(port_file);
    return 0;
}

static void
on_hold(tutti_rpc_task *task)
{
    (void)task;
    (void)sem_post(&held);
    (void)sem_wait(&released);
}

static int
reach(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(where.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = PROBE_S};
    const int descriptor = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)),
                     0);
    assert_int_equal(connect(descriptor, (struct sockaddr *)&address, sizeof(address)), 0);
    return descriptor;
}

static void
request(int descriptor, const char *path)
{
    char words[128];
    const int count = snprintf(words, sizeof(words),
                               "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);

    assert_int_equal(write(descriptor, words, (size_t)count), count);
}

/* The status of an answer, with all of it in a buffer that ends in NUL. Closes the descriptor. */
static int
hear(int descriptor, char *text, size_t size)
{
    size_t used = 0;
    ssize_t got = 1;
    int status = 0;

    while ((got > 0 && used + 1 < size) || (got < 0 && errno == EINTR)) { /* a stopped process */
        got = read(descriptor, text + used, size - 1 - used);
        used += got > 0 ? (size_t)got : 0;
    }
    (void)close(descriptor);
    text[used] = '\0';
    assert_int_equal(sscanf(text, "HTTP/1.1 %d", &status), 1);
    return status;
}

static int
ask(const char *path, char *text, size_t size)
{
    const int descriptor = reach();

    request(descriptor, path);
    return hear(descriptor, text, size);
}

static void
test_health__of_a_loop_that_hangs_is_503_until_it_is_back(void **state)
{
    static tutti_rpc_task hold;
    char text[4096];

    (void)state;
    assert_int_equal(ask("/healthz", text, sizeof(text)), 200);
    hold.on_run = on_hold;
    tutti_rpc_loop_post(loop, &hold);
    (void)sem_wait(&held);
    assert_int_equal(ask("/healthz", text, sizeof(text)), 503);
    assert_non_null(strstr(text, "did not answer within 2 s"));
    assert_int_equal(ask("/metrics", text, sizeof(text)), 503);
    (void)sem_post(&released); /* it finds two questions that nobody waits for */
    assert_int_equal(ask("/healthz", text, sizeof(text)), 200);
}

static void
test_metrics__stop_while_a_question_waits(void **state)
{
    static tutti_rpc_task hold;
    char text[4096];

    (void)state;
    hold.on_run = on_hold;
    tutti_rpc_loop_post(loop, &hold);
    (void)sem_wait(&held);
    assert_int_equal(ask("/readyz", text, sizeof(text)), 503);
    tutti_metrics_stop(metrics);
    metrics = NULL;
    (void)sem_post(&released); /* the question outlives the metrics */
}

static void
test_metrics__page_that_takes_too_long_is_503_in_time(void **state)
{
    char text[4096];

    (void)state;
    stepwise = true;
    assert_int_equal(ask("/metrics", text, sizeof(text)), 503); /* while it is being written */
    assert_non_null(strstr(text, "did not answer within 2 s"));
    tutti_metrics_stop(metrics);
    metrics = NULL;
    stepwise = false;
    (void)sem_post(&released); /* the page outlives the metrics */
}

static void
test_readiness__says_why_not(void **state)
{
    char text[4096];

    (void)state;
    ready = false;
    assert_int_equal(ask("/readyz", text, sizeof(text)), 503);
    assert_non_null(strstr(text, "not yet\n"));
    ready = true;
    assert_int_equal(ask("/readyz", text, sizeof(text)), 200);
}

static void
test_metrics__that_are_too_many_are_none(void **state)
{
    static char text[64 << 10];

    (void)state;
    lines = 1000;
    assert_int_equal(ask("/metrics", text, sizeof(text)), 200);
    assert_non_null(strstr(text, "test_lines 999\n"));
    lines = TUTTI_PAGE_BYTES_MAX / 8;
    assert_int_equal(ask("/metrics", text, sizeof(text)), 503);
    lines = 1;
    assert_int_equal(ask("/metrics", text, sizeof(text)), 200);
}

static void
crowd_in(int *descriptors, size_t count, const char *words)
{
    const size_t size = strlen(words);
    size_t i;

    for (i = 0; i < count; i++) {
        descriptors[i] = reach();
        assert_int_equal(write(descriptors[i], words, size), size);
    }
}

/* With and without the beginning of a request; the probes that come are always the newest. */
static void
test_health__is_told_however_many_say_nothing(void **state)
{
    static const char *const words[] = {"", "GET /healthz HTTP/1.1\r\nX: "};
    int crowd[4 * TUTTI_METRICS_CONNECTIONS_MAX];
    const size_t count = sizeof(crowd) / sizeof(crowd[0]);
    char text[4096];
    char byte;
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        size_t j;

        crowd_in(crowd, count, words[i]);
        assert_int_equal(ask("/healthz", text, sizeof(text)), 200);
        assert_int_equal(ask("/readyz", text, sizeof(text)), 200);
        assert_int_equal(read(crowd[0], &byte, 1), 0); /* the oldest has made room */
        request(crowd[count - 1], "/healthz");
        assert_int_equal(hear(crowd[count - 1], text, sizeof(text)), 200);
        for (j = 0; j + 1 < count; j++) {
            (void)close(crowd[j]);
        }
    }
}

static void *
run_pages(void *done)
{
    struct timespec until;
    unsigned count = 0;

    while (!atomic_load((atomic_bool *)done)) {
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 10000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (sem_timedwait(&held, &until) == 0) {
            (void)usleep(PAGE_US); /* the probe, asked before, gets in line meanwhile */
            (void)clock_gettime(CLOCK_REALTIME, &until);
            until.tv_sec += PROBE_S / 2;
            if (++count == PAGES - 1) {
                (void)sem_timedwait(&asked, &until);
            }
            (void)sem_post(&released);
        }
    }
    return NULL;
}

/* One page is being written, others wait behind it: the probe waits for few, not for all. */
static void
test_health__is_told_before_pages_that_wait(void **state)
{
    static atomic_bool done;
    int scrapes[PAGES];
    char text[4096];
    unsigned before;
    pthread_t writer;
    size_t i;
    int probe;

    (void)state;
    stepwise = true;
    atomic_store(&pages, 0);
    atomic_store(&done, false);
    for (i = 0; i < PAGES; i++) {
        scrapes[i] = reach();
        request(scrapes[i], "/metrics");
    }
    (void)sem_wait(&held);
    (void)sem_post(&held);
    probe = reach();
    request(probe, "/healthz");
    assert_int_equal(pthread_create(&writer, NULL, run_pages, &done), 0);
    assert_int_equal(hear(probe, text, sizeof(text)), 200);
    before = atomic_load(&pages);
    (void)sem_post(&asked);
    for (i = 0; i < PAGES; i++) {
        assert_int_equal(hear(scrapes[i], text, sizeof(text)), 200);
    }
    assert_in_range(before, 1, PAGES - 1);
    atomic_store(&done, true);
    assert_int_equal(pthread_join(writer, NULL), 0);
    stepwise = false;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_health__of_a_loop_that_hangs_is_503_until_it_is_back,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_metrics__stop_while_a_question_waits, begin, end),
        cmocka_unit_test_setup_teardown(test_metrics__page_that_takes_too_long_is_503_in_time,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_readiness__says_why_not, begin, end),
        cmocka_unit_test_setup_teardown(test_metrics__that_are_too_many_are_none, begin, end),
        cmocka_unit_test_setup_teardown(test_health__is_told_however_many_say_nothing, begin, end),
        cmocka_unit_test_setup_teardown(test_health__is_told_before_pages_that_wait, begin, end),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
