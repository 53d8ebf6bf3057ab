/*
 * Goal: what is wrong with a job is found and named once, the worst first, with what to do.
 * Method: agents' answers written by hand.
 */
#include "client/cli/connect/fan_out.h"
#include "client/cli/diagnose/doctor.h"
#include "support/testing.h"

#define RANKS 3
#define WARNINGS 5000
#define SECOND 1000000000LL

static tutti_rank_info infos[RANKS];
static doctor_patient patients[RANKS];
static tutti_reach reaches[RANKS];
static cli_fan_out fan_out;
static doctor all;

/* Three ranks that are well. */
static int
begin(void **state)
{
    uint32_t i;

    (void)state;
    fan_out = (cli_fan_out){.infos = infos, .count = RANKS, .job = {.world_size = RANKS}};
    all = (doctor){.fan_out = &fan_out, .patients = patients};
    for (i = 0; i < RANKS; i++) {
        infos[i] = (tutti_rank_info){
            .rank = i, .state = TUTTI_RANK_ALIVE, .host = "a", .address = "10.0.0.1:29601"};
        patients[i] = (doctor_patient){
            .answered = true,
            .self_check = {.rank = i, .host = "a", .files = 20000, .memlock_bytes = 8u << 20},
        };
        (void)snprintf(patients[i].self_check.version, sizeof(patients[i].self_check.version), "%s",
                       tutti_version());
        (void)snprintf(patients[i].self_check.addresses[0],
                       sizeof(patients[i].self_check.addresses[0]), "10.0.0.1:29601");
        patients[i].self_check.address_count = 1;
        (void)snprintf(patients[i].self_check.transports, sizeof(patients[i].self_check.transports),
                       "tcp");
    }
    return 0;
}

static int
end(void **state)
{
    (void)state;
    free(all.findings);
    return 0;
}

/* There is one finding, with these words. */
static void
must_find(bool bad, const char *what, const char *remedy)
{
    doctor_check(&all);
    assert_int_equal(all.finding_count, 1);
    assert_int_equal(all.findings[0].bad, bad);
    assert_int_equal(all.bad_count, bad ? 1 : 0);
    assert_text_has(all.findings[0].what, what);
    assert_text_has(all.findings[0].remedy, remedy);
}

static void
test_doctor__finds_nothing_where_all_is_well(void **state)
{
    (void)state;
    doctor_check(&all);
    assert_int_equal(all.finding_count, 0);
}

static void
test_doctor__finds_a_lost_rank(void **state)
{
    (void)state;
    infos[1].state = TUTTI_RANK_LOST;
    (void)snprintf(infos[1].reason, sizeof(infos[1].reason), "no heartbeat for 10 s");
    patients[1].answered = false;
    must_find(true, "rank 1 on host a is lost: no heartbeat for 10 s", "start its agent again");
}

static void
test_doctor__finds_a_seat_that_nobody_took(void **state)
{
    (void)state;
    infos[2].state = TUTTI_RANK_FREE;
    patients[2].answered = false;
    must_find(true, "rank 2 has not joined", "world size");
}

static void
test_doctor__finds_an_agent_that_does_not_answer_and_says_so_once(void **state)
{
    (void)state;
    patients[2].answered = false;
    (void)snprintf(patients[2].err.text, sizeof(patients[2].err.text), "refused");
    reaches[0] = (tutti_reach){.rank = 2, .why = "no answer in 2 s"};
    patients[0].reaches = reaches;
    patients[0].reach_count = 1;
    must_find(true, "rank 2 on host a advertises 10.0.0.1:29601 and does not answer there: refused",
              "--advertise");
}

