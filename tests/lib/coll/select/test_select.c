/*
 * Goal: rules say which algorithm is taken, and nothing but what is the same on all ranks decides;
 * tables are read as they are written, and wrong ones refused with the line.
 * Method: questions and texts in tables.
 */
#include "support/testing.h"

#include "coll/select/select.h"

static tutti_selection_query
ask(tutti_coll_kind kind, tutti_selection_class class_, uint64_t bytes, uint32_t ranks,
    uint32_t hosts)
{
    return (tutti_selection_query){.kind = kind,
                                   .class_ = class_,
                                   .bytes = bytes,
                                   .ranks = ranks,
                                   .hosts = hosts,
                                   .same_host = hosts == 1,
                                   .regular = true};
}

static void
test_choice_take__without_a_table_keeps_the_order_of_float_sums(void **state)
{
    static const tutti_coll_kind kinds[] = {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_REDUCE,
                                            TUTTI_COLL_REDUCE_SCATTER};
    tutti_selection selection;
    uint32_t ranks;
    uint32_t hosts;
    uint64_t bytes;
    size_t k;

    (void)state;
    tutti_selection_init(&selection);
    for (k = 0; k < COUNT_OF(kinds); k++) {
        for (ranks = 1; ranks <= 4096; ranks = ranks * 2 + 1) {
            for (hosts = 1; hosts <= ranks; hosts *= 2) {
                for (bytes = 1; bytes < UINT64_C(1) << 40; bytes *= 8) {
                    tutti_selection_query query =
                        ask(kinds[k], TUTTI_CLASS_FLOAT, bytes, ranks, hosts);
                    tutti_algorithm taken = tutti_selection_pick(&selection, &query, NULL, NULL);

                    assert_true(tutti_algorithm_keeps_order(taken, kinds[k]));
                    assert_true(tutti_algorithm_fits(taken, &query, NULL) ||
                                taken == tutti_selection_base(&query));
                    query.class_ = TUTTI_CLASS_HALF;
                    taken = tutti_selection_pick(&selection, &query, NULL, NULL);
                    assert_int_not_equal(taken, TUTTI_ALGORITHM_CHAIN);
                    assert_true(tutti_algorithm_keeps_order(taken, kinds[k]));
                }
            }
        }
    }
}

static void
test_choice_base__always_fits(void **state)
{
    uint32_t ranks;
    uint64_t bytes;
    int kind;

    (void)state;
    for (kind = 1; kind < TUTTI_COLL_KIND_COUNT; kind++) {
        for (ranks = 1; ranks <= 65536; ranks *= 4) {
            for (bytes = 1; bytes < UINT64_C(1) << 60; bytes *= 32) {
                tutti_selection_query query =
                    ask((tutti_coll_kind)kind, TUTTI_CLASS_HALF, bytes, ranks, ranks);

                query.scaled = true;
                if (kind != TUTTI_COLL_SEND && kind != TUTTI_COLL_RECV) {
                    assert_true(tutti_algorithm_fits(tutti_selection_base(&query), &query, NULL));
                }
            }
        }
    }
}

static void
test_choice_take__passes_over_what_is_forced_and_cannot(void **state)
{
    tutti_selection_query query = ask(TUTTI_COLL_ALL_REDUCE, TUTTI_CLASS_HALF, 100, 4, 4);
    tutti_selection selection;
    tutti_selection_why why;
    const char *words = "";
    tutti_error err;
    size_t rule;

    (void)state;
    tutti_selection_init(&selection);
    assert_ok(tutti_selection_force(&selection, "all_reduce=ring,broadcast=chain", &err));
    assert_int_equal(tutti_selection_pick(&selection, &query, &why, &rule), TUTTI_ALGORITHM_FLAT);
    assert_int_equal(why, TUTTI_SELECTION_RULE);
    assert_false(tutti_algorithm_fits(TUTTI_ALGORITHM_RING, &query, &words));
    assert_text_has(words, "round FP16 and BF16 more than once");
    query.class_ = TUTTI_CLASS_FLOAT;
    assert_int_equal(tutti_selection_pick(&selection, &query, &why, &rule), TUTTI_ALGORITHM_RING);
    assert_int_equal(why, TUTTI_SELECTION_FORCED);
}

