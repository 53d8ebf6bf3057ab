/*
 * Groups: named, ordered lists of distinct ranks, as communicators of MPI. The coordinator keeps
 * them; an op names one in tutti_op.group.
 *
 *     const uint32_t ranks[] = {3, 1};                      // rank 3 is group rank 0
 *     tutti_group_info pair;
 *     tutti_op op;
 *
 *     code = tutti_group_create(client, "pair", ranks, 2, &pair, &err);   // on ranks 1 and 3
 *     tutti_op_init(&op);
 *     op.group = pair.name;
 *     ...
 *     tutti_group_destroy(client, &pair, &err);             // every member may
 *     tutti_group_info_free(&pair);
 *
 * The group "world" has all ranks of the job in their order (of an elastic job: those that are
 * there), and exists as long as the job. Wherever a group is named, "mesh:NAME/DIM" is the caller's
 * group along a dimension of a mesh (tutti/mesh.h). A name that the caller gives has 1 to 127
 * bytes: letters, digits and . _ / - with a letter, digit or _ in front.
 *
 * Creating a group is no collective: the coordinator answers each caller at once, and one member
 * may do it for all if the group has a name or a tag. Members that do not call find it by its name
 * when they first use it in an op.
 *
 * Threads. Any thread may call these functions, several at once. Each blocks for one or more calls
 * to the coordinator, each of at most the client's timeout_ms (tutti_group_shrink says its own).
 * Outputs are written on success only.
 *
 * Statuses of all functions that take a client, besides the common statuses (tutti/client.h):
 *
 * TUTTI_FAILED_PRECONDITION  NO_COORDINATOR: neither the client's options, the agent nor
 *                            $TUTTI_COORDINATOR say where it is
 *                            STALE_INCARNATION: another process has the rank of this client's agent
 *                            now: connect again
 * TUTTI_NOT_FOUND            NO_JOB: no such job; NO_RANK: the client's rank was lost
 * TUTTI_INVALID_ARGUMENT     BAD_NAME: no name that a group, tag or mesh could have; MESH_DIM: of
 *                            "mesh:NAME/DIM": no such dimension
 *                            RANK_NEEDED: "mesh:NAME/DIM" by a client without an agent
 * TUTTI_RESOURCE_EXHAUSTED   no memory in this process, or in the coordinator
 * TUTTI_DATA_LOSS            what answers is no coordinator
 *
 * Caveats
 *
 * - A group is made of ranks, not of processes. If a rank is restarted, the group goes on with a
 *   new epoch and counts its ops from 1. How it looks: ops fail once with EPOCH_CHANGED. What to
 *   do: call again on all ranks.
 * - With neither a name nor a tag the coordinator matches calls by their turn. When an answer is
 *   lost, a call is made again until its time is over, with a token by which the coordinator counts
 *   it once. If it fails all the same, it may have counted. How it looks: this rank is one group
 *   ahead of the others for the same list, and its ops wait until their time is over. What to do:
 *   name groups, or tag them.
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

/* A group, as it was when the coordinator answered. */
typedef struct tutti_group_info {
    /* Unique in the job, never used again: tells a group from a later one of the same name. */
    uint64_t id;
    /* As it was created, or as the coordinator called it: "unnamed/7". */
    char name[TUTTI_NAME_MAX + 1];
    /* The newest epoch of the job at which one of its members joined. */
    uint64_t epoch;
    /* How many members it has: 1 to TUTTI_RANKS_MAX; 0 = no group (tutti_group_split). */
    uint32_t rank_count;
    /* [owned] Ranks of the job; the position is the group rank. tutti_group_info_free */
    uint32_t *ranks;
    /*
     * Group rank of this client's agent; -1 = it is no member, the client has no agent, or the info
     * is of tutti_group_list.
     */
    int32_t rank;
    /* The tag with which it was created; "" = none. */
    char tag[TUTTI_NAME_MAX + 1];
    /*
     * How long ago it was made, and by whom: "rank 2: alice", with the identity of the client or,
     * without one, its address. 0 and "" = not known: the coordinator was started since.
     */
    uint64_t age_ms;
    char owner[96];
} tutti_group_info;

/*
 * Frees the ranks; the struct is the caller's, its other fields stay. The group itself stays. Any
 * thread.
 *
 * [in] info  NULL is fine
 */
TUTTI_API void tutti_group_info_free(tutti_group_info *info);

/*
 * What a group is to be, for tutti_group_create_with and tutti_group_split. Begin with
 * tutti_group_options_init. When is the group of one call that of another?
 *
 *   with a name   the same name with the same ranks (and tag) is the same group
 *   with a tag    the same tag with the same ranks is the same group; the coordinator names it
 *   with neither  every call makes a new group, named by the coordinator; the k-th call of a rank
 *                 for a list of ranks finds what the k-th call of another member for that list
 *                 made. A restarted rank counts from one again
 */
