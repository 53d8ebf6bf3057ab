/*
 * Goal: what is wrong about groups and meshes before anybody is asked is said here, and what a
 * coordinator answers is told as it is.
 * Method: a fake agent that also answers as a coordinator; tests/system/test_cli_groups.py has a
 * real one.
 */
#include "support/testing.h"

#include "client_rig.h"
#include "tutti/mesh.h"

static tutti_client *
open_without_agent(client_rig *rig)
{
    tutti_client_options options;
    tutti_client *client = NULL;
    tutti_error err;

    tutti_client_options_init(&options);
    options.agent = "";
    options.coordinator = fake_agent_address(&rig->agent);
    options.job = "training";
    assert_ok(tutti_connect_with(&options, &client, &err));
    return client;
}

static void
assert_reason(tutti_code code, tutti_code wanted, const tutti_error *err, const char *reason)
{
    assert_fails(code, wanted);
    assert_string_equal(err->reason, reason);
}

static void
test_group__without_name_wants_create_with(void **state)
{
    client_rig *rig = *state;
    const uint32_t ranks[] = {0};
    tutti_error err;

    assert_reason(tutti_group_create(rig->client, NULL, ranks, 1, NULL, &err),
                  TUTTI_INVALID_ARGUMENT, &err, "BAD_NAME");
    assert_reason(tutti_group_create(rig->client, "", ranks, 1, NULL, &err), TUTTI_INVALID_ARGUMENT,
                  &err, "BAD_NAME");
}

static void
test_group_options__that_were_not_initialised_are_refused(void **state)
{
    client_rig *rig = *state;
    const tutti_group_options options = {0};
    const tutti_split split = {0};
    const uint32_t ranks[] = {0};
    tutti_error err;

    assert_fails(tutti_group_create_with(rig->client, &options, ranks, 1, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "call its init function first");
    assert_fails(tutti_group_split(rig->client, NULL, &split, NULL, NULL, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, "tutti_split");
}

/* The token is the same, so that a call that has counted does not count twice. */
static void
test_group_create__is_called_again_when_the_answer_was_lost(void **state)
{
    client_rig *rig = *state;
    const uint32_t ranks[] = {0, 1};
    tutti_group_options options;
    tutti_group_info info;
    tutti_error err;

    tutti_group_options_init(&options);
    assert_ok(tutti_group_create_with(rig->client, &options, ranks, 2, &info, &err));
    assert_string_equal(info.name, "unnamed/12");
    tutti_group_info_free(&info);
    assert_int_equal(rig->agent.group_calls, 2);
    assert_int_not_equal(rig->agent.group_tokens[0], 0);
    assert_int_equal(rig->agent.group_tokens[0], rig->agent.group_tokens[1]);
}

static void
test_group_split__is_called_again_when_the_answer_was_lost(void **state)
{
    client_rig *rig = *state;
    tutti_group_info info;
    tutti_split split;
    tutti_error err;

    tutti_split_init(&split);
    split.kind = TUTTI_SPLIT_SIZE;
    split.number = 2;
    assert_ok(tutti_group_split(rig->client, NULL, &split, &info, NULL, &err));
    tutti_group_info_free(&info);
    assert_int_equal(rig->agent.group_calls, 2);
    assert_int_equal(rig->agent.group_tokens[0], rig->agent.group_tokens[1]);
}

static void
test_groups__of_too_many_ranks_are_not_sent(void **state)
{
    client_rig *rig = *state;
    const uint32_t ranks[] = {0};
    const int32_t numbers[] = {0};
    int32_t found = 0;
    tutti_error err;

    assert_reason(tutti_group_create(rig->client, "g", ranks, TUTTI_RANKS_MAX + 1, NULL, &err),
                  TUTTI_INVALID_ARGUMENT, &err, "RANK_RANGE");
    assert_reason(
        tutti_ranks_translate(rig->client, NULL, NULL, numbers, TUTTI_RANKS_MAX + 1, &found, &err),
        TUTTI_INVALID_ARGUMENT, &err, "LOOKUP_LIMIT");
}

static void
test_who_has_no_agent__is_no_member(void **state)
{
    tutti_client *client = open_without_agent(*state);
    const char *const dims[] = {"dp"};
    const uint32_t shape[] = {1};
    tutti_split split;
    tutti_mesh_info mesh;
    tutti_group_info group;
    tutti_error err;

    tutti_split_init(&split);
    assert_reason(tutti_group_split(client, NULL, &split, NULL, NULL, &err),
                  TUTTI_FAILED_PRECONDITION, &err, "NO_AGENT");
    assert_reason(tutti_mesh_create(client, "m", shape, dims, 1, NULL, 0, NULL, &err),
                  TUTTI_FAILED_PRECONDITION, &err, "NO_AGENT");
    assert_reason(tutti_mesh_slice(client, "m", -1, dims, 1, false, &mesh, &err),
                  TUTTI_FAILED_PRECONDITION, &err, "NO_AGENT");
    assert_reason(tutti_mesh_delete(client, "m", &err), TUTTI_FAILED_PRECONDITION, &err,
                  "NO_AGENT");
    assert_ok(tutti_group_get(client, "tp/0", &group, &err));
    assert_int_equal(group.rank, -1); /* nobody was asked about */
    assert_int_equal(group.rank_count, 2);
    assert_string_equal(group.tag, "");
    tutti_group_info_free(&group);
    tutti_close(client);
}

static void
test_infos__may_be_freed_twice_and_as_nothing(void **state)
{
    tutti_rank_lists lists = {0};
    tutti_mesh_info mesh = {0};

    (void)state;
    tutti_rank_lists_free(&lists);
    tutti_rank_lists_free(NULL);
    tutti_mesh_info_free(&mesh);
    tutti_mesh_info_free(NULL);
    tutti_group_info_free(NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        client_test(test_group__without_name_wants_create_with),
        client_test(test_group_options__that_were_not_initialised_are_refused),
        client_test(test_group_create__is_called_again_when_the_answer_was_lost),
        client_test(test_group_split__is_called_again_when_the_answer_was_lost),
        client_test(test_groups__of_too_many_ranks_are_not_sent),
        client_test(test_who_has_no_agent__is_no_member),
        client_test(test_infos__may_be_freed_twice_and_as_nothing),
    };

    return cmocka_run_group_tests(tests, client_rig_open, client_rig_close);
}
