/*
 * Map: an intrusive ordered map from bytes to the struct that embeds the node.
 *
 * Red-black trees of libbsd underneath; nothing is allocated. The key's memory belongs to the
 * owner of the node and must not change while the node is in a map. Keys are unique and ordered
 * as memcmp orders them, the shorter first.
 */
#ifndef TUTTI_BASE_DATA_MAP_H
#define TUTTI_BASE_DATA_MAP_H

#include <bsd/sys/tree.h>
#include <stdint.h>

#include "base/data/bytes.h"

typedef struct tutti_map_node tutti_map_node;
struct tutti_map_node {
    RB_ENTRY(tutti_map_node) links;
    tutti_bytes key;
};

typedef struct tutti_map {
    RB_HEAD(tutti_map_tree, tutti_map_node) tree;
    size_t count;
} tutti_map;

void tutti_map_init(tutti_map *map);

/* NULL when put in; else the node that has the key already, and nothing changed. */
tutti_map_node *tutti_map_add(tutti_map *map, tutti_map_node *node);

void tutti_map_remove(tutti_map *map, tutti_map_node *node);

/* NULL when there is none. */
tutti_map_node *tutti_map_find(const tutti_map *map, tutti_bytes key);

/* The first node whose key is not before `key`; NULL when there is none. */
tutti_map_node *tutti_map_from(const tutti_map *map, tutti_bytes key);

tutti_map_node *tutti_map_first(const tutti_map *map);
tutti_map_node *tutti_map_next(tutti_map_node *node);

/* A key of a number, big-endian so that order is kept; `storage` lives as long as the node. */
tutti_bytes tutti_map_key_u64(unsigned char storage[8], uint64_t number);

#endif