typedef struct tutti_group_options {
    /* Bytes of this struct. Set by init; do not change it. */
    size_t size;
    /* The group's name; for a split, what the names of the parts begin with. NULL = none. */
    const char *name;
    /* Part of what the group is, in the letters of a name. NULL = none. */
    const char *tag;
    /* The group whose group ranks are listed, or that is split. NULL = "world". */
    const char *parent;
    /*
     * Sort the ranks first, so that members may list them in any order. Default: false. Not looked
     * at by tutti_group_split.
     */
    bool sort;
    /*
     * Delete the group when all agents that are its members when it is made are lost or have left,
     * though new agents may have their ranks: for a program that launches its agents, or whose
     * agents are restarted with it. If this client has a lease (tutti_lease_open), the group is also
     * deleted when the lease has ended: it goes with a program that dies, while its agents live. If
     * several members make or find it, each under a lease, the last of these leases counts. The
     * call that makes the group decides; a coordinator that was restarted keeps the group.
     * Default: false.
     */
    bool ephemeral;
    /*
     * The time limit in milliseconds of the group's ops that have none of their own, on all ranks
     * and by all clients. The call that makes the group decides. Default: 0 = each agent's
     * --op-timeout.
     */
    uint32_t timeout_ms;
} tutti_group_options;

/* [out] options  no name, no tag, the parent "world", sort false */
TUTTI_API void tutti_group_options_init(tutti_group_options *options);

/*
 * Make a group with a name, or find the one of this name and these ranks.
 *
 * [in]         name      not NULL or "": for groups without a name see tutti_group_create_with
 * [in]         ranks     ranks of the job, each once, in the order of their group ranks; the rank
 *                        of this client is among them
 * [in]         count     of ranks: 1 to the world size
 * [out, owned] ret_info  tutti_group_info_free it; NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT     EMPTY_GROUP: no ranks; DUPLICATE_RANK: a rank twice, or more ranks
 *                            than there are; RANK_RANGE: not below the world size; BAD_NAME
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: this client's rank is not in the list; NO_AGENT: the
 *                            client was connected without an agent
 * TUTTI_ALREADY_EXISTS       NAME_TAKEN: the name stands for other ranks, another order or another
 *                            tag: the text says for what
 * TUTTI_UNAVAILABLE          RANK_LOST: a rank of the list is lost: make a group without it, or
 *                            call again when it is back
 * TUTTI_RESOURCE_EXHAUSTED   GROUP_LIMIT: the job has as many groups and meshes (--group-limit,
 *                            4096), or its groups as many members (--group-members-limit, 1048576),
 *                            as it may: delete some
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_group_create(tutti_client *client, const char *name,
                                        const uint32_t *ranks, size_t count,
                                        tutti_group_info *ret_info, tutti_error *err);

/*
 * Make a group, or find it, by name, by tag or by turn.
 *
 * [in]         options   NULL = as init: by turn
 * [in]         ranks     as tutti_group_create, but group ranks of options->parent
 * [in]         count     of ranks
 * [out, owned] ret_info  tutti_group_info_free it; NULL = not wanted
 *
 * TUTTI_INVALID_ARGUMENT  BAD_STRUCT: options that were not initialised
 * TUTTI_NOT_FOUND         NO_GROUP, NO_MESH: the parent; or, by turn: the group that this call is
 *                         for was deleted before this rank called
 * TUTTI_ALREADY_EXISTS    NAME_TAKEN: also: the tag of these ranks is that of a group of another
 * name and what tutti_group_create says
 */
TUTTI_API tutti_code tutti_group_create_with(tutti_client *client,
                                             const tutti_group_options *options,
                                             const uint32_t *ranks, size_t count,
                                             tutti_group_info *ret_info, tutti_error *err);

