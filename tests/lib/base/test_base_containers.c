/*
 * Goal: lists, maps, slots and buffers keep what they were given, in order, and refuse the rest.
 * Method: random work against a plain array beside it.
 */
#include "support/testing.h"

#include "base/data/list.h"
#include "base/data/map.h"
#include "base/data/slots.h"

typedef struct item {
    tutti_map_node node;
    tutti_list_node link;
    unsigned char key[8];
    uint64_t number;
} item;

static void
test_list__adds_removes_and_splices_in_order(void **state)
{
    item items[4];
    tutti_list_node head;
    tutti_list_node other;
    tutti_list_node *link;
    tutti_list_node *spare;
    uint64_t seen = 0;
    size_t i;

    (void)state;
    tutti_list_init(&head);
    tutti_list_init(&other);
    assert_null(tutti_list_pop(&head));
    for (i = 0; i < COUNT_OF(items); i++) {
        items[i].number = i;
        tutti_list_add(i < 2 ? &head : &other, &items[i].link);
    }
    tutti_list_splice(&head, &other);
    assert_true(tutti_list_empty(&other));
    tutti_list_remove(&items[1].link);
    tutti_list_remove(&items[1].link); /* once more is fine */
    tutti_list_each(link, spare, &head)
    {
        seen = seen * 10 + tutti_container_of(link, item, link)->number;
        tutti_list_remove(link);
    }
    assert_int_equal(seen, 23); /* 0, 2, 3 */
    assert_true(tutti_list_empty(&head));
}

static void
test_map__finds_orders_and_forgets(void **state)
{
    enum {
        COUNT = 500
    };
    static item items[COUNT];
    tutti_map map;
    tutti_map_node *node;
    unsigned char key[8];
    uint64_t before = 0;
    size_t i;

    (void)state;
    tutti_map_init(&map);
    for (i = 0; i < COUNT; i++) {
        items[i].number = (i * 7919) % COUNT * 3;
        items[i].node.key = tutti_map_key_u64(items[i].key, items[i].number);
        assert_null(tutti_map_add(&map, &items[i].node));
    }
    assert_ptr_equal(tutti_map_add(&map, &(tutti_map_node){.key = items[9].node.key}),
                     &items[9].node);
    assert_int_equal(map.count, COUNT);
    for (node = tutti_map_first(&map); node != NULL; node = tutti_map_next(node)) {
        const item *one = tutti_container_of(node, item, node);

        assert_true(one->number == 0 || one->number > before);
        before = one->number;
    }
    node = tutti_map_from(&map, tutti_map_key_u64(key, 4));
    assert_int_equal(tutti_container_of(node, item, node)->number, 6);
    assert_null(tutti_map_find(&map, tutti_map_key_u64(key, 4)));
    assert_null(tutti_map_from(&map, tutti_map_key_u64(key, COUNT * 3)));
    for (i = 0; i < COUNT; i++) {
        assert_ptr_equal(tutti_map_find(&map, items[i].node.key), &items[i].node);
        tutti_map_remove(&map, &items[i].node);
        assert_null(tutti_map_find(&map, items[i].node.key));
    }
    assert_null(tutti_map_first(&map));
}

static void
test_map__orders_a_prefix_before_what_it_begins(void **state)
{
    tutti_map map;
    tutti_map_node nodes[3] = {0};

    (void)state;
    tutti_map_init(&map);
    nodes[0].key = tutti_bytes_of("ab");
    nodes[1].key = tutti_bytes_of("");
    nodes[2].key = tutti_bytes_of("a");
    assert_null(tutti_map_add(&map, &nodes[0]));
    assert_null(tutti_map_add(&map, &nodes[1]));
    assert_null(tutti_map_add(&map, &nodes[2]));
    assert_ptr_equal(tutti_map_first(&map), &nodes[1]);
    assert_ptr_equal(tutti_map_next(&nodes[1]), &nodes[2]);
    assert_ptr_equal(tutti_map_next(&nodes[2]), &nodes[0]);
}

static void
test_slots__never_give_a_freed_number_again(void **state)
{
    tutti_slots slots;
    uint64_t first = 0;
    uint64_t second = 0;
    uint32_t cursor = 0;
    int owner = 0;
    int other = 0;
    tutti_error err;

    (void)state;
    tutti_slots_init(&slots, 2);
    assert_ok(tutti_slots_add(&slots, &owner, &first, &err));
    assert_int_not_equal(first, 0);
    assert_ptr_equal(tutti_slots_find(&slots, first), &owner);
    tutti_slots_remove(&slots, first);
    assert_null(tutti_slots_find(&slots, first));
    assert_ok(tutti_slots_add(&slots, &other, &second, &err));
    assert_int_not_equal(first, second);
    assert_null(tutti_slots_find(&slots, first));
    assert_ok(tutti_slots_add(&slots, &owner, &first, &err));
    assert_fails(tutti_slots_add(&slots, &owner, &first, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_text_has(err.text, "2 handles");
    assert_ptr_equal(tutti_slots_each(&slots, &cursor), &other);
    assert_ptr_equal(tutti_slots_each(&slots, &cursor), &owner);
    assert_null(tutti_slots_each(&slots, &cursor));
    assert_null(tutti_slots_find(&slots, UINT64_MAX));
    tutti_slots_fini(&slots);
}

static void
test_buf__grows_to_its_limit_and_no_further(void **state)
{
    tutti_buf buf;
    tutti_error err;
    int i;

    (void)state;
    tutti_buf_init(&buf, 100);
    for (i = 0; i < 10; i++) {
        assert_ok(tutti_buf_add(&buf, "0123456789", 10, &err));
    }
    assert_fails(tutti_buf_add(&buf, "x", 1, &err), TUTTI_RESOURCE_EXHAUSTED);
    assert_text_has(err.text, "at most 100");
    assert_int_equal(buf.size, 100);
    assert_memory_equal(buf.data + 90, "0123456789", 10);
    tutti_buf_fini(&buf);
}

static void
test_bytes__compare_by_bytes_then_length(void **state)
{
    (void)state;
    assert_true(tutti_bytes_compare(tutti_bytes_of("a"), tutti_bytes_of("b")) < 0);
    assert_true(tutti_bytes_compare(tutti_bytes_of("ab"), tutti_bytes_of("a")) > 0);
    assert_int_equal(tutti_bytes_compare(tutti_bytes_of(""), tutti_bytes_of("")), 0);
    assert_true(tutti_bytes_equal((tutti_bytes){"a\0b", 3}, (tutti_bytes){"a\0b", 3}));
    assert_false(tutti_bytes_equal((tutti_bytes){"a\0b", 3}, (tutti_bytes){"a\0c", 3}));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list__adds_removes_and_splices_in_order),
        cmocka_unit_test(test_map__finds_orders_and_forgets),
        cmocka_unit_test(test_map__orders_a_prefix_before_what_it_begins),
        cmocka_unit_test(test_slots__never_give_a_freed_number_again),
        cmocka_unit_test(test_buf__grows_to_its_limit_and_no_further),
        cmocka_unit_test(test_bytes__compare_by_bytes_then_length),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
