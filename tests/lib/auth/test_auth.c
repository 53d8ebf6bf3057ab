/*
 * Goal: calls are let in by role, job and rank; tokens are remembered, and forgotten in time;
 * floods of bad ones do no harm. Method: the door alone, without a server; threads that show good
 * and bad tokens at once.
 */
#include "support/testing.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "auth/auth.h"
#include "auth/roles.h"
#include "base/os/file.h"
#include "token_maker.h"

static char path[64];
static tutti_auth_options options = {
    .keys = path, .issuer = "", .audience = "tutti", .subjects = "", .prefix = "x-", .skew_ns = 0};

static int
begin(void **state)
{
    tutti_auth *auth = NULL;
    tutti_error err;

    (void)snprintf(path, sizeof(path), "/tmp/tutti-auth-%ld", (long)getpid());
    assert_ok(tutti_file_write(path, TOKEN_SECRET, strlen(TOKEN_SECRET), 0600, &err));
    assert_ok(tutti_auth_open(&options, &auth, &err));
    *state = auth;
    return 0;
}

static int
end(void **state)
{
    tutti_auth_close(*state);
    (void)unlink(path);
    return 0;
}

static const char *
make(const char *role, const char *job, const char *ranks, long lasts_s)
{
    return token_of("{\"aud\":\"tutti\",\"exp\":%ld,\"x-role\":\"%s\"%s%s%s%s}",
                    (long)time(NULL) + lasts_s, role, job[0] == '\0' ? "" : ",\"x-job\":\"",
                    job[0] == '\0' ? "" : job, job[0] == '\0' ? "" : "\"", ranks);
}

static tutti_code
admit(tutti_auth *auth, const char *method, const char *token, tutti_auth_grant **ret,
      tutti_error *err)
{
    const tutti_auth_visit visit = {.method = method, .token = token, .certificate = ""};

    return tutti_auth_admit(auth, &visit, ret, err);
}

static void
check_reason(tutti_auth *auth, const char *method, const char *token, const char *reason)
{
    tutti_auth_grant *grant = NULL;
    tutti_error err;

    if (admit(auth, method, token, &grant, &err) == TUTTI_OK) {
        tutti_auth_grant_unref(grant);
        fail_msg("%s was let in", method);
    }
    assert_string_equal(err.reason, reason);
    assert_null(grant);
}

#define GET "/tutti.v1.StoreService/Get"
#define JOIN "/tutti.v1.CoordinatorService/Join"
#define DESCRIBE "/tutti.v1.DiagnosticsService/DescribeAgent"
#define PUT "/tutti.v1.TensorsService/Put"

static void
test_auth__closes_what_has_no_row(void **state)
{
    static const char *const unknown[] = {"", "/", "/tutti.v1.StoreService/", "/a.b/C",
                                          "/tutti.v1.StoreService/GetX"};
    size_t i;

    for (i = 0; i < COUNT_OF(unknown); i++) {
        assert_null(tutti_auth_row_find(unknown[i]));
        check_reason(*state, unknown[i], make("admin", "", "", 60), "WRONG_ROLE");
    }
}

static void
test_auth__binds_requests_to_the_grant(void **state)
{
    tutti_auth_grant *grant = NULL;
    tutti_auth_subject subject = {.has_job = true, .job = "train"};
    tutti_error err;

    assert_ok(admit(*state, GET, make("client", "train", ",\"x-ranks\":\"2\"", 60), &grant, &err));
    assert_ok(tutti_auth_check(grant, GET, &subject, &err));
    subject.job = "other";
    assert_fails(tutti_auth_check(grant, GET, &subject, &err), TUTTI_PERMISSION_DENIED);
    subject.job = ""; /* "default" */
    assert_fails(tutti_auth_check(grant, GET, &subject, &err), TUTTI_PERMISSION_DENIED);
    assert_text_has(err.text, "this is job default");
    subject = (tutti_auth_subject){.has_job = true, .job = "train", .has_rank = true, .rank = 3};
    assert_fails(tutti_auth_check(grant, GET, &subject, &err), TUTTI_PERMISSION_DENIED);
    assert_string_equal(err.reason, "FOREIGN_RANK");
    subject.rank = 2;
    assert_ok(tutti_auth_check(grant, GET, &subject, &err));
    subject = (tutti_auth_subject){.has_job = true, .job = "train"};
    assert_fails(tutti_auth_check(grant, JOIN, &subject, &err), TUTTI_PERMISSION_DENIED);
    assert_text_has(err.text, "say which one you are");
    tutti_auth_grant_unref(grant);
    assert_ok(tutti_auth_check(NULL, JOIN, &subject, &err)); /* no limits */
}

