/*
 * Goal: the bookkeeping of blocks is exact after any history, also when memory for it is gone.
 * Method: a shadow with one flag per 64 bytes, and an allocation sweep.
 */
#include "support/sweep.h"
#include "support/testing.h"

#include "tensor/host/blocks.h"

#define UNIT TUTTI_BLOCK_ALIGN
#define UNITS 8192U

static bool shadow[UNITS];

static uint64_t
draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void
set_shadow(const tutti_block *block, bool taken)
{
    size_t unit;

    for (unit = block->offset / UNIT; unit < (block->offset + block->size) / UNIT; unit++) {
        assert_int_equal(shadow[unit], !taken);
        shadow[unit] = taken;
    }
}

/* The free run around or in which `range` lies is exactly `range`. */
static void
assert_is_run(tutti_range range)
{
    size_t unit;

    for (unit = range.offset / UNIT; unit < range.end / UNIT; unit++) {
        assert_false(shadow[unit]);
    }
    assert_true(range.offset == 0 || shadow[range.offset / UNIT - 1]);
    assert_true(range.end == UNITS * UNIT || shadow[range.end / UNIT]);
}

static void
measure_shadow(uint64_t *ret_used, uint64_t *ret_longest)
{
    uint64_t used = 0;
    uint64_t longest = 0;
    uint64_t run = 0;
    size_t unit;

    for (unit = 0; unit < UNITS; unit++) {
        run = shadow[unit] ? 0 : run + UNIT;
        used += shadow[unit] ? UNIT : 0;
        longest = run > longest ? run : longest;
    }
    *ret_used = used;
    *ret_longest = longest;
}

static tutti_block *
take(tutti_blocks *blocks, uint64_t bytes)
{
    tutti_block *block = NULL;
    tutti_range hole;
    tutti_error err;

    assert_ok(tutti_blocks_take(blocks, bytes, &block, &hole, &err));
    return block;
}

static void
step_take(tutti_blocks *blocks, tutti_block **slot, uint64_t bytes)
{
    tutti_space_stats stats = {0};
    tutti_range hole = {0};
    tutti_error err;

    tutti_blocks_stat(blocks, &stats);
    if (bytes > stats.hole_bytes_max) {
        assert_fails(tutti_blocks_take(blocks, bytes, slot, &hole, &err), TUTTI_RESOURCE_EXHAUSTED);
        return;
    }
    assert_ok(tutti_blocks_take(blocks, bytes, slot, &hole, &err));
    assert_int_equal((*slot)->size, (bytes + UNIT - 1) / UNIT * UNIT);
    assert_int_equal((*slot)->offset % UNIT, 0);
    assert_is_run(hole);
    assert_in_range((*slot)->offset, hole.offset, hole.end - (*slot)->size);
    set_shadow(*slot, true);
}

static void
step_give(tutti_blocks *blocks, tutti_block **slot)
{
    set_shadow(*slot, false);
    assert_is_run(tutti_blocks_give(blocks, *slot));
    *slot = NULL;
}

static void
test_blocks__agree_with_their_shadow_over_many_random_steps(void **state)
{
    tutti_block *slots[300] = {0};
    tutti_space_stats stats = {0};
    uint64_t seed = 424242;
    tutti_blocks blocks;
    uint64_t longest;
    uint64_t used;
    tutti_error err;
    size_t step;

    (void)state;
    memset(shadow, 0, sizeof(shadow));
    assert_ok(tutti_blocks_init(&blocks, UNITS * UNIT, &err));
    for (step = 0; step < 40000; step++) {
        tutti_block **slot = &slots[draw(&seed) % COUNT_OF(slots)];

        if (*slot != NULL) {
            step_give(&blocks, slot);
        } else {
            step_take(&blocks, slot, 1 + draw(&seed) % (draw(&seed) % 10 == 0 ? 100000 : 2000));
        }
        measure_shadow(&used, &longest);
        tutti_blocks_stat(&blocks, &stats);
        assert_int_equal(stats.used_bytes, used);
        assert_int_equal(stats.hole_bytes_max, longest);
    }
    for (step = 0; step < COUNT_OF(slots); step++) {
        if (slots[step] != NULL) {
            step_give(&blocks, &slots[step]);
        }
    }
    tutti_blocks_stat(&blocks, &stats);
    assert_int_equal(stats.used_bytes, 0);
    assert_int_equal(stats.hole_bytes_max, UNITS * UNIT);
    tutti_blocks_fini(&blocks);
}

static void
test_block__comes_from_the_smallest_hole_with_room(void **state)
{
    tutti_block *parts[6];
    tutti_block *block;
    tutti_blocks blocks;
    tutti_error err;
    uint64_t smallest;
    size_t i;

    (void)state;
    assert_ok(tutti_blocks_init(&blocks, UNITS * UNIT, &err));
    parts[0] = take(&blocks, 1024); /* holes: 1024, 256, 512 and the rest */
    parts[1] = take(&blocks, 64);
    parts[2] = take(&blocks, 256);
    parts[3] = take(&blocks, 64);
    parts[4] = take(&blocks, 512);
    parts[5] = take(&blocks, 64);
    smallest = parts[4]->offset;
    for (i = 0; i < COUNT_OF(parts); i += 2) {
        (void)tutti_blocks_give(&blocks, parts[i]);
    }
    block = take(&blocks, 300);
    assert_int_equal(block->offset, smallest);
    (void)tutti_blocks_give(&blocks, block);
    for (i = 1; i < COUNT_OF(parts); i += 2) {
        (void)tutti_blocks_give(&blocks, parts[i]);
    }
    tutti_blocks_fini(&blocks);
}

