/* The options of groups and meshes. */
#include "client/cli/cli.h"
#include "client/cli/group/commands.h"
#include "client/cli/parse/options.h"

const cli_option cli_group_create_options[] = {
    OPTION_RANK,
    {"tag", 0, "TAG", "tag that tells groups of the same ranks apart", NULL},
    {"sort", 0, NULL, "sort the list first", NULL},
    {"ephemeral", 0, NULL, "delete it when all agents that are its members now are gone", NULL},
    OPTION_END,
};

const cli_option cli_group_abort_options[] = {
    OPTION_RANK,
    {"reason", 0, "TEXT", "why, for the other ranks (at most 256 bytes)", NULL},
    OPTION_END,
};

const cli_option cli_group_split_options[] = {
    OPTION_RANK_ONE,
    {"size", 0, "N", "ranks in each part", NULL},
    {"count", 0, "N", "how many parts", NULL},
    {"lists", 0, "LISTS", "the parts: 0-3/4-7", NULL},
    {"equal", 0, NULL, "refuse lists of different sizes", NULL},
    {"name", 0, "NAME", "name of the parts, each with its number after it", NULL},
    {"tag", 0, "TAG", "tag that tells groups of the same ranks apart", NULL},
    {"ephemeral", 0, NULL, "delete a part when all agents that are its members now are gone", NULL},
    OPTION_END,
};

const cli_option cli_group_translate_options[] = {
    OPTION_RANK,
    {"from", 0, "GROUP", "group to which RANKS belong (default: world)", NULL},
    {"to", 0, "GROUP", "group whose ranks are shown (default: world)", NULL},
    OPTION_END,
};

const cli_option cli_mesh_create_options[] = {
    OPTION_RANK,
    {"dims", 0, "NAMES", "names of the dimensions: dp,tp", NULL},
    {"ranks", 0, "RANKS",
     "ranks of the mesh, the last dimension runs fastest (default: 0, 1, 2, ...)", NULL},
    OPTION_END,
};

const cli_option cli_mesh_slice_options[] = {
    OPTION_RANK,
    {"flatten", 0, NULL, "make one dimension of them", NULL},
    OPTION_END,
};

#define OPTION_KEY                                                                                 \
    {                                                                                              \
        "key", 0, "KEY", "tells independent sequences of calls apart (default: none)", NULL        \
    }

const cli_option cli_metadata_options[] = {
    OPTION_RANK,
    OPTION_GROUP,
    OPTION_KEY,
    OPTION_END,
};

const cli_option cli_metadata_broadcast_options[] = {
    OPTION_RANK, OPTION_GROUP,
    OPTION_KEY,  {"root", 0, "R", "group rank that gives the value (default: 0)", NULL},
    OPTION_END,
};
