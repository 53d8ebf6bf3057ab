/*
 * Goal: a mesh answers the groups, coordinates and parts that DeviceMesh users know, and its groups
 * are groups.
 * Method: a formed world of a coordinator with a clock we turn.
 */
#include "server/coordinator/coordinator.h"
#include "server/coordinator/fixture.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/group/meshes.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/metadata/metadata.h"
#include "support/testing.h"

#define WORLD 8

static tutti_coordinator_mesh got;
static bool created;

static int
begin(void **state)
{
    (void)state;
    fixture_open(&fix, NULL);
    form_world(&fix, WORLD);
    return 0;
}

static tutti_coordinator_mesh_request
mesh_of(const char *name, const int32_t *shape, size_t dim_count, const char *const *dims)
{
    return (tutti_coordinator_mesh_request){.member = member_of(0),
                                            .name = name,
                                            .shape = shape,
                                            .dim_count = dim_count,
                                            .dims = dims,
                                            .name_count = dims == NULL ? 0 : dim_count};
}

static const int32_t flat[] = {2, 4};
static const int32_t cube[] = {2, 2, 2};
static const char *const flat_dims[] = {"dp", "tp"};
static const char *const cube_dims[] = {"dp", "pp", "cp"};

static void
must_make(const tutti_coordinator_mesh_request *request)
{
    tutti_error err;

    assert_ok(tutti_coordinator_mesh_create(fix.self, request, &got, &created, &err));
}

static void
make_flat(void)
{
    const tutti_coordinator_mesh_request request = mesh_of("m", flat, 2, flat_dims);

    must_make(&request);
}

static void
assert_refused(const tutti_coordinator_mesh_request *request, tutti_code code, const char *reason,
               const char *text)
{
    tutti_error err;

    assert_fails(tutti_coordinator_mesh_create(fix.self, request, &got, &created, &err), code);
    assert_string_equal(err.reason, reason);
    assert_text_has(err.text, text);
}

/* ------------------------------------------------------------------------------ the mesh */

static void
test_mesh__made_again_is_the_same(void **state)
{
    tutti_coordinator_mesh_request request = mesh_of("m", flat, 2, flat_dims);
    const int32_t other[] = {4, 2};
    uint64_t id;

    (void)state;
    must_make(&request);
    assert_true(created);
    id = got.id;
    request.member = member_of(5);
    must_make(&request);
    assert_false(created);
    assert_int_equal(got.id, id);
    request.shape = other;
    assert_refused(&request, TUTTI_ALREADY_EXISTS, "NAME_TAKEN", "dp 2, tp 4, ranks 0-7");
}

static void
test_mesh__without_name_is_called_after_its_content(void **state)
{
    tutti_coordinator_mesh_request request = mesh_of(NULL, flat, 2, NULL);
    uint64_t id;

    (void)state;
    must_make(&request);
    id = got.id;
    assert_string_equal(got.dims[1], "1");
    must_make(&request);
    assert_int_equal(got.id, id);
    request.dims = flat_dims;
    request.name_count = 2;
    must_make(&request);
    assert_int_not_equal(got.id, id);
}

static void
test_mesh__of_a_bad_shape_is_refused(void **state)
{
    const int32_t ranks[] = {0, 0, 1};
    const int32_t big[] = {3, 3};
    const int32_t zero[] = {2, 0};
    const int32_t huge[] = {INT32_MAX, INT32_MAX, INT32_MAX};
    tutti_coordinator_mesh_request request = mesh_of("m", flat, 0, NULL);

    (void)state;
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "MESH_SHAPE", "0 dimensions");
    request = mesh_of("m", big, 2, NULL);
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "MESH_SHAPE", "9 places in a world of 8");
    request = mesh_of("m", zero, 2, NULL);
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "MESH_SHAPE", "0 ranks along dimension 1");
    request = mesh_of("m", huge, 3, NULL);
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "MESH_SHAPE", "world of 8");
    request = mesh_of("m", cube, 2, NULL);
    request.ranks = ranks;
    request.rank_count = 3;
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "MESH_SHAPE", "3 ranks in a shape of 4");
}

