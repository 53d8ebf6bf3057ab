/*
 * Goal: ops on memory of the arena copy nothing and write nothing else; other large arrays go through it,
 * and where there is none, as before. Method: two ranks against real agents, run by
 * tests/system/test_arena.py: `tutti run -n 2 -- arena_program [none]`. With "none" the agents lend no
 * memory.
 */
#include "support/testing.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tutti/tutti.h"

#define FIRST_BYTES (4U << 20) /* of the arena's first tensor; the others have 64 MiB */
#define COUNT 300000           /* FP32: more than is sent in the call where there is an arena */
#define RANKS 2

typedef struct rig {
    tutti_client *client;
    int rank;
} rig;

static int
set_up(void **state)
{
    static rig self;
    tutti_error err;

    self = (rig){0};
    assert_ok(tutti_connect(NULL, &self.client, &err));
    self.rank = (int)tutti_whoami(self.client)->rank;
    *state = &self;
    return 0;
}

static int
tear_down(void **state)
{
    rig *self = *state;

    tutti_close(self->client);
    return 0;
}

static uint64_t
copied_of(tutti_client *client)
{
    tutti_arena_stats stats;

    tutti_arena_stat(client, &stats);
    return stats.copied_bytes;
}

static uint64_t
copied(const rig *self)
{
    return copied_of(self->client);
}

static float *
allocate(rig *self, size_t count)
{
    void *memory = NULL;
    tutti_error err;

    assert_ok(tutti_alloc(self->client, count * sizeof(float), &memory, &err));
    assert_int_equal((uintptr_t)memory % 64, 0);
    return memory;
}

static void
fill(float *values, size_t count, float value)
{
    size_t i;

    for (i = 0; i < count; i++) {
        values[i] = value;
    }
}

static void
check(const float *values, size_t count, float value)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (values[i] != value) {
            fail_msg("element %zu is %f, wanted %f", i, (double)values[i], (double)value);
        }
    }
}

static tutti_spec
vector(size_t count)
{
    return (tutti_spec){TUTTI_DTYPE_FP32, 1, {(int64_t)count}};
}

static void
test_arena__is_reduced_in_place_without_a_copy(void **state)
{
    rig *self = *state;
    float *values = allocate(self, COUNT);
    const tutti_spec spec = vector(COUNT - 20);
    const uint64_t before = copied(self);
    tutti_error err;

    fill(values, COUNT, (float)self->rank + 1);
    assert_ok(tutti_all_reduce_data(self->client, NULL, &spec, values + 10, values + 10, &err));
    check(values, 10, (float)self->rank + 1);
    check(values + 10, COUNT - 20, 3);
    check(values + COUNT - 10, 10, (float)self->rank + 1);
    assert_int_equal(copied(self), before);
    tutti_free_memory(self->client, values);
}

static void
test_arena__is_gathered_from_one_block_to_another(void **state)
{
    rig *self = *state;
    float *mine = allocate(self, 8);
    float *all = allocate(self, 8 * RANKS);
    const tutti_spec spec = vector(8);
    const uint64_t before = copied(self);
    tutti_error err;

    fill(mine, 8, (float)self->rank);
    assert_ok(tutti_all_gather_data(self->client, NULL, &spec, mine, all, 8 * RANKS * sizeof(float),
                                    &err));
    check(all, 8, 0);
    check(all + 8, 8, 1);
    assert_int_equal(copied(self), before); /* small ones too */
    tutti_free_memory(self->client, mine);
    tutti_free_memory(self->client, all);
}

static void
test_arena__is_broadcast_and_scattered_and_reduced_to_a_root(void **state)
{
    rig *self = *state;
    float *one = allocate(self, COUNT);
    float *part = allocate(self, COUNT / RANKS);
    const tutti_spec spec = vector(COUNT);
    const uint64_t before = copied(self);
    tutti_error err;

    fill(one, COUNT, (float)self->rank + 5);
    assert_ok(tutti_broadcast_data(self->client, NULL, &spec, one, &err));
    check(one, COUNT, 5);
    assert_ok(tutti_scatter_data(self->client, NULL, &spec, one, part,
                                 COUNT / RANKS * sizeof(float), &err));
    check(part, COUNT / RANKS, 5);
    assert_ok(tutti_reduce_to_root_data(self->client, NULL, &spec, one, one, &err));
    check(one, COUNT, self->rank == 0 ? 10 : 5);
    assert_int_equal(copied(self), before);
    tutti_free_memory(self->client, one);
    tutti_free_memory(self->client, part);
}

