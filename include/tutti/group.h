/*
 * Groups: ordered lists of ranks, kept at the coordinator. Part of tutti/client.h, which says what
 * holds for all functions.
 *
 * Wherever a group is named, "mesh:NAME/DIM" is the caller's group along a dimension of a mesh
 * (tutti/mesh.h).
 */
#ifndef TUTTI_GROUP_H
#define TUTTI_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_group_info {
    uint64_t id;
    char name[TUTTI_NAME_MAX + 1];
    uint64_t epoch;
    uint32_t rank_count;
    uint32_t *ranks; /* position = group rank; [owned] freed by tutti_group_info_free */
    int32_t rank;    /* of this client in it; -1 = no member, or a client without an agent */
    char tag[TUTTI_NAME_MAX + 1]; /* "" = none */
} tutti_group_info;

TUTTI_API void tutti_group_info_free(tutti_group_info *info); /* what it points to */

/*
 * What a group is to be. By name: the same name and list again is the same group. By tag: the same
 * tag and list is the same group, which the coordinator names. With neither every call makes a new
 * one, and the k-th call of a member for a list finds what the k-th call of another one made.
 */
typedef struct tutti_group_options {
    size_t size;        /* of this struct: set by init */
    const char *name;   /* NULL = the coordinator names it */
    const char *tag;    /* NULL = none */
    const char *parent; /* the group whose ranks are listed; NULL = ranks of the job */
    bool sort;          /* the list first: then its order does not matter */
} tutti_group_options;

TUTTI_API void tutti_group_options_init(tutti_group_options *options);

/*
 * Make a group of an ordered list of ranks, this one among them. Every member may call it; of a
 * group with a name or a tag one is enough.
 *
 * [out, owned] ret_info  tutti_group_info_free it; NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT     EMPTY_GROUP, DUPLICATE_RANK, RANK_RANGE, BAD_NAME
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP
 * TUTTI_ALREADY_EXISTS       NAME_TAKEN
 * TUTTI_UNAVAILABLE          RANK_LOST
 * TUTTI_NOT_FOUND            NO_GROUP: the parent, or what this call is for was deleted already
 */
TUTTI_API tutti_code tutti_group_create(tutti_client *client, const char *name,
                                        const uint32_t *ranks, size_t count,
                                        tutti_group_info *ret_info, tutti_error *err);
TUTTI_API tutti_code tutti_group_create_with(tutti_client *client,
                                             const tutti_group_options *options,
                                             const uint32_t *ranks, size_t count,
                                             tutti_group_info *ret_info, tutti_error *err);
TUTTI_API tutti_code tutti_group_get(tutti_client *client, const char *name,
                                     tutti_group_info *ret_info, tutti_error *err);

/* delete: TUTTI_NOT_FOUND when there is none. destroy: that group, for all members to call. */
TUTTI_API tutti_code tutti_group_delete(tutti_client *client, const char *name, tutti_error *err);
TUTTI_API tutti_code tutti_group_destroy(tutti_client *client, const tutti_group_info *group,
                                         tutti_error *err);
/* [out, owned] ret_infos  free each with tutti_group_info_free, then the array with tutti_free */
TUTTI_API tutti_code tutti_group_list(tutti_client *client, tutti_group_info **ret_infos,
                                      size_t *ret_count, tutti_error *err);

/* Lists one after the other: of list i ranks[starts[i]] to ranks[starts[i + 1] - 1]. */
typedef struct tutti_rank_lists {
    size_t count;
    size_t *starts;  /* count + 1 of them */
    uint32_t *ranks; /* [owned] both, freed by tutti_rank_lists_free */
} tutti_rank_lists;

TUTTI_API void tutti_rank_lists_free(tutti_rank_lists *lists); /* what it points to */

typedef enum tutti_split_kind {
    TUTTI_SPLIT_SIZE = 1,  /* blocks of `number` consecutive ranks */
    TUTTI_SPLIT_COUNT = 2, /* `number` blocks */
    TUTTI_SPLIT_LISTS = 3, /* any lists that do not overlap */
} tutti_split_kind;

typedef struct tutti_split {
    size_t size; /* of this struct: set by init */
    tutti_split_kind kind;
    int32_t number;
    const tutti_rank_lists *lists; /* group ranks of the parent */
    bool equal_sizes;              /* lists must have them */
    bool validate_only;            /* make no group */
} tutti_split;

TUTTI_API void tutti_split_init(tutti_split *split); /* into blocks of 1 */

/*
 * Split a group (options->parent) into parts, of which this client gets the one it is in. Parts are
 * called options->name/0, /1, ...; or by tag, or by their turn, as single groups are.
 *
 * [in]         options    NULL = the world's parts, without name
 * [out, owned] ret_info   its rank_count is 0 when this client is in no list, or nothing was made;
 *                         NULL = not wanted
 * [out, owned] ret_lists  all parts, in ranks of the job; NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT     GROUP_SIZE: does not divide, or sizes differ; OVERLAP, EMPTY_GROUP,
 *                            DUPLICATE_RANK, RANK_RANGE, BAD_NAME
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: not in the parent
 * and what tutti_group_create says
 */
TUTTI_API tutti_code tutti_group_split(tutti_client *client, const tutti_group_options *options,
                                       const tutti_split *split, tutti_group_info *ret_info,
                                       tutti_rank_lists *ret_lists, tutti_error *err);

/*
 * From group ranks of one group to those of another. NULL = "world"; -1 = no member, and stays -1.
 *
 * [out] ret_ranks  `count` of them
 *
 * TUTTI_INVALID_ARGUMENT  RANK_RANGE: no rank of `from`; LOOKUP_LIMIT: more than TUTTI_RANKS_MAX
 * TUTTI_NOT_FOUND         NO_GROUP
 */
TUTTI_API tutti_code tutti_ranks_translate(tutti_client *client, const char *from, const char *to,
                                           const int32_t *ranks, size_t count, int32_t *ret_ranks,
                                           tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
