/*
 * Goal: a group is split into the parts that were meant, each caller gets its own, and ranks are
 * translated between all of them.
 * Method: a formed world of a coordinator with a clock we turn.
 */
#include "server/coordinator/fixture.h"
#include "server/coordinator/group/groups.h"
#include "support/testing.h"

#define WORLD 6

static tutti_coordinator_split got;

static int
begin(void **state)
{
    (void)state;
    fixture_open(&fix, NULL);
    form_world(&fix, WORLD);
    return 0;
}

static int
end(void **state)
{
    (void)state;
    tutti_coordinator_split_fini(&got);
    fixture_close(&fix);
    return 0;
}

static void
must_split(uint32_t caller, tutti_coordinator_split_request request)
{
    tutti_error err;

    request.member = member_of(caller);
    tutti_coordinator_split_fini(&got);
    assert_ok(tutti_coordinator_group_split(fix.self, &request, &got, &err));
}

static void
assert_refused(uint32_t caller, tutti_coordinator_split_request request, tutti_code code,
               const char *reason, const char *text)
{
    tutti_coordinator_split split;
    tutti_error err;

    request.member = member_of(caller);
    assert_fails(tutti_coordinator_group_split(fix.self, &request, &split, &err), code);
    assert_string_equal(err.reason, reason);
    assert_text_has(err.text, text);
}

static void
assert_refused_number(tutti_coordinator_split_kind kind, int32_t number, const char *text)
{
    const tutti_coordinator_split_request request = {.kind = kind, .number = number};

    assert_refused(0, request, TUTTI_INVALID_ARGUMENT, "GROUP_SIZE", text);
}

/* A group of any ranks, by name. */
static void
make_group(const char *name, const int32_t *ranks, size_t count)
{
    const tutti_coordinator_group_request request = {
        .member = member_of((uint32_t)ranks[0]), .name = name, .ranks = ranks, .count = count};
    tutti_coordinator_group group;
    bool created;
    tutti_error err;

    assert_ok(tutti_coordinator_group_create(fix.self, &request, &group, &created, &err));
}

#define BLOCKS(number_)                                                                            \
    (tutti_coordinator_split_request)                                                              \
    {                                                                                              \
        .name = "tp", .kind = TUTTI_COORDINATOR_SPLIT_SIZE, .number = (number_)                    \
    }
#define LISTS(lists_)                                                                              \
    (tutti_coordinator_split_request)                                                              \
    {                                                                                              \
        .name = "l", .kind = TUTTI_COORDINATOR_SPLIT_LISTS, .lists = (lists_),                     \
        .list_count = COUNT_OF(lists_)                                                             \
    }
#define LIST(...)                                                                                  \
    {                                                                                              \
        (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)   \
    }

static void
test_split__into_blocks_gives_each_its_own(void **state)
{
    (void)state;
    must_split(3, BLOCKS(2));
    assert_true(got.inside && got.made && got.created);
    assert_int_equal(got.index, 1);
    assert_int_equal(got.rank, 1);
    assert_int_equal(got.list_count, 3);
    assert_int_equal(got.size, 2);
    assert_string_equal(got.group.name, "tp/1");
    assert_memory_equal(got.group.ranks, ((uint32_t[]){2, 3}), 2 * sizeof(uint32_t));
    must_split(2, BLOCKS(2));
    assert_false(got.created);
    must_split(0, BLOCKS(6));
    assert_int_equal(got.list_count, 1);
}

static void
test_split__into_a_number_of_blocks_is_the_same(void **state)
{
    const tutti_coordinator_split_request request = {.kind = TUTTI_COORDINATOR_SPLIT_COUNT,
                                                     .number = 2};

    (void)state;
    must_split(4, request);
    assert_int_equal(got.size, 3);
    assert_int_equal(got.index, 1);
    assert_int_equal(got.rank, 1);
    assert_memory_equal(got.group.ranks, ((uint32_t[]){3, 4, 5}), 3 * sizeof(uint32_t));
}