/* Ranks may differ in where their memory is. */
static void
test_arena__stages_large_arrays_of_the_caller(void **state)
{
    rig *self = *state;
    float *values = malloc(COUNT * sizeof(float));
    float *all = malloc(COUNT * RANKS * sizeof(float));
    const tutti_spec spec = vector(COUNT);
    uint64_t before = copied(self);
    tutti_error err;

    assert_non_null(values);
    assert_non_null(all);
    fill(values, COUNT, (float)self->rank + 1);
    assert_ok(tutti_all_reduce_data(self->client, NULL, &spec, values, values, &err));
    check(values, COUNT, 3);
    assert_int_equal(copied(self) - before, 2 * COUNT * sizeof(float));
    before = copied(self);
    assert_ok(tutti_all_gather_data(self->client, NULL, &spec, values, all,
                                    COUNT * RANKS * sizeof(float), &err));
    check(all, COUNT * RANKS, 3);
    assert_int_equal(copied(self) - before, (1 + RANKS) * COUNT * sizeof(float));
    free(values);
    free(all);
}

static void
take_one(tutti_queue *queue)
{
    tutti_queue_completion done;
    tutti_error err;

    assert_ok(tutti_queue_next(queue, TUTTI_QUEUE_FOREVER, &done, &err));
    if (done.error.code != TUTTI_OK) {
        fail_msg("%s", done.error.text);
    }
    assert_string_equal(done.op.output.text, "");
    assert_int_equal(done.more.output_count, 0);
}

/* What was there is copied by nobody, other large arrays once there and once back. */
static void
test_arena__serves_queues(void **state)
{
    rig *self = *state;
    float *values = allocate(self, COUNT);
    float *other = malloc(COUNT * sizeof(float));
    tutti_queue_data data = {
        .spec = vector(COUNT), .data = values, .result = values, .result_bytes = COUNT * 4};
    const uint64_t before = copied(self);
    tutti_queue *queue;
    tutti_error err;

    assert_non_null(other);
    assert_ok(tutti_queue_open(self->client, NULL, &queue, &err));
    fill(values, COUNT, (float)self->rank + 1);
    assert_ok(tutti_queue_submit_data(queue, TUTTI_OP_ALL_REDUCE, NULL, &data, NULL, NULL, &err));
    take_one(queue);
    check(values, COUNT, 3);
    assert_int_equal(copied(self), before);
    fill(other, COUNT, (float)self->rank + 1);
    data.data = data.result = other;
    assert_ok(tutti_queue_submit_data(queue, TUTTI_OP_ALL_REDUCE, NULL, &data, NULL, NULL, &err));
    take_one(queue);
    check(other, COUNT, 3);
    assert_int_equal(copied(self) - before, 2 * COUNT * sizeof(float));
    assert_ok(tutti_queue_close(queue, &err));
    tutti_free_memory(self->client, values);
    free(other);
}

/* A list of one array there and one elsewhere, by a queue and by a call that waits. */
static void
test_arena__serves_lists(void **state)
{
    rig *self = *state;
    float *values = allocate(self, COUNT);
    float *other = malloc(COUNT * sizeof(float));
    const tutti_op_data arrays[2] = {
        {.spec = vector(COUNT), .data = values, .result = values, .result_bytes = COUNT * 4},
        {.spec = vector(COUNT), .data = other, .result = other, .result_bytes = COUNT * 4}};
    const uint64_t before = copied(self);
    tutti_queue *queue;
    tutti_error err;

    assert_non_null(other);
    assert_ok(tutti_queue_open(self->client, NULL, &queue, &err));
    fill(values, COUNT, (float)self->rank + 1);
    fill(other, COUNT, (float)self->rank);
    assert_ok(
        tutti_queue_submit_list(queue, TUTTI_OP_ALL_REDUCE, NULL, arrays, 2, NULL, NULL, &err));
    take_one(queue);
    assert_int_equal(copied(self) - before, 2 * COUNT * sizeof(float));
    assert_ok(tutti_list_data(self->client, TUTTI_OP_ALL_REDUCE, NULL, arrays, 2, &err));
    check(values, COUNT, 6);
    check(other, COUNT, 2);
    assert_int_equal(copied(self) - before, 4 * COUNT * sizeof(float));
    assert_ok(tutti_queue_close(queue, &err));
    tutti_free_memory(self->client, values);
    free(other);
}

