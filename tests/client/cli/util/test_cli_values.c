/*
 * Goal: sizes, times and ranks are taken as meant or refused, and shown as people write them; a
 * slip of the fingers finds its command. Method: tables of words.
 */
#include "client/cli/main/commands.h"
#include "client/cli/parse/suggest.h"
#include "client/cli/util/values.h"
#include "support/testing.h"

static void
test_parse_ms__takes_units_and_seconds_without_one(void **state)
{
    static const struct {
        const char *text;
        uint32_t ms;
    } good[] = {{"250ms", 250},  {"10s", 10000}, {"1.5s", 1500}, {"5m", 300000},
                {"1h", 3600000}, {"10", 10000},  {"0.5", 500}};
    static const char *const bad[] = {"", "0", "0ms", "-1s", "s", "1d", "10 s", "nan", "2000h"};
    uint32_t ms = 7;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_false(cli_parse_ms(bad[i], &ms));
    }
    assert_int_equal(ms, 7); /* outputs are written on success only */
    for (i = 0; i < COUNT_OF(good); i++) {
        assert_true(cli_parse_ms(good[i].text, &ms));
        assert_int_equal(ms, good[i].ms);
    }
}

static void
test_parse_size__takes_bytes_and_binary_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},           {"17", 17},         {"17B", 17},          {"4KiB", 4096},
        {"64M", 64u << 20}, {"1.5g", 3u << 29}, {"2TiB", 2ULL << 40},
    };
    static const char *const bad[] = {"", "x", "-1", "4KB", "1e300", "9999999999TiB", "0x10"};
    uint64_t bytes;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(good); i++) {
        assert_true(cli_parse_size(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_false(cli_parse_size(bad[i], &bytes));
    }
}

static void
test_parse_number__keeps_to_its_range(void **state)
{
    int64_t number = 0;

    (void)state;
    assert_true(cli_parse_number("-3", -3, 3, &number));
    assert_int_equal(number, -3);
    assert_true(cli_parse_number("9223372036854775807", 0, INT64_MAX, &number));
    assert_false(cli_parse_number("9223372036854775808", 0, INT64_MAX, &number));
    assert_false(cli_parse_number("4", -3, 3, &number));
    assert_false(cli_parse_number("1x", -3, 3, &number));
    assert_false(cli_parse_number("", -3, 3, &number));
    assert_false(cli_parse_number("--1", -3, 3, &number));
    assert_false(cli_parse_number(" 1", -3, 3, &number));
}

static void
test_parse_ranks__takes_lists_and_runs_in_order(void **state)
{
    static const char *const bad[] = {"",   "a",  "1,",  ",1",      "3-1",
                                      "1-", "-1", "1 2", "0-70000", "0-65535,0"};
    const uint32_t wanted[] = {0, 1, 2, 3, 7, 5};
    uint32_t *ranks = NULL;
    size_t count = 0;
    size_t i;

    (void)state;
    assert_true(cli_parse_ranks("0-3,7,5", &ranks, &count));
    assert_int_equal(count, COUNT_OF(wanted));
    assert_memory_equal(ranks, wanted, sizeof(wanted));
    free(ranks);
    for (i = 0; i < COUNT_OF(bad); i++) {
        assert_false(cli_parse_ranks(bad[i], &ranks, &count));
    }
}

static void
test_rank_of__reads_handles_and_works_alone(void **state)
{
    uint32_t rank = 0;

    (void)state;
    assert_true(cli_rank_of("tensor:3.8f00000000000000.1", &rank));
    assert_int_equal(rank, 3);
    assert_true(cli_rank_of("work:12.8f.1", &rank));
    assert_int_equal(rank, 12);
    assert_false(cli_rank_of("weights", &rank));
    assert_false(cli_rank_of("tensor:", &rank));
    assert_false(cli_rank_of("tensor:x.1", &rank));
    assert_false(cli_rank_of("tensor:99999999999.1", &rank));
}

static void
test_format_size__shows_whole_units_whole(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},        {1023, "1023 B"},      {1024, "1 KiB"},
                 {1536, "1.5 KiB"}, {64u << 20, "64 MiB"}, {UINT64_MAX, "16 EiB"}};
    char text[CLI_WORD_SIZE];
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        assert_string_equal(cli_format_size(cases[i].bytes, text), cases[i].text);
    }
}

static void
test_format_shape__shows_scalars_and_all_dimensions(void **state)
{
    tutti_spec spec = {.dtype = TUTTI_DTYPE_FP32, .dim_count = 2, .dims = {2, 3}};
    char text[CLI_WORD_SIZE];
    uint32_t i;

    (void)state;
    assert_string_equal(cli_format_shape(&spec, text), "[2, 3]");
    spec.dim_count = 0;
    assert_string_equal(cli_format_shape(&spec, text), "[]");
    spec.dim_count = TUTTI_DIMS_MAX;
    for (i = 0; i < TUTTI_DIMS_MAX; i++) {
        spec.dims[i] = INT64_MAX;
    }
    assert_int_equal(strlen(cli_format_shape(&spec, text)), 16 * 19 + 15 * 2 + 2);
}

static void
test_distance__counts_slips_of_the_fingers(void **state)
{
    char endless[300];

    (void)state;
    assert_int_equal(cli_distance("", ""), 0);
    assert_int_equal(cli_distance("status", "status"), 0);
    assert_int_equal(cli_distance("staus", "status"), 1);   /* left out */
    assert_int_equal(cli_distance("statuss", "status"), 1); /* typed twice */
    assert_int_equal(cli_distance("statsu", "status"), 1);  /* swapped */
    assert_int_equal(cli_distance("stotus", "status"), 1);  /* another key */
    assert_int_equal(cli_distance("", "get"), 3);
    memset(endless, 'a', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    assert_int_equal(cli_distance(endless, "a"), 63); /* bounded */
}

static void
test_suggest__finds_commands_and_first_words_or_nothing(void **state)
{
    static const char *const cases[][2] = {{"staus", "status"},
                                           {"clutser", "cluster"},
                                           {"cluster strat", "cluster start"},
                                           {"all_reduce", "all-reduce"},
                                           {"allreduce", "all-reduce"},
                                           {"brodcast", "broadcast"},
                                           {"store gte", "store get"}};
    char found[CLI_NAME_SIZE];
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        assert_true(cli_suggest(&cli_all_syntax, cases[i][0], found));
        assert_string_equal(found, cases[i][1]);
    }
    assert_false(cli_suggest(&cli_all_syntax, "xyzzy", found));
    assert_false(cli_suggest(&cli_all_syntax, "", found));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_ms__takes_units_and_seconds_without_one),
        cmocka_unit_test(test_parse_size__takes_bytes_and_binary_units),
        cmocka_unit_test(test_parse_number__keeps_to_its_range),
        cmocka_unit_test(test_parse_ranks__takes_lists_and_runs_in_order),
        cmocka_unit_test(test_rank_of__reads_handles_and_works_alone),
        cmocka_unit_test(test_format_size__shows_whole_units_whole),
        cmocka_unit_test(test_format_shape__shows_scalars_and_all_dimensions),
        cmocka_unit_test(test_distance__counts_slips_of_the_fingers),
        cmocka_unit_test(test_suggest__finds_commands_and_first_words_or_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