static void
test_split__that_does_not_divide_is_refused(void **state)
{
    (void)state;
    assert_refused_number(TUTTI_COORDINATOR_SPLIT_SIZE, 4, "size 4 does not divide group world");
    assert_refused_number(TUTTI_COORDINATOR_SPLIT_SIZE, 0, "size 0");
    assert_refused_number(TUTTI_COORDINATOR_SPLIT_SIZE, -2, "size -2");
    assert_refused_number(TUTTI_COORDINATOR_SPLIT_SIZE, 7, "of 6");
    assert_refused_number(TUTTI_COORDINATOR_SPLIT_COUNT, 4, "number of groups 4");
}

static void
test_split__into_lists_keeps_their_order(void **state)
{
    const tutti_coordinator_list lists[] = {LIST(4, 0), LIST(5, 1, 2)};

    (void)state;
    must_split(1, LISTS(lists));
    assert_int_equal(got.index, 1);
    assert_int_equal(got.rank, 1);
    assert_int_equal(got.size, 0);
    assert_string_equal(got.group.name, "l/1");
    assert_memory_equal(got.ranks, ((uint32_t[]){4, 0, 5, 1, 2}), 5 * sizeof(uint32_t));
    assert_memory_equal(got.ends, ((uint32_t[]){2, 5}), 2 * sizeof(uint32_t));
    must_split(3, LISTS(lists));
    assert_false(got.inside);
    assert_false(got.made);
}

static void
test_split__into_bad_lists_says_who_is_where(void **state)
{
    const tutti_coordinator_list overlap[] = {LIST(0, 1), LIST(1, 2)};
    const tutti_coordinator_list twice[] = {LIST(0, 1), LIST(2, 2)};
    const tutti_coordinator_list beyond[] = {LIST(0, 6)};
    const tutti_coordinator_list below[] = {LIST(0), LIST(-1)};
    const tutti_coordinator_list empty[] = {LIST(0), {NULL, 0}};

    (void)state;
    assert_refused(5, LISTS(overlap), TUTTI_INVALID_ARGUMENT, "OVERLAP",
                   "rank 1 is in list 0 and in list 1");
    assert_refused(5, LISTS(twice), TUTTI_INVALID_ARGUMENT, "DUPLICATE_RANK",
                   "list 1 lists rank 2 twice");
    assert_refused(5, LISTS(beyond), TUTTI_INVALID_ARGUMENT, "RANK_RANGE", "rank 6");
    assert_refused(5, LISTS(below), TUTTI_INVALID_ARGUMENT, "RANK_RANGE", "rank -1");
    assert_refused(5, LISTS(empty), TUTTI_INVALID_ARGUMENT, "EMPTY_GROUP", "list 1 has no ranks");
    assert_refused(5, (tutti_coordinator_split_request){.kind = TUTTI_COORDINATOR_SPLIT_LISTS},
                   TUTTI_INVALID_ARGUMENT, "EMPTY_GROUP", "no lists");
    assert_refused(5, (tutti_coordinator_split_request){.name = "x"}, TUTTI_INVALID_ARGUMENT,
                   "EMPTY_GROUP", "neither");
}

static void
test_split__wants_equal_sizes_where_asked(void **state)
{
    const tutti_coordinator_list uneven[] = {LIST(0), LIST(1, 2, 3)};
    const tutti_coordinator_list even[] = {LIST(0, 1), LIST(2, 3)};
    tutti_coordinator_split_request request = LISTS(uneven);

    (void)state;
    request.equal = true;
    assert_refused(0, request, TUTTI_INVALID_ARGUMENT, "GROUP_SIZE",
                   "list 0 has 1 ranks and list 1 has 3");
    request = LISTS(even);
    request.equal = true;
    request.validate_only = true;
    must_split(0, request);
    assert_int_equal(got.size, 2);
    assert_true(got.inside);
    assert_false(got.made);
}

