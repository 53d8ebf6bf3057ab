/*
 * Goal: connecting ends with a client or with words that say where, why and who is missing.
 * Method: a fake agent in this process, and places where nobody is.
 */
#include "client_rig.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <netinet/in.h>

#include "base/os/clock.h"

/* A port where nobody listens: bound, never listened to. */
static int
take_port(char *ret_address, size_t size)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(at);
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(descriptor >= 0);
    assert_int_equal(bind(descriptor, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(getsockname(descriptor, (struct sockaddr *)&at, &length), 0);
    (void)snprintf(ret_address, size, "127.0.0.1:%u", ntohs(at.sin_port));
    return descriptor;
}

static void
test_connect__to_nobody_says_where_and_why(void **state)
{
    tutti_client *client = (tutti_client *)state;
    char address[64];
    const int port = take_port(address, sizeof(address));
    tutti_error err;

    assert_fails(tutti_connect(address, &client, &err), TUTTI_UNAVAILABLE);
    assert_ptr_equal(client, state); /* untouched */
    assert_text_has(err.text, address);
    assert_text_has(err.text, "connection refused");
    assert_string_equal(err.reason, "UNREACHABLE");
    assert_int_equal(err.scope, TUTTI_SCOPE_AGENT);
    (void)close(port);
    assert_fails(tutti_connect("unix:/nonexistent/agent.sock", &client, &err), TUTTI_UNAVAILABLE);
    assert_text_has(err.text, "unix:/nonexistent/agent.sock");
    assert_text_has(err.text, "no such socket");
}

static void
test_connect__without_an_agent_says_what_to_set(void **state)
{
    tutti_client *client = NULL;
    tutti_error err;

    (void)state;
    assert_fails(tutti_connect(NULL, &client, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "TUTTI_AGENT");
    assert_string_equal(err.reason, "NO_AGENT");
    assert_fails(tutti_connect("localhost", &client, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "\"localhost\"");
    assert_fails(tutti_connect("localhost", &client, NULL), TUTTI_INVALID_ARGUMENT);
}

static void
test_connect__takes_the_agent_from_the_environment(void **state)
{
    client_rig *rig = *state;
    tutti_client *client = NULL;
    tutti_error err;

    assert_int_equal(setenv("TUTTI_AGENT", fake_agent_address(&rig->agent), 1), 0);
    assert_ok(tutti_connect(NULL, &client, &err));
    assert_int_equal(tutti_whoami(client)->world_size, 4);
    tutti_close(client);
    assert_int_equal(unsetenv("TUTTI_AGENT"), 0);
}

static void
test_connect__tells_who_the_agent_is(void **state)
{
    const client_rig *rig = *state;
    const tutti_agent_info *info = tutti_whoami(rig->client);

    assert_string_equal(info->job, "training");
    assert_int_equal(info->rank, 0);
    assert_int_equal(info->world_size, 4);
    assert_true(info->incarnation == 0x8f3a9c12e4b07d55);
    assert_int_equal(info->epoch, 7);
    assert_string_equal(info->coordinator, fake_agent_address(&rig->agent));
    assert_string_equal(info->host, "host-1");
    assert_string_equal(info->device, "cuda:0");
    assert_string_equal(info->version, "0.1.0");
    assert_int_equal(info->pid, 4711);
}

static void
test_connect__asks_again_until_the_agent_has_joined(void **state)
{
    client_rig *rig = *state;
    tutti_client *client = NULL;
    tutti_error err;

    rig->agent.script.join_after = atomic_load(&rig->agent.describe_count) + 3;
    assert_ok(tutti_connect(fake_agent_address(&rig->agent), &client, &err));
    assert_int_equal(atomic_load(&rig->agent.describe_count), rig->agent.script.join_after + 1);
    tutti_close(client);
}

static tutti_code
connect_briefly(const client_rig *rig, uint32_t timeout_ms, tutti_error *err)
{
    tutti_client_options options;
    tutti_client *client = NULL;
    tutti_code code;

    tutti_client_options_init(&options);
    options.agent = fake_agent_address(&rig->agent);
    options.timeout_ms = timeout_ms;
    code = tutti_connect_with(&options, &client, err);
    tutti_close(client);
    return code;
}

/* It fails with these words; with more time where a busy machine did not come to ask. */
static void
fail_briefly(const client_rig *rig, const char *words, tutti_error *err)
{
    uint32_t timeout_ms;

    for (timeout_ms = 400; timeout_ms < 30000; timeout_ms *= 2) {
        assert_fails(connect_briefly(rig, timeout_ms, err), TUTTI_DEADLINE_EXCEEDED);
        if (strstr(err->text, words) != NULL) {
            return;
        }
    }
    assert_text_has(err->text, words);
}

static void
test_connect__to_an_agent_that_never_joins_says_who_is_missing(void **state)
{
    client_rig *rig = *state;
    tutti_error err;

    rig->agent.script.join_after = 1000000;
    fail_briefly(rig, " ms: ranks 2, 3 of 4 are missing", &err);
    assert_string_equal(err.reason, "NOT_JOINED");
    assert_text_has(err.text, "has not joined job training in ");
}

static void
test_connect__passes_the_coordinators_word_on(void **state)
{
    client_rig *rig = *state;
    tutti_error err;

    rig->agent.script.join_after = 1000000;
    rig->agent.script.fail_method = "LookupRanks";
    (void)TUTTI_FAIL_FOR(&rig->agent.script.error, TUTTI_NOT_FOUND, "NO_JOB", "no job training");
    fail_briefly(rig, "its coordinator says: no job training", &err);
}

static void
test_connect__to_an_agent_that_does_not_answer_ends_in_time(void **state)
{
    client_rig *rig = *state;
    const uint64_t began = tutti_clock_ns();
    tutti_error err;

    rig->agent.script.park_method = "DescribeAgent";
    assert_fails(connect_briefly(rig, 400, &err), TUTTI_DEADLINE_EXCEEDED);
    assert_true(tutti_clock_ns() - began >= 100 * TUTTI_NS_PER_MS);
    assert_text_has(err.text, fake_agent_address(&rig->agent));
}

/* An agent that comes up while somebody waits for it. */
typedef struct late {
    fake_agent agent;
    const char *listen;
} late;

static void *
start_late(void *arg)
{
    late *self = arg;
    const struct timespec pause = {.tv_nsec = 50000000}; /* some attempts come first */

    (void)nanosleep(&pause, NULL);
    fake_agent_start(&self->agent, self->listen);
    return NULL;
}

static void
test_connect__with_wait_does_not_mind_who_comes_later(void **state)
{
    char folder[] = "/tmp/tutti-client-XXXXXX";
    char address[96];
    late self = {.listen = address};
    tutti_client_options options;
    tutti_client *client = NULL;
    pthread_t thread;
    tutti_error err;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(address, sizeof(address), "unix:%s/agent.sock", folder);
    tutti_client_options_init(&options);
    options.agent = address;
    assert_fails(tutti_connect_with(&options, &client, &err), TUTTI_UNAVAILABLE);
    options.wait = true;
    assert_int_equal(pthread_create(&thread, NULL, start_late, &self), 0);
    assert_ok(tutti_connect_with(&options, &client, &err));
    tutti_close(client);
    (void)pthread_join(thread, NULL);
    fake_agent_stop(&self.agent);
    (void)unlink(address + strlen("unix:"));
    (void)rmdir(folder);
}

static void
test_connect__with_wait_gives_up_and_says_why(void **state)
{
    tutti_client_options options;
    tutti_client *client = NULL;
    tutti_error err;

    (void)state;
    tutti_client_options_init(&options);
    options.agent = "unix:/nonexistent/agent.sock";
    options.wait = true;
    options.timeout_ms = 400;
    assert_fails(tutti_connect_with(&options, &client, &err), TUTTI_UNAVAILABLE);
    assert_text_has(err.text, "no such socket");
}

static void
test_connect__takes_options_of_older_programs_only(void **state)
{
    const client_rig *rig = *state;
    struct {
        tutti_client_options known;
        char more[64];
    } newer = {0};
    tutti_client_options options = {0};
    tutti_client *client = NULL;
    tutti_error err;

    assert_fails(tutti_connect_with(&options, &client, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "init");
    options.size = offsetof(tutti_client_options, coordinator);
    options.agent = fake_agent_address(&rig->agent);
    options.coordinator = "not an address, and not looked at";
    assert_ok(tutti_connect_with(&options, &client, &err));
    tutti_close(client);
    newer.known.size = sizeof(newer);
    newer.known.agent = fake_agent_address(&rig->agent);
    assert_ok(tutti_connect_with(&newer.known, &client, &err));
    tutti_close(client);
    newer.more[63] = 1;
    assert_fails(tutti_connect_with(&newer.known, &client, &err), TUTTI_INVALID_ARGUMENT);
}

static void
test_connect__refuses_a_token_file_that_is_not_one(void **state)
{
    const client_rig *rig = *state;
    tutti_client_options options;
    tutti_client *client = NULL;
    tutti_error err;

    tutti_client_options_init(&options);
    options.agent = fake_agent_address(&rig->agent);
    options.token_file = "/nonexistent/token";
    assert_fails(tutti_connect_with(&options, &client, &err), TUTTI_NOT_FOUND);
    assert_text_has(err.text, "/nonexistent/token");
    options.token_file = "/dev/null";
    assert_fails(tutti_connect_with(&options, &client, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "token of 0 bytes");
}

static void
test_connect__without_an_agent_speaks_to_the_coordinator_alone(void **state)
{
    client_rig *rig = *state;
    tutti_client_options options;
    tutti_client *client = NULL;
    tutti_group_info group;
    tutti_error err;

    tutti_client_options_init(&options);
    options.agent = "";
    assert_fails(tutti_connect_with(&options, &client, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NO_COORDINATOR");
    options.coordinator = fake_agent_address(&rig->agent);
    options.job = "no job!";
    assert_fails(tutti_connect_with(&options, &client, &err), TUTTI_INVALID_ARGUMENT);
    options.job = "training";
    assert_ok(tutti_connect_with(&options, &client, &err));
    assert_null(tutti_whoami(client));
    assert_ok(tutti_group_get(client, "tp/0", &group, &err));
    assert_int_equal(group.rank_count, 2);
    assert_int_equal(group.ranks[0], 3);
    tutti_group_info_free(&group);
    assert_fails(tutti_tensor_delete(client, "x", &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NO_AGENT");
    assert_fails(tutti_group_create(client, "g", (uint32_t[]){0}, 1, NULL, &err),
                 TUTTI_FAILED_PRECONDITION);
    tutti_close(client);
}

/* The child's verdict as an exit code: what it gets wrong has a number of its own. */
static int
use_in_child(tutti_client *client, const char *address)
{
    tutti_client *other = NULL;
    tutti_error err;

    if (tutti_tensor_delete(client, "x", &err) != TUTTI_FAILED_PRECONDITION) {
        return 1;
    }
    if (strcmp(err.reason, "FORKED") != 0 || strstr(err.text, "fork") == NULL) {
        return 2;
    }
    if (tutti_connect(address, &other, &err) != TUTTI_FAILED_PRECONDITION) {
        return 3;
    }
    tutti_close(client);
    return 0;
}

static void
test_client__in_a_forked_child_refuses_and_leaves_the_parent_alone(void **state)
{
    client_rig *rig = *state;
    tutti_error err;
    int status = 0;
    pid_t child;

    child = fork();
    if (child == 0) {
        _exit(use_in_child(rig->client, fake_agent_address(&rig->agent)));
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_ok(tutti_tensor_delete(rig->client, "x", &err));
}

static void
test_health__is_asked_without_a_client(void **state)
{
    client_rig *rig = *state;
    tutti_client_options options;
    bool serving = false;
    tutti_error err;

    tutti_client_options_init(&options);
    options.agent = fake_agent_address(&rig->agent);
    assert_ok(tutti_health_check(&options, NULL, &serving, &err));
    assert_true(serving);
    tutti_rpc_server_set_health(rig->agent.server, "", false);
    assert_ok(tutti_health_check(&options, "", &serving, &err));
    assert_false(serving);
    assert_fails(tutti_health_check(&options, "no.such.Service", &serving, &err), TUTTI_NOT_FOUND);
    assert_fails(tutti_health_check(NULL, NULL, &serving, &err), TUTTI_FAILED_PRECONDITION);
}

static void
test_stats__tell_what_the_agent_has_done(void **state)
{
    const client_rig *rig = *state;
    tutti_agent_stats stats;
    tutti_error err;

    assert_ok(tutti_agent_stat(rig->client, &stats, &err));
    assert_int_equal(stats.tensor_count, 3);
    assert_int_equal(stats.op_done_count, 41);
    assert_int_equal(stats.world_sequence, 42);
    assert_string_equal(stats.world_last_op, "all_reduce(sum, FP32[1024])");
    assert_string_equal(stats.newest_group, "tp/0");
    assert_int_equal(stats.newest_sequence, 9);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connect__to_nobody_says_where_and_why),
        cmocka_unit_test(test_connect__without_an_agent_says_what_to_set),
        client_test(test_connect__takes_the_agent_from_the_environment),
        client_test(test_connect__tells_who_the_agent_is),
        client_test(test_connect__asks_again_until_the_agent_has_joined),
        client_test(test_connect__to_an_agent_that_never_joins_says_who_is_missing),
        client_test(test_connect__passes_the_coordinators_word_on),
        client_test(test_connect__to_an_agent_that_does_not_answer_ends_in_time),
        cmocka_unit_test(test_connect__with_wait_does_not_mind_who_comes_later),
        cmocka_unit_test(test_connect__with_wait_gives_up_and_says_why),
        client_test(test_connect__takes_options_of_older_programs_only),
        client_test(test_connect__refuses_a_token_file_that_is_not_one),
        client_test(test_connect__without_an_agent_speaks_to_the_coordinator_alone),
        client_test(test_client__in_a_forked_child_refuses_and_leaves_the_parent_alone),
        client_test(test_health__is_asked_without_a_client),
        client_test(test_stats__tell_what_the_agent_has_done),
    };

    return cmocka_run_group_tests(tests, client_rig_open, client_rig_close);
}