static void
test_doctor__advises_what_fits_the_refusal(void **state)
{
    static const char *const cases[][2] = {
        {"its certificate is for localhost, not for 10.0.0.1", "--tls-name"},
        {"its certificate is not signed by the given authority", "--tls-ca"},
        {"it closed the connection, perhaps it wants TLS or a client certificate", "--tls-cert"},
        {"connection refused, nothing listens there", "start its agent again"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        patients[2].answered = false;
        (void)snprintf(patients[2].err.text, sizeof(patients[2].err.text), "%s", cases[i][0]);
        must_find(true, cases[i][0], cases[i][1]);
        free(all.findings);
        all.findings = NULL;
        all.finding_count = all.bad_count = 0;
    }
    all.cluster = "two";
    infos[1].state = TUTTI_RANK_LOST;
    patients[1].answered = false;
    patients[2].answered = true;
    must_find(true, "rank 1 on host a is lost", "tutti cluster restart 1 --name two");
}

static void
test_doctor__finds_a_pair_that_does_not_meet(void **state)
{
    (void)state;
    reaches[0] = (tutti_reach){.rank = 2, .why = "no answer in 2 s"};
    patients[0].reaches = reaches;
    patients[0].reach_count = 1;
    must_find(true, "rank 0 does not reach rank 2 on the data plane: no answer in 2 s",
              "--net-devices");
}

static void
test_doctor__finds_ranks_that_have_called_different_numbers_of_ops(void **state)
{
    tutti_counted_rank behind = {.rank = 1, .sequence = 4};
    tutti_uneven_group group = {.group = "tp",
                                .behind = &behind,
                                .behind_count = 1,
                                .behind_listed = 1,
                                .text = "group tp: rank 1 is behind"};

    (void)state;
    all.stalls = (tutti_stalls){.uneven = &group, .uneven_count = 1};
    must_find(false, "group tp: rank 1 is behind", "go on behind these ops; those that");
    assert_int_equal(all.findings[0].rank, 1);
    all.finding_count = 0;
    (void)strcpy(group.group, "world");
    must_find(false, "group tp: rank 1 is behind", "tutti barrier");
}

static void
test_doctor__finds_hosts_that_do_not_speak_alike(void **state)
{
    (void)state;
    (void)snprintf(patients[1].self_check.transports, sizeof(patients[1].self_check.transports),
                   "ucx");
    must_find(true, "by tcp on rank 0, by ucx on rank 1", "--transports");
}

static void
test_doctor__finds_an_address_that_others_cannot_use(void **state)
{
    (void)state;
    (void)snprintf(infos[1].host, sizeof(infos[1].host), "b");
    (void)snprintf(patients[1].self_check.addresses[0], sizeof(patients[1].self_check.addresses[0]),
                   "127.0.0.1:29601");
    must_find(false, "rank 1 advertises only 127.0.0.1:29601", "--listen 0.0.0.0");
}

static void
test_doctor__finds_clocks_that_differ(void **state)
{
    (void)state;
    patients[1].offset_ns = -3 * SECOND;
    patients[1].error_ns = 1000000;
    must_find(false, "the clock of rank 1 on host a is 3.000 s behind ours", "NTP");
}

static void
test_doctor__leaves_clocks_alone_that_may_be_right(void **state)
{
    (void)state;
    patients[1].offset_ns = SECOND;
    patients[1].error_ns = SECOND; /* a slow way: nobody can tell */
    doctor_check(&all);
    assert_int_equal(all.finding_count, 0);
}

static void
test_doctor__finds_low_limits(void **state)
{
    (void)state;
    patients[0].self_check.files = 256;
    patients[0].self_check.files_open = 250;
    must_find(true, "rank 0 may open 256 files (250 are open)", "LimitNOFILE");
}

static void
test_doctor__wants_locked_memory_where_there_is_rdma(void **state)
{
    (void)state;
    (void)snprintf(patients[0].self_check.rdma_devices[0],
                   sizeof(patients[0].self_check.rdma_devices[0]), "mlx5_0");
    patients[0].self_check.rdma_device_count = 1;
    must_find(false, "rank 0 may lock 8192 KiB of memory and has the RDMA device mlx5_0",
              "memlock");
}

static void
test_doctor__finds_versions_that_differ(void **state)
{
    (void)state;
    (void)snprintf(patients[2].self_check.version, sizeof(patients[2].self_check.version), "9.9.9");
    must_find(false, "rank 2 of version 9.9.9", "same version");
}

static void
test_doctor__tells_the_worst_first(void **state)
{
    (void)state;
    patients[0].offset_ns = 9 * SECOND;
    infos[2].state = TUTTI_RANK_LOST;
    patients[2].answered = false;
    doctor_check(&all);
    assert_int_equal(all.finding_count, 2);
    assert_int_equal(all.findings[0].rank, 2);
    assert_true(all.findings[0].bad && !all.findings[1].bad);
}

/* More warnings than are kept, and then a rank that is bad. */
static void
test_doctor__counts_what_is_bad_behind_too_many_warnings(void **state)
{
    static tutti_rank_info many[WARNINGS + 1];
    static doctor_patient ill[WARNINGS + 1];
    uint32_t i;

    (void)state;
    for (i = 0; i <= WARNINGS; i++) {
        many[i] = infos[0];
        many[i].rank = i;
        ill[i] = patients[0];
        ill[i].self_check.rank = i;
        ill[i].self_check.files = 100000;
        ill[i].self_check.rdma_device_count = 1; /* which 8 MiB of locked memory are too few for */
    }
    many[WARNINGS].state = TUTTI_RANK_LOST;
    fan_out =
        (cli_fan_out){.infos = many, .count = WARNINGS + 1, .job = {.world_size = WARNINGS + 1}};
    all.patients = ill;
    doctor_check(&all);
    assert_int_equal(all.bad_count, 1);
    assert_true(all.findings[0].bad);
    assert_int_equal(all.findings[0].rank, WARNINGS);
    assert_false(all.findings[1].bad);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_doctor__finds_nothing_where_all_is_well),
        TEST(test_doctor__finds_a_lost_rank),
        TEST(test_doctor__finds_a_seat_that_nobody_took),
        TEST(test_doctor__finds_an_agent_that_does_not_answer_and_says_so_once),
        TEST(test_doctor__advises_what_fits_the_refusal),
        TEST(test_doctor__finds_a_pair_that_does_not_meet),
        TEST(test_doctor__finds_ranks_that_have_called_different_numbers_of_ops),
        TEST(test_doctor__finds_hosts_that_do_not_speak_alike),
        TEST(test_doctor__finds_an_address_that_others_cannot_use),
        TEST(test_doctor__finds_clocks_that_differ),
        TEST(test_doctor__leaves_clocks_alone_that_may_be_right),
        TEST(test_doctor__finds_low_limits),
        TEST(test_doctor__wants_locked_memory_where_there_is_rdma),
        TEST(test_doctor__finds_versions_that_differ),
        TEST(test_doctor__tells_the_worst_first),
        TEST(test_doctor__counts_what_is_bad_behind_too_many_warnings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
