/*
 * Goal: processes are known by number and start, so that nobody else's is hit; programs that fail
 * take the others with them.
 * Method: real processes of /bin/sh.
 */
#include "support/testing.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/cluster/programs.h"
#include "client/cli/util/process.h"

static const char *
find(char *const *environment, const char *name)
{
    const size_t size = strlen(name);

    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, size) == 0 && (*environment)[size] == '=') {
            return *environment + size + 1;
        }
    }
    return NULL;
}

static void
test_environment__sets_unsets_and_keeps(void **state)
{
    const char *const changes[] = {"CLI_A=new", "CLI_B", "CLI_P*", "CLI_PQ=kept", "CLI_D=x=y"};
    char **environment;

    (void)state;
    (void)setenv("CLI_A", "old", 1);
    (void)setenv("CLI_B", "b", 1);
    (void)setenv("CLI_P1", "p", 1);
    (void)setenv("CLI_BB", "bb", 1);
    environment = process_environment(changes, COUNT_OF(changes));
    assert_string_equal(find(environment, "CLI_A"), "new");
    assert_null(find(environment, "CLI_B"));
    assert_null(find(environment, "CLI_P1"));
    assert_string_equal(find(environment, "CLI_PQ"), "kept");
    assert_string_equal(find(environment, "CLI_BB"), "bb");
    assert_string_equal(find(environment, "CLI_D"), "x=y");
    process_environment_free(environment);
}

static void
test_started__knows_the_living_alone(void **state)
{
    process_ref ref = {.pid = getpid()};

    (void)state;
    ref.started = process_started(ref.pid);
    assert_true(ref.started > 0);
    process_hold(&ref);
    assert_true(ref.descriptor >= 0);
    process_let_go(&ref);
    ref.started++; /* another process had this number */
    process_hold(&ref);
    assert_int_equal(ref.descriptor, -1);
    process_signal(&ref, SIGKILL); /* nobody is hit */
    assert_int_equal(process_started(1 << 30), 0);
}

static void
test_find__says_where_it_looked(void **state)
{
    char path[PROCESS_PATH_MAX];
    tutti_error err;

    (void)state;
    assert_fails(process_find("no-such-program-of-ours", path, &err), TUTTI_NOT_FOUND);
    assert_text_has(err.text, "no-such-program-of-ours");
    assert_text_has(err.text, "PATH");
    assert_ok(process_find("sh", path, &err));
    assert_int_equal(path[0], '/');
}

/* ------------------------------------------------------------------------------ programs */

/* `count` shells with RANK in their environment, to their end. [out, owned] ret_out  what they say
 */
static void
run(programs *set, uint32_t count, const char *script, char **ret_out)
{
    char line[512];
    char *words[] = {(char *)(uintptr_t) "/bin/sh", (char *)(uintptr_t) "-c", line, NULL};
    static size_t size; /* the stream writes it until it is closed */
    tutti_error err;
    uint32_t i;

    (void)snprintf(line, sizeof(line), "%s", script);
    set->out = open_memstream(ret_out, &size);
    set->err = set->out;
    set->prefix = true;
    assert_ok(programs_catch_signals(&err));
    programs_init(set, count);
    for (i = 0; i < count; i++) {
        char rank[32];
        const char *const changes[] = {rank};
        char **environment;

        (void)snprintf(rank, sizeof(rank), "RANK=%u", i);
        environment = process_environment(changes, 1);
        assert_ok(programs_start(set, i, words, environment, &err));
        process_environment_free(environment);
    }
    programs_wait(set);
    programs_release_signals();
}

static void
end(programs *set, char **out)
{
    FILE *file = set->out;

    programs_fini(set);
    (void)fclose(file); /* this may move the text */
    free(*out);
}

static void
test_programs__all_well_is_no_failure(void **state)
{
    programs set = {0};
    char *out = NULL;
    uint32_t i;

    (void)state;
    run(&set, 3, "echo rank $RANK", &out);
    assert_int_equal(set.failed, -1);
    assert_int_equal(set.signal, 0);
    for (i = 0; i < 3; i++) {
        assert_int_equal(programs_exit_code(&set.all[i]), 0);
    }
    assert_text_has(out, "[2] rank 2\n");
    end(&set, &out);
}

static void
test_programs__one_that_fails_takes_the_others_with_it(void **state)
{
    programs set = {.patience_ms = 300};
    char *out = NULL;
    pid_t child = 0;

    (void)state;
    /* Rank 0 has a child of its own, and ends only when that is gone. */
    run(&set, 2,
        "if [ $RANK = 1 ]; then sleep 0.2; exit 3; fi; trap '' TERM; sleep 600 & echo $!; exec "
        "sleep 600",
        &out);
    assert_int_equal(set.failed, 1);
    assert_int_equal(programs_exit_code(&set.all[1]), 3);
    assert_int_equal(programs_exit_code(&set.all[0]), 128 + SIGKILL); /* it would not listen */
    assert_int_equal(sscanf(out, "[0] %d", &child), 1);
    end(&set, &out);
    while (process_started(child) != 0) { /* its death takes a moment */
        (void)usleep(1000);
    }
}

static void
test_programs__a_signal_is_the_exit_code_of_shells(void **state)
{
    programs set = {0};
    char *out = NULL;

    (void)state;
    run(&set, 1, "kill -9 $$", &out);
    assert_int_equal(set.failed, 0);
    assert_int_equal(programs_exit_code(&set.all[0]), 128 + SIGKILL);
    end(&set, &out);
}

static void
test_programs__end_when_their_time_is_up(void **state)
{
    programs set = {.limit_ms = 100};
    char *out = NULL;

    (void)state;
    run(&set, 2, "exec sleep 600", &out);
    assert_true(set.late);
    assert_int_equal(set.failed, -1);
    end(&set, &out);
}

static void
test_programs__get_the_signals_that_we_get(void **state)
{
    programs set = {0};
    char *out = NULL;

    (void)state;
    run(&set, 2, "trap 'echo bye; exit 0' INT; [ $RANK = 0 ] && kill -INT $PPID; sleep 600 & wait",
        &out);
    assert_int_equal(set.signal, SIGINT);
    assert_int_equal(set.failed, -1);
    end(&set, &out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment__sets_unsets_and_keeps),
        cmocka_unit_test(test_started__knows_the_living_alone),
        cmocka_unit_test(test_find__says_where_it_looked),
        cmocka_unit_test(test_programs__all_well_is_no_failure),
        cmocka_unit_test(test_programs__one_that_fails_takes_the_others_with_it),
        cmocka_unit_test(test_programs__a_signal_is_the_exit_code_of_shells),
        cmocka_unit_test(test_programs__end_when_their_time_is_up),
        cmocka_unit_test(test_programs__get_the_signals_that_we_get),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