/* As FSDP2 does it: what a rank gives is its part of what it takes. */
static void
test_arena__gathers_what_lies_in_its_result(void **state)
{
    rig *self = *state;
    float *all = allocate(self, COUNT * RANKS);
    float *mine = all + (size_t)self->rank * COUNT;
    const tutti_spec spec = vector(COUNT);
    tutti_error err;

    fill(all, COUNT * RANKS, -1);
    fill(mine, COUNT, (float)self->rank);
    assert_ok(tutti_all_gather_data(self->client, NULL, &spec, mine, all,
                                    COUNT * RANKS * sizeof(float), &err));
    check(all, COUNT, 0);
    check(all + COUNT, COUNT, 1);
    tutti_free_memory(self->client, all);
}

/* The other way round: what it takes is its part of what it gives. */
static void
test_arena__scatters_into_what_is_given(void **state)
{
    rig *self = *state;
    float *all = allocate(self, COUNT * RANKS);
    float *mine = all + (size_t)self->rank * COUNT;
    const tutti_spec spec = vector(COUNT * RANKS);
    tutti_error err;

    fill(all, COUNT * RANKS, (float)self->rank + 1);
    assert_ok(tutti_reduce_scatter_data(self->client, NULL, &spec, all, mine, COUNT * sizeof(float),
                                        &err));
    check(mine, COUNT, 3);
    check(all + (size_t)(1 - self->rank) * COUNT, COUNT, (float)self->rank + 1);
    tutti_free_memory(self->client, all);
}

/* A part of the arena that is made under a lease ends with it, and its memory is memory like any other. */
static void
test_arena__of_a_lease_ends_with_it(void **state)
{
    const tutti_spec spec = vector(COUNT);
    tutti_lease *lease;
    tutti_client *own;
    tutti_error err;
    uint64_t before;
    void *memory;

    assert_ok(tutti_connect(NULL, &own, &err));
    assert_ok(tutti_lease_open(own, &lease, &err));
    assert_ok(tutti_alloc(own, COUNT * sizeof(float), &memory, &err));
    fill(memory, COUNT, 1);
    before = copied_of(own);
    assert_ok(tutti_all_reduce_data(own, NULL, &spec, memory, memory, &err));
    assert_int_equal(copied_of(own), before);
    tutti_lease_close(lease);
    assert_ok(tutti_all_reduce_data(own, NULL, &spec, memory, memory, &err));
    check(memory, COUNT, 4);
    assert_int_equal(copied_of(own) - before, 2 * COUNT * sizeof(float));
    tutti_free_memory(own, memory);
    (void)state;
    tutti_close(own);
}

/* What an op that has failed leaves in the arena does not outlive the lease: nobody could say when it is over. */
static void
test_arena__of_a_lease_goes_with_what_is_in_doubt(void **state)
{
    rig *self = *state;
    const tutti_spec spec = vector(COUNT + (size_t)self->rank);
    float *values = calloc(COUNT + RANKS, sizeof(float));
    tutti_arena_stats stats;
    tutti_lease *lease;
    tutti_client *own;
    tutti_error err;
    void *memory;

    assert_non_null(values);
    assert_ok(tutti_connect(NULL, &own, &err));
    assert_ok(tutti_lease_open(own, &lease, &err));
    assert_fails(tutti_all_reduce_data(own, NULL, &spec, values, values, &err),
                 TUTTI_INVALID_ARGUMENT);
    tutti_arena_stat(own, &stats);
    assert_true(stats.used_bytes > 0);
    tutti_lease_close(lease);
    assert_ok(tutti_alloc(own, 64, &memory, &err));
    tutti_arena_stat(own, &stats);
    assert_int_equal(stats.used_bytes, 64);
    assert_int_equal(stats.mapped_bytes, FIRST_BYTES);
    tutti_free_memory(own, memory);
    tutti_close(own);
    free(values);
}

static void
test_arena__overlap_is_refused_by_name(void **state)
{
    rig *self = *state;
    float *values = allocate(self, 64);
    const tutti_spec spec = vector(32);
    tutti_error err;

    fill(values, 64, 1);
    assert_fails(tutti_all_reduce_data(self->client, NULL, &spec, values, values + 8, &err),
                 TUTTI_INVALID_ARGUMENT);
    assert_string_equal(err.reason, "RANGE_OVERLAP");
    check(values, 64, 1);
    tutti_free_memory(self->client, values);
}

