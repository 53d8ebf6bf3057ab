/* The options of groups and meshes. */
#include "client/cli/cli.h"
#include "client/cli/group/commands.h"
#include "client/cli/parse/options.h"

const cli_option cli_group_create_options[] = {
    OPTION_RANK,
    {"tag", 0, "TAG", "part of what the group is, besides its ranks", NULL},
    {"sort", 0, NULL, "sort the list first", NULL},
    OPTION_END,
};

const cli_option cli_group_split_options[] = {
    OPTION_RANK_ONE,
    {"size", 0, "N", "ranks in each part", NULL},
    {"count", 0, "N", "how many parts", NULL},
    {"lists", 0, "LISTS", "the parts: 0-3/4-7", NULL},
    {"equal", 0, NULL, "lists must have the same size", NULL},
    {"name", 0, "NAME", "of the parts, with their numbers behind it", NULL},
    {"tag", 0, "TAG", "part of what the groups are, besides their ranks", NULL},
    OPTION_END,
};

const cli_option cli_group_translate_options[] = {
    OPTION_RANK,
    {"from", 0, "GROUP", "whose ranks they are (default: world)", NULL},
    {"to", 0, "GROUP", "whose ranks are wanted (default: world)", NULL},
    OPTION_END,
};

const cli_option cli_mesh_create_options[] = {
    OPTION_RANK,
    {"dims", 0, "NAMES", "of the dimensions: dp,tp", NULL},
    {"ranks", 0, "RANKS", "the last dimension runs fastest (default: 0, 1, 2, ...)", NULL},
    OPTION_END,
};

const cli_option cli_mesh_slice_options[] = {
    OPTION_RANK,
    {"flatten", 0, NULL, "make it one dimension", NULL},
    OPTION_END,
};