static void
test_block__that_is_large_begins_at_a_page_or_a_huge_page(void **state)
{
    static const struct {
        uint64_t bytes;
        uint64_t align;
    } cases[] = {
        {100, 64},
        {(64U << 10) - 64, 64},
        {64U << 10, 4096},
        {(2U << 20) + 64, 4096},
        {2U << 20, 2U << 20},
        {6U << 20, 2U << 20},
        {(32U << 20) + 64, 2U << 20},
    };
    tutti_block *odd;
    tutti_block *block;
    tutti_blocks blocks;
    tutti_error err;
    size_t i;

    (void)state;
    assert_ok(tutti_blocks_init(&blocks, 64U << 20, &err));
    odd = take(&blocks, 64);
    for (i = 0; i < COUNT_OF(cases); i++) {
        block = take(&blocks, cases[i].bytes);
        assert_int_equal(block->offset, cases[i].align);
        (void)tutti_blocks_give(&blocks, block);
    }
    (void)tutti_blocks_give(&blocks, odd);
    tutti_blocks_fini(&blocks);
}

static void
test_block__that_fits_is_not_refused_for_its_alignment(void **state)
{
    const uint64_t limit = 4U << 20;
    tutti_block *odd;
    tutti_block *block;
    tutti_blocks blocks;
    tutti_error err;

    (void)state;
    assert_ok(tutti_blocks_init(&blocks, limit, &err));
    odd = take(&blocks, 64);
    block = take(&blocks, 4U << 19); /* a whole huge page fits aligned ... */
    assert_int_equal(block->offset, 2U << 20);
    (void)tutti_blocks_give(&blocks, block);
    block = take(&blocks, limit - 64); /* ... but here only as it comes */
    assert_int_equal(block->offset, 64);
    (void)tutti_blocks_give(&blocks, block);
    (void)tutti_blocks_give(&blocks, odd);
    tutti_blocks_fini(&blocks);
}

/* More holes that are large enough but lie badly than a lookup walks through. */
static void
test_block__is_found_behind_many_holes_that_lie_badly(void **state)
{
    enum {
        HOLES = 60,
        HALF = 32U << 10
    };
    tutti_block *walls[HOLES];
    tutti_block *halves[HOLES][2];
    tutti_block *block;
    tutti_blocks blocks;
    tutti_error err;
    size_t i;

    (void)state;
    assert_ok(tutti_blocks_init(&blocks, 16U << 20, &err));
    for (i = 0; i < HOLES; i++) {
        walls[i] = take(&blocks, 64);
        halves[i][0] = take(&blocks, HALF); /* both together: 64 KiB, but at no page */
        halves[i][1] = take(&blocks, HALF);
        assert_int_not_equal(halves[i][0]->offset % 4096, 0);
    }
    for (i = 0; i < HOLES; i++) {
        (void)tutti_blocks_give(&blocks, halves[i][0]);
        (void)tutti_blocks_give(&blocks, halves[i][1]);
    }
    block = take(&blocks, (uint64_t)2 * HALF);
    assert_int_equal(block->offset % 4096, 0);
    assert_true(block->offset > walls[HOLES - 1]->offset);
    (void)tutti_blocks_give(&blocks, block);
    for (i = 0; i < HOLES; i++) {
        (void)tutti_blocks_give(&blocks, walls[i]);
    }
    tutti_blocks_fini(&blocks);
}

/* Cutting a hole in three needs two records; whichever is refused, the hole is whole again. */
static void
test_blocks__survive_every_refused_allocation(void **state)
{
    tutti_space_stats before = {0};
    tutti_space_stats after = {0};
    tutti_block *block = NULL;
    tutti_code code = TUTTI_INTERNAL;
    tutti_range hole;
    tutti_blocks blocks;
    tutti_block *odd;
    tutti_error err;
    size_t refused = 0;
    size_t n;

    (void)state;
    assert_ok(tutti_blocks_init(&blocks, 8U << 20, &err));
    odd = take(&blocks, 64);
    tutti_blocks_stat(&blocks, &before);
    for (n = 0; code != TUTTI_OK; n++) {
        sweep_fail_at(n);
        code = tutti_blocks_take(&blocks, 2U << 20, &block, &hole, &err);
        assert_int_equal(sweep_stop(), code != TUTTI_OK);
        if (code != TUTTI_OK) {
            assert_int_equal(code, TUTTI_RESOURCE_EXHAUSTED);
            tutti_blocks_stat(&blocks, &after);
            assert_memory_equal(&before, &after, sizeof(before));
            refused++;
        }
    }
    assert_int_equal(refused, 2);
    (void)tutti_blocks_give(&blocks, block);
    (void)tutti_blocks_give(&blocks, odd);
    tutti_blocks_fini(&blocks);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks__agree_with_their_shadow_over_many_random_steps),
        cmocka_unit_test(test_block__comes_from_the_smallest_hole_with_room),
        cmocka_unit_test(test_block__that_is_large_begins_at_a_page_or_a_huge_page),
        cmocka_unit_test(test_block__that_fits_is_not_refused_for_its_alignment),
        cmocka_unit_test(test_block__is_found_behind_many_holes_that_lie_badly),
        cmocka_unit_test(test_blocks__survive_every_refused_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