/* Blocks of any size, given back in any order, never share a byte. */
static void
test_arena__drawn_blocks_keep_what_is_written(void **state)
{
    enum {
        BLOCKS = 64,
        STEPS = 4000
    };
    static unsigned char *blocks[BLOCKS];
    static size_t sizes[BLOCKS];
    rig *self = *state;
    tutti_arena_stats stats;
    uint32_t seed = 12345;
    tutti_error err;
    size_t i;
    int step;

    for (step = 0; step < STEPS; step++) {
        const size_t at = (seed = seed * 1664525 + 1013904223) >> 26;
        void *memory = NULL;

        if (blocks[at] == NULL) {
            sizes[at] = (seed >> 8) % 5000;
            assert_ok(tutti_alloc(self->client, sizes[at], &memory, &err));
            blocks[at] = memory;
            memset(memory, (int)at, sizes[at]);
            continue;
        }
        for (i = 0; i < sizes[at]; i++) {
            assert_int_equal(blocks[at][i], at);
        }
        tutti_free_memory(self->client, blocks[at]);
        blocks[at] = NULL;
    }
    for (i = 0; i < BLOCKS; i++) {
        tutti_free_memory(self->client, blocks[i]);
        blocks[i] = NULL;
    }
    tutti_arena_stat(self->client, &stats);
    assert_int_equal(stats.used_bytes, 0);
    assert_true(stats.mapped_bytes > 0);
}

static void
find_arena_tensor(rig *self, char name[TUTTI_NAME_MAX + 1])
{
    tutti_tensor_info *found;
    tutti_error err;
    size_t count;
    size_t i;

    assert_ok(tutti_tensor_list(self->client, &found, &count, &err));
    name[0] = '\0';
    for (i = 0; i < count; i++) {
        if (strncmp(found[i].name, "tutti.arena/", 12) == 0) {
            (void)snprintf(name, TUTTI_NAME_MAX + 1, "%s", found[i].name);
        }
    }
    tutti_free(found);
    assert_true(name[0] != '\0');
}

static uint64_t
used(const rig *self)
{
    tutti_arena_stats stats;

    tutti_arena_stat(self->client, &stats);
    return stats.used_bytes;
}

/*
 * The block of an op that failed is handed out again only when nothing writes the arena's tensor any more: here a
 * receive that waits.
 */
static void
test_arena__keeps_the_block_of_a_failed_op_while_its_tensor_is_written(void **state)
{
    const uint64_t most = 63U << 20;
    const tutti_spec one = vector(1);
    rig *self = *state;
    const tutti_spec spec = vector(COUNT + (size_t)self->rank);
    float *values = calloc(COUNT + RANKS, sizeof(float));
    float *beside = allocate(self, FIRST_BYTES / sizeof(float)); /* all of the small tensor */
    float *first;
    float *second;
    char name[TUTTI_NAME_MAX + 1];
    char text[TUTTI_RANGE_MAX + 1];
    tutti_op op;
    tutti_op_result result;
    tutti_work_status status;
    const char *work;
    tutti_error err;
    uint64_t kept;

    assert_non_null(values);
    assert_fails(tutti_all_reduce_data(self->client, NULL, &spec, values, values, &err),
                 TUTTI_INVALID_ARGUMENT);
    kept = used(self);
    assert_true(kept >= FIRST_BYTES + COUNT * sizeof(float));
    find_arena_tensor(self, name);
    assert_ok(tutti_range_format(name, (64U << 20) - 64, &one, text, &err));
    tutti_op_init(&op);
    op.output = text;
    op.peer = 1 - self->rank;
    op.async = true;
    assert_ok(tutti_recv(self->client, &op, &result, &err));

    first = allocate(self, most / sizeof(float)); /* no room beside the block: another tensor */
    assert_true(used(self) == kept + most);
    assert_ok(tutti_barrier(self->client, NULL, NULL, &err));
    tutti_op_init(&op);
    op.peer = 1 - self->rank;
    assert_ok(tutti_send_data(self->client, &op, &one, values, &err));
    work = result.work;
    assert_ok(tutti_wait(self->client, &work, 1, 0, &status, &err));
    assert_int_equal(status.error.code, TUTTI_OK);
    second =
        allocate(self, most / sizeof(float)); /* nothing is written: in the place of the block */
    assert_true(used(self) == FIRST_BYTES + 2 * most);
    tutti_free_memory(self->client, first);
    tutti_free_memory(self->client, second);
    tutti_free_memory(self->client, beside);
    free(values);
}

static void
test_arena__gives_idle_tensors_back(void **state)
{
    rig *self = *state;
    void *large[4];
    tutti_arena_stats stats;
    tutti_error err;
    size_t i;

    for (i = 0; i < COUNT_OF(large); i++) {
        assert_ok(tutti_alloc(self->client, 128U << 20, &large[i], &err));
    }
    tutti_arena_stat(self->client, &stats);
    assert_true(stats.used_bytes == 512U << 20);
    for (i = 0; i < COUNT_OF(large); i++) {
        tutti_free_memory(self->client, large[i]);
    }
    tutti_arena_stat(self->client, &stats);
    assert_int_equal(stats.used_bytes, 0);
    assert_true(stats.mapped_bytes <= 256U << 20);
}