/*
 * A group by its name. The client need not be a member, nor have an agent.
 *
 * [in]         name      NULL = "world"; "mesh:NAME/DIM" is this client's group
 * [out, owned] ret_info  not NULL; tutti_group_info_free it
 *
 * TUTTI_NOT_FOUND            NO_GROUP: no such group, or the job is not complete yet; NO_MESH
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: "mesh:NAME/DIM", and this rank is not in the mesh
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_group_get(tutti_client *client, const char *name,
                                     tutti_group_info *ret_info, tutti_error *err);

/*
 * Delete a group. Only a member may; the other members need not do anything. Ops that run when an
 * agent hears of it run on; those that not every rank has called within a second fail with
 * NO_GROUP.
 *
 * [in] name  the group that has this name at present
 *
 * TUTTI_NOT_FOUND            NO_GROUP: there is none
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: this rank is no member; WORLD_GROUP: "world" stays as
 *                            long as its job; MESH_GROUP: it stays as long as its mesh: delete
 *                            that; NO_AGENT
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_group_delete(tutti_client *client, const char *name, tutti_error *err);

/*
 * Delete exactly this group, in a way that all members may call: if it is gone already, or its name
 * is another group's now, the function returns TUTTI_OK and does nothing.
 *
 * [in] group  its id and name count; tutti_group_info_free it still
 *
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP, WORLD_GROUP, MESH_GROUP, NO_AGENT: as tutti_group_delete
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_group_destroy(tutti_client *client, const tutti_group_info *group,
                                         tutti_error *err);

/*
 * End all ops of a group, on all its ranks: those under way and those that wait end with ABORTED,
 * GROUP_ABORTED, and ops that are called later are refused. The text has the reason, and err->rank
 * is the rank that asked; it is the same on all ranks, for of several aborts the first counts. A
 * rank that is lost or stopped holds nothing up. The outputs of such ops are undefined. An op is
 * reported when nothing touches its memory any more; if another process, which may be stopped,
 * still has it after a second, the op ends all the same and its text says so: the agent then keeps
 * the memory, and a part of an arena that the caller has divided is not to be used again.
 *
 * The group stays aborted. What to do then: tutti_group_shrink it; or delete it and create it anew.
 * "world" can be aborted, too; ops on it are refused until a rank is restarted and joins. A group of
 * a mesh is aborted as long as its mesh.
 *
 * The function returns when the coordinator has taken it, which is a moment before ops end.
 *
 * [in] group   NULL = "world"
 * [in] reason  at most 256 bytes, for the other ranks; NULL = none
 *
 * TUTTI_NOT_FOUND            NO_GROUP, NO_MESH: there is none
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: this rank is no member; NO_AGENT
 * TUTTI_INVALID_ARGUMENT     REASON_LIMIT
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_group_abort(tutti_client *client, const char *group, const char *reason,
                                       tutti_error *err);

/*
 * Make a group of the ranks of another one that are alive. All of them call (MPIX_Comm_shrink,
 * ncclCommShrink); each gets the same group, with the same list in the order of the old group. The
 * function returns when every rank that is alive has called, or when the time of one caller is
 * over: who has not called by then is left out, and gets SHRUNK_WITHOUT when it calls.
 *
 * The new group is called NAME.2, and NAME.3 when that one shrinks. The old group is aborted, if it
 * was not yet, so its ops end and never meet those of the new one; delete it when it is not needed.
 * Give two seconds or more: a survivor may hear of the end of its op a second late (see
 * tutti_group_abort). A rank that has died counts as alive until the coordinator has noticed (--lost-grace,
 * --heartbeat-timeout). A rank whose agent lives and whose program has died with an open lease is not
 * waited for. A call that is repeated gets the same group.
 *
 * [in]         group       NULL = "world"
 * [in]         timeout_ms  how long to wait for ranks that are alive; 0 = the client's timeout_ms
 * [out, owned] ret_info    not NULL; tutti_group_info_free it
 *
 * TUTTI_FAILED_PRECONDITION  SHRUNK_WITHOUT: the group was shrunk without this rank: the text has
 *                            the list that it has missed, and why
 *                            NOT_IN_GROUP; NO_AGENT; MESH_GROUP: make another mesh; WORLD_GROUP:
 *                            "world" of an elastic job shrinks by itself
 * TUTTI_NOT_FOUND            NO_GROUP: there is none, or it was deleted meanwhile
 * TUTTI_UNAVAILABLE          RANK_LOST: this client's rank was lost meanwhile
 * TUTTI_ABORTED              SUPERSEDED: another thread has made this call for the same rank
 * TUTTI_RESOURCE_EXHAUSTED   GROUP_LIMIT, WAITER_LIMIT
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_group_shrink(tutti_client *client, const char *group,
                                        uint32_t timeout_ms, tutti_group_info *ret_info,
                                        tutti_error *err);

/*
 * All groups of the job, "world" among them and groups of meshes not, in the order of their names.
 * It asks for page after page: what is made or deleted meanwhile may be there or not.
 *
 * [out, owned] ret_infos  tutti_group_info_free each, then tutti_free the array; `rank` is -1 in
 *                         all
 * [out]        ret_count  of ret_infos; 0 = the job is not complete yet
 *
 * The statuses of all functions here.
 */
TUTTI_API tutti_code tutti_group_list(tutti_client *client, tutti_group_info **ret_infos,
                                      size_t *ret_count, tutti_error *err);

