/*
 * Goal: a loop that hangs shows, and what was asked of it in vain harms nobody when it comes back.
 * Method: a real port and a real loop, which a task holds until the test lets it go.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/testing.h"

#include "base/address.h"
#include "metrics/metrics_private.h"

static tutti_rpc_loop *loop;
static tutti_metrics *metrics;
static tutti_address where;
static char port_file[64];
static sem_t held;
static sem_t released;
static bool ready;
static size_t lines; /* of a page */

static void
on_page(void *arg, tutti_page *page)
{
    size_t i;

    (void)arg;
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

/* The status of an answer, with all of it in a buffer that ends in NUL. */
static int
ask(const char *path, char *text, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(where.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    char words[128];
    size_t used = 0;
    ssize_t got = 1;
    int status = 0;
    const int count = snprintf(words, sizeof(words),
                               "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);

    assert_int_equal(connect(descriptor, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(write(descriptor, words, (size_t)count), count);
    while (got > 0 && used + 1 < size) {
        got = read(descriptor, text + used, size - 1 - used);
        used += got > 0 ? (size_t)got : 0;
    }
    (void)close(descriptor);
    text[used] = '\0';
    assert_int_equal(sscanf(text, "HTTP/1.1 %d", &status), 1);
    return status;
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_health__of_a_loop_that_hangs_is_503_until_it_is_back,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_metrics__stop_while_a_question_waits, begin, end),
        cmocka_unit_test_setup_teardown(test_readiness__says_why_not, begin, end),
        cmocka_unit_test_setup_teardown(test_metrics__that_are_too_many_are_none, begin, end),
    };
    int failed;

    tutti_rpc_init();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_rpc_fini();
    return failed;
}