static void
test_split__of_a_group_counts_in_its_ranks(void **state)
{
    tutti_coordinator_split_request request = BLOCKS(2);

    (void)state;
    make_group("p", (const int32_t[]){5, 3, 1, 0}, 4);
    request.parent = "p";
    must_split(1, request);
    assert_int_equal(got.index, 1);
    assert_memory_equal(got.group.ranks, ((uint32_t[]){1, 0}), 2 * sizeof(uint32_t));
    assert_refused(2, request, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP", "rank 2");
    request.parent = "none";
    assert_refused(1, request, TUTTI_NOT_FOUND, "NO_GROUP", "none");
    request = BLOCKS(2);
    request.name = "a b";
    assert_refused(1, request, TUTTI_INVALID_ARGUMENT, "BAD_NAME", "a b");
}

static void
test_split__without_name_takes_turns_by_list(void **state)
{
    tutti_coordinator_split_request request = BLOCKS(3);
    uint64_t id;

    (void)state;
    request.name = NULL;
    must_split(0, request);
    id = got.group.id;
    must_split(3, request);
    assert_int_not_equal(got.group.id, id);
    must_split(1, request);
    assert_int_equal(got.group.id, id);
    must_split(1, request);
    assert_int_not_equal(got.group.id, id);
    request.tag = "t";
    must_split(1, request);
    id = got.group.id;
    must_split(2, request);
    assert_int_equal(got.group.id, id);
}

static void
test_group__of_a_parent_counts_in_its_ranks(void **state)
{
    const int32_t ranks[] = {2, 0};
    tutti_coordinator_group_request request = {
        .member = member_of(1), .name = "g", .parent = "p", .ranks = ranks, .count = 2};
    tutti_coordinator_group group;
    bool created;
    tutti_error err;

    (void)state;
    make_group("p", (const int32_t[]){5, 3, 1}, 3);
    assert_ok(tutti_coordinator_group_create(fix.self, &request, &group, &created, &err));
    assert_memory_equal(group.ranks, ((uint32_t[]){1, 5}), 2 * sizeof(uint32_t));
    assert_int_equal(group.rank, 0);
    request.ranks = (const int32_t[]){3};
    request.count = 1;
    assert_fails(tutti_coordinator_group_create(fix.self, &request, &group, &created, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "rank 3 in group p of 3");
}

static void
test_ranks__are_translated_between_groups(void **state)
{
    const int32_t asked[] = {0, 1, 2, -1};
    tutti_coordinator_translation request = {
        .from = "p", .to = "q", .asker = -1, .ranks = asked, .count = 4};
    int32_t ranks[4];
    tutti_error err;

    (void)state;
    make_group("p", (const int32_t[]){5, 3, 1}, 3);
    make_group("q", (const int32_t[]){1, 2, 5}, 3);
    assert_ok(tutti_coordinator_translate(fix.self, &request, ranks, &err));
    assert_memory_equal(ranks, ((int32_t[]){2, -1, 0, -1}), sizeof(ranks));
    request.members_only = true;
    assert_fails(tutti_coordinator_translate(fix.self, &request, ranks, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "RANK_NOT_IN_GROUP");
    assert_text_has(err.text, "rank 1 of group p is not in group q");
    request.members_only = false;
    request.to = NULL;
    assert_ok(tutti_coordinator_translate(fix.self, &request, ranks, &err));
    assert_memory_equal(ranks, ((int32_t[]){5, 3, 1, -1}), sizeof(ranks));
    request.from = NULL;
    request.to = "p";
    assert_ok(tutti_coordinator_translate(fix.self, &request, ranks, &err));
    assert_memory_equal(ranks, ((int32_t[]){-1, 2, -1, -1}), sizeof(ranks));
    request.from = "p";
    request.ranks = (const int32_t[]){3};
    request.count = 1;
    assert_fails(tutti_coordinator_translate(fix.self, &request, ranks, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "RANK_RANGE");
    request.from = "none";
    assert_fails(tutti_coordinator_translate(fix.self, &request, ranks, &err), TUTTI_NOT_FOUND);
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_split__into_blocks_gives_each_its_own),
        SENTENCE(test_split__into_a_number_of_blocks_is_the_same),
        SENTENCE(test_split__that_does_not_divide_is_refused),
        SENTENCE(test_split__into_lists_keeps_their_order),
        SENTENCE(test_split__into_bad_lists_says_who_is_where),
        SENTENCE(test_split__wants_equal_sizes_where_asked),
        SENTENCE(test_split__of_a_group_counts_in_its_ranks),
        SENTENCE(test_split__without_name_takes_turns_by_list),
        SENTENCE(test_group__of_a_parent_counts_in_its_ranks),
        SENTENCE(test_ranks__are_translated_between_groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