/*
 * Lists of ranks, one after the other: list i is ranks[starts[i]] to ranks[starts[i + 1] - 1]. As
 * an input, both arrays are the caller's; as an output, tutti_rank_lists_free frees them.
 */
typedef struct tutti_rank_lists {
    /* Number of lists. */
    size_t count;
    /* [owned] count + 1 positions in `ranks`: starts[0] is 0, starts[count] the length of ranks. */
    size_t *starts;
    /* [owned] The ranks of all lists. */
    uint32_t *ranks;
} tutti_rank_lists;

/*
 * Frees both arrays of an output, and empties it; the struct is the caller's. Any thread.
 *
 * [in] lists  NULL is fine
 */
TUTTI_API void tutti_rank_lists_free(tutti_rank_lists *lists);

/* Into which parts a group is split. */
typedef enum tutti_split_kind {
    TUTTI_SPLIT_SIZE = 1,  /* blocks of `number` consecutive group ranks */
    TUTTI_SPLIT_COUNT = 2, /* `number` blocks of consecutive group ranks */
    TUTTI_SPLIT_LISTS = 3, /* any lists that do not overlap, as colors of MPI_Comm_split */
} tutti_split_kind;

/* How to split. Begin with tutti_split_init. All members of the group say the same. */
typedef struct tutti_split {
    /* Bytes of this struct. Set by init; do not change it. */
    size_t size;
    /* Default: TUTTI_SPLIT_SIZE. */
    tutti_split_kind kind;
    /* Of SIZE and COUNT: 1 or more; divides the size of the parent. Default: 1. */
    int32_t number;
    /* Of LISTS: group ranks of the parent; not every rank has to be in a list. Default: NULL. */
    const tutti_rank_lists *lists;
    /* All lists must have the same size, else GROUP_SIZE. Default: false. */
    bool equal_sizes;
    /* Check, and fill ret_lists, but make no group. Default: false. */
    bool validate_only;
} tutti_split;

/* [out] split  into blocks of 1 */
TUTTI_API void tutti_split_init(tutti_split *split);

/*
 * Split a group into parts, of which this client gets the one that its rank is in. Each rank that
 * calls makes, or finds, its own part; the function does not wait for other ranks. Part i is called
 * options->name/i; with a tag, or with neither, parts are found as single groups are.
 *
 * [in]         options    the parent, and names for the parts; NULL = parts of "world" by turn
 * [in]         split      not NULL
 * [out, owned] ret_info   tutti_group_info_free it. Its rank_count is 0 if this rank is in no list,
 *                         or validate_only is set: `rank` is then the group rank that it would
 *                         have, -1 = in no list. NULL = not wanted
 * [out, owned] ret_lists  all parts, in ranks of the job; tutti_rank_lists_free it. NULL = not
 *                         wanted
 *
 * TUTTI_INVALID_ARGUMENT     GROUP_SIZE: the number does not divide the parent's size, or lists
 *                            differ in size and equal_sizes is set; OVERLAP: a rank is in two
 *                            lists; EMPTY_GROUP: no lists, an empty one, or no such kind;
 *                            DUPLICATE_RANK; RANK_RANGE; BAD_STRUCT: structs that were not initialised
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: this rank is not in the parent
 * TUTTI_NOT_FOUND            NO_GROUP, NO_MESH: the parent
 * and what tutti_group_create_with says of this rank's part
 */
TUTTI_API tutti_code tutti_group_split(tutti_client *client, const tutti_group_options *options,
                                       const tutti_split *split, tutti_group_info *ret_info,
                                       tutti_rank_lists *ret_lists, tutti_error *err);

/*
 * From group ranks of one group to those of another (MPI_Group_translate_ranks). With "world" as
 * one of them it translates between group ranks and ranks of the job.
 *
 * [in]  from       NULL = "world"
 * [in]  to         NULL = "world"
 * [in]  ranks      group ranks of `from`; -1 stays -1
 * [in]  count      of ranks: 0 to TUTTI_RANKS_MAX
 * [out] ret_ranks  `count` of them, in the same order; -1 = no member of `to`. May be `ranks`
 *
 * TUTTI_INVALID_ARGUMENT     RANK_RANGE: no group rank of `from`; LOOKUP_LIMIT: more than
 *                            TUTTI_RANKS_MAX
 * TUTTI_NOT_FOUND            NO_GROUP, NO_MESH
 * TUTTI_FAILED_PRECONDITION  NOT_IN_GROUP: "mesh:NAME/DIM", and this rank is not in the mesh
 * and the statuses of all functions here
 */
TUTTI_API tutti_code tutti_ranks_translate(tutti_client *client, const char *from, const char *to,
                                           const int32_t *ranks, size_t count, int32_t *ret_ranks,
                                           tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
