/*
 * Goal: whole files in and out, with the path in every error; who holds a port; memory there is.
 * Method: real files and a real socket.
 */
#include "support/testing.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/file.h"
#include "base/os/process.h"

static void
test_file__comes_back_as_written(void **state)
{
    char path[] = "/tmp/tutti-file-XXXXXX";
    char *data = NULL;
    size_t size = 0;
    struct stat about;
    tutti_error err;

    (void)state;
    (void)close(mkstemp(path));
    assert_ok(tutti_file_write(path, "a\0b", 3, 0600, &err));
    assert_ok(tutti_file_read(path, 3, &data, &size, &err));
    assert_int_equal(size, 3);
    assert_memory_equal(data, "a\0b", 4);
    free(data);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_fails(tutti_file_read(path, 2, &data, &size, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_text_has(err.text, path);
    (void)unlink(path);
}

static void
test_file__names_the_path_that_fails(void **state)
{
    char *data = NULL;
    tutti_error err;

    (void)state;
    assert_fails(tutti_file_read("/nonexistent/x", 10, &data, NULL, &err), TUTTI_NOT_FOUND);
    assert_text_has(err.text, "/nonexistent/x: No such file");
    assert_fails(tutti_file_write("/nonexistent/x", "", 0, 0600, &err), TUTTI_NOT_FOUND);
    assert_text_has(err.text, "/nonexistent/x");
}

static void
test_process__says_who_listens(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    char text[64];
    char pid[32];

    (void)state;
    assert_int_equal(bind(descriptor, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(descriptor, 1), 0);
    assert_int_equal(getsockname(descriptor, (struct sockaddr *)&address, &size), 0);
    tutti_process_who_listens(ntohs(address.sin_port), text, sizeof(text));
    (void)snprintf(pid, sizeof(pid), "(pid %d)", (int)getpid());
    assert_text_has(text, pid);
    assert_text_has(text, "test_base_file");
    (void)close(descriptor);
    tutti_process_who_listens(ntohs(address.sin_port), text, sizeof(text));
    assert_string_equal(text, "a process that has gone");
}

static void
test_process__raises_its_file_limit(void **state)
{
    tutti_error err;

    (void)state;
    assert_ok(tutti_process_raise_files(16, &err));
    assert_fails(tutti_process_raise_files(1ULL << 40, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_text_has(err.text, "ulimit -n");
    assert_true(tutti_process_memory() > 1 << 20);
}

static void
test_process__has_no_more_memory_than_it_may_map(void **state)
{
    struct rlimit before;
    struct rlimit less;

    (void)state;
#ifdef __SANITIZE_ADDRESS__
    SKIP("a build with sanitizers"); /* it has mapped terabytes already */
#endif
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    less = before;
    less.rlim_cur = tutti_process_memory() - 4096;
    assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    assert_int_equal(tutti_process_memory(), less.rlim_cur);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file__comes_back_as_written),
        cmocka_unit_test(test_file__names_the_path_that_fails),
        cmocka_unit_test(test_process__says_who_listens),
        cmocka_unit_test(test_process__raises_its_file_limit),
        cmocka_unit_test(test_process__has_no_more_memory_than_it_may_map),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