static void
test_mesh__of_bad_ranks_is_refused(void **state)
{
    const int32_t shape[] = {2};
    tutti_coordinator_mesh_request request = mesh_of("m", shape, 1, NULL);

    (void)state;
    request.rank_count = 2;
    request.ranks = (const int32_t[]){3, 3};
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "DUPLICATE_RANK", "rank 3 twice");
    request.ranks = (const int32_t[]){3, 8};
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "RANK_RANGE", "rank 8");
    request.ranks = (const int32_t[]){-1, 3};
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "RANK_RANGE", "rank -1");
    request.name = "a b";
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "BAD_NAME", "a b");
    request.member.incarnation = 9;
    assert_refused(&request, TUTTI_FAILED_PRECONDITION, "STALE_INCARNATION", "rank 0");
}

static void
test_mesh__of_bad_dimensions_is_refused(void **state)
{
    const char *const twice[] = {"a", "a"};
    const char *const number[] = {"a", "0"};
    const char *const stroke[] = {"a/b", "c"};
    tutti_coordinator_mesh_request request = mesh_of("m", flat, 2, flat_dims);

    (void)state;
    request.name_count = 1;
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "MESH_DIM", "1 names for 2 dimensions");
    request = mesh_of("m", flat, 2, twice);
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "MESH_DIM", "0 and 1 are both called a");
    request = mesh_of("m", flat, 2, number);
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "MESH_DIM", "called \"0\"");
    request = mesh_of("m", flat, 2, stroke);
    assert_refused(&request, TUTTI_INVALID_ARGUMENT, "MESH_DIM", "a/b");
}

static void
test_mesh_coordinate__is_none_outside(void **state)
{
    const int32_t shape[] = {2, 2};
    const tutti_coordinator_mesh_request small = mesh_of("small", shape, 2, NULL);
    tutti_error err;

    (void)state;
    make_flat();
    assert_ok(tutti_coordinator_mesh_get(fix.self, NULL, "m", 6, &got, &err));
    assert_true(got.inside);
    assert_int_equal(got.coordinate[0], 1);
    assert_int_equal(got.coordinate[1], 2);
    must_make(&small);
    assert_ok(tutti_coordinator_mesh_get(fix.self, NULL, "small", 5, &got, &err));
    assert_false(got.inside);
    assert_ok(tutti_coordinator_mesh_get(fix.self, NULL, "small", -1, &got, &err));
    assert_false(got.inside);
    assert_fails(tutti_coordinator_mesh_get(fix.self, NULL, "none", 5, &got, &err),
                 TUTTI_NOT_FOUND);
    assert_string_equal(err.reason, "NO_MESH");
}

/* ------------------------------------------------------------------------------ groups */

static void
assert_groups(const char *name, const tutti_coordinator_mesh_dim *dim, const uint32_t *wanted,
              uint32_t size)
{
    tutti_coordinator_mesh_groups groups;
    tutti_error err;

    assert_ok(tutti_coordinator_mesh_list(fix.self, NULL, name, dim, &groups, &err));
    assert_int_equal(groups.size, size);
    assert_memory_equal(groups.ranks, wanted, WORLD * sizeof(uint32_t));
    free(groups.ranks);
}

#define DIM(number_)                                                                               \
    &(tutti_coordinator_mesh_dim)                                                                  \
    {                                                                                              \
        .given = true, .number = (number_)                                                         \
    }
#define RANKS(...) ((const uint32_t[]){__VA_ARGS__})

static void
test_mesh_groups__are_rows_after_swapping_with_the_last_dimension(void **state)
{
    const tutti_coordinator_mesh_request request = mesh_of("c", cube, 3, cube_dims);
    const tutti_coordinator_mesh_dim named = {.given = true, .name = "pp"};

    (void)state;
    must_make(&request);
    assert_groups("c", DIM(0), RANKS(0, 4, 2, 6, 1, 5, 3, 7), 2);
    assert_groups("c", DIM(1), RANKS(0, 2, 1, 3, 4, 6, 5, 7), 2);
    assert_groups("c", &named, RANKS(0, 2, 1, 3, 4, 6, 5, 7), 2);
    assert_groups("c", DIM(2), RANKS(0, 1, 2, 3, 4, 5, 6, 7), 2);
    assert_groups("c", DIM(-1), RANKS(0, 1, 2, 3, 4, 5, 6, 7), 2);
    make_flat();
    assert_groups("m", DIM(0), RANKS(0, 4, 1, 5, 2, 6, 3, 7), 2);
    assert_groups("m", DIM(1), RANKS(0, 1, 2, 3, 4, 5, 6, 7), 4);
}