/* With splits and lists each rank has bytes of its own, and all must take the same. */
static void
test_choice_take__asks_no_rule_where_bytes_differ_between_ranks(void **state)
{
    const tutti_selection_rule small = {
        TUTTI_COLL_ALL_TO_ALL, TUTTI_CLASS_COUNT, {0, 65536},
        {0, UINT64_MAX},       {0, UINT64_MAX},   TUTTI_ALGORITHM_DIRECT};
    uint64_t bytes;
    tutti_selection selection;
    tutti_selection_why why;
    size_t rule;

    (void)state;
    tutti_selection_init(&selection);
    selection.rules = &small;
    selection.rule_count = 1;
    for (bytes = 1; bytes < UINT64_C(1) << 40; bytes *= 8) {
        tutti_selection_query query = ask(TUTTI_COLL_ALL_TO_ALL, TUTTI_CLASS_EXACT, bytes, 4, 1);

        assert_int_equal(tutti_selection_pick(&selection, &query, NULL, NULL) ==
                             TUTTI_ALGORITHM_SHARED,
                         bytes > 65536);
        query.regular = false;
        assert_int_equal(tutti_selection_pick(&selection, &query, &why, &rule),
                         TUTTI_ALGORITHM_SHARED);
        assert_int_equal(why, TUTTI_SELECTION_BASE);
    }
}

static void
test_choice_hash__differs_with_every_part(void **state)
{
    tutti_selection plain;
    tutti_selection other;
    tutti_selection_rule rule;

    (void)state;
    tutti_selection_init(&plain);
    other = plain;
    other.forced[TUTTI_COLL_BARRIER] = TUTTI_ALGORITHM_DISSEMINATION;
    tutti_selection_seal(&other);
    assert_true(other.hash != plain.hash);
    other = plain;
    other.rule_count--;
    tutti_selection_seal(&other);
    assert_true(other.hash != plain.hash);
    rule = plain.rules[0];
    rule.bytes.to--;
    plain.rule_count = 1;
    tutti_selection_seal(&plain);
    other = plain;
    other.rules = &rule;
    tutti_selection_seal(&other);
    assert_true(other.hash != plain.hash);
}

static void
test_choice_parse__reads_what_is_written(void **state)
{
    static const char *const lines[] = {
        "all_reduce float 4M.. 2..64 3.. chain", "broadcast any * * * binomial",
        "all_to_all exact ..8K 9 1 bruck",       "reduce_scatter half 1..1000 ..7 2..3 pairwise",
        "gather any 0 1.. * binomial",
    };
    static tutti_selection_rule rules[TUTTI_SELECTION_RULES_MAX];
    char text[1024] = "tutti-table 1\n";
    size_t count;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(lines); i++) {
        (void)strcat(strcat(text, lines[i]), "   # said\n\n");
    }
    assert_ok(tutti_selection_parse(text, strlen(text), rules, &count, &err));
    assert_int_equal(count, COUNT_OF(lines));
    for (i = 0; i < count; i++) {
        char line[256];
        tutti_text written = tutti_text_in(line, sizeof(line));

        tutti_selection_write_rule(&rules[i], &written);
        assert_string_equal(line, lines[i]);
    }
}