static void
test_arena__of_a_forked_child_is_closed_and_refused(void **state)
{
    rig *self = *state;
    float *values = allocate(self, 16);
    tutti_error err;
    void *memory;
    int status;
    pid_t child;

    fill(values, 16, 1);
    child = fork();
    if (child == 0) {
        const bool refused = tutti_alloc(self->client, 512U << 20, &memory, &err) != TUTTI_OK &&
                             strcmp(err.reason, "FORKED") == 0;

        tutti_close(self->client);
        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check(values, 16, 1);
    tutti_free_memory(self->client, values);
}

static void
test_arena__that_is_not_lent_is_refused_and_ops_go_on(void **state)
{
    rig *self = *state;
    float *values = malloc(4 * COUNT * sizeof(float));
    const tutti_spec spec = vector(4 * COUNT);
    tutti_error err;
    void *memory;

    assert_non_null(values);
    assert_fails(tutti_alloc(self->client, 100, &memory, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "SHARE_OFF");
    fill(values, 4 * COUNT, (float)self->rank + 1);
    assert_ok(tutti_all_reduce_data(self->client, NULL, &spec, values, values, &err));
    check(values, 4 * COUNT, 3);
    free(values);
}

static void
wait_for_line(const char *said)
{
    char line[16];

    puts(said);
    (void)fflush(stdout);
    if (fgets(line, sizeof(line), stdin) == NULL) {
        exit(3);
    }
}

/* Printed: what it was about, and OK or the reason and the text. */
static void
say(const char *what, tutti_code code, const tutti_error *err)
{
    printf("%s %s %s\n", what, code == TUTTI_OK ? "OK" : err->reason,
           code == TUTTI_OK ? "" : err->text);
}

/* What ops on memory of the arena say when its agent has died; the memory stays. */
static int
outlive_agent(void)
{
    void *given = NULL;
    const tutti_spec spec = vector(COUNT);
    float *plain = calloc(COUNT, sizeof(float));
    float *values;
    rig *self;
    void *more = NULL;
    tutti_error err;

    (void)set_up(&given);
    self = given;
    values = allocate(self, COUNT);
    fill(values, COUNT, 2);
    assert_non_null(plain);
    assert_ok(tutti_all_reduce_data(self->client, NULL, &spec, values, values, &err));
    wait_for_line("ready");
    check(values, COUNT, 2);
    fill(values, COUNT, 5);
    say("first", tutti_all_reduce_data(self->client, NULL, &spec, values, values, &err), &err);
    say("alloc", tutti_alloc(self->client, 64, &more, &err), &err);
    say("plain", tutti_all_reduce_data(self->client, NULL, &spec, plain, plain, &err), &err);
    say("again", tutti_all_reduce_data(self->client, NULL, &spec, values, values, &err), &err);
    check(values, COUNT, 5);
    tutti_free_memory(self->client, values);
    tutti_free_memory(self->client, more);
    free(plain);
    (void)tear_down(&given);
    puts("closed OK");
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_arena__is_reduced_in_place_without_a_copy),
        TEST(test_arena__is_gathered_from_one_block_to_another),
        TEST(test_arena__is_broadcast_and_scattered_and_reduced_to_a_root),
        TEST(test_arena__stages_large_arrays_of_the_caller),
        TEST(test_arena__serves_queues),
        TEST(test_arena__serves_lists),
        TEST(test_arena__gathers_what_lies_in_its_result),
        TEST(test_arena__scatters_into_what_is_given),
        TEST(test_arena__of_a_lease_ends_with_it),
        TEST(test_arena__of_a_lease_goes_with_what_is_in_doubt),
        TEST(test_arena__overlap_is_refused_by_name),
        TEST(test_arena__drawn_blocks_keep_what_is_written),
        TEST(test_arena__keeps_the_block_of_a_failed_op_while_its_tensor_is_written),
        TEST(test_arena__gives_idle_tensors_back),
        TEST(test_arena__of_a_forked_child_is_closed_and_refused),
    };
    const struct CMUnitTest without[] = {
        TEST(test_arena__that_is_not_lent_is_refused_and_ops_go_on),
    };

    if (argc > 1 && strcmp(argv[1], "outlive") == 0) {
        return outlive_agent();
    }
    return argc > 1 && strcmp(argv[1], "none") == 0 ? cmocka_run_group_tests(without, NULL, NULL)
                                                    : cmocka_run_group_tests(tests, NULL, NULL);
}