static void
test_mesh_groups__need_a_dimension_that_is_there(void **state)
{
    const int32_t whole[] = {WORLD};
    const int32_t back[] = {7, 6, 5, 4, 3, 2, 1, 0};
    tutti_coordinator_mesh_request request = mesh_of("line", whole, 1, NULL);
    const tutti_coordinator_mesh_dim none = {0};
    const tutti_coordinator_mesh_dim named = {.given = true, .name = "x"};
    tutti_coordinator_mesh_groups groups;
    tutti_error err;

    (void)state;
    make_flat();
    assert_fails(tutti_coordinator_mesh_list(fix.self, NULL, "m", &none, &groups, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "MESH_DIM");
    assert_fails(tutti_coordinator_mesh_list(fix.self, NULL, "m", DIM(2), &groups, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "dimension 2 of mesh m, need -2 to 1");
    assert_fails(tutti_coordinator_mesh_list(fix.self, NULL, "m", &named, &groups, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "no dimension \"x\", need one of dp, tp");
    request.ranks = back;
    request.rank_count = WORLD;
    must_make(&request);
    assert_groups("line", &none, RANKS(7, 6, 5, 4, 3, 2, 1, 0), 8);
}

static tutti_code
find(const char *name, int64_t rank, tutti_coordinator_group *ret_group, tutti_error *err)
{
    return tutti_coordinator_group_get(fix.self, NULL, name, rank, ret_group, err);
}

static void
test_mesh_group__is_that_of_whoever_asks(void **state)
{
    tutti_coordinator_group group;
    uint64_t id;
    tutti_error err;

    (void)state;
    make_flat();
    assert_ok(find("mesh:m/dp", 6, &group, &err));
    assert_string_equal(group.name, "mesh:m/dp");
    assert_int_equal(group.count, 2);
    assert_int_equal(group.rank, 1);
    assert_memory_equal(group.ranks, RANKS(2, 6), 2 * sizeof(uint32_t));
    id = group.id;
    assert_ok(find("mesh:m/dp", 2, &group, &err));
    assert_int_equal(group.id, id);
    assert_ok(find("mesh:m/dp", 3, &group, &err));
    assert_int_not_equal(group.id, id);
    assert_ok(find("mesh:m/tp", 6, &group, &err));
    assert_memory_equal(group.ranks, RANKS(4, 5, 6, 7), 4 * sizeof(uint32_t));
    assert_ok(find("mesh:m/dp+tp", 6, &group, &err));
    assert_int_equal(group.count, 8);
    assert_int_equal(group.rank, 6);
}

static void
assert_not_found(const char *name, int64_t rank, tutti_code code, const char *reason)
{
    tutti_coordinator_group group;
    tutti_error err;

    assert_fails(find(name, rank, &group, &err), code);
    assert_string_equal(err.reason, reason);
}

static void
test_mesh_group__that_is_none_is_refused(void **state)
{
    const int32_t shape[] = {2, 2};
    const tutti_coordinator_mesh_request request = mesh_of("a/small", shape, 2, flat_dims);

    (void)state;
    must_make(&request);
    assert_not_found("mesh:a/small/dp", -1, TUTTI_INVALID_ARGUMENT, "RANK_NEEDED");
    assert_not_found("mesh:a/small/dp", 5, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP");
    assert_not_found("mesh:a/small/x", 0, TUTTI_INVALID_ARGUMENT, "MESH_DIM");
    assert_not_found("mesh:a/small/tp+dp", 0, TUTTI_INVALID_ARGUMENT, "MESH_DIM");
    assert_not_found("mesh:a/small/dp+dp", 0, TUTTI_INVALID_ARGUMENT, "MESH_DIM");
    assert_not_found("mesh:a/small/dp+", 0, TUTTI_INVALID_ARGUMENT, "MESH_DIM");
    assert_not_found("mesh:a/small/", 0, TUTTI_INVALID_ARGUMENT, "MESH_DIM");
    assert_not_found("mesh:small", 0, TUTTI_INVALID_ARGUMENT, "MESH_DIM");
    assert_not_found("mesh:b/dp", 0, TUTTI_NOT_FOUND, "NO_MESH");
    assert_not_found("mesh:", 0, TUTTI_INVALID_ARGUMENT, "BAD_NAME");
    assert_not_found("mesh:/dp", 0, TUTTI_INVALID_ARGUMENT, "BAD_NAME");
}

static void
test_mesh_group__stays_as_long_as_its_mesh(void **state)
{
    const tutti_coordinator_group_end end_one = {.member = member_of(0), .name = "mesh:m/dp"};
    const tutti_coordinator_member member = member_of(0);
    tutti_coordinator_group group;
    static line one;
    bool deleted;
    int64_t rank;
    tutti_error err;

    (void)state;
    line_must_open(&fix, &one, 7);
    make_flat();
    for (rank = 0; rank < WORLD; rank++) {
        assert_ok(find("mesh:m/dp", rank, &group, &err));
        assert_ok(find("mesh:m/tp", rank, &group, &err));
    }
    assert_fails(tutti_coordinator_group_delete(fix.self, &end_one, &deleted, &err),
                 TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "MESH_GROUP");
    assert_ok(tutti_coordinator_mesh_delete(fix.self, &member, "m", false, &deleted, &err));
    assert_true(deleted);
    fixture_settle(&fix);
    assert_int_equal(one.event_count, 2); /* one for each name */
    assert_string_equal(one.group_name, "mesh:m/tp");
    assert_not_found("mesh:m/dp", 0, TUTTI_NOT_FOUND, "NO_MESH");
}

static void
test_mesh_group__has_metadata_calls_of_its_own(void **state)
{
    static const char *const values[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    static const char *const wanted[] = {"a,e,", "b,f,", "c,g,", "d,h,"};
    static meeter meeters[WORLD];
    uint32_t rank;
    tutti_error err;

    (void)state;
    make_flat();
    for (rank = 0; rank < WORLD; rank++) {
        tutti_coordinator_meet_request request = {.kind = TUTTI_COORDINATOR_ALL_GATHER,
                                                  .member = member_of(rank),
                                                  .group = "mesh:m/dp",
                                                  .value = strdup(values[rank]),
                                                  .value_size = 1,
                                                  .deadline_ns = TUTTI_TIMERS_NEVER};

        assert_ok(meeter_start(&fix, &meeters[rank], &request, &err));
    }
    fixture_settle(&fix);
    for (rank = 0; rank < WORLD; rank++) {
        assert_string_equal(meeters[rank].values, wanted[rank % 4]);
    }
}

static void
test_mesh_delete__is_for_its_ranks(void **state)
{
    const int32_t shape[] = {2};
    const tutti_coordinator_mesh_request request = mesh_of("m", shape, 1, NULL);
    tutti_coordinator_member member = member_of(5);
    bool deleted;
    tutti_error err;

    (void)state;
    must_make(&request);
    assert_fails(tutti_coordinator_mesh_delete(fix.self, &member, "m", false, &deleted, &err),
                 TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NOT_IN_GROUP");
    member = member_of(1);
    assert_ok(tutti_coordinator_mesh_delete(fix.self, &member, "m", false, &deleted, &err));
    assert_fails(tutti_coordinator_mesh_delete(fix.self, &member, "m", false, &deleted, &err),
                 TUTTI_NOT_FOUND);
    assert_ok(tutti_coordinator_mesh_delete(fix.self, &member, "m", true, &deleted, &err));
    assert_false(deleted);
}

static void
test_mesh__that_is_ephemeral_goes_with_its_maker(void **state)
{
    const int32_t shape[] = {WORLD};
    tutti_coordinator_mesh_request request = mesh_of("stays", shape, 1, NULL);
    tutti_coordinator_member member = member_of(3);
    tutti_error err;

    (void)state;
    must_make(&request);
    request.member = member;
    request.name = "goes";
    request.ephemeral = true;
    must_make(&request);
    request.name = "stays"; /* another's, which is there */
    must_make(&request);
    assert_ok(tutti_coordinator_leave(fix.self, &member, "done", &err));
    assert_ok(tutti_coordinator_mesh_get(fix.self, NULL, "stays", 0, &got, &err));
    assert_fails(tutti_coordinator_mesh_get(fix.self, NULL, "goes", 0, &got, &err),
                 TUTTI_NOT_FOUND);
}

static void
test_meshes__count_against_the_limits_and_give_back(void **state)
{
    const tutti_coordinator_member member = member_of(0);
    const tutti_coordinator_mesh_request request = mesh_of("m", flat, 2, flat_dims);
    tutti_coordinator_options options;
    tutti_coordinator_group group;
    bool deleted;
    int i;
    tutti_error err;

    (void)state;
    fixture_close(&fix);
    fixture_options(&options);
    options.group_limit = 4; /* world is one, the mesh another */
    options.member_limit = 13;
    fixture_open(&fix, &options);
    form_world(&fix, WORLD);
    for (i = 0; i < 2; i++) {
        must_make(&request);
        assert_ok(find("mesh:m/dp", 0, &group, &err));
        assert_not_found("mesh:m/tp", 0, TUTTI_RESOURCE_EXHAUSTED, "GROUP_LIMIT");
        assert_ok(find("mesh:m/dp", 1, &group, &err));
        assert_not_found("mesh:m/dp", 2, TUTTI_RESOURCE_EXHAUSTED, "GROUP_LIMIT");
        assert_ok(tutti_coordinator_mesh_delete(fix.self, &member, "m", false, &deleted, &err));
    }
}

/* ------------------------------------------------------------------------------ slices */

static void
must_slice(const char *mesh, uint32_t rank, const char *const *dims, size_t count,
           tutti_coordinator_slice *ret_slice)
{
    const tutti_coordinator_slice_request request = {
        .name = mesh, .rank = rank, .dims = dims, .dim_count = count};
    tutti_error err;

    assert_ok(tutti_coordinator_mesh_slice(fix.self, &request, ret_slice, &err));
}

static void
test_mesh_slice__is_the_part_a_rank_is_in(void **state)
{
    const tutti_coordinator_mesh_request request = mesh_of("c", cube, 3, cube_dims);
    tutti_coordinator_slice slice;

    (void)state;
    must_make(&request);
    must_slice("c", 3, (const char *const[]){"dp", "cp"}, 2, &slice);
    assert_int_equal(slice.dim_count, 2);
    assert_int_equal(slice.shape[1], 2);
    assert_string_equal(slice.dims[1], "cp");
    assert_memory_equal(slice.ranks, RANKS(2, 3, 6, 7), 4 * sizeof(uint32_t));
    assert_int_equal(slice.coordinate[0], 0);
    assert_int_equal(slice.coordinate[1], 1);
    assert_int_equal(slice.position, 1);
    assert_string_equal(slice.group, "mesh:c/dp+cp");
    assert_string_equal(slice.group_dims, "dp+cp");
    free(slice.ranks);
    must_slice("c", 3, (const char *const[]){"dp", "pp"}, 2, &slice);
    assert_memory_equal(slice.ranks, RANKS(1, 3, 5, 7), 4 * sizeof(uint32_t));
    free(slice.ranks);
}

static void
test_mesh_slice__wants_known_dimensions_in_order(void **state)
{
    static const char *const wrong[][2] = {{"tp", "dp"}, {"dp", "dp"}, {"dp", "x"}};
    tutti_coordinator_slice_request request = {.name = "m", .rank = 3, .dim_count = 0};
    tutti_coordinator_slice slice;
    size_t i;
    tutti_error err;

    (void)state;
    make_flat();
    assert_fails(tutti_coordinator_mesh_slice(fix.self, &request, &slice, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "MESH_DIM");
    request.dim_count = 2;
    for (i = 0; i < COUNT_OF(wrong); i++) {
        request.dims = wrong[i];
        assert_fails(tutti_coordinator_mesh_slice(fix.self, &request, &slice, &err),
                     TUTTI_INVALID_ARGUMENT);
        assert_string_equal(err.reason, "MESH_DIM");
    }
    request.dims = flat_dims;
    request.rank = 8;
    assert_fails(tutti_coordinator_mesh_slice(fix.self, &request, &slice, &err),
                 TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NOT_IN_GROUP");
}

#define SENTENCE(function) cmocka_unit_test_setup_teardown(function, begin, fixture_end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(test_mesh__made_again_is_the_same),
        SENTENCE(test_mesh__without_name_is_called_after_its_content),
        SENTENCE(test_mesh__of_a_bad_shape_is_refused),
        SENTENCE(test_mesh__of_bad_ranks_is_refused),
        SENTENCE(test_mesh__of_bad_dimensions_is_refused),
        SENTENCE(test_mesh_coordinate__is_none_outside),
        SENTENCE(test_mesh_groups__are_rows_after_swapping_with_the_last_dimension),
        SENTENCE(test_mesh_groups__need_a_dimension_that_is_there),
        SENTENCE(test_mesh_group__is_that_of_whoever_asks),
        SENTENCE(test_mesh_group__that_is_none_is_refused),
        SENTENCE(test_mesh_group__stays_as_long_as_its_mesh),
        SENTENCE(test_mesh_group__has_metadata_calls_of_its_own),
        SENTENCE(test_mesh_delete__is_for_its_ranks),
        SENTENCE(test_mesh__that_is_ephemeral_goes_with_its_maker),
        SENTENCE(test_meshes__count_against_the_limits_and_give_back),
        SENTENCE(test_mesh_slice__is_the_part_a_rank_is_in),
        SENTENCE(test_mesh_slice__wants_known_dimensions_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
