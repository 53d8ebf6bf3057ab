/*
 * A sorted map whose nodes are members of the things that it holds, so adding needs no memory and
 * cannot fail. The tree is the red-black tree of libbsd's sys/tree.h.
 */
#include "base/data/map.h"

#include <assert.h>

static int
compare_map(const tutti_map_node *left, const tutti_map_node *right)
{
    return tutti_bytes_compare(left->key, right->key);
}

/* The macros generate more than is used, and cast away const. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_INTERNAL(tutti_map_tree, tutti_map_node, links, compare_map, static)
#pragma GCC diagnostic pop

void
tutti_map_init(tutti_map *map)
{
    RB_INIT(&map->tree);
    map->count = 0;
}

tutti_map_node *
tutti_map_add(tutti_map *map, tutti_map_node *node)
{
    tutti_map_node *there = RB_INSERT(tutti_map_tree, &map->tree, node);

    if (there == NULL) {
        map->count++;
    }
    return there;
}

void
tutti_map_remove(tutti_map *map, tutti_map_node *node)
{
    assert(map->count > 0);
    RB_REMOVE(tutti_map_tree, &map->tree, node);
    map->count--;
}

tutti_map_node *
tutti_map_find(const tutti_map *map, tutti_bytes key)
{
    tutti_map_node wanted = {.key = key};

    return RB_FIND(tutti_map_tree, (struct tutti_map_tree *)(uintptr_t)&map->tree, &wanted);
}

tutti_map_node *
tutti_map_from(const tutti_map *map, tutti_bytes key)
{
    tutti_map_node wanted = {.key = key};

    return RB_NFIND(tutti_map_tree, (struct tutti_map_tree *)(uintptr_t)&map->tree, &wanted);
}

tutti_map_node *
tutti_map_first(const tutti_map *map)
{
    return RB_MIN(tutti_map_tree, (struct tutti_map_tree *)(uintptr_t)&map->tree);
}

tutti_map_node *
tutti_map_next(tutti_map_node *node)
{
    return RB_NEXT(tutti_map_tree, NULL, node);
}

/* The highest byte comes first, so that keys sort as the numbers do. */
tutti_bytes
tutti_map_key_u64(unsigned char storage[8], uint64_t number)
{
    int i;

    for (i = 7; i >= 0; i--) {
        storage[i] = (unsigned char)(number & 0xff);
        number >>= 8;
    }
    return (tutti_bytes){storage, 8};
}