static void
test_choice_parse__refuses_wrong_tables_with_the_line(void **state)
{
    static const struct {
        const char *text;
        const char *words;
    } cases[] = {
        {"", "first line of the table is not \"tutti-table 1\""},
        {"tutti-table 2\n", "first line"},
        {"tutti-table 1\nall_reduce any * * ring\n", "line 2 of the table has fewer words"},
        {"tutti-table 1\n\nall_reduce any * * * ring more\n", "line 3 of the table has more words"},
        {"tutti-table 1\nall_reduce some * * * ring", "some is no class"},
        {"tutti-table 1\nall_reduce any 8..1 * * ring", "8..1 is no bytes"},
        {"tutti-table 1\nall_reduce any * .. * ring", ".. is no ranks"},
        {"tutti-table 1\nall_reduce any * * -1 ring", "-1 is no ranks per host"},
        {"tutti-table 1\nall_reduce any * * 99999999999999999999 ring", "is no ranks per host"},
        {"tutti-table 1\nbarrier any * * * ring", "ring is no algorithm of barrier"},
        {"tutti-table 1\nsend any * * * ring", "send is no op"},
    };
    static tutti_selection_rule rules[TUTTI_SELECTION_RULES_MAX];
    tutti_error err;
    size_t count;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(
            tutti_selection_parse(cases[i].text, strlen(cases[i].text), rules, &count, &err),
            TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "BAD_TABLE");
        assert_text_has(err.text, cases[i].words);
    }
}

static void
test_selection_force__refuses_what_no_op_or_algorithm_is_called(void **state)
{
    static const struct {
        const char *text;
        const char *words;
    } cases[] = {
        {"ring", "ring says no algorithm: write it as all_reduce=ring"},
        {"all_reduce=ring,reduce_all=ring", "reduce_all is no op with algorithms: there are"},
        {"all_reduce=fastest", "fastest is no algorithm of all_reduce: there are"},
        {"barrier=ring", "ring is no algorithm of barrier"},
    };
    tutti_selection selection;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        tutti_selection_init(&selection);
        assert_fails(tutti_selection_force(&selection, cases[i].text, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "BAD_ALGORITHM");
        assert_text_has(err.text, cases[i].words);
    }
}

static void
test_choice_parse__has_a_limit(void **state)
{
    static tutti_selection_rule rules[TUTTI_SELECTION_RULES_MAX];
    static char text[65536] = "tutti-table 1\n";
    tutti_error err;
    size_t count;
    size_t used = strlen(text);
    int i;

    (void)state;
    for (i = 0; i <= TUTTI_SELECTION_RULES_MAX; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "reduce any * * * chain\n");
    }
    assert_int_equal(tutti_selection_parse(text, used, rules, &count, &err),
                     TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "more than 1024 rules");
}

static void
test_choices_put__takes_the_same_again_and_has_a_limit(void **state)
{
    tutti_selector *selector = NULL;
    const tutti_selection *first;
    tutti_selection selection;
    tutti_error err;
    tutti_code code = TUTTI_OK;
    int i;

    (void)state;
    tutti_selection_init(&selection);
    assert_ok(tutti_selector_new(&selection, false, &selector, &err));
    first = tutti_selector_current(selector);
    for (i = 0; i < 5000; i++) {
        selection.forced[TUTTI_COLL_REDUCE] =
            i % 2 == 0 ? TUTTI_ALGORITHM_CHAIN : TUTTI_ALGORITHM_NONE;
        assert_ok(tutti_selector_put(selector, &selection, false, &err));
    }
    assert_ptr_equal(tutti_selector_current(selector), first);
    for (i = 0; i < 5000 && code == TUTTI_OK; i++) {
        code = tutti_selector_put(selector, &selection, true, &err);
    }
    assert_int_equal(code, TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "CHOICE_LIMIT");
    tutti_selector_free(selector);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice_take__without_a_table_keeps_the_order_of_float_sums),
        cmocka_unit_test(test_choice_base__always_fits),
        cmocka_unit_test(test_choice_take__passes_over_what_is_forced_and_cannot),
        cmocka_unit_test(test_choice_take__asks_no_rule_where_bytes_differ_between_ranks),
        cmocka_unit_test(test_choice_hash__differs_with_every_part),
        cmocka_unit_test(test_choice_parse__reads_what_is_written),
        cmocka_unit_test(test_choice_parse__refuses_wrong_tables_with_the_line),
        cmocka_unit_test(test_selection_force__refuses_what_no_op_or_algorithm_is_called),
        cmocka_unit_test(test_choice_parse__has_a_limit),
        cmocka_unit_test(test_choices_put__takes_the_same_again_and_has_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