static void
test_auth__of_an_agent_is_for_its_job_and_rank(void **state)
{
    tutti_auth *auth = *state;
    tutti_auth_grant *grant = NULL;
    tutti_error err;

    tutti_auth_set_job(auth, "train");
    check_reason(auth, PUT, make("client", "train", ",\"x-ranks\":5", 60), "NOT_JOINED");
    check_reason(auth, DESCRIBE, make("client", "other", ",\"x-ranks\":5", 60), "FOREIGN_JOB");
    assert_ok(admit(auth, DESCRIBE, make("client", "train", ",\"x-ranks\":5", 60), &grant, &err));
    tutti_auth_grant_unref(grant);
    assert_ok(admit(auth, PUT, make("client", "train", "", 60), &grant, &err));
    tutti_auth_grant_unref(grant);
    tutti_auth_set_rank(auth, 5);
    assert_ok(admit(auth, PUT, make("client", "train", ",\"x-ranks\":5", 60), &grant, &err));
    tutti_auth_grant_unref(grant);
    tutti_auth_set_rank(auth, 4);
    check_reason(auth, DESCRIBE, make("client", "train", ",\"x-ranks\":5", 60), "FOREIGN_RANK");
    check_reason(auth, PUT, make("client", "train", ",\"x-ranks\":5", 60), "FOREIGN_RANK");
    check_reason(auth, PUT, make("client", "other", "", 60), "FOREIGN_JOB");
    check_reason(auth, PUT, make("agent", "train", "", 60), "WRONG_ROLE");
}

static void
test_auth__believes_certificates_where_no_token_is_shown(void **state)
{
    tutti_auth_visit visit = {.method = JOIN, .token = "", .certificate = "tutti:agent@train#3"};
    tutti_auth_grant *grant = NULL;
    tutti_error err;

    assert_ok(tutti_auth_admit(*state, &visit, &grant, &err));
    assert_string_equal(grant->identity, "tutti:agent@train#3");
    assert_string_equal(grant->job, "train");
    tutti_auth_grant_unref(grant);
    visit.certificate = "tutti:king";
    assert_fails(tutti_auth_admit(*state, &visit, &grant, &err), TUTTI_PERMISSION_DENIED);
    visit.certificate = "spiffe://tutti/agent";
    assert_fails(tutti_auth_admit(*state, &visit, &grant, &err), TUTTI_UNAUTHENTICATED);
    visit.token = "nonsense"; /* a token that is shown counts, whatever the certificate says */
    visit.certificate = "tutti:admin";
    assert_fails(tutti_auth_admit(*state, &visit, &grant, &err), TUTTI_UNAUTHENTICATED);
}

static void
test_auth__forgets_a_token_when_it_expires(void **state)
{
    char token[1024];
    tutti_auth_grant *grant = NULL;
    tutti_error err;
    const time_t until = time(NULL) + 20;

    (void)snprintf(token, sizeof(token), "%s", make("client", "", "", 2));
    assert_ok(admit(*state, GET, token, &grant, &err));
    tutti_auth_grant_unref(grant);
    grant = NULL;
    while (admit(*state, GET, token, &grant, &err) == TUTTI_OK) {
        tutti_auth_grant_unref(grant);
        grant = NULL;
        assert_true(time(NULL) < until);
        (void)usleep(10000);
    }
    assert_string_equal(err.reason, "TOKEN_EXPIRED");
}

#define SHOWINGS 3000

typedef struct shower {
    tutti_auth *auth;
    char tokens[4][512];
    unsigned number;
    size_t good;
    size_t bad;
} shower;

static void *
show(void *arg)
{
    shower *self = arg;
    tutti_auth_grant *grant = NULL;
    unsigned i;

    for (i = 0; i < SHOWINGS; i++) {
        if (admit(self->auth, GET, self->tokens[(i + self->number) % 4], &grant, NULL) ==
            TUTTI_OK) {
            self->good++;
            tutti_auth_grant_unref(grant);
        } else {
            self->bad++;
        }
    }
    return NULL;
}

static void
test_auth__on_many_threads_tells_good_from_bad(void **state)
{
    static shower showers[4];
    pthread_t threads[4];
    size_t i;
    size_t j;

    for (i = 0; i < 4; i++) {
        showers[i] = (shower){.auth = *state, .number = (unsigned)i};
        for (j = 0; j < 4; j++) {
            (void)snprintf(showers[i].tokens[j], 512, "%s",
                           make("client", j == 0 ? "a" : "b", "", j == 3 ? -60 : 600));
        }
        showers[i].tokens[2][100] ^= 1; /* forged */
        assert_int_equal(pthread_create(&threads[i], NULL, show, &showers[i]), 0);
    }
    for (i = 0; i < 4; i++) {
        (void)pthread_join(threads[i], NULL);
        assert_int_equal(showers[i].good, SHOWINGS / 2);
        assert_int_equal(showers[i].bad, SHOWINGS / 2);
    }
}

#define AUTH_TEST(test) cmocka_unit_test_setup_teardown(test, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        AUTH_TEST(test_auth__closes_what_has_no_row),
        AUTH_TEST(test_auth__binds_requests_to_the_grant),
        AUTH_TEST(test_auth__of_an_agent_is_for_its_job_and_rank),
        AUTH_TEST(test_auth__believes_certificates_where_no_token_is_shown),
        AUTH_TEST(test_auth__forgets_a_token_when_it_expires),
        AUTH_TEST(test_auth__on_many_threads_tells_good_from_bad),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
